// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/nodejob/task"
)

// A NodeJob that disrupts a node which a NodeDisruptionBudget limits claims the node first: it evicts the seat of the node. The claim
// is the last step before a start, so only nodes that would start now are claimed:
//
//	all other checks pass ──► Claim (the seat is evicted) ──► the next pass starts or prepares the node
//
// What has begun ends: a claimed node, a node that is being prepared, and the retries, the reboot, the check and the rollback of a run
// wait for no budget. Plan.Holds keeps the seat of such a node from coming back. A claim is for one run, and ends with it (Plan.Claims),
// although the node may be held for longer, for example while it stays cordoned after a failure.

// NodeBudget is what the NodeDisruptionBudgets of a node mean for a NodeJob. The zero value is a node without one.
type NodeBudget struct {
	hold.Effect
	hold.Stance
	// Unknown is true while the manager does not know what the budgets allow, for example after its start.
	Unknown bool
	// UsedUpByJob is true if they allow nothing because this NodeJob itself holds all nodes that use up a limit.
	UsedUpByJob bool
	// Claimed is true if this NodeJob has claimed the node.
	Claimed bool
}

// outsideFor is Outside for an attempt of the task; "" for other phases, which wait for no window.
func (b NodeBudget) outsideFor(phase task.Phase) string {
	if phase != task.Task {
		return ""
	}
	return b.Outside
}

// closedBy is the block of a node that waits for a closed budget.
func closedBy(c *hold.Why) block {
	return block{cause: causeBudgetClosed, Why: hold.Why{Reason: v1alpha1.ReasonBudgetClosed, Message: c.Message, Until: c.Until}}
}

// Claim claims a node from its NodeDisruptionBudgets: the seat of the node is evicted, if it has one. If that is refused, nothing is
// claimed.
type Claim struct {
	Node    string
	NodeUID types.UID
	Seat    string
	SeatUID types.UID
}

func (Claim) action() {}

// tasksClosed blocks a node whose turn it is while a budget with scope Tasks is closed. A node that is being prepared continues.
func (c *capacity) tasksClosed(w *nodePlan) block {
	closed := c.in.Budgets[w.node.UID].TasksClosed
	if w.start.phase != task.Task || closed == nil || c.hasBegun(w.node) {
		return block{}
	}
	return closedBy(closed)
}

// hasBegun reports whether a node is being prepared for a run, which ends regardless of budgets. A node that stays cordoned after a
// failure begins another run. A node that has its seat was not claimed, even if it is cordoned; while that is not known, a cordoned node waits.
func (j *job) hasBegun(node *Node) bool {
	b := j.in.Budgets[node.UID]
	quarantined := node.On.Record != nil && node.On.Record.Cordoned
	return j.isPrepared(node) && !quarantined && (b.Claimed || b.Seat == "" && !b.Unknown)
}

// budgetBlock is what the budgets of a node prevent, after all other checks have passed. A rollback claims nothing, because the node
// must not stay as the task has left it.
func (c *capacity) budgetBlock(w *nodePlan) block {
	b := c.in.Budgets[w.node.UID]
	if closed := c.closedBlock(w); closed.blocks() || !b.Limited || !c.needsClaim(w.node) {
		return closed
	}
	wait := block{cause: causeBudget, Why: hold.Why{Reason: v1alpha1.ReasonWaitingForBudget}}
	switch {
	case b.Unknown:
		wait.Message = "the manager does not know yet what its NodeDisruptionBudgets allow"
	case !b.Allowed:
		// A node that waits for its seat does not wait for other nodes.
		wait.Message, wait.awaits = firstOf(b.Message, "its NodeDisruptionBudgets do not allow it now"), b.Seat != ""
	default:
		wait.Message = "it claims the node from its NodeDisruptionBudgets"
		if b.Outside != "" {
			wait.Message += fmt.Sprintf(" outside of the window of %s, because spec.maintenance.ignoreWindowsOn names it", b.Outside)
		}
		wait.claim = &Claim{Node: w.node.Name, NodeUID: w.node.UID, Seat: b.Seat, SeatUID: b.SeatUID}
	}
	return wait
}

// needsClaim reports whether budgets select a node that is not claimed, and on which no run has begun.
func (c *capacity) needsClaim(node *Node) bool {
	b, known := c.in.Budgets[node.UID]
	return known && !b.Claimed && !c.hasBegun(node)
}

// closedBlock is what closed budgets prevent on a node that needs a claim.
func (c *capacity) closedBlock(w *nodePlan) block {
	if !c.needsClaim(w.node) {
		return block{}
	}
	b := c.in.Budgets[w.node.UID]
	return c.windowBlock(w, &b)
}

// windowBlock is what closed budgets prevent, and windows that close before a run would end.
func (c *capacity) windowBlock(w *nodePlan, b *NodeBudget) block {
	run, parts := c.longestRun(w.start.number)
	switch closes := b.ClosesAt; {
	case b.Longest > 0 && run > b.Longest:
		return block{
			cause: causeWindowTooShort,
			Why: hold.Why{Reason: v1alpha1.ReasonWindowTooShort, Message: fmt.Sprintf(
				"a run can take %s (%s), and the longest window of NodeDisruptionBudget %s is %s, so none can start: set a longer durationSeconds there, or a shorter task.timeoutSeconds or a lower retry.limit here",
				run, parts, b.LongestOf, b.Longest)},
		}
	case b.Closed != nil:
		return closedBy(b.Closed)
	case !closes.IsZero() && c.in.Now.Add(run).After(closes):
		return block{
			cause: causeBudgetClosed,
			Why: hold.Why{Reason: v1alpha1.ReasonBudgetClosed, Until: closes, Message: fmt.Sprintf(
				"the window of NodeDisruptionBudget %s closes at %s, and a run can take %s (%s), so it starts in a later window",
				b.ClosesBy, closes.UTC().Format(time.RFC3339), run, parts)},
		}
	}
	return block{}
}

// longestRun is how long a run that begins with an attempt can take by its own time limits, and how that is composed. It counts one
// reboot: one that fails and is repeated has already exceeded its limit. maintenance.reboot.timeoutSeconds includes the time for which
// the node must be Ready.
func (p *policy) longestRun(first int32) (sum time.Duration, parts string) {
	var all []string
	add := func(what string, d time.Duration) {
		if d > 0 {
			sum += d
			all = append(all, what+" "+d.String())
		}
	}
	if d := p.in.Job.Spec.Maintenance.Drain; d != nil {
		add("drain", drainTimeoutOf(d))
	}
	timeout, attempts := task.Timeout(p.in.Job, task.Task), max(1, p.retryLimit()-first+2)
	if attempts > 1 {
		sum += time.Duration(attempts) * timeout
		all = append(all, fmt.Sprintf("task %d × %s", attempts, timeout))
		var backoffs time.Duration
		for n := first; n < first+attempts-1; n++ {
			backoffs += p.backoff(n)
		}
		add("backoff", backoffs)
	} else {
		add("task", timeout)
	}
	if p.rebootWanted() {
		add("reboot", task.Timeout(p.in.Job, task.Reboot))
		if p.in.Job.Spec.Task.Check != nil {
			add("check", task.Timeout(p.in.Job, task.Check))
		}
	}
	return sum, strings.Join(all, ", ")
}

// claim plans the claim of a node. The node takes its place among the slots and the unavailable nodes of this pass, so no more nodes
// are claimed than can start.
func (p *planner) claim(w *nodePlan, claim *Claim) {
	p.do(*claim)
	p.capacity.take(w)
	p.capacity.taskStarts++ // while there is an obstacle, one node is enough to find out whether it still exists
	w.claims = true
}

// reportHolds sets what the budgets and the conditions of nodes must know.
func (p *planner) reportHolds() {
	for i := range p.nodes {
		w := &p.nodes[i]
		if p.holds(w) {
			p.hold(w)
			if p.needsClaim(w) {
				put(&p.plan.Claims, w.node.UID, true)
			}
		}
		if p.publishesConditions() && w.State != Excluded {
			put(&p.plan.Conditions, w.node.UID, w.condition())
		}
		p.reportWait(w)
	}
	if p.plan.AwaitsBudgets {
		p.plan.wake(p.in.BudgetsChangeAt)
	}
}

// reportWait reports that a node waits for budgets.
func (p *planner) reportWait(w *nodePlan) {
	if w.awaitsBudget {
		put(&p.plan.Waits, w.node.UID, true)
	}
	closed := w.State == Waiting && (w.cause == causeBudgetClosed || w.budgetClosed)
	if closed {
		put(&p.plan.Closed, w.node.UID, true)
	}
	p.plan.AwaitsBudgets = p.plan.AwaitsBudgets || closed || w.waitsForBudget() || w.cause == causeInUse
}

// hold reports that the NodeJob uses a node, and how.
func (p *planner) hold(w *nodePlan) {
	put(&p.plan.Holds, w.node.UID, true)
	put(&p.plan.Stages, w.node.UID, p.stage(w))
}

func put[V any](all *map[types.UID]V, uid types.UID, value V) {
	if *all == nil {
		*all = map[types.UID]V{}
	}
	(*all)[uid] = value
}

// holds reports whether the NodeJob disrupts a node, or is about to. A cordon and what still runs there count even if the NodeJob does not
// disrupt nodes any more.
func (p *planner) holds(w *nodePlan) bool {
	switch {
	case p.cordonedForUs(w.node) && w.node.Unschedulable:
		return true
	case w.disrupted:
		return true
	case !p.disrupts():
		return false
	case w.slot, w.claims, w.taskTerminating:
		return true
	}
	return p.continuesRun(w) || p.isPrepared(w.node) || p.quarantiner.willCordon(w)
}

// needsClaim reports whether the claim of a held node is still needed. The next run on the node, such as a rerun, must claim it again,
// even if the node is held in between.
func (p *planner) needsClaim(w *nodePlan) bool {
	return !w.endsRun && (w.slot || w.claims || p.retries(w) || p.hasBegun(w.node))
}

// continuesRun reports whether a run continues on the node with another attempt, or with its rollback.
func (p *planner) continuesRun(w *nodePlan) bool {
	return p.retries(w) || w.exhausted && w.rollbackPending
}

// retries reports whether a run continues on the node with another attempt, as soon as time has passed or a slot is free.
func (p *planner) retries(w *nodePlan) bool {
	if w.State != Waiting || !w.retried || w.node.On.Record.Reason == v1alpha1.ReasonDrainTimedOut || w.node.On.Record.CheckBefore != "" {
		return false
	}
	switch w.cause {
	case causeBackoff, causeSlot, causeTerminatingPod:
		return true
	case causeBudget:
		return p.in.Budgets[w.node.UID].Unknown
	default:
		return false
	}
}
