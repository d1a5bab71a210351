// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package mutants_test

import (
	"maps"
	"slices"
	"testing"

	_ "github.com/everynode/everynode/internal/manager/budgetcontroller" // so that go test knows the files of these packages: see planner
	_ "github.com/everynode/everynode/internal/manager/controller"
	_ "github.com/everynode/everynode/internal/manager/guardcontroller"
)

// The histories of the manager find mistakes in how its controllers work together, which the planners cannot make.
func TestEachMistakeInTheManagerIsFound(t *testing.T) {
	planner{
		pkg: "cmd/everynode", histories: "20000", mutants: managerMutants,
		byHistories: map[string][]string{"TestHistoriesOfTheManager": slices.Sorted(maps.Keys(managerMutants))},
		bySweep: map[string]string{
			"an error of a write of a NodeGuard is forgotten":            "a_NodeGuard",
			"an error of a write of a NodeDisruptionBudget is forgotten": "a_budget",
			"an error of a write of a NodeJob is forgotten":              "deletion_with_rollback",
		},
	}.test(t)
}

var managerMutants = map[string]mutant{
	"an error of a write of a NodeDisruptionBudget is forgotten": {
		"../../internal/manager/budgetcontroller/apply.go",
		"return true, errors.Join(append(errs, refusal)...)",
		"return false, errors.Join(refusal)",
	},
	"an error of a write of a NodeJob is forgotten": {
		"../../internal/manager/controller/apply.go",
		"claimed: claims}, errors.Join(err, startErr)",
		"claimed: claims}, func() error { _, _ = err, startErr; return nil }()",
	},
	"an error of a write of a NodeGuard is forgotten": {
		"../../internal/manager/guardcontroller/controller.go", "errors.Join(applyErr, err)\n\tcase err", "err\n\tcase err",
	},
	"a NodeGuard does not wait for the seat of its node": {
		"main.go", "guards.Follow(budgets)", "_ = budgets",
	},
	"the eviction of a seat wakes no NodeGuard": {
		"../../internal/manager/guardcontroller/watch.go", "s.OnSeated(r.wakeAll)", "",
	},
	"a drain evicts the check of a NodeGuard": {
		"../../internal/observe/drain.go", "pod.Labels[v1alpha1.GuardRoleLabel] == v1alpha1.GuardRoleCheck", "false",
	},
	"a NodeJob claims a node and leaves its seat": {
		"../../internal/manager/controller/budgets.go", "if a.Seat == \"\" {\n\t\treturn true", "if true {\n\t\treturn true",
	},
}
