// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cmdutil

import (
	"context"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/internal/uninstall"
)

// ManagerNamespace is the namespace of the manager.
const ManagerNamespace = uninstall.Namespace

// ManagerNode returns the node on which the manager runs; "" without a Deployment of the manager. known is false if the user may not read
// it. Of several pods, the lease names the one that leads. The result is for display only: who may write leases, or pods of a ReplicaSet, in
// the namespace of the manager could change it. A kubelet cannot: the owner of its mirror pods is its Node.
func ManagerNode(ctx context.Context, c client.Reader) (node string, known bool) {
	var deployment appsv1.Deployment
	switch err := c.Get(ctx, client.ObjectKeyFromObject(uninstall.Deployment()), &deployment); {
	case apierrors.IsNotFound(err):
		return "", true
	case err != nil || deployment.Spec.Selector == nil:
		return "", false
	}
	var pods corev1.PodList
	if err := c.List(ctx, &pods, client.InNamespace(ManagerNamespace), client.MatchingLabels(deployment.Spec.Selector.MatchLabels)); err != nil {
		return "", false
	}
	running := slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool { return !isManager(&pod) })
	if len(running) == 1 {
		return running[0].Spec.NodeName, true
	}
	var lease coordinationv1.Lease
	if err := c.Get(ctx, client.ObjectKeyFromObject(uninstall.Deployment()), &lease); err != nil || lease.Spec.HolderIdentity == nil {
		return "", false
	}
	leads := func(pod corev1.Pod) bool { return pod.Name == *lease.Spec.HolderIdentity }
	if i := slices.IndexFunc(running, leads); i >= 0 {
		return running[i].Spec.NodeName, true
	}
	return "", false
}

// isManager reports whether a pod with the labels of the manager runs for its Deployment.
func isManager(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind == "ReplicaSet" && pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp.IsZero()
}

// leadsManager reports whether a pod is the one of the manager that leads, on its node.
// It is the only one that a drain leaves there.
func leadsManager(pod *corev1.Pod, managerNode string) bool {
	return pod.Spec.NodeName == managerNode && pod.Namespace == ManagerNamespace && strings.HasPrefix(pod.Name, uninstall.Manager+"-") && isManager(pod)
}
