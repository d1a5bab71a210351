// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/outcome"
	"github.com/everynode/everynode/internal/plural"
)

// manyDisruptions is how many disruptions in a row are reported as a problem, although attempts are still repeated.
const manyDisruptions = 5

// summary is the state of the NodeJob as a whole: the one condition that is True, if any, and why.
type summary struct {
	holds   string
	reason  string
	message string
}

// summarizer finds the summary in what the statusBuilder has collected of the nodes.
type summarizer struct {
	*statusBuilder
}

// conditions are Complete, Reconciling and Stalled in every pass, of which at most one is True, and also RollbackFailed
// if there is a rollback and GateEnforced if there is a gate. Complete is Unknown until the NodeJob is complete or Stalled. Its reason and
// message always are those of the summary: kubectl get prints them.
func (sb *statusBuilder) conditions(is summary, otherwise string, gate *v1alpha1.GateStatus) []metav1.Condition {
	conditions := make([]metav1.Condition, 0, 5)
	for _, kind := range []string{v1alpha1.ConditionComplete, v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled} {
		c := metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: is.reason, Message: otherwise}
		switch {
		case kind == is.holds:
			c.Status, c.Message = metav1.ConditionTrue, is.message
		case kind == v1alpha1.ConditionStalled:
			c.Reason, c.Message = v1alpha1.ReasonNotStalled, "no action needed"
		case is.holds == "", kind == v1alpha1.ConditionComplete:
			c.Message = is.message
		}
		if kind == v1alpha1.ConditionComplete && is.holds != kind && is.holds != v1alpha1.ConditionStalled {
			c.Status = metav1.ConditionUnknown
		}
		conditions = append(conditions, c)
	}
	if sb.in.Job.Spec.Rollback != nil {
		conditions = append(conditions, sb.rollbackCondition())
	}
	if sb.gate.spec != nil {
		conditions = append(conditions, sb.gate.gateCondition(gate))
	}
	return conditions
}

// rollbackCondition says whether the rollback failed on any node. Such nodes are in an undefined state.
func (sb *statusBuilder) rollbackCondition() metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionRollbackFailed, Status: metav1.ConditionFalse,
		Reason: v1alpha1.ReasonNoRollbackFailed, Message: "no rollback has failed"}
	if n := len(sb.unrecovered); n > 0 {
		c.Status, c.Reason = metav1.ConditionTrue, v1alpha1.ReasonRollbackFailed
		c.Message = fmt.Sprintf("the rollback also failed on %s (%s). Check the state of these nodes; the last lines of output are in the annotation %s of each node",
			plural.Count(n, "node"), named(sb.unrecovered), sb.key)
	}
	return c
}

// summarize returns the state of the NodeJob, and why pods of reboots, checks and rollbacks cannot be created.
func (su *summarizer) summarize(n v1alpha1.NodeCounts) summary {
	is := su.taskSummary(n)
	if su.runnerObstructed > 0 {
		is.message += "; " + su.in.RunnerRefused.Message
	}
	return is
}

// taskSummary checks in order of urgency: first what only a user can fix, last what continues automatically.
func (su *summarizer) taskSummary(n v1alpha1.NodeCounts) summary {
	moving := n.Running + su.continuing()
	switch {
	case su.blocked():
		return summary{v1alpha1.ConditionStalled, su.obstacle.Reason, su.obstacle.Message}
	case su.rollout.stopped:
		return summary{v1alpha1.ConditionStalled, v1alpha1.ReasonMaxFailuresExceeded, su.stoppedMessage()}
	case n.Total == 0:
		return summary{"", v1alpha1.ReasonNoMatchingNodes, su.noMatchMessage()}
	case n.Done == n.Total:
		return su.complete()
	case moving == su.countReruns(Running)+su.countReruns(Waiting):
		return su.blockedSummary(n, moving)
	case n.Running == 0 && su.waitsForItself():
		return summary{v1alpha1.ConditionStalled, v1alpha1.ReasonMaxUnavailableReached, su.budgetUsedUpMessage()}
	}
	return su.goingOn(n, moving)
}

// waitsForItself reports whether all nodes that could continue wait for a budget that quarantined nodes of this NodeJob use up, which run
// later.
func (su *summarizer) waitsForItself() bool {
	waits := func(w *nodePlan) bool { return w.awaitsBudget && su.in.Budgets[w.node.UID].UsedUpByJob }
	return len(su.quarantinedNodes()) > 0 && su.firstThat(waits) != nil &&
		su.firstThat(func(w *nodePlan) bool { return w.continues() && !waits(w) }) == nil
}

// budgetUsedUpMessage says that nodes that failed earlier use up a NodeDisruptionBudget, and what to do.
func (su *summarizer) budgetUsedUpMessage() string {
	nodes := su.quarantinedNodes()
	first := su.firstThat(func(w *nodePlan) bool { return w.awaitsBudget })
	return fmt.Sprintf("%s; still quarantined after an earlier failure: %s (%s), which run later. Uncordon them with kubectl uncordon, or raise the limit of the NodeDisruptionBudget",
		first.explained(), plural.Count(len(nodes), "node"), named(nodes))
}

// goingOn is the summary of a rollout in which moving nodes continue automatically, unless something blocks all of
// them.
func (su *summarizer) goingOn(n v1alpha1.NodeCounts, moving int32) summary {
	switch {
	case su.suspendedReason() != "":
		return su.suspended(n)
	case moving > 0 && len(su.troubled) > 0 && su.stillTroubled() == int(moving):
		return summary{v1alpha1.ConditionStalled, su.troubleReason, su.progress + "; " + named(su.troubled)}
	case moving > 0 && su.stuckBefore() == moving:
		return su.stuckBeforeSummary()
	case moving > 0 && len(su.disrupted) == int(moving):
		return summary{v1alpha1.ConditionStalled, v1alpha1.ReasonDisrupted, su.disruptedMessage()}
	}
	return su.progressSummary(n)
}

// complete is the summary of a rollout in which every node is done.
func (su *summarizer) complete() summary {
	if len(su.unpublished) > 0 {
		return summary{v1alpha1.ConditionStalled, v1alpha1.ReasonPublishConflict, su.unpublishedMessage()}
	}
	if su.driftStalled > 0 {
		return summary{v1alpha1.ConditionStalled, v1alpha1.ReasonCheckError, su.progress + "; " + su.driftErrorMessage()}
	}
	if su.expiryStalled > 0 {
		return summary{v1alpha1.ConditionStalled, v1alpha1.ReasonCheckError, su.progress}
	}
	reason := v1alpha1.ReasonAllNodesDone
	if task.IsAudit(su.in.Job) && len(su.nonCompliant) > 0 {
		reason = v1alpha1.ReasonNonCompliant
	}
	return summary{v1alpha1.ConditionComplete, reason, su.progress + su.driftMessage() + su.excludedMessage()}
}

// blockedSummary is the summary of a rollout in which no node continues automatically, except the nodes that rerun the
// task.
func (su *summarizer) blockedSummary(n v1alpha1.NodeCounts, moving int32) summary {
	switch {
	case su.waitsFor(causeEmptyStep):
		return summary{v1alpha1.ConditionStalled, v1alpha1.ReasonStepWithoutNodes, su.emptyStepMessage()}
	case su.waitsFor(causePromotion):
		return summary{"", v1alpha1.ReasonAwaitingPromotion, su.promotionMessage()}
	case n.Failed > 0:
		return summary{v1alpha1.ConditionStalled, v1alpha1.ReasonNodesFailed, su.failedMessage(n)}
	case su.waitsFor(causeMaxUnavailable) && len(su.quarantinedNodes()) > 0:
		return summary{v1alpha1.ConditionStalled, v1alpha1.ReasonMaxUnavailableReached, su.quarantineMessage()}
	case su.waitsFor(causeWindowTooShort):
		return summary{v1alpha1.ConditionStalled, v1alpha1.ReasonWindowTooShort, su.progress + "; " + su.firstThat(func(w *nodePlan) bool { return w.cause == causeWindowTooShort }).explained()}
	}
	return su.goingOn(n, moving)
}

// quarantinedNodes are the nodes that are still cordoned because of an earlier failure, and that have not had a new attempt
// yet.
func (su *summarizer) quarantinedNodes() []string {
	var nodes []string
	for i := range su.nodes {
		w := &su.nodes[i]
		if w.node.Unschedulable && su.cordonedForUs(w.node) && w.cause != causeInUse {
			nodes = append(nodes, w.node.Name)
		}
	}
	return nodes
}

// quarantineMessage says that nodes that failed earlier use up maxUnavailable, and what to do.
func (su *summarizer) quarantineMessage() string {
	nodes := su.quarantinedNodes()
	return fmt.Sprintf("%s not Ready or cordoned, and maintenance.maxUnavailable allows %d; still quarantined after an earlier failure: %s (%s), which run later. Uncordon them with kubectl uncordon, or raise maintenance.maxUnavailable",
		plural.CountAre(su.capacity.unavailableNodes, "node"), su.capacity.maxUnavailableNodes, plural.Count(len(nodes), "node"), named(nodes))
}

// progressSummary is the summary of a rollout that continues automatically.
func (su *summarizer) progressSummary(n v1alpha1.NodeCounts) summary {
	is := summary{v1alpha1.ConditionReconciling, v1alpha1.ReasonInProgress, su.progress}
	switch {
	case !su.rollout.status.SoakingSince.IsZero() && n.Running == 0:
		current := &su.rollout.steps[su.rollout.current]
		is.reason = v1alpha1.ReasonSoaking
		is.message += fmt.Sprintf("; step %s soaks until %s", current.name, su.rollout.status.SoakingSince.Add(current.soak).UTC().Format(time.RFC3339))
	case su.rollout.notReadyNode != "" && n.Running == 0:
		is.message += fmt.Sprintf("; the soak of step %s begins when node %s is Ready: see what it lacks, or delete it", su.rollout.steps[su.rollout.current].name, su.rollout.notReadyNode)
	case su.obstacle != nil && su.matters():
		is.reason, is.message = su.obstacle.Reason, is.message+"; "+su.obstacle.Message
	case len(su.troubled) > 0:
		is.reason, is.message = su.troubleReason, is.message+"; "+named(su.troubled)
	case su.continuing() == su.countReruns(Waiting) && su.blockedByUnavailable() != "":
		is.message += "; " + su.blockedByUnavailable()
	default:
		return su.stuckSummary(is)
	}
	return is
}

// stuckSummary adds to a summary the nodes whose pods do not start, or whose drains are blocked.
func (su *summarizer) stuckSummary(is summary) summary {
	switch {
	case len(su.notStarted) > 0:
		is.reason, is.message = v1alpha1.ReasonPodNotStarting, su.notStartedMessage()
	case len(su.checkErrors) > 0:
		is.reason, is.message = su.checkErrorReason(), is.message+"; "+su.checkErrorMessage()
	case len(su.drainsBlocked) > 0:
		is.reason = v1alpha1.ReasonDrainBlocked
		is.message += fmt.Sprintf("; the drain of %s blocked (%s)", plural.CountAre(len(su.drainsBlocked), "node"), named(su.drainsBlocked))
	default:
		return su.budgetSummary(is)
	}
	return is
}

// blockedByUnavailable names, once for each rule, the unavailable nodes that block the maintenance of the waiting node with the
// first name; "" if none do.
func (su *summarizer) blockedByUnavailable() string {
	var held []string
	for _, rule := range []cause{causeMaxUnavailable, causeControlPlane} {
		if first := su.firstThat(func(w *nodePlan) bool { return w.cause == rule }); first != nil {
			held = append(held, first.explained())
		}
	}
	return strings.Join(held, "; ")
}

// budgetSummary adds to a summary what the node with the first name waits for, if no node runs and all that continue wait for
// NodeDisruptionBudgets.
func (su *summarizer) budgetSummary(is summary) summary {
	first := su.firstThat(func(w *nodePlan) bool { return w.continues() && w.waitsForBudget() && !w.claims })
	other := su.firstThat(func(w *nodePlan) bool {
		return w.State == Running || w.continues() && (!w.waitsForBudget() || w.claims)
	})
	if first != nil && other == nil {
		is.reason, is.message = first.Reason, is.message+"; "+first.explained()
	}
	return is
}

// firstThat returns the node with the first name for which that is so; nil if there is none.
func (su *summarizer) firstThat(is func(*nodePlan) bool) *nodePlan {
	var first *nodePlan
	for i := range su.nodes {
		if w := &su.nodes[i]; is(w) && (first == nil || w.Name < first.Name) {
			first = w
		}
	}
	return first
}

func (su *summarizer) suspended(n v1alpha1.NodeCounts) summary {
	why := "spec.suspend"
	if !su.in.Job.Spec.Suspend {
		why = "the end of spec.startingDeadlineSeconds"
	}
	is := summary{"", v1alpha1.ReasonSuspended, why + " keeps new attempts from starting; " + su.progress}
	if n.Running > 0 {
		is.holds = v1alpha1.ConditionReconciling
	}
	return is
}

// blocked reports whether the obstacle blocks everything: only a change by the user removes it, or the API server
// refuses pods while no attempt runs whose end could free capacity.
func (su *summarizer) blocked() bool {
	return su.obstacle != nil && (su.obstacle.Until.IsZero() || (su.matters() && su.capacity.starts == su.capacity.busy))
}

// matters reports whether the obstacle affects any node.
func (su *summarizer) matters() bool { return su.obstructed > 0 || su.capacity.starts > 0 }

// continuing counts the waiting nodes that continue automatically.
func (su *summarizer) continuing() int32 {
	var n int32
	for i := range su.nodes {
		if su.nodes[i].continues() {
			n++
		}
	}
	return n
}

// countReruns counts the nodes in a state that rerun the task or will rerun it. Reruns may continue forever and do not
// advance the rollout.
func (su *summarizer) countReruns(state State) int32 {
	var n int32
	for i := range su.nodes {
		if su.nodes[i].rerun && su.nodes[i].State == state && (state == Running || su.nodes[i].continues()) {
			n++
		}
	}
	return n
}

// waitsFor reports whether a node waits for that.
func (su *summarizer) waitsFor(c cause) bool {
	return slices.ContainsFunc(su.nodes, func(w nodePlan) bool { return w.cause == c })
}

// haveEarlierRevision counts the nodes that are not done, and were done with an earlier revision.
func (sb *statusBuilder) haveEarlierRevision() int {
	n := 0
	for i := range sb.nodes {
		w := &sb.nodes[i]
		if w.State != Excluded && w.State != Done && w.node.On.Label != "" && w.node.On.Label != sb.in.Revision {
			n++
		}
	}
	return n
}

// progressOf describes the progress, and what the nodes wait for that remain.
func (sb *statusBuilder) progressOf(n v1alpha1.NodeCounts, nodes []nodePlan) string {
	text, is := fmt.Sprintf("%d of %s done", n.Done, plural.CountAre(n.Total, "node")), "drifted"
	if task.IsAudit(sb.in.Job) {
		text, is = fmt.Sprintf("%d of %s compliant", n.Done-n.NonCompliant, plural.CountAre(n.Total, "node")), "not compliant"
	}
	switch earlier := sb.haveEarlierRevision(); earlier {
	case 0:
	case 1:
		text += " (1 has an earlier revision)"
	default:
		text += fmt.Sprintf(" (%d have an earlier revision)", earlier)
	}
	if n.NonCompliant > 0 {
		text += fmt.Sprintf(", %d %s", n.NonCompliant, is)
	}
	if n.Failed > 0 {
		text += fmt.Sprintf(", %d failed", n.Failed)
	}
	if n.Running > 0 {
		text += fmt.Sprintf(", %d running", n.Running)
		if parts := grouped(nodes, Running, v1alpha1.ReasonRunning, v1alpha1.ReasonStarting); len(parts) > 0 {
			text += ", of which " + strings.Join(parts, ", ")
		}
	}
	if parts := grouped(nodes, Waiting); len(parts) > 0 {
		text += "; waiting: " + strings.Join(parts, ", ")
	}
	return text
}

// grouped counts the nodes in a state by reason, except the reasons in but, and names one node for each.
func grouped(nodes []nodePlan, state State, but ...string) []string {
	type group struct {
		count int
		first string
	}
	groups := map[string]*group{}
	for i := range nodes {
		node := &nodes[i]
		if node.State != state || slices.Contains(but, node.Reason) {
			continue
		}
		g := groups[node.Reason]
		if g == nil {
			g = &group{first: node.Name}
			groups[node.Reason] = g
		}
		g.count++
		g.first = min(g.first, node.Name)
	}
	var parts []string
	for _, reason := range slices.Sorted(maps.Keys(groups)) {
		g := groups[reason]
		part := fmt.Sprintf("%d %s (%s", g.count, reason, g.first)
		if g.count > 1 {
			part += ", …"
		}
		parts = append(parts, part+")")
	}
	return parts
}

// noMatchMessage names a taint if there is one, because users often forget it.
func (su *summarizer) noMatchMessage() string {
	message := "no node matches spec.nodes.selector; the task runs as soon as one does"
	if su.named != nil {
		message = "no node that spec.nodes.names names is there, and matches spec.nodes.selector; the task runs as soon as one does"
	}
	tainted, first := 0, -1
	for i := range su.nodes {
		if su.nodes[i].Reason == v1alpha1.ReasonUntoleratedTaint {
			if tainted++; first < 0 || su.nodes[i].Name < su.nodes[first].Name {
				first = i
			}
		}
	}
	if tainted > 0 {
		message = fmt.Sprintf("%s excluded by a taint that spec.nodes.tolerations does not tolerate (%s: %s)",
			plural.CountAre(tainted, "node"), su.nodes[first].Name, su.nodes[first].Message)
	}
	if other := otherOS(su.nodes); tainted == 0 && other != "" {
		return other
	}
	return message
}

// failedMessage says that only failed nodes remain, and what to do.
func (su *summarizer) failedMessage(n v1alpha1.NodeCounts) string {
	return fmt.Sprintf("%s failed%s. %s", plural.Count(n.Failed, "node"), su.namedFailures(), su.remedy())
}

// stoppedMessage says why the rollout is Stalled, and what to do.
func (su *summarizer) stoppedMessage() string {
	text := su.rollout.failuresMessage()
	if len(su.rollout.status.UnrecordedFailures) >= maxUnrecordedFailures {
		text = fmt.Sprintf("%d nodes turned NotReady in a soak, or were deleted while they were failed or not Ready", maxUnrecordedFailures)
	}
	return fmt.Sprintf("the rollout has stopped: %s%s. %s", text, su.namedFailures(), su.remedy())
}

// namedFailures names up to three nodes with their last message.
func (su *summarizer) namedFailures() string {
	var named []string
	for _, f := range su.boundedFailures() {
		if len(named) == maxNamed || f.Retrying {
			break
		}
		text := f.Node + ": " + f.Reason
		if f.ExitCode != nil {
			text += fmt.Sprintf(", exit code %d", *f.ExitCode)
		}
		if line := lastLine(f.Message); line != "" {
			text += ": " + line
		}
		named = append(named, text)
	}
	for _, c := range su.rollout.status.UnrecordedFailures {
		if len(named) < maxNamed && !wasPresent(&c) {
			named = append(named, outcome.Clean(c.Node, 253)+": "+c.Reason)
		}
	}
	if len(named) == 0 {
		return ""
	}
	return " (" + strings.Join(named, "; ") + ")"
}

// remedy is what a user can do about failed nodes. A node that failed in a soak already has the label of a node that is
// done.
func (su *summarizer) remedy() string {
	if slices.ContainsFunc(su.failures, HasReverted) {
		return RevertedRemedies().Kubectl(su.in.Job, su.in.Revision)
	}
	first := FixTask
	if onlyDrainsFailed(su.failures) {
		first = MakeRoom
	}
	unrecorded := len(su.rollout.status.UnrecordedFailures)
	onlyUnrecorded := unrecorded > 0 && unrecorded >= su.rollout.failed
	return FailureRemedies(first, !onlyUnrecorded).Kubectl(su.in.Job, su.in.Revision)
}

// HasReverted reports whether a node was not confirmed, and has reverted by itself.
func HasReverted(f v1alpha1.NodeFailure) bool {
	return f.Reason == v1alpha1.ReasonReverted || f.Reason == v1alpha1.ReasonRevertFailed
}

// onlyDrainsFailed reports whether all nodes that are not retried have failed because they could not be drained. Then the task
// has not run there.
func onlyDrainsFailed(failures []v1alpha1.NodeFailure) bool {
	final := 0
	for i := range failures {
		if !failures[i].Retrying {
			final++
			if failures[i].Reason != v1alpha1.ReasonDrainTimedOut {
				return false
			}
		}
	}
	return final > 0
}

// promotionMessage says that the rollout is paused at the step in promoteTo, and what to do.
func (su *summarizer) promotionMessage() string {
	next := su.rollout.steps[min(su.rollout.ceiling+1, len(su.rollout.steps)-1)].name
	others := ""
	if parts := grouped(su.nodes, Waiting, v1alpha1.ReasonAwaitingPromotion); len(parts) > 0 {
		others = "; also waiting: " + strings.Join(parts, ", ")
	}
	return fmt.Sprintf("step %s has passed; %s%s. %s", su.rollout.steps[su.rollout.ceiling].name,
		su.progressOf(su.counts, nil), others, PromotionRemedies(next).Kubectl(su.in.Job, su.in.Revision))
}

// emptyStepMessage says that the step has no node on which the revision can succeed, and what to do.
func (su *summarizer) emptyStepMessage() string {
	return fmt.Sprintf("step %s of the rollout contains no node that is not in an earlier step, so no node shows that the task works there, and the later steps wait. Correct the selector of the step, or remove the step",
		su.rollout.steps[su.rollout.current].name)
}

func (su *summarizer) disruptedMessage() string {
	return fmt.Sprintf("attempts on %s were disrupted at least %d times in a row (%s). They are repeated and do not count as failures; find out what ends them",
		plural.Count(len(su.disrupted), "node"), manyDisruptions, named(su.disrupted))
}

func (su *summarizer) unpublishedMessage() string {
	return fmt.Sprintf("every node is done, and on %s not all of spec.publish can be published: %s",
		plural.Count(len(su.unpublished), "node"), named(su.unpublished))
}

func (su *summarizer) notStartedMessage() string {
	advice := "Check the image's name, that the node can pull it, and the Secrets, ConfigMaps and volumes that the pod names"
	if len(su.silent) == len(su.notStarted) {
		advice = "Check that the kubelet runs, and reaches the API server: kubectl describe node " + slices.Min(su.silent)
	}
	return fmt.Sprintf("on %s the pod does not start (%s). %s", plural.Count(len(su.notStarted), "node"), named(su.notStarted), advice)
}

// named lists up to three of the texts, in their order.
func named(texts []string) string {
	slices.Sort(texts)
	list := strings.Join(texts[:min(len(texts), maxNamed)], "; ")
	return outcome.CleanHead(list, maxFailureMessage)
}
