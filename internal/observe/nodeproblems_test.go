// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/plan"
	"github.com/everynode/everynode/internal/record"
)

func TestTroublesThatTheStatusTells(t *testing.T) {
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	created := now.Add(-2 * time.Hour)
	nodes := []plan.Node{{Name: "a", UID: "uid-a"}, {Name: "b", UID: "uid-b"}, {Name: "ab", UID: "uid-ab"}}
	stalled := func(reason, message string) []metav1.Condition {
		return []metav1.Condition{{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Reason: reason, Message: message}}
	}
	told := func(message string) plan.NodeProblem {
		return plan.NodeProblem{Reason: v1alpha1.ReasonRecordRejected, Message: message, Since: now, RetryAt: now.Add(troubleFor)}
	}
	noProgress := v1alpha1.NodeFailure{Node: "a", Reason: v1alpha1.ReasonProgressDeadlineExceeded, Message: "no progress for 60 s (rollout.progressDeadlineSeconds): pod x is another's"}
	tests := map[string]struct {
		status v1alpha1.NodeJobStatus
		rec    *record.Record
		want   map[types.UID]plan.NodeProblem
	}{
		"two nodes beside the progress": {
			status: v1alpha1.NodeJobStatus{Conditions: stalled(v1alpha1.ReasonRecordRejected, "0 of 3 nodes are done; a: too long; make room; ab: no")},
			want:   map[types.UID]plan.NodeProblem{"uid-a": told("too long; make room"), "uid-ab": told("no")},
		},
		"a reason of all nodes": {
			status: v1alpha1.NodeJobStatus{Conditions: stalled(v1alpha1.ReasonMaxFailuresExceeded, "a: failed")},
			want:   map[types.UID]plan.NodeProblem{},
		},
		"a status that is older than the spec": {
			status: v1alpha1.NodeJobStatus{ObservedGeneration: 7, Conditions: stalled(v1alpha1.ReasonRecordRejected, "a: no")},
		},
		"a node without progress": {
			status: v1alpha1.NodeJobStatus{Failures: []v1alpha1.NodeFailure{noProgress}},
			want: map[types.UID]plan.NodeProblem{"uid-a": {
				Reason: v1alpha1.ReasonProgressDeadlineExceeded, Message: "pod x is another's", Since: created, RetryAt: now.Add(troubleFor),
			}},
		},
		"a node without progress, after an attempt": {
			status: v1alpha1.NodeJobStatus{Revision: "rev", Failures: []v1alpha1.NodeFailure{noProgress}},
			rec:    &record.Record{Revision: "rev", Outcome: record.Disrupted},
			want:   map[types.UID]plan.NodeProblem{},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			job := &v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(created)}, Status: tt.status}
			nodes[0].On.Record = tt.rec
			if diff := cmp.Diff(tt.want, ToldTroubles(job, nodes, now)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}
