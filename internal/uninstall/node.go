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
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/observe"
)

// Scope says what is removed from nodes, in addition to gates and cordons, which are always removed.
type Scope struct {
	// Jobs are the NodeJobs that are removed. Their records and published results are removed too, unless deletionPolicy is Retain.
	Jobs []v1alpha1.NodeJob
	// Records removes all records and published results, including those that deletionPolicy: Retain has retained.
	Records bool
}

// NodeChange returns the change that removes what Everynode left on a node; nil if there is nothing. It is one write
// under the node's resource version, because cordons, taints and published results have other writers.
func NodeChange(node *corev1.Node, scope Scope) *record.Change {
	view := observe.Node(node)
	change := &record.Change{UID: node.UID, ResourceVersion: node.ResourceVersion}
	if stray := plan.Orphaned(&view, nil); stray != nil {
		change = stray
	}
	scope.openGates(node, change)
	published := scope.published(node)
	if len(published.Labels)+len(published.Annotations) > 0 {
		change.Publish = published
	}
	if !change.Shared() {
		return nil
	}
	return change
}

// openGates also removes gate taints with which a kubelet registered. They have the NodeJob's key, but not our value.
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
	if job.Spec.Gate == nil || v1alpha1.GateKey(job) != taint.Key || corev1.TaintEffect(v1alpha1.GateEffectOf(job)) != taint.Effect {
		return false
	}
	if job.Spec.Nodes.Selector == nil {
		return true
	}
	selector, err := metav1.LabelSelectorAsSelector(job.Spec.Nodes.Selector)
	return err == nil && selector.Matches(labels.Set(node.Labels))
}

// published returns the labels and annotations to remove from a node: records with their seals, what was published, and
// annotations that only a manager reads.
func (s Scope) published(node *corev1.Node) *record.Publish {
	f := &record.Publish{Labels: map[string]*string{}, Annotations: map[string]*string{}}
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
		obsolete = append(obsolete, v1alpha1.PublishedAnnotation) // also if it is unreadable
	}
	for _, key := range obsolete {
		if _, there := node.Annotations[key]; there {
			f.Annotations[key] = nil
		}
	}
	return f
}

// unpublish marks the published keys to remove, and returns the others with their publishers.
func (s Scope) unpublish(published, there map[string]string, remove map[string]*string) map[string]string {
	rest := map[string]string{}
	for key, publisher := range published {
		if !s.forgets(publisher) {
			rest[key] = publisher
			continue
		}
		if _, ok := there[key]; ok && record.MayPublish(key) {
			remove[key] = nil
		}
	}
	return rest
}

// forgets reports whether the record under a key is removed.
func (s Scope) forgets(recordKey string) bool {
	return s.Records || slices.ContainsFunc(s.Jobs, func(job v1alpha1.NodeJob) bool {
		return job.Spec.DeletionPolicy != v1alpha1.DeletionRetain && v1alpha1.RecordKey(job.Namespace, job.Name) == recordKey
	})
}

// sealSuffix is the end of the prefix of a seal's key: in the prefix for "ns.everynode.dev/x", "ns" precedes it.
var sealSuffix = strings.TrimSuffix(record.SealKey("."+v1alpha1.Group+"/"), "/")

// recordKeyOf returns the record key if a key of a node is a record key or the key of a seal.
func recordKeyOf(key string) (string, bool) {
	prefix, name, _ := strings.Cut(key, "/")
	for _, suffix := range []string{"." + v1alpha1.Group, sealSuffix} {
		if namespace, ok := strings.CutSuffix(prefix, suffix); ok && namespace != "" && name != "" {
			return v1alpha1.RecordKey(namespace, name), true
		}
	}
	return "", false
}
