// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hold has what the planners of all kinds, the manager and the command line say about what may not happen now: why, until when,
// and what NodeDisruptionBudgets mean for a node. It is pure like the planners, and below them.
package hold

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
)

// Why is why something does not happen, such as the creation of the pods of an object, or a disruption of a node.
type Why struct {
	// By is the name of the NodeDisruptionBudget that prevents it; "" for anything else.
	By string
	// Reason is one of the API, and Message says what is wrong and what to do, as the Stalled condition shows it.
	Reason  string
	Message string
	// Until is when it ends, or may be tried again although no event shows that the cause is fixed. Zero: not before an event.
	Until time.Time
	// AllPhases is true if no pod of a NodeJob can start, whatever its phase, because an object of task.files cannot be used.
	AllPhases bool
}

// Effect is what NodeDisruptionBudgets mean for NodeJobs on a node.
type Effect struct {
	// Limited is true if a NodeJob must claim the node before it disrupts it.
	Limited bool
	// Closed is why no disruption may begin on the node, and TasksClosed why no attempt may start; nil if it may.
	Closed      *Why
	TasksClosed *Why
	// Outside is the first budget whose closed window a NodeJob ignores on the node (maintenance.ignoreWindowsOn); "" if it ignores none.
	Outside string
	// ClosesAt is when the first window closes, and ClosesBy the name of its budget; zero if no window closes.
	ClosesAt time.Time
	ClosesBy string
	// Longest is the duration of the longest window of the budget LongestOf, whose longest window is the shortest; zero without windows.
	Longest   time.Duration
	LongestOf string
}

// Stance is what NodeDisruptionBudgets mean for a NodeJob that would disrupt a node now.
type Stance struct {
	// Seat is the name and the UID of the pod to evict; empty if the node has no seat, so it counts as unavailable already.
	Seat    string
	SeatUID types.UID
	// Allowed is true if the API server would grant the eviction, or the node already counts as unavailable. Message is why it would not.
	Allowed bool
	Message string
	// Drained is true if the node has lost its seat, is cordoned, and is Ready or was so a minute ago. If it is not cordoned for a NodeJob,
	// another tool or a user has drained it, and may work there.
	Drained bool
	// HeldBy is the NodeJob that holds all nodes that use up a limit; "" if none does.
	HeldBy string
}

// NamespaceNotAllowed returns why nothing happens for NodeJobs and NodeGuards in a namespace that does not have the label
// v1alpha1.EnabledLabel, and says how to set it.
func NamespaceNotAllowed(namespace string) *Why {
	return &Why{
		Reason: v1alpha1.ReasonNamespaceNotAllowed,
		Message: fmt.Sprintf("namespace %s is not allowed to have NodeJobs and NodeGuards, which can be root on nodes: nothing starts. An administrator can allow it: kubectl label namespace %[1]s %s=%s",
			namespace, v1alpha1.EnabledLabel, v1alpha1.EnabledValue),
	}
}

// AllowsNodeJobs reports whether the labels of a namespace allow NodeJobs and NodeGuards in it.
func AllowsNodeJobs(labels map[string]string) bool {
	return labels[v1alpha1.EnabledLabel] == v1alpha1.EnabledValue
}

// CreateServiceAccount says what to do about a missing ServiceAccount that a field of an object names.
func CreateServiceAccount(namespace, name, field string) string {
	return fmt.Sprintf("Create ServiceAccount %s in namespace %s: kubectl create serviceaccount %s -n %s; or correct %s", name, namespace, name, namespace, field)
}
