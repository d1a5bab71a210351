// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package mutants_test

import (
	"testing"

	_ "github.com/everynode/everynode/internal/plan" // so that go test knows the files of the package: see planner
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
			"the end of a rollback is an end of the task for the earlier attempts",
		},
	}.test(t)
}

var mutants = map[string]mutant{
	"running pods do not count against maxConcurrent": {
		"rollout.go", "if !s.rollout.joinedAfterStable(w.node) {\n\t\t\ts.taken++", "if false {\n\t\t\ts.taken++",
	},
	"every node counts as joined after the proof": {
		"rollout_steps.go", "!s.stableAt.IsZero() && node.Created.After(s.stableAt)", "!s.stableAt.IsZero()",
	},
	"one more retry than the limit": {
		"planner.go", "case known.failures > s.retryLimit():", "case known.failures > s.retryLimit()+1:",
	},
	"a disruption counts as an attempt": {
		"attempt.go", "s.isRerun(node, pod.Revision), failures\n", "s.isRerun(node, pod.Revision), failures+1\n",
	},
	"the end of a rollback is an end of the task for the earlier attempts": {
		"recording.go", "record.EarlierThan(node.On.Record, &r, pod.Runs == task.Rollback)", "record.EarlierThan(node.On.Record, &r, false)",
	},
	"one more failed node than the budget": {
		"maxfailures.go", "s.stopped = s.failed > s.mayFail ||", "s.stopped = s.failed > s.mayFail+1 ||",
	},
	"nodes that were deleted failed are forgotten": {
		"maxfailures.go", "case !wasPresent(&c):\n\t\t\tgone++\n", "case !wasPresent(&c):\n\t\t\tgone += 0\n",
	},
	"a repair behind the same Node hides the harm": {
		"maxfailures.go", "there && !(onReplace(s.in.Job) && differ(machine, n.MachineID))", "there && machine == machine",
	},
	"a canary is chosen anew in each pass": {
		"steps.go", "case s.nodes[i].ranRevision && (s.nodes[i].State != Done || s.nodes[i].succeeded):", "case false:",
	},
	"later steps begin with the first": {
		"rollout_steps.go", "w.step <= min(s.current, s.ceiling)", "w.step <= len(s.steps)",
	},
	"promoteTo is no ceiling": {
		"steps.go", "s.ceiling = max(s.indexOf(spec.PromoteTo), 0)", "_ = spec",
	},
	"a step passes with no success": {
		"rollout_steps.go", "return done > 0\n", "return true\n",
	},
	"the soak ends at once": {
		"rollout_steps.go", "if s.in.Now.Before(until) {", "if false {",
	},
	"a soak does not mind a node that is not Ready": {
		"rollout_steps.go", "case len(sick) == 0:\n", "case true:\n",
	},
	"a node that is lost gets a pod": {
		"start.go", "case node.unreachable():", "case false:",
	},
	"a node that is lost after a failure does not count": {
		"planner.go", "case known.failures > 0 && node.unreachable():", "case false:",
	},
	"a node is written to twice in a pass": {
		"onfailure.go", "!w.written {", "true {",
	},
	"a node with a pod that has not left gets another": {
		"start.go", "if !r.terminating {", "if true {",
	},
	"suspend is not heeded": {
		"start.go", "if why == \"\" || !j.in.Job.DeletionTimestamp.IsZero() {", "if true {",
	},
	"a pod that is kept is recorded again": {
		"attempt.go", "return onRecord(pod, node) || (pod.Recorded && !pod.Finalized && s.in.Job.Spec.RetainPodsSeconds > 0)", "return onRecord(pod, node)",
	},
	"a pod that is kept is in the way of the next": {
		"retainpods.go", "if w.start == nil || len(w.retained) == 0 {", "if true {",
	},
	"a pod is kept for ever": {
		"retainpods.go", "onRecord(pod, w.node) && s.in.Now.Before(until)", "onRecord(pod, w.node) && !until.IsZero()",
	},
	"a lost node keeps its slot past the deadline": {
		"attempt.go", "if node.unreachable() {\n\t\treturn s.ended", "if false {\n		return s.ended",
	},
	"a pod is released before its record": {
		"planner.go", "\t\tcase podEnded:\n", "\t\tcase podEnded:\n\t\t\ts.do(FinalizePod{Pod: *pod})\n",
	},
	"a success is not believed when the pod was deleted after it": {
		"attempt.go", "if pod.Phase == corev1.PodSucceeded ||", "if (pod.Phase == corev1.PodSucceeded && pod.DeleteRequested.IsZero()) ||",
	},
	"a taint is not heeded": {
		"planner.go", "taint != nil {", "taint != nil && false {",
	},
	"another machine's success counts": {
		"rerun.go", "if s.replaced(node) {\n		// A run", "if false {\n		// A run",
	},
	"somebody else's cordon is made ours": {
		"onfailure.go", "case len(node.CordonedBy) == 0 || s.cordonedForUs(node):", "case s.cordonedForUs(node):",
	},
	"a node is opened that another NodeJob holds": {
		"onfailure.go", "return key == s.key })\n	if", "return key != \"\" })\n	if",
	},
	"a cordon is left behind": {
		"onfailure.go", "case leave, w.State == Done, w.State == Excluded, s.wasPrepared(w.node):", "case leave, s.wasPrepared(w.node):",
	},
	"the drain does not wait for the rollback": {
		"onfailure.go", "if drain && w.rollbackFinished && s.mayDrain", "if drain && s.mayDrain",
	},
	"a rollback that succeeded runs again": {
		"rollback.go", "return rollbackState{done: true}", "return rollbackState{}",
	},
	"a rollback is tried without end": {
		"rollback.go", "case is.failures > s.retryLimit():", "case false:",
	},
	"a deleted NodeJob forgets what it should undo": {
		"deletion.go", "if rec == nil || rec.NeverStarted", "if true || rec.NeverStarted",
	},
	"a rolled back node is never forgotten": {
		"deletion.go", "s.removeMetadata(w.node)\n\t\treturn", "return",
	},
	"a success leaves the gate closed": {
		"recording.go", "c.Taints = s.gate.opened(node, true)", "c.Taints = nil",
	},
	"the gate opens before the task has succeeded": {
		"gate.go", "case s.gate.spec == nil, w.State == Done:", "case s.gate.spec == nil, w.State != Excluded:",
	},
	"the gate opens while another NodeJob with the same gate is awaited": {
		"gate.go", "if s.pending(&s.sharers[i], node) {", "if s.pending(&s.sharers[i], node) && false {",
	},
	"the gate stays closed on a node that the NodeJob is not for": {
		"gate.go", "mark.Taints = s.gate.opened(node, false)", "mark.Taints = nil",
	},
	"a gate of somebody else is opened on a node that the NodeJob is not for": {
		"gate.go", "mark.Taints = s.gate.opened(node, false)", "mark.Taints = s.gate.opened(node, true)",
	},
	"the taints of others go with the gate": {
		"gate.go", "return s.holds(&t) && (all || s.own || t.Value == v1alpha1.GateValue)", "return true || all",
	},
	"nodes that were there before the gate are closed": {
		"gate.go", "return node.Created.After(s.since.Time) && s.isNewNode(node)", "return s.isNewNode(node)",
	},
	"taints are written without a look at what they are": {
		"onfailure.go", "	c.ResourceVersion = node.ResourceVersion\n", "",
	},
	"a deletion leaves the gate closed": {
		"deletion.go", "s.cordons.uncordon(node), s.gate.taintsWithoutGate(node), s.publisher.unpublish(node)", "s.cordons.uncordon(node), nil, s.publisher.unpublish(node)",
	},
	"a deletion leaves facts behind": {
		"deletion.go", "s.cordons.uncordon(node), s.gate.taintsWithoutGate(node), s.publisher.unpublish(node)", "s.cordons.uncordon(node), s.gate.taintsWithoutGate(node), nil",
	},
	"a deletion that retains the records leaves the cordon": {
		"deletion.go", "mark.Cordon = s.cordons.uncordon(node); mark.Cordon != nil", "mark.Cordon = nil; mark.Cordon != nil",
	},
	"the sweeper takes off what is a NodeJob's": {
		"orphaned.go", "return v1alpha1.GateKey(job) == taint.Key", "return false",
	},
	"the sweeper leaves the own key of a gate that has another by now": {
		"orphaned.go", "return v1alpha1.GateKey(job) == taint.Key", "return true",
	},
	"somebody else's label is published over": {
		"publish.go", "case owner == \"\" && there:", "case false:",
	},
	"a result that is no label value is published": {
		"publish.go", "len(wrong) > 0 {", "len(wrong) > 100 {",
	},
	"what is not reported any more stays on the node": {
		"publish.go", "owner == s.key && !wanted", "owner == s.key && !wanted && owner == \"\"",
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
		"attempt.go", "	if e.outcome == record.Disrupted {\n", "	r.Rerun = s.isRerun(node, pod.Revision)\n	if e.outcome == record.Disrupted {\n",
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
		"maintenance.go", "case !w.Unavailable && s.unavailableNodes >= s.maxUnavailableNodes && !s.rollout.joinedAfterStable(w.node):", "case false:",
	},
	"nodes that are not Ready do not count as away": {
		"maintenance.go", "w.Unavailable = w.slot || w.node.Unschedulable || w.node.Ready != corev1.ConditionTrue", "w.Unavailable = w.slot || w.node.Unschedulable || w.node.Ready == corev1.ConditionTrue && false",
	},
	"nodes that are cordoned do not count as away": {
		"maintenance.go", "w.Unavailable = w.slot || w.node.Unschedulable || w.node.Ready != corev1.ConditionTrue", "w.Unavailable = w.slot || w.node.Ready != corev1.ConditionTrue",
	},
	"the task does not wait for the drain": {
		"maintenance.go", "\tcase look.empty:\n\t\ts.begin(w)\n", "\tcase look.empty, !look.late:\n\t\ts.begin(w)\n",
	},
	"a node is not cordoned before the task": {
		"maintenance.go", "return !s.cordonedForUs(node) && s.cordons.cordon(node) != nil", "return false",
	},
	"the node of the manager does not wait for the others": {
		"maintenance.go", "case s.comesLast(w):", "case false:",
	},
	"a cordon before the task stays when it does not come to run": {
		"onfailure.go", "w.State == Excluded, s.wasPrepared(w.node):", "w.State == Excluded:",
	},
	"a cordon before the task stays after the node has failed": {
		"maintenance.go", "return !w.rollbackFinished // what", "return true // what",
	},
	"a task that was disrupted counts as never begun": {
		"maintenance.go", "r.NeverStarted = prev.NeverStarted // ", "// ",
	},
	"a drain in vain forgets the rollback": {
		"maintenance.go", "		r.Rollback = prev.Rollback\n	} else", "	} else",
	},
	"a dependency is not waited for": {
		"start.go", "\tif before == \"\" {\n", "\tif true {\n",
	},
	"a budget that is used up is no reason to say so": {
		"conditions.go", "s.waitsFor(causeMaxUnavailable) &&", "false &&",
	},
}
