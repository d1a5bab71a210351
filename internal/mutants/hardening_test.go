// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package mutants_test

import "maps"

// hardening are mistakes in the environment of honest Linux workers: joining nodes, control planes, skewed clocks,
// schedules, users, refusals, and a compromised node.
var hardening = map[string]mutant{
	"a node that has joined and carries workloads takes no slot": {
		"rollout.go", "&& !doneBefore && ro.gate.withoutWorkloads(node)", "&& !doneBefore",
	},
	"a gate that was closed late counts as closed from the beginning": {
		"gate.go", "return g.holds(&t) && t.TimeAdded == nil })", "return g.holds(&t) })",
	},
	"control plane nodes are taken side by side": {
		"maintenance.go", "\tcase other != \"\":\n", "\tcase false:\n",
	},
	"a cordoned control plane node is no reason to wait": {
		"maintenance.go", "w.terminating || c.cordonedElse(w.node) ||", "w.terminating ||",
	},
	"nodes that only run etcd are not of the control plane": {
		"steps.go", "return runsControlPlane || runsEtcd", "return runsControlPlane || runsEtcd && false",
	},
	"scripts run on every operating system": {
		"select.go", "task.FitsOS(j.self.OS, node.Labels) &&", "(task.FitsOS(j.self.OS, node.Labels) || true) &&",
	},
	"a backoff counts from the node's clock": {
		"rerun.go", "return rec.Attempts, r.after(rec.EndedAt(), rec.Attempts)", "return rec.Attempts, r.after(rec.FinishedAt, rec.Attempts)",
	},
	"a schedule counts from the node's clock": {
		"rerun.go", "due := r.nextDue(node, r.past(rec.EndedAt()))", "due := r.nextDue(node, rec.FinishedAt)",
	},
	"times of a node are taken as they are": {
		"attempt.go", "r.StartedAt, r.FinishedAt = a.times(pod, exit)", "r.StartedAt, r.FinishedAt = pod.Started, exit.Finished",
	},
	"a node is not skipped while an attempt runs": {
		"recording.go", "return !rec.skipped(node, r.Revision) && (r.Reason", "return (r.Reason",
	},
	"a success takes the label that skips a later revision": {
		"recording.go", "a.KeepLabel = r.Outcome == record.Succeeded && rec.skipped(node, r.Revision)", "a.KeepLabel = false",
	},
	"a label that the user sets in the last moment is dropped": {
		"recording.go", "pod.UID == \"\" || a.DropLabel ||", "pod.UID == \"\" ||",
	},
	"a record that the user removes in the last moment is written again": {
		"recording.go", "a.DropLabel || rec.buildsOn(&r) {", "a.DropLabel {",
	},
	"failures from before a record was removed count": {
		"attempt.go", "\trec := node.On.Record\n\tif rec == nil || rec.Revision != pod.Revision", "\trec := node.On.Record\n\tif rec == nil {\n\t\treturn pod.Attempt - 1\n\t}\n\tif rec.Revision != pod.Revision",
	},
	"a node that runs again is not done for its step": {
		"nodeplan.go", "return w.State == Done || w.rerun", "return w.State == Done",
	},
	"nodes that run again do not take turns": {
		"capacity.go", "\treturn rec.EndedAt()\n", "\treturn tried\n",
	},
	"the canaries change when they run again": {
		"attempt.go", "a.firstStart(node, pod.Revision),", "time.Time{},",
	},
	"a node that joins in a soak may fail in it": {
		"rollout.go", "corev1.ConditionTrue && !ro.joinedInSoak(i) {", "corev1.ConditionTrue {",
	},
	"a second reboot is not noticed": {
		"reboot.go", " || differ(noted.BootID, node.BootID)\n", "\n",
	},
	"the status names one rule that holds nodes": {
		"conditions.go", "strings.Join(held, \"; \")", "strings.Join(held[:min(len(held), 1)], \"; \")",
	},
	"a step grows with the cluster": {
		"steps.go", "if !ro.joinedSince(i, ro.status.StepStartedAt) {", "if !ro.joinedSince(i, ro.status.StepStartedAt) || true {",
	},
	"a node that joins in a soak begins it again": {
		"steps.go", "case k == ro.current && ro.joinedInSoak(i):", "case false:",
	},
	"a node without progress holds the others for ever": {
		"progress.go", "\tif as.overdue(since) {", "\tif false && as.overdue(since) {",
	},
	"a node on which pods are refused comes first again": {
		"capacity.go", "\t\treturn tried\n", "\t\treturn time.Time{}\n",
	},
	"a record that is refused holds its slot for ever": {
		"planner.go", "\tif !as.overdue(since) {\n", "\tif true || !as.overdue(since) {\n",
	},
	"what a node writes itself holds the deletion for ever": {
		"deletion.go", "return !forgets || !waited || sealed[a.Node]", "return true || forgets || waited || sealed[a.Node]",
	},
	"a deletion does not say that a node refuses its writes": {
		"deletion.go", "\tcase len(status.troubled) > 0:\n\t\ttext", "\tcase false:\n\t\ttext",
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
