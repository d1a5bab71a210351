// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
)

const (
	// maxHeld limits the length of status.held.
	maxHeld = 10
	// maxNames limits how many nodes a message names.
	maxNames = 3
	// takenAgain is when to check again whether a name is still taken. The pod may have no label that is watched.
	takenAgain = 30 * time.Second
)

// summarize sets the status.
func (s *planner) summarize() {
	st := s.in.Guard.Status.DeepCopy()
	st.ObservedGeneration = s.in.Guard.Generation
	st.Revision = s.in.Revision
	st.NameSalt = cmp.Or(st.NameSalt, s.in.NewSalt)
	st.Nodes = v1alpha1.GuardCounts{Guarded: int32(len(s.nodes)), Released: int32(len(s.released))}
	for _, w := range s.nodes {
		s.count(&st.Nodes, w)
		s.plan.Nodes = append(s.plan.Nodes, s.explain(w))
	}
	st.Held = s.heldList()
	st.Released = slices.SortedFunc(maps.Values(s.released), func(a, b v1alpha1.ReleasedNode) int {
		return cmp.Or(a.Since.Compare(b.Since.Time), strings.Compare(a.Node, b.Node))
	})
	if len(st.Released) == 0 {
		st.Released = nil
	}
	if len(s.in.TakenNames) > 0 {
		s.plan.wake(s.in.Now.Add(takenAgain))
	}
	s.conditions(st)
	s.plan.Status = *st
}

func (s *planner) count(n *v1alpha1.GuardCounts, w *nodePlan) {
	if isReady(w.companion) {
		n.Ready++
	}
	if w.companion != nil && w.companion.Revision == s.in.Revision && !w.companion.Terminating {
		n.Updated++
	}
	if w.held != nil {
		n.Held++
	}
	if w.isUnavailable() {
		n.Unavailable++
	}
}

func (s *planner) explain(w *nodePlan) NodeState {
	state := NodeState{Name: w.Name, State: Guarded, Unavailable: w.isUnavailable(), Reason: v1alpha1.ReasonCompanionsReady, Message: "it has no release request"}
	switch g, released := s.released[w.Name]; {
	case released && w.held == nil && (w.released || w.releasing):
		state.State, state.Reason, state.Message = Released, g.Reason, "it is released, and not available again yet"
	case w.held != nil:
		state.State, state.Reason, state.Message = Held, w.held.reason, w.held.message
	}
	return state
}

func (s *planner) heldList() []v1alpha1.HeldNode {
	queue, _ := s.queue()
	var held []v1alpha1.HeldNode
	for _, w := range queue {
		if w.held == nil || len(held) == maxHeld {
			continue
		}
		h := v1alpha1.HeldNode{
			Node: w.Name, RequestedAt: metav1.NewTime(w.requestedAt), RequestedBy: w.requestedBy,
			Reason: w.held.reason, Message: w.held.message, ReleasedWhen: w.held.release, DeadlinePassed: w.held.late,
		}
		h.RequestedAt = h.RequestedAt.Rfc3339Copy()
		if deadline := s.deadline(w); !deadline.IsZero() {
			h.Deadline = metav1.NewTime(deadline)
			h.Deadline = h.Deadline.Rfc3339Copy()
		}
		held = append(held, h)
	}
	return held
}

// Sentence describes a held node in one sentence. Events and the command line use the same text.
func Sentence(guard string, h *v1alpha1.HeldNode) string {
	return fmt.Sprintf("NodeGuard %s holds node %s (%s): %s; released when: %s", guard, h.Node, h.RequestedBy, h.Message, h.ReleasedWhen)
}

// conditions sets Ready, Reconciling and Stalled, of which exactly one is True.
func (s *planner) conditions(st *v1alpha1.NodeGuardStatus) {
	kind, reason, message := s.readyCondition()
	s.conditionsAs(st, kind, reason, message)
}

// conditionsAs sets one of the conditions to True.
func (s *planner) conditionsAs(st *v1alpha1.NodeGuardStatus, kind, reason, message string) {
	for _, c := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled} {
		status := metav1.ConditionFalse
		if c == kind {
			status = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&st.Conditions, metav1.Condition{
			Type: c, Status: status, Reason: reason, Message: message,
			ObservedGeneration: s.in.Guard.Generation, LastTransitionTime: metav1.NewTime(s.in.Now),
		})
	}
}

// readyCondition returns which of the conditions is True, and why.
func (s *planner) readyCondition() (kind, reason, message string) {
	switch target := s.in.Target; {
	case target.Invalid != "":
		return v1alpha1.ConditionStalled, v1alpha1.ReasonInvalidPodSelector, "spec.target.podSelector cannot be used: " + bounded(target.Invalid)
	case target.Missing:
		return v1alpha1.ConditionStalled, v1alpha1.ReasonTargetNotFound,
			target.Name + " does not exist in this namespace: make it, or correct spec.target.daemonSet; nodes that are guarded stay so"
	case s.in.Obstacle != nil:
		return v1alpha1.ConditionStalled, s.in.Obstacle.Reason, s.in.Obstacle.Message
	case s.blocked != "":
		return v1alpha1.ConditionStalled, v1alpha1.ReasonOverlappingBudget, fmt.Sprintf(
			"PodDisruptionBudget %s selects the companions as well, and Kubernetes evicts no pod that has two: have it select other pods, or give spec.template other labels", s.blocked)
	case s.in.BudgetRefused != "" && slices.ContainsFunc(s.nodes, func(w *nodePlan) bool { return w.budget == nil }):
		return v1alpha1.ConditionStalled, v1alpha1.ReasonBudgetForbidden, s.in.BudgetRefused
	case len(s.nodes) == 0:
		return v1alpha1.ConditionReady, v1alpha1.ReasonNoGuardedNodes, "no node has a pod of " + target.Name + ", or should have one"
	}
	return s.nodesCondition()
}

// nodesCondition returns the condition that depends on how each node is guarded.
func (s *planner) nodesCondition() (kind, reason, message string) {
	if kinds := s.evicted(); kinds != "" {
		return v1alpha1.ConditionStalled, v1alpha1.ReasonTargetNotDaemonSet, fmt.Sprintf(
			"a drain evicts pods of the target itself, whatever is held here, since no DaemonSet owns them (%s): select pods of a DaemonSet, or protect these by a PodDisruptionBudget", kinds)
	}
	if names, taint := s.untoleratedNodes(); names != "" {
		return v1alpha1.ConditionStalled, v1alpha1.ReasonUntoleratedTaint, fmt.Sprintf(
			"the companion does not tolerate taint %s of %s, which are not guarded: add it to spec.template.spec.tolerations", taint, names)
	}
	if s.foreignPodsMessage() != "" {
		return v1alpha1.ConditionStalled, v1alpha1.ReasonForeignCompanion, s.foreignPodsMessage()
	}
	if s.takers() != "" {
		return v1alpha1.ConditionStalled, v1alpha1.ReasonNameTaken, s.takers()
	}
	if names := s.lacking(); names != "" {
		return v1alpha1.ConditionReconciling, v1alpha1.ReasonCompanionsNotReady, "companions that are not ready and up to date: " + names
	}
	return v1alpha1.ConditionReady, v1alpha1.ReasonCompanionsReady, "each guarded node has a ready companion" + s.peersMessage()
}

// foreignPodsMessage names pods of other owners that have the labels of companions, and says what to do; "" if there
// are none.
func (s *planner) foreignPodsMessage() string {
	var found []string
	for _, pod := range s.in.ForeignPods {
		found = append(found, podOnNode(pod.Name, pod.Node))
	}
	if len(found) == 0 {
		return ""
	}
	slices.Sort(found)
	return fmt.Sprintf("pods that Everynode did not create have the labels of companions: %s. The budgets of the nodes that they name stay locked, so they release nothing. %s",
		listed(found), s.remove(s.in.ForeignPods[0].Name))
}

// takers names pods of other owners that have the names of companions and checks, and says what to do; "" if there are
// none.
func (s *planner) takers() string {
	if len(s.in.TakenNames) == 0 {
		return ""
	}
	names := slices.Sorted(maps.Keys(s.in.TakenNames))
	var found []string
	for _, name := range names {
		taker := s.in.TakenNames[name]
		found = append(found, fmt.Sprintf("%s (needed for a pod of node %s)", podOnNode(name, taker.Node), taker.For))
	}
	return fmt.Sprintf("pods that Everynode did not create have names that it needs: %s. Everynode uses other names. %s", listed(found), s.remove(names[0]))
}

func podOnNode(pod, node string) string {
	if node == "" {
		return pod
	}
	return pod + " on node " + node
}

// remove says how to delete a pod that may be a static pod or another pod of a kubelet.
func (s *planner) remove(pod string) string {
	return fmt.Sprintf("Find out who creates them: if it is a kubelet, its node is misconfigured or compromised (remove the static pod from the node). Then: kubectl -n %s delete pod %s",
		s.in.Guard.Namespace, pod)
}

// peersMessage names the other NodeGuards of the same target.
func (s *planner) peersMessage() string {
	var names []string
	for _, p := range s.in.Peers {
		if p.SameTarget && len(names) < maxNames {
			names = append(names, p.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "; NodeGuard " + strings.Join(names, ", ") + " has the same target; a node can be drained when all of them have released it"
}

// untoleratedNodes names nodes with taints that no companion tolerates, and returns the first such taint.
func (s *planner) untoleratedNodes() (names, taint string) {
	var found []string
	for _, w := range s.nodes {
		if t := s.untoleratedTaint(w); t != nil && w.companion == nil && w.Ready && !w.released {
			if taint == "" {
				taint = t.Key
			}
			found = append(found, w.Name)
		}
	}
	return listed(found), taint
}

// evicted returns the kinds of the target's owners whose pods are evicted in a drain: all except DaemonSets and static
// pods.
func (s *planner) evicted() string {
	if s.in.Target.Template != nil {
		return ""
	}
	kinds := map[string]bool{}
	for _, pod := range s.in.Target.Pods {
		switch pod.OwnerKind {
		case "DaemonSet", "Node":
		case "":
			kinds["no owner"] = true
		default:
			kinds[pod.OwnerKind] = true
		}
	}
	return listed(slices.Sorted(maps.Keys(kinds)))
}

// lacking names nodes without a budget, or without a companion that is ready and up to date, except nodes where no
// companion can run.
func (s *planner) lacking() string {
	var found []string
	for _, w := range s.nodes {
		current := isReady(w.companion) && w.companion.Revision == s.in.Revision
		name := w.Name
		switch {
		case w.releasing || w.active():
			continue
		case w.budget == nil:
			name += " (no PodDisruptionBudget)"
		case current || !w.Ready:
			continue
		case w.companion != nil && w.companion.Waiting != "":
			name += " (" + bounded(w.companion.Waiting) + ")"
		}
		found = append(found, name)
	}
	return listed(found)
}

func listed(names []string) string {
	if more := len(names) - maxNames; more > 0 {
		return strings.Join(names[:maxNames], ", ") + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(names, ", ")
}
