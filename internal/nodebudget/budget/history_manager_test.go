// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/hold"
)

// manager is what a manager remembers, as internal/manager/claims and internal/manager/budgetcontroller do.
type manager struct {
	cache cluster
	// changes and ownChanges are those that the cache has.
	changes, ownChanges int
	reports             map[string]report
	claimed             map[types.UID]string
	returning           map[types.UID]bool
	stances             map[types.UID]hold.Stance
	answers             map[string]Answers
	paced               map[PaceKey]Paced
	counted             map[types.UID]Counted
	fresh               Fresh
	ungranted           Ungranted
	// ends are those of seats of which the watch has not told it yet.
	ends []end
	// ahead is how far its clock is ahead of that of the API server.
	ahead time.Duration
}

// end is the last state of a seat, and whether the watch has it.
type end struct {
	seat  Seat
	known bool
}

type report struct {
	holds map[types.UID]bool
	waits map[types.UID]time.Time
	// ignoresWindows are those of waits on which it may begin outside of windows.
	ignoresWindows map[types.UID]bool
}

// newManager starts a manager, with a clock of its own.
func (h *history) newManager() *manager {
	var ahead time.Duration
	if h.skew > 0 {
		ahead = time.Duration(h.rng.Int63n(2*int64(h.skew)+1)) - h.skew
		h.met["clock skew"]++
		h.say("the clock of the manager is ahead by %v", ahead)
	}
	h.forgetsLabels()
	h.own, h.held = map[types.UID]bool{}, map[string]held{}
	return &manager{
		ahead:     ahead,
		reports:   map[string]report{},
		claimed:   map[types.UID]string{},
		returning: map[types.UID]bool{},
		answers:   map[string]Answers{},
		ungranted: Ungranted{},
	}
}

func (m *manager) report(j *job) {
	r := report{holds: map[types.UID]bool{}, waits: map[types.UID]time.Time{}, ignoresWindows: map[types.UID]bool{}}
	for _, w := range j.work {
		if w.begun {
			r.holds[w.uid] = true
		} else {
			r.waits[w.uid], r.ignoresWindows[w.uid] = w.since, w.ignoresWindows
		}
	}
	m.reports[j.name] = r
	maps.DeleteFunc(m.claimed, func(node types.UID, by string) bool { return by == j.name && !r.holds[node] })
}

func (m *manager) claim(by string, node types.UID) bool {
	if other, claimed := m.claimed[node]; m.returning[node] || claimed && other != by {
		return false
	}
	m.claimed[node] = by
	return true
}

func (m *manager) holds() map[types.UID]string {
	holds := maps.Clone(m.claimed)
	for by, r := range m.reports {
		for node := range r.holds {
			holds[node] = by
		}
	}
	return holds
}

func (h *history) catchUp() {
	if m := h.manager; m != nil {
		m.cache, m.changes, m.ownChanges = h.copied(), h.changes, h.ownChanges
		for group, f := range m.cache.floors {
			m.cache.floors[group] = simFloor{Floor: f.Floor} // the rest is what the disruption controller knows
		}
		for _, e := range m.ends {
			m.ungranted.Ended(&e.seat, e.known)
			h.seesEnd(e)
		}
		m.ends = nil
	}
}

// input is what a pass observes: nodes and budgets from the cache, and the pods and floors that it is given.
func (h *history) input(m *manager, floors map[string]simFloor, pods map[string]simPod) *Input {
	m.ungranted.Held(m.holds())
	in := &Input{
		Budgets: m.cache.budgetObjects(), Now: h.now.Add(m.ahead), JoiningFor: joiningFor, SettleFor: settleFor, Holds: m.holds(),
		HoldsKnown: len(m.reports) == len(h.jobs), Waits: map[types.UID]Wait{}, Answers: m.answers,
		Paced: m.paced, Ungranted: maps.Clone(m.ungranted), Counted: m.counted, Fresh: m.fresh, Placeholders: m.cache.placeholders,
	}
	for _, name := range sorted(m.cache.nodes) {
		in.Nodes = append(in.Nodes, m.cache.nodes[name])
	}
	for _, group := range sorted(floors) {
		in.Floors = append(in.Floors, floors[group].Floor)
	}
	for _, name := range sorted(pods) {
		if p := pods[name]; p.stranger {
			in.Strangers = append(in.Strangers, Stranger{p.Name, p.Group})
		} else {
			p.Ready = p.Ready && !p.Terminating
			in.Seats = append(in.Seats, p.Seat)
		}
	}
	for by, r := range m.reports {
		for node, since := range r.waits {
			in.Waits[node] = Wait{by, since, r.ignoresWindows[node]}
		}
	}
	return in
}

// pass is the shell: it plans on the cache, and with pods and floors of the API server if the plan may allow more evictions.
func (h *history) pass() {
	m := h.manager
	if m == nil {
		return
	}
	h.passes++
	if m.changes != h.changes {
		h.met["late view"]++
	}
	in := h.input(m, m.cache.floors, m.cache.pods)
	p := Next(in)
	h.planned(in, &p)
	own := m.ownChanges
	if slices.ContainsFunc(p.Actions, allowsMore) {
		own = h.ownChanges
		floors := maps.Clone(h.floors)
		h.meanwhile()
		in = h.input(m, floors, maps.Clone(h.pods))
		p = Next(in)
		h.planned(in, &p)
	}
	m.paced, m.counted, m.fresh = p.Paced, p.Counted, p.Fresh
	h.seesLabels(in)
	h.seesBack(in)
	h.mayHold(in, &p)
	synced := h.synced
	if m.changes == h.changes && own == h.ownChanges && !slices.ContainsFunc(p.Actions, changesGroups) && h.allProcessed() {
		h.met["synced"]++
		synced = h.now.Add(-1) // not what has happened at the same time
	}
	h.say("pass: fresh %v, synced %v, %d actions", m.changes == h.changes, h.synced.Format("04:05.000"), len(p.Actions))
	if h.wake = p.WakeAt; !h.wake.IsZero() {
		h.wake = h.wake.Add(-m.ahead)
	}
	h.idle = len(p.Actions) == 0
	if h.apply(m, p.Actions) {
		m.stances, h.synced = p.Stances, synced
	}
}

// allowsMore reports whether an action may allow more evictions than before.
func allowsMore(a Action) bool {
	switch a := a.(type) {
	case SetFloor:
		return a.State.MinAvailable < a.Floor.MinAvailable || a.Floor.Drifted
	case TolerateTaints, DeleteSeat, CreatePlaceholder, DeletePlaceholder:
		return false
	}
	return true
}

func changesGroups(a Action) bool {
	switch a.(type) {
	case CreateSeat, TolerateTaints, DeleteSeat, CreatePlaceholder, DeletePlaceholder:
		return false
	}
	return true
}

// meanwhile is what happens between two requests of the manager.
func (h *history) meanwhile() {
	switch n := h.rng.Intn(100); {
	case h.calm:
	case n < 15:
		h.act()
	case n < 20:
		h.controllers()
	}
}

// apply makes the writes of a plan in any order. Each may fail, the manager may crash between any two, and it may be frozen before any
// and make the rest when another one leads.
func (h *history) apply(m *manager, actions []Action) (ok bool) {
	decided, pass := h.now, h.passes
	actions = h.writePlaceholders(actions)
	var writes []func(late bool)
	for _, i := range h.rng.Perm(len(actions)) {
		writes = append(writes, func(late bool) { h.do(m, actions[i], late) })
	}
	for i, write := range writes {
		switch n := h.rng.Intn(100); {
		case h.calm:
		case n < 5:
			h.say("a write fails")
			return true
		case n < 7:
			h.crash()
			return false
		case n < 10:
			h.say("the manager is frozen before %d writes", len(writes)-i)
			h.met["manager frozen"]++
			for _, w := range writes[i:] {
				h.asleep = append(h.asleep, func(bool) { w(h.passes != pass || h.now.Sub(decided) > 10*time.Second) })
			}
			h.crash()
			return false
		}
		write(false)
		h.check()
		h.meanwhile()
	}
	return true
}

// writePlaceholders makes the writes of placeholders, and returns the other actions. They count for no eviction, so nothing happens beside.
func (h *history) writePlaceholders(actions []Action) (others []Action) {
	for _, action := range actions {
		switch a := action.(type) {
		case CreatePlaceholder:
			if !slices.ContainsFunc(h.placeholders, func(p Placeholder) bool { return p.Number == a.Number }) {
				h.placeholders = append(slices.Clone(h.placeholders), Placeholder{Number: a.Number})
				h.met["placeholder created"]++
			}
		case DeletePlaceholder:
			h.placeholders = slices.DeleteFunc(slices.Clone(h.placeholders), func(p Placeholder) bool { return p == a.Placeholder })
			h.met["placeholder deleted"]++
		default:
			others = append(others, action)
		}
	}
	return others
}

// crash ends the manager. What a NodeJob has claimed and not recorded is lost.
func (h *history) crash() {
	if h.manager == nil {
		return
	}
	h.say("the manager ends")
	h.met["manager crashed"]++
	h.manager = nil
	for _, j := range h.jobs {
		j.work = slices.DeleteFunc(j.work, func(w *work) bool {
			if w.begun && !w.recorded {
				h.met["claim lost"]++
			}
			return w.begun && !w.recorded
		})
	}
}

// wakeUp starts a manager, or resumes one that was frozen.
func (h *history) wakeUp() {
	if h.manager == nil {
		h.say("a manager starts")
		h.met["new manager"]++
		h.manager = h.newManager()
		h.asked, h.startedAt = map[string]asked{}, h.now
		h.catchUp()
	}
	if len(h.asleep) > 0 && h.chance(50) {
		h.say("a frozen manager resumes with %d writes", len(h.asleep))
		h.met["manager resumed"]++
		for _, w := range h.asleep {
			w(true)
		}
		h.asleep = nil
	}
}

// do makes a write. A late one is that of a manager that was frozen while another one led: the shell writes within 10 s of what it has
// read, and no other manager leads before. A raised floor does no harm even then.
func (h *history) do(m *manager, a Action, late bool) {
	h.say("  %T %+v (late: %v)", a, a, late)
	switch a := a.(type) {
	case SetFloor:
		h.setLive(a, late)
	case CreateFloor:
		if _, there := h.floors[a.State.Group]; there || late {
			h.met["name taken"]++
			return
		}
		f := simFloor{
			Floor: Floor{Group: a.State.Group, UID: types.UID(h.uid()), Created: second(h.now), MinAvailable: a.State.MinAvailable},
		}
		f.Owners = uidsOf(a.State.Owners)
		h.setFloor(f)
	case DeleteFloor:
		if f, there := h.floors[a.Floor.Group]; there && f.UID == a.Floor.UID && !late {
			h.ownChanges++
			delete(h.floors, f.Group)
		}
	case CreateSeat:
		if !late {
			h.createSeat(m, a)
		}
	case MoveSeat:
		if !late {
			h.moveSeat(m, a)
		}
	case TolerateTaints:
		if p, there := h.pods[a.Seat.Name]; there && p.UID == a.Seat.UID && !p.Terminating {
			h.met["seat tolerates"]++
			p.Tolerates = newTaints(append(p.Tolerates.list(), a.Taints.list()...))
			if len(p.Tolerates.list()) > maxTolerations {
				h.fail("22 seats: the seat of %s tolerates %s", p.on, p.Tolerates)
			}
			h.setPod(p)
		}
	case DeleteSeat:
		n, there := h.nodes[a.Broken]
		if there && n.UID == a.Seat.Node && (n.Ready || a.AtOnce && !IsUnreachable(&n)) {
			h.met["recovered before its seat was deleted"]++
			return
		}
		if p, there := h.pods[a.Seat.Name]; there && p.UID == a.Seat.UID && !late {
			h.met["seat deleted"]++
			h.deletes(&p)
			if a.AtOnce {
				h.met["seat ended at once"]++
				h.remove(p)
				return
			}
			p.Terminating = true
			h.setPod(p)
		}
	default:
		panic(fmt.Sprintf("unknown action %T", a))
	}
}

func (h *history) setLive(a SetFloor, late bool) {
	f, there := h.floors[a.Floor.Group]
	switch {
	case !there:
	case f.ResourceVersion != a.Floor.ResourceVersion:
		h.met["conflict"]++
	case late && a.State.MinAvailable < f.MinAvailable:
	default:
		f.MinAvailable, f.Owners, f.Drifted, f.open, f.Processed = a.State.MinAvailable, uidsOf(a.State.Owners), false, false, false
		h.setFloor(f)
	}
}

func uidsOf(owners []Owner) []types.UID {
	uids := make([]types.UID, 0, len(owners))
	for _, o := range owners {
		uids = append(uids, o.UID)
	}
	return uids
}

// ifAvailable does something that makes a node count as available, if it still is. No NodeJob can claim the node meanwhile.
func (h *history) ifAvailable(m *manager, name string, uid types.UID, do func()) {
	switch n, there := h.nodes[name]; {
	case m.holds()[uid] != "":
		h.met["kept from returning"]++
	case !there || n.UID != uid || !n.Ready || isAskedFor(&n):
		h.met["not available any more"]++
	default:
		m.returning[uid] = true
		h.meanwhile()
		delete(m.returning, uid)
		do()
	}
}

func (h *history) createSeat(m *manager, a CreateSeat) {
	h.ifAvailable(m, a.Node, a.NodeUID, func() {
		name := "seat-" + string(a.NodeUID)
		if _, taken := h.pods[name]; taken {
			return
		}
		p := simPod{on: a.Node, Seat: Seat{
			Name: name, UID: types.UID(h.uid()), Node: a.NodeUID, Group: a.Group, Created: second(h.now), Returned: a.Returned,
			Tolerates: a.Tolerates,
		}}
		h.setPod(p)
		h.created(&p)
	})
}

// moveSeat changes the label of a seat.
func (h *history) moveSeat(m *manager, a MoveSeat) {
	move := func() {
		p, there := h.pods[a.Seat.Name]
		if !there || p.UID != a.Seat.UID {
			return
		}
		from := p.Group
		if from == PendingGroup {
			m.ungranted.Joined(p.Node)
		}
		p.Group = a.Group
		h.setPod(p)
		if from == PendingGroup {
			h.joined(&p)
		} else {
			h.met["seat moved"]++
		}
	}
	if a.Seat.Group == PendingGroup {
		h.ifAvailable(m, a.Node, a.Seat.Node, move)
	} else {
		move()
	}
}
