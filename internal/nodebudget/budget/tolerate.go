// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
)

// A seat runs on its node alone. But autoscalers drain a node only if its pods could run elsewhere, as far as they know, and a descheduler
// evicts pods that do not tolerate a taint of their node. So a seat tolerates the taints of its node.

// maxTolerations is how many taints of its node a seat tolerates at most. Tolerations can be added to a running pod, and not removed. So
// this is also how often the taints of a node can have its seat changed.
const maxTolerations = 16

// The keys of taints that say what state a node is in, or that it will be removed, by how they begin and by the domain, or the end of it,
// before their slash. A seat that tolerates those of autoscalers is not evicted by them.
var (
	transientPrefixes = []string{
		"ToBeDeletedByClusterAutoscaler", "DeletionCandidateOfClusterAutoscaler", "karpenter.", "aws-node-termination-handler/",
		"cloud.google.com/impending-node-termination",
	}
	transientDomains = []string{
		"node.kubernetes.io", "node.cloudprovider.kubernetes.io", "cluster-autoscaler.kubernetes.io", v1alpha1.Group,
	}
)

func isTransient(key string) bool {
	return slices.ContainsFunc(transientPrefixes, func(prefix string) bool { return strings.HasPrefix(key, prefix) }) ||
		slices.ContainsFunc(transientDomains, func(domain string) bool { return strings.Contains("."+key, "."+domain+"/") })
}

// toleratedEffects are the effects of the taints of its node that a seat tolerates by their key. It tolerates all NoExecute taints.
var toleratedEffects = []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule}

// Taints are keys and effects of taints, sorted, such as "dedicated:NoSchedule,spot:PreferNoSchedule".
type Taints string

func newTaints(all []string) Taints {
	slices.Sort(all)
	return Taints(strings.Join(slices.Compact(all), ","))
}

func (t Taints) list() []string {
	if t == "" {
		return nil
	}
	return strings.Split(string(t), ",")
}

// Tolerations returns a toleration for each of the taints.
func (t Taints) Tolerations() []corev1.Toleration {
	var all []corev1.Toleration
	for _, taint := range t.list() {
		key, effect, _ := strings.Cut(taint, ":")
		all = append(all, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffect(effect)})
	}
	return all
}

// lasting are the taints of a node that a seat tolerates.
func lasting(node *Node) []string {
	var all []string
	for i := range node.Taints {
		t := &node.Taints[i]
		if slices.Contains(toleratedEffects, t.Effect) && !isTransient(t.Key) {
			all = append(all, t.Key+":"+string(t.Effect))
		}
	}
	return all
}

// tolerated are the taints that a seat tolerates by their key.
func tolerated(pod *corev1.Pod) Taints {
	var all []string
	for i := range pod.Spec.Tolerations {
		t := &pod.Spec.Tolerations[i]
		if t.Key != "" && t.Operator == corev1.TolerationOpExists && slices.Contains(toleratedEffects, t.Effect) {
			all = append(all, t.Key+":"+string(t.Effect))
		}
	}
	return newTaints(all)
}

// toTolerate returns which more taints of its node a seat tolerates, beside those that it does.
func toTolerate(node *Node, has Taints) Taints {
	tolerates := has.list()
	missing := slices.DeleteFunc(newTaints(lasting(node)).list(), func(t string) bool { return slices.Contains(tolerates, t) })
	return newTaints(missing[:max(0, min(len(missing), maxTolerations-len(tolerates)))])
}
