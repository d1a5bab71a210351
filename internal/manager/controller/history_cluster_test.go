// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/observe"
)

// The kubelets and the users of a history.

const controlPlaneLabel = "node-role.kubernetes.io/control-plane"

// taskRun is a task that has succeeded for a revision of a NodeJob on a node.
type taskRun struct {
	node, job types.UID
	revision  string
}

func ready(node *corev1.Node) bool { return node.Status.Conditions[0].Status == corev1.ConditionTrue }

func (h *history) setReady(node *corev1.Node, status corev1.ConditionStatus) {
	edit(h.api, node, func(n *corev1.Node) {
		if c := &n.Status.Conditions[0]; c.Status != status {
			c.Status, c.LastTransitionTime = status, metav1.Now()
		}
	})
}

func (h *history) join() {
	h.nodes++
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:   fmt.Sprint("n", h.nodes),
			Labels: map[string]string{"pool": []string{"a", "a", "b"}[h.Intn(3)]},
		},
		Status: corev1.NodeStatus{
			NodeInfo:   corev1.NodeSystemInfo{BootID: "boot0", MachineID: fmt.Sprint("machine", h.nodes)},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}},
		},
	}
	if h.Intn(3) == 0 {
		node.Labels[controlPlaneLabel] = ""
	}
	h.do(func() error { return h.api.create(node) })
	workload := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default",
		Name:      "workload-" + node.Name,
		OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "rs", UID: "rs", Controller: new(true)},
		},
	}}
	workload.Spec.NodeName, workload.Status.Phase = node.Name, corev1.PodRunning
	h.do(func() error { return h.api.create(workload) })
}

// reboot restarts a node, which is NotReady for a while.
func (h *history) reboot(node *corev1.Node) {
	h.setReady(node, corev1.ConditionFalse)
	edit(h.api, node, func(n *corev1.Node) {
		var boot int
		_, _ = fmt.Sscanf(n.Status.NodeInfo.BootID, "boot%d", &boot)
		n.Status.NodeInfo.BootID = fmt.Sprint("boot", boot+1)
	})
	time.AfterFunc(
		h.api.between(5*time.Second, 40*time.Second, node.Name, node.Status.NodeInfo.BootID),
		func() { h.setReady(node, corev1.ConditionTrue) },
	)
}

// tell adds a change to the story.
func (h *history) tell(before, after client.Object) {
	switch o := after.(type) {
	case nil:
		h.say("    %s %s is gone", kindOf(before), before.GetName())
	case *corev1.Node:
		h.say(
			"    Node %s: %v %v, unschedulable %v, ready %v, %s, taints %v",
			o.Name,
			o.Labels,
			o.Annotations,
			o.Spec.Unschedulable,
			ready(o),
			o.Status.NodeInfo.BootID,
			o.Spec.Taints,
		)
	case *corev1.Pod:
		h.say(
			"    Pod %s on %s: %s, %s, deleted %v, finalizers %v",
			o.Name,
			o.Spec.NodeName,
			o.Labels[v1alpha1.PhaseLabel],
			o.Status.Phase,
			o.DeletionTimestamp != nil,
			o.Finalizers,
		)
	case *v1alpha1.NodeJob:
		h.say("    NodeJob %s: generation %d, deleted %v", o.Name, o.Generation, o.DeletionTimestamp != nil)
		for _, c := range o.Status.Conditions {
			h.say("      %s %s (%s): %s", c.Type, c.Status, c.Reason, c.Message)
		}
	}
}

// stored is the kubelets' view of a change.
func (h *history) stored(before, after client.Object) {
	h.tell(before, after)
	switch pod, is := after.(*corev1.Pod); {
	case !is:
	case before == nil && pod.Namespace == "ns":
		h.later(pod, time.Second, 4*time.Second, func() { h.startPod(pod) })
	case pod.DeletionTimestamp != nil && !task.PodEnded(pod.Status.Phase):
		if was := before.(*corev1.Pod); was.DeletionTimestamp == nil {
			h.later(pod, time.Second, 5*time.Second, func() { h.endPod(pod, 143, `{"exitCode":143,"reason":"Interrupted"}`) })
		}
	}
	if node, is := before.(*corev1.Node); is && after == nil {
		h.later(node, 20*time.Second, 40*time.Second, func() {
			for _, pod := range all[*corev1.Pod](h.api) {
				if pod.Spec.NodeName == node.Name && pod.CreationTimestamp.Before(&metav1.Time{Time: time.Now().Add(-20 * time.Second)}) &&
					get[*corev1.Node](h.api, "", node.Name) == nil {
					h.end(pod, corev1.PodFailed, nil)
					h.do(func() error { return h.api.remove(pod) })
				}
			}
		})
	}
}

func (h *history) later(o client.Object, least, most time.Duration, do func()) {
	time.AfterFunc(h.api.between(least, most, o.GetUID(), o.GetResourceVersion()), do)
}

// host returns the node of a pod that has not ended, if its kubelet works. Otherwise it tries again later.
func (h *history) host(pod *corev1.Pod, again func()) *corev1.Node {
	live, node := get[*corev1.Pod](h.api, pod.Namespace, pod.Name), get[*corev1.Node](h.api, "", pod.Spec.NodeName)
	switch {
	case live == nil || live.UID != pod.UID || task.PodEnded(live.Status.Phase) || node == nil:
		return nil
	case !ready(node):
		h.later(pod, 4*time.Second, 6*time.Second, again)
		return nil
	}
	return node
}

func (h *history) startPod(pod *corev1.Pod) {
	node := h.host(pod, func() { h.startPod(pod) })
	if node == nil || get[*corev1.Pod](h.api, "ns", pod.Name).DeletionTimestamp != nil {
		return
	}
	edit(h.api, pod, func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodRunning
		p.Status.ContainerStatuses = []corev1.ContainerStatus{
			{
				Name:  p.Spec.Containers[0].Name,
				State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now().Rfc3339Copy()}},
			},
		}
	})
	h.later(pod, 2*time.Second, 20*time.Second, func() { h.finishPod(pod, node.Status.NodeInfo.BootID) })
}

func (h *history) finishPod(pod *corev1.Pod, boot string) {
	node := h.host(pod, func() { h.finishPod(pod, boot) })
	view := observe.Pod(pod)
	switch {
	case node == nil, get[*corev1.Pod](h.api, "ns", pod.Name).DeletionTimestamp != nil: // then it is killed
	case node.Status.NodeInfo.BootID != boot:
		h.endPod(pod, 137, "")
	case view.Runs == task.Reboot:
		h.reboot(node)
		h.later(node, time.Second, 2*time.Second, func() { h.finishPod(pod, boot) })
	case h.flaky && h.api.roll(4, pod.UID) == 0:
		h.endPod(pod, 1, `{"exitCode":1,"message":"no"}`)
	default:
		if view.Runs == task.Task {
			// The task also runs again if the reboot after it has failed.
			if job := get[*v1alpha1.NodeJob](h.api, "ns", nodeJobOf(pod)); view.Reboot == "" && (job == nil || !job.Spec.Rerun.OnReboot) {
				h.ran[taskRun{node.UID, pod.OwnerReferences[0].UID, view.Revision}]++
			}
			h.succeeded[taskRun{node: node.UID, revision: view.Revision}] = true
		}
		h.endPod(pod, 0, `{"exitCode":0,"results":{"reboot":"true","kernel":"6.1"}}`)
	}
}

func (h *history) endPod(pod *corev1.Pod, code int32, message string) {
	if h.host(pod, func() { h.endPod(pod, code, message) }) == nil {
		return
	}
	phase, reason := corev1.PodFailed, "Error"
	if code == 0 {
		phase, reason = corev1.PodSucceeded, "Completed"
	}
	if code == 137 {
		reason = "ContainerStatusUnknown"
	}
	h.end(
		pod,
		phase,
		&corev1.ContainerStateTerminated{
			ExitCode:   code,
			Reason:     reason,
			Message:    message,
			StartedAt:  pod.CreationTimestamp,
			FinishedAt: metav1.Now().Rfc3339Copy(),
		},
	)
}

func (h *history) end(pod *corev1.Pod, phase corev1.PodPhase, exit *corev1.ContainerStateTerminated) {
	edit(h.api, pod, func(p *corev1.Pod) {
		if p.Status.Phase = phase; exit != nil && len(p.Spec.Containers) > 0 {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{
				{Name: p.Spec.Containers[0].Name, State: corev1.ContainerState{Terminated: exit}},
			}
		}
		if p.DeletionTimestamp != nil {
			p.DeletionGracePeriodSeconds = new(int64(0))
		}
	})
}

// newJob is a NodeJob with a random selection of features.
func (h *history) newJob(name string) *v1alpha1.NodeJob {
	h.edits++
	job := &v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	job.Spec = v1alpha1.NodeJobSpec{
		Task:  v1alpha1.TaskSpec{Script: fmt.Sprint("echo ", h.edits), TimeoutSeconds: new(int32(60))},
		Retry: v1alpha1.RetrySpec{Limit: new(h.Int31n(3)), BackoffSeconds: new(int32(20))},
		Rollout: v1alpha1.RolloutSpec{
			MaxConcurrent: new(intstr.FromInt32(1 + h.Int31n(3))),
			MaxFailures:   new(intstr.FromString("100%")),
		},
		DeletionPolicy: []v1alpha1.DeletionPolicy{v1alpha1.DeletionForget, v1alpha1.DeletionRollback, v1alpha1.DeletionRetain}[h.Intn(3)],
		Rollback:       &v1alpha1.RollbackSpec{Script: "undo", TimeoutSeconds: new(int32(60))},
	}
	spec := &job.Spec
	one := func(of int) bool { return h.Intn(of) == 0 }
	if one(2) {
		spec.Nodes.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "a"}}
	}
	if one(3) {
		spec.Rollout.Steps = []v1alpha1.RolloutStep{{Name: "first", Nodes: new(intstr.FromInt32(1)), SoakSeconds: 30}, {Name: "all"}}
	}
	if one(4) {
		spec.Rollout.MaxFailures = new(intstr.FromInt32(0))
	}
	if one(2) {
		spec.Maintenance = []v1alpha1.MaintenanceSpec{{Cordon: true}, {Drain: &v1alpha1.DrainSpec{TimeoutSeconds: new(int32(60))}}, {Reboot: v1alpha1.RebootSpec{Policy: v1alpha1.RebootAlways}}, {Cordon: true, Reboot: v1alpha1.RebootSpec{Policy: v1alpha1.RebootIfRequested}}}[h.Intn(4)]
		spec.Maintenance.Reboot.TimeoutSeconds = new(int32(120))
	}
	if one(3) {
		spec.Gate = &v1alpha1.GateSpec{Scope: []v1alpha1.GateScope{v1alpha1.GateJoining, v1alpha1.GateAll}[h.Intn(2)]}
	}
	if one(3) {
		spec.Publish = []v1alpha1.PublishedResult{{Result: "kernel", Label: "x.example/" + name}}
	}
	if name == "other" && one(4) { // two that reboot nodes and rerun after reboots do not end
		spec.Rerun.OnReboot, spec.Maintenance.Reboot.Policy = true, ""
	}
	if one(3) {
		spec.Task.Inputs = []v1alpha1.ContentRef{{Kind: v1alpha1.ContentConfigMap, Name: "content"}}
	}
	spec.OnFailure.Action = []v1alpha1.FailureAction{"", v1alpha1.FailureActionCordon, v1alpha1.FailureActionDrain}[h.Intn(3)]
	if one(4) {
		spec.RetainPodsSeconds = 60
	}
	if name == "job" && one(3) {
		spec.DependsOn = []string{"other"}
	}
	if one(3) {
		spec.Task.Script, spec.Task.ScriptFrom = "", &v1alpha1.ScriptSource{
			ConfigMapKeyRef: v1alpha1.ConfigMapKeyRef{Name: "content", Key: "sh"},
		}
	}
	return job
}

func (h *history) newContent() *corev1.ConfigMap {
	h.edits++
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "content", Labels: map[string]string{v1alpha1.ScriptLabel: "true"}},
		Data:       map[string]string{"sh": fmt.Sprint("echo ", h.edits)},
	}
}

// event is something that happens in the cluster.
func (h *history) event() {
	node := pick(h, all[*corev1.Node](h.api))
	job := pick(h, all[*v1alpha1.NodeJob](h.api))
	what := h.Intn(15)
	h.say("event %d on %s", what, node.Name)
	switch what {
	case 0, 1:
		h.byHand[node.UID] = !node.Spec.Unschedulable
		edit(h.api, node, func(n *corev1.Node) { n.Spec.Unschedulable = !n.Spec.Unschedulable })
	case 2, 3:
		h.setReady(node, []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown}[h.Intn(3)])
	case 4:
		h.reboot(node)
	case 5:
		if len(all[*corev1.Node](h.api)) > 2 {
			h.do(func() error { return h.api.remove(node) })
		}
	case 6:
		h.join()
	case 7:
		edit(h.api, node, func(n *corev1.Node) {
			n.Labels["pool"] = map[string]string{"a": "b", "b": "a"}[n.Labels["pool"]]
		})
	case 8:
		edit(h.api, node, func(n *corev1.Node) {
			if delete(n.Labels, controlPlaneLabel); !plan.IsControlPlane(node.Labels) {
				n.Labels[controlPlaneLabel] = ""
			}
		})
	case 9:
		if pods := slices.DeleteFunc(all[*corev1.Pod](h.api), func(p *corev1.Pod) bool { return p.Namespace != "ns" }); len(pods) > 0 {
			h.do(func() error { return h.api.remove(pick(h, pods)) })
		}
	case 10:
		if maps := all[*corev1.ConfigMap](h.api); len(maps) == 0 {
			h.do(func() error { return h.api.create(h.newContent()) })
		} else if h.Intn(3) == 0 {
			h.do(func() error { return h.api.remove(maps[0]) })
		} else {
			edit(h.api, maps[0], func(c *corev1.ConfigMap) { c.Data = h.newContent().Data })
		}
	case 11:
		h.restart()
	default:
		h.userEvent(job)
	}
}

// userEvent is a change of a NodeJob.
func (h *history) userEvent(job *v1alpha1.NodeJob) {
	switch what := h.Intn(7); {
	case job == nil || what == 0:
		h.createJobs()
	case what == 1:
		h.do(func() error { return h.api.remove(job) })
	case what == 2:
		edit(h.api, job, func(j *v1alpha1.NodeJob) { j.Spec.Suspend = !j.Spec.Suspend })
	case what == 3:
		h.retry(job)
	case what == 4:
		edit(h.api, job, func(j *v1alpha1.NodeJob) { j.Spec = h.newJob(j.Name).Spec })
	default:
		h.edits++
		edit(h.api, job, func(j *v1alpha1.NodeJob) {
			if j.Spec.Task.Script != "" {
				j.Spec.Task.Script = fmt.Sprint("echo ", h.edits)
			}
		})
	}
}

func (h *history) retry(job *v1alpha1.NodeJob) {
	h.edits++
	edit(h.api, job, func(j *v1alpha1.NodeJob) {
		j.Annotations = map[string]string{v1alpha1.RetryAnnotation: fmt.Sprint(h.edits)}
	})
}

func (h *history) createJobs() {
	for _, name := range []string{"job", "other"} {
		if get[*v1alpha1.NodeJob](h.api, "ns", name) == nil {
			h.do(func() error { return h.api.create(h.newJob(name)) })
		}
	}
}

func pick[T any](h *history, from []T) (one T) {
	if len(from) > 0 {
		one = from[h.Intn(len(from))]
	}
	return one
}
