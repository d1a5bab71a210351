// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
)

// Mistakes in these decisions were not found by any other test.

// exhaustedWith is a record of a node on which all attempts have failed, and the rollback has ended like this.
func exhaustedWith(rb *record.Rollback) func(*Node) {
	return recorded(record.Failed, attempts(2), func(r *record.Record) { r.Rollback = rb })
}

func TestDisruptionsOfARollbackHaveAGrowingBackoff(t *testing.T) {
	node := func(disruptions int32) Node {
		return newNode(
			"n",
			exhaustedWith(
				&record.Rollback{
					Outcome:     record.Disrupted,
					Disruptions: disruptions,
					StartedAt:   ago(40),
					FinishedAt:  ago(30),
					PodUID:      "before",
				},
			),
		)
	}
	pod := newPod(node(2), func(p *Pod) {
		p.Runs, p.Phase, p.Disrupted, p.DisruptedReason = task.Rollback, corev1.PodFailed, ago(2), "Evicted"
	})
	end, is := Next(see(newJob(withRollback), []Node{node(2)}, pod)).Actions[0].(Record)
	if !is || end.Record.Rollback.Outcome != record.Disrupted || end.Record.Rollback.Disruptions != 3 {
		t.Errorf("%+v, want the third disruption in a row", end)
	}
	for disruptions, want := range map[int32][]string{1: {"start rollback 1 of rev on n"}, 3: nil} {
		if diff := cmp.Diff(want, told(Next(see(newJob(withRollback), []Node{node(disruptions)})))); diff != "" {
			t.Errorf("30 s after disruption %d (-want +got):\n%s", disruptions, diff)
		}
	}
}

func TestATerminatingPodKeepsItsControlPlaneNodeAtWork(t *testing.T) {
	a, b := newNode(
		"a",
		func(n *Node) { n.Labels[controlPlaneLabel] = "" },
	), newNode(
		"b",
		labelled(rev),
		func(n *Node) { n.Labels[controlPlaneLabel] = "" },
	)
	pod := newPod(b, exited(0), func(p *Pod) { p.Finalized, p.DeleteRequested = false, ago(1) })
	p := Next(see(newJob(rebootingAs(v1alpha1.RebootAlways)), []Node{a, b}, pod))
	if len(p.Actions) > 0 || p.Nodes[0].Reason != v1alpha1.ReasonWaitingForControlPlane {
		t.Errorf("a is %+v, actions %v, want that it waits for b", p.Nodes[0], told(p))
	}
}

func TestARollbackWaitsForMaxUnavailable(t *testing.T) {
	job := newJob(withRollback, cordoning, func(j *v1alpha1.NodeJob) { j.Spec.Maintenance.MaxUnavailable = new(intstr.FromInt32(1)) })
	ofControlPlane := func(n *Node) { n.Labels[controlPlaneLabel] = "" }
	excluded := func(n *Node) {
		ofControlPlane(n)
		n.On.Label, n.Ready, n.Taints = "", corev1.ConditionFalse, []corev1.Taint{busy}
	}
	const start = "start rollback 1 of rev on failed"
	for name, tt := range map[string]struct {
		failed, other func(*Node)
		want          []string
	}{
		"the node itself is cordoned":                        {failed: byHand, other: byHand, want: []string{start}},
		"a control plane node that is excluded is not Ready": {failed: ofControlPlane, other: excluded, want: []string{start}},
		"another node is cordoned":                           {other: byHand},
		"another node is not Ready":                          {other: func(n *Node) { n.Ready = corev1.ConditionFalse }},
		"all others are available":                           {other: func(*Node) {}, want: []string{"start rollback 1 of rev on failed"}},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.failed == nil {
				tt.failed = func(*Node) {}
			}
			p := Next(see(job, []Node{newNode("failed", exhaustedWith(nil), tt.failed), newNode("other", labelled(rev), tt.other)}))
			if diff := cmp.Diff(tt.want, told(p)); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
		})
	}
}

func TestANodeJobDoesNotExpireBeforeItsRollback(t *testing.T) {
	ended := &record.Rollback{Outcome: record.Succeeded, Attempts: 1, StartedAt: ago(50), FinishedAt: ago(40), PodUID: "rollback"}
	for name, tt := range map[string]struct {
		rollback *record.Rollback
		want     []string
	}{
		"it has not started": {},
		"it was disrupted":   {rollback: &record.Rollback{Outcome: record.Disrupted, Disruptions: 9, StartedAt: ago(50), FinishedAt: ago(40), PodUID: "rollback"}},
		"it has succeeded":   {rollback: ended, want: []string{"expire"}},
	} {
		t.Run(name, func(t *testing.T) {
			job := newJob(withRollback, func(j *v1alpha1.NodeJob) {
				j.Spec.TTLSecondsAfterFinished, j.Spec.Rollout.MaxFailures, j.Spec.Suspend = new(int32(30)), new(intstr.FromInt32(0)), true
			})
			in := see(job, []Node{newNode("n", exhaustedWith(tt.rollback))})
			in.Job.Status = Next(in).Status
			in.Now = in.Now.Add(5 * time.Minute)
			if diff := cmp.Diff(tt.want, told(Next(in))); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
		})
	}
}

// Drains that continue count against the limit of drains, whether the next node is cordoned or not.
func TestDrainsBeforeTheTaskCount(t *testing.T) {
	uncordoned, done := func(n *Node) { n.CordonedBy = []string{jobKey} }, func(n *Node) { labelled(rev)(n); byHand(n) }
	const prepared = "Preparing next, cordoned by ns.everynode.dev/job"
	for name, tt := range map[string]struct {
		drains      int
		other, next func(*Node)
		reason      string
		want        []string
		requests    int // of the pods of nodes that are drained
	}{
		"the next node is not cordoned":         {maxDrains, cordonedBy(jobKey), func(*Node) {}, v1alpha1.ReasonWaitingForSlot, nil, maxDrains},
		"there are fewer":                       {maxDrains - 1, cordonedBy(jobKey), func(*Node) {}, v1alpha1.ReasonPreparing, []string{prepared}, maxDrains - 1},
		"the next node is cordoned":             {maxDrains, cordonedBy(jobKey), cordonedBy(jobKey), v1alpha1.ReasonPreparing, nil, maxDrains},
		"the nodes are done":                    {maxDrains, done, func(*Node) {}, v1alpha1.ReasonPreparing, []string{prepared}, 0},
		"a user has uncordoned them beside one": {maxDrains, uncordoned, cordonedBy(jobKey), v1alpha1.ReasonPreparing, nil, maxDrains + 1},
	} {
		t.Run(name, func(t *testing.T) {
			job := newJob(draining, func(j *v1alpha1.NodeJob) { j.Spec.Rollout.MaxConcurrent = new(intstr.FromString("100%")) })
			nodes, drains := []Node{newNode("next", tt.next)}, map[types.UID][]DrainPod{}
			for i := range tt.drains {
				node := newNode(string(rune('a'+i)), tt.other)
				nodes, drains[node.UID] = append(nodes, node), []DrainPod{{Namespace: "web", Name: "pod", UID: "pod", TriedAt: ago(1)}}
				job.Status.Drains = append(job.Status.Drains, v1alpha1.NodeDrain{Node: node.Name, Since: metav1.NewTime(ago(5))})
			}
			in := see(job, nodes)
			in.Drains = drains
			p := Next(in)
			if diff := cmp.Diff(tt.want, told(p)); diff != "" || p.Nodes[0].Reason != tt.reason || len(p.DrainPodRequests) != tt.requests {
				t.Errorf(
					"the next node is %+v, %d nodes are drained, want %s, %d; actions (-want +got):\n%s",
					p.Nodes[0],
					len(p.DrainPodRequests),
					tt.reason,
					tt.requests,
					diff,
				)
			}
		})
	}
}

// The limit of drains does not apply to a task without a drain.
func TestDrainsOfFailedNodesDoNotDelayATaskThatDoesNotDrain(t *testing.T) {
	nodes := []Node{newNode("next")}
	for i := range maxDrains {
		nodes = append(nodes, newNode(string(rune('a'+i)), recorded(record.Failed, attempts(2), drainSince(9)), cordonedBy(jobKey)))
	}
	job := newJob(cordoning, onFailure(v1alpha1.FailureActionDrain), upToUnavailable(20))
	if diff := cmp.Diff([]string{"Preparing next, cordoned by " + jobKey}, told(Next(see(job, nodes)))); diff != "" {
		t.Errorf("actions (-want +got):\n%s", diff)
	}
}

func TestDisruptionsInARowAreCountedFromTheFirst(t *testing.T) {
	node := newNode(
		"n",
		recorded(record.Disrupted, func(r *record.Record) { r.Disruptions, r.DisruptedSince, r.RecordedAt = 3, ago(900), ago(15) }),
	)
	pod := newPod(node, func(p *Pod) { p.Phase, p.Disrupted, p.DisruptedReason = corev1.PodFailed, ago(2), "Evicted" })
	end, is := Next(see(newJob(), []Node{node}, pod)).Actions[0].(Record)
	if !is || end.Record.Outcome != record.Disrupted || end.Record.Disruptions != 4 || !end.Record.DisruptedSince.Equal(ago(900)) {
		t.Errorf("%+v, want the fourth disruption since 15 minutes ago", end)
	}
}

// A run that a user has requested begins with the check.
func TestARequestedRetryIsCheckedFirst(t *testing.T) {
	p := Next(see(newJob(checkedFirst, askAgain), []Node{newNode("a", recorded(record.Failed, attempts(2)))}))
	if diff := cmp.Diff([]string{"start check-before 1 of rev on a"}, told(p)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestANodeIsNotAskedBeforeItsRollback(t *testing.T) {
	waits := exhaustedWith(&record.Rollback{Outcome: record.Failed, Attempts: 1, FinishedAt: now, RecordedAt: now})
	p := Next(see(newJob(expiring, withRollback), []Node{newNode("a", waits, func(n *Node) { n.On.Record.Expiry = nil })}))
	if got := told(p); len(got) > 0 {
		t.Errorf("while the rollback waits for its retry: %q", got)
	}
}

// A node whose drift is to be repaired may run the task as soon as it can, such as when a taint is gone.
func TestADriftedNodeIsNotSettled(t *testing.T) {
	drift := newNode("a", doneFor(600, said(record.AnswerNo, 1)))
	for want, job := range map[bool]*v1alpha1.NodeJob{true: newJob(repaired), false: newJob(watched)} {
		if got := mayAsk(job, &drift, drift.On.Record, now); got != want {
			t.Errorf("with onDrift %s: %v, want %v", job.Spec.Task.Check.OnDrift, got, want)
		}
	}
}

func TestARebootKeepsTheDrift(t *testing.T) {
	was := newNode("a", doneFor(600, said(record.AnswerNo, 1)))
	for outcome, want := range map[record.Outcome]bool{record.Rebooting: true, record.Disrupted: true, record.Succeeded: false, record.Failed: false} {
		next := *was.On.Record
		next.Outcome, next.Asked = outcome, nil
		if got := len(askedBefore(&was, &next)) > 0; got != want {
			t.Errorf("%s keeps the answers: %v, want %v", outcome, got, want)
		}
	}
}
