// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package mutants_test

import "maps"

// hardening are mistakes in the environment of honest Linux workers: joining nodes, control planes, skewed clocks,
// schedules, users, refusals, and a compromised node.
var hardening = map[string]mutant{
	"a node that has joined and carries workloads takes no slot": {
		"rollout_steps.go", "&& !doneBefore && s.gate.withoutWorkloads(node)", "&& !doneBefore",
	},
	"a gate that was closed late counts as closed from the beginning": {
		"gate.go", "return s.holds(&t) && t.TimeAdded == nil })", "return s.holds(&t) })",
	},
	"control plane nodes are taken side by side": {
		"maintenance.go", "	case other != \"\":\n", "	case false:\n",
	},
	"a cordoned control plane node is no reason to wait": {
		"maintenance.go", "w.terminating || s.cordonedElse(w.node) ||", "w.terminating ||",
	},
	"nodes that only run etcd are not of the control plane": {
		"steps.go", "return runsControlPlane || runsEtcd", "return runsControlPlane || runsEtcd && false",
	},
	"scripts run on every operating system": {
		"select.go", "task.FitsOS(s.self.OS, node.Labels) &&", "(task.FitsOS(s.self.OS, node.Labels) || true) &&",
	},
	"a backoff counts from the node's clock": {
		"rerun.go", "return rec.Attempts, s.after(rec.EndedAt(), rec.Attempts)", "return rec.Attempts, s.after(rec.FinishedAt, rec.Attempts)",
	},
	"a schedule counts from the node's clock": {
		"rerun.go", "due := s.nextDue(node, s.past(rec.EndedAt()))", "due := s.nextDue(node, rec.FinishedAt)",
	},
	"times of a node are taken as they are": {
		"attempt.go", "r.StartedAt, r.FinishedAt = s.times(pod, exit)", "r.StartedAt, r.FinishedAt = pod.Started, exit.Finished",
	},
	"a node is not skipped while an attempt runs": {
		"recording.go", "return !s.skipped(node, r.Revision) && (r.Reason", "return (r.Reason",
	},
	"a success takes the label that skips a later revision": {
		"recording.go", "a.KeepLabel = r.Outcome == record.Succeeded && s.skipped(node, r.Revision)", "a.KeepLabel = false",
	},
	"a label that the user sets in the last moment is dropped": {
		"recording.go", "pod.UID == \"\" || a.DropLabel ||", "pod.UID == \"\" ||",
	},
	"a record that the user removes in the last moment is written again": {
		"recording.go", "a.DropLabel || s.buildsOn(&r) {", "a.DropLabel {",
	},
	"failures from before a record was removed count": {
		"attempt.go", "	rec := node.On.Record\n	if rec == nil || rec.Revision != pod.Revision", "	rec := node.On.Record\n	if rec == nil {\n		return pod.Attempt - 1\n	}\n	if rec.Revision != pod.Revision",
	},
	"a node that runs again is not done for its step": {
		"nodeplan.go", "return w.State == Done || w.rerun", "return w.State == Done",
	},
	"nodes that run again do not take turns": {
		"rollout.go", "	return rec.EndedAt()\n", "	return tried\n",
	},
	"the canaries change when they run again": {
		"attempt.go", "s.firstStart(node, pod.Revision),", "time.Time{},",
	},
	"a node that joins in a soak may fail in it": {
		"rollout_steps.go", "corev1.ConditionTrue && !s.joinedInSoak(i) {", "corev1.ConditionTrue {",
	},
	"a second reboot is not noticed": {
		"reboot.go", " || differ(rec.Reboot.BootID, node.BootID)):", "):",
	},
	"the status names one rule that holds nodes": {
		"conditions.go", "strings.Join(held, \"; \")", "strings.Join(held[:min(len(held), 1)], \"; \")",
	},
	"a step grows with the cluster": {
		"steps.go", "if !s.joinedSince(i, s.status.StepStartedAt) {", "if !s.joinedSince(i, s.status.StepStartedAt) || true {",
	},
	"a node that joins in a soak begins it again": {
		"steps.go", "case k == s.current && s.joinedInSoak(i):", "case false:",
	},
	"a node without progress holds the others for ever": {
		"progress.go", "\tif s.overdue(since) {", "\tif false && s.overdue(since) {",
	},
	"a node on which pods are refused comes first again": {
		"rollout.go", "		return tried\n", "		return time.Time{}\n",
	},
	"a record that is refused holds its slot for ever": {
		"planner.go", "\tif !s.overdue(since) {\n", "\tif true || !s.overdue(since) {\n",
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
