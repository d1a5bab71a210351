// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/plural"
)

// defaultMaxConcurrent is rollout.maxConcurrent when omitted, as in the CRD.
var defaultMaxConcurrent = intstr.FromString("25%")

// maxSlots is how many nodes of a NodeJob run at the same time at most, whatever rollout.maxConcurrent is. Each attempt costs the API server
// and etcd some writes, of which thousands in the same seconds delay the heartbeats of nodes and everything else in the cluster. The kubelets
// need no limit: a NodeJob has one pod on a node.
const maxSlots = 1000

// capacity is how much may run and be unavailable at the same time, and how much already is.
type capacity struct {
	*job
	rollout *rollout
	nodes   []nodePlan
	// slots is the number of slots that rollout.maxConcurrent allows, and taken how many are in use.
	slots, taken int
	// noSlotMessage is what nodes that wait for a slot say.
	noSlotMessage string
	// draining counts the nodes that are being drained, and toDrain those that this pass cordons before the task. They are
	// drained next if the task needs that.
	draining, toDrain int
	// unavailableNodes counts the unavailable nodes, and maxUnavailableNodes is how many of them maintenance may cause.
	unavailableNodes, maxUnavailableNodes int
	// unavailableNames names the first of them, once they are read.
	unavailableNames string
	// checking counts the nodes on which a pod only asks a question, such as the check before the task.
	checking int
	// busy counts the nodes with an attempt that runs or starts, and starts the attempts that this pass starts.
	busy, starts int32
	// mayStart counts the nodes on which an attempt may start.
	mayStart int
	// taskStarts and runnerStarts count the starts of this pass, grouped by what the API server refuses together
	// (startsLike).
	taskStarts, runnerStarts int32
}

// startWithinLimit starts what may start while slots are free, in the order of candidates: rollbacks first, then the
// nodes by step and name, so that the same cluster always rolls out in the same order. Nodes that have had a turn come
// last. A node that joined after the revision became stable takes no slot.
func (p *planner) startWithinLimit() {
	p.capacity.count()
	for _, next := range p.capacity.candidates() {
		w := &p.nodes[next.index]
		if w.start.phase.Asks() {
			p.checkFirst(w)
			continue
		}
		if b := p.capacity.startBlock(w); b.blocks() {
			w.postpone(b)
			if b.claim != nil {
				p.claim(w, b.claim)
			}
			p.plan.wake(b.Until)
			continue
		}
		p.capacity.take(w)
		p.startOrPrepare(w)
	}
}

// startBlock is what prevents a node that is ready to start from starting now: too few slots, or too many unavailable
// nodes.
func (c *capacity) startBlock(w *nodePlan) block {
	if b := c.tasksClosed(w); b.blocks() {
		return b
	}
	free := c.taken < c.slots || c.rollout.joinedAfterStable(w.node)
	if c.obstacleFor(w.start.phase) != nil && c.startsLike(w.start.phase) > 0 {
		free = false // one start shows whether the obstacle still exists
	}
	if !free {
		return block{cause: causeSlot, Why: hold.Why{Reason: w.Reason, Message: c.noSlotMessage}}
	}
	if b := c.inUse(w); b.blocks() {
		return b
	}
	b := c.mustNotDisrupt(w)
	switch {
	case w.start.phase != task.Task || !c.disrupts():
		return b
	case !b.blocks():
		return c.budgetBlock(w)
	}
	if closed := c.closedBlock(w); closed.blocks() { // it may last longer
		b.Message += "; and " + closed.Message
		w.budgetClosed = true
	}
	return b
}

// count counts the slots, and the unavailable nodes.
func (c *capacity) count() {
	matched := c.countSlots()
	c.slots = maxConcurrent(c.in.Job.Spec.Rollout, matched)
	c.noSlotMessage = fmt.Sprintf("it waits for a slot: rollout.maxConcurrent allows %s at the same time", plural.Count(c.slots, "node"))
	if c.slots == maxSlots {
		c.noSlotMessage = fmt.Sprintf("it waits for a slot: at most %d nodes of a NodeJob run at the same time, whatever rollout.maxConcurrent is", maxSlots)
	}
	c.countUnavailable()
}

// countDrains counts the running drains: those of failed nodes, and those before a task.
func (c *capacity) countDrains() {
	for i := range c.nodes {
		w := &c.nodes[i]
		_, before := c.drainingSince(w.node)
		if (w.exhausted && drains(w.node.On.Record)) || (before && c.inPreparation(w)) {
			c.draining++
		}
	}
}

// take gives a node a slot, and counts it as unavailable.
func (c *capacity) take(w *nodePlan) {
	if !c.rollout.joinedAfterStable(w.node) {
		c.taken++
	}
	if c.disrupts() && !w.Unavailable {
		w.Unavailable, c.unavailableNames = true, ""
		c.unavailableNodes++
	}
}

// startsLike counts the starts of this pass that the API server accepts or refuses together with those of a phase.
func (c *capacity) startsLike(phase task.Phase) int32 {
	if c.isRunner(phase) {
		return c.runnerStarts
	}
	return c.taskStarts
}

// countStart counts a start.
func (c *capacity) countStart(phase task.Phase) {
	c.starts++
	if c.isRunner(phase) {
		c.runnerStarts++
	} else {
		c.taskStarts++
	}
}

// isRunner reports whether the pod of a phase is of another kind than the pod of the task.
func (c *capacity) isRunner(phase task.Phase) bool {
	return phase != task.Task && c.in.Job.Spec.Task.Template != nil
}

// countSlots counts the slots that are in use and the nodes on which an attempt may start, and returns the number of
// nodes of the rollout.
func (c *capacity) countSlots() (matched int) {
	for i := range c.nodes {
		w := &c.nodes[i]
		if w.State != Excluded {
			matched++
		}
		if w.start.ready() {
			c.mayStart++
		}
		if w.checking {
			c.checking++
			c.busy++
		}
		if !w.slot {
			continue
		}
		c.busy++
		if !c.rollout.joinedAfterStable(w.node) {
			c.taken++
		}
	}
	return matched
}

// candidate is a node on which an attempt may start.
type candidate struct {
	lastTurn    time.Time
	rank, index int
}

// candidates are the nodes on which an attempt may start, in start order.
func (c *capacity) candidates() []candidate {
	candidates := make([]candidate, 0, c.mayStart)
	for i := range c.nodes {
		if c.nodes[i].start.ready() {
			candidates = append(candidates, candidate{c.lastTurn(i), c.rank(i), i})
		}
	}
	slices.SortFunc(candidates, func(a, b candidate) int {
		if order := cmp.Or(a.lastTurn.Compare(b.lastTurn), cmp.Compare(a.rank, b.rank)); order != 0 {
			return order
		}
		x, y := &c.nodes[a.index], &c.nodes[b.index]
		return cmp.Or(cmp.Compare(x.step, y.step), cmp.Compare(x.Name, y.Name))
	})
	return candidates
}

// lastTurn is when a node last got a slot; zero if it never did. Nodes with a failed operation that only the manager
// knows of, and nodes that rerun the task, come after all others and take turns, because there may always be more of
// them than slots.
func (c *capacity) lastTurn(i int) time.Time {
	w := &c.nodes[i]
	tried := c.in.NodeProblems[w.node.UID].Until
	if !tried.IsZero() || !w.rerun || c.inPreparation(w) {
		return tried
	}
	return w.node.On.Record.EndedAt()
}

// attemptOn is the attempt that may start on a node.
func (p *planner) attemptOn(w *nodePlan) task.Attempt {
	if w.start.phase != task.Rollback {
		return p.attempt(w.node, w.start, p.in.Revision)
	}
	rec := w.node.On.Record
	a := p.attempt(w.node, w.start, rec.Revision)
	a.Undoes, a.Deleting, a.Expiring = rec, !p.in.Job.DeletionTimestamp.IsZero(), w.expiring
	return a
}

// begin starts the attempt of a node.
func (p *planner) begin(w *nodePlan) {
	p.capacity.countStart(w.start.phase)
	p.capacity.busy++
	w.slot = true
	a := p.attemptOn(w)
	a.Gates = p.gate.gateKeys(w.node)
	p.do(Start{Attempt: a})
	if w.start.phase == task.Rollback {
		w.rollBack("", w.Until)
		return
	}
	p.rollout.noteStart(w)
	w.ranRevision = true
	w.run(v1alpha1.ReasonStarting, "", w.Until)
}

// rank orders the candidates: what must be fixed comes before what is new, and what has started before what has not.
// The node of the manager comes last if its workloads would be disrupted, even if it is claimed: otherwise it would wait for nodes
// that cannot start.
func (c *capacity) rank(i int) int {
	w := &c.nodes[i]
	switch {
	case w.start.phase == task.Rollback:
		return 0
	case c.inPreparation(w), c.in.Budgets[w.node.UID].Claimed && w.node.Name != c.in.OwnNode, c.isRetriedFirst(w.node):
		return 1
	case w.progressDeadlineExceeded:
		return 4 // its time has passed
	case c.disrupts() && w.node.Name == c.in.OwnNode:
		return 3
	}
	return 2
}

// maxConcurrent is how many of the matching nodes may run at the same time: at least one, or the task would never run, and at most maxSlots.
func maxConcurrent(r v1alpha1.RolloutSpec, matched int) int {
	value := r.MaxConcurrent
	if value == nil {
		value = &defaultMaxConcurrent
	}
	return min(scaled(value, matched, 1, roundDown), maxSlots)
}

const (
	roundDown = false
	roundUp   = true
)

// scaled is a number, or a percentage of the nodes, and at least least. The CRD validation rejects other values; for
// them it is least.
func scaled(value *intstr.IntOrString, nodes, least int, rounded bool) int {
	n, err := intstr.GetScaledValueFromIntOrPercent(value, nodes, rounded)
	if err != nil {
		return least
	}
	return max(n, least)
}
