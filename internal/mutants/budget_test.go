// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package mutants_test

import (
	"testing"

	_ "github.com/everynode/everynode/internal/nodebudget/budget" // so that go test knows the files of the package: see planner
)

func TestEachMistakeInTheBudgetPlannerIsFound(t *testing.T) {
	planner{
		pkg: "internal/nodebudget/budget", histories: "50000", mutants: budgetMutants,
		byWorlds: map[string]string{
			"limit":       "a cordoned node gets its seat back",
			"two_drains":  "a node gets its seat back while a NodeJob disrupts it",
			"zones":       "one more node than maxUnavailable",
			"requirement": "a requirement that cannot be checked is met",
			"two_budgets": "one more node than maxUnavailable",
		},
	}.test(t)
}

// budgetMutants are mistakes in the planner of NodeDisruptionBudgets.
var budgetMutants = map[string]mutant{
	"a pod with the label of placeholders counts for no group": {
		"group.go", "labelled[g.key] + labelled[PlaceholderGroup]", "labelled[g.key]",
	},
	"a placeholder that runs stays": {
		"placeholder.go", "want == 0 || h.Bound {", "want == 0 {",
	},
	"one placeholder is enough for all nodes that are away": {
		"placeholder.go", "max(want, away-g.opened+1)", "max(want, 1)",
	},
	"placeholders stay without a budget": {
		"placeholder.go", "want == 0 || h.Bound {", "h.Bound {",
	},
	"a placeholder takes the place of a seat": {
		"placeholder.go", "_, is := a.(CreateSeat); return is", "_, is := a.(CreateSeat); return is && false",
	},
	"a first seat counts for the pace":            {"pace.go", "m.seat != nil && m.seat.Returned", "m.seat != nil"},
	"a seat that is not ready takes a free place": {"grant.go", "s.Ready && g.opened == down", "g.opened == down"},
	"a pace begins before seats have left": {
		"pace.go",
		"(isElsewhere || !p.isObserved(m.group))",
		"(isElsewhere && false || !p.isObserved(m.group))",
	},
	"a node that was just created has settled":               {"member.go", "m.Created.Add(p.settleFor()).After(settled)", "false"},
	"a closed budget outlasts its expiry":                    {"rule.go", "(until.IsZero() || at.Time.Before(until))", "until.IsZero()"},
	"a NodeJob that ignores windows ignores all else":        {"rule.go", "return r.inWindow", "return nil"},
	"a node on which windows are ignored stays in its group": {"group.go", "\tp.split(\"/outside\", (*member).isOutside)\n", ""},
	"windows are never ignored":                              {"member.go", "m.closedFor(m.ignoresWindows)", "m.closedFor(false)"},
	"one more node than maxUnavailable": {
		"../../kube/scale.go", "return max(n, 1)", "return max(n, 1) + 1",
	},
	"a percentage is rounded up": {
		"../../kube/scale.go", "(value, nodes, false)", "(value, nodes, true)",
	},
	"a freeze closes nothing": {
		"rule.go", "case allowsNothing(&r.Spec):", "case false:",
	},
	"a freeze without an end is reported as one with an end": {
		"rule.go", "case r.neverThaws():", "case false:",
	},
	"a window never closes": {
		"rule.go", "case !r.window.Open && !inWindow:\n", "case false:\n",
	},
	"a run must fit the longest window of only one budget": {
		"effect.go", " && (e.Longest == 0 || r.longest < e.Longest)", " && e.Longest == 0",
	},
	"a limit that others use up too is that of one NodeJob": {
		"stance.go", "return p.in.Holds[other.UID] != by", "return false && p.in.Holds[other.UID] != by",
	},
	"a requirement that cannot be checked is met": {
		"requires.go", "if a.State == v1alpha1.RequirementMet {", "if a.State != v1alpha1.RequirementNotMet {",
	},
	"an answer about a requirement counts forever": {
		"requires.go", "if now.Before(a.At.Add(AnswersLast)) {", "if true {",
	},
	"answers for an earlier spec count": {
		"requires.go", "known.UID == r.UID && known.Generation == r.Generation && i <", "i <",
	},
	"an answer that becomes too old triggers no pass": {
		"member.go", "p.wake(a.changesAt(in.Now))", "_ = a",
	},
	"an expired budget holds nodes": {
		"rule.go", "!r.expired && r.Spec.Enforcement != v1alpha1.BudgetReport", "r.Spec.Enforcement != v1alpha1.BudgetReport",
	},
	"an audit holds nodes": {
		"rule.go", "!r.expired && r.Spec.Enforcement != v1alpha1.BudgetReport", "!r.expired",
	},
	"a node that joins takes a disruption": {
		"fresh.go", "p.in.Fresh != nil && (was || !known)", "false && (was || !known)",
	},
	"a node that loses its seat counts as one that joins": {
		"fresh.go", "\tp.plan.Fresh[m.UID] = m.fresh\n", "",
	},
	"nodes that were there before the manager join": {
		"fresh.go", "p.in.Fresh != nil && (was || !known)", "was || !known",
	},
	"the first seat of a node that has joined late begins a pace": {
		"member.go", "\tif m.fresh {\n\t\treturn false\n\t}\n", "",
	},
	"a node whose seat does not start never counts": {
		"fresh.go", " && (!m.Ready || p.in.Now.Before(due))", "",
	},
	"a node that joined before the budget is fresh": {
		"fresh.go", "return r.enforced() && r.selects(node)", "return true",
	},
	"a seat does not follow the taints of its node": {
		"grant.go", "&& toTolerate(m.Node, m.seat.Tolerates) != \"\":", "&& false:",
	},
	"a seat that must not change is changed": {
		"grant.go", "&& !p.in.Fixed[m.seat.UID] ", "",
	},
	"a seat is created without tolerations": {
		"grant.go", "Tolerates: toTolerate(m.Node, \"\"),", "",
	},
	"a seat tolerates the taints of autoscalers": {
		"tolerate.go", " && !isTransient(t.Key)", "",
	},
	"a seat tolerates any number of taints": {
		"tolerate.go", "min(len(missing), maxTolerations-len(tolerates))", "len(missing)",
	},
	"each closed node is a bypass": {
		"bypass.go", "p.in.Deleted[m.UID] && r", "r",
	},
	"nodes that join count at once": {
		"rule.go", "return r.Spec.JoiningNodes != v1alpha1.JoiningNodesIncluded && ", "return false && ",
	},
	"the end of a window triggers no pass": {
		"member.go", "p.wake(r.window.ChangesAt)", "",
	},
	"a seat that is not ready makes a node available": {
		"member.go", " || !m.seat.Ready ||", " ||",
	},
	"a node gets its seat back while a NodeJob disrupts it": {
		"member.go", "return !held && m.Ready", "return (!held || held) && m.Ready",
	},
	"a node gets its seat back before NodeJobs have reported": {
		"member.go", " || !p.in.HoldsKnown {", " {",
	},
	"a cordoned node gets its seat back": {
		"member.go", "m.Ready && !m.announced", "m.Ready",
	},
	"a node gets its seat back before it has settled": {
		"member.go", "return !p.in.Now.Before(settled)", "return true",
	},
	"the return of a young node keeps no pace": {
		"member.go", "first := m.Created.Add(p.joiningFor())", "first := m.Created.Add(3 * p.joiningFor())",
	},
	"a broken node is released under a freeze": {
		"member.go", " || m.Ready || m.group.closed {", " || m.Ready {",
	},
	"the seat of a broken node is not deleted": {
		"member.go", "at := m.ReadyChanged.Add(RepairAfter)", "at := m.ReadyChanged.Add(1000 * RepairAfter)",
	},
	"the seat of an unreachable node waits for a kubelet": {
		"grant.go", "if s.Terminating && !s.AtOnce {", "if false {",
	},
	"a seat is ended again and again": {
		"grant.go", "if s.Terminating && !s.AtOnce {", "if s.Terminating {",
	},
	"a seat ends at once on a node that reports": {
		"member.go", "return !n.Ready && slices", "return !n.Ready || slices",
	},
	"the pace is ignored": {
		"pace.go", "if !r.hasPace() {\n\t\treturn\n", "if true {\n\t\treturn\n",
	},
	"the pace begins when the seat exists": {
		"pace.go", "case m.seat == nil && p.mayHaveSeat(m) && p.returns(m):", "case false:",
	},
	"the pace begins before all floors are closed": {
		"grant.go", " && (!p.returns(m) || p.paceCanBegin(m))", "",
	},
	"a return that did not count begins a pace later": {
		"pace.go", "|| !at.After(last.At) && !p.in.Now", "|| !p.in.Now",
	},
	"a seat that its node has ended begins a pace": {
		"pace.go", " && !p.in.Ungranted[m.UID]", "",
	},
	"a node begins one pace after the other": {
		"pace.go", "case last.At.IsZero() || !at.Before(last.At.Add(2*pace)):", "case true:",
	},
	"a node that returns again and again prolongs its pace": {
		"pace.go", " && at.Before(last.Since.Add(min(pace, p.minute()))):", ":",
	},
	"the deletion of a new seat shows that an absence was not granted": {
		"pace.go", "\tcase s.Group != PendingGroup:\n", "\tdefault:\n",
	},
	"what a NodeJob takes was not granted": {
		"pace.go", "for node := range holds {\n\t\tdelete(u, node)", "for node := range holds {\n\t\t_ = node",
	},
	"an interrupted watch shows that an absence was not granted": {
		"pace.go", "case !known || ", "case ",
	},
	"an unavailable node counts with its new labels": {
		"labels.go", " && !(p.isAbsent(node) && len(p.limiting(&before)) > 0)", "",
	},
	"labels count as often as they change": {
		"labels.go", "!p.in.Now.Before(until) && !(p.isAbsent", "!(p.isAbsent",
	},
	"an unavailable node keeps labels that a node cannot write": {
		"labels.go", "\t\treturn false\n\tcase !in", "\t\treturn true\n\tcase !in",
	},
	"a group opens while seats of frozen nodes have its label": {
		"group.go", "\t\tg.closed = true\n", "",
	},
	"a ready seat of a node that is not Ready counts as available": {
		"group.go", "m.seat != nil && (m.Ready || !m.seat.Ready)", "m.seat != nil",
	},
	"nodes of other zones do not count": {
		"group.go",
		"\t\t\tl.groups = append(l.groups, g)\n",
		"\t\t\tif len(l.groups) == 0 {\n\t\t\t\tl.groups = append(l.groups, g)\n\t\t\t}\n",
	},
	"the node that has waited longest is not first": {
		"grant.go", "return a.since.Compare(b.since)", "return 0",
	},
	"nodes that may become Ready by themselves get grants beyond the limit": {
		"grant.go", "return down > l.most && len(l.groups) > 1", "return false",
	},
	"a floor is lowered before the others are raised": {
		"grant.go", "for grant > g.granted && !g.fits(max(grant, g.down)) {", "for false {",
	},
	"a seat joins a group whose floor may be deleted": {
		"grant.go",
		"slices.ContainsFunc(g.floor.Owners, func(o Owner) bool { return !slices",
		"slices.ContainsFunc(g.floor.Owners, func(o Owner) bool { return false && !slices",
	},
	"what the API server still grants is not counted": {
		"grant.go", "max(other.granted, other.reach, other.down)", "max(other.granted, other.down)",
	},
	"a seat joins its group before the floor counts it": {
		"grant.go", "counted := p.isObserved(m.group)", "counted := true",
	},
	"a seat joins its group while other groups use what it leaves": {
		"grant.go", " && m.group.canGain(m.seat)", "",
	},
	"pods of others count as seats": {
		"grant.go", "len(g.members) - grant + g.others", "len(g.members) - grant",
	},
	"a floor changes while an evicted seat terminates": {
		"group.go", "!s.Terminating && own[", "own[",
	},
	"a floor is deleted while seats have its label": {
		"grant.go", "p.byKey[f.Group] == nil", "p.byKey[f.Group] == nil || len(p.byKey[f.Group].members) == 0",
	},
	"a seat moves while the API server deletes it": {
		"group.go", " && !p.isEvicted(s)", "",
	},
	"a seat leaves a group that can still let it go": {
		"group.go", "p.isObserved(p.byKey[s.Group]) && ", "",
	},
	"a group stays open while seats leave it": {
		"group.go", "\t\tg.closed = true\n", "",
	},
	"a seat that the API server deletes next counts as available": {
		"member.go", " || p.isEvicted(m.seat)", "",
	},
	"a freeze owns no floor": {
		"grant.go",
		"if owner := (Owner{r.Name, r.UID}); !slices.Contains(owners, owner) {",
		"if owner := (Owner{r.Name, r.UID}); r.permanent() && !slices.Contains(owners, owner) {",
	},
	"a NodeJob takes an available node without a seat": {
		"stance.go", "case p.waitsForSeat(m):", "case false:",
	},
	"a node that may go now is said to wait for others": {
		"stance.go", "if n := m.group.evictable; n > 0 &&", "if n := m.group.evictable; n > 99 &&",
	},
	"a NodeJob waits for a node that is unavailable": {
		"stance.go", "s := hold.Stance{Allowed: true}", "s := hold.Stance{}",
	},
}
