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

// BudgetName is the only name that the budget of a NodeGuard can have, so there is never more than one.
func BudgetName(guard string) string { return prefix(guard) + "guard" }

// PodName is the name of the companion or the check of a node, or of the placeholder (role). The key is a secret of the manager, so that
// kubelets and users cannot guess the name. nth is how many earlier names are taken by pods of other owners. The suffix distinguishes a companion from
// the pods of a DaemonSet with the name of its NodeGuard.
func PodName(guard, key, role, node string, nth int) string {
	suffix := "-guard"
	if role != v1alpha1.GuardRoleCompanion {
		suffix = "-" + role
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

// MatchLabels are the labels of the companion of a node.
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

// Placeholder returns a pod that is never scheduled, and so never ready. The budget expects it beside the companions.
func Placeholder(g *v1alpha1.NodeGuard, name string, opts task.Options) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: made(g, name), Spec: WaitingPod(opts, ContainerName)}
	pod.Labels[v1alpha1.NodeGuardLabel], pod.Labels[v1alpha1.GuardRoleLabel] = g.Name, v1alpha1.GuardRolePlaceholder
	pod.Annotations[SafeToEvictAnnotation] = "true"
	pod.Annotations[kube.DescriptionAnnotation] = "is never scheduled, so that the PodDisruptionBudget of the companions expects more pods than it requires"
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: v1alpha1.PlaceholderGate}}
	return pod
}

// NewBudget is the PodDisruptionBudget of the companions.
func NewBudget(g *v1alpha1.NodeGuard, state BudgetState) *policyv1.PodDisruptionBudget {
	b := &policyv1.PodDisruptionBudget{ObjectMeta: made(g, BudgetName(g.Name))}
	WriteBudget(b, g.Name, state)
	return b
}

// WriteBudget sets the fields of a budget for a state.
//
// The companion's owner has no scale subresource for the disruption controller, so minAvailable must be a whole number. With IfHealthyBudget,
// the eviction of a companion that is not ready is denied as well, while fewer are ready than are required.
func WriteBudget(b *policyv1.PodDisruptionBudget, guard string, state BudgetState) {
	available, policy := intstr.FromInt32(state.MinAvailable), policyv1.IfHealthyBudget
	b.Spec = policyv1.PodDisruptionBudgetSpec{
		MinAvailable: &available,
		Selector: &metav1.LabelSelector{
			MatchLabels: map[string]string{v1alpha1.NodeGuardLabel: guard},
			MatchExpressions: []metav1.LabelSelectorRequirement{{
				Key: v1alpha1.GuardRoleLabel, Operator: metav1.LabelSelectorOpIn,
				Values: []string{v1alpha1.GuardRoleCompanion, v1alpha1.GuardRolePlaceholder},
			}},
		},
		UnhealthyPodEvictionPolicy: &policy,
	}
	b.Labels, b.Annotations = maps.Clone(b.Labels), maps.Clone(b.Annotations)
	if b.Labels == nil {
		b.Labels = map[string]string{}
	}
	if b.Annotations == nil {
		b.Annotations = map[string]string{}
	}
	b.Labels[v1alpha1.NodeGuardLabel] = guard
	b.Annotations[kube.DescriptionAnnotation] = "holds nodes for NodeGuard " + guard + ": kubectl get nodeguards"
	delete(b.Annotations, v1alpha1.RequestedAtAnnotation)
	if len(state.RequestedAt) > 0 {
		b.Annotations[v1alpha1.RequestedAtAnnotation] = tokens(state.RequestedAt)
	}
}

// tokens is the format of the times of nodes in an annotation.
func tokens(times map[string]time.Time) string {
	texts := make(map[string]string, len(times))
	for node, at := range times {
		texts[node] = token(at)
	}
	b, err := json.Marshal(texts)
	if err != nil {
		panic(fmt.Sprintf("encoding times: %v", err)) // a map of strings
	}
	return string(b)
}

// timesOf reads what tokens has written. Another client can write anything there: what is no time is omitted.
func timesOf(text string) map[string]time.Time {
	var texts map[string]string
	if json.Unmarshal([]byte(text), &texts) != nil {
		return nil
	}
	times := make(map[string]time.Time, len(texts))
	for node, text := range texts {
		if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
			times[node] = at
		}
	}
	return times
}

// ReadBudget returns what the plan reads of a budget.
func ReadBudget(b *policyv1.PodDisruptionBudget) Budget {
	budget := Budget{
		Name: b.Name, UID: b.UID, ResourceVersion: b.ResourceVersion, Owner: owner(b),
		Healthy: b.Status.CurrentHealthy, Processed: b.Status.ObservedGeneration >= b.Generation,
	}
	budget.RequestedAt = timesOf(b.Annotations[v1alpha1.RequestedAtAnnotation])
	if b.Spec.MinAvailable != nil && b.Spec.MinAvailable.Type == intstr.Int {
		budget.MinAvailable = b.Spec.MinAvailable.IntVal
	}
	should := &policyv1.PodDisruptionBudget{}
	WriteBudget(should, b.Labels[v1alpha1.NodeGuardLabel], budget.BudgetState)
	budget.Drifted = !kube.SameSpec(&b.Spec, &should.Spec)
	return budget
}
