// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"fmt"
	"slices"

	"github.com/everynode/everynode/api/v1alpha1"
)

// planDeletion deletes everything that the NodeGuard has created. Budgets are deleted first, because they hold the
// nodes.
func planDeletion(in *Input) Plan {
	var plan Plan
	for i := range in.Budgets {
		plan.do(DeleteBudget{in.Budgets[i]})
	}
	for _, pods := range [][]Pod{in.Companions, in.Placeholders, in.Checks} {
		for i := range pods {
			if !pods[i].Terminating {
				plan.do(DeletePod{Pod: pods[i], Reason: v1alpha1.ReasonTerminating})
			}
		}
	}
	plan.Status = *in.Guard.Status.DeepCopy()
	plan.Status.ObservedGeneration = in.Guard.Generation
	plan.Status.Waiting, plan.Status.ControllerState.FailedChecks = nil, nil
	setCondition(in, &plan.Status, condition{v1alpha1.ConditionReconciling, v1alpha1.ReasonTerminating, deletionMessage(in)})
	return plan
}

// deletionMessage says what delays the deletion of a NodeGuard. Everynode has no finalizer on it.
func deletionMessage(in *Input) string {
	message := "it is being deleted and holds no node"
	var left []string
	for _, pods := range [][]Pod{in.Companions, in.Checks} {
		for i := range pods {
			left = append(left, podOnNode(pods[i].Name, pods[i].Node))
		}
	}
	if n := len(in.Budgets); n > 0 {
		message += fmt.Sprintf("; %d PodDisruptionBudgets are being deleted", n)
	}
	if len(left) > 0 {
		slices.Sort(left)
		message += "; pods that have not ended yet: " + listed(left)
	}
	if finalizers := in.Guard.Finalizers; len(finalizers) > 0 {
		message += "; it is gone when its finalizers are removed by those who set them: " + bounded(listed(finalizers))
	}
	return message
}

// deleteUnneeded deletes objects that are on no guarded node, or that an earlier NodeGuard of the same name created.
func (p *planner) deleteUnneeded() {
	for i := range p.in.Budgets {
		if b := &p.in.Budgets[i]; b != p.budget || p.isLast() {
			p.plan.do(DeleteBudget{*b})
		}
	}
	for _, pods := range [][]Pod{p.in.Placeholders, p.in.Companions, p.in.Checks} {
		for i := range pods {
			if pod := &pods[i]; !p.isNeeded(pod) && !pod.Terminating {
				p.plan.do(DeletePod{Pod: *pod, Reason: v1alpha1.ReasonNoGuardedNodes})
			}
		}
	}
}

// isLast reports whether no node is guarded, and no companion is left.
func (p *planner) isLast() bool { return len(p.nodes)+len(p.in.Companions) == 0 }

// isNeeded reports whether a pod is on a guarded node, or the placeholder.
func (p *planner) isNeeded(pod *Pod) bool {
	if pod.Node == "" {
		return p.isOwn(pod.Owner) && !p.isLast()
	}
	n := p.byName[pod.Node]
	return p.isOwn(pod.Owner) && n != nil && n.guarded
}
