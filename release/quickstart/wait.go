// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package quickstart

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Names of the installation.
const (
	namespace  = "everynode-system"
	deployment = "everynode-manager"
)

type condition struct{ Type, Status, Reason, Message string }

type deploymentStatus struct {
	Metadata struct{ Generation int64 }
	Spec     struct {
		Replicas int64
		Selector struct{ MatchLabels map[string]string }
		Template struct {
			Spec struct{ Containers []struct{ Image string } }
		}
	}
	Status struct {
		ObservedGeneration, Replicas, UpdatedReplicas, AvailableReplicas int64
		Conditions                                                       []condition
	}
}

func (d *deploymentStatus) ready() bool {
	s := d.Status
	return s.ObservedGeneration >= d.Metadata.Generation && s.UpdatedReplicas == d.Spec.Replicas && s.Replicas == d.Spec.Replicas &&
		s.AvailableReplicas == d.Spec.Replicas
}

type pod struct {
	Metadata struct{ Name string }
	Spec     struct{ Containers []struct{ Image string } }
	Status   struct {
		Conditions        []condition
		ContainerStatuses []struct {
			State struct{ Waiting *condition }
		}
	}
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
		ready, waits, err := i.look(ctx)
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("the manager is not available after %s: %s\nkubectl -n %s describe pods says more", timeout, said, namespace)
		case err != nil || ready:
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
func (i *installer) look(ctx context.Context) (ready bool, waits string, err error) {
	var d deploymentStatus
	if err := i.cluster.read(ctx, &d, "-n", namespace, "get", "deployment", deployment); err != nil {
		return false, "", err
	}
	if d.ready() {
		return true, "", nil
	}
	for _, c := range d.Status.Conditions {
		if c.Type == "ReplicaFailure" && c.Status == "True" {
			return false, "", fmt.Errorf("the pod of the manager is refused: %q", c.Message)
		}
	}
	var selector []string
	for key, value := range d.Spec.Selector.MatchLabels {
		selector = append(selector, key+"="+value)
	}
	var pods struct{ Items []pod }
	if err := i.cluster.read(ctx, &pods, "-n", namespace, "get", "pods", "-l", strings.Join(selector, ",")); err != nil {
		return false, "", err
	}
	for _, p := range pods.Items { // those of an older version may fail: they are replaced
		if !slices.Equal(p.Spec.Containers, d.Spec.Template.Spec.Containers) {
			continue
		}
		if waits, err = p.waits(); err != nil {
			return false, "", err
		}
	}
	return false, waits, nil
}

// waits returns what a pod waits for, or an error if it needs the user.
func (p *pod) waits() (string, error) {
	for _, c := range p.Status.ContainerStatuses {
		w := c.State.Waiting
		if w != nil && slices.Contains(hopeless, w.Reason) {
			return "", fmt.Errorf("pod %q does not start: %s: %q\n%s", p.Metadata.Name, w.Reason, w.Message, remedy(w.Reason))
		}
	}
	for _, c := range p.Status.Conditions {
		if c.Status == "False" && c.Message != "" {
			return fmt.Sprintf("pod %q: %s: %q", p.Metadata.Name, c.Reason, c.Message), nil
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
