// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
)

// A compromised node, an API server that refuses pods of some nodes, node clocks, and NodeGuards that come and go.

// memory is what the manager remembers for a guard. It is lost when the manager ends.
type memory struct {
	obstacle *hold.Why
	// placeholder is why the placeholder is rejected.
	placeholder *hold.Why
	wait        time.Duration
	refusedAt   map[string]time.Time
	checks      map[string]*hold.Why
	taken       map[string]NameHolder
	takenAt     map[string]time.Time
}

func (h *history) of(guard string) *memory {
	if h.memory[guard] == nil {
		h.memory[guard] = &memory{
			refusedAt: map[string]time.Time{},
			checks:    map[string]*hold.Why{},
			taken:     map[string]NameHolder{},
			takenAt:   map[string]time.Time{},
		}
	}
	return h.memory[guard]
}

// remembered adds the memory to the input of the plan.
func (h *history) remembered(in *Input) {
	m := h.of(in.Guard.Name)
	for name, at := range m.takenAt {
		if _, there := h.pods[name]; !there && h.now.Sub(at) >= 30*time.Second {
			delete(m.taken, name)
			delete(m.takenAt, name)
		}
	}
	in.Obstacle, in.RefusedAt, in.CheckObstacles, in.TakenNames = m.obstacle, m.refusedAt, m.checks, m.taken
	in.NameKey, in.PlaceholderObstacle = "key", m.placeholder
}

// refused records that the API server rejects a pod.
func (h *history) refused(p *simPod) {
	m := h.of(p.guard)
	m.wait = max(min(2*m.wait, 15*time.Second), time.Second)
	o := &hold.Why{Reason: v1alpha1.ReasonPodForbidden, Message: "a policy refuses pods on " + p.Node, Until: h.now.Add(m.wait)}
	switch p.role {
	case "check":
		h.met["check rejected"]++
		m.checks[p.Node] = o
		return
	case "placeholder":
		m.placeholder = o
		return
	}
	h.met["companion rejected"]++
	m.obstacle = o
	m.refusedAt[p.Node] = h.now
}

// made records that the API server accepts a pod.
func (h *history) made(p *simPod) {
	m := h.of(p.guard)
	h.names[p.Name] = true
	if len(m.taken) > 0 {
		h.met["another name"]++
	}
	switch p.role {
	case "check":
		delete(m.checks, p.Node)
		return
	case "placeholder":
		m.placeholder = nil
		return
	}
	if m.obstacle != nil {
		h.met["companion created after a rejection"]++
	}
	m.obstacle, m.wait = nil, 0
	delete(m.refusedAt, p.Node)
}

// taken records that a pod of another owner has the name.
func (h *history) taken(p, by *simPod) {
	m := h.of(p.guard)
	h.met["name taken"]++
	h.wasTaken[p.guard+p.Node] = true
	m.taken[p.Name], m.takenAt[p.Name] = NameHolder{Node: by.Node, For: p.Node}, h.now
}

// timed is a check as it is read from the API: its times are those of its node's clock.
func (p *simPod) timed() Pod {
	pod := &corev1.Pod{Status: corev1.PodStatus{Phase: p.Phase}}
	pod.CreationTimestamp = metav1.NewTime(p.Created)
	if !p.began.IsZero() {
		pod.Status.StartTime = new(metav1.NewTime(p.began))
	}
	if p.ended() {
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(p.finished), ExitCode: p.ExitCode},
		}}}
	}
	view := p.Pod
	view.Ended = ViewPod(pod).Ended
	return view
}

// compromised is an action of a node that an attacker controls: all that NodeRestriction allows a kubelet.
func (h *history) compromised() {
	node, there := h.nodes[h.evil]
	if !there {
		return
	}
	switch h.rng.Intn(8) {
	case 0, 1:
		h.mirrorPod()
	case 2:
		if free := pickFree(h); free != "" {
			h.say("%s takes the name %s", h.evil, free)
			h.pods[free] = simPod{
				Pod:  Pod{Name: free, UID: typesUID(h.uid()), Node: h.evil, Phase: corev1.PodRunning, Ready: true, Created: h.now},
				role: "stranger",
			}
		}
	case 3: // the status of its own pods
		if p, there := h.pods[pick(h, h.pods)]; there && p.Node == h.evil && p.role == "companion" && !p.Terminating {
			p.Ready = !p.Ready
			h.pods[p.Name] = p
		}
	case 4:
		node.Approved = "ns/g1,ns/g2,ns/g3"
		h.setNode(node)
	case 5:
		if h.chance(30) {
			h.met["break-glass of the compromised node"]++
			node.BreakGlass = "let me"
			h.setNode(node)
		}
	case 6:
		node.Unschedulable = !node.Unschedulable
		if node.Unschedulable {
			h.asked[string(node.UID)]++
		}
		h.say("%s cordons itself: %v", h.evil, node.Unschedulable)
		h.setNode(node)
	case 7:
		node.Ready = !node.Ready
		h.say("%s says that it is Ready: %v", h.evil, node.Ready)
		h.setNode(node)
	}
}

// mirrorPod creates a pod with the labels of some node's companion, or deletes one.
func (h *history) mirrorPod() {
	for _, name := range sorted(h.pods) {
		if p := h.pods[name]; p.role == "stranger" && h.chance(20) {
			delete(h.pods, name)
			return
		}
	}
	guard, claims := pick(h, h.guards), pick(h, h.nodes)
	if guard == "" {
		return
	}
	h.met["stranger"]++
	if n := h.nodes[claims]; (n.Unschedulable || len(n.Taints) > 0) && !h.isGoingFor(guard, claims) {
		h.met["stranger under a held node's labels"]++
	}
	name := "static-" + h.uid()
	h.loosen(guard)
	h.say("%s makes %s with the labels of the companion of %s for %s", h.evil, name, guard, claims)
	h.pods[name] = simPod{
		Pod:    Pod{Name: name, UID: typesUID(name), Node: h.evil, Phase: corev1.PodRunning, Ready: h.chance(80), Created: h.now},
		guard:  guard,
		role:   "stranger",
		claims: claims,
	}
}

// pickFree returns the name of a pod that no longer exists.
func pickFree(h *history) string {
	var free []string
	for _, name := range sorted(h.names) {
		if _, there := h.pods[name]; !there {
			free = append(free, name)
		}
	}
	if len(free) == 0 {
		return ""
	}
	return free[h.rng.Intn(len(free))]
}

// comeAndGo simulates users who create a NodeGuard, or delete one on which another tool has a finalizer.
func (h *history) comeAndGo(guard string) {
	if _, there := h.guards["g3"]; !there && h.chance(40) {
		h.met["guard added"]++
		h.addGuard("g3", []string{"a", "b"}[h.rng.Intn(2)])
		return
	}
	g := h.guards[guard]
	if g == nil || !h.chance(20) || !g.DeletionTimestamp.IsZero() {
		return
	}
	g = g.DeepCopy()
	g.DeletionTimestamp, g.Finalizers, g.ResourceVersion = new(metav1.NewTime(h.now)), []string{"example.com/theirs"}, h.uid()
	h.say("%s is deleted, and has a finalizer of another tool", guard)
	h.met["guard with a finalizer"]++
	h.guards[guard] = g
}

// evicted : the API server evicts no ready companion while the budget has what the manager has written. While a node waits, it evicts none,
// regardless of which pods exist. One that is not ready may have been counted as ready before: the API server evicts it until the disruption
// controller has counted again.
func (h *history) evicted(p *simPod) {
	b, there := h.budgets[BudgetName(p.guard)]
	g, living := h.guards[p.guard]
	if p.role == "companion" && !p.forged && there && living && g.UID == b.Owner && p.Phase == corev1.PodRunning && p.Ready &&
		(!b.loose || b.MinAvailable == Locked) && !h.wasReleased(g, p.Node) {
		h.fail("the companion of %s is evicted from %s: %+v", p.guard, p.Node, b)
	}
}

// allGuarded : some time after the last fault each node has its companion and its budget, regardless of what a compromised
// node has created and what the API server rejects for other nodes; and no pod of another owner opens a budget.
func (h *history) allGuarded() {
	for _, name := range sorted(h.guards) {
		g := h.guards[name]
		if h.missing[g.Spec.Target.DaemonSet] || !g.DeletionTimestamp.IsZero() || holdsNothing(name) {
			continue
		}
		all, _ := h.guarded(&h.cluster, g)
		for _, node := range all {
			if h.nodes[node].Ready && !h.refuses[node] && !h.isGoingFor(name, node) && node != h.evil {
				h.isGuarded(g, node)
			}
		}
	}
}

func (h *history) isGuarded(g *v1alpha1.NodeGuard, node string) {
	companions := 0
	for _, name := range sorted(h.pods) {
		p := h.pods[name]
		if p.role != "companion" || p.forged || p.guard != g.Name || p.Node != node || p.Owner != g.UID || p.Terminating {
			continue
		}
		companions++
		if b, there := h.budgets[BudgetName(g.Name)]; there && !b.loose && !h.foreign && h.mayEvict(&p) && !h.wasReleased(g, node) {
			h.fail("the companion of %s on %s can be evicted, and no NodeGuard has released the node", g.Name, node)
		}
	}
	if companions != 1 {
		h.fail("%s has %d companions on %s", g.Name, companions, node)
	}
}

func (h *history) wasReleased(g *v1alpha1.NodeGuard, node string) bool {
	return slices.ContainsFunc(h.status(g).Released, func(o v1alpha1.ReleasedNode) bool { return o.Node == node })
}

// allLeft : a NodeGuard that is being deleted holds nothing, and reports what delays its deletion.
func (h *history) allLeft() {
	for _, name := range sorted(h.guards) {
		g := h.guards[name]
		if g.DeletionTimestamp.IsZero() {
			continue
		}
		for _, b := range h.budgets {
			if b.guard == name {
				h.fail("%s is deleted, and its budget still exists", name)
			}
		}
		for _, p := range h.pods {
			if p.guard == name && p.role != "stranger" && !p.forged && !p.Terminating {
				h.fail("%s is deleted, and %s is not deleted", name, p.Name)
			}
		}
		in, _ := h.view(&h.cluster, name, true)
		p := Next(in)
		c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReconciling)
		if c == nil || c.Status != metav1.ConditionTrue || c.Reason != v1alpha1.ReasonTerminating {
			h.fail("%s is deleted, and its conditions do not say so: %+v", name, p.Status.Conditions)
		} else if want := "example.com/theirs"; !slices.Contains(g.Finalizers, want) || !strings.Contains(c.Message, want) {
			h.fail("%s does not report what delays its deletion: %s", name, c.Message)
		}
	}
}
