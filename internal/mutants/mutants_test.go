// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package mutants_test

import (
	"testing"

	_ "github.com/everynode/everynode/internal/nodejob/plan" // so that go test knows the files of the package: see planner
)

func TestEachMistakeInThePlannerIsFound(t *testing.T) {
	planner{
		pkg: "internal/nodejob/plan", histories: "6000", mutants: merge(mutants, hardening, confirming),
		byWorlds: map[string]string{
			"canary":           "suspend is ignored",
			"three_nodes":      "later steps start with the first",
			"rollback":         "a rollback that succeeded runs again",
			"deletion":         "a deleted NodeJob removes a record without the rollback",
			"maintenance":      "the task does not wait for the drain",
			"reboot":           "the check after a reboot is left out",
			"check_before":     "a node is cordoned before its check has answered",
			"expires":          "a task starts although its check of spec.expires has not answered",
			"audit":            "an audit records each answer as a yes",
			"confirm":          "a node is confirmed before its kubelet has responded",
			"drift":            "an answer of a node that is done sets its label",
			"reruns":           "a reboot does not start a rerun",
			"depends_on":       "a dependency is ignored",
			"gate":             "a success leaves the gate closed",
			"shared_gate":      "the gate opens while another NodeJob with the same gate is pending",
			"budget":           "a node is disrupted without a claim",
			"window":           "a run starts that can end after the window",
			"namespace":        "attempts start in a namespace that is not allowed",
			"compromised_node": "a record that is rejected keeps its slot forever",
			"tenant":           "a status that a user has written is believed",
		},
		byHistories: map[string][]string{
			"TestAuditHistories": {
				"an audit records each answer as a yes",
				"an audit has slots",
			},
			"TestExpiryHistories": {
				"a task starts although its check of spec.expires has not answered",
				"a check of spec.expires that fails itself ends the task",
				"a yes of an earlier boot counts",
				"an answer about another revision counts",
				"a node is Expired before its rollback",
				"what an earlier revision did is forgotten when the task expires",
				"a node is not asked after a reboot",
				"a node is not asked each period",
				"an Expired node stays Expired after a no",
				"a node reruns the task after its yes",
				"the record of a run forgets the answer",
				"spec.expires.at is ignored",
			},
			"TestHistoriesOfConfirmations": {
				"a node is confirmed before its kubelet has responded",
				"the task is retried on a node that has reverted",
				"the rollback runs again on a node that has reverted",
				"a revert of a pod that was deleted meanwhile is a disruption",
			},
		},
	}.test(t)
}

var mutants = map[string]mutant{
	"a run that disrupts its node is not held after its spec has changed": {
		"budget.go", "\tcase w.disrupted:\n\t\treturn true\n", "",
	},
	"a node is asked two questions at a time": {
		"ask.go", " && !w.preparing && !w.checking", " && !w.preparing",
	},
	"a task starts although its check of spec.expires has not answered": {
		"expires.go", "\tif needed {\n\t\treturn false\n\t}\n\tif b", "\tif needed || true {\n\t\treturn false\n\t}\n\tif b",
	},
	"a check of spec.expires that fails itself ends the task": {
		"expires.go",
		"is := record.Asked{Answer: e.answer,",
		"is := record.Asked{Answer: map[bool]record.Answer{true: record.AnswerYes}[e.answer != record.AnswerNo],",
	},
	"a yes of an earlier boot counts": {
		"expires.go", "if differ(task.BootID(pod.Machine), node.BootID) {", "if false {",
	},
	"an answer about another revision counts": {
		"attempt.go", "IsZero() || pod.Revision != a.in.Revision", "IsZero()",
	},
	"a node is Expired before its rollback": {
		"expires.go", "return rec == nil || ea.replaced(node) || rec.NeverStarted ||", "return true ||",
	},
	"what an earlier revision did is forgotten when the task expires": {
		"expires.go", "(r.NeverStarted || rolledBack) &&", "(true || rolledBack) &&",
	},
	"a node is not asked after a reboot": {
		"expires.go", "case differ(e.BootID, node.BootID):", "case false:",
	},
	"a node is not asked each period": {
		"expires.go", "due.IsZero() || j.in.Now.Before(due)", "true",
	},
	"an Expired node stays Expired after a no": {
		"expires.go", "r.IsExpired() && answer.Answer", "false && answer.Answer",
	},
	"a node reruns the task after its yes": {
		"expires.go", "if !ea.isOver(w.node) || known.done", "if !ea.isOver(w.node) || !known.done || known.done",
	},
	"the record of a run forgets the answer": {
		"attempt.go", "prev.RemovedLabels, a.expiryOf(node, pod.Revision)", "prev.RemovedLabels, nil",
	},
	"spec.expires.at is ignored": {
		"expires.go", "e.At != nil && !p.in.Now.Before(e.At.Time)", "false",
	},
	"the rollback of a success does not end it": {
		"expires.go", "(j.isOver(node) || node.On.Record.Outcome == record.Succeeded)", "false",
	},
	"an outcome is recorded only when the pod has ended": {
		"attempt.go", "case pod.ended() || pod.Concluded:", "case pod.ended():",
	},
	"a pod is released before it has ended": {
		"recording.go", "a.Ending = pod.Concluded && !pod.over()", "a.Ending = false",
	},
	"a recorded pod is released before it has ended": {
		"retainpods.go", "if pod.over() || !onRecord(pod, node) {", "if true {",
	},
	"a pod that never ends is never released": {
		"retainpods.go", "as.in.Now.Before(ends) {", "!ends.IsZero() {",
	},
	"a node starts before its recorded pod has ended": {
		"retainpods.go", "as.in.Now.Before(ends) {\n\t\tw.noteTerminating(pod.Runs, time.Time{})\n", "as.in.Now.Before(ends) {\n",
	},
	"a node waits for a pod that is released in the background": {
		"nodeplan.go", "return w.State == Waiting || w.State == Running || w.rollbackPending", "return false",
	},
	"a recorded pod is recorded again from a later status": {
		"attempt.go", "case a.isRecorded(pod, node):", "case a.isRecorded(pod, node) && (!pod.ended() || pod.succeeded()):",
	},
	"a record that a user removed while the pod ends is written again": {
		"attempt.go", "|| pod.RecordedOn == node.UID ||", "||",
	},
	"the phase of a pod counts more than what its task has reported": {
		"plan.go", "(p.Exit.OwnWord || p.Concluded)", "p.Exit.OwnWord",
	},
	"maxConcurrent has no maximum": {
		"capacity.go", "return min(scaled(value, matched, 1, roundDown), maxSlots)", "return scaled(value, matched, 1, roundDown)",
	},
	"running pods do not count against maxConcurrent": {
		"capacity.go", "if !c.rollout.joinedAfterStable(w.node) {\n\t\t\tc.taken++", "if false {\n\t\t\tc.taken++",
	},
	"every node counts as joined after the revision was stable": {
		"rollout.go", "!ro.stableAt.IsZero() && node.Created.After(ro.stableAt)", "!ro.stableAt.IsZero()",
	},
	"one more retry than the limit": {
		"planner.go", "case known.failures > as.retryLimit():", "case known.failures > as.retryLimit()+1:",
	},
	"a disruption counts as an attempt": {
		"attempt.go", "a.isRerun(node, pod.Revision), failures\n", "a.isRerun(node, pod.Revision), failures+1\n",
	},
	"the results of the previous revision are forgotten": {
		"recording.go", "record.PreviousTo(node.On.Record, &r)", "nil",
	},
	"the end of a rollback is listed as an end of the task": {
		"recording.go",
		"record.EarlierThan(node.On.Record, &r, pod.Runs == task.Rollback)",
		"record.EarlierThan(node.On.Record, &r, false)",
	},
	"one failed node more than maxFailures": {
		"maxfailures.go", "ro.stopped = ro.failed > ro.mayFail ||", "ro.stopped = ro.failed > ro.mayFail+1 ||",
	},
	"failed nodes that were deleted do not count": {
		"maxfailures.go", "case !wasPresent(&c):\n\t\t\tgone++\n", "case !wasPresent(&c):\n\t\t\tgone += 0\n",
	},
	"a replaced machine of the same Node hides a failure": {
		"maxfailures.go", "there && !(onMachineChange(ro.in.Job) && differ(machine, n.MachineID))", "there && machine == machine",
	},
	"the canaries are chosen in each pass": {
		"steps.go", "case c.nodes[i].ranRevision && (c.nodes[i].State != Done || c.nodes[i].succeeded):", "case false:",
	},
	"later steps start with the first": {
		"rollout.go", "w.step <= min(ro.current, ro.ceiling)", "w.step <= len(ro.steps)",
	},
	"promoteTo is no ceiling": {
		"steps.go", "ro.ceiling = max(ro.indexOf(spec.PromoteTo), 0)", "_ = spec",
	},
	"a step passes without a success": {
		"rollout.go", "return done > 0\n", "return true\n",
	},
	"the soak ends at once": {
		"rollout.go", "if ro.in.Now.Before(until) {", "if false {",
	},
	"a soak ignores a node that is not Ready": {
		"rollout.go", "case len(sick) == 0:\n", "case true:\n",
	},
	"an unreachable node gets a pod": {
		"start.go", "case node.unreachable():", "case false:",
	},
	"a node that is unreachable after a failure does not count": {
		"planner.go", "case known.failures > 0 && node.unreachable():", "case false:",
	},
	"a node is written to twice in a pass": {
		"onfailure.go", "!w.written {", "true {",
	},
	"a node with a terminating pod gets another one": {
		"start.go", "if !r.terminating {", "if true {",
	},
	"suspend is ignored": {
		"start.go", "if why == \"\" || !j.in.Job.DeletionTimestamp.IsZero() {", "if true {",
	},
	"a retained pod is recorded again": {
		"attempt.go", " || (pod.Recorded && !pod.Finalized && a.in.Job.Spec.RetainPodsSeconds > 0)", "",
	},
	"a retained pod blocks the next one": {
		"retainpods.go", "if !w.start.ready() || len(w.retained) == 0 ||", "if true ||",
	},
	"a pod is retained forever": {
		"retainpods.go", "onRecord(pod, w.node) && as.in.Now.Before(until)", "onRecord(pod, w.node) && !until.IsZero()",
	},
	"an unreachable node keeps its slot past the deadline": {
		"attempt.go", "if node.unreachable() {\n\t\treturn a.ended", "if false {\n\t\treturn a.ended",
	},
	"a pod is released before its record": {
		"planner.go", "\t\tcase podEnded:\n", "\t\tcase podEnded:\n\t\t\tas.do(FinalizePod{Pod: *pod})\n",
	},
	"a success does not count if the pod was deleted after it": {
		"plan.go", "return p.Phase == corev1.PodSucceeded ||", "return (p.Phase == corev1.PodSucceeded && p.DeleteRequested.IsZero()) ||",
	},
	"a taint is ignored": {
		"planner.go", "taint != nil {", "taint != nil && false {",
	},
	"another machine's success counts": {
		"rerun.go", "if r.replaced(node) {\n\t\t// A run", "if false {\n\t\t// A run",
	},
	"a cordon of another owner is taken over": {
		"onfailure.go", "case len(node.CordonedBy) == 0 || co.cordonedForUs(node):", "case co.cordonedForUs(node):",
	},
	"a node is uncordoned that another NodeJob has cordoned": {
		"onfailure.go", "return key == co.key })\n\tif", "return key != \"\" })\n\tif",
	},
	"a cordon is not removed": {
		"onfailure.go", "case leave, w.State == Done, w.State == Excluded, q.wasPrepared(w.node):", "case leave, q.wasPrepared(w.node):",
	},
	"the drain does not wait for the rollback": {
		"onfailure.go", "if drain && w.rollbackFinished && q.mayDrain", "if drain && q.mayDrain",
	},
	"a rollback that succeeded runs again": {
		"rollback.go", "return rollbackState{done: true}", "return rollbackState{}",
	},
	"a rollback is retried forever": {
		"rollback.go", "case is.failures > as.retryLimit():", "case false:",
	},
	"a run that was left for another revision has its slot again": {
		"rerun.go", ", r.leavesRun(rec):", ":",
	},
	"a NodeJob waits for a budget that it uses up itself": {
		"conditions.go", "case n.Running == 0 && su.waitsForItself():", "case false:",
	},
	"a run begins where another tool has evicted the seat": {"inuse.go", "return b.Drained &&", "return false && b.Drained &&"},
	"a run begins where another tool has evicted the task": {
		"inuse.go", "case wasEvicted(node) && node.Unschedulable:", "case false:",
	},
	"a node that another tool has rebooted stays in use": {"inuse.go", " && rec.BootID == node.BootID", ""},
	"a node in use counts as quarantined":                {"conditions.go", " && w.cause != causeInUse", ""},
	"a run of a NodeJob that holds the node waits for another tool": {
		"inuse.go", " && !c.hasBegun(node)", "",
	},
	"the annotation that takes a node over has no effect": {"inuse.go", " || c.takesOver(node.Name)", ""},
	"a node is not cordoned again after another tool":     {"maintenance.go", " || wasEvicted(node)", ""},
	"a node that was cordoned again is in use": {
		"maintenance.go", "if wasEvicted(w.node) {", "if false {",
	},
	"a node is uncordoned while another tool works there":      {"onfailure.go", " || w.cause == causeInUse", ""},
	"an eviction is of the boot for which the pod was created": {"attempt.go", "firstOf(node.BootID, r.BootID)", "r.BootID"},
	"a run that waits for a budget keeps its hold":             {"budget.go", "return p.in.Budgets[w.node.UID].Unknown", "return true"},
	"a node on which a pod ends is not held": {
		"budget.go",
		"case w.slot, w.claims, w.taskTerminating:",
		"case w.slot, w.claims:",
	},
	"a requested retry is not checked before": {
		"checkbefore.go",
		" && !rec.IsIdle() && !j.void(rec)\n",
		" && !rec.IsIdle()\n",
	},
	"a node is asked while its rollback is pending": {
		"expires.go",
		" || w.start.ready() || w.rollbackPending ||",
		" || w.start.ready() ||",
	},
	"a drifted node that is to be repaired is settled": {"affects.go", "return p.repairs(rec) || slices", "return slices"},
	"a reboot forgets the drift": {
		"ondrift.go",
		"case record.Disrupted, record.Rebooting, record.Needed:",
		"case record.Disrupted, record.Needed:",
	},
	"a retry keeps the nodes at risk": {
		"maxfailures.go",
		"r.UnrecordedFailures, r.AtRisk, r.Retry = nil, nil, ro.retry",
		"r.UnrecordedFailures, r.Retry = nil, ro.retry",
	},
	"the end of a reboot that is rejected keeps its slot": {"reboot.go", "if as.losesSlot(t.Since) {", "if false {"},
	"a label that stays requests another run": {
		"recording.go",
		"{ _, is := node.Labels[key]; return is }",
		"{ return false }",
	},
	"a drain evicts the pods of another tool": {"maintenance.go", "if arrived(pods[i]) {", "if false {"},
	"a NodeJob that is deleted uses no nodes": {
		"deletion.go", "if !used {", "if true || !used {",
	},
	"a NodeJob is removed while its pods disrupt limited nodes": {
		"deletion.go", "case len(used) > 0:", "case false:",
	},
	"a deleted NodeJob removes a record without the rollback": {
		"deletion.go", "if rec == nil || rec.NeverStarted", "if true || rec.NeverStarted",
	},
	"the record of a rolled back node is never removed": {
		"deletion.go", "as.removeMetadata(w.node)\n\t\treturn", "return",
	},
	"a success leaves the gate closed": {
		"recording.go", "c.Taints = rec.gate.opened(node, rec.allowsNode(node))", "c.Taints = nil",
	},
	"the gate opens before the task has succeeded": {
		"gate.go", "case p.gate.spec == nil, w.State == Done:", "case p.gate.spec == nil, w.State != Excluded:",
	},
	"the gate opens while another NodeJob with the same gate is pending": {
		"gate.go", "if g.pending(&g.sharers[i], node) {", "if g.pending(&g.sharers[i], node) && false {",
	},
	"the gate stays closed on a node that does not match": {
		"gate.go", "mark.Taints = p.gate.opened(node, false)", "mark.Taints = nil",
	},
	"a gate of another owner is opened on a node that does not match": {
		"gate.go", "mark.Taints = p.gate.opened(node, false)", "mark.Taints = p.gate.opened(node, true)",
	},
	"the taints of others are removed with the gate": {
		"gate.go", "return g.holds(&t) && (all || g.own || t.Value == v1alpha1.GateValue)", "return true || all",
	},
	"nodes that are older than the gate are closed": {
		"gate.go", "return node.Created.After(g.since.Time) && g.isNewNode(node)", "return g.isNewNode(node)",
	},
	"taints are written without a resource version": {
		"onfailure.go", "\tc.ResourceVersion = node.ResourceVersion\n", "",
	},
	"a deletion leaves the gate closed": {
		"deletion.go",
		"p.cordons.uncordon(node), p.gate.taintsWithoutGate(node), p.publisher.unpublish(node)",
		"p.cordons.uncordon(node), nil, p.publisher.unpublish(node)",
	},
	"a deletion does not remove published results": {
		"deletion.go",
		"p.cordons.uncordon(node), p.gate.taintsWithoutGate(node), p.publisher.unpublish(node)",
		"p.cordons.uncordon(node), p.gate.taintsWithoutGate(node), nil",
	},
	"a deletion that retains the records does not remove the cordon": {
		"deletion.go", "mark.Cordon = p.cordons.uncordon(node); mark.Cordon != nil", "mark.Cordon = nil; mark.Cordon != nil",
	},
	"the sweeper removes the gate of an existing NodeJob": {
		"orphaned.go", "return v1alpha1.GateKey(job) == taint.Key", "return false",
	},
	"the sweeper does not remove the default key of a gate that has another key now": {
		"orphaned.go", "return v1alpha1.GateKey(job) == taint.Key", "return true",
	},
	"a label of another owner is overwritten": {
		"publish.go", "case c.Owner == \"\" && !there:", "case c.Owner == \"\":",
	},
	"a node is cordoned before its check has answered": {
		"checkbefore.go", "task.ChecksFirst(j.in.Job) && !known.needed", "false && !known.needed",
	},
	"the answer of another revision or of an earlier run counts": {
		"checkbefore.go",
		"rec.CheckBefore == \"\" && !rec.IsIdle() && !j.void(rec)",
		"rec.CheckBefore == \"\" && !j.void(rec)",
	},
	"a run on another machine is continued without a check": {
		"checkbefore.go", "rec != nil && !j.replaced(node) &&", "rec != nil &&",
	},
	"a check that says no is taken for a yes": {
		"checkbefore.go",
		"return end{record.Needed, \"\", exit.Message, record.AnswerNo}",
		"return end{record.Succeeded, v1alpha1.ReasonAlreadyDone, exit.Message, record.AnswerYes}",
	},
	"a check that fails itself is taken for a no": {
		"checkbefore.go", "outcome.ReasonTaskFailed && answersNo(pod.Runs, exit.Code)", "outcome.ReasonTaskFailed",
	},
	"an audit records each answer as a yes": {
		"audit.go", "Answer: answer, At:", "Answer: record.AnswerYes, At:",
	},
	"an audit has slots": {
		"checkbefore.go", "return task.IsAudit(j.in.Job) || task.ChecksFirst", "return task.ChecksFirst",
	},
	"images that are not there count as pulled": {
		"checkbefore.go", " && p.Exit.Reason == outcome.ReasonImagesPulled", "",
	},
	"a check that fails itself counts as a failed attempt": {
		"checkbefore.go",
		"return end{record.Disrupted, reason, message, record.AnswerError}",
		"return end{record.Failed, reason, message, record.AnswerError}",
	},
	"the attempts of a record count its check": {
		"checkbefore.go", "r.CheckBefore, r.Attempts = answer, a.failuresBefore(pod, node)", "r.CheckBefore = answer",
	},
	"what an earlier revision did is forgotten after a check": {
		"attempt.go", "a.replaced(node) || prev.NeverStarted {", "a.replaced(node) || true {",
	},
	"a node that is already done is a canary": {
		"assumedone.go", "if next.IsAnswer() && next.FirstStartedAt.IsZero() {", "if false {",
	},
	"a rollback starts beside a check": {
		"planner.go", "w.terminating || w.checking", "w.terminating",
	},
	"a check takes a slot": {
		"planner.go", "w.slot = w.slot || !pod.Runs.Asks()", "w.slot = true",
	},
	"a pod that was not asked answers for its task": {
		"checkbefore.go", "pod.Runs != task.Task || !pod.ChecksBefore ||", "pod.Runs != task.Task ||",
	},
	"a drift is repaired although it is only reported": {
		"ondrift.go", "p.in.Job.Spec.Task.Check.OnDrift == v1alpha1.DriftRun && ", "",
	},
	"an answer of a node that is done sets its label": {
		"recording.go", "a.KeepLabel, a.ResourceVersion, a.Was = true,", "a.KeepLabel, a.ResourceVersion, a.Was = false,",
	},
	"a node that is done is asked too rarely": {
		"ask.go", "slotAfter(last.Add(time.Second), q.period,", "slotAfter(last.Add(time.Second), 8*q.period,",
	},
	"a check that fails itself ends a drift": {
		"../record/asked.go", "is.NoSince, is.ErrorSince = a.NoSince, a.ErrorSince", "is.ErrorSince = a.ErrorSince",
	},
	"a node that is done is asked although it has a taint": {
		"ask.go", "if as.untolerated(w.node, as.tolerations) != nil {", "if false {",
	},
	"a node is assumed to be done again": {
		"assumedone.go", "!node.On.Present && ", "",
	},
	"a node that joins later is assumed to be done": {
		"assumedone.go", "node.Created.Before(as.in.Job.CreationTimestamp.Time) &&", "",
	},
	"a node that is assumed to be done is a canary": {
		"../record/done.go", " && !r.IsAssumed()", "",
	},
	"a node that was assumed to be done succeeds before its first run has ended": {
		"rerun.go", " && !node.On.Record.Assumed", "",
	},
	"nodes start while another one is retried alone": {
		"rollout.go", "return ro.aloneBlock(w)", "return block{}",
	},
	"nodes wait for a retried node of a later step": {
		"runsalone.go", "\t\treturn !b.blocks()\n", "\t\treturn !b.blocks() || true\n",
	},
	"nodes wait for a retried node that has failed": {
		"recording.go", "!a.Final && rec.staysAlone(node, r)", "rec.staysAlone(node, r)",
	},
	"a requested retry of one node is ignored": {
		"rerun.go", "rec.RetryRequested || (", "(",
	},
	"a label with another value is adopted": {
		"adopt.go", "policy == v1alpha1.AdoptSameValue && value == result", "policy == v1alpha1.AdoptSameValue",
	},
	"a label that another NodeJob publishes is adopted": {
		"publish.go", "case c.Owner == \"\" && adopts(", "case adopts(",
	},
	"an invalid label value is published": {
		"publish.go", "len(wrong) > 0 {", "len(wrong) > 100 {",
	},
	"a published result that is no longer reported stays on the node": {
		"publish.go", "owner == p.key && !wanted", "owner == p.key && !wanted && owner == \"\"",
	},
	"a rerun after a reboot repeats forever": {
		"rerun.go", "case r.in.Job.Spec.Rerun.OnReboot && differ(rec.BootID, node.BootID):", "case r.in.Job.Spec.Rerun.OnReboot:",
	},
	"a reboot does not start a rerun": {
		"rerun.go", "case r.in.Job.Spec.Rerun.OnReboot && differ(rec.BootID, node.BootID):", "case false:",
	},
	"a node starts without its value": {
		"inputs.go", "j.nodeValues(r.node); v.Reason != \"\" {", "j.nodeValues(r.node); v.Reason != \"\" && r.phase != task.Task {",
	},
	"a change of a value does not start a rerun": {
		"rerun.go", "case rerun.OnNodeFieldChange && inputsChanged(", "case false && inputsChanged(",
	},
	"a change of a value starts a rerun although onNodeFieldChange is not set": {
		"rerun.go", "case rerun.OnNodeFieldChange && inputsChanged(", "case inputsChanged(",
	},
	"a change of a value starts a rerun without a pause": {
		"inputs.go", "at := r.past(rec.EndedAt()).Add(inputPause)", "at := r.past(rec.EndedAt())",
	},
	"a value is compared with that of another revision": {
		"rerun.go", "inputsChanged(r.in.Job, node, rec) && rec.Revision == r.in.Revision", "inputsChanged(r.in.Job, node, rec)",
	},
	"the record has the value at the end of a run": {
		"attempt.go", "Inputs:    pod.Inputs,", "Inputs:    a.nodeValues(node).Hash(),",
	},
	"a change of a value does not wake the NodeJob": {
		"affects.go", " || c.ofInputs(&job.Spec)", "",
	},
	"a node is drained before its rollback, which waits for a value": {
		"rollback.go", "b.cause == causeNode && as.isDeleted()", "b.cause == causeNode",
	},
	"a check after a reboot starts without its value": {
		"reboot.go", "nodeNotAllowed, nodeValueMissing}", "nodeNotAllowed}",
	},
	"a schedule does not wait for half an interval": {
		"rerun.go", "time.Duration((int64(period)+1)/2)*time.Second", "0",
	},
	"a disrupted rerun counts as done": {
		"../record/done.go", "return r.Rerun && r.Outcome != Failed", "return false",
	},
	"a failed node that is skipped is retried": {
		"attempt.go",
		"\tif e.outcome == record.Disrupted {\n",
		"\tr.Rerun = a.isRerun(node, pod.Revision)\n\tif e.outcome == record.Disrupted {\n",
	},
	"a node that reboots has no slot": {
		"reboot.go", "node, rec := w.node, w.node.On.Record\n\tw.slot = true", "node, rec := w.node, w.node.On.Record",
	},
	"a reboot has no time limit": {
		"reboot.go", "\tif !as.in.Now.Before(deadline) {\n\t\t// The pod", "\tif false {\n\t\t// The pod",
	},
	"the boot for which a pod was created is recorded instead of the one in which it ran": {
		"reboot.go", "from := firstOf(node.BootID, task.BootID(pod.Machine))", "from := firstOf(task.BootID(pod.Machine), node.BootID)",
	},
	"the check runs in the boot that the task ran in": {
		"reboot.go", "if !rebooted(node) && as.rebootWanted() {", "if false {",
	},
	"a pod that reboots the node is created when the node is in another boot": {
		"reboot.go", "if !rebooted(node) && as.rebootWanted() {", "if as.rebootWanted() {",
	},
	"a node that has just become Ready counts as settled": {
		"reboot.go", "case as.in.Now.Before(until):", "case false:",
	},
	"a node settles from the first time at which it was Ready": {
		"reboot.go", "return !sameSecond(node.ReadySince, noted.ReadySince) ||", "return",
	},
	"the check after a reboot is left out": {
		"reboot.go", "case as.in.Job.Spec.Task.Check == nil:", "case true:",
	},
	"a failed check counts as passed": {
		"reboot.go", "r.ExitCode, r.Reboot = record.Failed, e.Reason", "r.ExitCode, r.Reboot = record.Succeeded, e.Reason",
	},
	"a success is recorded with the last observed boot": {
		"reboot.go", "firstOf(task.BootID(pod.Machine), node.BootID), e.Message", "node.BootID, e.Message",
	},
	"maxUnavailable is ignored": {
		"maintenance.go",
		"case !w.Unavailable && c.unavailableNodes >= c.maxUnavailableNodes && !c.rollout.joinedAfterStable(w.node):",
		"case false:",
	},
	"nodes that are not Ready do not count as unavailable": {
		"maintenance.go",
		"w.Unavailable = w.slot || w.node.Unschedulable || w.node.Ready != corev1.ConditionTrue",
		"w.Unavailable = w.slot || w.node.Unschedulable || w.node.Ready == corev1.ConditionTrue && false",
	},
	"cordoned nodes do not count as unavailable": {
		"maintenance.go",
		"w.Unavailable = w.slot || w.node.Unschedulable || w.node.Ready != corev1.ConditionTrue",
		"w.Unavailable = w.slot || w.node.Ready != corev1.ConditionTrue",
	},
	"the task does not wait for the drain": {
		"maintenance.go", "\tcase look.empty:\n\t\tp.beginTask(w)\n", "\tcase look.empty, !look.late:\n\t\tp.beginTask(w)\n",
	},
	"a drain takes many nodes at a time by default": {
		"maintenance.go", "const byDefault = 1", "const byDefault = 9",
	},
	"a node is not cordoned before the task": {
		"maintenance.go", "return (!p.cordonedForUs(node) || wasEvicted(node)) && p.cordons.cordon(node) != nil", "return false",
	},
	"the node of the manager does not wait for the others": {
		"maintenance.go", "case c.comesLast(w):", "case false:",
	},
	"a cordon before the task stays if the task does not start": {
		"onfailure.go", "w.State == Excluded, q.wasPrepared(w.node):", "w.State == Excluded:",
	},
	"a cordon before the task stays after the node has failed": {
		"onfailure.go", "return !w.rollbackFinished // what", "return true // what",
	},
	"a task that was disrupted counts as never started": {
		"attempt.go", "prev.Outcome.Done() || prev.NotStarted || !prev.HasRun(r.Revision)", "true",
	},
	"a drain that timed out drops the recorded rollback": {
		"attempt.go", "r.Rollback, r.NotStarted = rb, true", "r.NotStarted = true",
	},
	"a dependency is ignored": {
		"start.go", "\tif before == nil {\n", "\tif true {\n",
	},
	"an exhausted maxUnavailable is not reported": {
		"conditions.go", "su.waitsFor(causeMaxUnavailable) &&", "false &&",
	},
}
