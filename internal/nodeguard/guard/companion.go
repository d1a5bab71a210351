// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/kube"
)

// failedWait is the minimum age of a companion that the kubelet ended before it is replaced. Without it, a companion
// that the kubelet rejects would be recreated in an endless loop.
const failedWait = 30 * time.Second

// reconcileCompanions ensures that each guarded node has exactly one companion, except released nodes: an evicted
// companion must not be recreated there. On a held node, a companion that ended is recreated at once, because the node
// is not protected without it.
func (p *planner) reconcileCompanions() {
	missing := 0
	var absent, outdated []*nodePlan
	for _, n := range p.nodes {
		p.deleteSurplus(n)
		p.deleteReleased(n)
		if n.releasing || n.active() {
			continue
		}
		switch c := n.companion; {
		case c == nil:
			absent = append(absent, n)
		case p.isOutdated(n):
			outdated = append(outdated, n)
		case c.ended() && !c.Terminating:
			p.recreateEnded(c)
		}
		if !isAlive(n.companion) {
			p.coming = append(p.coming, n)
		}
		if n.Ready && !isReady(n.companion) { // on a node that is not Ready, the companion cannot be ready
			missing++
		}
	}
	p.coming = slices.DeleteFunc(p.coming, func(n *nodePlan) bool { return !p.canRunCompanion(n) })
	p.createCompanions(absent)
	p.replace(outdated, missing)
}

// deleteReleased deletes the companion of a node whose release is stored, so that a drain can continue. If the release ends before, the
// companion stays, and notes that.
func (p *planner) deleteReleased(n *nodePlan) {
	switch c := n.companion; {
	case c == nil || c.Terminating || n.entry == nil || n.releasing || !c.isReleasedBy(n.entry):
	case n.active():
		p.plan.do(DeletePod{Pod: *c, Reason: v1alpha1.ReasonNodeReleased, Unchanged: true})
	default:
		p.plan.do(EndRelease{*c, releaseID(*n.entry)})
	}
}

// createCompanions creates the missing companions. After the API server has rejected one, it creates one at a time, as a
// test: for the node that was rejected the longest time ago, or never. So a rejection for one node does not prevent
// companions on other nodes.
func (p *planner) createCompanions(absent []*nodePlan) {
	if !p.covers() {
		return // the budget requires them first
	}
	absent = slices.DeleteFunc(absent, func(n *nodePlan) bool { return !p.canRunCompanion(n) })
	slices.SortStableFunc(absent, func(a, b *nodePlan) int { return p.in.RefusedAt[a.Name].Compare(p.in.RefusedAt[b.Name]) })
	if o := p.in.Obstacle; o != nil {
		if p.in.Now.Before(o.Until) {
			p.plan.wake(o.Until)
			return
		}
		absent = absent[:min(1, len(absent))]
	}
	for _, n := range absent {
		if name := p.freeName(v1alpha1.GuardRoleCompanion, n.Name); name != "" {
			p.plan.do(CreateCompanion{Node: n.Name, Name: name})
		}
	}
}

// freeName returns the first pod name that no pod of another owner has. It returns "" in a namespace that is not allowed,
// where no pod is created.
func (o observed) freeName(role, node string) string {
	if o.in.NotAllowed != nil {
		return ""
	}
	for nth := 0; ; nth++ {
		name := PodName(o.in.Guard.Name, o.in.NameKey, role, node, nth)
		if _, taken := o.in.TakenNames[name]; !taken {
			return name
		}
	}
}

// deleteSurplus deletes all companions of a node except one. There are several only if a taken name became free again
// while the cache did not show the companion with the other name. It requires a live read of the API server.
func (p *planner) deleteSurplus(n *nodePlan) {
	for _, pod := range n.surplus {
		switch {
		case pod.Terminating:
		case !p.in.Live:
			p.plan.Confirm = true
		case !n.companion.Terminating:
			p.plan.do(DeletePod{Pod: *pod, Reason: v1alpha1.ReasonNameTaken})
		}
	}
}

// recreateEnded deletes a companion that the kubelet has ended, so that it is recreated.
func (p *planner) recreateEnded(c *Pod) {
	if again := c.Created.Add(failedWait); p.in.Now.Before(again) {
		p.plan.wake(again)
		return
	}
	p.plan.do(DeletePod{Pod: *c, Reason: v1alpha1.ReasonCompanionsNotReady})
}

// reconcilePlaceholder creates the placeholder.
func (p *planner) reconcilePlaceholder() {
	if len(p.nodes) == 0 || slices.ContainsFunc(p.in.Placeholders, func(pod Pod) bool { return p.isOwn(pod.Owner) }) {
		return
	}
	if o := p.in.PlaceholderObstacle; o != nil && p.in.Now.Before(o.Until) {
		p.plan.wake(o.Until)
		return
	}
	if name := p.freeName(v1alpha1.GuardRolePlaceholder, ""); name != "" {
		p.plan.do(CreatePlaceholder{name})
	}
}

// canRunCompanion reports whether a companion can run on a node: elsewhere it would remain Pending or be evicted. It
// waits until the companion of an earlier NodeGuard of the same name has terminated.
func (o observed) canRunCompanion(n *nodePlan) bool {
	return n.Ready && !n.Deleting && !n.succeeds && o.untoleratedTaint(n) == nil
}

// untoleratedTaint returns the taint that would evict the companion from the node. Other taints do not affect a pod
// that is not scheduled.
func (o observed) untoleratedTaint(n *nodePlan) *corev1.Taint {
	var taints []corev1.Taint
	for _, taint := range n.Taints {
		if taint.Effect == corev1.TaintEffectNoExecute {
			taints = append(taints, taint)
		}
	}
	return kube.Untolerated(taints, o.in.Tolerations)
}
