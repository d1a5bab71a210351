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

	"github.com/everynode/everynode/test/install"
)

// moveManager runs the manager on the nodes of the test, until the test ends.
func (b *budgeted) moveManager() {
	b.T.Helper()
	place := func(selector string) {
		b.kubectl("-n", install.Namespace, "patch", "deployment", install.Deployment, "-p",
			`{"spec":{"template":{"spec":{"nodeSelector":`+selector+`}}}}`)
		b.kubectl("-n", install.Namespace, "rollout", "status", "deployment", install.Deployment, "--timeout=60s")
	}
	b.T.Cleanup(func() { place(`{"kubernetes.io/hostname":"node-1","world":null}`) })
	place(fmt.Sprintf(`{"kubernetes.io/hostname":null,"world":%q}`, b.Namespace))
}

// managers are the pods of managers that do not terminate.
func (b *budgeted) managers() []corev1.Pod {
	var pods corev1.PodList
	must(b.T, admin.List(b.Ctx, &pods, client.InNamespace(install.Namespace), managerPods))
	return slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
}

// TestDrainsOfAllNodesOfTheManagerEnd : all nodes on which the manager may run are drained at the same time, during a freeze. The drains
// also evict the manager, and only a manager can open the budget for them when the freeze has ended.
func TestDrainsOfAllNodesOfTheManagerEnd(t *testing.T) {
	b := newBudgeted(t, "a", "a", "a")
	b.moveManager()
	b.seated(3, 1)
	before := b.managers()[0]
	b.budget("freeze-"+b.Namespace, 0)
	b.seated(3, 0)
	ends := map[string]<-chan error{}
	for _, node := range b.nodes {
		ends[node] = b.drainAndReturn(node)
	}
	b.Eventually("all nodes are cordoned, and the manager has been evicted", func() error {
		for _, node := range b.nodes {
			if !b.node(node).Spec.Unschedulable {
				return fmt.Errorf("%s is not cordoned", node)
			}
		}
		if slices.ContainsFunc(b.managers(), func(p corev1.Pod) bool { return p.UID == before.UID }) {
			return fmt.Errorf("%s is still there", before.Name)
		}
		return nil
	})
	for _, node := range b.nodes {
		notEnded(t, "the drain of "+node+" under a freeze", ends[node])
	}
	b.deleteBudget("freeze-" + b.Namespace)
	for _, node := range b.nodes {
		b.drained(node, ends[node])
	}
	b.seated(3, 1)
	b.wantMost(map[string]int{"": 1, "a": 1})
}

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
