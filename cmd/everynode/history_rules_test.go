// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/kube"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/observe"
	"github.com/everynode/everynode/internal/testing/fakeapi"
	"github.com/everynode/everynode/internal/uninstall"
)

const (
	// knows is how long a manager may take to know something and to act on it, with requests that fail.
	knows = 3 * time.Minute

	// joining is how long a node is exempt from budgets that do not include joining nodes (--budget-joining-time).
	joining = 3 * time.Minute
)

// oracle is what the test knows independently of the manager.
type oracle struct {
	// started is when the manager has started; zero if none runs.
	started time.Time
	live    map[types.UID]*corev1.Node
	budgets map[string]budgetFact
	guards  map[string]time.Time
	// seated are the nodes with a seat that must be evicted before they are disrupted.
	seated map[types.UID]bool
	// out are the nodes that were taken away while they were available: out of budgets until their seat is back, and let by a NodeGuard
	// until their companion is back.
	out, released map[types.UID]bool
	// working are the nodes that a tool has emptied, and disrupted the pods of NodeJobs that disrupt the nodes on which they run, by
	// their nodes.
	working   map[types.UID]bool
	disrupted map[types.UID]map[types.UID]bool
	// disrupts has the NodeJobs that disrupt nodes.
	disrupts map[string]bool
	// forgiven are the seats and companions that a user has deleted.
	forgiven map[types.UID]bool
}

// budgetFact is a budget, and since when it is as it is.
type budgetFact struct {
	spec  *v1alpha1.NodeDisruptionBudgetSpec
	since time.Time
}

func newOracle() oracle {
	return oracle{
		live:      map[types.UID]*corev1.Node{},
		budgets:   map[string]budgetFact{},
		guards:    map[string]time.Time{},
		seated:    map[types.UID]bool{},
		out:       map[types.UID]bool{},
		released:  map[types.UID]bool{},
		working:   map[types.UID]bool{},
		forgiven:  map[types.UID]bool{},
		disrupted: map[types.UID]map[types.UID]bool{},
		disrupts:  map[string]bool{},
	}
}

func (h *history) forgive(pod *corev1.Pod) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.forgiven[pod.UID] = true
}

func (h *history) setWorking(node *corev1.Node, is bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.working[node.UID] = is
}

// check checks the rules after each change. Its caller has locked the server, but not the history.
func (h *history) check(before, after client.Object) {
	var broken string
	h.mu.Lock()
	switch o := before.(type) {
	case *corev1.Node:
		if after == nil {
			h.forget(o.UID)
		}
	case *v1alpha1.NodeDisruptionBudget:
		if after == nil {
			delete(h.budgets, o.Name)
		}
	case *v1alpha1.NodeGuard:
		if after == nil {
			delete(h.guards, o.Name)
		}
	}
	switch o := after.(type) {
	case *corev1.Node:
		h.live[o.UID] = o
	case *v1alpha1.NodeDisruptionBudget:
		if was, known := before.(*v1alpha1.NodeDisruptionBudget); !known || !equality.Semantic.DeepEqual(was.Spec, o.Spec) {
			h.budgets[o.Name] = budgetFact{&o.Spec, time.Now()}
		}
	case *v1alpha1.NodeJob:
		h.disrupts[o.Name] = plan.Disrupts(o)
	case *v1alpha1.NodeGuard:
		if before == nil {
			h.guards[o.Name] = time.Now()
		}
	case *corev1.Pod:
		was, _ := before.(*corev1.Pod)
		broken = h.checkPod(was, o)
	}
	h.mu.Unlock()
	if broken != "" {
		h.breaks("%s", broken)
	}
}

func (h *history) forget(node types.UID) {
	for _, of := range []map[types.UID]bool{h.seated, h.out, h.released, h.working} {
		delete(of, node)
	}
	delete(h.live, node)
	delete(h.disrupted, node)
}

// nodeOf returns the node with a name; nil if it does not exist.
func (h *history) nodeOf(pod *corev1.Pod) *corev1.Node {
	for _, node := range h.live {
		if node.Name == pod.Spec.NodeName {
			return node
		}
	}
	return nil
}

func (h *history) checkPod(before, after *corev1.Pod) (broken string) {
	node := h.nodeOf(after)
	if node == nil {
		return ""
	}
	goes := before != nil && before.DeletionTimestamp == nil && after.DeletionTimestamp != nil && fakeapi.PodReady(before) &&
		!h.forgiven[after.UID]
	switch {
	case after.Namespace == uninstall.Namespace && after.Labels[v1alpha1.BudgetGroupLabel] != "":
		h.seated[node.UID] = after.Labels[v1alpha1.BudgetGroupLabel] != pendingGroup && after.DeletionTimestamp == nil &&
			fakeapi.PodReady(after)
		if goes && after.Labels[v1alpha1.BudgetGroupLabel] != pendingGroup && fakeapi.Ready(node) {
			return h.takes(node)
		}
		if before != nil && before.Labels[v1alpha1.BudgetGroupLabel] == pendingGroup &&
			after.Labels[v1alpha1.BudgetGroupLabel] != pendingGroup {
			return h.returns(node)
		}
	case after.Labels[v1alpha1.GuardRoleLabel] == v1alpha1.GuardRoleCompanion:
		if goes && fakeapi.Ready(node) {
			return h.releases(node)
		}
		if fakeapi.PodReady(after) && after.DeletionTimestamp == nil {
			delete(h.released, node.UID)
		}
	case after.Labels[v1alpha1.PhaseLabel] != "":
		return h.disrupt(node, before, after)
	}
	return ""
}

// evicting is called before the manager evicts a pod. Its caller has locked the server. A drain of a NodeJob would wait for ever if it
// evicted the check that decides whether the node may go.
func (h *history) evicting(pod *corev1.Pod) {
	if pod.Labels[v1alpha1.GuardRoleLabel] == v1alpha1.GuardRoleCheck {
		h.breaks("the manager evicts %s, the check of a NodeGuard", pod.Name)
	}
}

// disrupt notes whether the pod of a NodeJob disrupts its node: from its creation until it has ended or is told to end. The NodeJob must
// have evicted the seat of the node before.
func (h *history) disrupt(node *corev1.Node, before, after *corev1.Pod) (broken string) {
	pods := h.disrupted[node.UID]
	switch {
	case before == nil && h.disrupts[after.Labels[v1alpha1.NodeJobLabel]] && observe.Pod(after).Runs != task.Rollback:
		if pods == nil {
			pods = map[types.UID]bool{}
			h.disrupted[node.UID] = pods
		}
		pods[after.UID] = true
		for name, b := range h.budgets {
			if h.seated[node.UID] && fakeapi.Ready(node) && h.isKnown(b.since) && isSubject(b.spec, node) {
				return "a NodeJob disrupts " + node.Name + ", which has its seat, and budget " + name + " limits it"
			}
		}
	case after.DeletionTimestamp != nil || kube.PodEnded(after.Status.Phase):
		delete(pods, after.UID)
	}
	return ""
}

const pendingGroup = "pending"

// isKnown reports whether a manager knows what has been so since a time.
func (h *history) isKnown(since time.Time) bool {
	until := time.Now().Add(-knows)
	return !h.started.IsZero() && h.started.Before(until) && since.Before(until)
}

// takes is called when an available node loses its seat.
func (h *history) takes(node *corev1.Node) (broken string) {
	for name, b := range h.budgets {
		if !h.isKnown(b.since) || !isSubject(b.spec, node) {
			continue
		}
		if since := closedSince(b.spec); !since.IsZero() && h.isKnown(since) {
			return node.Name + " is taken away, and budget " + name + " is closed since " + since.Format("15:04:05")
		}
		for _, limit := range b.spec.Limits {
			others := 0
			for uid := range h.out {
				other := h.live[uid]
				if other != nil && uid != node.UID && isSubject(b.spec, other) &&
					(limit.TopologyKey == "" || other.Labels[zoneLabel] == node.Labels[zoneLabel]) {
					others++
				}
			}
			if others+1 > limit.MaxUnavailable.IntValue() {
				return node.Name + " is taken away beside others, and budget " + name + " allows " + limit.MaxUnavailable.String()
			}
		}
	}
	h.out[node.UID] = true
	return ""
}

// returns is called when a node gets its seat back.
func (h *history) returns(node *corev1.Node) (broken string) {
	delete(h.out, node.UID)
	if h.working[node.UID] || len(h.disrupted[node.UID]) > 0 {
		return node.Name + " gets its seat back, and a tool or a NodeJob disrupts it"
	}
	return ""
}

// releases is called when an available node loses its companion.
func (h *history) releases(node *corev1.Node) (broken string) {
	since, there := h.guards["guard"]
	if !there {
		return "" // it was deleted
	}
	for uid := range h.released {
		if other := h.live[uid]; other != nil && uid != node.UID && h.isKnown(since) {
			return node.Name + " is released beside " + other.Name
		}
	}
	h.released[node.UID] = true
	return ""
}

// isSubject reports whether a manager knows that a budget counts a node.
func isSubject(b *v1alpha1.NodeDisruptionBudgetSpec, node *corev1.Node) bool {
	known := node.CreationTimestamp.Add(knows)
	if b.JoiningNodes != v1alpha1.JoiningNodesIncluded {
		known = known.Add(joining)
	}
	return time.Now().After(known)
}

// closedSince is since when a budget allows nothing; zero if it allows something. Windows open at each half hour.
func closedSince(b *v1alpha1.NodeDisruptionBudgetSpec) time.Time {
	if b.Limits[0].MaxUnavailable.IntValue() == 0 {
		return time.Unix(1, 0)
	}
	if closes := time.Now().Truncate(30 * time.Minute).Add(windowSeconds * time.Second); len(b.Windows) > 0 && time.Now().After(closes) {
		return closes
	}
	return time.Time{}
}
