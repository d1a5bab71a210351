package mutants_test

import (
	"testing"

	_ "github.com/everynode/everynode/internal/plan" // what it is made of: see planner
)

func TestEachMistakeInThePlannerIsFound(t *testing.T) {
	planner{
		pkg: "internal/plan", histories: "6000", mutants: merge(mutants, hardening),
		byTables: []string{
			"a budget that is used up is no reason to say so",
			"a label that the user sets in the last moment is dropped",
			"a node that joins in a soak begins it again",
			"a step grows with the cluster",
			"a node without progress holds the others for ever",
			"a pod that is kept is recorded again",
			"a record that the user removes in the last moment is written again",
			"a node counts from when it was first back",
			"a node that joins in a soak may fail in it",
			"a second reboot is not noticed",
			"the canaries change when they run again",
			"the status names one rule that holds nodes",
			"the boot of a success is the one that is seen",
		},
	}.test(t)
}

var mutants = map[string]mutant{
	"running pods do not count against maxConcurrent": {
		"rollout.go", "if !s.joined(s.work[i].node) {\n			taken++", "if false {\n			taken++",
	},
	"every node counts as joined after the proof": {
		"advance.go", "!s.stableAt.IsZero() && node.Created.After(s.stableAt)", "!s.stableAt.IsZero()",
	},
	"one more retry than the limit": {
		"survey.go", "case standing.failures > s.retryLimit():", "case standing.failures > s.retryLimit()+1:",
	},
	"a disruption counts as an attempt": {
		"attempt.go", "s.isAgain(node, pod.Revision), failures\n", "s.isAgain(node, pod.Revision), failures+1\n",
	},
	"one more failed node than the budget": {
		"budget.go", "s.stopped = s.failed > s.mayFail ||", "s.stopped = s.failed > s.mayFail+1 ||",
	},
	"nodes that were deleted failed are forgotten": {
		"budget.go", "case !isThere(&c):\n			gone++\n", "case !isThere(&c):\n			gone += 0\n",
	},
	"a repair behind the same Node hides the harm": {
		"budget.go", "there && !(onReplace(s.in.Job) && differ(machine, n.MachineID))", "there && machine == machine",
	},
	"a canary is chosen anew in each pass": {
		"steps.go", "case s.work[i].touched && (nodes[i].State != Done || s.work[i].proof):", "case false:",
	},
	"later steps begin with the first": {
		"advance.go", "w.step <= min(s.current, s.ceiling)", "w.step <= len(s.steps)",
	},
	"promoteTo is no ceiling": {
		"steps.go", "s.ceiling = max(s.indexOf(spec.PromoteTo), 0)", "_ = spec",
	},
	"a step passes with no success": {
		"advance.go", "return done > 0\n", "return true\n",
	},
	"the soak ends at once": {
		"advance.go", "if s.in.Now.Before(until) {", "if false {",
	},
	"a soak does not mind a node that is not Ready": {
		"advance.go", "case len(sick) == 0:\n", "case true:\n",
	},
	"a node that is lost gets a pod": {
		"survey.go", "case node.lost():", "case false:",
	},
	"a node that is lost after a failure does not count": {
		"survey.go", "case standing.failures > 0 && node.lost():", "case false:",
	},
	"a node is written to twice in a pass": {
		"quarantine.go", "!w.written {", "true {",
	},
	"a node with a pod that has not left gets another": {
		"survey.go", "case leaving:", "case false:",
	},
	"suspend is not heeded": {
		"survey.go", "case s.halted() != \"\" && s.in.Job.DeletionTimestamp.IsZero():", "case false:",
	},
	"a pod that is kept is recorded again": {
		"attempt.go", "return onRecord(pod, node) || (pod.Recorded && !pod.Finalized && s.in.Job.Spec.RetainPodsSeconds > 0)", "return onRecord(pod, node)",
	},
	"a pod that is kept is in the way of the next": {
		"once.go", "if w.start == nil || len(w.kept) == 0 {", "if true {",
	},
	"a pod is kept for ever": {
		"once.go", "!onRecord(pod, w.node) || !s.in.Now.Before(until)", "!onRecord(pod, w.node) || until.IsZero()",
	},
	"a lost node keeps its slot past the deadline": {
		"attempt.go", "if node.lost() {\n		return s.ended", "if false {\n		return s.ended",
	},
	"a pod is released before its record": {
		"survey.go", "		case fateEnded:\n", "		case fateEnded:\n			p.Actions = append(p.Actions, Release{Pod: *pod})\n",
	},
	"a success is not believed when the pod was deleted after it": {
		"attempt.go", "if pod.Phase == corev1.PodSucceeded ||", "if (pod.Phase == corev1.PodSucceeded && pod.DeleteRequested.IsZero()) ||",
	},
	"a taint is not heeded": {
		"survey.go", "taint != nil {", "taint != nil && false {",
	},
	"another machine's success counts": {
		"rerun.go", "if s.replaced(node) {\n		// A run", "if false {\n		// A run",
	},
	"somebody else's cordon is made ours": {
		"quarantine.go", "case len(node.CordonedBy) == 0 || s.cordonedForUs(node):", "case s.cordonedForUs(node):",
	},
	"a node is opened that another NodeJob holds": {
		"quarantine.go", "return key == s.key })\n	if", "return key != \"\" })\n	if",
	},
	"a cordon is left behind": {
		"quarantine.go", "case leave, st.State == Done, st.State == Excluded, s.wasPrepared(w.node):", "case leave, s.wasPrepared(w.node):",
	},
	"the drain does not wait for the rollback": {
		"quarantine.go", "if drain && w.settled && s.mayDrain", "if drain && s.mayDrain",
	},
	"a rollback that succeeded runs again": {
		"rollback.go", "return undoing{done: true}", "return undoing{}",
	},
	"a rollback is tried without end": {
		"rollback.go", "case is.failures > s.retryLimit():", "case false:",
	},
	"a deleted NodeJob forgets what it should undo": {
		"leave.go", "if rec == nil || rec.NeverStarted", "if true || rec.NeverStarted",
	},
	"a rolled back node is never forgotten": {
		"leave.go", "s.forget(w.node, p)\n		return", "return",
	},
	"a success leaves the gate closed": {
		"recording.go", "c.Taints = s.opened(node, true)", "c.Taints = nil",
	},
	"the gate opens before the task has succeeded": {
		"gate.go", "case s.gate.spec == nil, st.State == Done:", "case s.gate.spec == nil, st.State != Excluded:",
	},
	"the gate opens while another NodeJob with the same gate is awaited": {
		"gate.go", "if s.pending(&s.sharers[i], node) {", "if s.pending(&s.sharers[i], node) && false {",
	},
	"the gate stays closed on a node that the NodeJob is not for": {
		"gate.go", "mark.Taints = s.opened(node, false)", "mark.Taints = nil",
	},
	"a gate of somebody else is opened on a node that the NodeJob is not for": {
		"gate.go", "mark.Taints = s.opened(node, false)", "mark.Taints = s.opened(node, true)",
	},
	"the taints of others go with the gate": {
		"gate.go", "return s.gate.holds(&t) && (all || s.gate.own || t.Value == v1alpha1.GateValue)", "return true || all",
	},
	"nodes that were there before the gate are closed": {
		"gate.go", "return node.Created.After(s.gate.since.Time) && s.joins(node)", "return s.joins(node)",
	},
	"taints are written without a look at what they are": {
		"quarantine.go", "	c.ResourceVersion = node.ResourceVersion\n", "",
	},
	"a deletion leaves the gate closed": {
		"leave.go", "s.uncordon(node), s.openedForGood(node), s.unpublish(node)", "s.uncordon(node), nil, s.unpublish(node)",
	},
	"a deletion leaves facts behind": {
		"leave.go", "s.uncordon(node), s.openedForGood(node), s.unpublish(node)", "s.uncordon(node), s.openedForGood(node), nil",
	},
	"a deletion that retains the records leaves the cordon": {
		"leave.go", "mark.Cordon = s.uncordon(node); mark.Cordon != nil", "mark.Cordon = nil; mark.Cordon != nil",
	},
	"the sweeper takes off what is a NodeJob's": {
		"stray.go", "return v1alpha1.GateKey(job) == taint.Key", "return false",
	},
	"the sweeper leaves the own key of a gate that has another by now": {
		"stray.go", "return v1alpha1.GateKey(job) == taint.Key", "return true",
	},
	"somebody else's label is published over": {
		"facts.go", "case owner == \"\" && there:", "case false:",
	},
	"a result that is no label value is published": {
		"facts.go", "len(wrong) > 0 {", "len(wrong) > 100 {",
	},
	"what is not reported any more stays on the node": {
		"facts.go", "owner == s.key && !wanted", "owner == s.key && !wanted && owner == \"\"",
	},
	"a node that runs again after a reboot runs without end": {
		"rerun.go", "case rerun.OnReboot && differ(rec.BootID, node.BootID):", "case rerun.OnReboot:",
	},
	"a reboot does not make a node run again": {
		"rerun.go", "case rerun.OnReboot && differ(rec.BootID, node.BootID):", "case false:",
	},
	"a schedule does not wait for half an interval": {
		"rerun.go", "earliest := finished.Unix() + (seconds+1)/2", "earliest := finished.Unix()",
	},
	"a disrupted further run counts as done": {
		"rerun.go", "return rec.Rerun && rec.Outcome != record.Failed", "return false",
	},
	"a failed node that is skipped is tried again": {
		"attempt.go", "	if e.outcome == record.Disrupted {\n", "	r.Again = s.isAgain(node, pod.Revision)\n	if e.outcome == record.Disrupted {\n",
	},
	"a node that reboots does not hold its slot": {
		"reboot.go", "node, rec := w.node, w.node.On.Record\n	w.slot = true", "node, rec := w.node, w.node.On.Record",
	},
	"a reboot has no time limit": {
		"reboot.go", "	if !s.in.Now.Before(deadline) {\n		// The pod", "	if false {\n		// The pod",
	},
	"the boot that a pod was made for is taken for the one that it ran in": {
		"reboot.go", "from := firstOf(node.BootID, task.BootID(pod.Machine))", "from := firstOf(task.BootID(pod.Machine), node.BootID)",
	},
	"the check runs in the boot that the task ran in": {
		"reboot.go", "	if !rebooted(node) {\n", "	if !rebooted(node) && false {\n",
	},
	"a pod that reboots the node is made when it is in another boot": {
		"reboot.go", "	if !rebooted(node) {\n", "	if !rebooted(node) || true {\n",
	},
	"a node counts that has just come back": {
		"reboot.go", "case s.in.Now.Before(until):", "case false:",
	},
	"a node counts from when it was first back": {
		"reboot.go", "backAt.IsZero() || !sameSecond(node.ReadySince, rec.Reboot.ReadySince)", "backAt.IsZero()",
	},
	"the check after a reboot is left out": {
		"reboot.go", "case s.in.Job.Spec.Verify == nil:", "case true:",
	},
	"a failed check counts as passed": {
		"reboot.go", "r.ExitCode, r.Reboot = record.Failed, e.Reason", "r.ExitCode, r.Reboot = record.Succeeded, e.Reason",
	},
	"the boot of a success is the one that is seen": {
		"reboot.go", "firstOf(task.BootID(pod.Machine), node.BootID), e.Message", "node.BootID, e.Message",
	},
	"maxUnavailable is not heeded": {
		"maintenance.go", "case !w.away && s.away >= s.mayBeAway && !s.joined(w.node):", "case false:",
	},
	"nodes that are not Ready do not count as away": {
		"maintenance.go", "w.away = w.slot || w.node.Unschedulable || w.node.Ready != corev1.ConditionTrue", "w.away = w.slot || w.node.Unschedulable || w.node.Ready == corev1.ConditionTrue && false",
	},
	"nodes that are cordoned do not count as away": {
		"maintenance.go", "w.away = w.slot || w.node.Unschedulable || w.node.Ready != corev1.ConditionTrue", "w.away = w.slot || w.node.Ready != corev1.ConditionTrue",
	},
	"the task does not wait for the drain": {
		"maintenance.go", "	case look.empty:\n		return true\n", "	case look.empty, !look.late:\n		return true\n",
	},
	"a node is not cordoned before the task": {
		"maintenance.go", "if c := s.cordon(w.node); c != nil {", "if c := s.cordon(w.node); c != nil && false {",
	},
	"the node of the manager does not wait for the others": {
		"maintenance.go", "case s.comesLast(w):", "case false:",
	},
	"a cordon before the task stays when it does not come to run": {
		"quarantine.go", "st.State == Excluded, s.wasPrepared(w.node):", "st.State == Excluded:",
	},
	"a cordon before the task stays after the node has failed": {
		"maintenance.go", "return !w.settled // what", "return true // what",
	},
	"a task that was disrupted counts as never begun": {
		"maintenance.go", "r.NeverStarted = prev.NeverStarted // ", "// ",
	},
	"a drain in vain forgets the rollback": {
		"maintenance.go", "		r.Rollback = prev.Rollback\n	} else", "	} else",
	},
	"a dependency is not waited for": {
		"survey.go", "if before := s.awaits(node); before != \"\" {", "if before := s.awaits(node); false {",
	},
	"a budget that is used up is no reason to say so": {
		"conditions.go", "s.waits(nodes, v1alpha1.ReasonMaxUnavailableReached) &&", "false &&",
	},
}
