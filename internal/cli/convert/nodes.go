// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A node affinity is a list of terms, and a node that matches one of them is selected. A selector of a NodeJob has no OR.
// So terms are merged, as long as the result matches exactly the same nodes.

// term is a list of requirements. A node matches if it meets all of them, so a term without requirements matches all nodes.
type term []requirement

// requirement is about a label of a node, or about a field.
type requirement struct {
	corev1.NodeSelectorRequirement
	// isField says that the key is a field. Kubernetes knows only metadata.name.
	isField bool
}

func (r requirement) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", r.Key, r.Operator, strings.Join(r.Values, ",")))
}

func (t term) String() string {
	parts := make([]string, len(t))
	for i, r := range t {
		parts[i] = r.String()
	}
	return strings.Join(parts, " and ")
}

// isNames reports whether the requirement lists names of nodes.
func (r requirement) isNames() bool {
	return r.isField && r.Key == metav1.ObjectNameField && r.Operator == corev1.NodeSelectorOpIn
}

// isLabels reports whether a label selector can have the requirement, which cannot compare numbers.
func (r requirement) isLabels() bool {
	return !r.isField && r.Operator != corev1.NodeSelectorOpGt && r.Operator != corev1.NodeSelectorOpLt
}

// excludes reports whether a requirement excludes nodes with a label, or with some of its values.
func excludes(r corev1.NodeSelectorRequirement) bool {
	return r.Operator == corev1.NodeSelectorOpDoesNotExist || r.Operator == corev1.NodeSelectorOpNotIn
}

// requiredTerms returns the terms of the node affinity that a node must match; nil if there is no such affinity.
func requiredTerms(pod *corev1.PodSpec) []corev1.NodeSelectorTerm {
	if pod.Affinity == nil || pod.Affinity.NodeAffinity == nil || pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	return pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
}

// matchesNothing reports whether a term has no requirements. Unlike other empty selectors, it matches no node.
func matchesNothing(t corev1.NodeSelectorTerm) bool {
	return len(t.MatchExpressions)+len(t.MatchFields) == 0
}

// matchesNoNode returns an error for a pod whose node affinity matches no node.
func matchesNoNode(pod *corev1.PodSpec) error {
	every := func(corev1.NodeSelectorRequirement) bool { return false }
	if required := requiredTerms(pod); required == nil || len(termsOf(required, every)) > 0 {
		return nil
	}
	return errors.New("its nodeSelectorTerms match no node, because they are empty or contradict themselves, so it runs nowhere. Correct them, or remove the affinity to run on all nodes")
}

// termsOf returns the terms that match nodes, without the requirements for which without reports true.
func termsOf(from []corev1.NodeSelectorTerm, without func(corev1.NodeSelectorRequirement) bool) []term {
	var terms []term
	for _, t := range from {
		to := term{}
		for _, r := range t.MatchExpressions {
			if !without(r) {
				to = append(to, requirement{r, false})
			}
		}
		for _, r := range t.MatchFields {
			to = append(to, requirement{r, true})
		}
		if names, byName := to.names(); !matchesNothing(t) && (!byName || len(names) > 0) {
			terms = append(terms, to)
		}
	}
	return terms
}

// names returns the names of the nodes that the term selects by name, and whether it does that.
func (t term) names() (names []string, byName bool) {
	for _, r := range t {
		switch {
		case !r.isNames():
		case !byName:
			names, byName = r.Values, true
		default:
			names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !slices.Contains(r.Values, name) })
		}
	}
	return names, byName
}

// merge returns as few terms as possible that match the same nodes.
func merge(terms []term) []term {
	var merged []term
next:
	for _, t := range terms {
		for i := range merged {
			if both := merged[i].or(t); both != nil {
				merged[i] = both
				continue next
			}
		}
		merged = append(merged, t)
	}
	return merged
}

// or returns the term that matches the nodes of both terms: they are equal, or differ only in the values of one In; nil otherwise.
func (t term) or(other term) term {
	if reflect.DeepEqual(t, other) {
		return t
	}
	for i := range min(len(t), len(other)) {
		both := slices.Clone(other)
		if both[i].Values = t[i].Values; t[i].Operator == corev1.NodeSelectorOpIn && reflect.DeepEqual(t, both) {
			both[i].Values = slices.Compact(slices.Sorted(slices.Values(slices.Concat(t[i].Values, other[i].Values))))
			return both
		}
	}
	return nil
}

const remedyLabel = "Give the nodes that must run the task a label of your own, also those that join later, and select it."

// selectNodes converts the node selector, the node affinity and the tolerations of the pod. It leaves out the requirements about the
// label mark, which only nodes have that are done. If there are several terms, it takes the first one that a NodeJob can express: a
// NodeJob for each term would run twice on a node that matches two of them.
func (d *draft) selectNodes(mark string) {
	d.job.Spec.Nodes.Tolerations = d.pod.Tolerations
	selector := &metav1.LabelSelector{MatchLabels: maps.Clone(d.pod.NodeSelector)}
	if a := d.pod.Affinity; a != nil && (a.PodAffinity != nil && len(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0 ||
		a.PodAntiAffinity != nil && len(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0) {
		d.todo("the NodeJob runs on more nodes: a required podAffinity or podAntiAffinity has no equivalent\n%s", remedyLabel)
	}
	terms := merge(termsOf(requiredTerms(d.pod), func(r corev1.NodeSelectorRequirement) bool { return mark != "" && r.Key == mark && excludes(r) }))
	chosen := max(0, slices.IndexFunc(terms, func(t term) bool {
		return !slices.ContainsFunc(t, func(r requirement) bool { return !r.isNames() && !r.isLabels() })
	}))
	if len(terms) > 0 {
		d.selectTerm(selector, terms[chosen])
	}
	if len(terms) > 1 {
		d.selectsLess(terms, chosen)
	}
	d.job.Spec.Nodes.Selector = notEmpty(selector)
}

func (d *draft) selectTerm(selector *metav1.LabelSelector, t term) {
	for _, r := range t {
		switch {
		case r.isNames():
			d.job.Spec.Nodes.Names, _ = t.names()
		case r.isLabels():
			selector.MatchExpressions = append(selector.MatchExpressions, metav1.LabelSelectorRequirement{
				Key: r.Key, Operator: metav1.LabelSelectorOperator(r.Operator), Values: r.Values,
			})
		case r.isField:
			d.todo("the NodeJob runs on more nodes: it cannot exclude nodes by a field (%s)\nSkip the nodes before you resume the NodeJob: kubectl everynode skip %s NODE…%s", r, d.job.Name, inNamespace(d.job.Namespace))
		default:
			d.todo("the NodeJob runs on more nodes: a label selector cannot compare numbers (%s)\n%s", r, remedyLabel)
		}
	}
}

// selectsLess says that the NodeJob does not select all nodes of the source.
func (d *draft) selectsLess(terms []term, chosen int) {
	var others strings.Builder
	for _, t := range slices.Delete(slices.Clone(terms), chosen, chosen+1) {
		others.WriteString("\n- " + strings.ReplaceAll(t.String(), "\n", " "))
	}
	d.todo("the NodeJob does not run on all of its nodes: only one of %d nodeSelectorTerms is converted (%s)\n"+
		"A label selector has no OR. %s\nDo not write a NodeJob for each term: a node that matches two of them would run the task twice. Not converted:%s",
		len(terms), terms[chosen], remedyLabel, others.String())
}

// notEmpty returns nil for an empty selector, which a NodeJob must not have.
func notEmpty(selector *metav1.LabelSelector) *metav1.LabelSelector {
	if selector == nil || len(selector.MatchLabels)+len(selector.MatchExpressions) == 0 {
		return nil
	}
	return selector
}
