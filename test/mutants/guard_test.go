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
			"a node that retains its place waits for the first",
			"a node that retains its place waits for nodes without one",
			"a node with a place need not be unavailable to be released again",
		},
	}.test(t)
}

// guardMutants are mistakes in the planner of NodeGuards.
var guardMutants = map[string]mutant{
	"one more node than maxUnavailable": {
		"release.go", "case n.released+n.unhealthy >= limit:", "case n.released+n.unhealthy > limit:",
	},
	"nodes that are away by themselves do not count": {
		"release.go", "\t\tcase other.isUnhealthy():\n\t\t\tn.unhealthy++", "\t\tcase false:\n\t\t\tn.unhealthy++",
	},
	"a sick node does not wait for those that were let go": {
		"release.go", "\t\tn.unhealthy = 0\n", "\t\tn.unhealthy, n.released = 0, 0\n",
	},
	"what was begun by another NodeGuard does not come first": {
		"release.go", "case first != nil && w.Name != first.node && !s.mayFollow(w):", "case false:",
	},
	"a view that is behind lets nodes go": {
		"released.go", "\tw.releasing = true\n\tif !s.in.Live {", "\tw.releasing = true\n\tif false {",
	},
	"a view that is behind takes nodes back": {
		"released.go", "func (s *planner) unmarkReleased(g v1alpha1.ReleasedNode, note string) bool {\n\tif !s.in.Live {", "func (s *planner) unmarkReleased(g v1alpha1.ReleasedNode, note string) bool {\n\tif false {",
	},
	"a budget may be opened again after its letting-go": {
		"released.go", "return !b.Open && b.Ended == releaseID(g)", "return !b.Open",
	},
	"a node that asks again goes by what was said before": {
		"planner.go", "func (w *nodePlan) active() bool { return w.released && !w.returning }", "func (w *nodePlan) active() bool { return w.released && (!w.returning || w.requestsRelease()) }",
	},
	"a node is back before its companion is ready": {
		"released.go", "return w.returning && !w.isUnhealthy() && isReady(w.companion)", "return w.returning",
	},
	"a node whose target has left is guarded no more": {
		"select.go", "	case w.active():\n		return true\n", "	case false:\n		return true\n",
	},
	"nobody has to approve": {
		"release.go", "		return s.unapproved(w)\n", "		return nil\n",
	},
	"a check for an earlier asking counts": {
		"check.go", "pod == nil, pod.Terminating, pod.RequestedAt != token(w.requestedAt), w.active():", "pod == nil, pod.Terminating, w.active():",
	},
	"a check that says no lets a node go": {
		"check.go", "	case w.reserved && pod.ended():\n", "	case pod != nil && pod.ended():\n",
	},
	"somebody else's budget is not heeded": {
		"release.go", "case s.blocked != \"\":", "case false:",
	},
	"budgets open for nobody": {
		"budget.go", "\twant := BudgetState{RequestedAt: w.requestedAt}", "\twant := BudgetState{Open: w.requestsRelease(), RequestedAt: w.requestedAt}",
	},
	"the companion of a held node is replaced": {
		"companion.go", "!c.ended() && !w.requestsRelease() && (s.in.Obstacle", "!c.ended() && (s.in.Obstacle",
	},
	"all companions are replaced at once": {
		"companion.go", "			if missing >= limit {\n", "			if missing >= limit+100 {\n",
	},
	"the companion of a held node that died does not come back": {
		"companion.go", "\t\tif w.releasing || w.active() {\n", "\t\tif w.releasing || w.active() || w.requestsRelease() {\n",
	},
	"what a letting-go has used stays on the node": {
		"released.go", "		case s.consumed(s.all[g.Node]):\n", "		case false:\n",
	},
	"what was written on a node that is guarded no more stays there": {
		"released.go", "		case s.consumed(s.all[g.Node]):\n", "		case s.consumed(w):\n",
	},
	"a node goes though another NodeGuard would not let it": {
		"peers.go", "	if _, started := s.peerReleases[w.Name]; started {\n", "	if _, started := s.peerReleases[w.Name]; started || true {\n",
	},
	"a node that retains its place is released without the other NodeGuards": {
		"peers.go", "	if _, started := s.peerReleases[w.Name]; started {\n", "	if len(s.peerReleases) > 0 {\n",
	},
	"a node that retains its place waits for the first": {
		"peers.go", "	if w.retainsPlace() {\n", "	if false {\n",
	},
	"a node that retains its place waits for nodes without one": {
		"release.go", "s.isReleased(other) && !(s.isExpected(other) && w.retainsPlace())", "s.isReleased(other)",
	},
	"a node with a place need not be unavailable to be released again": {
		"planner.go", "return w.returning && w.isUnhealthy() }", "return w.returning }",
	},
	"the checks of two NodeGuards wait for each other": {
		"peers.go", " && !p.Stances[w.Name].Checks }", " }",
	},
	"a check runs though another NodeGuard holds the node": {
		"release.go", "	if other != nil && s.isChecked(w) && !s.isAnswering(w) {\n", "	if false {\n",
	},
	"a node that waits for another NodeGuard keeps others from being checked": {
		"check.go", "s.checking(w) && (!w.check.ended() || s.heldByPeer(w) == nil)", "s.checking(w)",
	},
	"what another NodeGuard has begun has no place yet": {
		"peers.go", "\t\ts.byName[name].releasing, s.byName[name].expected = true, true\n", "		_ = name\n",
	},
	"two nodes begin at once, which another NodeGuard sees one by one": {
		"released.go", "	if s.isShared(w) {\n", "	if false {\n",
	},
	"a node that returns with a taint counts as back": {
		"select.go", "(w.released || !excludesTarget(template, w.Node))", "!excludesTarget(template, w.Node)",
	},
	"a missing budget is not told": {
		"summary.go", "		case w.budget == nil:\n", "		case false:\n",
	},
	"a refused budget is not told": {
		"summary.go", "	case s.in.BudgetRefused != \"\" &&", "	case false &&",
	},
	"nobody says that a drain evicts the target itself": {
		"summary.go", "	if kinds := s.evicted(); kinds != \"\" {\n", "	if kinds := s.evicted(); false {\n",
	},
	"a check is timed by the clock of its node": {
		"read.go", "p.CreationTimestamp.Add(took(p, t.FinishedAt))", "t.FinishedAt.Time",
	},
	"a budget is not locked while its node is held": {
		"budget.go", "(w.requestsRelease() || w.crowded)", "w.crowded",
	},
	"a budget is not locked while other pods have its labels": {
		"budget.go", "(w.requestsRelease() || w.crowded)", "w.requestsRelease()",
	},
	"a locked budget can be opened by two pods": {
		"objects.go", "const lockedAvailable = 1_000_000", "const lockedAvailable = 2",
	},
	"pods are made before the salt of their names is written": {
		"companion.go", "	if g.Status.NameSalt == \"\" {\n", "	if false {\n",
	},
	"a name that is taken is tried again and again": {
		"companion.go", "_, taken := s.in.TakenNames[name]; !taken", "_, taken := s.in.TakenNames[name]; !taken || true",
	},
	"of refused companions the first is tried again and again": {
		"companion.go", "return s.in.RefusedAt[a.Name].Compare(s.in.RefusedAt[b.Name])", "return strings.Compare(a.Name, b.Name)",
	},
	"the second of two companions stays": {
		"companion.go", "		case !w.companion.Terminating:\n", "		case false:\n",
	},
	"a companion is made beside that of an earlier NodeGuard": {
		"companion.go", " && !w.succeeds", "",
	},
	"a check that does not end keeps others from being checked": {
		"check.go", "	case s.overdue(w):\n", "	case false:\n",
	},
	"a check that does not leave keeps others from being checked": {
		"check.go", "		return s.saidBefore(w) // a node", "		w.reserved = true\n		return s.saidBefore(w) // a node",
	},
	"an unscheduled pod of a DaemonSet counts twice": {
		"planner.go", "case pod.Node == \"\" && s.in.Target.Template == nil:", "case pod.Node == \"\":",
	},
	"an unavailable node waits for the first": {
		"release.go", " && !s.mayFollow(w):", ":",
	},
	"an unavailable node does not keep the place of the first": {
		"peers.go", "			places++\n", "			places += 0\n",
	},
	"a NodeGuard that has a budget for the node is not asked": {
		"peers.go", " ||\n			hasBudget(BudgetName(g.Name, n.Name))", "",
	},
	"nodes are released beside a broken glass, and no other NodeGuard was asked": {
		"release.go", "\tcase s.in.PeersUnknown:\n", "	case false:\n",
	},
	"foreign pods are not told": {
		"summary.go", "\tif s.foreignPodsMessage() != \"\" {\n", "	if false {\n",
	},
	"taken names are not told": {
		"summary.go", "	if s.takers() != \"\" {\n", "	if false {\n",
	},
	"nobody says what keeps a NodeGuard that is being deleted": {
		"planner.go", "	s.conditionsAs(&s.plan.Status, v1alpha1.ConditionReconciling", "	s.conditionsAs(&v1alpha1.NodeGuardStatus{}, v1alpha1.ConditionReconciling",
	},
	"a budget is opened for a release that is over": {
		"budget.go", "(w.budget == nil || w.budget.Ended != releaseID(g))", "true",
	},
	"a passed deadline is not said": {
		"release.go", "	w.held.late = s.late(w)\n", "",
	},
}
