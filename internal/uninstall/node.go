// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/observe"
	"github.com/everynode/everynode/internal/plan"
	"github.com/everynode/everynode/internal/record"
)

// Scope says what is removed from nodes, beside gates and cordons, which always are.
type Scope struct {
	// Jobs are the NodeJobs that are removed. Their records and facts go with them, unless deletionPolicy is Retain.
	Jobs []v1alpha1.NodeJob
	// Records removes all records and facts, also those that deletionPolicy: Retain has left.
	Records bool
}

// NodeChange returns the change that removes what Everynode left on a node; nil when nothing is there. It is one write
// under the node's resource version, since cordons, taints and facts have other writers.
func NodeChange(node *corev1.Node, scope Scope) *record.Change {
	view := observe.Node(node)
	change := &record.Change{UID: node.UID, ResourceVersion: node.ResourceVersion}
	if stray := plan.Orphaned(&view, nil); stray != nil {
		change = stray
	}
	scope.openGates(node, change)
	facts := scope.facts(node)
	if len(facts.Labels)+len(facts.Annotations) > 0 {
		change.Facts = facts
	}
	if !change.Shared() {
		return nil
	}
	return change
}

// openGates also removes gate taints that a kubelet registered with: they have the NodeJob's key, and not our value.
func (s Scope) openGates(node *corev1.Node, change *record.Change) {
	taints := node.Spec.Taints
	if change.Taints != nil {
		taints = change.Taints.All
	}
	isGate := func(t corev1.Taint) bool {
		own, _, prefixed := strings.Cut(t.Key, "/")
		if prefixed && strings.HasSuffix(own, "."+v1alpha1.Group) {
			return true
		}
		return slices.ContainsFunc(s.Jobs, func(job v1alpha1.NodeJob) bool { return gates(&job, node, &t) })
	}
	if slices.ContainsFunc(taints, isGate) {
		change.Taints = &record.Taints{All: slices.DeleteFunc(slices.Clone(taints), isGate)}
	}
}

// gates reports whether a taint is the gate of a NodeJob that selects the node.
func gates(job *v1alpha1.NodeJob, node *corev1.Node, taint *corev1.Taint) bool {
	gate := job.Spec.Gate
	if gate == nil || v1alpha1.GateKey(job) != taint.Key {
		return false
	}
	effect := corev1.TaintEffect(gate.Effect)
	if effect == "" {
		effect = corev1.TaintEffectNoSchedule
	}
	if effect != taint.Effect {
		return false
	}
	if job.Spec.NodeSelector == nil {
		return true
	}
	selector, err := metav1.LabelSelectorAsSelector(job.Spec.NodeSelector)
	return err == nil && selector.Matches(labels.Set(node.Labels))
}

// facts are the labels and annotations to remove from a node: records with their seals, what was published, and
// annotations that only a manager reads.
func (s Scope) facts(node *corev1.Node) *record.Facts {
	f := &record.Facts{Labels: map[string]*string{}, Annotations: map[string]*string{}}
	published := record.ReadPublished(node.Annotations)
	f.Published.Labels = s.unpublish(published.Labels, node.Labels, f.Labels)
	f.Published.Annotations = s.unpublish(published.Annotations, node.Annotations, f.Annotations)
	for key := range node.Labels {
		if recordKey, ok := recordKeyOf(key); ok && s.forgets(recordKey) {
			f.Labels[key] = nil
		}
	}
	for key := range node.Annotations {
		if recordKey, ok := recordKeyOf(key); ok && s.forgets(recordKey) {
			f.Annotations[key] = nil
		}
	}
	obsolete := []string{v1alpha1.CordonedAnnotation, v1alpha1.ApproveReleaseAnnotation, v1alpha1.BreakGlassAnnotation}
	if s.Records {
		obsolete = append(obsolete, v1alpha1.PublishedAnnotation) // also one that cannot be read
	}
	for _, key := range obsolete {
		if _, there := node.Annotations[key]; there {
			f.Annotations[key] = nil
		}
	}
	return f
}

// unpublish notes which of the published keys are removed, and returns the others with their publishers.
func (s Scope) unpublish(published, there map[string]string, remove map[string]*string) map[string]string {
	rest := map[string]string{}
	for key, publisher := range published {
		if !s.forgets(publisher) {
			rest[key] = publisher
			continue
		}
		if _, ok := there[key]; ok && publishable(key) {
			remove[key] = nil
		}
	}
	return rest
}

// publishable reports whether a NodeJob may publish a key, as the rules of spec.publish say. A node can write the list of
// what is published itself: it must not have labels removed that it may not write.
func publishable(key string) bool {
	prefix, _, _ := strings.Cut(key, "/")
	if prefix == "node.kubernetes.io" || prefix == "kubelet.kubernetes.io" {
		return true
	}
	return !slices.ContainsFunc([]string{"kubernetes.io", "k8s.io", v1alpha1.Group}, func(domain string) bool {
		return prefix == domain || strings.HasSuffix(prefix, "."+domain)
	})
}

// forgets reports whether the record under a key is removed.
func (s Scope) forgets(recordKey string) bool {
	return s.Records || slices.ContainsFunc(s.Jobs, func(job v1alpha1.NodeJob) bool {
		return job.Spec.DeletionPolicy != v1alpha1.DeletionRetain && v1alpha1.RecordKey(job.Namespace, job.Name) == recordKey
	})
}

// sealSuffix is how the prefix of a seal's key ends: that of "ns.everynode.dev/x" has "ns" before it.
var sealSuffix = strings.TrimSuffix(record.SealKey("."+v1alpha1.Group+"/"), "/")

// recordKeyOf returns the record key that a key of a node is, or is the seal of.
func recordKeyOf(key string) (string, bool) {
	prefix, name, _ := strings.Cut(key, "/")
	for _, suffix := range []string{"." + v1alpha1.Group, sealSuffix} {
		if namespace, ok := strings.CutSuffix(prefix, suffix); ok && namespace != "" && name != "" {
			return v1alpha1.RecordKey(namespace, name), true
		}
	}
	return "", false
}
