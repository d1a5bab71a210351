// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
)

// TestRetryOfOneNode tests a retry of node b, which a user has requested before other nodes start.
func TestRetryOfOneNode(t *testing.T) {
	alone := func(r *record.Record) { r.RetryRequested, r.RunsAlone, r.Attempts = true, true, 2 }
	continues := func(r *record.Record) { r.RunsAlone = true }
	failed := func(changes ...func(*record.Record)) func(*Node) { return recorded(record.Failed, changes...) }
	stable := func(j *v1alpha1.NodeJob) {
		j.Status.Revision = rev
		j.Status.Rollout = &v1alpha1.RolloutStatus{Step: "all", StableAt: metav1.NewTime(ago(600))}
	}
	few := func(j *v1alpha1.NodeJob) { j.Spec.Rollout.MaxConcurrent = new(intstr.FromInt32(1)) }
	steps := func(j *v1alpha1.NodeJob) {
		j.Spec.Rollout.Steps = []v1alpha1.RolloutStep{{Name: "canary", Selector: stageSelector()}, {Name: "all"}}
	}
	cordoned := func(j *v1alpha1.NodeJob) { j.Spec.Maintenance.Cordon = true }
	const start = "start attempt 1 of rev on "
	tests := map[string]struct {
		job  func(*v1alpha1.NodeJob)
		a, b func(*Node)
		pods func(b Node) []Pod
		want []string
		// reason of node a.
		reason string
	}{
		"the retried node starts, and the others wait": {
			b:      failed(alone),
			want:   []string{start + "b"},
			reason: v1alpha1.ReasonWaitingForRetry,
		},
		"without the request that others wait, all start": {
			b: failed(
				func(r *record.Record) { r.RetryRequested, r.Attempts = true, 2 },
			),
			want:   []string{start + "a", start + "b"},
			reason: v1alpha1.ReasonStarting,
		},
		"two nodes are retried at the same time": {
			a:      failed(alone),
			b:      failed(alone),
			want:   []string{start + "a", start + "b"},
			reason: v1alpha1.ReasonStarting,
		},
		"the others wait while the attempt runs": {
			b: failed(alone), pods: func(b Node) []Pod { return []Pod{newPod(b)} }, reason: v1alpha1.ReasonWaitingForRetry,
		},
		"the others wait for the next attempt of the run": {
			b: failed(continues, func(r *record.Record) { r.FinishedAt = ago(1) }), reason: v1alpha1.ReasonWaitingForRetry,
		},
		"the others do not wait for a node that has failed": {
			b:      failed(continues, attempts(2)),
			want:   []string{start + "a"},
			reason: v1alpha1.ReasonStarting,
		},
		"the others do not wait for a node that is unreachable": {
			b:      func(n *Node) { failed(alone)(n); n.Ready = corev1.ConditionUnknown },
			want:   []string{start + "a"},
			reason: v1alpha1.ReasonStarting,
		},
		"the others do not wait for a node that is excluded": {b: func(n *Node) {
			failed(alone)(n)
			n.Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}}
		}, want: []string{start + "a"}, reason: v1alpha1.ReasonStarting},
		"the others do not wait for a request for another revision": {
			b:      failed(alone, func(r *record.Record) { r.Revision = "earlier" }),
			want:   []string{start + "a", start + "b"},
			reason: v1alpha1.ReasonStarting,
		},
		"the others do not wait for a node on another machine": {
			b:      func(n *Node) { failed(alone)(n); n.MachineID = "another" },
			want:   []string{start + "a", start + "b"},
			reason: v1alpha1.ReasonStarting,
		},
		"the others do not wait once the revision is stable": {
			job:    stable,
			b:      failed(alone),
			want:   []string{start + "b", start + "a"},
			reason: v1alpha1.ReasonStarting,
		},
		"with one slot, the retried node gets it": {
			job:    func(j *v1alpha1.NodeJob) { stable(j); few(j) },
			b:      failed(alone),
			want:   []string{start + "b"},
			reason: v1alpha1.ReasonWaitingForSlot,
		},
		"the others do not wait for the attempt of a node that has not made progress for too long": {
			b: recorded(
				record.Disrupted,
				continues,
				func(r *record.Record) { r.DisruptedSince = ago(7200) },
			),
			pods:   func(b Node) []Pod { return []Pod{newPod(b)} },
			want:   []string{start + "a"},
			reason: v1alpha1.ReasonStarting,
		},
		"the others do not wait for a node of a later step": {
			job:    steps,
			a:      func(n *Node) { n.Labels = map[string]string{"stage": "yes"} },
			b:      failed(alone),
			want:   []string{start + "a"},
			reason: v1alpha1.ReasonStarting,
		},
		"the others wait for a pod that is terminating on the retried node": {
			b: failed(alone), pods: func(b Node) []Pod {
				return []Pod{newPod(b, func(p *Pod) { p.Finalized, p.DeleteRequested = false, ago(1) })}
			}, reason: v1alpha1.ReasonWaitingForRetry,
		},
		"the others do not wait for a node that a user has skipped": {
			b:      func(n *Node) { failed(continues)(n); labelled(rev)(n) },
			want:   []string{start + "a"},
			reason: v1alpha1.ReasonStarting,
		},
		"a node that is not cordoned for its run waits": {
			job:    cordoned,
			b:      failed(alone),
			want:   []string{"Preparing b, cordoned by " + jobKey},
			reason: v1alpha1.ReasonWaitingForRetry,
		},
		"a node that is cordoned for its run continues": {
			job:    cordoned,
			a:      func(n *Node) { n.Unschedulable, n.CordonedBy = true, []string{jobKey} },
			b:      failed(alone),
			want:   []string{start + "a", "Preparing b, cordoned by " + jobKey},
			reason: v1alpha1.ReasonStarting,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			nothing := func(*Node) {}
			if tt.job == nil {
				tt.job = func(*v1alpha1.NodeJob) {}
			}
			if tt.a == nil {
				tt.a = nothing
			}
			a, b := newNode("a", tt.a), newNode("b", tt.b)
			var pods []Pod
			if tt.pods != nil {
				pods = tt.pods(b)
			}
			p := Next(see(newJob(tt.job), []Node{a, b}, pods...))
			if diff := cmp.Diff(tt.want, told(p)); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
			if p.Nodes[0].Reason != tt.reason {
				t.Errorf("node a: %s, want %s", p.Nodes[0].Reason, tt.reason)
			}
		})
	}
}

// TestRunsThatStayAlone tests whether others wait for the next attempt of a run too.
func TestRunsThatStayAlone(t *testing.T) {
	for name, tt := range map[string]struct {
		prev *record.Record
		next record.Record
		want bool
	}{
		"after a failure":                    {&record.Record{Revision: rev, RunsAlone: true}, record.Record{Revision: rev, Outcome: record.Failed}, true},
		"after a success":                    {&record.Record{Revision: rev, RunsAlone: true}, record.Record{Revision: rev, Outcome: record.Succeeded}, false},
		"of another revision":                {&record.Record{Revision: "old", RunsAlone: true}, record.Record{Revision: rev, Outcome: record.Failed}, false},
		"on another machine":                 {&record.Record{Revision: rev, RunsAlone: true, MachineID: "gone"}, record.Record{Revision: rev, Outcome: record.Failed}, false},
		"for which no other node has waited": {&record.Record{Revision: rev}, record.Record{Revision: rev, Outcome: record.Failed}, false},
		"without a record":                   {nil, record.Record{Revision: rev, Outcome: record.Failed}, false},
	} {
		node := newNode("n", func(n *Node) { n.On.Record = tt.prev })
		if got := (&recorder{job: readJob(see(newJob(), nil))}).staysAlone(&node, &tt.next); got != tt.want {
			t.Errorf("%s: %t, want %t", name, got, tt.want)
		}
	}
}

// TestRequestOfRetryIsKept tests what the record of the next attempt says.
func TestRequestOfRetryIsKept(t *testing.T) {
	asked := recorded(record.Failed, attempts(2), func(r *record.Record) { r.RetryRequested, r.RunsAlone = true, true })
	tests := map[string]struct {
		pod       func(*Pod)
		attempts  int32
		runsAlone bool
	}{
		"a success ends the run":                   {exited(0), 1, false},
		"after a failure, another attempt follows": {exited(1), 1, true},
		"after a disruption, another attempt follows": {func(p *Pod) {
			p.Phase, p.DeleteRequested, p.Exit = corev1.PodFailed, ago(5), &Exit{Code: 143, Finished: ago(2)}
		}, 0, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			node := newNode("n", asked)
			r := Next(see(newJob(), []Node{node}, newPod(node, tt.pod))).Actions[0].(Record).Record
			if r.RetryRequested || r.RunsAlone != tt.runsAlone || r.Attempts != tt.attempts {
				t.Errorf("the record is %+v, want %+v", r, tt)
			}
		})
	}
	t.Run("the last failure ends the run", func(t *testing.T) {
		node := newNode("n", recorded(record.Failed, func(r *record.Record) { r.RunsAlone = true }))
		r := Next(see(newJob(), []Node{node}, newPod(node, func(p *Pod) { p.Attempt = 2 }, exited(1)))).Actions[0].(Record).Record
		if r.RunsAlone || r.Attempts != 2 {
			t.Errorf("the record is %+v, want two attempts and that no other node waits", r)
		}
	})
}
