// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/kube"
)

// pass is the shell: it plans on the cache, on the API where the plan asks for that, and writes. Each write may fail,
// the manager may crash between any two, and it may be frozen before any and make the rest when another one leads.
func (h *history) pass(name string) {
	in, there := h.view(&h.cache, name, false)
	if !there {
		return
	}
	h.passes++
	p := Next(in)
	h.explained(&in, &p)
	if p.Confirm {
		if in, there = h.view(&h.cluster, name, true); !there {
			return
		}
		p = Next(in)
		h.explained(&in, &p)
		h.decided(name, &in, &p)
		h.decisions++
	}
	if !p.WakeAt.IsZero() && (h.wake.IsZero() || p.WakeAt.Before(h.wake)) {
		h.wake = p.WakeAt
	}
	h.creates(&in, &p)
	h.allowedTo(name, &p)
	h.happened += len(p.Actions) + len(p.Moves)
	var writes []func()
	written := false
	seen := in.Guard
	// The shell writes within 10 s of what it has read, and no other manager leads before.
	pass, read, version := h.passes, h.now, seen.ResourceVersion
	late := func() bool { return h.passes != pass || h.now.Sub(read) > 10*time.Second }
	if len(p.Moves) > 0 || ((h.prompt || h.chance(50)) && (h.unsealed(seen) || !equalStatus(&seen.Status, &p.Status))) {
		decided, decision, limit := h.now, h.decisions, h.limit(seen)
		writes = append(writes, func() {
			// The shell writes a decision soon or not at all, and no other manager leads and decides before that. With
			// one NodeGuard, its resource version is sufficient: this is tested as well.
			if len(h.guards) == 1 || (h.now.Sub(decided) < 10*time.Second && h.decisions == decision) {
				if written = h.writeStatus(name, seen, limit, &p); written {
					version = h.guards[name].ResourceVersion
				}
			}
		})
	}
	if len(p.Moves) == 0 { // a companion is deleted in a later pass, for a stored release
		for _, i := range h.rng.Perm(len(p.Actions)) {
			writes = append(writes, func() { h.do(name, &in, p.Actions[i], late() || !h.mayCreate(p.Actions[i], name, &in, version)) })
		}
	} else {
		for _, a := range p.Actions {
			if d, deletes := a.(DeletePod); deletes && d.Unchanged && !h.isReleased(seen, d.Pod.Node) &&
				!h.mayKnowRelease(seen, h.nodes[d.Pod.Node]) {
				h.fail("a companion is deleted in the pass that decides it")
			}
			writes = append(writes, func() {
				if written { // nothing follows a decision that was not written
					h.do(name, &in, a, late() || !h.mayCreate(a, name, &in, version))
				}
			})
		}
	}
	h.write(writes)
}

// creates : nothing is created in a namespace that is not allowed. What exists stays.
func (h *history) creates(in *Input, p *Plan) {
	h.createsElsewhere(in, p)
	if in.NotAllowed == nil {
		return
	}
	h.met["namespace not allowed"]++
	if slices.ContainsFunc(p.Moves, func(m Move) bool { return m.Kind == MoveReleased }) {
		h.met["released in a namespace that is not allowed"]++
	}
	for _, a := range p.Actions {
		switch a.(type) {
		case CreateCompanion, CreatePlaceholder, CreateCheck, CreateBudget:
			h.fail("%s is in a namespace that is not allowed, and creates %+v", in.Guard.Name, a)
		}
	}
}

// createsElsewhere : nothing is created for a node that the namespace is not limited to.
func (h *history) createsElsewhere(in *Input, p *Plan) {
	teams := map[string]string{}
	for i := range in.Nodes {
		teams[in.Nodes[i].Name] = in.Nodes[i].Labels["team"]
	}
	for _, action := range p.Actions {
		node := ""
		switch a := action.(type) {
		case CreateCompanion:
			node = a.Node
		case CreateCheck:
			node = a.Node
		}
		if node != "" && in.AllowedNodes != nil && teams[node] != "a" {
			h.fail("%s is limited to other nodes, and %+v", in.Guard.Name, action)
		}
	}
}

func (h *history) isReleased(g *v1alpha1.NodeGuard, node string) bool {
	for _, released := range h.status(g).Released {
		if released.Node == node {
			return true
		}
	}
	return false
}

func (h *history) write(writes []func()) {
	for i, w := range writes {
		switch n := h.rng.Intn(100); {
		case h.calm:
			w()
		case n < 6:
			h.say("a write fails")
			h.met["write failed"]++
			return // the pass is repeated
		case n < 9:
			h.say("the manager crashes")
			h.met["manager crashed"]++
			clear(h.memory)
			h.crashed()
			return
		case n < 13:
			h.say("the manager is frozen before %d writes", len(writes)-i)
			h.met["manager frozen"]++
			h.asleep = append(h.asleep, writes[i:]...)
			return
		default:
			w()
		}
		if h.broken != "" {
			return
		}
	}
}

// equalStatus is the comparison of the shell. reflect finds most equal statuses in a fraction of the time.
func equalStatus(a, b *v1alpha1.NodeGuardStatus) bool {
	return reflect.DeepEqual(a, b) || equality.Semantic.DeepEqual(a, b)
}

// writeStatus is an update under the resource version that the plan was made on.
func (h *history) writeStatus(name string, seen *v1alpha1.NodeGuard, limit int, p *Plan) bool {
	live, there := h.guards[name]
	if !there || live.UID != seen.UID || live.ResourceVersion != seen.ResourceVersion {
		h.met["conflict"]++
		return false
	}
	changed := live.DeepCopy()
	changed.Status = *p.Status.DeepCopy()
	changed.ResourceVersion = h.uid()
	h.moved(name, limit, p)
	if h.hostile != nil {
		h.hostile.statuses.Seal(changed, h.now)
	}
	h.wrote(changed)
	h.guards[name] = changed
	return true
}

// do makes a write. A late one is that of a manager that was frozen while another one led. What only protects more does no harm even then.
func (h *history) do(name string, in *Input, a Action, late bool) {
	owner, revision := in.Guard.UID, in.Guard.Labels["revision"]
	h.say("%s: %T %+v (late: %v)", name, a, a, late)
	switch a := a.(type) {
	case CreateCompanion:
		if late {
			h.met["created too late"]++
			return
		}
		h.create(simPod{Pod: Pod{Name: a.Name, Node: a.Node, Owner: owner, Revision: revision}, guard: name, role: "companion"})
	case CreatePlaceholder:
		h.create(simPod{Pod: Pod{Name: a.Name, Owner: owner}, guard: name, role: "placeholder"})
	case CreateCheck:
		h.create(simPod{Pod: Pod{Name: a.Name, Node: a.Node, Owner: owner, RequestedAt: a.RequestedAt}, guard: name, role: "check"})
	case CreateBudget:
		if _, there := h.budgets[BudgetName(name)]; !there && !late {
			b := Budget{Name: BudgetName(name), UID: owner + "-b", ResourceVersion: h.uid(), Owner: owner, BudgetState: a.BudgetState}
			h.budgets[b.Name] = simBudget{Budget: b, guard: name}
		}
	case SetBudget:
		h.setBudget(a, late)
	case DeletePod:
		if p, there := h.pods[a.Pod.Name]; there && p.UID == a.Pod.UID && (!a.Unchanged || p.ResourceVersion == a.Pod.ResourceVersion) {
			h.deleting(name, &p, &a)
			p.Terminating = true
			h.pods[p.Name] = p
		}
	case EndRelease:
		if p, there := h.pods[a.Companion.Name]; there && p.UID == a.Companion.UID {
			h.met["release ended before its companion was deleted"]++
			p.EndedRelease, p.ResourceVersion = a.Release, h.uid()
			h.pods[p.Name] = p
		}
	case DeleteBudget:
		if b, there := h.budgets[a.Budget.Name]; there && b.UID == a.Budget.UID && b.ResourceVersion == a.Budget.ResourceVersion {
			delete(h.budgets, b.Name)
		}
	case RemoveApproval:
		if n, there := h.nodes[a.Node]; there && n.ResourceVersion == a.ResourceVersion {
			n.Approved = a.Approved
			if a.BreakGlass {
				n.BreakGlass = ""
			}
			h.setNode(n)
		}
	}
}

// mayCreate reports whether the budget and the NodeGuard are still those that a pass has observed, if an action creates a companion.
func (h *history) mayCreate(a Action, guard string, in *Input, version string) bool {
	if _, creates := a.(CreateCompanion); !creates {
		return true
	}
	live, there := h.budgets[BudgetName(guard)]
	g := h.guards[guard]
	isLive := func(b Budget) bool {
		return b.Name == live.Name && b.UID == live.UID && b.MinAvailable == live.MinAvailable && b.Drifted == live.Drifted
	}
	return there && g != nil && g.ResourceVersion == version && slices.ContainsFunc(in.Budgets, isLive)
}

// companions is how many there are that can be ready.
func (h *history) companions(guard string) (n int32) {
	for _, p := range h.pods {
		if p.guard == guard && p.role == "companion" && !p.Terminating && !p.ended() {
			n++
		}
	}
	return n
}

func (h *history) setBudget(a SetBudget, late bool) {
	b, there := h.budgets[a.Budget.Name]
	switch {
	case !there || b.ResourceVersion != a.Budget.ResourceVersion:
		h.met["stale write"]++
		return
	case a.MinAvailable < b.MinAvailable && (late || h.companions(b.guard) > a.MinAvailable):
		h.met["lowered too late"]++
		return
	}
	b.BudgetState, b.Drifted, b.ResourceVersion, b.Processed, b.loose = a.BudgetState, false, h.uid(), false, false
	h.budgets[b.Name] = b
}

func (h *history) create(p simPod) {
	switch other, there := h.pods[p.Name]; {
	case h.refuses[p.Node] || tenants[p.guard]:
		h.refused(&p)
		return
	case there:
		if other.role == "stranger" || other.forged ||
			other.Owner != p.Owner { // also an earlier guard of that name, whose pod does not end
			h.taken(&p, &other)
		}
		return
	}
	h.made(&p)
	h.companionOn(&p)
	p.ResourceVersion = h.uid()
	p.UID, p.Created, p.Phase = "p"+p.Owner+"-"+typesUID(h.uid()), h.now, corev1.PodPending
	h.pods[p.Name] = p
}

func (h *history) setNode(n kube.Node) {
	n.ResourceVersion = h.uid()
	h.nodes[n.Name] = n
}

// kubelets and controllers reconcile the objects in the API.
func (h *history) kubelets() {
	for _, name := range sorted(h.pods) {
		if !h.calm && h.chance(60) {
			continue
		}
		p := h.pods[name]
		node, there := h.nodes[p.Node]
		switch {
		case p.Node == "": // it is never scheduled
			if p.Terminating {
				h.happened++
				delete(h.pods, name)
			}
		case !there:
			h.happened++
			delete(h.pods, name) // the pod garbage collector
		case p.Terminating && node.Ready && p.Node == h.evil && h.stubborn:
			h.met["pod never ends"]++
		case p.Terminating && node.Ready:
			h.happened++
			delete(h.pods, name)
		case p.role == "stranger":
		case !node.Ready:
			if p.Ready {
				h.happened++
				p.Ready = false
				h.pods[name] = p
			}
		case p.role == "check" && !p.ended() && !p.forged:
			h.checkRuns(&p)
		case p.role == "companion" && !p.ended() && !p.Terminating && (!p.Ready || p.Phase != corev1.PodRunning):
			h.happened++
			p.Phase, p.Ready = corev1.PodRunning, true
			h.pods[name] = p
		}
	}
	h.daemons()
	h.keepSeats()
	for _, name := range sorted(h.budgets) {
		if h.calm || h.chance(60) {
			h.process(h.budgets[name])
		}
	}
	h.collectGarbage()
}

func (h *history) checkRuns(p *simPod) {
	if p.Phase == corev1.PodPending {
		p.Phase, p.began = corev1.PodRunning, h.now.Add(h.clocks[p.Node])
	}
	switch {
	case p.Node == h.evil && h.stubborn:
		h.met["check never ends"]++
	case h.calm || h.chance(50):
		h.happened++
		p.finished = h.now.Add(h.clocks[p.Node])
		if p.Node == h.evil {
			p.finished = p.finished.Add(time.Duration(h.rng.Intn(3)-1) * 1000 * time.Hour)
		}
		if h.clocks[p.Node] != 0 {
			h.met["skewed check"]++
		}
		if p.Phase, p.ExitCode = corev1.PodSucceeded, 0; !h.gate[p.Node] {
			p.Phase, p.ExitCode = corev1.PodFailed, 1
			h.met["check failed"]++
		} else {
			h.met["check succeeded"]++
		}
	}
	h.pods[p.Name] = *p
}

// daemons simulates the DaemonSet controller and the kubelets of its pods.
func (h *history) daemons() {
	for ds, pods := range h.targets {
		for name, node := range h.nodes {
			pod, there := pods[name]
			selected := node.Labels["storage"] == "yes" && !h.missing[ds]
			switch {
			case there && !selected:
				h.happened++
				delete(pods, name)
			case !there && selected:
				h.happened++
				pods[name] = TargetPod{Node: name}
			case there && pod.Ready != node.Ready && !h.unready[ds+name]:
				h.happened++
				pods[name] = TargetPod{Node: name, Ready: node.Ready}
			}
		}
		for name := range pods {
			if _, there := h.nodes[name]; !there {
				delete(pods, name)
			}
		}
	}
}

func (h *history) collectGarbage() {
	gone := func(guard string, owner any) bool {
		g, there := h.guards[guard]
		return !there || any(g.UID) != owner
	}
	for _, name := range sorted(h.pods) {
		if p := h.pods[name]; !p.Terminating && p.role != "stranger" && gone(p.guard, p.Owner) {
			h.happened++
			p.Terminating = true
			h.pods[name] = p
		}
	}
	for _, name := range sorted(h.budgets) {
		if b := h.budgets[name]; gone(b.guard, b.Owner) {
			h.happened++
			delete(h.budgets, name)
		}
	}
}
