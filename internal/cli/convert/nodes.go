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
type term []corev1.NodeSelectorRequirement

// fieldMark is before the key of a requirement about a field. A label cannot begin with it. Kubernetes knows only metadata.name.
const (
	fieldMark = "@"
	nodeName  = fieldMark + metav1.ObjectNameField
)

func (t term) String() string {
	parts := make([]string, len(t))
	for i, r := range t {
		parts[i] = strings.TrimSpace(strings.TrimPrefix(fmt.Sprintf("%s %s %s", r.Key, r.Operator, strings.Join(r.Values, ",")), fieldMark))
	}
	return strings.Join(parts, " and ")
}

// isNames reports whether the requirement lists names of nodes.
func isNames(r corev1.NodeSelectorRequirement) bool {
	return r.Key == nodeName && r.Operator == corev1.NodeSelectorOpIn
}

// isLabels reports whether a label selector can have the requirement, which cannot compare numbers.
func isLabels(r corev1.NodeSelectorRequirement) bool {
	return !strings.HasPrefix(r.Key, fieldMark) && r.Operator != corev1.NodeSelectorOpGt && r.Operator != corev1.NodeSelectorOpLt
}

// requiredTerms returns the terms of the node affinity that a node must match; nil if there is no such affinity.
func requiredTerms(pod *corev1.PodSpec) []corev1.NodeSelectorTerm {
	if a := pod.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		return a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	}
	return nil
}

// termsOf returns the terms that match nodes, with sorted requirements. One without requirements matches none, unlike other empty selectors.
func termsOf(from []corev1.NodeSelectorTerm) (terms []term) {
	for _, t := range from {
		to := term(slices.Clone(t.MatchExpressions))
		for _, r := range t.MatchFields {
			r.Key = fieldMark + r.Key
			to = append(to, r)
		}
		if names, byName := to.names(); len(to) > 0 && (!byName || len(names) > 0) {
			slices.SortStableFunc(to, func(a, b corev1.NodeSelectorRequirement) int { return strings.Compare(a.Key, b.Key) })
			terms = append(terms, to)
		}
	}
	return terms
}

// names returns the names of the nodes that the term selects by name, and whether it does that.
func (t term) names() (names []string, byName bool) {
	for _, r := range t {
		switch {
		case !isNames(r):
		case !byName:
			names, byName = r.Values, true
		default:
			names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !slices.Contains(r.Values, name) })
		}
	}
	return names, byName
}

// merge returns as few terms as possible that match the same nodes.
func merge(terms []term) (merged []term) {
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

// selectNodes converts the node selector, the node affinity and the tolerations of the pod. If there are several terms, it takes the
// first one that a NodeJob can express: a NodeJob for each term would run twice on a node that matches two of them.
func (d *draft) selectNodes() error {
	required := requiredTerms(&d.template.Spec)
	terms := merge(termsOf(required))
	if len(terms) == 0 && required != nil {
		return errors.New("its nodeSelectorTerms match no node, because they are empty or contradict themselves, so it runs nowhere. " +
			"Correct them, or remove the affinity to run on all nodes")
	}
	chosen := max(0, slices.IndexFunc(terms, func(t term) bool {
		return !slices.ContainsFunc(t, func(r corev1.NodeSelectorRequirement) bool { return !isNames(r) && !isLabels(r) })
	}))
	selector := &metav1.LabelSelector{MatchLabels: maps.Clone(d.template.Spec.NodeSelector)}
	if len(terms) > 0 {
		d.selectTerm(selector, terms[chosen])
	}
	if len(terms) > 1 {
		d.todo("the NodeJob does not run on all of its nodes: only one of %d nodeSelectorTerms is converted (%s)\n"+
			"A label selector has no OR. %s\nDo not write a NodeJob for each term: a node that matches two of them would run the task twice. "+
			"All terms: %q", len(terms), terms[chosen], remedyLabel, terms)
	}
	d.job.Spec.Nodes.Selector, d.job.Spec.Nodes.Tolerations = notEmpty(selector), d.template.Spec.Tolerations
	return nil
}

const remedyLabel = "Give the nodes that must run the task a label of your own, also those that join later, and select it."

// selectTerm adds the requirements of a term, as far as a NodeJob can express them.
func (d *draft) selectTerm(selector *metav1.LabelSelector, t term) {
	d.job.Spec.Nodes.Names, _ = t.names()
	for _, r := range t {
		switch {
		case isNames(r):
		case isLabels(r):
			selector.MatchExpressions = append(selector.MatchExpressions, metav1.LabelSelectorRequirement{
				Key: r.Key, Operator: metav1.LabelSelectorOperator(r.Operator), Values: r.Values,
			})
		default:
			d.todo("the NodeJob runs on more nodes: it can neither compare numbers nor exclude nodes by a field (%s)\n"+
				"%s Or skip the other nodes before you resume the NodeJob: kubectl everynode skip %s NODE…%s",
				term{r}, remedyLabel, d.job.Name, d.inNamespace())
		}
	}
}

// notEmpty returns nil for an empty selector, which a NodeJob must not have.
func notEmpty(selector *metav1.LabelSelector) *metav1.LabelSelector {
	if selector == nil || len(selector.MatchLabels)+len(selector.MatchExpressions) == 0 {
		return nil
	}
	return selector
}
