// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/kube"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/runner/contract"
)

const (
	// ContainerName is the container of the built-in companion and of a check.
	ContainerName = "guard"

	// SafeToEvictAnnotation allows cluster-autoscaler to evict a pod whose controller it does not know, within its budget.
	SafeToEvictAnnotation = "cluster-autoscaler.kubernetes.io/safe-to-evict"

	managedByLabel = "app.kubernetes.io/managed-by"
	managedBy      = "everynode"
)

// Template returns the current companion template: that of the user, with the target's tolerations and priority class
// as defaults, or the built-in one.
func Template(g *v1alpha1.NodeGuard, target *corev1.PodSpec, opts task.Options) corev1.PodTemplateSpec {
	t := corev1.PodTemplateSpec{Spec: WaitingPod(opts, ContainerName)}
	if g.Spec.Template != nil {
		t = *g.Spec.Template.DeepCopy()
		t.Labels, t.Annotations = task.WithoutOurKeys(t.Labels), task.WithoutOurKeys(t.Annotations)
	}
	if target != nil && t.Spec.Tolerations == nil {
		t.Spec.Tolerations = withoutPlacement(target.Tolerations)
	}
	if target != nil && t.Spec.PriorityClassName == "" {
		t.Spec.PriorityClassName = target.PriorityClassName
	}
	t.Spec.Tolerations = task.Tolerations(t.Spec.Tolerations)
	t.Spec.RestartPolicy = corev1.RestartPolicyAlways
	task.WithoutToken(&t.Spec)
	t.Annotations = maps.Clone(t.Annotations)
	if t.Annotations == nil {
		t.Annotations = map[string]string{}
	}
	if _, said := t.Annotations[SafeToEvictAnnotation]; !said {
		t.Annotations[SafeToEvictAnnotation] = "true"
	}
	return t
}

// withoutPlacement returns the tolerations that allow a running pod to stay on its node. Tolerations for the scheduler
// do not affect a pod that is already bound. Karpenter does not wait for a pod that tolerates its disruption taint.
func withoutPlacement(tolerations []corev1.Toleration) []corev1.Toleration {
	kept := make([]corev1.Toleration, 0, len(tolerations))
	for _, t := range tolerations {
		switch t.Effect {
		case corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule:
			continue
		case "":
			t.Effect = corev1.TaintEffectNoExecute
		case corev1.TaintEffectNoExecute:
		}
		kept = append(kept, t)
	}
	return kept
}

// WaitingPod returns the built-in companion, which only waits for SIGTERM. It passes the strictest Pod Security Standard.
func WaitingPod(opts task.Options, container string) corev1.PodSpec {
	return task.Unprivileged(opts, container, contract.FlagWait)
}

// Revision is a short hash of the companion template.
func Revision(t *corev1.PodTemplateSpec) string {
	b, err := json.Marshal(t)
	if err != nil {
		panic(fmt.Sprintf("encoding a companion: %v", err)) // only API types, which were decoded from JSON
	}
	return kube.ShortHash(string(b))
}

// BudgetName is the only name that the budget of a node can have, so there is never more than one.
func BudgetName(guard, node string) string { return prefix(guard) + kube.ShortHash(node) }

// PodName is the name of the companion or the check of a node (role). The key is a secret of the manager, so that
// kubelets and users cannot guess the name. nth is how many earlier names are taken by pods of other owners. The suffix distinguishes a companion from
// the pods of a DaemonSet with the name of its NodeGuard.
func PodName(guard, key, role, node string, nth int) string {
	suffix := "-guard"
	if role == v1alpha1.GuardRoleCheck {
		suffix = "-check"
	}
	return prefix(guard) + kube.ShortHash(fmt.Sprintf("%s/%s/%s/%d", key, role, node, nth)) + suffix
}

func prefix(guard string) string {
	if len(guard) > 46 {
		guard = strings.TrimRight(guard[:35], "-.") + "-" + kube.ShortHash(guard) // other names may have the same beginning
	}
	return guard + "-"
}

// NodeID represents a node in labels, because label values must be shorter than node names can be.
func NodeID(node string) string { return kube.ShortHash(node) }

// MatchLabels are the labels by which a budget selects its companion.
func MatchLabels(guard, node string) map[string]string {
	return map[string]string{v1alpha1.NodeGuardLabel: guard, v1alpha1.GuardedNodeLabel: NodeID(node), v1alpha1.GuardRoleLabel: v1alpha1.GuardRoleCompanion}
}

// Companion returns the pod that runs next to the target's pod. It is bound to its node without a scheduler, so it is
// never Pending for lack of capacity, and it is recreated on a node that is cordoned and held.
func Companion(g *v1alpha1.NodeGuard, t *corev1.PodTemplateSpec, node, name string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: made(g, name), Spec: *t.Spec.DeepCopy()}
	maps.Copy(pod.Labels, t.Labels)
	maps.Copy(pod.Labels, MatchLabels(g.Name, node))
	maps.Copy(pod.Annotations, t.Annotations)
	pod.Labels[v1alpha1.RevisionLabel] = Revision(t)
	pod.Annotations[v1alpha1.NodeGuardUIDAnnotation] = string(g.UID)
	pod.Spec.NodeName = node
	return pod
}

// made returns the metadata of objects that a NodeGuard creates. The NodeGuard owns them, so that a drain needs no
// --force, and the garbage collector deletes them with the NodeGuard, even if no manager is running.
func made(g *v1alpha1.NodeGuard, name string) metav1.ObjectMeta {
	yes := true
	return metav1.ObjectMeta{
		Namespace: g.Namespace, Name: name,
		Labels:      map[string]string{managedByLabel: managedBy},
		Annotations: map[string]string{v1alpha1.NodeGuardUIDAnnotation: string(g.UID)},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeGuard", Name: g.Name, UID: g.UID, Controller: &yes,
		}},
	}
}

// Check returns the pod whose exit code says whether a node may be released.
func Check(g *v1alpha1.NodeGuard, node, name, requestedAt string, opts task.Options) *corev1.Pod {
	spec := g.Spec.Release.Check
	seconds := int32(DefaultCheckTimeoutSeconds)
	if spec.TimeoutSeconds != nil {
		seconds = *spec.TimeoutSeconds
	}
	pod := &corev1.Pod{Spec: containerCheck(spec, node)}
	if spec.Script != "" {
		pod.Spec = task.ScriptPodSpec(spec.Script, g.Namespace+"/"+g.Name, node, time.Duration(seconds)*time.Second, opts)
	}
	deadline := int64(seconds)
	pod.ObjectMeta = made(g, name)
	maps.Copy(pod.Labels, MatchLabels(g.Name, node))
	pod.Labels[v1alpha1.GuardRoleLabel] = v1alpha1.GuardRoleCheck
	pod.Annotations[v1alpha1.RequestedAtAnnotation] = requestedAt
	pod.Spec.NodeName = node
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	pod.Spec.ActiveDeadlineSeconds = &deadline
	pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	return pod
}

func containerCheck(spec *v1alpha1.ReleaseCheck, node string) corev1.PodSpec {
	if spec.Container == nil {
		return corev1.PodSpec{}
	}
	c := spec.Container.DeepCopy()
	pod := corev1.PodSpec{
		ServiceAccountName: spec.ServiceAccountName,
		Containers: []corev1.Container{{
			Name: ContainerName, Image: c.Image, Command: c.Command, Args: c.Args,
			Env:                      append(c.Env, corev1.EnvVar{Name: contract.EnvNodeName, Value: node}),
			TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		}},
	}
	task.WithoutToken(&pod)
	return pod
}

// NewBudget is the PodDisruptionBudget of a node.
func NewBudget(g *v1alpha1.NodeGuard, node string, state BudgetState) *policyv1.PodDisruptionBudget {
	b := &policyv1.PodDisruptionBudget{ObjectMeta: made(g, BudgetName(g.Name, node))}
	WriteBudget(b, g.Name, node, state)
	return b
}

// lockedAvailable is more pods than a node can have, so that no disruption is ever allowed.
const lockedAvailable = 1_000_000

// WriteBudget sets the fields of a budget for a state.
//
// A locked budget requires more ready pods than there can be, so pods of other owners with the same labels cannot open
// it. Not all closed budgets are locked, because monitoring reports budgets with fewer ready pods than required.
//
// The companion's owner has no scale subresource for the disruption controller, so minAvailable must be a whole number:
// 1 of 1 closes the budget, 0 opens it. Evicting a companion that is not ready also needs the policy: with
// IfHealthyBudget its eviction is denied if 1 is required, and also if 0 are, because then no disruption is allowed.
func WriteBudget(b *policyv1.PodDisruptionBudget, guard, node string, state BudgetState) {
	available, policy := intstr.FromInt32(1), policyv1.IfHealthyBudget
	switch {
	case state.Open:
		available, policy = intstr.FromInt32(0), policyv1.AlwaysAllow
	case state.Locked:
		available = intstr.FromInt32(lockedAvailable)
	}
	b.Spec = policyv1.PodDisruptionBudgetSpec{
		MinAvailable:               &available,
		Selector:                   &metav1.LabelSelector{MatchLabels: MatchLabels(guard, node)},
		UnhealthyPodEvictionPolicy: &policy,
	}
	b.Labels, b.Annotations = maps.Clone(b.Labels), maps.Clone(b.Annotations)
	if b.Labels == nil {
		b.Labels = map[string]string{}
	}
	if b.Annotations == nil {
		b.Annotations = map[string]string{}
	}
	labels := MatchLabels(guard, node)
	delete(labels, v1alpha1.GuardRoleLabel)
	maps.Copy(b.Labels, labels)
	b.Annotations[v1alpha1.GuardedNodeAnnotation] = node
	set := func(key, value string) {
		if value == "" {
			delete(b.Annotations, key)
		} else {
			b.Annotations[key] = value
		}
	}
	set(v1alpha1.RequestedAtAnnotation, token(state.RequestedAt))
	set(v1alpha1.EndedReleaseAnnotation, state.Ended)
}

// ReadBudget returns what the plan reads of a budget.
func ReadBudget(b *policyv1.PodDisruptionBudget) Budget {
	budget := Budget{
		Name: b.Name, UID: b.UID, ResourceVersion: b.ResourceVersion,
		Node: b.Annotations[v1alpha1.GuardedNodeAnnotation], Owner: owner(b),
		Evicting: len(b.Status.DisruptedPods) > 0,
	}
	budget.Ended = b.Annotations[v1alpha1.EndedReleaseAnnotation]
	budget.RequestedAt, _ = time.Parse(time.RFC3339Nano, b.Annotations[v1alpha1.RequestedAtAnnotation]) // the zero time with an error
	requires := func(pods int32) bool {
		return b.Spec.MinAvailable != nil && *b.Spec.MinAvailable == intstr.FromInt32(pods)
	}
	budget.Open, budget.Locked = requires(0), requires(lockedAvailable)
	should := &policyv1.PodDisruptionBudget{}
	WriteBudget(should, b.Labels[v1alpha1.NodeGuardLabel], budget.Node, budget.BudgetState)
	budget.Drifted = !kube.SameSpec(&b.Spec, &should.Spec)
	return budget
}
