// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/observe"
	"github.com/everynode/everynode/internal/testing/fakeapi"
)

// The kubelets and the users of a history.

const controlPlaneLabel = "node-role.kubernetes.io/control-plane"

// taskRun is a task that has succeeded for a revision of a NodeJob on a node.
type taskRun struct {
	node, job types.UID
	revision  string
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
	h.do(h.api.Create(node))
	workload := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default",
		Name:      "workload-" + node.Name,
		OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "rs", UID: "rs", Controller: new(true)},
		},
	}}
	workload.Spec.NodeName, workload.Status.Phase = node.Name, corev1.PodRunning
	h.do(h.api.Create(workload))
}

// tell adds a change to the story.
func (h *history) tell(before, after client.Object) {
	for _, line := range fakeapi.Story(before, after) {
		h.say("%s", line)
	}
}

// stored is called after each change.
func (h *history) stored(before, after client.Object) {
	h.tell(before, after)
	h.kubelets.Stored(before, after)
}

// podSucceeded is called for each pod that succeeds.
func (h *history) podSucceeded(node *corev1.Node, pod *corev1.Pod) {
	view := observe.Pod(pod)
	if view.Runs != task.Task {
		return
	}
	// The task also runs again if the reboot after it has failed.
	job := fakeapi.Get[*v1alpha1.NodeJob](h.api, "ns", nodeJobOf(pod))
	if view.Reboot == "" && (job == nil || !job.Spec.Rerun.OnReboot) {
		h.ran[taskRun{node.UID, pod.OwnerReferences[0].UID, view.Revision}]++
	}
	h.succeeded[taskRun{node: node.UID, revision: view.Revision}] = true
}

// newJob is a NodeJob with a random selection of features.
func (h *history) newJob(name string) *v1alpha1.NodeJob {
	h.edits++
	job := &v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	job.Spec = v1alpha1.NodeJobSpec{
		Task:  v1alpha1.TaskSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: fmt.Sprint("echo ", h.edits)}, TimeoutSeconds: new(int32(60))},
		Retry: v1alpha1.RetrySpec{Limit: new(h.Int31n(3)), BackoffSeconds: new(int32(20))},
		Rollout: v1alpha1.RolloutSpec{
			MaxConcurrent: new(intstr.FromInt32(1 + h.Int31n(3))),
			MaxFailures:   new(intstr.FromString("100%")),
		},
		DeletionPolicy: []v1alpha1.DeletionPolicy{v1alpha1.DeletionForget, v1alpha1.DeletionRollback, v1alpha1.DeletionRetain}[h.Intn(3)],
		Rollback:       &v1alpha1.RollbackSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "undo"}, TimeoutSeconds: new(int32(60))},
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
		spec.Gate = &v1alpha1.GateSpec{Nodes: []v1alpha1.GateNodes{v1alpha1.GateJoining, v1alpha1.GateAll}[h.Intn(2)]}
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
	node := fakeapi.Pick(h.Rand, fakeapi.All[*corev1.Node](h.api))
	job := fakeapi.Pick(h.Rand, fakeapi.All[*v1alpha1.NodeJob](h.api))
	what := h.Intn(15)
	h.say("event %d on %s", what, node.Name)
	switch what {
	case 0, 1:
		h.byHand[node.UID] = !node.Spec.Unschedulable
		fakeapi.Edit(h.api, node, func(n *corev1.Node) { n.Spec.Unschedulable = !n.Spec.Unschedulable })
	case 2, 3:
		h.kubelets.SetReady(node, []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown}[h.Intn(3)])
	case 4:
		h.kubelets.Reboot(node)
	case 5:
		if len(fakeapi.All[*corev1.Node](h.api)) > 2 {
			h.do(h.api.Remove(node))
		}
	case 6:
		h.join()
	case 7:
		fakeapi.Edit(h.api, node, func(n *corev1.Node) {
			n.Labels["pool"] = map[string]string{"a": "b", "b": "a"}[n.Labels["pool"]]
		})
	case 8:
		fakeapi.Edit(h.api, node, func(n *corev1.Node) {
			if delete(n.Labels, controlPlaneLabel); !plan.IsControlPlane(node.Labels) {
				n.Labels[controlPlaneLabel] = ""
			}
		})
	case 9:
		if pods := slices.DeleteFunc(
			fakeapi.All[*corev1.Pod](h.api),
			func(p *corev1.Pod) bool { return p.Namespace != "ns" },
		); len(
			pods,
		) > 0 {
			h.do(h.api.Remove(fakeapi.Pick(h.Rand, pods)))
		}
	case 10:
		if maps := fakeapi.All[*corev1.ConfigMap](h.api); len(maps) == 0 {
			h.do(h.api.Create(h.newContent()))
		} else if h.Intn(3) == 0 {
			h.do(h.api.Remove(maps[0]))
		} else {
			fakeapi.Edit(h.api, maps[0], func(c *corev1.ConfigMap) { c.Data = h.newContent().Data })
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
		h.do(h.api.Remove(job))
	case what == 2:
		fakeapi.Edit(h.api, job, func(j *v1alpha1.NodeJob) { j.Spec.Suspend = !j.Spec.Suspend })
	case what == 3:
		h.retry(job)
	case what == 4:
		fakeapi.Edit(h.api, job, func(j *v1alpha1.NodeJob) { j.Spec = h.newJob(j.Name).Spec })
	default:
		h.edits++
		fakeapi.Edit(h.api, job, func(j *v1alpha1.NodeJob) {
			if j.Spec.Task.Script != "" {
				j.Spec.Task.Script = fmt.Sprint("echo ", h.edits)
			}
		})
	}
}

func (h *history) retry(job *v1alpha1.NodeJob) {
	h.edits++
	fakeapi.Edit(h.api, job, func(j *v1alpha1.NodeJob) {
		j.Annotations = map[string]string{v1alpha1.RetryAnnotation: fmt.Sprint(h.edits)}
	})
}

func (h *history) createJobs() {
	for _, name := range []string{"job", "other"} {
		if fakeapi.Get[*v1alpha1.NodeJob](h.api, "ns", name) == nil {
			h.do(h.api.Create(h.newJob(name)))
		}
	}
}
