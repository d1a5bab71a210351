// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// planned checks a plan.
func (h *history) planned(in *Input, p *Plan) {
	if !p.WakeAt.IsZero() && !p.WakeAt.After(in.Now) {
		h.fail("the plan asks for a pass at %v, and it is %v", p.WakeAt, in.Now)
	}
	if len(p.Statuses) != len(in.Budgets) {
		h.fail("%d statuses of %d budgets", len(p.Statuses), len(in.Budgets))
	}
	written := map[string]bool{}
	for _, a := range p.Actions {
		object := objectOf(a)
		if written[object] {
			h.fail("two actions write to %s: %+v", object, p.Actions)
		}
		written[object] = true
		switch a := a.(type) {
		case CreateSeat:
			h.mayReturn(in, a.Node, a.NodeUID)
			if slices.ContainsFunc(in.Seats, func(s Seat) bool { return s.Node == a.NodeUID }) {
				h.fail("22 one seat: %s has a seat, and gets another one", a.Node)
			}
		case MoveSeat:
			if a.Seat.Group != PendingGroup {
				break
			}
			if h.mayReturn(in, a.Node, a.Seat.Node); !a.Seat.Ready {
				h.fail("22 return: the seat of %s is not ready, and joins its group", a.Node)
			}
		}
	}
}

func objectOf(a Action) string {
	switch a := a.(type) {
	case CreateFloor:
		return "floor " + a.State.Group
	case SetFloor:
		return "floor " + a.Floor.Group
	case DeleteFloor:
		return "floor " + a.Floor.Group
	case CreateSeat:
		return "seat-" + string(a.NodeUID)
	case MoveSeat:
		return a.Seat.Name
	case TolerateTaints:
		return a.Seat.Name
	case DeleteSeat:
		return a.Seat.Name
	case CreatePlaceholder:
		return fmt.Sprint("placeholder ", a.Number)
	case DeletePlaceholder:
		return fmt.Sprint("placeholder ", a.Placeholder.Number)
	}
	return ""
}

// mayReturn checks that a node gets its seat only when it is available, as far as the manager knows.
func (h *history) mayReturn(in *Input, name string, uid types.UID) {
	if !in.HoldsKnown || in.Holds[uid] != "" {
		h.fail("22 return: a NodeJob works on %s, or that is not known, and it gets its seat back", name)
	}
	for i := range in.Nodes {
		n := &in.Nodes[i]
		if n.UID == uid && (!n.Ready || isAskedFor(n) || in.Now.Before(n.ReadyChanged.Add(settleFor))) {
			h.fail("22 return: %s gets its seat back, and is not available: %+v", name, n)
		}
	}
}
