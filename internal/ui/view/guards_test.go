// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/text"
)

func TestGuardsAreExplained(t *testing.T) {
	guard := func(name string, status v1alpha1.NodeGuardStatus) v1alpha1.NodeGuard {
		return v1alpha1.NodeGuard{ObjectMeta: metav1.ObjectMeta{Namespace: "storage", Name: name}, Status: status}
	}
	at := func(d time.Duration) metav1.Time { return metav1.NewTime(before(d)) }
	guards := []v1alpha1.NodeGuard{
		guard("db", v1alpha1.NodeGuardStatus{Waiting: []v1alpha1.WaitingNode{
			{
				Node:    "node-3",
				By:      "cordoned",
				Since:   at(4 * time.Minute),
				Until:   at(-time.Hour),
				Reason:  v1alpha1.ReasonMaxUnavailableReached,
				Message: "1 node is unavailable, and at most 1 may be: node-2 (released, not available again yet); released when: one of them is available again",
			},
		}}),
		guard("cache", v1alpha1.NodeGuardStatus{Released: []v1alpha1.ReleasedNode{{
			Node: "node-3", Since: at(time.Minute), Reason: v1alpha1.ReasonBreakGlass, Message: "disk on fire\n\x1b[2J",
		}}}),
		guard(
			"back-soon",
			v1alpha1.NodeGuardStatus{
				Released: []v1alpha1.ReleasedNode{
					{Node: "node-3", Since: at(time.Hour), Reason: v1alpha1.ReasonConditionMet, Returning: true},
				},
			},
		),
		guard("late", v1alpha1.NodeGuardStatus{ObservedGeneration: 1, Waiting: []v1alpha1.WaitingNode{
			{
				Node:    "node-3",
				By:      "cordoned",
				Since:   at(4 * time.Hour),
				Reason:  v1alpha1.ReasonMaxUnavailableReached,
				Message: "1 node is unavailable, and at most 1 may be: node-2 (released, not available again yet); released when: one of them is available again",
			},
		}}),
		guard(
			"many",
			v1alpha1.NodeGuardStatus{
				ObservedGeneration: 1,
				Nodes:              v1alpha1.GuardCounts{Waiting: 14},
				Waiting:            []v1alpha1.WaitingNode{{Node: "node-1"}},
			},
		),
		guard("new", v1alpha1.NodeGuardStatus{}),
		guard(
			"elsewhere",
			v1alpha1.NodeGuardStatus{
				ObservedGeneration: 1,
				Nodes:              v1alpha1.GuardCounts{Waiting: 1},
				Waiting:            []v1alpha1.WaitingNode{{Node: "node-1"}},
				Released:           []v1alpha1.ReleasedNode{{Node: "node-2"}},
			},
		),
	}
	guards[3].Spec.Release.DeadlineSeconds = new(int32(3 * 60 * 60))
	drawn(t, "guards", func(width int) []text.Line {
		return Guards(guards, &plan.Node{Name: "node-3", Unschedulable: true}, now, width)
	})
	if lines := Guards(guards[4:], &plan.Node{Name: "node-4"}, now, 0); lines != nil {
		t.Errorf("of a node that is not cordoned it says %v", lines)
	}
}
