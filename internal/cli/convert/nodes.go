// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Which nodes, and how many at once: what all patterns have in common.

// selectNodes converts the node selector, the node affinity and the tolerations of a pod. It leaves out the requirements
// for which without reports true.
func (d *draft) selectNodes(pod *corev1.PodSpec, without func(corev1.NodeSelectorRequirement) bool) {
	selector := &metav1.LabelSelector{MatchLabels: maps.Clone(pod.NodeSelector)}
	if needsPods(pod.Affinity) {
		d.selectsMore("its pods have a required podAffinity or podAntiAffinity, and a NodeJob selects nodes only by their labels", remedyLabel)
	}
	if terms := merge(termsOf(requiredTerms(pod), without)); len(terms) > 0 {
		d.selectTerms(selector, terms)
	}
	d.setSelector(selector)
	d.tolerate(pod.Tolerations)
}

// needsPods reports whether a pod runs only on nodes with or without some other pods.
func needsPods(affinity *corev1.Affinity) bool {
	return affinity != nil && (affinity.PodAffinity != nil && len(affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0 ||
		affinity.PodAntiAffinity != nil && len(affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0)
}

// everyRequirement is for selectNodes: it leaves out nothing.
func everyRequirement(corev1.NodeSelectorRequirement) bool { return false }

// matchesNoNode returns an error for a pod whose node affinity matches no node.
func matchesNoNode(pod *corev1.PodSpec) error {
	if required := requiredTerms(pod); required == nil || len(termsOf(required, everyRequirement)) > 0 {
		return nil
	}
	return errors.New("its nodeSelectorTerms match no node, because they are empty or contradict themselves, so it runs nowhere. Correct them, or remove the affinity to run on all nodes")
}

// setSelector sets nodes.selector, which must not be empty.
func (d *draft) setSelector(selector *metav1.LabelSelector) {
	if selector != nil && len(selector.MatchLabels)+len(selector.MatchExpressions) > 0 {
		d.spec.in("nodes").set("selector", generic(selector))
	}
}

func (d *draft) tolerate(tolerations []corev1.Toleration) {
	if len(tolerations) > 0 {
		d.spec.in("nodes").set("tolerations", generic(tolerations))
	}
}

// selectTerms selects the nodes of a term. If there are several terms, it takes the first one that a NodeJob can express,
// and warns: a NodeJob for each term would run twice on a node that matches two of them.
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
			d.selectsMore(fmt.Sprintf("a NodeJob cannot exclude nodes by a field (%s)", r),
				fmt.Sprintf("Skip the nodes before you resume the NodeJob: kubectl everynode skip %s NODE…%s", d.name, inNamespace(d.namespace)))
		default:
			d.selectsMore(fmt.Sprintf("a label selector cannot compare numbers (%s)", r), remedyLabel)
		}
	}
	if names, byName := terms[chosen].names(); byName {
		d.spec.in("nodes").set("names", generic(names))
	}
	if len(terms) > 1 {
		d.selectsLess(terms, chosen)
	}
}

const remedyLabel = "Give the nodes that must run the task a label of your own, also those that join later, and select it."

// selectsMore warns that the NodeJob selects nodes that the source does not select.
func (d *draft) selectsMore(why, remedy string) {
	d.spec.in("nodes").todo("selector", "more nodes are selected than before. See the comment at the top.")
	d.warn(fmt.Sprintf("the NodeJob runs on more nodes: %s", why),
		fmt.Sprintf("This NodeJob runs on more nodes than the %s: %s. %s", d.kind(), why, remedy))
}

// selectsLess warns that the NodeJob does not select all nodes of the source.
func (d *draft) selectsLess(terms []term, chosen int) {
	const most = 10
	d.spec.in("nodes").todo("selector", "fewer nodes are selected than before. See the comment at the top.")
	var b strings.Builder
	fmt.Fprintf(&b, "This NodeJob does not run on all nodes of the %s. A node must match one of %d nodeSelectorTerms of the %[1]s. "+
		"A label selector has no OR, and the terms cannot be merged into one. %[3]s Do not write a NodeJob for each term: a node that matches "+
		"two of them would run the task twice. Converted: %[4]s. Not converted:", d.kind(), len(terms), remedyLabel, terms[chosen])
	others := slices.Delete(slices.Clone(terms), chosen, chosen+1)
	for i, t := range others {
		if i == most {
			fmt.Fprintf(&b, "\n- and %d more", len(others)-most)
			break
		}
		fmt.Fprintf(&b, "\n- %s", strings.ReplaceAll(t.String(), "\n", " "))
	}
	d.warn(fmt.Sprintf("the NodeJob does not run on all of its nodes: only one of %d nodeSelectorTerms is converted (%s)", len(terms), terms[chosen]), b.String())
}

// requirements returns what the node affinity of a pod requires.
func requirements(pod *corev1.PodSpec) []corev1.NodeSelectorRequirement {
	var found []corev1.NodeSelectorRequirement
	for _, t := range requiredTerms(pod) {
		found = append(found, t.MatchExpressions...)
	}
	return found
}

// affinityWith returns the keys of the node affinity that exclude nodes by a label: DoesNotExist, or NotIn.
func affinityWith(pod *corev1.PodSpec) map[string]corev1.NodeSelectorRequirement {
	found := map[string]corev1.NodeSelectorRequirement{}
	for _, requirement := range requirements(pod) {
		if excludes(requirement) {
			found[requirement.Key] = requirement
		}
	}
	return found
}

// excludes reports whether a requirement excludes nodes with a label, or with some of its values.
func excludes(r corev1.NodeSelectorRequirement) bool {
	return r.Operator == corev1.NodeSelectorOpDoesNotExist || r.Operator == corev1.NodeSelectorOpNotIn
}

// concurrent sets rollout.maxConcurrent, which is a number from 1 or a percentage from 1% to 100%.
func (d *draft) concurrent(value intstr.IntOrString, source string) {
	limit, ok := numberOrPercent(value)
	if !ok {
		d.spec.in("rollout").todo("maxConcurrent", "%s is %s, and maxConcurrent takes a number from 1 or a percentage from 1%% to 100%%.", source, value.String())
		return
	}
	d.spec.in("rollout").set("maxConcurrent", limit)
}

func numberOrPercent(value intstr.IntOrString) (any, bool) {
	if value.Type == intstr.Int {
		return value.IntVal, value.IntVal >= 1
	}
	n, isPercent := strings.CutSuffix(value.StrVal, "%")
	percent, err := strconv.Atoi(n)
	return value.StrVal, isPercent && err == nil && percent >= 1 && percent <= 100
}

// timeout sets task.timeoutSeconds.
func (d *draft) timeout(seconds *int64, source string) {
	const most = 86400
	switch {
	case seconds == nil || *seconds < 0:
	case *seconds == 0 || *seconds > most:
		d.spec.in("task").set("timeoutSeconds", most, fmt.Sprintf("TODO: %s is %d, and timeoutSeconds has at most %d.", source, *seconds, most))
	default:
		d.spec.in("task").set("timeoutSeconds", *seconds)
	}
}

// deadlines sets task.timeoutSeconds. A Job has a deadline for all attempts, and its pod has one for each attempt.
func (d *draft) deadlines(all, each *int64, source string) {
	if each == nil {
		d.timeout(all, source)
		return
	}
	d.timeout(each, "template.spec.activeDeadlineSeconds")
	if all != nil {
		d.spec.in("task").todo("timeoutSeconds", "timeoutSeconds is for one attempt. %s %d was for all attempts together.", source, *all)
	}
}

// retries sets retry.limit.
func (d *draft) retries(limit *int32, source string) {
	const most = 100
	if limit == nil || *limit < 0 {
		return
	}
	if *limit > most {
		d.spec.in("retry").set("limit", most, fmt.Sprintf("TODO: %s is %d, and retry.limit has at most %d.", source, *limit, most))
		return
	}
	d.spec.in("retry").set("limit", *limit)
}

// finish suggests ttlSecondsAfterFinished. A NodeJob that is suspended has finished.
func (d *draft) finish(seconds *int32) {
	if seconds != nil {
		d.spec.suggest("ttlSecondsAfterFinished", *seconds,
			"Set this when you resume the NodeJob, and only if no node that joins later must run the task: a suspended NodeJob counts as finished, and would be deleted.")
	}
}
