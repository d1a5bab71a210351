// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
)

// selectNodes converts the node selector, the node affinity and the tolerations of a pod. It leaves out the requirements about the
// labels in marks, which only nodes have that are done.
func (d *draft) selectNodes(pod *corev1.PodSpec, marks map[string]bool) {
	selector := &metav1.LabelSelector{MatchLabels: maps.Clone(pod.NodeSelector)}
	if needsPods(pod.Affinity) {
		d.todo("the NodeJob runs on more nodes: a required podAffinity or podAntiAffinity has no equivalent\n%s", remedyLabel)
	}
	if terms := merge(termsOf(requiredTerms(pod), func(r corev1.NodeSelectorRequirement) bool { return marks[r.Key] && excludes(r) })); len(terms) > 0 {
		d.selectTerms(selector, terms)
	}
	d.setSelector(selector)
	d.job.Spec.Nodes.Tolerations = pod.Tolerations
}

// setSelector sets nodes.selector, which must not be empty.
func (d *draft) setSelector(selector *metav1.LabelSelector) {
	if selector != nil && len(selector.MatchLabels)+len(selector.MatchExpressions) > 0 {
		d.job.Spec.Nodes.Selector = selector
	}
}

// assumeDone has nodes with a label count as done.
func (d *draft) assumeDone(selector *metav1.LabelSelector) {
	d.job.Spec.Nodes.AssumeDone = &v1alpha1.AssumeDoneSpec{Selector: selector}
}

// needsPods reports whether a pod runs only on nodes with or without some other pods.
func needsPods(affinity *corev1.Affinity) bool {
	return affinity != nil && (affinity.PodAffinity != nil && len(affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0 ||
		affinity.PodAntiAffinity != nil && len(affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0)
}

// matchesNoNode returns an error for a pod whose node affinity matches no node.
func matchesNoNode(pod *corev1.PodSpec) error {
	every := func(corev1.NodeSelectorRequirement) bool { return false }
	if required := requiredTerms(pod); required == nil || len(termsOf(required, every)) > 0 {
		return nil
	}
	return errors.New("its nodeSelectorTerms match no node, because they are empty or contradict themselves, so it runs nowhere. Correct them, or remove the affinity to run on all nodes")
}

const remedyLabel = "Give the nodes that must run the task a label of your own, also those that join later, and select it."

// selectTerms selects the nodes of a term. If there are several terms, it takes the first one that a NodeJob can express: a NodeJob
// for each term would run twice on a node that matches two of them.
func (d *draft) selectTerms(selector *metav1.LabelSelector, terms []term) {
	chosen := max(0, slices.IndexFunc(terms, term.isSelectable))
	for _, r := range terms[chosen] {
		switch {
		case r.isNames():
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
	if names, byName := terms[chosen].names(); byName {
		d.job.Spec.Nodes.Names = names
	}
	if len(terms) > 1 {
		d.selectsLess(terms, chosen)
	}
}

// selectsLess says that the NodeJob does not select all nodes of the source.
func (d *draft) selectsLess(terms []term, chosen int) {
	const most = 10
	var b strings.Builder
	fmt.Fprintf(&b, "the NodeJob does not run on all of its nodes: only one of %d nodeSelectorTerms is converted (%s)\n"+
		"A label selector has no OR. %s\nDo not write a NodeJob for each term: a node that matches two of them would run the task twice. Not converted:",
		len(terms), terms[chosen], remedyLabel)
	for i, t := range slices.Delete(slices.Clone(terms), chosen, chosen+1) {
		if i == most {
			fmt.Fprintf(&b, "\n- and %d more", len(terms)-1-most)
			break
		}
		fmt.Fprintf(&b, "\n- %s", strings.ReplaceAll(t.String(), "\n", " "))
	}
	d.todo("%s", b.String())
}

// requirements returns what the node affinity of a pod requires.
func requirements(pod *corev1.PodSpec) []corev1.NodeSelectorRequirement {
	var found []corev1.NodeSelectorRequirement
	for _, t := range requiredTerms(pod) {
		found = append(found, t.MatchExpressions...)
	}
	return found
}

// excludes reports whether a requirement excludes nodes with a label, or with some of its values.
func excludes(r corev1.NodeSelectorRequirement) bool {
	return r.Operator == corev1.NodeSelectorOpDoesNotExist || r.Operator == corev1.NodeSelectorOpNotIn
}
