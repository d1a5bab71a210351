package mutants_test

import (
	"testing"

	_ "github.com/everynode/everynode/internal/guard" // what it is made of: see planner
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
		},
	}.test(t)
}

// guardMutants are mistakes in the planner of NodeGuards.
var guardMutants = map[string]mutant{
	"one more node than maxUnavailable": {
		"release.go", "case n.gone+n.hurt >= limit:", "case n.gone+n.hurt > limit:",
	},
	"nodes that are away by themselves do not count": {
		"release.go", "		case other.hurt():\n			n.hurt++", "		case false:\n			n.hurt++",
	},
	"a sick node does not wait for those that were let go": {
		"release.go", "		n.hurt = 0\n", "		n.hurt, n.gone = 0, 0\n",
	},
	"what was begun by another NodeGuard does not come first": {
		"release.go", "case first != nil && w.Name != first.node && !s.mayFollow(w):", "case false:",
	},
	"a view that is behind lets nodes go": {
		"going.go", "	w.letNow = true\n	if !s.in.Live {", "	w.letNow = true\n	if false {",
	},
	"a view that is behind takes nodes back": {
		"going.go", "func (s *survey) drop(g v1alpha1.ReleasedNode, note string) bool {\n\tif !s.in.Live {", "func (s *survey) drop(g v1alpha1.ReleasedNode, note string) bool {\n\tif false {",
	},
	"a budget may be opened again after its letting-go": {
		"going.go", "return !b.Open && b.Ended == releaseID(g)", "return !b.Open",
	},
	"a node that asks again goes by what was said before": {
		"survey.go", "func (w *work) active() bool { return w.let && !w.returning }", "func (w *work) active() bool { return w.let && (!w.returning || w.asks()) }",
	},
	"a node is back before its companion is ready": {
		"going.go", "return w.returning && !w.hurt() && isReady(w.companion)", "return w.returning",
	},
	"a node whose target has left is guarded no more": {
		"select.go", "	case w.active():\n		return true\n", "	case false:\n		return true\n",
	},
	"nobody has to approve": {
		"release.go", "		return s.unapproved(w)\n", "		return nil\n",
	},
	"a check for an earlier asking counts": {
		"check.go", "pod == nil, pod.Leaving, pod.AskedSince != token(w.requestedAt), w.active():", "pod == nil, pod.Leaving, w.active():",
	},
	"a check that says no lets a node go": {
		"check.go", "	case w.reserved && pod.ended():\n", "	case pod != nil && pod.ended():\n",
	},
	"somebody else's budget is not heeded": {
		"release.go", "case s.blocked != \"\":", "case false:",
	},
	"budgets open for nobody": {
		"budget.go", "	want := BudgetState{AskedSince: w.requestedAt}", "	want := BudgetState{Open: w.asks(), AskedSince: w.requestedAt}",
	},
	"the companion of a held node is replaced": {
		"companion.go", "!c.ended() && !w.asks() && (s.in.Obstacle", "!c.ended() && (s.in.Obstacle",
	},
	"all companions are replaced at once": {
		"companion.go", "			if missing >= limit {\n", "			if missing >= limit+100 {\n",
	},
	"the companion of a held node that died does not come back": {
		"companion.go", "		if w.letNow || w.active() {\n", "		if w.letNow || w.active() || w.asks() {\n",
	},
	"what a letting-go has used stays on the node": {
		"going.go", "		case s.consumed(s.all[g.Node]):\n", "		case false:\n",
	},
	"what was written on a node that is guarded no more stays there": {
		"going.go", "		case s.consumed(s.all[g.Node]):\n", "		case s.consumed(w):\n",
	},
	"a node goes though another NodeGuard would not let it": {
		"peers.go", "	if s.first != nil {\n", "	if s.first != nil || true {\n",
	},
	"the checks of two NodeGuards wait for each other": {
		"peers.go", " && !p.Stances[w.Name].Checks }", " }",
	},
	"a check runs though another NodeGuard holds the node": {
		"release.go", "	if other != nil && s.isChecked(w) && !s.isAnswering(w) {\n", "	if false {\n",
	},
	"a node that waits for another NodeGuard keeps others from being checked": {
		"check.go", "s.checking(w) && (!w.check.ended() || s.heldElsewhere(w) == nil)", "s.checking(w)",
	},
	"what another NodeGuard has begun has no place yet": {
		"peers.go", "		s.byName[name].letNow = true\n", "		_ = name\n",
	},
	"two nodes begin at once, which another NodeGuard sees one by one": {
		"going.go", "	if s.isShared(w) {\n", "	if false {\n",
	},
	"a node that returns with a taint counts as back": {
		"select.go", "(w.let || !repelsTarget(template, w.Node))", "!repelsTarget(template, w.Node)",
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
		"view.go", "p.CreationTimestamp.Add(took(p, t.FinishedAt))", "t.FinishedAt.Time",
	},
	"a budget is not locked while its node is held": {
		"budget.go", "(w.asks() || w.crowded)", "w.crowded",
	},
	"a budget is not locked while other pods have its labels": {
		"budget.go", "(w.asks() || w.crowded)", "w.asks()",
	},
	"a locked budget can be opened by two pods": {
		"make.go", "const lockedAvailable = 1_000_000", "const lockedAvailable = 2",
	},
	"pods are made before the salt of their names is written": {
		"companion.go", "	if g.Status.NameSalt == \"\" {\n", "	if false {\n",
	},
	"a name that is taken is tried again and again": {
		"companion.go", "_, taken := s.in.Taken[name]; !taken", "_, taken := s.in.Taken[name]; !taken || true",
	},
	"of refused companions the first is tried again and again": {
		"companion.go", "return s.in.RefusedAt[a.Name].Compare(s.in.RefusedAt[b.Name])", "return strings.Compare(a.Name, b.Name)",
	},
	"the second of two companions stays": {
		"companion.go", "		case !w.companion.Leaving:\n", "		case false:\n",
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
		"survey.go", "case pod.Node == \"\" && s.in.Target.Template == nil:", "case pod.Node == \"\":",
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
		"release.go", "	case s.in.PeersUnasked:\n", "	case false:\n",
	},
	"foreign pods are not told": {
		"summary.go", "	if s.strangers() != \"\" {\n", "	if false {\n",
	},
	"taken names are not told": {
		"summary.go", "	if s.takers() != \"\" {\n", "	if false {\n",
	},
	"nobody says what keeps a NodeGuard that is being deleted": {
		"survey.go", "	s.conditionsAs(&s.plan.Status, v1alpha1.ConditionReconciling", "	s.conditionsAs(&v1alpha1.NodeGuardStatus{}, v1alpha1.ConditionReconciling",
	},
	"a budget is opened for a release that is over": {
		"budget.go", "(w.budget == nil || w.budget.Ended != releaseID(g))", "true",
	},
	"a passed deadline is not said": {
		"release.go", "	w.held.late = s.late(w)\n", "",
	},
}
