// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/plural"
)

// maxUnrecordedFailures bounds status.rollout.unrecordedFailures and atRisk. If a revision causes this many, its
// rollout is Stalled regardless of the failure budget, because further failures could not be counted.
const maxUnrecordedFailures = 32

// countUnrecordedFailures finds the nodes that were deleted, or replaced by another machine, after they were last seen
// failed or not Ready. They count as failed. Otherwise the repair of nodes that a task breaks would hide the failures,
// and each canary would be followed by another one.
func (ro *rollout) countUnrecordedFailures() {
	r := &ro.status
	if ro.retry != "" && r.Retry != ro.retry {
		// The user who requests a retry has seen them.
		r.UnrecordedFailures, r.AtRisk, r.Retry = nil, nil, ro.retry
	}
	if !ro.stableAt.IsZero() {
		r.UnrecordedFailures, r.AtRisk = nil, nil
		return
	}
	if len(r.AtRisk) == 0 {
		return
	}
	machines := make(map[types.UID]string, len(ro.in.Nodes))
	for i := range ro.in.Nodes {
		machines[ro.in.Nodes[i].UID] = ro.in.Nodes[i].MachineID
	}
	for _, n := range r.AtRisk {
		// Another machine may replace a machine behind the same Node.
		if machine, there := machines[n.UID]; there && !(onMachineChange(ro.in.Job) && differ(machine, n.MachineID)) {
			continue
		}
		reason := v1alpha1.ReasonNotReadyNodeDeleted
		if n.Failed {
			reason = v1alpha1.ReasonFailedNodeDeleted
		}
		ro.addUnrecordedFailure(n.Node, n.UID, reason)
	}
}

func (ro *rollout) addUnrecordedFailure(node string, uid types.UID, reason string) {
	r := &ro.status
	if ro.isUnrecordedFailure(uid) || len(r.UnrecordedFailures) >= maxUnrecordedFailures {
		return
	}
	r.UnrecordedFailures = append(r.UnrecordedFailures, v1alpha1.UnrecordedFailure{Node: node, UID: uid, Reason: reason, At: ro.now()})
}

func (ro *rollout) isUnrecordedFailure(uid types.UID) bool {
	return slices.ContainsFunc(ro.status.UnrecordedFailures, func(c v1alpha1.UnrecordedFailure) bool { return c.UID == uid })
}

// failInSoak adds an unrecorded failure for a node that turned NotReady in the soak of its step, or that was NotReady
// for too long before it.
func (ro *rollout) failInSoak(w *nodePlan, reason string) {
	ro.addUnrecordedFailure(w.Name, w.node.UID, reason)
	ro.failUnrecorded(w, reason)
}

func (ro *rollout) failUnrecorded(w *nodePlan, reason string) {
	w.failed, w.succeeded, w.rerun, w.start = true, false, false, start{}
	w.fail(reason, ro.noteUnrecordedFailure(w, reason), w.Until)
}

// noteUnrecordedFailure adds a node with an unrecorded failure to the failures in the status, and returns the message.
func (ro *rollout) noteUnrecordedFailure(w *nodePlan, reason string) string {
	message := "the node turned NotReady in the soak after the task"
	if reason == v1alpha1.ReasonProgressDeadlineExceeded {
		message = fmt.Sprintf("no progress for %d s (rollout.progressDeadlineSeconds): the soak waited for the node to become Ready", ro.progressDeadline()/time.Second)
	}
	f := v1alpha1.NodeFailure{Node: w.node.Name, Reason: reason, Message: message}
	if rec := w.node.On.Record; rec != nil {
		f.Attempts, f.FinishedAt = rec.Attempts, metav1.NewTime(rec.FinishedAt)
	}
	w.addFailure(f)
	return message
}

// countFailed counts the nodes that count against rollout.maxFailures.
func (ro *rollout) countFailed() {
	matched := 0
	ro.failed = ro.reviewUnrecordedFailures()
	for i := range ro.nodes {
		if ro.nodes[i].State != Excluded {
			matched++
		}
		if ro.nodes[i].failed {
			ro.failed++
		}
	}
	ro.mayFail = mayFail(ro.in.Job.Spec.Rollout, matched)
	ro.stopped = ro.failed > ro.mayFail || len(ro.status.UnrecordedFailures) >= maxUnrecordedFailures
}

// reviewUnrecordedFailures returns how many of these nodes were deleted or excluded since. A node that still exists and
// is done counts as failed. A node that is not done any more counts by its current state, since a user has requested
// another run.
func (ro *rollout) reviewUnrecordedFailures() int {
	if len(ro.status.UnrecordedFailures) == 0 {
		return 0
	}
	index := make(map[types.UID]int, len(ro.nodes))
	for i := range ro.nodes {
		index[ro.nodes[i].node.UID] = i
	}
	gone := 0
	for k := range ro.status.UnrecordedFailures {
		c := &ro.status.UnrecordedFailures[k]
		if i, there := index[c.UID]; wasPresent(c) && (!there || ro.replaced(ro.nodes[i].node)) {
			c.Reason = v1alpha1.ReasonNotReadyNodeDeleted
		}
	}
	ro.status.UnrecordedFailures = slices.DeleteFunc(ro.status.UnrecordedFailures, func(c v1alpha1.UnrecordedFailure) bool {
		i := index[c.UID]
		switch {
		case !wasPresent(&c):
			gone++
		case ro.nodes[i].State == Excluded: // usually because of a taint for its removal
			gone++
			ro.noteUnrecordedFailure(&ro.nodes[i], c.Reason)
		case ro.nodes[i].countsAsDone():
			ro.failUnrecorded(&ro.nodes[i], c.Reason)
		default:
			return ro.nodes[i].Reason != c.Reason
		}
		return false
	})
	return gone
}

// wasPresent reports whether the node of an unrecorded failure still existed when the failure was noted.
func wasPresent(c *v1alpha1.UnrecordedFailure) bool {
	return c.Reason == v1alpha1.ReasonNotReadyInSoak || c.Reason == v1alpha1.ReasonProgressDeadlineExceeded
}

// mayFail is how many of the matching nodes may fail: none if rollout.maxFailures is omitted.
func mayFail(r v1alpha1.RolloutSpec, matched int) int {
	return scaled(r.MaxFailures, matched, 0, roundDown)
}

func (ro *rollout) failuresMessage() string {
	return fmt.Sprintf("%s failed, and rollout.maxFailures allows %d", plural.Count(ro.failed, "node"), ro.mayFail)
}

// maxNotReadyBefore bounds status.controllerState.rollout.notReadyBefore.
const maxNotReadyBefore = 100

// wasAtRisk reports whether a node was at risk in the previous pass, other than because it had failed while it was not Ready for another
// reason.
func (ro *rollout) wasAtRisk(w *nodePlan) bool {
	return !ro.wasNotReadyBefore(w) && slices.ContainsFunc(ro.status.AtRisk, func(n v1alpha1.NodeAtRisk) bool { return n.UID == w.node.UID })
}

// wasHarmed reports whether a node may not be Ready because of the task. It may not if it was not Ready when the revision
// started there, which is so on each node that joins and needs the task to become Ready, or if its removal had begun when it
// turned NotReady, for example because a cluster is scaled down.
func (ro *rollout) wasHarmed(w *nodePlan) bool {
	switch {
	case !w.ranRevision, w.node.Ready == corev1.ConditionTrue:
		return false
	case ro.wasAtRisk(w):
		return true
	}
	return !removed(w.node) && !ro.wasNotReadyBefore(w)
}

// wasNotReadyBefore reports whether a node was not Ready in the previous pass, for another reason than the task.
func (ro *rollout) wasNotReadyBefore(w *nodePlan) bool {
	return slices.Contains(ro.status.NotReadyBefore, w.node.UID)
}

// isRemoved reports whether a node is about to be removed, and was Ready before.
func (ro *rollout) isRemoved(w *nodePlan) bool { return removed(w.node) && !ro.wasAtRisk(w) }

// noteStart notes that the revision starts for the first time on a node that is not Ready.
func (ro *rollout) noteStart(w *nodePlan) {
	if !w.ranRevision && w.node.Ready != corev1.ConditionTrue {
		ro.status.NotReadyBefore = append(ro.status.NotReadyBefore, w.node.UID)
	}
}

// noteRisks lists the nodes that become unrecorded failures if they are deleted in their current state, and those that are
// not Ready for another reason than the task.
func (ro *rollout) noteRisks() {
	var risks []v1alpha1.NodeAtRisk
	var others []types.UID
	for i := range ro.nodes {
		w := &ro.nodes[i]
		if !ro.status.StableAt.IsZero() || !w.ranRevision || ro.isUnrecordedFailure(w.node.UID) {
			continue
		}
		harmed := ro.wasHarmed(w)
		if w.failed || harmed {
			risks = append(risks, v1alpha1.NodeAtRisk{Node: w.node.Name, UID: w.node.UID, MachineID: w.node.MachineID, Failed: w.failed})
		}
		if !harmed && w.node.Ready != corev1.ConditionTrue && len(others) < maxNotReadyBefore {
			others = append(others, w.node.UID)
		}
	}
	slices.SortFunc(risks, func(a, b v1alpha1.NodeAtRisk) int { return cmp.Compare(a.Node, b.Node) })
	slices.Sort(others)
	ro.status.AtRisk, ro.status.NotReadyBefore = risks[:min(len(risks), maxUnrecordedFailures)], others
}

// removalTaints are set on nodes that are about to be removed. Sources: cluster-autoscaler utils/taints, ToBeDeletedTaint;
// Karpenter pkg/apis, DisruptedTaintKey of v1 and DisruptionTaintKey of v1beta1; GKE, graceful node termination.
var removalTaints = []string{
	"ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted", "karpenter.sh/disruption", "cloud.google.com/impending-node-termination",
}

// removalTaintPrefix begins the keys of the taints of the AWS Node Termination Handler. Source: its pkg/node.
const removalTaintPrefix = "aws-node-termination-handler/"

// removed reports whether a node is about to be removed, or was cordoned by a person, as with kubectl drain.
func removed(node *Node) bool {
	byPerson := node.Unschedulable && len(node.CordonedBy) == 0
	return node.Deleting || byPerson || slices.ContainsFunc(node.Taints, func(t corev1.Taint) bool {
		return slices.Contains(removalTaints, t.Key) || strings.HasPrefix(t.Key, removalTaintPrefix)
	})
}
