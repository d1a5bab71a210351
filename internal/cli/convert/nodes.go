// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"errors"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A node affinity is a list of terms, and a node that matches one of them is selected. A selector of a NodeJob has no OR, and a NodeJob
// for each term would run twice on a node that matches two of them.

// requiredTerms returns the terms of the node affinity that a node must match; nil if there is no such affinity.
func requiredTerms(pod *corev1.PodSpec) []corev1.NodeSelectorTerm {
	if a := pod.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		return a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	}
	return nil
}

// isNames reports whether a requirement about a field lists names of nodes. Kubernetes knows only the field metadata.name.
func isNames(r corev1.NodeSelectorRequirement) bool {
	return r.Key == metav1.ObjectNameField && r.Operator == corev1.NodeSelectorOpIn
}

// isLabels reports whether a label selector can have the requirement, which cannot compare numbers.
func isLabels(r corev1.NodeSelectorRequirement) bool {
	return r.Operator != corev1.NodeSelectorOpGt && r.Operator != corev1.NodeSelectorOpLt
}

// matchesNothing reports whether a term matches no node: it has no requirements, unlike other empty selectors, or contradicts itself.
func matchesNothing(t corev1.NodeSelectorTerm) bool {
	names, byName := namesOf(t)
	return len(t.MatchExpressions)+len(t.MatchFields) == 0 || byName && len(names) == 0
}

// namesOf returns the names of the nodes that a term selects by name, and whether it does that.
func namesOf(t corev1.NodeSelectorTerm) (names []string, byName bool) {
	for _, r := range t.MatchFields {
		switch {
		case !isNames(r):
		case !byName:
			names, byName = slices.Clone(r.Values), true
		default:
			names = slices.DeleteFunc(names, func(name string) bool { return !slices.Contains(r.Values, name) })
		}
	}
	return names, byName
}

// inexact returns the requirements of a term that a NodeJob cannot have.
func inexact(t corev1.NodeSelectorTerm) (found []string) {
	for _, r := range t.MatchExpressions {
		if !isLabels(r) {
			found = append(found, r.Key+" "+string(r.Operator))
		}
	}
	for _, r := range t.MatchFields {
		if !isNames(r) {
			found = append(found, r.Key+" "+string(r.Operator))
		}
	}
	return found
}

// selectNodes converts the node selector, the node affinity and the tolerations of the pod. If several terms match nodes, it takes the
// first one that a NodeJob can express.
func (d *draft) selectNodes() error {
	nodes, pod := &d.job.Spec.Nodes, &d.template.Spec
	selector := &metav1.LabelSelector{MatchLabels: maps.Clone(pod.NodeSelector)}
	required := requiredTerms(pod)
	if terms := slices.DeleteFunc(slices.Clone(required), matchesNothing); len(terms) > 0 {
		term := terms[max(0, slices.IndexFunc(terms, func(t corev1.NodeSelectorTerm) bool { return inexact(t) == nil }))]
		nodes.Names, _ = namesOf(term)
		for _, r := range term.MatchExpressions {
			if isLabels(r) {
				selector.MatchExpressions = append(selector.MatchExpressions, metav1.LabelSelectorRequirement{
					Key: r.Key, Operator: metav1.LabelSelectorOperator(r.Operator), Values: r.Values,
				})
			}
		}
		if lost := inexact(term); lost != nil {
			d.todo("the NodeJob runs on more nodes: it can neither compare numbers nor exclude nodes by a field (%s)\n%s",
				strings.Join(lost, ", "), ownLabel)
		}
		if len(terms) > 1 {
			d.todo("the NodeJob does not run on all of its nodes: only one of %d nodeSelectorTerms is converted\n"+
				"A label selector has no OR. %s\nDo not write a NodeJob for each term: a node that matches two of them would run the task twice.",
				len(terms), ownLabel)
		}
	} else if required != nil {
		return errors.New("its nodeSelectorTerms match no node, because they are empty or contradict themselves, so it runs nowhere. " +
			"Correct them, or remove the affinity to run on all nodes")
	}
	nodes.Selector, nodes.Tolerations = notEmpty(selector), pod.Tolerations
	return nil
}

const ownLabel = "Give the nodes that must run the task a label of your own, also those that join later, and select it."

// notEmpty returns nil for an empty selector, which a NodeJob must not have.
func notEmpty(selector *metav1.LabelSelector) *metav1.LabelSelector {
	if selector == nil || len(selector.MatchLabels)+len(selector.MatchExpressions) == 0 {
		return nil
	}
	return selector
}
