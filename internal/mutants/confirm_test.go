// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package mutants_test

// confirming are mistakes with nodes that wait for a confirmation. TestHistoriesOfConfirmations and tables find them, because other
// histories have no such nodes.
var confirming = map[string]mutant{
	"a node is confirmed before its kubelet has responded": {
		"confirm.go",
		"case !pod.Confirming || !pod.DeleteRequested.IsZero():",
		"case pod.Runs != \"task\" || !pod.Confirm || !pod.DeleteRequested.IsZero():",
	},
	"a node that is not Ready is confirmed": {
		"confirm.go", "case node.Ready != corev1.ConditionTrue:", "case false:",
	},
	"the task is retried on a node that has reverted": {
		"rerun.go", "if rec.Reverted {", "if false {",
	},
	"the rollback runs again on a node that has reverted": {
		"confirm.go", "r.Reverted, r.Rollback = true, rb", "r.Reverted = true",
	},
	"a revert that has failed counts as one that has succeeded": {
		"confirm.go", "if code != 0 {", "if false {",
	},
	"a revert of a pod that was deleted meanwhile is a disruption": {
		"attempt.go",
		"if exit := pod.Exit; exit != nil && exit.reverted() {",
		"if exit := pod.Exit; exit != nil && exit.reverted() && pod.DeleteRequested.IsZero() {",
	},
	"a revert that has failed is not reported at once": {
		"rollback.go", "\t\t\tas.noteRevertFailed(w)\n", "",
	},
}
