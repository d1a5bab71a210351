// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestADrainOfAnUnreachableNodeDoesNotWaitForItsSeat : no kubelet confirms the end of the seat.
func TestADrainOfAnUnreachableNodeDoesNotWaitForItsSeat(t *testing.T) {
	b := newBudgeted(t, "a", "a")
	dead := b.nodes[0]
	seat := b.seats()[dead]
	must(t, real.StopKubelet(b.Ctx, dead))
	b.Eventually("node "+dead+" is unreachable", func() error {
		taints := b.node(dead).Spec.Taints
		if !slices.ContainsFunc(taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeUnreachable }) {
			return fmt.Errorf("its taints are %v", taints)
		}
		return nil
	})
	b.drained(dead, b.drain(dead, "--timeout=60s"))
	if err := admin.Get(b.Ctx, client.ObjectKeyFromObject(&seat), &seat); !apierrors.IsNotFound(err) {
		t.Errorf("the seat is still there: %v", err)
	}
}
