// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package task

import (
	"fmt"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
)

// NamespaceNotAllowed returns the obstacle of all NodeJobs and NodeGuards in a namespace that does not have the label
// v1alpha1.EnabledLabel, and says how to set it.
func NamespaceNotAllowed(namespace string) *Obstacle {
	return &Obstacle{
		Reason: v1alpha1.ReasonNamespaceNotAllowed,
		Message: fmt.Sprintf("namespace %s is not allowed to have NodeJobs and NodeGuards, which can be root on nodes: nothing starts. An administrator can allow it: kubectl label namespace %[1]s %s=%s",
			namespace, v1alpha1.EnabledLabel, v1alpha1.EnabledValue),
	}
}

// AllowsNodeJobs reports whether the labels of a namespace allow NodeJobs and NodeGuards in it.
func AllowsNodeJobs(labels map[string]string) bool {
	return labels[v1alpha1.EnabledLabel] == v1alpha1.EnabledValue
}

// Obstacle is why no pod of an object can be created.
type Obstacle struct {
	// Reason and Message say what is wrong and what to do, as the Stalled condition shows it.
	Reason  string
	Message string
	// RetryAt is when the creation of one pod may be retried, although no event shows that the cause is fixed. Zero: not
	// before the obstacle is known to be removed.
	RetryAt time.Time
	// Files is true if an object of task.files cannot be used, so that no pod that mounts the files can start, whatever its phase.
	Files bool
}

// CreateServiceAccount says what to do about a missing ServiceAccount that a field of an object names.
func CreateServiceAccount(namespace, name, field string) string {
	return fmt.Sprintf("Create ServiceAccount %s in namespace %s: kubectl create serviceaccount %s -n %s; or correct %s", name, namespace, name, namespace, field)
}
