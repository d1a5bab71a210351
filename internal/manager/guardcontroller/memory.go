// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guardcontroller

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/internal/manager/loop"
)

// memory is what the manager remembers about NodeGuards from one pass to the next. It need not survive a restart. It is safe for
// concurrent use.
type memory struct {
	targets *targets
	// refusals are those of companions, budgets those of PodDisruptionBudgets, and placeholders those of placeholders. refusedOn has the
	// details per node.
	refusals, budgets, placeholders *loop.Refusals
	refusedOn                       *refusedOn
	taken                           *taken
	reports                         *reports
}

// newMemory returns a memory without targets.
func newMemory() memory {
	return memory{
		refusals: loop.NewRefusals(podWords), budgets: loop.NewRefusals(budgetWords), placeholders: loop.NewRefusals(placeholderWords),
		refusedOn: newRefusedOn(), taken: newTaken(), reports: newReports(),
	}
}

// forget forgets a NodeGuard that no longer exists.
func (m *memory) forget(name client.ObjectKey) {
	m.targets.forget(name)
	m.refusals.Clear(name)
	m.budgets.Clear(name)
	m.placeholders.Clear(name)
	m.refusedOn.forget(name)
	m.taken.forget(name)
	m.reports.forget(name)
}
