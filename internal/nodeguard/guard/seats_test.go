// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
)

// seated gives nodes a seat.
func seated(indexes ...int) func(*Input) {
	return func(in *Input) {
		in.Seats = map[types.UID]bool{}
		for _, i := range indexes {
			in.Seats[in.Nodes[i].UID] = true
		}
	}
}

// TestSeats : a node is released after its seat is evicted, so that a drain never waits for a seat while others wait for the node.
func TestSeats(t *testing.T) {
	breaksGlass := func(in *Input) { in.Nodes[0].BreakGlass = "fire" }
	for name, tt := range map[string]struct {
		in   Input
		want map[string]string
	}{
		"a node with a seat": {scene(cordoned(0), seated(0)), map[string]string{"n1": "Held WaitingForBudget"}},
		"an earlier request with a seat does not block a later one without": {
			scene(cordoned(0, 1), seated(0, 2)), map[string]string{"n1": "Held WaitingForBudget", "n2": "Released ConditionMet"},
		},
		"nodes with a seat do not count": {scene(cordoned(0), seated(1, 2)), map[string]string{"n1": "Released ConditionMet"}},
		"break-glass does not evict a seat, and other nodes do not wait for that": {
			scene(cordoned(0, 1), seated(0), breaksGlass), map[string]string{"n1": "Held WaitingForBudget", "n2": "Released ConditionMet"},
		},
		"break-glass without a seat": {scene(cordoned(0), seated(1), breaksGlass), map[string]string{"n1": "Released BreakGlass"}},
		"a deadline does not evict a seat": {scene(cordoned(0), seated(0), func(in *Input) {
			in.Guard.Spec.Release.DeadlineSeconds, in.Guard.Spec.Release.OnDeadline = new(int32(60)), v1alpha1.OnDeadlineRelease
		}), map[string]string{"n1": "Held WaitingForBudget"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := states(Next(tt.in))
			for node := range got {
				if tt.want[node] == "" {
					delete(got, node)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("nodes (-want +got):\n%s", diff)
			}
		})
	}
}

// TestASeatThatReturnsEndsARelease : a seat returns only to a node that is not cordoned, so the release request has ended even if the
// node is cordoned again.
func TestASeatThatReturnsEndsARelease(t *testing.T) {
	p := Next(scene(cordoned(0), going(0, false), seated(0)))
	if len(p.Moves) != 1 || p.Moves[0].Kind != MoveReturning {
		t.Errorf("moves are %+v, want that the node is returning", p.Moves)
	}
	p = Next(scene(cordoned(0), going(0, false), seated(0), live(false)))
	if len(p.Moves) != 0 || !p.Confirm {
		t.Errorf("from a cache, moves are %+v, confirm %v, want a live read", p.Moves, p.Confirm)
	}
	if p = Next(scene(cordoned(0), going(0, false), seated(1))); len(p.Moves) != 0 {
		t.Errorf("moves are %+v, want none for a node without a seat", p.Moves)
	}
}

// TestNodesWithSeatsDoNotBreakGlass : the other NodeGuards are asked, because the node is not released.
func TestNodesWithSeatsDoNotBreakGlass(t *testing.T) {
	in := scene(cordoned(0), seated(0), func(in *Input) { in.Nodes[0].BreakGlass = "fire" })
	if _, breaksGlass := RequestingNodes(in); breaksGlass {
		t.Error("a node with a seat is released at once")
	}
	in.Seats = nil
	if _, breaksGlass := RequestingNodes(in); !breaksGlass {
		t.Error("a node without a seat is not released at once")
	}
}
