// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plantest

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/outcome"
	"github.com/everynode/everynode/internal/seal"
)

// awaitConfirmation is what a runner does after a task (spec.confirm): it waits for the confirmation, and runs the rollback without it.
func (c *Cluster) awaitConfirmation(pod *corev1.Pod, r Result) string {
	node, window := pod.Spec.NodeName, time.Duration(*c.Job.Spec.Confirm.TimeoutSeconds)*time.Second
	if !r.CutOff {
		pod.Status.ContainerStatuses[0].Ready = true
		return fmt.Sprintf("The task has ended on %s, and waits for its confirmation.", node)
	}
	c.SetReady(node, corev1.ConditionUnknown)
	c.ofPod(pod, window, "revert", func(c *Cluster, pod *corev1.Pod) string {
		o := outcome.Outcome{ExitCode: 1, Reason: outcome.ReasonReverted, Message: fmt.Sprintf("the node was not confirmed within %v", window), RollbackExitCode: new(0)}
		c.end(pod, o.ExitCode, "Error", string(o.Encode()))
		c.SetReady(node, corev1.ConditionTrue)
		return fmt.Sprintf("%s has run the rollback by itself, and is Ready again.", node)
	})
	return fmt.Sprintf("The task has cut %s off: the node is not reachable.", node)
}

// confirm writes the confirmation of a node. The kubelet shows it to the runner, which ends.
func (c *Cluster) confirm(a plan.Confirm) string {
	pod := c.Pods[a.Pod.Name]
	pod.Annotations[v1alpha1.ConfirmedAnnotation] = task.Confirmation(seal.Key{}, pod.Name)
	c.ofPod(pod, time.Second, "confirmed", func(c *Cluster, pod *corev1.Pod) string { return c.report(pod, task.Task, Result{}) })
	return "confirm " + pod.Spec.NodeName
}
