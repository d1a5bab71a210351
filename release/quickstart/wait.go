// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package quickstart

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Names of the installation.
const (
	namespace  = "everynode-system"
	deployment = "everynode-manager"
)

// ready reports whether all pods of the manager are of the new version, and available.
func ready(d *appsv1.Deployment) bool {
	s := d.Status
	want := *cmp.Or(d.Spec.Replicas, new(int32(1)))
	return s.ObservedGeneration >= d.Generation && s.UpdatedReplicas == want && s.Replicas == want && s.AvailableReplicas == want
}

// hopeless are the reasons for which a container waits, and that need the user. ErrImagePull is not one of them: the kubelet
// tries once more, and then says ImagePullBackOff, seconds later.
var hopeless = []string{"ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "CreateContainerConfigError", "CrashLoopBackOff"}

// wait waits until the new manager is available. It fails early when the pod cannot start.
func (i *installer) wait(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	tick := time.NewTicker(interval) //nolint:forbidigo // the user waits for a real cluster
	defer tick.Stop()
	said := "its pod does not exist yet"
	for {
		available, waits, err := i.look(ctx)
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("the manager is not available after %s: %s\nkubectl -n %s describe pods says more", timeout, said, namespace)
		case err != nil || available:
			return err
		case waits != "":
			said = waits
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// look reports whether the manager is available, and otherwise what it waits for.
func (i *installer) look(ctx context.Context) (available bool, waits string, err error) {
	var d appsv1.Deployment
	if err := i.cluster.read(ctx, &d, "-n", namespace, "get", "deployment", deployment); err != nil {
		return false, "", err
	}
	if ready(&d) {
		return true, "", nil
	}
	for _, c := range d.Status.Conditions {
		if c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue {
			return false, "", fmt.Errorf("the pod of the manager is refused: %q", c.Message)
		}
	}
	var pods corev1.PodList
	if err := i.cluster.read(ctx, &pods, "-n", namespace, "get", "pods", "-l", metav1.FormatLabelSelector(d.Spec.Selector)); err != nil {
		return false, "", err
	}
	for _, p := range pods.Items { // those of an older version may fail: they are replaced
		sameImage := func(a, b corev1.Container) bool { return a.Image == b.Image }
		if !slices.EqualFunc(p.Spec.Containers, d.Spec.Template.Spec.Containers, sameImage) {
			continue
		}
		if waits, err = waitsFor(&p); err != nil {
			return false, "", err
		}
	}
	return false, waits, nil
}

// waitsFor returns what a pod waits for, or an error if it needs the user.
func waitsFor(p *corev1.Pod) (string, error) {
	for _, c := range p.Status.ContainerStatuses {
		w := c.State.Waiting
		if w != nil && slices.Contains(hopeless, w.Reason) {
			return "", fmt.Errorf("pod %q does not start: %s: %q\n%s", p.Name, w.Reason, w.Message, remedy(w.Reason))
		}
	}
	for _, c := range p.Status.Conditions {
		if c.Status == corev1.ConditionFalse && c.Message != "" {
			return fmt.Sprintf("pod %q: %s: %q", p.Name, c.Reason, c.Message), nil
		}
	}
	return "", nil
}

func remedy(reason string) string {
	if strings.Contains(reason, "Image") {
		return "Check that the nodes can pull from the registry. If it asks nodes for credentials, install the chart with images.pullSecrets and " +
			"tasks.pullSecrets: docs/install.md#helm. Then repeat make install, or remove what was installed with make uninstall"
	}
	return "Its log says why: kubectl -n " + namespace + " logs deployment/" + deployment + ". make uninstall removes what was installed"
}
