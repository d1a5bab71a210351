// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"fmt"
	"math/rand"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/kube"
)

// hostile is a user with all rights in namespaces and none in the cluster. It writes any status, and any pod and budget with
// the labels, annotations and owner references of ours, and creates NodeGuards for all nodes in a namespace that is not
// allowed. It has its own dice, so that it changes no history without it.
type hostile struct {
	rng *rand.Rand
	// written are the statuses that the manager has written, by NodeGuard: the user can restore each of them.
	written map[types.UID][]v1alpha1.NodeGuardStatus
	// overwritten are the last statuses of the manager that a new manager may not find, or still see in an old view, until it
	// writes the next one.
	overwritten map[types.UID]v1alpha1.NodeGuardStatus
	// statuses are what the manager knows, and opened the objects that it has read: to check a seal takes time.
	statuses Statuses
	opened   map[*v1alpha1.NodeGuard]openedGuard
}

// openedGuard is a NodeGuard as the manager reads it while it knows the write of a number as the newest.
type openedGuard struct {
	guard  *v1alpha1.NodeGuard
	newest int64
}

// closed are the NodeGuards in the namespace that was never allowed.
var closed = map[string]bool{"x1": true, "x2": true}

func (h *history) addHostile(s int64) {
	if rng := rand.New(rand.NewSource(^s)); rng.Intn(4) == 0 {
		h.hostile = &hostile{
			rng:         rng,
			written:     map[types.UID][]v1alpha1.NodeGuardStatus{},
			overwritten: map[types.UID]v1alpha1.NodeGuardStatus{},
			opened:      map[*v1alpha1.NodeGuard]openedGuard{},
		}
	}
}

// choose returns one of the keys by the dice of the user; "" if there is none.
func choose[V any](h *history, m map[string]V) string {
	keys := sorted(m)
	if len(keys) == 0 {
		return ""
	}
	return keys[h.hostile.rng.Intn(len(keys))]
}

// attack is one action of the user.
func (h *history) attack() {
	if h.hostile == nil || h.hostile.rng.Intn(100) >= 15 {
		return
	}
	switch guard, node := choose(h, h.guards), choose(h, h.nodes); h.hostile.rng.Intn(8) {
	case 0, 1, 2:
		h.forgeStatus(guard, node)
	case 3, 4:
		h.forgePod(guard, node)
	case 5:
		h.changePod()
	case 6:
		h.changeBudget(guard, node)
	case 7:
		h.addClosed([]string{"x1", "x2"}[h.hostile.rng.Intn(2)])
	}
}

// forgeStatus writes a status of a NodeGuard.
func (h *history) forgeStatus(guard, node string) {
	g := h.guards[guard]
	if g == nil || node == "" {
		return
	}
	g = g.DeepCopy()
	g.ResourceVersion = h.uid()
	entry := v1alpha1.ReleasedNode{
		Node:        node,
		UID:         h.nodes[node].UID,
		Since:       metav1.NewTime(h.now),
		RequestedAt: metav1.NewTime(h.now),
		Reason:      v1alpha1.ReasonConditionMet,
	}
	what := []string{"a release", "a break-glass release", "a node that returns", "nothing", "an earlier status", "a status of another NodeGuard"}[h.hostile.rng.Intn(6)]
	earlier := h.hostile.written[g.UID]
	switch what {
	case "a break-glass release":
		entry.Reason, entry.Message = v1alpha1.ReasonBreakGlass, "let me"
	case "a node that returns":
		entry.Returning = true
	case "nothing":
		g.Status = v1alpha1.NodeGuardStatus{}
	case "an earlier status":
		if len(earlier) > 0 {
			g.Status = *earlier[h.hostile.rng.Intn(len(earlier))].DeepCopy()
		}
	case "a status of another NodeGuard":
		g.Status = *h.guards[choose(h, h.guards)].Status.DeepCopy()
	}
	if what == "a release" || what == "a break-glass release" || what == "a node that returns" {
		g.Status.Released = append(
			slices.DeleteFunc(g.Status.Released, func(o v1alpha1.ReleasedNode) bool { return o.Node == node }),
			entry,
		)
	}
	h.say("a hostile user writes %s into the status of %s: %s", what, guard, node)
	h.met["forged: "+what]++
	h.guards[guard] = g
	if o := h.opened(g); o.Status.ControllerState.Seal != "" && o.Status.ControllerState.Writes != h.status(g).ControllerState.Writes {
		h.lost(o) // a manager that began after the status was overwritten accepts an earlier one
	}
}

// forgePod creates a pod with the metadata of a companion, or of a check that has succeeded.
func (h *history) forgePod(guard, node string) {
	g := h.guards[guard]
	if g == nil || node == "" {
		return
	}
	name := "forged-" + h.uid()
	if taken := sorted(h.names); len(taken) > 0 && h.hostile.rng.Intn(3) == 0 {
		name = taken[h.hostile.rng.Intn(len(taken))]
	}
	if _, there := h.pods[name]; there {
		return
	}
	p := simPod{
		Pod: Pod{
			Name:     name,
			UID:      typesUID(name + h.uid()),
			Node:     node,
			Owner:    g.UID,
			Revision: g.Labels["revision"],
			Created:  h.now,
			Phase:    corev1.PodRunning,
			Ready:    true,
		},
		guard:  guard,
		role:   "companion",
		forged: true,
	}
	if b, there := h.budgets[BudgetName(guard)]; there && h.hostile.rng.Intn(2) == 0 {
		p.role, p.Phase, p.Ready, p.RequestedAt = "check", corev1.PodSucceeded, false, token(b.RequestedAt[NodeID(node)])
		p.began, p.finished = h.now, h.now
	}
	h.say("a hostile user creates %s, a %s of %s for %s", name, p.role, guard, node)
	h.loosen(guard)
	h.met["forged "+p.role]++
	h.pods[name] = p
}

// changePod changes metadata of a pod, or deletes it.
func (h *history) changePod() {
	p, there := h.pods[choose(h, h.pods)]
	if !there || p.role == "stranger" || p.Terminating {
		return
	}
	if h.hostile.rng.Intn(2) == 0 {
		h.say("a hostile user deletes %s", p.Name)
		p.Terminating = true
	} else {
		h.say("a hostile user changes annotations of %s", p.Name)
		h.met["pod changed"]++
		p.forged, p.Revision = true, "theirs"
		h.loosen(p.guard)
	}
	h.pods[p.Name] = p
}

// loosen notes that a budget may count pods that Everynode has not created.
func (h *history) loosen(guard string) {
	if b, there := h.budgets[BudgetName(guard)]; there {
		b.loose = true
		h.budgets[b.Name] = b
	}
}

// changeBudget opens or deletes a budget: who may do so in a namespace gives up what its own NodeGuards hold. Or it creates
// one for a NodeGuard in the namespace that is not allowed.
func (h *history) changeBudget(guard, node string) {
	if g := h.guards[guard]; closed[guard] && node != "" {
		name := BudgetName(guard)
		h.budgets[name] = simBudget{
			Budget: Budget{
				Name: name, UID: typesUID(h.uid()), ResourceVersion: h.uid(), Owner: g.UID, BudgetState: BudgetState{MinAvailable: Locked},
			},
			guard: guard, loose: true,
		}
		h.met["forged budget"]++
		return
	}
	b, there := h.budgets[choose(h, h.budgets)]
	switch {
	case !there:
	case h.hostile.rng.Intn(2) == 0:
		h.say("a hostile user deletes budget %s", b.Name)
		delete(h.budgets, b.Name)
	default:
		h.say("a hostile user opens budget %s", b.Name)
		b.MinAvailable, b.loose, b.Processed, b.ResourceVersion = 0, true, false, h.uid()
		h.budgets[b.Name] = b
	}
}

// addClosed creates a NodeGuard for all nodes in the namespace that is not allowed.
func (h *history) addClosed(name string) {
	if h.guards[name] != nil {
		return
	}
	g := &v1alpha1.NodeGuard{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       "ns",
			Name:            name,
			UID:             typesUID(h.uid()),
			ResourceVersion: h.uid(),
			Generation:      1,
			Labels:          map[string]string{"revision": "r0"},
		},
	}
	g.Spec.Target.DaemonSet = []string{"a", "b"}[h.hostile.rng.Intn(2)]
	g.Spec.Release.Approval = v1alpha1.ApprovalRequired
	h.say("a hostile user creates %s in a namespace that is not allowed", name)
	h.met["guard in a namespace that was never allowed"]++
	h.guards[name], h.barred[name] = g, true
}

// removeForged : any user can make the drain of a node wait by a pod and a budget of its own. An administrator removes them.
func (h *history) removeForged() {
	for name, p := range h.pods {
		if p.forged || p.role == "stranger" && tenants[p.guard] {
			delete(h.pods, name)
		}
	}
	for name, b := range h.budgets {
		if closed[b.guard] {
			delete(h.budgets, name)
		}
	}
}

// tenants are the NodeGuards of a user who may create NodeGuards, and no pods.
var tenants = map[string]bool{"t1": true, "t2": true, "t3": true}

// addTenant has the user create them for all nodes, in some histories. They never release anything.
func (h *history) addTenant() {
	if h.serial%5 != 0 {
		return
	}
	h.met["guards without pods"]++
	for _, name := range sorted(tenants) {
		h.addGuard(name, "a")
		h.guards[name].Spec.MaxUnavailable = nil
		h.guards[name].Spec.Release = v1alpha1.ReleaseSpec{Approval: v1alpha1.ApprovalRequired}
	}
}

// holdsNothing reports whether a guard can never have a companion, so that nothing may wait for it.
func holdsNothing(guard string) bool { return closed[guard] || tenants[guard] }

// keepClosed : no user of the histories can allow that namespace.
func (h *history) keepClosed() {
	for name := range closed {
		if h.guards[name] != nil {
			h.barred[name] = true
		}
	}
}

// status is what the manager has written last for a NodeGuard, whatever the API shows.
func (h *history) status(g *v1alpha1.NodeGuard) *v1alpha1.NodeGuardStatus {
	if h.hostile == nil {
		return &g.Status
	}
	if written := h.hostile.written[g.UID]; len(written) > 0 {
		return &written[len(written)-1]
	}
	return &v1alpha1.NodeGuardStatus{}
}

// opened is a NodeGuard as the manager reads it. Only in histories with a hostile user, statuses are sealed: it takes time.
func (h *history) opened(g *v1alpha1.NodeGuard) *v1alpha1.NodeGuard {
	if h.hostile == nil {
		return g
	}
	statuses := &h.hostile.statuses
	if before, there := h.hostile.opened[g]; there && before.newest == statuses.newest[g.UID].ControllerState.Writes {
		return before.guard
	}
	opened := g.DeepCopy()
	statuses.Open(opened)
	h.hostile.opened[g] = openedGuard{opened, statuses.newest[g.UID].ControllerState.Writes}
	// A manager that began after the status was overwritten learns of a later one again, if its view is older than that.
	written := h.hostile.written[g.UID]
	if state := opened.Status.ControllerState; state.Seal != "" &&
		(len(written) == 0 || state.Writes > written[len(written)-1].ControllerState.Writes) {
		h.hostile.written[g.UID] = append(written, opened.Status)
	}
	return opened
}

// mayKnowRelease reports whether a manager that began after the status was overwritten may still know of a release.
func (h *history) mayKnowRelease(g *v1alpha1.NodeGuard, node kube.Node) bool {
	return h.hostile != nil &&
		slices.ContainsFunc(h.hostile.overwritten[g.UID].Released, func(o v1alpha1.ReleasedNode) bool { return o.UID == node.UID })
}

func (h *history) unsealed(g *v1alpha1.NodeGuard) bool {
	return h.hostile != nil && g.Status.ControllerState.Seal == ""
}

// crashed : a manager that begins knows only what the API shows. It forgets releases whose status was overwritten.
func (h *history) crashed() {
	if h.hostile == nil {
		return
	}
	h.hostile.statuses = Statuses{}
	for _, name := range sorted(h.guards) {
		if g := h.opened(h.guards[name]); g.Status.ControllerState.Writes != h.status(g).ControllerState.Writes {
			h.lost(g)
		}
	}
}

// lost : the manager does not know its last status any more, but this one.
func (h *history) lost(g *v1alpha1.NodeGuard) {
	h.met["status lost"]++
	h.asleep = nil // a frozen manager would still delete the companion of a release that only it knows
	h.hostile.overwritten[g.UID] = *h.status(g)
	h.hostile.written[g.UID] = append(h.hostile.written[g.UID], g.Status)
	for _, node := range h.nodes {
		h.unguardedOnce[fmt.Sprint(g.UID, node.UID, h.asked[string(node.UID)], g.Spec.Target.DaemonSet)] = true
	}
	h.loosen(g.Name)
}

// wrote notes a status that the manager has written.
func (h *history) wrote(g *v1alpha1.NodeGuard) {
	if h.hostile != nil {
		delete(h.hostile.overwritten, g.UID)
		h.opened(g)
	}
}

// allowedTo : the manager does nothing for a NodeGuard in a namespace that was never allowed, and releases a node without its
// conditions only if the node says so.
func (h *history) allowedTo(name string, p *Plan) {
	// An object that was deleted is cleaned up, also if the hostile user has created its budgets.
	cleansUp := !slices.ContainsFunc(p.Actions, func(a Action) bool {
		switch a.(type) {
		case DeleteBudget, DeletePod:
			return false
		}
		return true
	})
	if closed[name] && h.guards[name].DeletionTimestamp.IsZero() && (!cleansUp || len(p.Moves) > 0) {
		h.fail("%s is in a namespace that was never allowed, and its plan is %+v %+v", name, p.Moves, p.Actions)
	}
	for _, m := range p.Moves {
		if m.Kind == MoveReleased && m.Reason == v1alpha1.ReasonBreakGlass && h.nodes[m.Node].BreakGlass == "" {
			h.fail("%s releases %s by break-glass, and the node does not have the annotation", name, m.Node)
		}
	}
}
