// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
)

func ofTeam(team string) func(*Node) {
	return func(n *Node) { n.Labels = map[string]string{"pool": "a", teamLabel: team} }
}

var teamA = labels.SelectorFromSet(labels.Set{teamLabel: "a"})

// TestNodesOfOtherTeams tests a NodeJob in a namespace that is limited to the nodes of team a. Nothing but what is listed is done.
func TestNodesOfOtherTeams(t *testing.T) {
	rollsBack := func(j *v1alpha1.NodeJob) {
		j.Spec.Rollback = &v1alpha1.RollbackSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "undo"}}
	}
	undone := func(j *v1alpha1.NodeJob) {
		rollsBack(j)
		j.Spec.DeletionPolicy, j.DeletionTimestamp = v1alpha1.DeletionRollback, new(metav1.NewTime(ago(5)))
	}
	forgets := func(j *v1alpha1.NodeJob) { j.DeletionTimestamp = new(metav1.NewTime(ago(5))) }
	closed := withTaints(corev1.Taint{Key: "example.com/boot", Effect: corev1.TaintEffectNoSchedule})
	withCheck := func(j *v1alpha1.NodeJob) {
		j.Spec.Task.Check = &v1alpha1.CheckSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "check"}, PeriodSeconds: 60}
	}
	ended := func(node Node) Pod {
		return newPod(node, func(p *Pod) { p.Phase, p.Exit = corev1.PodSucceeded, &Exit{Reported: true} })
	}
	tests := map[string]struct {
		job  func(*v1alpha1.NodeJob)
		node Node
		pods func(Node) []Pod
		want []string
		// wantReason is that of the node's state.
		wantReason string
	}{
		"a node of the team runs": {
			node:       newNode("n", ofTeam("a")),
			want:       []string{"start attempt 1 of rev on n"},
			wantReason: v1alpha1.ReasonStarting,
		},
		"a node of another team does not": {node: newNode("n", ofTeam("b")), wantReason: v1alpha1.ReasonNodeNotAllowed},
		"a node of no team does not":      {node: newNode("n"), wantReason: v1alpha1.ReasonNodeNotAllowed},
		"a node that is not selected is reported as such": {
			node:       newNode("n", func(n *Node) { n.Labels = map[string]string{"pool": "b"} }),
			job:        selectsPool("a"),
			wantReason: v1alpha1.ReasonNotSelected,
		},
		"a done node is not asked": {
			job: withCheck, node: newNode("n", ofTeam("b"), recorded(record.Succeeded)), wantReason: v1alpha1.ReasonNodeNotAllowed,
		},
		"a failed node is not rolled back": {
			job:        rollsBack,
			node:       newNode("n", ofTeam("b"), recorded(record.Failed, attempts(2))),
			wantReason: v1alpha1.ReasonNodeNotAllowed,
		},
		"a failed node is not cordoned": {
			job:  func(j *v1alpha1.NodeJob) { j.Spec.OnFailure.Action = v1alpha1.FailureActionCordon },
			node: newNode("n", ofTeam("b"), recorded(record.Failed, attempts(2))), wantReason: v1alpha1.ReasonNodeNotAllowed,
		},
		"a failed node on which the rollback runs is not cordoned": {
			job:  func(j *v1alpha1.NodeJob) { rollsBack(j); j.Spec.OnFailure.Action = v1alpha1.FailureActionCordon },
			node: newNode("n", ofTeam("b"), recorded(record.Failed, attempts(2))),
			pods: func(n Node) []Pod {
				return []Pod{newPod(n, func(p *Pod) { p.Runs, p.UID = task.Rollback, "undo-pod" })}
			}, wantReason: v1alpha1.ReasonRollingBack,
		},
		"a joining node is not closed": {
			job: gated(v1alpha1.GateSpec{}), node: newNode("n", made(5), ofTeam("b")), wantReason: v1alpha1.ReasonNodeNotAllowed,
		},
		"what ran is recorded": {
			node: newNode("n", ofTeam("b")), pods: func(n Node) []Pod { return []Pod{ended(n)} },
			want: []string{"record Succeeded on n: attempts 1, disruptions 0"}, wantReason: v1alpha1.ReasonRunning,
		},
		"a deletion with a rollback waits": {
			job: undone, node: newNode("n", ofTeam("b"), recorded(record.Succeeded)), wantReason: v1alpha1.ReasonRollbackPending,
		},
		"a deletion with a rollback runs on a node of the team": {
			job:        undone,
			node:       newNode("n", ofTeam("a"), recorded(record.Succeeded)),
			want:       []string{"start rollback 1 of rev on n"},
			wantReason: v1alpha1.ReasonRollingBack,
		},
		"a deletion removes the record, and leaves the taint of others": {
			job:  func(j *v1alpha1.NodeJob) { gated(v1alpha1.GateSpec{Key: "example.com/boot"})(j); forgets(j) },
			node: newNode("n", ofTeam("b"), recorded(record.Succeeded), closed), want: []string{"forget n"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			job := newJob()
			if tt.job != nil {
				tt.job(job)
			}
			var pods []Pod
			if tt.pods != nil {
				pods = tt.pods(tt.node)
			}
			in := see(job, []Node{tt.node}, pods...)
			in.AllowedNodes = teamA
			p := Next(in)
			if diff := cmp.Diff(tt.want, told(p)); diff != "" {
				t.Errorf("the actions differ (-want +got):\n%s", diff)
			}
			if len(p.Nodes) > 0 && p.Nodes[0].Reason != tt.wantReason {
				t.Errorf("%+v, want %s", p.Nodes[0], tt.wantReason)
			}
		})
	}
}

func selectsPool(pool string) func(*v1alpha1.NodeJob) {
	return func(j *v1alpha1.NodeJob) {
		j.Spec.Nodes.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"pool": pool}}
	}
}

// TestTheStatusNamesNodesThatMustNotBeRolledBack tests that a deletion that waits for a limit says how it continues.
func TestTheStatusNamesNodesThatMustNotBeRolledBack(t *testing.T) {
	job := newJob(func(j *v1alpha1.NodeJob) {
		j.Spec.Rollback, j.Spec.DeletionPolicy = &v1alpha1.RollbackSpec{
			ScriptBlock: v1alpha1.ScriptBlock{Script: "undo"},
		}, v1alpha1.DeletionRollback
		j.DeletionTimestamp = new(metav1.NewTime(ago(5)))
	})
	in := see(job, []Node{newNode("n", ofTeam("b"), recorded(record.Succeeded))})
	in.AllowedNodes = teamA
	c := meta.FindStatusCondition(Next(in).Status.Conditions, v1alpha1.ConditionStalled)
	for _, want := range []string{"n: annotation everynode.dev/nodes of namespace ns limits", teamLabel + "=a", `"deletionPolicy":"Forget"`} {
		if c == nil || c.Status != metav1.ConditionTrue || !strings.Contains(c.Message, want) {
			t.Errorf("%+v, want %q", c, want)
		}
	}
}

// TestAGateDoesNotWaitForNodeJobsOfOtherTeams tests two NodeJobs that share a gate, of which the other must not run on the node.
func TestAGateDoesNotWaitForNodeJobsOfOtherTeams(t *testing.T) {
	job := newJob(gated(v1alpha1.GateSpec{Key: "example.com/boot"}), func(j *v1alpha1.NodeJob) { j.Spec.Suspend = true })
	taint := corev1.Taint{Key: "example.com/boot", Value: v1alpha1.GateValue, Effect: corev1.TaintEffectNoSchedule}
	in := see(job, []Node{newNode("n", ofTeam("a"), recorded(record.Succeeded), withTaints(taint))})
	in.GatePeers = sharer("o1")
	readOnPeers(&in)
	if got := told(Next(in)); len(got) > 0 {
		t.Errorf("actions %v, and the other NodeJob is not done", got)
	}
	in.GatePeers[0].AllowedNodes = labels.SelectorFromSet(labels.Set{teamLabel: "b"})
	if got := told(Next(in)); len(got) != 1 || !strings.HasPrefix(got[0], "GateOpened n") {
		t.Errorf("actions %v, want the gate opened", got)
	}
}

// TestARunWithARebootEndsOnANodeOfAnotherTeam tests that no pod continues a run after the namespace was limited.
func TestARunWithARebootEndsOnANodeOfAnotherTeam(t *testing.T) {
	for _, phase := range []task.Phase{task.Task, task.CheckBefore, task.CheckDrift, task.CheckExpires, task.Rollback, task.Reboot, task.Check} {
		j := readJob(Input{Job: newJob(), Now: now, AllowedNodes: teamA})
		other := newNode("n", ofTeam("b"))
		r := startRequest{phase: phase, node: &other}
		if b := j.startBlock(r); !b.blocks() || b.Reason != v1alpha1.ReasonNodeNotAllowed {
			t.Errorf("%s starts: %+v", phase, b)
		}
		if b := j.runBlock(r, true); !b.blocks() || !strings.Contains(b.Message, v1alpha1.NodesAnnotation) {
			t.Errorf("%s continues: %+v", phase, b)
		}
	}
}

// TestALabelThatStaysRequestsNoOtherRun : the limit excludes a node while a run that its label has requested ends there. The label stays.
func TestALabelThatStaysRequestsNoOtherRun(t *testing.T) {
	labelled := func(n *Node) { n.Labels["needs"] = "it" }
	removed := func(r *record.Record) { r.RemovedLabels = map[string]string{"needs": "it"} }
	job := newJob(func(j *v1alpha1.NodeJob) { j.Spec.RemoveLabels = []string{"needs"} })
	node := newNode("n", ofTeam("b"), labelled, recorded(record.Succeeded, removed))
	in := see(job, []Node{node}, newPod(node, exited(0)))
	in.AllowedNodes = teamA
	r := Next(in).Actions[0].(Record).Record
	if r.Outcome != record.Succeeded || len(r.RemovedLabels) > 0 {
		t.Errorf("the record is %+v", r)
	}
	node = newNode("n", ofTeam("a"), labelled, recorded(record.Succeeded, func(n *record.Record) { *n = *r }))
	in = see(job, []Node{node})
	in.AllowedNodes = teamA
	for _, a := range Next(in).Actions {
		if _, starts := a.(Start); starts {
			t.Errorf("it runs again: %+v", a)
		}
	}
}
