// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/nodejob/plan"
)

func TestNodeProblemsThatTheStatusTells(t *testing.T) {
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	since := now.Add(-2 * time.Hour)
	nodes := []plan.Node{{Name: "a", UID: "uid-a"}, {Name: "b", UID: "uid-b"}, {Name: "ab", UID: "uid-ab"}}
	problem := func(node, message string) v1alpha1.NodeProblem {
		return v1alpha1.NodeProblem{Node: node, Reason: v1alpha1.ReasonRecordRejected, Message: message, Since: metav1.NewTime(since)}
	}
	told := func(message string) plan.NodeProblem {
		return plan.NodeProblem{
			Why:     hold.Why{Reason: v1alpha1.ReasonRecordRejected, Message: message, Until: now.Add(problemFor)},
			Since:   since,
			TriedAt: now,
		}
	}
	tests := map[string]struct {
		status v1alpha1.NodeJobStatus
		want   map[types.UID]plan.NodeProblem
	}{
		"two nodes": {
			status: v1alpha1.NodeJobStatus{
				NodeProblems: []v1alpha1.NodeProblem{problem("a", "too long; b: make room"), problem("ab", "no")},
			},
			want: map[types.UID]plan.NodeProblem{"uid-a": told("too long; b: make room"), "uid-ab": told("no")},
		},
		"a node that no longer exists": {
			status: v1alpha1.NodeJobStatus{NodeProblems: []v1alpha1.NodeProblem{problem("c", "no")}},
			want:   map[types.UID]plan.NodeProblem{},
		},
		"text of a condition is not read": {
			status: v1alpha1.NodeJobStatus{Conditions: []metav1.Condition{
				{
					Type:    v1alpha1.ConditionStalled,
					Status:  metav1.ConditionTrue,
					Reason:  v1alpha1.ReasonRecordRejected,
					Message: "0 of 3 nodes are done; a: too long",
				},
			}},
		},
		"a status that is older than the spec": {
			status: v1alpha1.NodeJobStatus{ObservedGeneration: 7, NodeProblems: []v1alpha1.NodeProblem{problem("a", "no")}},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			job := &v1alpha1.NodeJob{Status: tt.status}
			if diff := cmp.Diff(tt.want, ToldNodeProblems(job, nodes, now)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// A pod that the API server refuses on one node prevents no other node from starting.
func TestAProblemOfOneNodeIsNoObstacle(t *testing.T) {
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	job := &v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job", CreationTimestamp: metav1.NewTime(now)}}
	in := plan.Input{Job: job, Revision: "rev", Now: now, Nodes: []plan.Node{{Name: "a", UID: "uid-a", Ready: "True"}}}
	in.NodeProblems = map[types.UID]plan.NodeProblem{
		"uid-a": {
			Why: hold.Why{
				Reason:  v1alpha1.ReasonPodForbidden,
				Message: "the API server refuses the pod on this node",
				Until:   now.Add(problemFor),
			},
			Since: now,
		},
	}
	job.Status = plan.Next(in).Status
	if !slices.ContainsFunc(job.Status.Conditions, func(c metav1.Condition) bool {
		return c.Status == metav1.ConditionTrue && c.Reason == v1alpha1.ReasonPodForbidden
	}) {
		t.Fatalf("no condition says it: %+v", job.Status.Conditions)
	}
	if got := ToldObstacle(job); got != nil {
		t.Errorf("obstacle %+v, want none", got)
	}
	job.Status.NodeProblems = nil
	if got := ToldObstacle(job); got == nil || got.Reason != v1alpha1.ReasonPodForbidden {
		t.Errorf("obstacle %+v without node problems, want %s", got, v1alpha1.ReasonPodForbidden)
	}
}

// The plan of the command line has the same states as that of the manager.
func TestANodeWithAProblemHasTheSameStateInBothPlans(t *testing.T) {
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	for name, age := range map[string]time.Duration{"it waits": time.Minute, "it counts as failed after rollout.progressDeadlineSeconds": 2 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			job := &v1alpha1.NodeJob{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job", CreationTimestamp: metav1.NewTime(now.Add(-3 * time.Hour))},
			}
			in := plan.Input{Job: job, Revision: "rev", Now: now, Nodes: []plan.Node{{Name: "a", UID: "uid-a", Ready: "True"}}}
			in.NodeProblems = map[types.UID]plan.NodeProblem{
				"uid-a": {
					Why:     hold.Why{Reason: v1alpha1.ReasonPodNameTaken, Message: "pod x is another's", Until: now.Add(problemFor)},
					Since:   now.Add(-age),
					TriedAt: now,
				},
			}
			manager := plan.Next(in)
			job.Status = manager.Status
			in.NodeProblems = ToldNodeProblems(job, in.Nodes, now)
			if diff := cmp.Diff(manager.Nodes, plan.Next(in).Nodes); diff != "" {
				t.Errorf("states (-manager +command line):\n%s", diff)
			}
		})
	}
}
