// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/testing/fakeapi"
)

// What users and the other controllers of a cluster do.

const zoneLabel = "topology.kubernetes.io/zone"

func (h *history) daemonSet() *appsv1.DaemonSet {
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "storage"}}
	ds.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "storage"}}
	ds.Spec.Template.Labels = map[string]string{"app": "storage"}
	ds.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	return ds
}

func (h *history) join(zone string) {
	h.nodes++
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprint("n", h.nodes), Labels: map[string]string{zoneLabel: zone},
		},
		Status: corev1.NodeStatus{
			NodeInfo:   corev1.NodeSystemInfo{BootID: "boot0", MachineID: fmt.Sprint("machine", h.nodes)},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}},
		},
	}
	h.do(h.api.Create(node))
	workload := h.pod("workload-"+node.Name, node.Name, "ReplicaSet", "rs")
	workload.Namespace = "default"
	h.do(h.api.Create(workload))
	h.createTarget(node)
}

func (h *history) anyZone() string { return []string{"a", "b"}[h.Intn(2)] }

func (h *history) pod(name, node, ownerKind, owner string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "apps/v1", Kind: ownerKind, Name: owner, UID: "uid", Controller: new(true)},
		}},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "main"}}},
	}
}

// createTarget creates the pod of the DaemonSet on a node.
func (h *history) createTarget(node *corev1.Node) {
	ds := fakeapi.Get[*appsv1.DaemonSet](h.api, namespace, "storage")
	target := h.pod("storage-"+node.Name, node.Name, "DaemonSet", ds.Name)
	target.Labels, target.OwnerReferences[0].UID = ds.Spec.Template.Labels, ds.UID
	h.do(h.api.Create(target))
}

// createBudget creates a NodeDisruptionBudget or changes it: one for all nodes, or one for each zone.
func (h *history) createBudget(name string) {
	spec := v1alpha1.NodeDisruptionBudgetSpec{Limits: []v1alpha1.BudgetLimit{{MaxUnavailable: new(intstr.FromInt32(1 + h.Int31n(2)))}}}
	if name == "zones" {
		spec.Limits = []v1alpha1.BudgetLimit{{MaxUnavailable: new(intstr.FromInt32(1)), TopologyKey: zoneLabel}}
	}
	if h.one(3) {
		spec.Windows = []v1alpha1.BudgetWindow{{Schedule: "*/30 * * * *", DurationSeconds: windowSeconds}}
	}
	if h.one(4) {
		spec.PaceSeconds = new(int32(30))
	}
	if h.one(2) {
		spec.JoiningNodes = v1alpha1.JoiningNodesIncluded
	}
	h.setBudget(name, &spec)
}

const windowSeconds = 1200

// freeze creates a budget that allows nothing.
func (h *history) freeze() {
	spec := v1alpha1.NodeDisruptionBudgetSpec{
		Limits:       []v1alpha1.BudgetLimit{{MaxUnavailable: new(intstr.FromInt32(0))}},
		JoiningNodes: v1alpha1.JoiningNodesIncluded,
	}
	if h.one(2) {
		spec.AppliesTo = v1alpha1.AppliesToAllTasks
	}
	h.setBudget("freeze", &spec)
}

func (h *history) setBudget(name string, spec *v1alpha1.NodeDisruptionBudgetSpec) {
	h.say("budget %s: %+v", name, spec)
	if b := fakeapi.Get[*v1alpha1.NodeDisruptionBudget](h.api, "", name); b != nil {
		fakeapi.Edit(h.api, b, func(b *v1alpha1.NodeDisruptionBudget) { b.Spec = *spec })
		return
	}
	h.do(h.api.Create(&v1alpha1.NodeDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: *spec}))
}

func (h *history) newGuard() *v1alpha1.NodeGuard {
	g := &v1alpha1.NodeGuard{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "guard"}}
	g.Spec.Target.DaemonSet = "storage"
	g.Spec.MaxUnavailable = new(intstr.FromInt32(1))
	if h.one(2) {
		g.Spec.Release.Check = &v1alpha1.ReleaseCheck{Script: "true", PeriodSeconds: new(int32(20))}
	}
	return g
}

// createJobs creates the NodeJobs that do not exist. Runs fit the windows of budgets.
func (h *history) createJobs() {
	for _, name := range []string{"first", "second"} {
		if fakeapi.Get[*v1alpha1.NodeJob](h.api, namespace, name) == nil {
			h.do(h.api.Create(h.newJob(name)))
		}
	}
}

func (h *history) newJob(name string) *v1alpha1.NodeJob {
	job := &v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	spec := &job.Spec
	*spec = v1alpha1.NodeJobSpec{
		Task: v1alpha1.TaskSpec{
			ScriptBlock:    v1alpha1.ScriptBlock{Script: fmt.Sprint("echo ", h.Intn(1000))},
			TimeoutSeconds: new(int32(60)),
		},
		Retry:   v1alpha1.RetrySpec{Limit: new(h.Int31n(3)), BackoffSeconds: new(int32(10))},
		Rollout: v1alpha1.RolloutSpec{MaxConcurrent: new(intstr.FromInt32(1 + h.Int31n(3))), MaxFailures: new(intstr.FromString("100%"))},
	}
	if !h.one(4) {
		spec.Maintenance = []v1alpha1.MaintenanceSpec{
			{Cordon: true},
			{Drain: &v1alpha1.DrainSpec{TimeoutSeconds: new(int32(120))}},
			{Reboot: v1alpha1.RebootSpec{Policy: v1alpha1.RebootAlways}},
			{Drain: &v1alpha1.DrainSpec{TimeoutSeconds: new(int32(120))}, Reboot: v1alpha1.RebootSpec{Policy: v1alpha1.RebootIfRequested}},
		}[h.Intn(4)]
		spec.Maintenance.Reboot.TimeoutSeconds = new(int32(120))
	}
	if h.one(3) {
		spec.Rollout.Steps = []v1alpha1.RolloutStep{{Name: "canary", Nodes: new(intstr.FromInt32(1)), SoakSeconds: 30}, {Name: "all"}}
	}
	if h.one(3) {
		spec.Gate = &v1alpha1.GateSpec{Nodes: []v1alpha1.GateNodes{v1alpha1.GateJoining, v1alpha1.GateAll}[h.Intn(2)]}
	}
	if name == "second" && h.one(2) {
		spec.DependsOn = []string{"first"}
	}
	return job
}

func (h *history) retry(job *v1alpha1.NodeJob) {
	fakeapi.Edit(h.api, job, func(j *v1alpha1.NodeJob) {
		j.Annotations = map[string]string{v1alpha1.RetryAnnotation: fmt.Sprint(h.Intn(1 << 30))}
	})
}

// event is something that happens in the cluster.
func (h *history) event() {
	node := fakeapi.Pick(h.Rand, fakeapi.All[*corev1.Node](h.api))
	switch what := h.Intn(18); what {
	case 0, 1, 2, 3, 4:
		h.beginDrain(node)
	case 5:
		h.say("%s breaks", node.Name)
		h.kubelets.SetReady(node, corev1.ConditionFalse)
	case 6, 7:
		h.kubelets.SetReady(node, corev1.ConditionTrue)
	case 8:
		h.join(h.anyZone())
	case 9:
		if h.isFree(node) && len(fakeapi.All[*corev1.Node](h.api)) > 2 {
			h.say("%s is deleted", node.Name)
			h.do(h.api.Remove(node))
		}
	case 10:
		h.changeFreeze()
	case 11:
		h.createBudget([]string{"all", "zones"}[h.Intn(2)])
	case 12:
		if h.crash(); h.one(2) {
			time.Sleep(time.Duration(h.Intn(120)) * time.Second)
		}
		h.start()
	case 13:
		if pod := fakeapi.Pick(h.Rand, h.protectors()); pod != nil {
			h.forgive(pod)
			h.do(h.api.Remove(pod))
		}
	case 14:
		if g := fakeapi.Get[*v1alpha1.NodeGuard](h.api, namespace, "guard"); g != nil {
			h.do(h.api.Remove(g))
		} else {
			h.do(h.api.Create(h.newGuard()))
		}
	default:
		h.changeJob(fakeapi.Pick(h.Rand, fakeapi.All[*v1alpha1.NodeJob](h.api)))
	}
}

func (h *history) changeFreeze() {
	if b := fakeapi.Get[*v1alpha1.NodeDisruptionBudget](h.api, "", "freeze"); b != nil {
		h.say("the freeze ends")
		h.do(h.api.Remove(b))
		return
	}
	h.freeze()
}

// protectors are the seats and the companions.
func (h *history) protectors() []*corev1.Pod {
	return slices.DeleteFunc(fakeapi.All[*corev1.Pod](h.api), func(p *corev1.Pod) bool {
		return p.Labels[v1alpha1.BudgetGroupLabel] == "" && p.Labels[v1alpha1.NodeGuardLabel] == ""
	})
}

func (h *history) changeJob(job *v1alpha1.NodeJob) {
	switch {
	case job == nil:
		h.createJobs()
	case h.one(4):
		h.do(h.api.Remove(job))
	case h.one(2):
		h.retry(job)
	default:
		spec := h.newJob(job.Name).Spec
		fakeapi.Edit(h.api, job, func(j *v1alpha1.NodeJob) { j.Spec = spec })
	}
}

// stored is what the other controllers do after a change. Its caller has locked the server.
func (h *history) stored(before, after client.Object) {
	h.tell(before, after)
	h.check(before, after)
	h.kubelets.Stored(before, after)
	if after == nil {
		h.api.Later(before, time.Second, 3*time.Second, func() { h.collectGarbage(before) })
	}
	node, is := after.(*corev1.Node)
	if !is {
		return
	}
	cordon := corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}
	if has := slices.ContainsFunc(
		node.Spec.Taints,
		func(t corev1.Taint) bool { return t.MatchTaint(&cordon) },
	); has != node.Spec.Unschedulable {
		h.api.Later(node, 10*time.Millisecond, time.Second, func() { h.taint(node) })
	}
}

// taint is the controller that taints nodes that are cordoned.
func (h *history) taint(node *corev1.Node) {
	fakeapi.Edit(h.api, node, func(n *corev1.Node) {
		n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeUnschedulable })
		if n.Spec.Unschedulable {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{
				Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule, TimeAdded: new(metav1.Now().Rfc3339Copy()),
			})
		}
	})
}

// collectGarbage deletes what only a deleted object owns, and creates the pods of DaemonSets again.
func (h *history) collectGarbage(gone client.Object) {
	for _, o := range h.api.Dependents(gone.GetUID()) {
		h.do(h.api.Remove(o))
	}
	pod, is := gone.(*corev1.Pod)
	if !is || pod.Labels["app"] != "storage" {
		return
	}
	if node := fakeapi.Get[*corev1.Node](
		h.api,
		"",
		pod.Spec.NodeName,
	); node != nil &&
		fakeapi.Get[*corev1.Pod](h.api, namespace, pod.Name) == nil {
		h.createTarget(node)
	}
}

// tell adds a change to the story.
func (h *history) tell(before, after client.Object) {
	for _, line := range fakeapi.Story(before, after) {
		h.say("%s", line)
	}
}
