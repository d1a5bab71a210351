// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/internal/uninstall"
)

// crdWarning returns a warning if a CRD is of an earlier version than the manager; otherwise, or if that is not known, "".
// Later ones do no harm.
func crdWarning(ctx context.Context, c client.Reader, manager string) string {
	if manager == "" {
		return ""
	}
	for _, o := range uninstall.CRDs() {
		crd := uninstall.Metadata(o)
		if err := c.Get(ctx, client.ObjectKeyFromObject(o), crd); err != nil {
			continue // the permission may be missing
		}
		if installed := crd.Labels[versionLabel]; isBefore(installed, manager) {
			return fmt.Sprintf("the CustomResourceDefinition %s is %s, and the manager is %s: the API server does not store fields that it does not have. "+
				"Apply the CustomResourceDefinitions of %s", o.GetName(), installed, manager, manager)
		}
	}
	return ""
}

// isBefore reports whether a semantic version is before another one. Other versions are not known to be.
func isBefore(a, b string) bool {
	version, err := utilversion.ParseSemantic(a)
	if err != nil {
		return false
	}
	order, err := version.Compare(b)
	return err == nil && order < 0
}

// noManager begins the warning that no manager is available.
const noManager = "no manager is available, so nothing happens with NodeJobs and NodeGuards: "

// managerTimeout is how long a command waits for what is said about the manager besides what was asked.
const managerTimeout = 3 * time.Second

// managerAway returns a warning if the Deployment of the manager has no available pod, and "" if it has one, or if this is not known: a
// user may not be allowed to get the Deployment, and a manager may run elsewhere.
func managerAway(ctx context.Context, c client.Reader) string {
	ctx, cancel := context.WithTimeout(ctx, managerTimeout)
	defer cancel()
	var d appsv1.Deployment
	if err := c.Get(ctx, managerName, &d); err != nil || d.Status.AvailableReplicas > 0 {
		return ""
	}
	return managerWarning(ctx, c, &d)
}

// managerWarning returns a warning if no manager is available, or if not all pods of the manager run, as during an update, or
// after one to an image that does not exist. It has the reason and a remedy, if the objects of the cluster show them. Otherwise
// it returns "".
func managerWarning(ctx context.Context, c client.Reader, d *appsv1.Deployment) string {
	const some = "a pod of the manager is available, but "
	if replicasOf(d) == 0 {
		return noManager + fmt.Sprintf("the Deployment %[2]s has 0 replicas. Start it: kubectl -n %[1]s scale deployment %[2]s --replicas=1", d.Namespace, d.Name)
	}
	problem := deploymentProblem(ctx, c, d)
	switch {
	case d.Status.AvailableReplicas == 0:
		return noManager + cmp.Or(problem, fmt.Sprintf("see kubectl -n %s get pods", d.Namespace))
	case problem != "":
		return some + problem
	case !isComplete(d):
		return some + fmt.Sprintf("an update is not complete: kubectl -n %s rollout status deployment %s", d.Namespace, d.Name)
	}
	return ""
}

func replicasOf(d *appsv1.Deployment) int32 {
	if d.Spec.Replicas == nil {
		return 1 // the default
	}
	return *d.Spec.Replicas
}

// isComplete reports whether all pods of a Deployment are available and up to date.
func isComplete(d *appsv1.Deployment) bool {
	return d.Status.ObservedGeneration >= d.Generation && d.Status.UpdatedReplicas >= replicasOf(d) && d.Status.UnavailableReplicas == 0
}

// deploymentProblem returns why not all pods of the manager run, with a remedy; "" if they do, or if it cannot be told.
func deploymentProblem(ctx context.Context, c client.Reader, d *appsv1.Deployment) string {
	if i := slices.IndexFunc(d.Status.Conditions, isReplicaFailure); i >= 0 {
		return fmt.Sprintf("new pods are rejected. Change what rejects them in namespace %s: %s", d.Namespace, d.Status.Conditions[i].Message)
	}
	if isComplete(d) {
		return ""
	}
	var pods corev1.PodList
	if err := c.List(ctx, &pods, client.InNamespace(d.Namespace), client.MatchingLabels(d.Spec.Selector.MatchLabels)); err != nil {
		return "" // the permissions may be missing
	}
	for i := range pods.Items {
		if problem := podProblem(&pods.Items[i]); problem != "" {
			return problem
		}
	}
	return ""
}

func isReplicaFailure(c appsv1.DeploymentCondition) bool {
	return c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue
}

// podProblem returns why a pod of the manager does not run, with a remedy; "" if it cannot be told.
func podProblem(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return fmt.Sprintf("no node can run pod %s. Change the nodes, or the placement of the manager: %s", pod.Name, c.Message)
		}
	}
	for _, c := range pod.Status.ContainerStatuses {
		waiting := c.State.Waiting
		if waiting == nil {
			continue
		}
		switch waiting.Reason {
		case "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull":
			return fmt.Sprintf("pod %s cannot get its image. Check the registry, the tag and digest, and the pull secrets of the manager: %s",
				pod.Name, waiting.Message)
		case "CrashLoopBackOff":
			return fmt.Sprintf("pod %[2]s fails. See why: kubectl -n %[1]s logs %[2]s --previous", pod.Namespace, pod.Name)
		case "CreateContainerConfigError", "CreateContainerError", "RunContainerError":
			return fmt.Sprintf("pod %s cannot start (%s): %s", pod.Name, waiting.Reason, waiting.Message)
		}
	}
	return ""
}
