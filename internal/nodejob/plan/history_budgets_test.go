// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"maps"
	"math/rand"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
)

// A NodeDisruptionBudget for all nodes: it opens, closes, and refuses claims, and other tools take nodes from it.

// budgeter is the budget. Seats return at once when nothing prevents that, so that a NodeJob that forgets a node is noticed.
type budgeter struct {
	// rolls decides what happens, so that histories without a budget do not change; nil in these.
	rolls *rand.Rand
	// limit is how many nodes may have no seat.
	limit int
	// frozen is true while a user has closed the budget, and tasks if its scope is Tasks.
	frozen, tasks bool
	// every is how often a window opens, for a certain time; 0 if there are no windows.
	every, open time.Duration
	// unknown is true until the first plan of a new manager.
	unknown bool
	// without are the nodes whose seats were evicted, taken those that other tools have taken, and granted what the manager knows of
	// its claims. held are the holds that the NodeJob has reported last; nil before a new manager has a report.
	without, taken, granted, held map[types.UID]bool
	// refusedClaims are the claims that were refused in this pass.
	refusedClaims []types.UID
	// begun are the nodes that were claimed for a run that has not ended.
	begun map[types.UID]bool
}

// newBudgeter has a budget in a quarter of the histories.
func newBudgeter(seed int64) budgeter {
	dice := rand.New(rand.NewSource(seed + 1<<43))
	if slices.Contains(kept, seed) || dice.Intn(4) > 0 {
		return budgeter{}
	}
	b := budgeter{
		rolls: dice, limit: 1 + dice.Intn(3), tasks: dice.Intn(2) == 0, begun: map[types.UID]bool{},
		without: map[types.UID]bool{}, taken: map[types.UID]bool{}, granted: map[types.UID]bool{}, held: map[types.UID]bool{},
	}
	if dice.Intn(2) == 0 {
		b.open = time.Duration(8+dice.Intn(20)) * time.Minute
		b.every = b.open + time.Duration(1+dice.Intn(5))*time.Minute
	}
	return b
}

// changeBudget is a user who closes or opens the budget, or another tool that takes a node or gives it back.
func (h *history) changeBudget() {
	if h.rolls == nil || h.rolls.Intn(5) > 0 {
		return
	}
	switch names := sortedKeys(h.nodes); {
	case h.rolls.Intn(2) == 0:
		h.frozen = !h.frozen && h.rolls.Intn(2) == 0
		h.limit = 1 + h.rolls.Intn(3)
		h.say("the budget is frozen: %v (all tasks: %v), limit %d", h.frozen, h.tasks, h.limit)
	case h.rolls.Intn(4) == 0:
		h.unknown = true
		h.say("what the budget allows is unknown")
	case len(h.taken) > 0:
		h.giveBack()
	case len(names) > 0:
		h.take(h.nodes[names[h.rolls.Intn(len(names))]])
	}
}

// take is another tool that takes a node, if the budget allows it.
func (h *history) take(node *Node) {
	if h.grants(node.UID) {
		h.say("another tool takes %s", node.Name)
		h.taken[node.UID], h.without[node.UID] = true, true
		h.drain(node)
	}
}

// giveBack is the end of what other tools do on the nodes that they have taken.
func (h *history) giveBack() {
	for _, name := range sortedKeys(h.nodes) {
		if h.taken[h.nodes[name].UID] {
			h.endWork(h.nodes[name])
		}
	}
	clear(h.taken)
}

// settleBudget ends the freeze. The windows continue, and are long enough for a run.
func (h *history) settleBudget() {
	h.frozen = false
	clear(h.taken)
	if h.every > 0 {
		h.open = max(h.open, 2*h.longest())
		h.every = h.open + time.Minute
	}
}

// relieveBudget is a user who raises the limit because nodes that stay unavailable use it up, as the status says.
func (h *history) relieveBudget() {
	if h.rolls == nil || len(h.without) < h.limit {
		return
	}
	states, told := map[string]State{}, false
	for _, st := range h.last.Nodes {
		states[st.Name] = st.State
		told = told || st.Reason == v1alpha1.ReasonWaitingForBudget && strings.Contains(st.Message, "is not available")
	}
	for _, node := range h.nodes {
		away := h.isBad(node) || node.Unschedulable && states[node.Name] == Failed
		if h.without[node.UID] && !away {
			return
		}
	}
	if told {
		h.limit++
		h.say("the limit of the budget is raised to %d", h.limit)
	}
}

// window returns when the open window of the budget closes, or until when the windows are closed. Both are zero without windows.
func (h *history) window() (closesAt, closedUntil time.Time) {
	if h.every == 0 {
		return time.Time{}, time.Time{}
	}
	opened := h.told.Truncate(h.every)
	if closes := opened.Add(h.open); h.told.Before(closes) {
		return closes, time.Time{}
	}
	return time.Time{}, opened.Add(h.every)
}

func (h *history) isClosed() bool {
	_, until := h.window()
	return h.frozen || !until.IsZero()
}

// grants reports whether the API server would grant the eviction of the seat of a node.
func (h *history) grants(uid types.UID) bool {
	return !h.without[uid] && !h.isClosed() && len(h.without) < h.limit
}

// addBudgets adds what the manager knows of the budget.
func (h *history) addBudgets(in *Input) {
	if h.rolls == nil {
		return
	}
	in.Budgets = map[types.UID]NodeBudget{}
	closesAt, until := h.window()
	var closed *hold.Why
	switch {
	case h.frozen:
		closed = &hold.Why{Message: "the budget is frozen"}
	case !until.IsZero():
		closed = &hold.Why{Message: "the window is closed", Until: until}
	}
	if in.BudgetsChangeAt = closesAt; closesAt.IsZero() {
		in.BudgetsChangeAt = until
	}
	for i := range in.Nodes {
		uid := in.Nodes[i].UID
		b := NodeBudget{Effect: hold.Effect{Limited: true, Closed: closed}, Claimed: h.granted[uid], Unknown: h.unknown}
		if h.tasks {
			b.TasksClosed = closed
		}
		if h.every > 0 {
			b.ClosesAt, b.ClosesBy, b.Longest, b.LongestOf = closesAt, "budget", h.open, "budget"
		}
		if !h.unknown {
			h.addStance(&b, &in.Nodes[i])
		}
		in.Budgets[uid] = b
	}
}

// addStance adds what the budget allows on a node.
func (h *history) addStance(b *NodeBudget, node *Node) {
	b.Allowed = h.grants(node.UID)
	if h.without[node.UID] {
		live := h.nodes[node.Name]
		b.Allowed = !h.returns(live)
		b.Drained = live != nil && live.Ready == corev1.ConditionTrue && live.Unschedulable
	} else {
		b.Seat, b.SeatUID = "seat-"+string(node.UID), node.UID
	}
	if !b.Allowed && !h.isClosed() {
		b.UsedUpByJob = len(h.without) > 0
		for uid := range h.without {
			b.UsedUpByJob = b.UsedUpByJob && h.held[uid]
		}
		var names []string
		for _, name := range sortedKeys(h.nodes) {
			if h.without[h.nodes[name].UID] {
				names = append(names, name)
			}
		}
		b.Message = fmt.Sprintf("%s is not available, and the budget allows %d", strings.Join(names, ", "), h.limit)
	}
}

// claim is the eviction of a seat.
func (h *history) claim(c Claim) {
	switch {
	case c.Seat == "" != h.without[c.NodeUID]: // the seat is gone or back
	case c.Seat != "" && !h.grants(c.NodeUID), h.faults && h.rolls.Intn(6) == 0:
		h.say("the claim of %s is refused", c.Node)
	default:
		h.say("%s is claimed", c.Node)
		h.without[c.NodeUID], h.granted[c.NodeUID], h.begun[c.NodeUID] = true, true, true
		return
	}
	h.refusedClaims = append(h.refusedClaims, c.NodeUID)
}

// failClaim is a claim that does not reach the API server.
func (h *history) failClaim(action Action) {
	if c, ok := action.(Claim); ok {
		h.refusedClaims = append(h.refusedClaims, c.NodeUID)
	}
}

// returns reports whether a node that has no seat gets it back.
func (h *history) returns(node *Node) bool {
	return node != nil && h.held != nil && !h.held[node.UID] && !h.granted[node.UID] && !h.taken[node.UID] &&
		node.Ready == corev1.ConditionTrue && !node.Unschedulable && !node.Deleting
}

// reportToBudget is the report of the NodeJob after a pass. Then seats return.
func (h *history) reportToBudget(p Plan) {
	if h.rolls == nil {
		return
	}
	h.held, h.unknown = map[types.UID]bool{}, false
	maps.Copy(h.held, p.Holds)
	for _, uid := range h.refusedClaims {
		delete(h.held, uid)
	}
	h.refusedClaims = nil
	maps.DeleteFunc(h.granted, func(uid types.UID, _ bool) bool { return !h.held[uid] || !p.Claims[uid] })
	there := map[types.UID]bool{}
	for _, name := range sortedKeys(h.nodes) {
		node := h.nodes[name]
		there[node.UID] = true
		if h.without[node.UID] && h.returns(node) {
			h.checkReturn(node)
			delete(h.without, node.UID)
			delete(h.begun, node.UID)
		}
	}
	maps.DeleteFunc(h.without, func(uid types.UID, _ bool) bool { return !there[uid] })
}

// forgetClaims begins a manager that knows no claims, and no reports.
func (h *history) forgetClaims() {
	if h.rolls != nil {
		clear(h.granted)
		h.held, h.unknown = nil, true
	}
}

// checkBudget checks that no disruption begins without a claim, and nothing while all tasks are frozen.
func (h *history) checkBudget(in Input, p Plan) {
	if h.rolls == nil {
		return
	}
	for _, action := range p.Actions {
		switch a := action.(type) {
		case Claim:
			h.checkClaim(in, a)
		case Start:
			if a.Attempt.Phase == task.Task {
				h.checkBudgetOfStart(a)
			}
		case PatchNode:
			h.checkBudgetOfCordon(a)
		}
	}
}

// longest is how long a first run can take. Its reboot is among its limits only if there is one.
func (h *history) longest() time.Duration {
	spec := &h.job.Spec
	attempts := *spec.Retry.Limit + 1
	all := time.Duration(attempts) * seconds32(spec.Task.TimeoutSeconds, 600)
	for n := int32(1); n < attempts; n++ {
		all += seconds32(spec.Retry.BackoffSeconds, 10) << (n - 1)
	}
	if d := spec.Maintenance.Drain; d != nil {
		all += seconds32(d.TimeoutSeconds, 600)
	}
	if h.wantsReboot() {
		all += seconds32(spec.Maintenance.Reboot.TimeoutSeconds, 900)
		if spec.Task.Check != nil {
			all += seconds32(spec.Task.TimeoutSeconds, 600)
		}
	}
	return all
}

func (h *history) checkClaim(in Input, a Claim) {
	b := in.Budgets[a.NodeUID]
	closesAt, _ := h.window()
	rec := h.seen[a.Node].On.Record
	switch {
	case h.isClosed():
		h.break_("rule 22", "%s is claimed while the budget is closed", a.Node)
	case !b.Allowed || b.Unknown:
		h.break_("rule 22", "%s is claimed, and the budget does not allow it", a.Node)
	case !h.disrupts():
		h.break_("rule 22", "%s is claimed for a task that disrupts nothing", a.Node)
	case h.every > 0 && (rec == nil || rec.Revision != h.rev) && h.told.Add(h.longest()).After(closesAt):
		h.break_("rule 22", "%s is claimed, and a run can end after the window closes at %v", a.Node, closesAt)
	}
}

func (h *history) checkBudgetOfStart(a Start) {
	node := h.nodes[a.Attempt.NodeName]
	if node == nil || node.UID != a.Attempt.NodeUID || h.isBad(node) {
		return
	}
	seen := h.seen[node.Name]
	prepared := seen.Unschedulable && h.cordons(&seen) && (slices.Contains(seen.CordonedBy, ownKey) || h.isDrained(&seen))
	quarantined := seen.On.Record != nil && seen.On.Record.Cordoned
	switch {
	case h.disrupts() && !h.without[node.UID]:
		h.break_("rule 22", "%s %d starts on %s, and its seat is not evicted", a.Attempt.Phase, a.Attempt.Number, node.Name)
	case h.disrupts() && !h.begun[node.UID] && (!prepared || quarantined):
		h.break_("rule 22", "%s %d starts on %s, and it is not claimed", a.Attempt.Phase, a.Attempt.Number, node.Name)
	case h.isClosed() && h.tasks && (!prepared || quarantined):
		h.break_("rule 22", "%s %d starts on %s, and all tasks are frozen", a.Attempt.Phase, a.Attempt.Number, node.Name)
	}
}

// isDrained reports whether a node is being drained before the task, according to the status.
func (h *history) isDrained(node *Node) bool {
	return slices.ContainsFunc(h.job.Status.Drains, func(d v1alpha1.NodeDrain) bool { return d.Node == node.Name })
}

// checkBudgetOfCordon checks the cordon before a task. That of onFailure needs no claim.
func (h *history) checkBudgetOfCordon(a PatchNode) {
	node := h.real(a.Node, a.UID)
	if node == nil || h.isBad(node) || a.Before == nil {
		return
	}
	if !h.without[node.UID] || !h.begun[node.UID] {
		h.break_("rule 22", "%s is cordoned, and its seat is not evicted", a.Node)
	}
}

// endBudget notes that a run has ended for good: the next one must claim the node again.
func (h *history) endBudget(node *Node) {
	if h.rolls != nil && node.On.Record.Outcome != record.Rebooting && (node.On.Record.Outcome == record.Succeeded || h.exhausted(node)) {
		delete(h.begun, node.UID)
	}
}

// checkReturn checks that a node gets its seat back only when its run has ended. A check before the task disturbs nothing. A run that
// disrupts its node still does after the spec has changed.
func (h *history) checkReturn(node *Node) {
	if h.isBad(node) {
		return
	}
	for _, name := range h.podNames() {
		if pod := h.pods[name]; pod.NodeUID == node.UID && h.uses(pod) {
			h.break_("rule 22", "%s gets its seat back while pod %s runs (%s)", node.Name, name, pod.Runs)
		}
	}
	if !h.disrupts() || h.deleting() { // nothing is retried or cordoned any more
		return
	}
	rec := node.On.Record
	live := h.selected(node) && !h.denied && h.cache.nodes[node.Name].ResourceVersion == node.ResourceVersion
	action := h.job.Spec.OnFailure.Action
	switch {
	case rec == nil || !live:
	case h.reboots(node):
		h.break_("rule 22", "%s gets its seat back while it reboots", node.Name)
	case h.exhausted(node) && !rec.Cordoned && (action == v1alpha1.FailureActionCordon || action == v1alpha1.FailureActionDrain):
		h.break_("rule 22", "%s gets its seat back before it is cordoned because of its failure", node.Name)
	case h.isBetweenAttempts(node, rec):
		h.break_("rule 22", "%s gets its seat back between two attempts", node.Name)
	}
}

// uses reports whether a pod disrupts its node. When its NodeJob is deleted, the manager releases it before it has ended, and waits for
// its kubelet for a minute longer than its grace period.
func (h *history) uses(pod *simPod) bool {
	if pod.tampered || !h.isMade(pod) || over(&pod.Pod) || pod.Runs.Asks() || pod.recorded {
		return false
	}
	if h.deleting() {
		return pod.disrupts && (pod.DeleteRequested.IsZero() || h.told.Before(pod.DeleteRequested.Add(pod.DeleteGrace+time.Minute)))
	}
	return !pod.released && (pod.disrupts || h.disrupts())
}

// isBetweenAttempts reports whether a node waits only for the backoff of an attempt that failed or was disrupted.
func (h *history) isBetweenAttempts(node *Node, rec *record.Record) bool {
	switch {
	case rec.Revision != h.rev || rec.MachineID != node.MachineID || rec.Retry != task.RetryToken(h.job) || rec.RetryRequested,
		rec.NeverStarted,
		rec.CheckBefore != "", rec.Reason == v1alpha1.ReasonDrainTimedOut, // the next attempt begins with a claim of its own
		rec.Outcome != record.Failed && rec.Outcome != record.Disrupted,
		h.exhausted(node),
		node.On.Label == h.rev:
		return false
	case h.job.Spec.Suspend,
		h.obstacle != nil,
		len(h.refusals) > 0,
		h.troubles[node.UID] != nil,
		barred(node),
		h.lacksValue(node),
		h.isClosed() && h.tasks:
		return false
	}
	return h.told.Before(rec.EndedAt().Add(seconds32(h.job.Spec.Retry.BackoffSeconds, 10)))
}
