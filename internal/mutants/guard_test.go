// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package mutants_test

import (
	"testing"

	_ "github.com/everynode/everynode/internal/nodeguard/guard" // so that go test knows the files of the package: see planner
)

func TestEachMistakeInTheNodeGuardPlannerIsFound(t *testing.T) {
	planner{
		pkg: "internal/nodeguard/guard", histories: "20000", mutants: guardMutants,
		byWorlds: map[string]string{
			"check":      "a failed check releases a node",
			"approval":   "no approval is required",
			"deadline":   "no approval is required",
			"two_guards": "a node is released although another NodeGuard would not release it",
			"budget":     "the companion of a released node is not deleted",
		},
	}.test(t)
}

// guardMutants are mistakes in the planner of NodeGuards.
var guardMutants = map[string]mutant{
	"a companion may be deleted again after its release": {
		"node.go", "p.UID == entry.CompanionUID && !p.endedAfter(entry)", "p.UID == entry.CompanionUID",
	},
	"another companion is deleted for a release": {
		"node.go", "p.UID == entry.CompanionUID && !p.endedAfter(entry)", "!p.endedAfter(entry)",
	},
	"a missing budget is not reported": {
		"conditions.go", "if s.budget == nil {", "if false {",
	},
	"a rejected budget is not reported": {
		"conditions.go", "if s.in.BudgetRefused == \"\" || s.budget != nil {", "if true {",
	},
	"the budget is not locked while a node waits": {
		"budget.go", " || slices.ContainsFunc(p.nodes, func(n *nodePlan) bool { return n.held != nil })", "",
	},
	"the budget is not locked while other pods have the labels of companions": {
		"budget.go", "len(p.in.ForeignPods) > 0 || ", "",
	},
	"a locked budget can be opened by two pods": {
		"budget.go", "want.MinAvailable = Locked", "want.MinAvailable = 2",
	},
	"a companion is deleted for a release that is over": {
		"node.go", "return n.companion != nil && !n.companion.isReleasedBy(n.entry)", "return false",
	},
	"the budget is lowered while a companion that is gone counts": {
		"budget.go", "case !b.counts(want.MinAvailable):", "case !b.counts(want.MinAvailable) && false:",
	},
	"a companion is created before the budget requires it": {
		"companion.go", "if !p.covers() {", "if !p.covers() && false {",
	},
	"companions that are about to be created do not count": {
		"budget.go", "n := int32(len(p.coming))", "n := int32(0)",
	},
	"a companion is deleted although a release has ended meanwhile": {
		"companion.go", "v1alpha1.ReasonNodeReleased, Unchanged: true}", "v1alpha1.ReasonNodeReleased, Unchanged: false}",
	},
	"the end of a release is not noted on its companion": {
		"companion.go", "p.plan.do(EndRelease{*c, releaseID(*n.entry)})", "_ = releaseID(*n.entry)",
	},
	"a release ends while its companion may be deleted": {
		"released.go", "case n.isAvailableAgain() && p.isUndone(n.entry):", "case n.isAvailableAgain():",
	},
	"the release of a deleted node ends while its companion may be deleted": {
		"released.go", "\t\t\tif p.isUndone(n.entry) {", "\t\t\tif p.isUndone(n.entry) || true {",
	},
	"a NodeGuard has no placeholder": {
		"guard.go", "\tp.reconcilePlaceholder()\n", "",
	},
	"the budget requires all pods that it expects": {
		"budget.go", "MinAvailable: p.companions(),", "MinAvailable: p.companions() + 1,",
	},
	"the companion of a released node is not deleted": {
		"companion.go", "case n.active():\n\t\tp.plan.do", "case n.active() && false:\n\t\tp.plan.do",
	},
	"a companion that is about to be deleted is required no more": {
		"budget.go",
		"case slices.ContainsFunc(p.nodes, (*nodePlan).isLetGo):",
		"case slices.ContainsFunc(p.nodes, (*nodePlan).isLetGo) && false:",
	},

	"a NodeGuard guards the nodes of other teams": {
		"target.go", "case !hold.AllowsNode(o.in.AllowedNodes, n.Labels):", "case false:",
	},
	"pods are created in a namespace that is not allowed": {
		"companion.go", "if o.in.NotAllowed != nil {", "if false {",
	},
	"budgets are created in a namespace that is not allowed": {
		"budget.go", "case b == nil && (p.in.NotAllowed != nil || len(p.nodes) == 0):", "case b == nil && len(p.nodes) == 0:",
	},
	"one more node than maxUnavailable": {
		"maxunavailable.go", "case unavailable >= limit:", "case unavailable > limit:",
	},
	"unhealthy nodes do not count": {
		"maxunavailable.go", "\t\tcase other.isUnhealthy():\n\t\t\tused.unhealthy++", "\t\tcase false:\n\t\t\tused.unhealthy++",
	},
	"an unhealthy node does not wait for released nodes": {
		"maxunavailable.go", "\t\tused.unhealthy = 0\n", "\t\tused.unhealthy, used.released = 0, 0\n",
	},
	"a release of another NodeGuard does not come first": {
		"held.go", "if first == nil || n == first || r.mayFollow(n) {", "if true {",
	},
	"a stale view releases nodes": {
		"release.go", "\tif !p.in.Live {\n", "\tif false {\n",
	},
	"a stale view removes nodes from status.released": {
		"released.go",
		"func (p *planner) markAvailable(n *nodePlan, note string) {\n\tif !p.in.Live {",
		"func (p *planner) markAvailable(n *nodePlan, note string) {\n\tif false {",
	},

	"a new release request uses the earlier release": {
		"node.go",
		"func (n *nodePlan) active() bool { return n.stage == released }",
		"func (n *nodePlan) active() bool { return n.stage == released || (n.stage == returning && n.requestsRelease()) }",
	},
	"a node is available again before its companion is ready": {
		"node.go", "return n.stage == returning && !n.isUnhealthy() && isReady(n.companion)", "return n.stage == returning",
	},
	"a node whose target has left is no longer guarded": {
		"target.go", "\tcase n.active():\n\t\treturn true\n", "\tcase false:\n\t\treturn true\n",
	},
	"no approval is required": {
		"approval.go",
		"if _, approved := withoutApproval(n.Approved, r.key()); approved {",
		"if _, approved := withoutApproval(n.Approved, r.key()); approved || true {",
	},
	"a check for an earlier release request counts": {
		"check.go", "case pod.RequestedAt != token(n.requestedAt):", "case false:",
	},
	"a failed check releases a node": {
		"check.go", "case pod.Phase == corev1.PodSucceeded && age <", "case age <",
	},
	"a budget of another owner is ignored": {
		"held.go", "if r.overlapping == \"\" {", "if true {",
	},

	"the companion of a held node is replaced": {
		"update.go", "!c.ended() && !n.requestsRelease() && (o.in.Obstacle", "!c.ended() && (o.in.Obstacle",
	},
	"all companions are replaced at once": {
		"update.go", "\t\t\tif missing >= limit {\n", "\t\t\tif missing >= limit+100 {\n",
	},
	"the companion of a held node is not recreated": {
		"companion.go", "\t\tif n.releasing || n.active() {\n", "\t\tif n.releasing || n.active() || n.requestsRelease() {\n",
	},
	"annotations for a release stay on the node": {
		"released.go", "\t\tcase p.removeAnnotations(n):\n", "\t\tcase false:\n",
	},
	"annotations stay on a node that is no longer guarded": {
		"released.go", "\t\tcase p.removeAnnotations(n):\n", "\t\tcase n.guarded && p.removeAnnotations(n):\n",
	},
	"a node is released although another NodeGuard would not release it": {
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
	"the first NodeGuard removes the break-glass annotation": {
		"approval.go", `n.BreakGlass != "" && !o.retainsBreakGlass(n)`, `n.BreakGlass != ""`,
	},
	"the break-glass annotation is removed based on a stale view": {
		"released.go", "case approval.BreakGlass && !p.in.Live:", "case false:",
	},
	"a NodeGuard waits for no other with the break-glass annotation": {
		"released.go", "return p.retainsBreakGlass(n)", "return false",
	},
	"a status that the manager has not written counts": {
		"statuses.go", "s.Key.OpenNodeGuard(g) && g.Status", "g.Status",
	},
	"an earlier status counts": {
		"statuses.go", " && g.Status.ControllerState.Writes >= known.ControllerState.Writes", "",
	},
	"the manager does not remember its status": {
		"statuses.go", "g.Status = *known.DeepCopy()", "g.Status = v1alpha1.NodeGuardStatus{}",
	},
	"a NodeGuard in a namespace that was never allowed is served": {
		"guard.go", "in.NotAllowed != nil && !IsServed(", "false && !IsServed(",
	},
	"NodeGuards in namespaces that are not allowed count for others": {
		"peers.go", "NotAllowed: !allowed(o)}", "NotAllowed: false}",
	},
	"a NodeGuard without a companion on a node holds it": {
		"peers.go", " && n.companion != nil {", " {",
	},
	"more NodeGuards of a namespace are served than the maximum": {
		"notallowed.go", "served[g.Namespace] > MaxServed", "false",
	},
	"the newest NodeGuards of a namespace are served": {
		"notallowed.go", "a.CreationTimestamp.Compare(b.CreationTimestamp.Time)", "b.CreationTimestamp.Compare(a.CreationTimestamp.Time)",
	},
	"a node stays released after its release is over": {
		"node.go", "n.seated || n.isOver() }", "n.seated }",
	},
	"the checks of two NodeGuards wait for each other": {
		"peers.go", " && !v.Checks })", " })",
	},
	"a check runs though another NodeGuard holds the node": {
		"peers.go",
		"func (r *releaseRules) heldByOtherGuard(n *nodePlan) *holding {\n",
		"func (r *releaseRules) heldByOtherGuard(n *nodePlan) *holding {\n\tif h := r.checkNotStarted(n); h != nil {\n\t\treturn h\n\t}\n",
	},
	"a node that waits for another NodeGuard prevents other checks": {
		"check.go", "return recheckAt.IsZero(), recheckAt", "return true, recheckAt",
	},
	"a node that another NodeGuard has released has no place yet": {
		"peers.go", "\t\t\tn.expectRelease()\n", "",
	},
	"two nodes that another NodeGuard guards are released at once": {
		"peers.go", "\tif ps.isShared(n) {\n", "\tif false {\n",
	},
	"a returning node with a taint counts as available again": {
		"target.go", "(n.isReleased() || !excludesTarget(template, n.Node))", "!excludesTarget(template, n.Node)",
	},

	"the eviction of the target itself is not reported": {
		"conditions.go", "if s.in.Target.Template != nil {\n\t\treturn nil\n\t}\n\tkinds", "if true {\n\t\treturn nil\n\t}\n\tkinds",
	},
	"a check is timed by the clock of its node": {
		"read.go", "p.CreationTimestamp.Add(took(p, t.FinishedAt))", "t.FinishedAt.Time",
	},

	"a taken name is tried repeatedly": {
		"companion.go", "_, taken := o.in.TakenNames[name]; !taken", "_, taken := o.in.TakenNames[name]; !taken || true",
	},
	"the first rejected companion is tried repeatedly": {
		"companion.go", "return p.in.RefusedAt[a.Name].Compare(p.in.RefusedAt[b.Name])", "return 0",
	},
	"the second of two companions stays": {
		"companion.go", "\t\tcase !n.companion.Terminating:\n", "\t\tcase false:\n",
	},
	"a companion is created while that of an earlier NodeGuard exists": {
		"companion.go", " && !n.succeeds", "",
	},
	"a check that does not end prevents other checks": {
		"check.go", "case o.in.Now.Before(o.latestEnd(pod).Add(o.checkInterval())):", "case false:",
	},
	"a check that does not terminate prevents other checks": {
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
	"a NodeGuard that has a companion on the node is not asked": {
		"peers.go", " || hasCompanion(n.Name)", "",
	},
	"a NodeGuard that has nothing on the node is asked": {
		"peers.go", " || hasCompanion(n.Name)", " || true",
	},
	"a decision that takes too long is not reported": {
		"notallowed.go", "*stalled(v1alpha1.ReasonDecisionsTooSlow", "*stalled(v1alpha1.ReasonCompanionsReady",
	},
	"break glass releases other nodes before the other NodeGuards were asked": {
		"held.go", "if !r.in.PeersUnknown {", "if true {",
	},
	"foreign pods are not reported": {
		"conditions.go", "if len(s.in.ForeignPods) == 0 {", "if true {",
	},
	"taken names are not reported": {
		"conditions.go", "if len(s.in.TakenNames) == 0 {", "if true {",
	},
	"the status does not report what delays a deletion": {
		"deletion.go", "setCondition(in, &plan.Status, ", "setCondition(in, &v1alpha1.NodeGuardStatus{}, ",
	},

	"a passed deadline is not reported": {
		"deadline.go", "\tlate.late = o.pastDeadline(n)\n", "",
	},
}
