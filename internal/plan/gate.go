// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/record"
	"github.com/everynode/everynode/internal/task"
)

// joiningFor is how long after its creation a node without the taint of the gate still gets the taint. After that time
// workloads already run on the node, and the taint would be too late.
const joiningFor = 10 * time.Minute

// transientTaints are on a node only until the cloud provider knows it. A node that is excluded because of one of them
// may match later, so its gate stays closed. Sources: k8s.io/cloud-provider/api, TaintExternalCloudProvider; Karpenter
// pkg/apis/v1, UnregisteredTaintKey.
var transientTaints = []string{"node.cloudprovider.kubernetes.io/uninitialized", "karpenter.sh/unregistered"}

// gate is the taint that prevents workloads from running on a node until the task has succeeded there.
type gate struct {
	*job
	corev1.Taint
	// spec is nil if the gate was removed from the spec.
	spec *v1alpha1.GateSpec
	// own is true for the default key, which only this NodeJob uses.
	own bool
	// since is when the gate was first seen.
	since metav1.Time
}

// readGate reads spec.gate, and what the status says about it.
func readGate(j *job) *gate {
	spec := j.in.Job.Spec.Gate
	key := v1alpha1.GateKey(j.in.Job)
	g := &gate{job: j, Taint: corev1.Taint{Key: key, Value: v1alpha1.GateValue, Effect: corev1.TaintEffectNoSchedule}, spec: spec, own: key == j.key}
	if spec == nil {
		return g
	}
	if spec.Effect != "" {
		g.Effect = corev1.TaintEffect(spec.Effect)
	}
	g.since = j.now()
	if was := j.in.Job.Status.Gate; was != nil && was.Key == key && !was.Since.IsZero() {
		g.since = was.Since
	}
	return g
}

// isGate reports whether a taint is or was the gate of a NodeJob. The taint of a removed gate is about to be removed
// from the node, and must not be mistaken for a reservation by another tool.
func (s *job) isGate(t *corev1.Taint) bool {
	prefix, _, _ := strings.Cut(t.Key, "/")
	return ofEverynode(t) || strings.HasSuffix(prefix, "."+v1alpha1.Group) || slices.Contains(s.in.GateKeys, t.Key)
}

// ofEverynode reports whether only Everynode sets such a taint: it has the value of Everynode, a key that a gate can
// have, and an effect.
func ofEverynode(t *corev1.Taint) bool {
	return t.Value == v1alpha1.GateValue && strings.Contains(t.Key, "/") && t.Effect != corev1.TaintEffectPreferNoSchedule
}

// gateKeys are the gates that a task on the node must tolerate.
func (s *gate) gateKeys(node *Node) []string {
	keys := slices.Clone(s.in.GateKeys)
	if s.spec != nil {
		keys = append(keys, s.Key)
	}
	for i := range node.Taints {
		if t := &node.Taints[i]; s.isGate(t) {
			keys = append(keys, t.Key)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// untolerated is the first taint that prevents a task with these tolerations from running on the node; nil if there is
// none.
func (s *job) untolerated(node *Node, tolerations []corev1.Toleration) *corev1.Taint {
	return task.Untolerated(slices.DeleteFunc(slices.Clone(node.Taints), func(t corev1.Taint) bool { return s.isGate(&t) }), tolerations)
}

// holds reports whether a taint is the gate, regardless of who set it. With the default key, a taint with another
// effect is an earlier form of the gate.
func (g *gate) holds(t *corev1.Taint) bool { return t.Key == g.Key && (g.own || t.Effect == g.Effect) }

func (s *gate) closed(node *Node) bool {
	return slices.ContainsFunc(node.Taints, func(t corev1.Taint) bool { return s.holds(&t) })
}

// closedSinceCreation reports whether the node has had the taint of the gate since its creation. A taint that the
// manager adds later has the time when it was added. The taints of the admission policy and of kubelets have no time.
func (s *gate) closedSinceCreation(node *Node) bool {
	return s.spec != nil && slices.ContainsFunc(node.Taints, func(t corev1.Taint) bool { return s.holds(&t) && t.TimeAdded == nil })
}

// taintNow is the taint of the gate for a node whose gate is closed now.
func (s *gate) taintNow() corev1.Taint {
	taint := s.Taint
	taint.TimeAdded = new(s.now())
	return taint
}

// opened are the taints of a node without the gate; nil if the gate is open, or if another NodeJob with the same gate
// is not done on the node. If all is true, a taint that others set is removed too.
func (s *gate) opened(node *Node, all bool) *record.Taints {
	goes := func(t corev1.Taint) bool {
		return s.holds(&t) && (all || s.own || t.Value == v1alpha1.GateValue)
	}
	if !slices.ContainsFunc(node.Taints, goes) {
		return nil
	}
	for i := range s.sharers {
		if s.pending(&s.sharers[i], node) {
			return nil
		}
	}
	return &record.Taints{All: slices.DeleteFunc(slices.Clone(node.Taints), goes)}
}

// reconcileGate opens or closes the gate of a node on which no attempt ends in this pass.
func (s *planner) reconcileGate(w *nodePlan, mark *PatchNode) {
	node := w.node
	mayYetRun, until := false, time.Time{}
	if s.gate.spec != nil && w.State == Excluded {
		mayYetRun, until = s.mayYetRun(node)
		s.plan.wake(until)
	}
	switch {
	case s.gate.spec == nil && !s.gate.own:
	case s.gate.spec == nil, w.State == Done:
		mark.Taints = s.gate.opened(node, true)
	case w.State == Excluded && !mayYetRun:
		mark.Taints = s.gate.opened(node, false)
	case s.gate.closed(node):
		w.gated = true
		if mark.Taints = s.gate.updatedGateTaint(node); mark.Taints != nil {
			mark.because(v1alpha1.ReasonGateClosed, "it has another effect now")
		}
	case s.gate.closes(node):
		w.gated = true
		mark.Taints = &record.Taints{All: append(slices.Clone(node.Taints), s.gate.taintNow())}
		mark.because(v1alpha1.ReasonGateClosed, "it is not done")
	}
	if mark.Taints != nil {
		mark.because(v1alpha1.ReasonGateOpened, "the gate is no longer needed")
	}
}

// updatedGateTaint are the taints of a node after the effect of the gate has changed; nil if it has not.
func (s *gate) updatedGateTaint(node *Node) *record.Taints {
	is := func(t corev1.Taint) bool { return t.Key == s.Key && t.Effect == s.Effect }
	if !s.own || slices.ContainsFunc(node.Taints, is) || s.endsPods(node) || !s.selects(node) {
		return nil
	}
	others := slices.DeleteFunc(slices.Clone(node.Taints), func(t corev1.Taint) bool { return s.holds(&t) })
	taint := s.taintNow()
	if s.closedSinceCreation(node) {
		taint.TimeAdded = nil
	}
	return &record.Taints{All: append(others, taint)}
}

// mayYetRun reports whether a node is excluded only because of a taint that may soon be removed: a transient taint, or
// any taint while the node joins. Network and storage drivers have startup taints of their own. until is when it ends;
// zero if that is not known.
func (s *job) mayYetRun(node *Node) (may bool, until time.Time) {
	taint := s.untolerated(node, s.tolerations)
	switch {
	case taint == nil || !s.selects(node):
		return false, time.Time{}
	case slices.Contains(transientTaints, taint.Key):
		return true, time.Time{}
	case s.isNewNode(node):
		return true, node.Created.Add(joiningFor)
	}
	return false, time.Time{}
}

// isNewNode reports whether a node joined the cluster recently.
func (s *job) isNewNode(node *Node) bool { return s.in.Now.Before(node.Created.Add(joiningFor)) }

// endsPods reports whether the taint of the gate would end a pod that must continue: the manager, or the pod of a task
// that was created before the gate existed and does not tolerate it. A run with a reboot continues between its pods.
func (s *gate) endsPods(node *Node) bool {
	return s.Effect == corev1.TaintEffectNoExecute &&
		(node.Name == s.in.OwnNode || len(s.podsOn[node.Name]) > 0 || s.isRebooting(node.On.Record))
}

// closes reports whether an unfinished node needs the taint of the gate and does not have it: a node that joins, a node
// with another machine or boot than when it was done if the spec asks for that, or any node. A node that is done with
// this revision stays open during a rerun. If this NodeJob is not pending on the node, another NodeJob with the same
// gate would open it immediately, so it is not closed. While the revision is not known, no gate is closed, because it
// is not known which nodes are done.
func (s *gate) closes(node *Node) bool {
	rec := node.On.Record
	rebooted := rec != nil && rec.Outcome == record.Succeeded && differ(rec.BootID, node.BootID)
	switch {
	case s.in.Revision == "", node.Deleting, s.endsPods(node), !s.isPending(&s.self, node, node.On):
		return false
	case s.spec.OnReboot && rebooted, s.replaced(node):
		return true
	case s.spec.Scope == v1alpha1.GateAll:
		return node.On.Label != s.in.Revision
	case node.On.Label != "" || (rec != nil && rec.Outcome == record.Succeeded):
		return false
	}
	return node.Created.After(s.since.Time) && s.isNewNode(node)
}

// gateStatus is the gate as the status shows it; nil without a gate.
func (s *statusBuilder) gateStatus() *v1alpha1.GateStatus {
	if s.gate.spec == nil {
		return nil
	}
	status := &v1alpha1.GateStatus{Key: s.gate.Key, Effect: v1alpha1.GateEffect(s.gate.Effect), Since: s.gate.since}
	for i := range s.nodes {
		if s.nodes[i].gated {
			status.Closed++
		}
	}
	return status
}

// gateCondition says whether the gate is enforced without gaps.
func (s *gate) gateCondition() metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionGateEnforced, Status: metav1.ConditionTrue,
		Reason: v1alpha1.ReasonAdmissionPolicy, Message: "the API server adds the taint in the request that creates a node"}
	if s.in.GateWarning != "" {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1alpha1.ReasonNoAdmissionPolicy, s.in.GateWarning
	}
	return c
}
