// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cmdutil

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/plan"
)

// TestADrainLeavesTheManager checks that a plan names no pod that the drain leaves on the node: that of the manager that leads.
func TestADrainLeavesTheManager(t *testing.T) {
	pod := func(namespace, name, node string) *corev1.Pod {
		owner := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "x", UID: "x", Controller: new(true)}
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, OwnerReferences: []metav1.OwnerReference{owner}}}
		p.Spec.NodeName, p.Status.Phase = node, corev1.PodRunning
		return p
	}
	leads, waits, web := pod(
		ManagerNamespace,
		"everynode-manager-a",
		"n1",
	), pod(
		ManagerNamespace,
		"everynode-manager-b",
		"n2",
	), pod(
		"shop",
		"everynode-manager-c",
		"n1",
	)
	c := fake.NewClientBuilder().WithObjects(leads, waits, web).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).Build()
	for node, want := range map[string]string{"n1": "everynode-manager-c", "n2": "everynode-manager-b"} {
		var evicted []string
		err := EachPodToEvict(
			t.Context(),
			c,
			node,
			"n1",
			&v1alpha1.DrainSpec{},
			func(p *corev1.Pod, _ plan.DrainPod) { evicted = append(evicted, p.Name) },
		)
		if err != nil || len(evicted) != 1 || evicted[0] != want {
			t.Errorf("%s: %q, want %s; %v", node, evicted, want, err)
		}
	}
}
