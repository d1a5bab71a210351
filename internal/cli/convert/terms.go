// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"fmt"
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

// id is the same for requirements that are equal.
func (r requirement) id() string {
	r.Values = slices.Compact(slices.Sorted(slices.Values(r.Values)))
	return fmt.Sprintf("%v %q %q %q", r.isField, r.Key, r.Operator, r.Values)
}

// requiredTerms returns the terms of the node affinity that a node must match; nil if there is no such affinity.
func requiredTerms(pod *corev1.PodSpec) []corev1.NodeSelectorTerm {
	if pod.Affinity == nil || pod.Affinity.NodeAffinity == nil || pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	return pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
}

// isEmpty reports whether a term has no requirements. Unlike other empty selectors, it matches no node.
func isEmpty(t corev1.NodeSelectorTerm) bool { return len(t.MatchExpressions)+len(t.MatchFields) == 0 }

// termsOf returns the terms that match nodes, without the requirements for which without reports true.
func termsOf(from []corev1.NodeSelectorTerm, without func(corev1.NodeSelectorRequirement) bool) []term {
	var terms []term
	for _, t := range from {
		if isEmpty(t) {
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

// maxMerged is the number of terms up to which they are merged, because each is compared with all others.
const maxMerged = 100

// merge returns as few terms as possible that match the same nodes.
func merge(terms []term) []term {
	if len(terms) > maxMerged {
		return terms
	}
	terms = slices.Clone(terms)
	for i := 0; i < len(terms); i++ {
		for j := i + 1; j < len(terms); j++ {
			if merged, ok := terms[i].union(terms[j]); ok {
				terms[i], terms = merged, slices.Delete(terms, j, j+1)
				i = -1 // the merged term may be like an earlier one
				break
			}
		}
	}
	return terms
}

// union returns a term that matches the nodes of both terms. It reports false if no single term does.
func (t term) union(other term) (term, bool) {
	here, there := t.without(other), other.without(t)
	switch {
	case t.covers(other):
		return t, true
	case other.covers(t):
		return other, true
	case len(here) != 1 || len(there) != 1:
		return nil, false
	}
	united, always, ok := here[0].union(there[0])
	if !ok {
		return nil, false
	}
	merged := slices.Clone(t)
	i := slices.IndexFunc(merged, func(r requirement) bool { return r.id() == here[0].id() })
	if always {
		return slices.Delete(merged, i, i+1), true
	}
	merged[i] = united
	return merged, true
}

// covers reports whether the term matches all nodes of another term: that one has the same requirements, or stricter ones.
func (t term) covers(other term) bool {
	return !slices.ContainsFunc(t, func(r requirement) bool { return !slices.ContainsFunc(other, r.covers) })
}

// covers reports whether the requirement is always met if another one is met.
func (r requirement) covers(other requirement) bool {
	if r.id() == other.id() {
		return true
	}
	united, always, ok := r.union(other)
	return ok && !always && united.id() == r.id()
}

// without returns the requirements that the other term does not have.
func (t term) without(other term) term {
	known := map[string]bool{}
	for _, r := range other {
		known[r.id()] = true
	}
	return slices.DeleteFunc(slices.Clone(t), func(r requirement) bool { return known[r.id()] })
}

// labelValues are the values of a label for which a requirement is met.
type labelValues struct {
	// absent says that it is met without the label.
	absent bool
	// except says that it is met by all values that are not in values.
	except bool
	values []string
}

// accepted returns the values that meet the requirement. It reports false for operators that compare numbers.
func (r requirement) accepted() (labelValues, bool) {
	switch r.Operator {
	case corev1.NodeSelectorOpIn:
		return labelValues{values: r.Values}, true
	case corev1.NodeSelectorOpNotIn:
		return labelValues{absent: true, except: true, values: r.Values}, true
	case corev1.NodeSelectorOpExists:
		return labelValues{except: true}, true
	case corev1.NodeSelectorOpDoesNotExist:
		return labelValues{absent: true}, true
	default:
		return labelValues{}, false
	}
}

// union returns the requirement that is met if one of two requirements is met, or reports that a node always meets one of
// them. ok is false if there is no such requirement.
func (r requirement) union(other requirement) (united requirement, always, ok bool) {
	v, known := r.accepted()
	w, otherKnown := other.accepted()
	if !known || !otherKnown || r.Key != other.Key || r.isField != other.isField {
		return requirement{}, false, false
	}
	u := v.union(w)
	operator, ok := u.operator()
	return requirement{corev1.NodeSelectorRequirement{Key: r.Key, Operator: operator, Values: u.values}, r.isField}, operator == "", ok
}

// operator returns the operator of the requirement that accepts the values; "" if it always does. It reports false if there is
// no such requirement: for some values, or no label.
func (v labelValues) operator() (corev1.NodeSelectorOperator, bool) {
	hasValues := len(v.values) > 0
	switch {
	case v.absent && v.except && hasValues:
		return corev1.NodeSelectorOpNotIn, true
	case v.absent && v.except:
		return "", true
	case v.absent:
		return corev1.NodeSelectorOpDoesNotExist, !hasValues
	case v.except:
		return corev1.NodeSelectorOpExists, !hasValues
	}
	return corev1.NodeSelectorOpIn, true
}

// union returns the values that are accepted by one of two requirements.
func (v labelValues) union(w labelValues) labelValues {
	u := labelValues{absent: v.absent || w.absent, except: v.except || w.except}
	switch {
	case v.except && w.except:
		u.values = slices.DeleteFunc(slices.Clone(v.values), func(value string) bool { return !slices.Contains(w.values, value) })
	case v.except:
		u.values = subtract(v.values, w.values)
	case w.except:
		u.values = subtract(w.values, v.values)
	default:
		u.values = slices.Concat(v.values, subtract(w.values, v.values))
	}
	return u
}

func subtract(from, values []string) []string {
	return slices.DeleteFunc(slices.Clone(from), func(value string) bool { return slices.Contains(values, value) })
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

// isLabels reports whether a label selector can have the requirement.
func (r requirement) isLabels() bool {
	_, known := r.accepted()
	return known && !r.isField
}

// isSelectable reports whether a NodeJob can select the nodes of the term.
func (t term) isSelectable() bool {
	return !slices.ContainsFunc(t, func(r requirement) bool { return !r.isNames() && !r.isLabels() })
}
