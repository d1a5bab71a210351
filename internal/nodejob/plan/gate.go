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
	"github.com/everynode/everynode/internal/kube"
	"github.com/everynode/everynode/internal/nodejob/record"
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
	g := &gate{job: j, Taint: corev1.Taint{Key: key, Value: v1alpha1.GateValue, Effect: corev1.TaintEffect(v1alpha1.GateEffectOf(j.in.Job))}, spec: spec, own: key == j.key}
	if spec == nil {
		return g
	}
	g.since = j.now()
	if was := j.in.Job.Status.Gate; was != nil && was.Key == key && !was.Since.IsZero() {
		g.since = was.Since
	}
	return g
}

// isGate reports whether a taint is or was the gate of a NodeJob. The taint of a removed gate is about to be removed
// from the node, and must not be mistaken for a reservation by another tool.
func (j *job) isGate(t *corev1.Taint) bool {
	prefix, _, _ := strings.Cut(t.Key, "/")
	return ofEverynode(t) || strings.HasSuffix(prefix, "."+v1alpha1.Group) || slices.Contains(j.in.GateKeys, t.Key)
}

// ofEverynode reports whether only Everynode sets such a taint: it has the value of Everynode, a key that a gate can
// have, and an effect.
func ofEverynode(t *corev1.Taint) bool {
	return t.Value == v1alpha1.GateValue && strings.Contains(t.Key, "/") && t.Effect != corev1.TaintEffectPreferNoSchedule
}

// gateKeys are the gates that a task on the node must tolerate.
func (g *gate) gateKeys(node *Node) []string {
	keys := slices.Clone(g.in.GateKeys)
	if g.spec != nil {
		keys = append(keys, g.Key)
	}
	for i := range node.Taints {
		if t := &node.Taints[i]; g.isGate(t) {
			keys = append(keys, t.Key)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// untolerated is the first taint that prevents a task with these tolerations from running on the node; nil if there is
// none.
func (j *job) untolerated(node *Node, tolerations []corev1.Toleration) *corev1.Taint {
	for i := range node.Taints {
		if t := &node.Taints[i]; !j.isGate(t) && !kube.Tolerated(t, tolerations) {
			return t
		}
	}
	return nil
}

// holds reports whether a taint is the gate, regardless of who set it. With the default key, a taint with another
// effect is an earlier form of the gate.
func (g *gate) holds(t *corev1.Taint) bool { return t.Key == g.Key && (g.own || t.Effect == g.Effect) }

func (g *gate) closed(node *Node) bool {
	return slices.ContainsFunc(node.Taints, func(t corev1.Taint) bool { return g.holds(&t) })
}

// closedSinceCreation reports whether the node has had the taint of the gate since its creation. A taint that the
// manager adds later has the time when it was added. The taints of the admission policy and of kubelets have no time.
func (g *gate) closedSinceCreation(node *Node) bool {
	return g.spec != nil && slices.ContainsFunc(node.Taints, func(t corev1.Taint) bool { return g.holds(&t) && t.TimeAdded == nil })
}

// taintNow is the taint of the gate for a node whose gate is closed now.
func (g *gate) taintNow() corev1.Taint {
	taint := g.Taint
	taint.TimeAdded = new(g.now())
	return taint
}

// opened are the taints of a node without the gate; nil if the gate is open, or if another NodeJob with the same gate
// is not done on the node. If all is true, a taint that others set is removed too.
func (g *gate) opened(node *Node, all bool) *record.Taints {
	goes := func(t corev1.Taint) bool {
		return g.holds(&t) && (all || g.own || t.Value == v1alpha1.GateValue)
	}
	if !slices.ContainsFunc(node.Taints, goes) {
		return nil
	}
	for i := range g.sharers {
		if g.pending(&g.sharers[i], node) {
			return nil
		}
	}
	return &record.Taints{All: slices.DeleteFunc(slices.Clone(node.Taints), goes)}
}

// reconcileGate opens or closes the gate of a node on which no attempt ends in this pass.
func (p *planner) reconcileGate(w *nodePlan, mark *PatchNode) {
	node := w.node
	mayYetRun, until := p.gate.mayYetRun(w)
	p.plan.wake(until)
	switch {
	case p.gate.spec == nil, w.State == Done:
		mark.Taints = p.gate.opened(node, p.serves(node))
	case w.State == Excluded && !mayYetRun:
		mark.Taints = p.gate.opened(node, false)
	case p.gate.closed(node):
		w.gated = true
		if mark.Taints = p.gate.updatedGateTaint(node); mark.Taints != nil {
			mark.because(v1alpha1.ReasonGateClosed, "it has another effect now")
		}
	case p.gate.closes(node):
		w.gated = true
		mark.Taints = &record.Taints{All: append(slices.Clone(node.Taints), p.gate.taintNow())}
		mark.because(v1alpha1.ReasonGateClosed, "it is not done")
	}
	if mark.Taints != nil {
		mark.because(v1alpha1.ReasonGateOpened, "the gate is no longer needed")
	}
}

// updatedGateTaint are the taints of a node with the gate after its effect has changed; nil if it has not.
func (g *gate) updatedGateTaint(node *Node) *record.Taints {
	is := func(t corev1.Taint) bool { return t.Key == g.Key && t.Effect == g.Effect }
	if !g.serves(node) || slices.ContainsFunc(node.Taints, is) || g.endsPods(node) || !g.selects(node) {
		return nil
	}
	others := slices.DeleteFunc(slices.Clone(node.Taints), func(t corev1.Taint) bool { return g.holds(&t) })
	taint := g.taintNow()
	if g.closedSinceCreation(node) {
		taint.TimeAdded = nil
	}
	return &record.Taints{All: append(others, taint)}
}

// mayYetRun reports whether a node is excluded only because of a taint that may soon be removed: a transient taint, or
// any taint while the node joins. Network and storage drivers have startup taints of their own. until is when it ends;
// zero if that is not known.
func (g *gate) mayYetRun(w *nodePlan) (may bool, until time.Time) {
	if g.spec == nil || w.State != Excluded || !g.selects(w.node) {
		return false, time.Time{}
	}
	taint := g.untolerated(w.node, g.tolerations)
	switch {
	case slices.Contains(transientTaints, taint.Key):
		return true, time.Time{}
	case g.isNewNode(w.node):
		return true, w.node.Created.Add(joiningFor)
	}
	return false, time.Time{}
}

// isNewNode reports whether a node joined the cluster recently.
func (j *job) isNewNode(node *Node) bool { return j.in.Now.Before(node.Created.Add(joiningFor)) }

// endsPods reports whether the taint of the gate would end a pod that must continue: the manager, or the pod of a task
// that was created before the gate existed and does not tolerate it. A run with a reboot continues between its pods.
func (g *gate) endsPods(node *Node) bool {
	return g.Effect == corev1.TaintEffectNoExecute &&
		(node.Name == g.in.OwnNode || len(g.podsOn[node.Name]) > 0 || g.isRebooting(node.On.Record))
}

// closes reports whether an unfinished node needs the taint of the gate and does not have it: a node that joins, a node
// with another machine or boot than when it was done if the spec asks for that, or any node. A node that is done with
// this revision stays open during a rerun. If this NodeJob is not pending on the node, another NodeJob with the same
// gate would open it immediately, so it is not closed. While the revision is not known, no gate is closed, because it
// is not known which nodes are done.
func (g *gate) closes(node *Node) bool {
	rec := node.On.Record
	rebooted := rec != nil && rec.Outcome == record.Succeeded && differ(rec.BootID, node.BootID)
	switch {
	case !g.serves(node), g.in.Revision == "", node.Deleting, g.endsPods(node), !g.isPending(&g.self, node, &node.On):
		return false
	case rebooted && g.isForRebooted(), g.replaced(node):
		return true
	case g.spec.Nodes == v1alpha1.GateAll:
		return node.On.Label != g.in.Revision
	case node.On.WasDone():
		return false
	}
	return node.Created.After(g.since.Time) && g.isNewNode(node)
}

// isForRebooted reports whether the gate closes again on a node that has rebooted and reruns the task therefore.
func (g *gate) isForRebooted() bool {
	return g.spec.Nodes == v1alpha1.GateJoiningAndRebooted || g.spec.Nodes == v1alpha1.GateAll
}

// withoutWorkloads reports whether no workload can run on a node that has joined: the gate has been closed since the
// node was created, or the node is new and not Ready.
func (g *gate) withoutWorkloads(node *Node) bool {
	return g.closedSinceCreation(node) || (node.Ready != corev1.ConditionTrue && g.isNewNode(node))
}

// gateStatus is the gate as the status shows it; nil without a gate.
func (sb *statusBuilder) gateStatus() *v1alpha1.GateStatus {
	if sb.gate.spec == nil {
		return nil
	}
	status := &v1alpha1.GateStatus{Key: sb.gate.Key, Effect: v1alpha1.GateEffect(sb.gate.Effect), Since: sb.gate.since}
	if was := sb.in.Job.Status.Gate; was != nil && was.Key == status.Key && was.Effect == status.Effect {
		status.RegisteredAt, status.AddedLateAt = was.RegisteredAt, was.AddedLateAt
	}
	for i := range sb.nodes {
		w := &sb.nodes[i]
		if w.gated {
			status.Closed++
		}
		switch created := w.node.Created; sb.gate.joinedWith(w.node) {
		case registeredTaint:
			status.RegisteredAt.Time = later(status.RegisteredAt.Time, created)
		case lateTaint:
			status.AddedLateAt.Time = later(status.AddedLateAt.Time, created)
		case noTaint:
		}
	}
	return status
}

// closedSince returns since when the gate that was closed first has been closed; zero if none is. A taint without a time is as
// old as its node.
func (g *gate) closedSince(nodes []nodePlan) time.Time {
	var first time.Time
	for i := range nodes {
		if !nodes[i].gated {
			continue
		}
		since := g.in.Now // if this plan closes it
		for _, t := range nodes[i].node.Taints {
			switch {
			case !g.holds(&t):
			case t.TimeAdded != nil:
				since = t.TimeAdded.Time
			default:
				since = nodes[i].node.Created
			}
		}
		if first.IsZero() || since.Before(first) {
			first = since
		}
	}
	return first
}

// joinTaint is how a node that has joined since the gate exists got its taint.
type joinTaint int8

const (
	// noTaint : the gate is open, the node is older than the gate, or the API server has added the taint.
	noTaint joinTaint = iota
	// registeredTaint : something other than Everynode has set the taint, as the registration of the node does.
	registeredTaint
	// lateTaint : the manager has added the taint because it was missing.
	lateTaint
)

// joinedWith returns how a node that has joined since the gate exists got the taint of the gate.
func (g *gate) joinedWith(node *Node) joinTaint {
	i := slices.IndexFunc(node.Taints, func(t corev1.Taint) bool { return t.Key == g.Key && t.Effect == g.Effect })
	if i < 0 || !node.Created.After(g.since.Time) {
		return noTaint
	}
	switch t := &node.Taints[i]; {
	case t.Value == v1alpha1.GateValue && t.TimeAdded != nil:
		return lateTaint
	case t.Value == v1alpha1.GateValue:
		return noTaint
	}
	return registeredTaint
}

// gateCondition says whether the gate is enforced without gaps. status is nil if no nodes were planned.
func (g *gate) gateCondition(status *v1alpha1.GateStatus) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionGateEnforced, Status: metav1.ConditionTrue,
		Reason: v1alpha1.ReasonAdmissionPolicy, Message: "the API server adds the taint in the request that creates a node"}
	switch {
	case g.in.GateWarning == "":
	case status != nil && status.RegisteredAt.After(status.AddedLateAt.Time):
		c.Reason = v1alpha1.ReasonRegisteredTaint
		c.Message = "the latest node that joined had the taint when it registered. The admission policies are not complete, so the manager needs a toleration of its own: docs/gate.md"
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1alpha1.ReasonNoAdmissionPolicy, g.in.GateWarning
	}
	return c
}
