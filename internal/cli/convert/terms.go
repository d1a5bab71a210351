// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"fmt"
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

// termsOf returns the terms that match nodes, without the requirements for which without reports true.
func termsOf(from []corev1.NodeSelectorTerm, without func(corev1.NodeSelectorRequirement) bool) []term {
	var terms []term
	for _, t := range from {
		if matchesNothing(t) {
			continue
		}
		to := term{}
		for _, r := range t.MatchExpressions {
			if !without(r) {
				to = append(to, requirement{r, false})
			}
		}
		for _, r := range t.MatchFields {
			to = append(to, requirement{r, true})
		}
		if names, byName := to.names(); !byName || len(names) > 0 {
			terms = append(terms, to)
		}
	}
	return terms
}

// merge returns as few terms as possible that match the same nodes.
func merge(terms []term) []term {
	var merged []term
	for _, t := range terms {
		i := slices.IndexFunc(merged, func(other term) bool { return other.differsInValues(t) >= 0 })
		if i < 0 {
			merged = append(merged, t)
			continue
		}
		at := merged[i].differsInValues(t)
		if at == len(t) {
			continue // it is the same
		}
		merged[i] = slices.Clone(merged[i])
		values := slices.Concat(merged[i][at].Values, t[at].Values)
		slices.Sort(values)
		merged[i][at].Values = slices.Compact(values)
	}
	return merged
}

// differsInValues returns the index of the only requirement in which two terms differ, if it is In for the same key in both; the number
// of requirements if the terms are equal; and -1 otherwise.
func (t term) differsInValues(other term) int {
	if len(t) != len(other) {
		return -1
	}
	at := len(t)
	for i, r := range t {
		switch o := other[i]; {
		case reflect.DeepEqual(r, o):
		case at == len(t) && r.Key == o.Key && r.isField == o.isField && r.Operator == corev1.NodeSelectorOpIn && o.Operator == r.Operator:
			at = i
		default:
			return -1
		}
	}
	return at
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

// isNames reports whether the requirement lists names of nodes.
func (r requirement) isNames() bool {
	return r.isField && r.Key == metav1.ObjectNameField && r.Operator == corev1.NodeSelectorOpIn
}

// isLabels reports whether a label selector can have the requirement, which cannot compare numbers.
func (r requirement) isLabels() bool {
	return !r.isField && r.Operator != corev1.NodeSelectorOpGt && r.Operator != corev1.NodeSelectorOpLt
}

// isSelectable reports whether a NodeJob can select the nodes of the term.
func (t term) isSelectable() bool {
	return !slices.ContainsFunc(t, func(r requirement) bool { return !r.isNames() && !r.isLabels() })
}
