// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/kube"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/observe"
)

// Kubelets are the kubelets of all nodes. Pods of NodeJobs and the checks of NodeGuards end, other pods run until they are deleted.
type Kubelets struct {
	*Server
	// Fails reports whether a pod fails that would succeed, and Succeeded is called for each that does.
	Fails     func(pod *corev1.Pod) bool
	Succeeded func(node *corev1.Node, pod *corev1.Pod)
}

// Stored is what the kubelets do after a change. Its caller has locked the server.
func (k *Kubelets) Stored(before, after client.Object) {
	switch pod, is := after.(*corev1.Pod); {
	case !is:
	case before == nil && pod.Status.Phase == "" && pod.Spec.NodeName != "":
		k.Later(pod, time.Second, 4*time.Second, func() { k.start(pod) })
	case pod.DeletionTimestamp != nil && !kube.PodEnded(pod.Status.Phase):
		if was := before.(*corev1.Pod); was.DeletionTimestamp == nil {
			k.Later(pod, time.Second, 5*time.Second, func() { k.finish(pod, 143, `{"exitCode":143,"reason":"Interrupted"}`) })
		}
	}
	if node, is := before.(*corev1.Node); is && after == nil {
		k.Later(node, 20*time.Second, 40*time.Second, func() { k.collect(node.Name) })
	}
}

// collect ends and deletes the pods of a node that does not exist, as the controller of pods does.
func (k *Kubelets) collect(node string) {
	for _, pod := range All[*corev1.Pod](k.Server) {
		if pod.Spec.NodeName == node && pod.CreationTimestamp.Before(&metav1.Time{Time: time.Now().Add(-20 * time.Second)}) &&
			Get[*corev1.Node](k.Server, "", node) == nil {
			k.end(pod, corev1.PodFailed, nil)
			_ = k.Remove(pod) // it fails only if the pod does not exist
		}
	}
}

// Later does something after a time that depends on an object.
func (s *Server) Later(o client.Object, least, most time.Duration, do func()) {
	time.AfterFunc(s.Between(least, most, o.GetUID(), o.GetResourceVersion()), do)
}

// Ready reports whether a node is Ready.
func Ready(node *corev1.Node) bool { return node.Status.Conditions[0].Status == corev1.ConditionTrue }

// SetReady sets the Ready condition of a node, and that of the pods that run there.
func (k *Kubelets) SetReady(node *corev1.Node, status corev1.ConditionStatus) {
	Edit(k.Server, node, func(n *corev1.Node) {
		if c := &n.Status.Conditions[0]; c.Status != status {
			c.Status, c.LastTransitionTime = status, metav1.Now()
		}
	})
	for _, pod := range All[*corev1.Pod](k.Server) {
		if pod.Spec.NodeName == node.Name && pod.Status.Phase == corev1.PodRunning && !ends(pod) {
			Edit(k.Server, pod, func(p *corev1.Pod) { setPodReady(p, status == corev1.ConditionTrue) })
		}
	}
}

// ends reports whether a pod ends by itself.
func ends(pod *corev1.Pod) bool {
	return pod.Labels[v1alpha1.PhaseLabel] != "" || pod.Labels[v1alpha1.GuardRoleLabel] == v1alpha1.GuardRoleCheck
}

func setPodReady(pod *corev1.Pod, ready bool) {
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}
}

// Reboot restarts a node, which is not Ready for a while.
func (k *Kubelets) Reboot(node *corev1.Node) {
	k.SetReady(node, corev1.ConditionFalse)
	Edit(k.Server, node, func(n *corev1.Node) {
		var boot int
		_, _ = fmt.Sscanf(n.Status.NodeInfo.BootID, "boot%d", &boot)
		n.Status.NodeInfo.BootID = fmt.Sprint("boot", boot+1)
	})
	time.AfterFunc(
		k.Between(5*time.Second, 40*time.Second, node.Name, node.Status.NodeInfo.BootID),
		func() { k.SetReady(node, corev1.ConditionTrue) },
	)
}

// host returns the node of a pod that has not ended, if its kubelet works. Otherwise it tries again later.
func (k *Kubelets) host(pod *corev1.Pod, again func()) *corev1.Node {
	live, node := Get[*corev1.Pod](k.Server, pod.Namespace, pod.Name), Get[*corev1.Node](k.Server, "", pod.Spec.NodeName)
	switch {
	case live == nil || live.UID != pod.UID || kube.PodEnded(live.Status.Phase):
		return nil
	case node == nil:
		k.Later(pod, 20*time.Second, 40*time.Second, func() { k.collect(pod.Spec.NodeName) })
		return nil
	case !Ready(node):
		k.Later(pod, 4*time.Second, 6*time.Second, again)
		return nil
	}
	return node
}

func (k *Kubelets) isTerminating(pod *corev1.Pod) bool {
	live := Get[*corev1.Pod](k.Server, pod.Namespace, pod.Name)
	return live == nil || live.DeletionTimestamp != nil
}

func (k *Kubelets) start(pod *corev1.Pod) {
	node := k.host(pod, func() { k.start(pod) })
	if node == nil || k.isTerminating(pod) {
		return
	}
	Edit(k.Server, pod, func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodRunning
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name:  p.Spec.Containers[0].Name,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now().Rfc3339Copy()}},
		}}
		if !ends(p) {
			setPodReady(p, true)
		}
	})
	if ends(pod) {
		k.Later(pod, 2*time.Second, 20*time.Second, func() { k.complete(pod, node.Status.NodeInfo.BootID) })
	}
}

// complete ends a pod whose container has done its work.
func (k *Kubelets) complete(pod *corev1.Pod, boot string) {
	node := k.host(pod, func() { k.complete(pod, boot) })
	if node == nil || k.isTerminating(pod) { // then it is killed
		return
	}
	switch {
	case node.Status.NodeInfo.BootID != boot:
		k.finish(pod, 137, "")
	case observe.Pod(pod).Runs == task.Reboot:
		k.Reboot(node)
		k.Later(node, time.Second, 2*time.Second, func() { k.complete(pod, boot) })
	case k.Fails(pod):
		k.finish(pod, 1, `{"exitCode":1,"message":"no"}`)
	default:
		k.Succeeded(node, pod)
		k.finish(pod, 0, `{"exitCode":0,"results":{"reboot":"true","kernel":"6.1"}}`)
	}
}

func (k *Kubelets) finish(pod *corev1.Pod, code int32, message string) {
	if k.host(pod, func() { k.finish(pod, code, message) }) == nil {
		return
	}
	phase, reason := corev1.PodFailed, "Error"
	if code == 0 {
		phase, reason = corev1.PodSucceeded, "Completed"
	}
	if code == 137 {
		reason = "ContainerStatusUnknown"
	}
	k.end(pod, phase, &corev1.ContainerStateTerminated{
		ExitCode: code, Reason: reason, Message: message, StartedAt: pod.CreationTimestamp, FinishedAt: metav1.Now().Rfc3339Copy(),
	})
}

func (k *Kubelets) end(pod *corev1.Pod, phase corev1.PodPhase, exit *corev1.ContainerStateTerminated) {
	Edit(k.Server, pod, func(p *corev1.Pod) {
		p.Status.Phase = phase
		p.Status.Conditions = slices.DeleteFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady })
		if exit != nil && len(p.Spec.Containers) > 0 {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{
				{Name: p.Spec.Containers[0].Name, State: corev1.ContainerState{Terminated: exit}},
			}
		}
		if p.DeletionTimestamp != nil {
			p.DeletionGracePeriodSeconds = new(int64(0))
		}
	})
}
