// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"fmt"
	"math/rand"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
)

// Story returns a change as lines of the story of a history.
func Story(before, after client.Object) []string {
	switch o := after.(type) {
	case nil:
		return []string{fmt.Sprintf("    %s %s is gone", KindOf(before), before.GetName())}
	case *corev1.Node:
		return []string{fmt.Sprintf("    Node %s: %v %v, unschedulable %v, ready %v, %s, taints %v",
			o.Name, o.Labels, o.Annotations, o.Spec.Unschedulable, Ready(o), o.Status.NodeInfo.BootID, o.Spec.Taints)}
	case *corev1.Pod:
		return []string{fmt.Sprintf("    Pod %s on %s: %s %s, %s, ready %v, deleted %v, finalizers %v", o.Name, o.Spec.NodeName,
			o.Labels[v1alpha1.PhaseLabel], o.Labels[v1alpha1.BudgetGroupLabel], o.Status.Phase, PodReady(o), o.DeletionTimestamp != nil, o.Finalizers)}
	case *v1alpha1.NodeJob:
		lines := []string{fmt.Sprintf("    NodeJob %s: generation %d, deleted %v", o.Name, o.Generation, o.DeletionTimestamp != nil)}
		for _, c := range o.Status.Conditions {
			lines = append(lines, fmt.Sprintf("      %s %s (%s): %s", c.Type, c.Status, c.Reason, c.Message))
		}
		return lines
	case *v1alpha1.NodeGuard:
		return []string{fmt.Sprintf("    NodeGuard %s: held %+v, released %+v", o.Name, o.Status.Waiting, o.Status.Released)}
	}
	return nil
}

// Pick returns one of the values; the zero value if there are none.
func Pick[T any](from *rand.Rand, values []T) (one T) {
	if len(values) > 0 {
		one = values[from.Intn(len(values))]
	}
	return one
}
