// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package mutants_test

import "maps"

// hardening are mistakes in the environment of honest Linux workers: joining nodes, control planes, skewed clocks,
// schedules, users, refusals, budgets, and a compromised node.
var hardening = map[string]mutant{
	"a failure within the time limit that is reported after it is DeadlineExceeded": {
		"attempt.go", "if a.overran(pod) && !a.failedInTime(pod) {", "if a.overran(pod) {",
	},
	"an interruption within the time limit that is reported after it is a failure of the task": {
		"attempt.go", "exit != nil && !exit.interrupted() && failedBefore(", "exit != nil && failedBefore(",
	},
	"a status that a user has written is believed": {
		"../../seal/seal.go", "if hmac.Equal([]byte(k.NodeJob(job)), []byte(job.Status.ControllerState.Seal)) {", "if true {",
	},
	"a pod that a user has created is an attempt": {
		"../../seal/seal.go", "return hmac.Equal([]byte(k.Pod(pod)), []byte(pod.Annotations[v1alpha1.SealAnnotation]))", "return true",
	},
	"annotations that a user has changed are believed": {
		"../../seal/seal.go", "range []map[string]string{pod.Labels, pod.Annotations}", "range []map[string]string{pod.Labels}",
	},
	"a NodeJob runs on the nodes of other teams": {
		"select.go", "return j.allowsNode(node) && ", "return ",
	},
	"a run goes on on the nodes of other teams": {
		"reboot.go", "block{nodeCannotRun, nodeNotAllowed, nodeValueMissing}", "block{nodeCannotRun, nodeValueMissing}",
	},
	"a deletion rolls back on the nodes of other teams": {
		"start.go", "if j.allowsNode(r.node) {", "if j.allowsNode(r.node) || j.isDeleted() {",
	},
	"the nodes of other teams are cordoned": {
		"onfailure.go", "case w.exhausted && !leave && !q.serves(w.node):", "case w.exhausted && !leave && q.notAllowed():",
	},
	"results are published on the nodes of other teams": {
		"recording.go", "\tif rec.allowsNode(node) {\n\t\tc.Publish", "\tif true {\n\t\tc.Publish",
	},
	"a deletion opens the gates of others on the nodes of other teams": {
		"deletion.go", "g.allowsNode(node) && ", "",
	},
	"a gate waits for a NodeJob that must not run on the node": {
		"depend.go", "!hold.AllowsNode(p.AllowedNodes, node.Labels) ||", "",
	},
	"a label that limits a namespace wakes no NodeJob": {
		"affects.go", " || c.ofRestriction() ||", " ||",
	},
	"a rollback starts without its files": {
		"nodeproblem.go", "return !o.AllPhases", "return true",
	},
	"files that have changed are a failure of the task": {
		"attempt.go",
		"return e.Reason == outcome.ReasonDisrupted || e.Reason == outcome.ReasonFilesChanged",
		"return e.Reason == outcome.ReasonDisrupted",
	},
	"a suspended dependency that has never run holds only its nodes": {
		"depend.go", "p.holdsAll || j.pending(p, node)", "j.pending(p, node)",
	},
	"the label of a dependency counts as a run": {
		"depend.go", "return n.OnPeers[i].Record != nil", "return n.OnPeers[i].Label != \"\"",
	},
	"an annotation of a template asks for a reboot": {
		"../task/pod.go", "return prefix == v1alpha1.Group || strings.HasSuffix(prefix, \".\"+v1alpha1.Group)", "return prefix == \"\"",
	},
	"a node reboots although the spec does not ask for it any more": {
		"reboot.go", "!rebooted(node) && as.rebootWanted()", "!rebooted(node)",
	},
	"a run ends with a reboot that the spec does not ask for any more": {
		"reboot.go", "if !a.rebootWanted() {", "if false {",
	},
	"a node that has joined and carries workloads takes no slot": {
		"rollout.go", "&& !doneBefore && ro.gate.withoutWorkloads(node)", "&& !doneBefore",
	},
	"a gate that was closed late counts as closed from the beginning": {
		"gate.go", "return g.holds(&t) && t.TimeAdded == nil })", "return g.holds(&t) })",
	},
	"several control plane nodes become unavailable at the same time": {
		"maintenance.go", "\tcase other != \"\":\n", "\tcase false:\n",
	},
	"a cordoned control plane node is no reason to wait": {
		"maintenance.go", "w.taskTerminating || c.cordonedElse(w.node) ||", "w.taskTerminating ||",
	},
	"nodes that only run etcd are not of the control plane": {
		"steps.go", "return runsControlPlane || runsEtcd", "return runsControlPlane || runsEtcd && false",
	},
	"scripts run on every operating system": {
		"select.go", "task.FitsOS(j.self.OS, node.Labels) &&", "(task.FitsOS(j.self.OS, node.Labels) || true) &&",
	},
	"a backoff uses the node's clock": {
		"rerun.go",
		"return rec.Attempts, r.after(rec.EndedAt(), rec.Attempts)",
		"return rec.Attempts, r.after(rec.FinishedAt, rec.Attempts)",
	},
	"a schedule uses the node's clock": {
		"rerun.go", "due := r.nextDue(node, r.past(rec.EndedAt()))", "due := r.nextDue(node, rec.FinishedAt)",
	},
	"times from a node are not checked": {
		"attempt.go", "r.StartedAt, r.FinishedAt = a.times(pod, known)", "r.StartedAt, r.FinishedAt = pod.Started, known.Finished",
	},
	"a node is not skipped while an attempt runs": {
		"recording.go", "case rec.skipped(node, r.Revision):", "case false:",
	},
	"a success removes the label that skips a later revision": {
		"recording.go", "a.KeepLabel = a.Record.Outcome == record.Succeeded && rec.skipped(node, a.Record.Revision)", "a.KeepLabel = false",
	},
	"a node stays done with a revision after the task of another one has started": {
		"recording.go", "return r.MayHaveStarted() && ofAnother", "return false",
	},
	"a label that the user sets at the last moment is dropped": {
		"recording.go", "pod.UID == \"\" || a.DropLabel ||", "pod.UID == \"\" ||",
	},
	"a label that the user removes and sets again is that of the earlier run": {
		"recording.go", " || node.On.Record.LabelRemoved {", " {",
	},
	"a record that the user removes at the last moment is written again": {
		"recording.go", "a.DropLabel || rec.buildsOn(r) {", "a.DropLabel {",
	},
	"failures from before a record was removed count": {
		"attempt.go",
		"\trec := node.On.Record\n\tif rec == nil || rec.Revision != pod.Revision",
		"\trec := node.On.Record\n\tif rec == nil {\n\t\treturn pod.Attempt - 1\n\t}\n\tif rec.Revision != pod.Revision",
	},
	"a node that reruns is not done for its step": {
		"nodeplan.go", "return w.State == Done || w.rerun", "return w.State == Done",
	},
	"nodes that rerun do not take turns": {
		"capacity.go", "\treturn w.node.On.Record.EndedAt()\n", "\treturn tried\n",
	},
	"the canaries change when they rerun": {
		"attempt.go", "a.firstStart(node, pod.Revision),", "time.Time{},",
	},
	"a node that joins in a soak may fail in it": {
		"rollout.go", "case ro.wasHarmed(w) && !chooser{ro}.joinedInSoak(i):", "case ro.wasHarmed(w):",
	},
	"a node that was not Ready before the task counts in a soak": {
		"maxfailures.go", "return !removed(w.node) && !ro.wasNotReadyBefore(w)", "return !removed(w.node)",
	},
	"a node that is being removed counts in a soak": {
		"maxfailures.go",
		"return !removed(w.node) && !ro.wasNotReadyBefore(w)",
		"return !ro.wasNotReadyBefore(w)",
	},
	"a node that failed while it was removed counts in a soak": {
		"maxfailures.go", "return !ro.wasNotReadyBefore(w) && slices", "return slices",
	},
	"a node that a user has uncordoned keeps the mark while pods are refused": {
		"onfailure.go", "q.wasPrepared(w.node) && w.node.Unschedulable:", "q.wasPrepared(w.node):",
	},
	"a closed budget is not said beside another reason": {
		"capacity.go", "if closed := c.closedBlock(w); closed.blocks() {", "if closed := c.closedBlock(w); closed.blocks() && false {",
	},
	"the deletion of a node with a problem needs no plan": {
		"affects.go", "return p.Node == node.Name })", "return p.Node == node.Name }) && false",
	},
	"a node that a user cordons is said to be drained": {
		"stage.go", "s.InProgress && w.State != Done &&", "s.InProgress &&",
	},
	"a node without a record of its quarantine starts before its seat is known": {
		"budget.go", "b.Seat == \"\" && !b.Unknown)", "b.Seat == \"\")",
	},
	"a node that is prepared is uncordoned before its seat is known": {
		"onfailure.go", "return q.waitsForStance(w) || w.ranRevision", "return w.ranRevision",
	},
	"a failed node is not remembered as removed": {
		"maxfailures.go", "if !harmed && w.node.Ready", "if !harmed && !w.failed && w.node.Ready",
	},
	"a step selects a quarantined node that has its seat": {
		"steps.go", "\tcase c.in.Budgets[node.UID].Seat != \"\":\n\t\treturn 1\n", "",
	},
	"a node is asked whether the task has expired only in its step": {
		"rollout.go", " || w.start.phase == task.CheckExpires\n", "\n",
	},
	"a node that is not asked yet is said to need the task": {
		"expires.go",
		"return !sb.keepsRun(w.node) || rec.Expiry == nil ||",
		"return false && !sb.keepsRun(w.node) || false && rec.Expiry == nil ||",
	},
	"a step is passed while its nodes wait": {
		"rollout.go", "return st.quota != nil || ro.stepWaitsFor(w)", "return st.quota != nil",
	},
	"a healthy node that is deleted counts as failed": {
		"maxfailures.go", "if w.failed || harmed {", "if true {",
	},
	"a soak waits for no node to become Ready": {
		"rollout.go", "\tif ro.overdue(since) {\n\t\treturn true\n", "\tif true {\n\t\treturn true\n",
	},
	"a soak stands for nodes that have not soaked": {
		"rollout.go", "if len(ro.status.SoakedNodes) == 0 {\n\t\treturn\n", "if true {\n\t\treturn\n",
	},
	"a soak continues for nodes with which it has not begun": {
		"rollout.go",
		"ro.status.SoakedAt, ro.status.SoakingSince = nil, metav1.Time{}, metav1.Time{}",
		"ro.status.SoakedAt = nil, metav1.Time{}",
	},
	"a second reboot is not noticed": {
		"reboot.go", " || differ(noted.BootID, node.BootID)\n", "\n",
	},
	"the status names only one rule that blocks nodes": {
		"conditions.go", "strings.Join(held, \"; \")", "strings.Join(held[:min(len(held), 1)], \"; \")",
	},
	"a step grows with the cluster": {
		"steps.go", "if !c.joinedSince(i, c.status.StepStartedAt) {", "if !c.joinedSince(i, c.status.StepStartedAt) || true {",
	},
	"a node that joins in a soak restarts it": {
		"steps.go", "case k == c.current && c.joinedInSoak(i):", "case false:",
	},
	"a node without progress blocks the others forever": {
		"progress.go", "\tif as.overdue(since) {", "\tif false && as.overdue(since) {",
	},
	"a node on which pods are rejected comes first again": {
		"capacity.go", "\t\treturn tried\n", "\t\treturn time.Time{}\n",
	},
	"a record that is rejected keeps its slot forever": {
		"planner.go", "\tif as.overdue(since) {\n", "\tif false && as.overdue(since) {\n",
	},
	"a write of the node itself blocks the deletion forever": {
		"deletion.go", "return !forgets || !waited || sealed[a.Node]", "return true || forgets || waited || sealed[a.Node]",
	},
	"attempts start in a namespace that is not allowed": {
		"job.go", "s.obstacle, s.assumedDone = in.NotAllowed, nil", "s.assumedDone = nil",
	},
	"checks and rollbacks start in a namespace that is not allowed": {
		"nodeproblem.go",
		"case phase == task.Task, phase == task.CheckBefore, j.notAllowed():",
		"case phase == task.Task, phase == task.CheckBefore:",
	},
	"gates are closed for a namespace that is not allowed": {
		"gate.go", "case !g.serves(node), g.in.Revision", "case g.in.Revision",
	},
	"results are published for a namespace that is not allowed": {
		"nodemetadata.go", "w.State == Done && p.serves(w.node)", "w.State == Done",
	},
	"nodes are drained for a namespace that is not allowed": {
		"onfailure.go", "case w.exhausted && !leave && !q.serves(w.node):", "case false:",
	},
	"a deletion does not report that writes to a node fail": {
		"deletion.go", "\tcase len(status.troubled) > 0:\n\t\ttext", "\tcase false:\n\t\ttext",
	},
	"the second step takes over the soak of the first": {
		"rollout.go",
		"ro.status.SoakingSince, ro.status.SoakedAt, ro.status.SoakedNodes = metav1.Time{}, metav1.Time{}, nil",
		"ro.status.SoakingSince = metav1.Time{}",
	},
	"a missing file is an error of a check": {
		"checkbefore.go", "return contract.AnswersNo(int(code))", "return code == contract.CheckNo",
	},
	"a mistake in the check of a mitigation is an answer": {
		"checkbefore.go", "if phase == task.CheckExpires {", "if false {",
	},
	"a rollback undoes what has not begun": {
		"rollback.go", "rec.NeverStarted || rec.NotStarted {", "rec.NeverStarted {",
	},
	"disruptions of a rollback have no growing backoff": {
		"rollback.go", "r.after(rb.EndedAt(), rb.Disruptions)", "r.after(rb.EndedAt(), 1)",
	},
	"a terminating pod on another control plane node does not count": {
		"maintenance.go", "return w.slot || w.taskTerminating ||", "return w.slot ||",
	},
	"a rollback ignores maxUnavailable": {
		"maintenance.go", "if w.Unavailable || c.unavailableNodes < c.maxUnavailableNodes ||", "if w.Unavailable || true ||",
	},
	"a NodeJob expires before its rollback": {
		"ttl.go", "w.slot || (w.exhausted && !w.rollbackFinished)", "w.slot",
	},
	"drains before the task do not count": {
		"capacity.go", "(before && c.inPreparation(w))", "(before && false)",
	},
	"each disruption restarts the progress deadline": {
		"attempt.go", "r.DisruptedSince = prev.DisruptedSince.Add(a.idle(prev, pod))", "_ = prev.DisruptedSince",
	},
	"the time in which a NodeJob is suspended counts against a disrupted node": {
		"progress.go", "as.overdueAt(since).After(rec.EndedAt())", "false",
	},
	"the time in which a NodeJob is suspended counts as a disruption": {
		"attempt.go", "return max(0, pod.Created.Sub(a.after(prev.EndedAt(), prev.Disruptions)))", "return 0",
	},
	"a problem counts against its node while nothing is tried": {
		"progress.go", "if as.overdueAt(t.Since).After(t.TriedAt) {", "if false {",
	},
	"a NodeJob that only reboots does not show that it takes a control plane node": {
		"maintenance.go", "|| j.disrupts() && isControlPlane(node)", "",
	},
	"the label of a success without record is taken for a skip": {
		"recording.go", " && !marksSuccess(node, a.Record)", "",
	},
	"a node is disrupted without a claim": {
		"budget.go", "closed.blocks() || !b.Limited || !c.needsClaim", "true || !b.Limited || !c.needsClaim",
	},
	"a node is claimed although its budgets do not allow it": {
		"budget.go", "case !b.Allowed:", "case !b.Allowed && false:",
	},
	"a run starts that can end after the window": {
		"budget.go", "case !closes.IsZero() && c.in.Now.Add(run).After(closes):", "case !closes.IsZero() && c.in.Now.After(closes):",
	},
	"a closed budget with scope Tasks stops no task": {
		"budget.go", "if w.start.phase != task.Task || closed == nil ||", "if w.start.phase != task.Task || closed == nil || true ||",
	},
	"a failed node gets its seat back before it is cordoned": {
		"budget.go", " || p.quarantiner.willCordon(w)", "",
	},
	"a node gets its seat back between two attempts": {
		"budget.go", "case causeBackoff, causeSlot, causeTerminatingPod:", "case causeSlot:",
	},
	"a node gets its seat back while a pod is deleted that still disrupts it": {
		"retainpods.go", "if !pod.over() {", "if false {",
	},
	"a node that a user has uncordoned is reported as quarantined": {
		"conditions.go", "if w.node.Unschedulable && su.cordonedForUs", "if su.cordonedForUs",
	},
	"a task starts before the removal of the label is on record": {
		"maintenance.go", "if p.lacksLabel(w.node) {", "if false {",
	},
	"a claim outlives its run": {
		"budget.go", "return !w.endsRun && (w.slot || w.claims || p.retries(w) || p.hasBegun(w.node))", "return true",
	},
	"a node that is cordoned after a failure runs again without a claim": {
		"budget.go", "return j.isPrepared(node) && !quarantined &&", "return j.isPrepared(node) && (!quarantined || true) &&",
	},
	"the claimed node of the manager waits for nodes that cannot start": {
		"capacity.go", ".Claimed && w.node.Name != c.in.OwnNode,", ".Claimed,",
	},
	"a cordoned node with a seat is taken for claimed": {
		"budget.go", "(b.Claimed || b.Seat == \"\" && !b.Unknown)", "(b.Claimed || true)",
	},
}

// merge merges lists of mistakes.
func merge(lists ...map[string]mutant) map[string]mutant {
	all := map[string]mutant{}
	for _, list := range lists {
		maps.Copy(all, list)
	}
	return all
}
