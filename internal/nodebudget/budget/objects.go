// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/kube"
	"github.com/everynode/everynode/internal/nodeguard/guard"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/seal"
)

// Place is where seats are created.
type Place struct {
	// Namespace is the namespace of the manager.
	Namespace string
	// Owner is the controller of all seats: the Secret with the key of the installation. A drain evicts a pod without --force only if
	// it has a controller, and the garbage collector deletes the seats with the Secret.
	Owner metav1.OwnerReference
	// Key is the key of the installation.
	Key seal.Key
	// Options are the settings of the installation for pods.
	Options task.Options
}

// From version 1.14 on, Karpenter takes this deletion cost for a pod whose eviction costs nothing, so a node with only a seat is empty.
// Source: sigs.k8s.io/karpenter pkg/utils/disruption (EvictionCost).
const deletionCostAnnotation, noDeletionCost = corev1.PodDeletionCost, "-134217728"

// Seat returns the pod that is the seat of a node. It is bound to its node without a scheduler, so it is never Pending for lack of
// capacity. It tolerates all taints that would end it, and the lasting ones of its node. Its name contains a secret, so that no kubelet can create a pod with this name
// before.
func (p *Place) Seat(a CreateSeat) *corev1.Pod {
	pod := p.pod("seat-"+p.Key.Digest("seat name", string(a.NodeUID)), a.Group)
	pod.Annotations[v1alpha1.SeatNodeAnnotation] = string(a.NodeUID)
	pod.Annotations[kube.DescriptionAnnotation] = "holds its node for NodeDisruptionBudgets: kubectl get nodedisruptionbudgets"
	if a.Returned {
		pod.Annotations[v1alpha1.SeatReturnedAnnotation] = "true"
	}
	pod.Spec.NodeName = a.Node
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, a.Tolerates.Tolerations()...)
	p.Key.SealSeat(pod)
	return pod
}

// pod returns what seats and placeholders have in common.
func (p *Place) pod(name, group string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, Name: name, Labels: seatLabels(group),
			Annotations:     map[string]string{guard.SafeToEvictAnnotation: "true", deletionCostAnnotation: noDeletionCost},
			OwnerReferences: []metav1.OwnerReference{p.Owner},
		},
		Spec: guard.WaitingPod(p.Options, "seat"),
	}
	pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
	pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}}
	return pod
}

func seatLabels(group string) map[string]string {
	return map[string]string{
		"app.kubernetes.io/name": "everynode", "app.kubernetes.io/component": "seat", "app.kubernetes.io/managed-by": "everynode",
		v1alpha1.BudgetGroupLabel: group,
	}
}

// IsSeat reports whether a pod is a seat that the manager has created.
func (p *Place) IsSeat(pod *corev1.Pod) bool {
	return pod.Namespace == p.Namespace && pod.Labels[v1alpha1.BudgetGroupLabel] != "" && p.Key.MadeSeat(pod)
}

// ViewSeat returns what the plan reads of a seat.
func ViewSeat(pod *corev1.Pod) Seat {
	return Seat{
		Name: pod.Name, UID: pod.UID, Node: types.UID(pod.Annotations[v1alpha1.SeatNodeAnnotation]), Group: pod.Labels[v1alpha1.BudgetGroupLabel],
		Created: pod.CreationTimestamp.Time, Returned: pod.Annotations[v1alpha1.SeatReturnedAnnotation] == "true",
		Evicted:     kube.IsEvicted(pod),
		Ready:       kube.PodReady(pod) && pod.DeletionTimestamp.IsZero(),
		Terminating: !pod.DeletionTimestamp.IsZero(), AtOnce: pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0, Ended: kube.PodEnded(pod.Status.Phase), Tolerates: tolerated(pod), Waiting: kube.Waiting(pod),
	}
}

// ViewNode returns what the plan reads of a node.
func ViewNode(n *corev1.Node) Node {
	node := Node{Node: kube.ViewNode(n), Created: n.CreationTimestamp.Time}
	if c := kube.ReadyCondition(n); c != nil {
		node.ReadyChanged = c.LastTransitionTime.Time
	}
	return node
}

// FloorName is the name of the PodDisruptionBudget of a group.
func FloorName(group string) string { return "everynode-seats-" + group }

// NewFloor returns the PodDisruptionBudget of a group.
func (p *Place) NewFloor(state FloorState) *policyv1.PodDisruptionBudget {
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: FloorName(state.Group)}}
	WriteFloor(b, state)
	return b
}

// WriteFloor sets the fields of a PodDisruptionBudget. An unhealthy seat can be evicted only while as many others are healthy as the
// budget requires: otherwise a seat that does not start would let its node go although others are away.
func WriteFloor(b *policyv1.PodDisruptionBudget, state FloorState) {
	available, policy := intstr.FromInt32(state.MinAvailable), policyv1.IfHealthyBudget
	b.Labels = maps.Clone(b.Labels)
	if b.Labels == nil {
		b.Labels = map[string]string{}
	}
	b.Labels["app.kubernetes.io/managed-by"], b.Labels[v1alpha1.BudgetGroupLabel] = "everynode", state.Group
	b.Spec = policyv1.PodDisruptionBudgetSpec{
		MinAvailable: &available,
		Selector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
			Key: v1alpha1.BudgetGroupLabel, Operator: metav1.LabelSelectorOpIn, Values: []string{state.Group, PlaceholderGroup},
		}}},
		UnhealthyPodEvictionPolicy: &policy,
	}
	b.OwnerReferences = nil
	b.Annotations = maps.Clone(b.Annotations)
	if b.Annotations == nil {
		b.Annotations = map[string]string{}
	}
	b.Annotations[kube.DescriptionAnnotation] = description(state.Owners)
	for _, o := range state.Owners {
		b.OwnerReferences = append(b.OwnerReferences, metav1.OwnerReference{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeDisruptionBudget", Name: o.Name, UID: o.UID,
		})
	}
}

// description says which budgets hold the nodes of a group, for those who drain one of them.
func description(owners []Owner) string {
	names := make([]string, 0, len(owners))
	for _, o := range owners {
		names = append(names, o.Name)
	}
	if len(names) > maxNamed {
		names = append(names[:maxNamed], "…")
	}
	return "holds nodes for NodeDisruptionBudget " + strings.Join(names, ", ") + ": kubectl get nodedisruptionbudgets"
}

// IsFloor reports whether a PodDisruptionBudget is that of a group.
func (p *Place) IsFloor(b *policyv1.PodDisruptionBudget) bool {
	group := b.Labels[v1alpha1.BudgetGroupLabel]
	return b.Namespace == p.Namespace && group != "" && b.Name == FloorName(group)
}

// ViewFloor returns what the plan reads of the PodDisruptionBudget of a group.
func ViewFloor(b *policyv1.PodDisruptionBudget) Floor {
	f := Floor{
		Group: b.Labels[v1alpha1.BudgetGroupLabel], UID: b.UID, ResourceVersion: b.ResourceVersion, Created: b.CreationTimestamp.Time,
		Allowed: b.Status.DisruptionsAllowed, Processed: b.Status.ObservedGeneration >= b.Generation,
		Evicted: slices.Sorted(maps.Keys(b.Status.DisruptedPods)),
	}
	if b.Spec.MinAvailable != nil && b.Spec.MinAvailable.Type == intstr.Int {
		f.MinAvailable = b.Spec.MinAvailable.IntVal
	}
	for _, o := range b.OwnerReferences {
		f.Owners = append(f.Owners, o.UID)
	}
	should := &policyv1.PodDisruptionBudget{}
	WriteFloor(should, FloorState{Group: f.Group, MinAvailable: f.MinAvailable})
	f.Drifted = !kube.SameSpec(&b.Spec, &should.Spec)
	return f
}
