// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/everynode/everynode/internal/nodejob/task"
)

// asNodesAreServed has the API server restrict kubelets as clusters do: by the Node authorizer and the admission plugin
// NodeRestriction.
func asNodesAreServed(env *envtest.Environment) {
	env.ControlPlane.GetAPIServer().Configure().
		Set("authorization-mode", "Node,RBAC").
		Append("enable-admission-plugins", "NodeRestriction")
}

// kubeletOf is a client with the kubelet credential of a node. An attacker with root on the node has it.
func (w *world) kubeletOf(node string) client.Client {
	w.T.Helper()
	user, err := env.AddUser(envtest.User{Name: "system:node:" + node, Groups: []string{"system:nodes"}}, nil)
	must(w.T, err)
	c, err := client.New(user.Config(), client.Options{Scheme: scheme})
	must(w.T, err)
	return c
}

// annotate writes an annotation of a Node with its own kubelet credential.
func (w *world) annotate(kubelet client.Client, node, key, value string) error {
	return kubelet.Patch(w.Ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}},
		mergePatch(fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, key, value)))
}

// mirrorPod makes a mirror pod with the kubelet credential of a node, as a static pod manifest on it does.
func (w *world) mirrorPod(kubelet client.Client, node *corev1.Node, name string, labels map[string]string) *corev1.Pod {
	w.T.Helper()
	controller := true
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.Namespace,
			Name:      name,
			Labels:    labels,
			Annotations: map[string]string{
				"kubernetes.io/config.mirror": "0123", "kubernetes.io/config.hash": "0123", "kubernetes.io/config.source": "file",
			},
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID, Controller: &controller},
			},
		},
		Spec: corev1.PodSpec{
			NodeName:    node.Name,
			Containers:  []corev1.Container{{Name: "x", Image: "registry.test/x:1"}},
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		},
	}
	must(w.T, kubelet.Create(w.Ctx, pod))
	return pod
}

// podsMade watches all pods of a world, and returns which were made on a node since it began, as "task 1".
func (w *world) podsMade() func(node string) []string {
	w.T.Helper()
	ctx, cancel := context.WithCancel(w.Ctx)
	var mu sync.Mutex
	seen := map[string][]string{}
	var watching sync.WaitGroup
	watching.Go(func() {
		w.follow(ctx, &corev1.PodList{}, func(e watch.Event) {
			if pod := e.Object.(*corev1.Pod); e.Type == watch.Added {
				mu.Lock()
				defer mu.Unlock()
				seen[pod.Spec.NodeName] = append(seen[pod.Spec.NodeName], attemptOf(pod))
			}
		}, client.InNamespace(w.Namespace))
	})
	w.T.Cleanup(func() {
		cancel()
		watching.Wait()
	})
	return func(node string) []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(seen[node])
	}
}

// nodeJoins makes a selected node and waits for its pod. The cache shows changes of Nodes in their order, so the
// manager has planned with every change of a Node before this one.
func (w *world) nodeJoins(name string) *corev1.Pod {
	w.T.Helper()
	w.node(name)
	return w.podOf(name, task.Task)
}

// wantForbidden fails unless the API server has refused a request for who asked.
func (w *world) wantForbidden(what string, err error) {
	w.T.Helper()
	if !apierrors.IsForbidden(err) {
		w.T.Errorf("%s: %v, want a refusal", what, err)
	}
}
