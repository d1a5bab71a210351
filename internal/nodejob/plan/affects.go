// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
)

// NodeChange is what differs between two versions of a node, as far as plans read it. It decides which NodeJobs need a new plan.
// Each node changes every few seconds, so it is computed once for all NodeJobs.
type NodeChange struct {
	before, after *Node
	// general is true for a change that may affect any NodeJob, unless that NodeJob can ignore it.
	general bool
	// replaced is true if the Node or its machine is a different one, or the Node is being deleted. rebooted is true if
	// its boot ID has changed.
	replaced, rebooted bool
	labels             bool
	annotations        bool
}

// CompareNodes compares two versions of a node. For a node that was created or deleted, before is nil, and after is that node. It
// does not read what the nodes store for NodeJobs (Node.On, Node.OnPeers and Node.Published), but the labels and annotations that
// store it.
func CompareNodes(before, after *Node) NodeChange {
	c := NodeChange{before: before, after: after}
	if before == nil {
		c.general = true
		return c
	}
	c.labels = !maps.Equal(before.Labels, after.Labels)
	c.annotations = !maps.Equal(before.Annotations, after.Annotations)
	c.replaced = before.UID != after.UID || before.MachineID != after.MachineID || before.Deleting != after.Deleting
	c.rebooted = before.BootID != after.BootID
	c.general = before.ProviderID != after.ProviderID || before.Architecture != after.Architecture || c.replaced || c.rebooted || before.Unschedulable != after.Unschedulable || before.Ready != after.Ready ||
		!slices.Equal(before.CordonedBy, after.CordonedBy) || !slices.EqualFunc(before.Taints, after.Taints, sameTaint)
	return c
}

func sameTaint(a, b corev1.Taint) bool {
	return a.Key == b.Key && a.Value == b.Value && a.Effect == b.Effect && a.TimeAdded.Equal(b.TimeAdded)
}

// IsEmpty reports whether the change affects no plan, like a heartbeat.
func (c NodeChange) IsEmpty() bool { return !c.general && !c.labels && !c.annotations }

// IsGeneral reports whether the change is one of taints, cordons, readiness, the machine or its boot, or the node was created or
// deleted.
func (c NodeChange) IsGeneral() bool { return c.general }

// Affects reports whether the plan of a NodeJob may be different after the change. A record only affects its own NodeJob, and
// those that depend on it or select nodes by its label. hasPod reports whether the NodeJob has a pod on the node. It is only
// called if the answer depends on it.
func (c NodeChange) Affects(job *v1alpha1.NodeJob, now time.Time, hasPod func() bool) bool {
	if c.general && !c.isIgnoredBy(job, now) {
		return true
	}
	if c.before != nil && (c.ofRecord(v1alpha1.RecordKey(job.Namespace, job.Name)) || c.ofOwnMetadata(&job.Spec) || c.ofPeers(job) || c.ofSelection(job) || c.ofInputs(&job.Spec)) {
		return true
	}
	return c.general && hasPod()
}

// isIgnoredBy reports whether a NodeJob needs no plan after a node was cordoned or tainted, became Ready or NotReady,
// rebooted, or was created or deleted. With a hundred NodeJobs, each such change would otherwise cost a hundred plans,
// nearly all of them without changes.
//
// A plan can be skipped in two cases, and only while the NodeJob has nothing to remove from the node, and reports no problem of it:
//
//   - The NodeJob does not match the node, neither before nor after the change. The plan excludes such a node before
//     it reads anything else, and does not count it. A NodeJob that disrupts nodes waits for all control plane nodes,
//     whether or not it selects them.
//   - The NodeJob is at rest, and the node is done with its revision. The plan checks whether a node is done before
//     it checks what prevents a task there. Only attempts that could start, soaks, and nodes at risk before the
//     revision is stable depend on taints, cordons and readiness, and a NodeJob at rest has none of these.
//
// TestWhatDoesNotAffectANodeJobDoesNotChangeItsPlan and the random histories compare plans.
func (c NodeChange) isIgnoredBy(job *v1alpha1.NodeJob, now time.Time) bool {
	if !job.DeletionTimestamp.IsZero() || job.Status.ObservedGeneration != job.Generation {
		return false
	}
	if mayHaveMarks(job, c.after) || (c.before != nil && mayHaveMarks(job, c.before)) {
		return false
	}
	switch {
	case !mayMatch(job, c.after):
		return !Disrupts(job) || !isControlPlane(c.after)
	case c.before == nil, c.replaced, c.rebooted && dependsOnBoot(&job.Spec):
		return false
	}
	return isAtRest(&job.Status) && isSettled(job, c.after, now)
}

// mayHaveMarks reports whether a node has a gate or a cordon that the plan of the NodeJob may have to remove, or a problem in the status
// of the NodeJob. A shared gate also depends on other NodeJobs, so any taint of that key counts.
func mayHaveMarks(job *v1alpha1.NodeJob, node *Node) bool {
	if slices.ContainsFunc(job.Status.NodeProblems, func(p v1alpha1.NodeProblem) bool { return p.Node == node.Name }) {
		return true
	}
	if len(node.CordonedBy) == 0 && len(node.Taints) == 0 {
		return false
	}
	key, gate := v1alpha1.RecordKey(job.Namespace, job.Name), gateKeyOf(job)
	return slices.Contains(node.CordonedBy, key) ||
		slices.ContainsFunc(node.Taints, func(t corev1.Taint) bool { return t.Key == key || t.Key == gate })
}

// mayMatch reports whether a node may match a NodeJob, or has anything of it.
func mayMatch(job *v1alpha1.NodeJob, node *Node) bool {
	key := v1alpha1.RecordKey(job.Namespace, job.Name)
	_, annotated := node.Annotations[key]
	_, labeled := node.Labels[key]
	_, sealed := node.Labels[record.SealKey(key)]
	if annotated || labeled || sealed {
		return true
	}
	if len(job.Spec.Nodes.Names) > 0 && !slices.Contains(job.Spec.Nodes.Names, node.Name) {
		return false
	}
	if job.Spec.Nodes.Selector == nil {
		return true
	}
	selector, err := metav1.LabelSelectorAsSelector(job.Spec.Nodes.Selector)
	return err != nil || selector.Matches(labels.Set(node.Labels))
}

// dependsOnBoot reports whether the NodeJob has something to do after a reboot of a node that is done.
func dependsOnBoot(spec *v1alpha1.NodeJobSpec) bool {
	return spec.Rerun.OnReboot || spec.Expires != nil
}

// isAtRest reports whether all nodes of a NodeJob were done when its status was written, and its revision has passed
// all steps.
func isAtRest(status *v1alpha1.NodeJobStatus) bool {
	return meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionComplete) && status.Rollout != nil && !status.Rollout.StableAt.IsZero() &&
		len(status.Failures) == 0 && len(status.Drains) == 0 && len(status.NodeProblems) == 0 && len(status.Rollout.UnrecordedFailures) == 0
}

// isSettled reports whether a node is done with the NodeJob's revision, nothing is left to do, and no rerun is due there.
func isSettled(job *v1alpha1.NodeJob, node *Node, now time.Time) bool {
	on := record.Read(node.Labels, node.Annotations, v1alpha1.RecordKey(job.Namespace, job.Name))
	rec := on.Record
	return on.DoneWith(job.Status.Revision, false) && on.HasLabelOfSuccess() && !rec.Cordoned && rec.Rollback == nil && rec.Drain == nil &&
		!mayRerun(job, node, rec, now) && !mayAsk(job, node, rec, now) && !mayExpire(job, node, on, now)
}

// mayExpire reports whether the check of spec.expires may be due on a node that is done, or its answer makes the node expire.
func mayExpire(nodeJob *v1alpha1.NodeJob, node *Node, on record.NodeRecord, now time.Time) bool {
	j := &job{policy: newPolicy(Input{Job: nodeJob, Now: now, Revision: nodeJob.Status.Revision})}
	switch {
	case j.hasEnded():
		return true
	case !task.ChecksExpiry(nodeJob):
		return false
	}
	known := *node
	known.On = on
	_, needed := j.expiryDue(&known)
	return !needed || on.Record.Expiry.At.After(now)
}

// mayAsk reports whether a question may be due on a node that is done, or the task may run again because of its answer.
func mayAsk(nodeJob *v1alpha1.NodeJob, node *Node, rec *record.Record, now time.Time) bool {
	p := newPolicy(Input{Job: nodeJob, Now: now})
	return p.repairs(rec) || slices.ContainsFunc(p.questions(), func(q question) bool {
		return !now.Before(p.dueAt(rec, node.UID, q)) || rec.EndedAt().After(now) || rec.Asked[q.name].At.After(now)
	})
}

// mayRerun reports whether a rerun may be due on a node on which the task has succeeded. If the node cannot run it, for example
// because of a taint, the plan does not count the node, and the NodeJob may be at rest.
func mayRerun(job *v1alpha1.NodeJob, node *Node, rec *record.Record, now time.Time) bool {
	if onMachineChange(job) && differ(rec.MachineID, node.MachineID) || job.Spec.Rerun.OnReboot && differ(rec.BootID, node.BootID) {
		return true
	}
	if job.Spec.Rerun.OnNodeFieldChange && inputsChanged(job, node, rec) {
		return true
	}
	if len(rec.RemovedLabels) > 0 && slices.ContainsFunc(job.Spec.RemoveLabels, func(key string) bool { _, is := node.Labels[key]; return is }) {
		return true
	}
	due := dueAfter(rec.EndedAt(), job.Spec.Rerun.PeriodSeconds, v1alpha1.RecordKey(job.Namespace, job.Name), node.UID)
	return !due.IsZero() && (!now.Before(due) || rec.EndedAt().After(now))
}

// ofRecord reports whether the record under a key, its label or its seal changed.
func (c NodeChange) ofRecord(key string) bool {
	return c.ofAnnotation(key) || c.ofLabel(key) || c.ofLabel(record.SealKey(key))
}

func (c NodeChange) ofLabel(key string) bool {
	return c.labels && differs(c.before.Labels, c.after.Labels, key)
}

func (c NodeChange) ofAnnotation(key string) bool {
	return c.annotations && differs(c.before.Annotations, c.after.Annotations, key)
}

func differs(a, b map[string]string, key string) bool {
	was, had := a[key]
	is, has := b[key]
	return had != has || was != is
}

// ofOwnMetadata reports whether the change is of something that a NodeJob publishes or removes.
func (c NodeChange) ofOwnMetadata(spec *v1alpha1.NodeJobSpec) bool {
	published := func(f v1alpha1.PublishedResult) bool {
		return (f.Label != "" && c.ofLabel(f.Label)) || (f.Annotation != "" && c.ofAnnotation(f.Annotation))
	}
	return slices.ContainsFunc(spec.Publish, published) || slices.ContainsFunc(spec.RemoveLabels, c.ofLabel) ||
		(len(spec.Publish) > 0 && c.ofAnnotation(v1alpha1.PublishedAnnotation))
}

// ofInputs reports whether the change is one of the values that task.env takes from the Node.
func (c NodeChange) ofInputs(spec *v1alpha1.NodeJobSpec) bool {
	before, after := readNodeValues(spec, c.before), readNodeValues(spec, c.after)
	return before.Message != after.Message || !maps.Equal(before.Values, after.Values)
}

// ofPeers reports whether the change may end the wait of a NodeJob for another one.
func (c NodeChange) ofPeers(job *v1alpha1.NodeJob) bool {
	spec := &job.Spec
	// The labels of a node determine whether it matches another NodeJob and whether it is done there. Which labels
	// these are is only known to that NodeJob, and labels rarely change.
	if waits := len(spec.DependsOn) > 0 || (spec.Gate != nil && spec.Gate.Key != ""); waits && c.labels {
		return true
	}
	// The record has details that no label shows.
	return slices.ContainsFunc(spec.DependsOn, func(name string) bool { return c.ofAnnotation(v1alpha1.RecordKey(job.Namespace, name)) })
}

// ofSelection reports whether the node has another operating system, newly runs a control plane or no longer, or newly matches a
// selector of the NodeJob or no longer matches it. A label that the NodeJob has removed counts as there, which only the record
// shows: with spec.removeLabels, every label of a selector matters.
func (c NodeChange) ofSelection(job *v1alpha1.NodeJob) bool {
	changes := c.ofSelector
	if len(job.Spec.RemoveLabels) > 0 {
		changes = c.ofKeys
	}
	return c.labels && (c.ofLabel(corev1.LabelOSStable) || c.ofRestriction() || isControlPlane(c.before) != isControlPlane(c.after) ||
		slices.ContainsFunc(selectorsOf(&job.Spec), changes))
}

// ofRestriction reports whether a label has changed that a namespace may be limited by. Which ones these are is not known here.
func (c NodeChange) ofRestriction() bool {
	changed := func(from, to map[string]string) bool {
		for key := range from {
			if prefix, _, _ := strings.Cut(key, "/"); strings.HasSuffix(prefix, corev1.LabelNamespaceNodeRestriction) && !record.IsSealKey(key) && differs(from, to, key) {
				return true
			}
		}
		return false
	}
	return changed(c.before.Labels, c.after.Labels) || changed(c.after.Labels, c.before.Labels)
}

// ofKeys reports whether a label of a selector has changed.
func (c NodeChange) ofKeys(spec *metav1.LabelSelector) bool {
	if spec == nil {
		return false
	}
	for key := range spec.MatchLabels {
		if c.ofLabel(key) {
			return true
		}
	}
	return slices.ContainsFunc(spec.MatchExpressions, func(r metav1.LabelSelectorRequirement) bool { return c.ofLabel(r.Key) })
}

// selectorsOf returns the selectors by which a NodeJob reads the labels of nodes. Some may be nil.
func selectorsOf(spec *v1alpha1.NodeJobSpec) []*metav1.LabelSelector {
	selectors := []*metav1.LabelSelector{spec.Nodes.Selector}
	if spec.Nodes.AssumeDone != nil {
		selectors = append(selectors, spec.Nodes.AssumeDone.Selector)
	}
	for i := range spec.Rollout.Steps {
		selectors = append(selectors, spec.Rollout.Steps[i].Selector)
	}
	return selectors
}

// ofSelector reports whether the node newly matches a selector, or no longer matches it.
func (c NodeChange) ofSelector(spec *metav1.LabelSelector) bool {
	if spec == nil {
		return false
	}
	selector, err := metav1.LabelSelectorAsSelector(spec)
	return err == nil && selector.Matches(labels.Set(c.before.Labels)) != selector.Matches(labels.Set(c.after.Labels))
}
