// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/plan"
	"github.com/everynode/everynode/internal/record"
	"github.com/everynode/everynode/internal/task"
)

// nodeChanged triggers passes of the NodeJobs that are affected by the change. A heartbeat affects none. A record only
// affects its own NodeJob and those that select nodes by its label.
func (r *Reconciler) nodeChanged(ctx context.Context, before, after client.Object, q queue) {
	var was *corev1.Node
	if before != nil {
		was = before.(*corev1.Node)
	}
	change := compareNodes(was, after.(*corev1.Node))
	if change.nothing() {
		return
	}
	var jobs v1alpha1.NodeJobList
	if err := r.Client.List(ctx, &jobs, client.UnsafeDisableDeepCopy); err != nil {
		return // only a cache that is not started returns an error
	}
	for i := range jobs.Items {
		if job := r.written.job(&jobs.Items[i]); change.matters(job) || (change.toAll && r.hasPodOn(ctx, job, change.after.Name)) {
			r.gather(client.ObjectKeyFromObject(job), q)
		}
	}
}

// hasPodOn reports whether pods of the NodeJob are on a node, because the node affects them.
func (r *Reconciler) hasPodOn(ctx context.Context, job *v1alpha1.NodeJob, node string) bool {
	pods, err := r.listPods(ctx, client.ObjectKeyFromObject(job))
	if err != nil {
		return true // only a cache that is not started returns an error
	}
	return slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return pod.Spec.NodeName == node })
}

// nodeChange is the part of a node's change that a plan reads.
type nodeChange struct {
	before, after *corev1.Node
	// toAll is true for a change that may affect any NodeJob, unless that NodeJob can ignore it.
	toAll bool
	// replaced is true if the Node or its machine is a different one, or the Node is being deleted. rebooted is true if
	// its boot ID has changed.
	replaced, rebooted bool
	labels             bool
	annotations        bool
}

func compareNodes(before, after *corev1.Node) nodeChange {
	c := nodeChange{before: before, after: after}
	if before == nil {
		c.toAll = true
		return c
	}
	c.labels = !maps.Equal(before.Labels, after.Labels)
	c.annotations = !maps.Equal(before.Annotations, after.Annotations)
	c.replaced = before.UID != after.UID || before.Status.NodeInfo.MachineID != after.Status.NodeInfo.MachineID ||
		before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero()
	c.rebooted = before.Status.NodeInfo.BootID != after.Status.NodeInfo.BootID
	c.toAll = c.replaced || c.rebooted ||
		before.Spec.Unschedulable != after.Spec.Unschedulable ||
		before.Annotations[v1alpha1.CordonedAnnotation] != after.Annotations[v1alpha1.CordonedAnnotation] ||
		!equality.Semantic.DeepEqual(before.Spec.Taints, after.Spec.Taints) ||
		readyStatus(before) != readyStatus(after)
	return c
}

func (c nodeChange) nothing() bool { return !c.toAll && !c.labels && !c.annotations }

func (c nodeChange) matters(job *v1alpha1.NodeJob) bool {
	switch {
	case c.toAll && !c.ignores(job):
		return true
	case c.before == nil:
		return false
	}
	if c.ofRecord(v1alpha1.RecordKey(job.Namespace, job.Name)) || c.mattersOtherwise(job) {
		return true
	}
	if !c.labels {
		return false
	}
	if c.kindChanged() {
		return true
	}
	return slices.ContainsFunc(nodeSelectors(job), c.selectionChanged)
}

// kindChanged reports whether the node has another operating system, or newly runs a control plane, or no longer.
func (c nodeChange) kindChanged() bool {
	return differs(c.before.Labels, c.after.Labels, corev1.LabelOSStable) || plan.IsControlPlane(c.before.Labels) != plan.IsControlPlane(c.after.Labels)
}

// nodeSelectors returns the selectors by which a NodeJob reads the labels of nodes. Some may be nil.
func nodeSelectors(job *v1alpha1.NodeJob) []*metav1.LabelSelector {
	selectors := []*metav1.LabelSelector{job.Spec.Nodes.Selector}
	if job.Spec.Nodes.AssumeDone != nil {
		selectors = append(selectors, job.Spec.Nodes.AssumeDone.Selector)
	}
	for i := range job.Spec.Rollout.Steps {
		selectors = append(selectors, job.Spec.Rollout.Steps[i].Selector)
	}
	return selectors
}

// ofRecord reports whether the record under a key, its label or its seal changed.
func (c nodeChange) ofRecord(key string) bool {
	return differs(c.before.Annotations, c.after.Annotations, key) || differs(c.before.Labels, c.after.Labels, key) ||
		differs(c.before.Labels, c.after.Labels, record.SealKey(key))
}

// mattersOtherwise reports whether the change is of something that a NodeJob publishes, removes, or waits for.
func (c nodeChange) mattersOtherwise(job *v1alpha1.NodeJob) bool {
	spec := &job.Spec
	labelChanged := func(key string) bool { return differs(c.before.Labels, c.after.Labels, key) }
	published := func(f v1alpha1.PublishedResult) bool {
		return (f.Label != "" && labelChanged(f.Label)) || (f.Annotation != "" && differs(c.before.Annotations, c.after.Annotations, f.Annotation))
	}
	if slices.ContainsFunc(spec.Publish, published) || slices.ContainsFunc(spec.RemoveLabels, labelChanged) {
		return true
	}
	if len(spec.Publish) > 0 && differs(c.before.Annotations, c.after.Annotations, v1alpha1.PublishedAnnotation) {
		return true
	}
	return c.mattersToPeers(job)
}

// mattersToPeers reports whether the change may end the wait of a NodeJob for another one.
func (c nodeChange) mattersToPeers(job *v1alpha1.NodeJob) bool {
	spec := &job.Spec
	// The labels of a node determine whether it matches another NodeJob and whether it is done there. Which labels
	// these are is only known to that NodeJob, and labels rarely change.
	if waits := len(spec.DependsOn) > 0 || (spec.Gate != nil && spec.Gate.Key != ""); waits && c.labels {
		return true
	}
	// The record has details that no label shows.
	return slices.ContainsFunc(spec.DependsOn, func(name string) bool {
		key := v1alpha1.RecordKey(job.Namespace, name)
		return differs(c.before.Annotations, c.after.Annotations, key) || differs(c.before.Labels, c.after.Labels, record.SealKey(key))
	})
}

func differs(a, b map[string]string, key string) bool {
	was, had := a[key]
	is, has := b[key]
	return had != has || was != is
}

// selectionChanged reports whether the node newly matches a selector, or no longer matches it.
func (c nodeChange) selectionChanged(spec *metav1.LabelSelector) bool {
	if spec == nil {
		return false
	}
	selector, err := metav1.LabelSelectorAsSelector(spec)
	return err == nil && selector.Matches(labels.Set(c.before.Labels)) != selector.Matches(labels.Set(c.after.Labels))
}

func readyStatus(node *corev1.Node) corev1.ConditionStatus {
	if c := task.ReadyCondition(node); c != nil {
		return c.Status
	}
	return ""
}
