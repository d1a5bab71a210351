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

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/nodejob/record"
)

// TestDeletionAfterAMinute tests which writes a deletion still waits for.
func TestDeletionAfterAMinute(t *testing.T) {
	done := recorded(record.Succeeded)
	for name, tt := range map[string]struct {
		node func(*Node)
		pods []Pod
		want []string
	}{
		"a record that a kubelet may have written": {node: done, want: []string{"forget a", "finish"}},
		"a record with the seal of the manager":    {node: func(n *Node) { done(n); n.On.Sealed = true }, want: []string{"forget a"}},
		"a taint":                                  {node: func(n *Node) { done(n); n.Taints = []corev1.Taint{ownTaint} }, want: []string{"forget a, taints []"}},
		"a pod":                                    {node: func(*Node) {}, pods: []Pod{newPod(newNode("a"))}, want: []string{"release a-pod"}},
	} {
		in := see(newJob(), []Node{newNode("a", tt.node)}, tt.pods...)
		in.Job.DeletionTimestamp = &metav1.Time{Time: ago(60)}
		if diff := cmp.Diff(tt.want, told(Next(in))); diff != "" {
			t.Errorf("%s: actions (-want +got):\n%s", name, diff)
		}
	}
}

// TestDeletionWithARefusedWrite tests a deletion while the API server refuses the removal of a record.
func TestDeletionWithARefusedWrite(t *testing.T) {
	for name, tt := range map[string]struct {
		reason  string
		want    []string
		stalled bool
	}{
		"the record":  {v1alpha1.ReasonRecordRejected, nil, true},
		"another pod": {v1alpha1.ReasonPodNameTaken, []string{"forget a"}, false},
	} {
		in := see(newJob(), []Node{newNode("a", recorded(record.Succeeded))})
		in.Job.DeletionTimestamp = &metav1.Time{Time: ago(1)}
		in.NodeProblems = map[types.UID]NodeProblem{"a-uid": {Why: hold.Why{Reason: tt.reason, Message: "no", Until: ago(-5)}}}
		p := Next(in)
		if diff := cmp.Diff(tt.want, told(p)); diff != "" || isStalled(p.Status) != tt.stalled || p.WakeAt.Equal(ago(-5)) != tt.stalled {
			t.Errorf("%s: stalled %t, wakes at %v, actions (-want +got):\n%s", name, isStalled(p.Status), p.WakeAt, diff)
		}
	}
}

// Only what others may change at the same time is written to the observed version.
func TestVersionOfACleanUp(t *testing.T) {
	for version, node := range map[string]func(*Node){"": recorded(record.Succeeded), "7": func(n *Node) { recorded(record.Failed)(n); cordonedBy(jobKey)(n) }} {
		in := see(newJob(), []Node{newNode("a", node, func(n *Node) { n.ResourceVersion = "7" })})
		in.Job.DeletionTimestamp = &metav1.Time{Time: ago(1)}
		if got := Next(in).Actions[0].(CleanUpNode).ResourceVersion; got != version {
			t.Errorf("version %q, want %q", got, version)
		}
	}
}

// TestPodsThatAreWaitedFor tests whether the release of a pod is urgent.
func TestPodsThatAreWaitedFor(t *testing.T) {
	ended := func(changes ...func(*Node)) Node {
		return newNode(
			"n",
			append([]func(*Node){recorded(record.Failed, attempts(2), func(r *record.Record) { r.PodUID = "n-pod-uid" })}, changes...)...)
	}
	for name, tt := range map[string]struct {
		job  []func(*v1alpha1.NodeJob)
		node Node
		want bool
	}{
		"the node has failed":                    {nil, ended(), false},
		"the node is done":                       {nil, ended(labelled(rev)), false},
		"the node waits":                         {[]func(*v1alpha1.NodeJob){askAgain}, ended(), true},
		"the rollback waits":                     {[]func(*v1alpha1.NodeJob){withRollback}, ended(), true},
		"the NodeJob is deleted with a rollback": {[]func(*v1alpha1.NodeJob){withRollback, deleted(v1alpha1.DeletionRollback)}, ended(func(n *Node) { n.On.Record.NeverStarted = true }), true},
	} {
		for _, action := range Next(see(newJob(tt.job...), []Node{tt.node}, newPod(tt.node, exited(1)))).Actions {
			if release, is := action.(FinalizePod); is && release.Awaited != tt.want {
				t.Errorf("%s: %t, want %t", name, release.Awaited, tt.want)
			}
		}
	}
}

func TestDeletion(t *testing.T) {
	a := newNode("a", recorded(record.Succeeded))
	b := newNode("b", recorded(record.Failed), func(n *Node) { n.Ready = corev1.ConditionUnknown })
	clean := newNode("c")
	letGo := func(p *Pod) { p.Finalized, p.DeleteRequested = false, ago(1) }
	retain := func(j *v1alpha1.NodeJob) { j.Spec.DeletionPolicy = v1alpha1.DeletionRetain }
	tests := map[string]struct {
		job  *v1alpha1.NodeJob
		in   Input
		want []string
	}{
		"pods and records are removed first": {
			in: see(
				nil,
				[]Node{a, b, clean},
				newPod(clean),
				newPod(a, exited(0)),
			),
			want: []string{"release c-pod", "release a-pod", "forget a", "forget b"},
		},
		"it finishes when nothing is left":   {in: see(nil, []Node{clean}), want: []string{"finish"}},
		"it does not wait for a kubelet":     {in: see(nil, []Node{clean}, newPod(clean, letGo)), want: []string{"finish"}},
		"pods of deleted nodes are released": {in: see(nil, nil, newPod(a)), want: []string{"release a-pod"}},
		"records are retained with deletionPolicy Retain": {
			job:  newJob(retain),
			in:   see(nil, []Node{a, b}, newPod(clean)),
			want: []string{"release c-pod"},
		},
		"it finishes with retained records": {job: newJob(retain), in: see(nil, []Node{a, b}), want: []string{"finish"}},
		"a record that cannot be read is removed as well": {
			in:   see(nil, []Node{newNode("d", func(n *Node) { n.On.Present = true })}),
			want: []string{"forget d"},
		},
		"an invalid selector does not prevent the deletion": {
			job: newJob(func(j *v1alpha1.NodeJob) {
				j.Spec.Nodes.Selector = &metav1.LabelSelector{
					MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}},
				}
			}), in: see(nil, []Node{a}), want: []string{"forget a"},
		},
		"the cordon is removed with deletionPolicy Retain": {
			job: newJob(
				retain,
			),
			in:   see(nil, []Node{newNode("a", recorded(record.Failed), cordonedBy(jobKey))}),
			want: []string{"Uncordoned a, uncordoned"},
		},
		"deletionPolicy Rollback needs a rollback": {
			job: newJob(
				func(j *v1alpha1.NodeJob) { j.Spec.DeletionPolicy = v1alpha1.DeletionRollback },
			),
			in:   see(nil, []Node{a}),
			want: []string{"forget a"},
		},
		"suspend does not prevent the deletion": {
			job:  newJob(func(j *v1alpha1.NodeJob) { j.Spec.Suspend = true }),
			in:   see(nil, []Node{a}),
			want: []string{"forget a"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if tt.in.Job = tt.job; tt.in.Job == nil {
				tt.in.Job = newJob()
			}
			tt.in.Job.DeletionTimestamp = &metav1.Time{Time: ago(1)}
			tt.in.Job.Status.Revision = "old"
			p := Next(tt.in)
			if diff := cmp.Diff(tt.want, told(p)); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.in.Job.Status, p.Status); diff != "" {
				t.Errorf("status (-before +after):\n%s", diff)
			}
			if !p.WakeAt.IsZero() {
				t.Errorf("wakes at %v, want no wake-up", p.WakeAt)
			}
		})
	}
}

// TestADeletionHoldsTheNodesThatItsPodsDisrupt tests when a NodeJob that is being deleted stops using nodes that NodeDisruptionBudgets limit.
func TestADeletionHoldsTheNodesThatItsPodsDisrupt(t *testing.T) {
	node := newNode("a")
	terminating := func(seconds int) func(*Pod) {
		return func(p *Pod) {
			p.Disrupts, p.Finalized, p.DeleteRequested, p.DeleteGrace = true, false, ago(seconds), 30*time.Second
		}
	}
	for name, tt := range map[string]struct {
		pod       func(*Pod)
		unlimited bool
		rollback  bool
		want      []string
		held      bool
		wake      time.Time
	}{
		"a pod that is not deleted yet":                               {pod: func(p *Pod) { p.Disrupts = true }, want: []string{"release a-pod"}, held: true, wake: ago(-60)},
		"a pod that is terminating":                                   {pod: terminating(5), held: true, wake: ago(-85)},
		"a pod that has ended":                                        {pod: func(p *Pod) { terminating(5)(p); exited(1)(p) }, want: []string{"finish"}},
		"a pod that its kubelet does not end":                         {pod: terminating(90), want: []string{"finish"}},
		"a pod that disrupts nothing":                                 {pod: func(p *Pod) { terminating(5)(p); p.Disrupts = false }, want: []string{"finish"}},
		"a pod that is terminating when all is rolled back":           {pod: terminating(5), rollback: true, held: true, wake: ago(-85)},
		"a pod that its kubelet does not end when all is rolled back": {pod: terminating(90), rollback: true, want: []string{"finish"}, held: true},
		"a node that no budget limits":                                {pod: terminating(5), unlimited: true, want: []string{"finish"}, held: true, wake: ago(-85)},
	} {
		t.Run(name, func(t *testing.T) {
			in := see(newJob(deleted(v1alpha1.DeletionForget)), []Node{node}, newPod(node, tt.pod))
			in.Job.DeletionTimestamp.Time = ago(10)
			if tt.rollback {
				withRollback(in.Job)
				in.Job.Spec.DeletionPolicy = v1alpha1.DeletionRollback
			}
			in.Budgets = map[types.UID]NodeBudget{node.UID: {Effect: hold.Effect{Limited: !tt.unlimited}}}
			p := Next(in)
			if diff := cmp.Diff(tt.want, told(p)); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
			if p.Holds[node.UID] != tt.held || p.Stages[node.UID].InProgress != tt.held || !p.WakeAt.Equal(tt.wake) {
				t.Errorf("held %v, stage %+v, wakes at %v, want %v and %v", p.Holds, p.Stages, p.WakeAt, tt.held, tt.wake)
			}
			says := len(p.Status.Conditions) > 0 &&
				p.Status.Conditions[1].Message == "the NodeJob is being deleted; its pods have not ended on 1 node: a"
			if says != (tt.held && !tt.unlimited && !tt.rollback) {
				t.Errorf("conditions %+v", p.Status.Conditions)
			}
		})
	}
}
