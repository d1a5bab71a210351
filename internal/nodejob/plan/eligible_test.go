// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
)

// TestNodeStates tests why the task ran, did not run, or does not run yet on one node.
func TestNodeStates(t *testing.T) {
	var (
		starts  = NodeState{Name: "n", State: Running, Reason: v1alpha1.ReasonStarting}
		done    = NodeState{Name: "n", State: Done, Reason: v1alpha1.ReasonDone}
		lost    = func(n *Node) { n.Ready = corev1.ConditionUnknown }
		tainted = func(n *Node) { n.Taints = []corev1.Taint{busy} }
		suspend = func(j *v1alpha1.NodeJob) { j.Spec.Suspend = true }
		onPoolB = func(j *v1alpha1.NodeJob) {
			j.Spec.Nodes.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "b"}}
		}
		missing = &hold.Why{Reason: v1alpha1.ReasonConfigMapNotFound, Message: "ConfigMap ns/x does not exist"}
		refused = func(retry time.Time) *hold.Why {
			return &hold.Why{Reason: v1alpha1.ReasonPodForbidden, Message: "no", Until: retry}
		}
	)
	state := func(s State, reason, message string, until time.Time) NodeState {
		return NodeState{Name: "n", State: s, Reason: reason, Message: message, Until: until}
	}
	tests := map[string]struct {
		job      *v1alpha1.NodeJob
		node     Node
		obstacle *hold.Why
		want     NodeState
	}{
		"it runs on a node without obstacles": {node: newNode("n"), want: starts},
		"it runs on a node that is not Ready, because it may repair the node": {
			node: newNode("n", func(n *Node) { n.Ready = corev1.ConditionFalse }), want: starts,
		},
		"it runs on a cordoned node": {
			node: newNode("n", func(n *Node) {
				n.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}}
			}), want: starts,
		},
		"it runs on a node with a tolerated taint": {
			job: newJob(func(j *v1alpha1.NodeJob) {
				j.Spec.Nodes.Tolerations = []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists}}
			}), node: newNode("n", tainted), want: starts,
		},
		"it runs on a node without a machine ID": {
			node: newNode("n", func(n *Node) { n.MachineID, n.BootID = "", "" }), want: starts,
		},

		"it does not match a node of another pool": {
			job: newJob(onPoolB), node: newNode("n"),
			want: state(Excluded, v1alpha1.ReasonNotSelected, "spec.nodes.selector does not match its labels", time.Time{}),
		},
		"it does not match a node with an untolerated taint": {
			node: newNode("n", tainted),
			want: state(Excluded, v1alpha1.ReasonUntoleratedTaint, "it has the taint dedicated=db:NoSchedule", time.Time{}),
		},
		"it matches no node with an invalid selector": {
			job: newJob(func(j *v1alpha1.NodeJob) {
				j.Spec.Nodes.Selector = &metav1.LabelSelector{
					MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "pool", Operator: "Like"}},
				}
			}), node: newNode("n"),
			want: state(Excluded, v1alpha1.ReasonNotSelected, "spec.nodes.selector does not match its labels", time.Time{}),
		},

		"it waits for a node that has never reported": {
			node: newNode("n", func(n *Node) { n.Ready = "" }),
			want: state(Waiting, v1alpha1.ReasonNotReported, "the node has not reported its state yet", time.Time{}),
		},
		"it waits for an unreachable node": {
			node: newNode("n", lost),
			want: state(Waiting, v1alpha1.ReasonNodeUnreachable, "the node is unreachable (Ready=Unknown)", time.Time{}),
		},
		"it does not start on a terminating node": {
			node: newNode("n", func(n *Node) { n.Deleting = true }),
			want: state(Waiting, v1alpha1.ReasonNodeTerminating, "the node is being deleted", time.Time{}),
		},
		"it waits while it is suspended": {
			job: newJob(suspend), node: newNode("n"),
			want: state(Waiting, v1alpha1.ReasonSuspended, "spec.suspend is true", time.Time{}),
		},
		"it waits for a problem that only a user can fix": {
			node: newNode("n"), obstacle: missing,
			want: state(Waiting, missing.Reason, missing.Message, time.Time{}),
		},
		"it waits before the next attempt after a rejected pod": {
			node: newNode("n"), obstacle: refused(now.Add(time.Second)),
			want: state(Waiting, v1alpha1.ReasonPodForbidden, "no", now.Add(time.Second)),
		},
		"it retries a rejected pod after the wait": {
			node: newNode("n"), obstacle: refused(now), want: starts,
		},
		"it backs off after a failure": {
			node: newNode("n", recorded(record.Failed, func(r *record.Record) { r.FinishedAt = ago(4) })),
			want: state(
				Waiting,
				v1alpha1.ReasonBackingOff,
				"the next attempt waits after one that failed or was disrupted",
				now.Add(6*time.Second),
			),
		},

		"an unreachable node stays done": {node: newNode("n", recorded(record.Succeeded), lost), want: done},
		"a node with an untolerated taint stays done": {
			node: newNode("n", recorded(record.Succeeded), tainted),
			want: done,
		},
		"a node stays done while suspended": {
			job:  newJob(suspend),
			node: newNode("n", recorded(record.Succeeded)),
			want: done,
		},
		"a node stays done when pods cannot be created": {
			node:     newNode("n", recorded(record.Succeeded)),
			obstacle: missing,
			want:     done,
		},
		"a done node of another pool does not match": {
			job:  newJob(onPoolB),
			node: newNode("n", recorded(record.Succeeded)),
			want: state(Excluded, v1alpha1.ReasonNotSelected, "spec.nodes.selector does not match its labels", time.Time{}),
		},
		"a node with an untolerated taint stays failed": {
			node: newNode("n", recorded(record.Failed, attempts(2)), tainted),
			want: state(Failed, v1alpha1.ReasonRetriesExhausted, "line 1\nno space left", time.Time{}),
		},
		"an unreachable node stays failed": {
			node: newNode("n", recorded(record.Failed, attempts(2)), lost),
			want: state(Failed, v1alpha1.ReasonRetriesExhausted, "line 1\nno space left", time.Time{}),
		},
		"a node with a retry left is excluded by an untolerated taint": {
			node: newNode("n", recorded(record.Failed), tainted),
			want: state(Excluded, v1alpha1.ReasonUntoleratedTaint, "it has the taint dedicated=db:NoSchedule", time.Time{}),
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if tt.job == nil {
				tt.job = newJob()
			}
			in := see(tt.job, []Node{tt.node})
			in.Obstacle = tt.obstacle
			p := Next(in)
			if diff := cmp.Diff([]NodeState{tt.want}, p.Nodes); diff != "" {
				t.Errorf("state (-want +got):\n%s", diff)
			}
			var want []Action
			if tt.want == starts {
				want = []Action{
					Start{
						Attempt: task.Attempt{
							Phase:     task.Task,
							Revision:  rev,
							Number:    1,
							NodeName:  "n",
							NodeUID:   "n-uid",
							MachineID: tt.node.MachineID,
							BootID:    tt.node.BootID,
						},
					},
				}
			}
			if diff := cmp.Diff(want, p.Actions); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
			if !wakes(p, tt.want.Until) {
				t.Errorf("wakes at %v, want %v", p.WakeAt, tt.want.Until)
			}
		})
	}
}

func attempts(n int32) func(*record.Record) { return func(r *record.Record) { r.Attempts = n } }

// Next must not change the input, because the input is shared with the cache.
func TestNextDoesNotChangeInput(t *testing.T) {
	build := func() Input {
		a, b, c := newNode("a"), newNode("b", recorded(record.Failed)), newNode("c", recorded(record.Succeeded))
		job := newJob(func(j *v1alpha1.NodeJob) {
			j.Spec.Nodes.Tolerations = make([]corev1.Toleration, 0, 50)
			j.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionComplete, Status: metav1.ConditionTrue}}
		})
		return see(job, []Node{c, b, a}, newPod(a, exited(1)), newPod(b), newPod(c))
	}
	in := build()
	Next(in)
	if diff := cmp.Diff(build(), in); diff != "" {
		t.Errorf("input (-before +after):\n%s", diff)
	}
}
