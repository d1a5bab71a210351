// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package mutants_test

import (
	"testing"

	_ "github.com/everynode/everynode/internal/guard" // so that go test knows the files of the package: see planner
)

func TestEachMistakeInThePlannerOfNodeGuardsIsFound(t *testing.T) {
	planner{
		pkg: "internal/guard", histories: "4000", mutants: guardMutants,
		byTables: []string{
			"a view that is behind takes nodes back",
			"a check for an earlier asking counts",
			"a node whose target has left is guarded no more",
			"what a letting-go has used stays on the node",
			"a node is back before its companion is ready",
			"a view that is behind lets nodes go",
			"a check is timed by the clock of its node",
			"two nodes begin at once, which another NodeGuard sees one by one",
			"what was written on a node that is guarded no more stays there",
			"a refused budget is not told",
			"a node that waits for another NodeGuard keeps others from being checked",
			"a missing budget is not told",
			"nobody says that a drain evicts the target itself",
			"a node that returns with a taint counts as back",
			"pods are made before the salt of their names is written",
			"a locked budget can be opened by two pods",
			"an unscheduled pod of a DaemonSet counts twice",
			"an unavailable node waits for the first",
			"an unavailable node does not keep the place of the first",
			"the second of two companions stays",
			"a companion is made beside that of an earlier NodeGuard",
			"a NodeGuard that has a budget for the node is not asked",
			"nodes are released beside a broken glass, and no other NodeGuard was asked",
			"foreign pods are not told",
			"what another NodeGuard has begun has no place yet",
			"a check that does not end keeps others from being checked",
			"a check that does not leave keeps others from being checked",
			"taken names are not told",
			"a budget is opened for a release that is over",
			"what was begun by another NodeGuard does not come first",
			"a node that retains its place waits for the first",
			"a node that retains its place waits for nodes without one",
			"a node with a place need not be unavailable to be released again",
		},
	}.test(t)
}

// guardMutants are mistakes in the planner of NodeGuards.
var guardMutants = map[string]mutant{
	"one more node than maxUnavailable": {
		"maxunavailable.go", "case unavailable >= limit:", "case unavailable > limit:",
	},
	"nodes that are away by themselves do not count": {
		"maxunavailable.go", "\t\tcase other.isUnhealthy():\n\t\t\tused.unhealthy++", "\t\tcase false:\n\t\t\tused.unhealthy++",
	},
	"a sick node does not wait for those that were let go": {
		"maxunavailable.go", "\t\tused.unhealthy = 0\n", "\t\tused.unhealthy, used.released = 0, 0\n",
	},
	"what was begun by another NodeGuard does not come first": {
		"held.go", "if first == nil || n == first || r.mayFollow(n) {", "if true {",
	},
	"a view that is behind lets nodes go": {
		"release.go", "\tif !p.in.Live {\n", "\tif false {\n",
	},
	"a view that is behind takes nodes back": {
		"released.go", "func (p *planner) markAvailable(n *nodePlan, note string) {\n\tif !p.in.Live {", "func (p *planner) markAvailable(n *nodePlan, note string) {\n\tif false {",
	},
	"a budget may be opened again after its letting-go": {
		"released.go", "return !b.Open && b.Ended == releaseID(*entry)", "return !b.Open",
	},
	"a node that asks again goes by what was said before": {
		"node.go", "func (n *nodePlan) active() bool { return n.stage == released }", "func (n *nodePlan) active() bool { return n.stage == released || (n.stage == returning && n.requestsRelease()) }",
	},
	"a node is back before its companion is ready": {
		"node.go", "return n.stage == returning && !n.isUnhealthy() && isReady(n.companion)", "return n.stage == returning",
	},
	"a node whose target has left is guarded no more": {
		"target.go", "\tcase n.active():\n\t\treturn true\n", "\tcase false:\n\t\treturn true\n",
	},
	"nobody has to approve": {
		"held.go", "\t{applies: (*releaseRules).awaitingApproval, own: true},\n", "",
	},
	"a check for an earlier asking counts": {
		"check.go", "case pod.RequestedAt != token(n.requestedAt):", "case false:",
	},
	"a check that says no lets a node go": {
		"check.go", "case pod.Phase == corev1.PodSucceeded && age <", "case age <",
	},
	"somebody else's budget is not heeded": {
		"held.go", "\t{applies: (*releaseRules).overlappingBudget, own: true},\n", "",
	},
	"budgets open for nobody": {
		"budget.go", "\twant := BudgetState{RequestedAt: n.requestedAt}", "\twant := BudgetState{Open: n.requestsRelease(), RequestedAt: n.requestedAt}",
	},
	"the companion of a held node is replaced": {
		"updatestrategy.go", "!c.ended() && !n.requestsRelease() && (o.in.Obstacle", "!c.ended() && (o.in.Obstacle",
	},
	"all companions are replaced at once": {
		"updatestrategy.go", "\t\t\tif missing >= limit {\n", "\t\t\tif missing >= limit+100 {\n",
	},
	"the companion of a held node that died does not come back": {
		"companion.go", "\t\tif n.releasing || n.active() {\n", "\t\tif n.releasing || n.active() || n.requestsRelease() {\n",
	},
	"what a letting-go has used stays on the node": {
		"released.go", "\t\tcase approval != nil:\n", "\t\tcase false:\n",
	},
	"what was written on a node that is guarded no more stays there": {
		"released.go", "\t\tcase approval != nil:\n", "\t\tcase approval != nil && n.guarded:\n",
	},
	"a node goes though another NodeGuard would not let it": {
		"peers.go", "\tif n.peerRelease != nil {\n\t\treturn nil\n", "\tif true {\n\t\treturn nil\n",
	},
	"a node that retains its place is released without the other NodeGuards": {
		"peers.go", "\tif n.peerRelease != nil {\n\t\treturn nil\n", "\tif ps.first != nil {\n\t\treturn nil\n",
	},
	"a node that retains its place waits for the first": {
		"peers.go", "\tif n.retainsPlace() {\n", "\tif false {\n",
	},
	"a node that retains its place waits for nodes without one": {
		"maxunavailable.go", "other.hasPlace() && !(other.expectsPlace() && n.retainsPlace())", "other.hasPlace()",
	},
	"a node with a place need not be unavailable to be released again": {
		"node.go", "return n.stage == returning && n.isUnhealthy() }", "return n.stage == returning }",
	},
	"the checks of two NodeGuards wait for each other": {
		"peers.go", " && !v.Checks })", " })",
	},
	"a check runs though another NodeGuard holds the node": {
		"held.go", "\t{applies: (*releaseRules).heldByOtherGuard},\n\t{applies: (*releaseRules).checkNotStarted},\n", "\t{applies: (*releaseRules).checkNotStarted},\n\t{applies: (*releaseRules).heldByOtherGuard},\n",
	},
	"a node that waits for another NodeGuard keeps others from being checked": {
		"check.go", "return recheckAt.IsZero(), recheckAt", "return true, recheckAt",
	},
	"what another NodeGuard has begun has no place yet": {
		"peers.go", "\t\t\tn.expectRelease()\n", "",
	},
	"two nodes begin at once, which another NodeGuard sees one by one": {
		"peers.go", "\tif ps.isShared(n) {\n", "\tif false {\n",
	},
	"a node that returns with a taint counts as back": {
		"target.go", "(n.isReleased() || !excludesTarget(template, n.Node))", "!excludesTarget(template, n.Node)",
	},
	"a missing budget is not told": {
		"status.go", "\tcase n.budget == nil:\n", "\tcase false:\n",
	},
	"a refused budget is not told": {
		"conditions.go", "\t(*summary).budgetsRejected,\n", "",
	},
	"nobody says that a drain evicts the target itself": {
		"conditions.go", "\t(*summary).targetEvicted,\n", "",
	},
	"a check is timed by the clock of its node": {
		"read.go", "p.CreationTimestamp.Add(took(p, t.FinishedAt))", "t.FinishedAt.Time",
	},
	"a budget is not locked while its node is held": {
		"budget.go", "(n.requestsRelease() || n.crowded)", "n.crowded",
	},
	"a budget is not locked while other pods have its labels": {
		"budget.go", "(n.requestsRelease() || n.crowded)", "n.requestsRelease()",
	},
	"a locked budget can be opened by two pods": {
		"objects.go", "const lockedAvailable = 1_000_000", "const lockedAvailable = 2",
	},
	"pods are made before the salt of their names is written": {
		"companion.go", "	if g.Status.NameSalt == \"\" {\n", "	if false {\n",
	},
	"a name that is taken is tried again and again": {
		"companion.go", "_, taken := o.in.TakenNames[name]; !taken", "_, taken := o.in.TakenNames[name]; !taken || true",
	},
	"of refused companions the first is tried again and again": {
		"companion.go", "return p.in.RefusedAt[a.Name].Compare(p.in.RefusedAt[b.Name])", "return 0",
	},
	"the second of two companions stays": {
		"companion.go", "\t\tcase !n.companion.Terminating:\n", "\t\tcase false:\n",
	},
	"a companion is made beside that of an earlier NodeGuard": {
		"companion.go", " && !n.succeeds", "",
	},
	"a check that does not end keeps others from being checked": {
		"check.go", "case o.in.Now.Before(o.latestEnd(pod).Add(o.checkInterval())):", "case false:",
	},
	"a check that does not leave keeps others from being checked": {
		"check.go", "h.reserves = state != checkTerminating", "h.reserves = true",
	},
	"an unscheduled pod of a DaemonSet counts twice": {
		"planner.go", "case pod.Node == \"\" && p.in.Target.Template == nil:", "case pod.Node == \"\":",
	},
	"an unavailable node waits for the first": {
		"held.go", " || r.mayFollow(n) {", " {",
	},
	"an unavailable node does not keep the place of the first": {
		"peers.go", "\t\t\tplaces++\n", "\t\t\tplaces += 0\n",
	},
	"a NodeGuard that has a budget for the node is not asked": {
		"peers.go", " ||\n			hasBudget(BudgetName(g.Name, n.Name))", "",
	},
	"nodes are released beside a broken glass, and no other NodeGuard was asked": {
		"held.go", "\t{applies: (*releaseRules).breakGlassElsewhere, own: true},\n", "",
	},
	"foreign pods are not told": {
		"conditions.go", "\t(*summary).foreignCompanions,\n", "",
	},
	"taken names are not told": {
		"conditions.go", "\t(*summary).namesTaken,\n", "",
	},
	"nobody says what keeps a NodeGuard that is being deleted": {
		"deletion.go", "setCondition(in, &plan.Status, ", "setCondition(in, &v1alpha1.NodeGuardStatus{}, ",
	},
	"a budget is opened for a release that is over": {
		"node.go", "(n.budget == nil || n.budget.Ended != releaseID(*n.entry))", "true",
	},
	"a passed deadline is not said": {
		"deadline.go", "\tlate.late = o.pastDeadline(n)\n", "",
	},
}
