// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
)

// condition is which of the conditions is True, and why.
type condition struct{ kind, reason, message string }

// setCondition sets Ready, Reconciling and Stalled, of which exactly one is True.
func setCondition(in *Input, st *v1alpha1.NodeGuardStatus, is condition) {
	for _, kind := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled} {
		status := metav1.ConditionFalse
		if kind == is.kind {
			status = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&st.Conditions, metav1.Condition{
			Type: kind, Status: status, Reason: is.reason, Message: is.message,
			ObservedGeneration: in.Guard.Generation, LastTransitionTime: metav1.NewTime(in.Now),
		})
	}
}

// conditionRules are all conditions. The first that applies is True, so those that explain others come first. The last
// one always applies.
var conditionRules = []func(*summary) *condition{
	(*summary).namespaceNotAllowed,
	(*summary).targetNotUsable,
	(*summary).companionsRejected,
	(*summary).budgetsOverlap,
	(*summary).budgetsRejected,
	(*summary).noGuardedNodes,
	(*summary).targetEvicted,
	(*summary).taintNotTolerated,
	(*summary).foreignCompanions,
	(*summary).namesTaken,
	(*summary).companionsNotReady,
	(*summary).nodesHeld,
	(*summary).companionsReady,
}

// condition returns which of the conditions is True, and why.
func (s *summary) condition() condition {
	for _, rule := range conditionRules {
		if c := rule(s); c != nil {
			return *c
		}
	}
	return condition{}
}

func stalled(reason, message string) *condition {
	return &condition{v1alpha1.ConditionStalled, reason, message}
}

func (s *summary) namespaceNotAllowed() *condition {
	if o := s.in.NotAllowed; o != nil {
		return stalled(o.Reason, o.Message)
	}
	return nil
}

func (s *summary) targetNotUsable() *condition {
	switch target := &s.in.Target; {
	case target.Invalid != "":
		return stalled(v1alpha1.ReasonInvalidPodSelector, "spec.target.podSelector cannot be used: "+bounded(target.Invalid))
	case target.Missing:
		return stalled(v1alpha1.ReasonTargetNotFound,
			target.Name+" does not exist in this namespace: make it, or correct spec.target.daemonSet; nodes that are guarded stay so")
	}
	return nil
}

// companionsRejected : what was rejected may no longer be needed, because the node has its companion, or has gone.
func (s *summary) companionsRejected() *condition {
	if o := s.in.Obstacle; o != nil && s.withoutCompanion {
		return stalled(o.Reason, o.Message)
	}
	return nil
}

func (s *summary) budgetsOverlap() *condition {
	if s.overlapping == "" {
		return nil
	}
	return stalled(v1alpha1.ReasonOverlappingBudget, fmt.Sprintf(
		"PodDisruptionBudget %s selects the companions as well, and Kubernetes evicts no pod that has two: have it select other pods, or give spec.template other labels", s.overlapping))
}

func (s *summary) budgetsRejected() *condition {
	if s.in.BudgetRefused == "" || s.budget != nil {
		return nil
	}
	return stalled(v1alpha1.ReasonBudgetForbidden, s.in.BudgetRefused)
}

func (s *summary) noGuardedNodes() *condition {
	if s.counts.Total > 0 {
		return nil
	}
	message := "no node has a pod of " + s.in.Target.Name + ", or should have one"
	if s.in.AllowedNodes != nil {
		message += "; " + hold.NodeNotAllowed(s.in.Guard.Namespace, s.in.AllowedNodes)
	}
	return &condition{v1alpha1.ConditionReady, v1alpha1.ReasonNoGuardedNodes, message}
}

// targetEvicted names the kinds of the target's owners whose pods are evicted in a drain: all except DaemonSets and static
// pods.
func (s *summary) targetEvicted() *condition {
	if s.in.Target.Template != nil {
		return nil
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
	if len(kinds) == 0 {
		return nil
	}
	return stalled(v1alpha1.ReasonTargetNotDaemonSet, fmt.Sprintf(
		"a drain evicts pods of the target itself, regardless of what is held here, because no DaemonSet owns them (%s): select pods of a DaemonSet, or protect these by a PodDisruptionBudget",
		listed(slices.Sorted(maps.Keys(kinds)))))
}

func (s *summary) taintNotTolerated() *condition {
	if len(s.untolerated) == 0 {
		return nil
	}
	return stalled(v1alpha1.ReasonUntoleratedTaint, fmt.Sprintf(
		"the companion does not tolerate taint %s of %s, which are not guarded: add it to spec.template.spec.tolerations", s.taint, listed(s.untolerated)))
}

// foreignCompanions names pods of other owners that have the labels of companions, and says what to do.
func (s *summary) foreignCompanions() *condition {
	if len(s.in.ForeignPods) == 0 {
		return nil
	}
	var found []string
	for _, pod := range s.in.ForeignPods {
		found = append(found, podOnNode(pod.Name, pod.Node))
	}
	slices.Sort(found)
	return stalled(v1alpha1.ReasonForeignCompanion, fmt.Sprintf(
		"pods that Everynode did not create have the labels of companions: %s. The PodDisruptionBudget stays locked meanwhile, so they release nothing. %s",
		listed(found), s.remedy(s.in.ForeignPods[0].Name)))
}

// namesTaken names pods of other owners that have the names of companions and checks, and says what to do.
func (s *summary) namesTaken() *condition {
	if len(s.in.TakenNames) == 0 {
		return nil
	}
	names := slices.Sorted(maps.Keys(s.in.TakenNames))
	var found []string
	for _, name := range names {
		holder := s.in.TakenNames[name]
		found = append(found, fmt.Sprintf("%s (needed for a pod of node %s)", podOnNode(name, holder.Node), holder.For))
	}
	return stalled(v1alpha1.ReasonNameTaken, fmt.Sprintf(
		"pods that Everynode did not create have names that it needs: %s. Everynode uses other names. %s", listed(found), s.remedy(names[0])))
}

// remedy says how to delete a pod that may be a static pod or another pod of a kubelet.
func (s *summary) remedy(pod string) string {
	return fmt.Sprintf("Find out who creates them: if it is a kubelet, its node is misconfigured or compromised (remove the static pod from the node). Then: kubectl -n %s delete pod %s",
		s.in.Guard.Namespace, pod)
}

func (s *summary) companionsNotReady() *condition {
	if s.budget == nil {
		return &condition{v1alpha1.ConditionReconciling, v1alpha1.ReasonCompanionsNotReady, "the PodDisruptionBudget of the companions does not exist yet"}
	}
	if len(s.lacking) == 0 {
		return nil
	}
	return &condition{v1alpha1.ConditionReconciling, v1alpha1.ReasonCompanionsNotReady, "companions that are not ready and up to date: " + listed(s.lacking)}
}

func (s *summary) nodesHeld() *condition {
	if len(s.held) == 0 {
		return nil
	}
	var held []string
	for _, n := range s.heldNodes() {
		held = append(held, fmt.Sprintf("%s (%s)", n.Name, n.held.Message))
	}
	return &condition{v1alpha1.ConditionReady, v1alpha1.ReasonNodesHeld, "nodes that wait for their release: " + listed(held)}
}

func (s *summary) companionsReady() *condition {
	message := "each guarded node has a ready companion"
	if s.counts.Ready < s.counts.Total {
		message = fmt.Sprintf("%d of %d guarded nodes have a ready companion; the others are released, not Ready, or have a taint that excludes it", s.counts.Ready, s.counts.Total)
	}
	return &condition{v1alpha1.ConditionReady, v1alpha1.ReasonCompanionsReady, message + s.placeholderMessage() + s.peersMessage()}
}

// placeholderMessage says what it means that the placeholder is rejected.
func (s *summary) placeholderMessage() string {
	if o := s.in.PlaceholderObstacle; o != nil && len(s.in.Placeholders) == 0 {
		return "; upgrades of AKS are refused, because the placeholder cannot be created: " + o.Message
	}
	return ""
}

// peersMessage names the other NodeGuards of the same target.
func (s *summary) peersMessage() string {
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
