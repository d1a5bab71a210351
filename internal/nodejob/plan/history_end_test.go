// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
)

// settle ends all faults. Then the rollout must finish, or be stalled with a reason, in bounded time;
// after a retry of all failed nodes, it must finish; and a deleted NodeJob must be removed.
func (h *history) settle() {
	h.say("all faults end")
	h.faults = false
	h.deleteChangedPods()
	h.obstacle, h.denied, h.nodesOf = nil, false, ""
	h.job = h.job.DeepCopy()
	h.job.Spec.Suspend = false
	h.job.Spec.Rollout.PromoteTo = ""
	for _, name := range slices.Sorted(maps.Keys(h.nodes)) {
		node := h.nodes[name]
		if node.Deleting {
			delete(h.nodes, name)
			continue
		}
		if h.isBad(node) {
			continue
		}
		h.settleValue(node)
		h.ready(node, corev1.ConditionTrue)
		node.Taints = slices.DeleteFunc(slices.Clone(node.Taints), func(t corev1.Taint) bool { return bars(&t) })
		h.changed(node)
	}
	h.settleMore()
	h.settleBudget()
	if h.badNode() != nil {
		h.settleBeside()
		return
	}
	if h.job.DeletionTimestamp.IsZero() {
		h.finishRollout()
	}
	if h.broken == "" && h.job.DeletionTimestamp.IsZero() && h.rng.Intn(2) == 0 {
		h.job = h.job.DeepCopy()
		h.deleteJob()
	}
	if h.broken == "" && !h.job.DeletionTimestamp.IsZero() {
		h.finishDeletion()
	}
}

func (h *history) finishRollout() {
	h.withRefusals()
	if h.isScheduled() || h.with(autoscaler) {
		h.until("every node is done while a schedule runs and the cluster grows", h.allRan)
		h.job = h.job.DeepCopy()
		h.job.Spec.Rerun.PeriodSeconds = 0
	}
	if check := h.job.Spec.Task.Check; h.watches && check != nil && check.PeriodSeconds > 0 {
		asked := h.asked
		h.until("nodes that are done are asked", func() bool { return h.asked > asked || h.nothingToAsk() })
		h.job = h.job.DeepCopy()
		h.job.Spec.Task.Check.PeriodSeconds, h.job.Spec.Task.Check.OnDrift = 0, ""
	}
	h.until("the rollout ends", h.ended)
	h.checkCordonsAtRest()
	if isTrue(h.job.Status, v1alpha1.ConditionStalled) && h.broken == "" {
		h.job = h.job.DeepCopy()
		h.askAll()
		h.until("the second try ends", h.ended)
	}
	for range nodeCount {
		if h.broken == "" && h.budgetIsUsedUp() {
			h.uncordonAll()
			h.until("the rollout continues", h.ended)
		}
	}
	if h.broken != "" {
		return
	}
	if isTrue(h.job.Status, v1alpha1.ConditionStalled) && !h.stepIsEmpty() && !h.badResults() {
		h.break_("liveness", "it is Stalled although nothing fails any more: %+v", h.job.Status.Conditions)
	}
	h.checkRest()
}

// stepIsEmpty reports whether no node is left for the staging step besides the canaries.
func (h *history) stepIsEmpty() bool {
	return h.last.Status.Conditions[2].Reason == v1alpha1.ReasonStepWithoutNodes && len(h.job.Spec.Rollout.Steps) == 3
}

// budgetIsUsedUp reports whether nodes that were cordoned because of earlier failures block everything.
func (h *history) budgetIsUsedUp() bool {
	return slices.ContainsFunc(h.job.Status.Conditions, func(c metav1.Condition) bool {
		return c.Type == v1alpha1.ConditionStalled && c.Reason == v1alpha1.ReasonMaxUnavailableReached
	})
}

func (h *history) uncordonAll() {
	for _, name := range sortedKeys(h.nodes) {
		h.nodes[name].Unschedulable = false
		h.changed(h.nodes[name])
	}
	h.say("a user uncordons all nodes")
}

// checkCordonsAtRest checks that no node is cordoned for a task that does not start, or for a node that failed.
func (h *history) checkCordonsAtRest() {
	if !h.disrupts() || h.broken != "" {
		return
	}
	leave := h.job.Spec.OnFailure.Action == "" || h.job.Spec.OnFailure.Action == v1alpha1.FailureActionNone
	for _, name := range sortedKeys(h.nodes) {
		node := h.nodes[name]
		rec := node.On.Record
		at, works := h.at[node.UID]
		if works && at.pod != "" && at.boot == node.BootID && node.Unschedulable {
			continue // a tool that has evicted the task there may still work on it
		}
		if h.cordons(node) && slices.Contains(node.CordonedBy, ownKey) && (leave || rec == nil || !rec.Cordoned && !h.exhausted(node)) {
			h.break_("rule 8", "%s has no attempt and stays cordoned", name)
		}
	}
}

// badResults reports whether a node succeeded before a user requested results to be published that are not possible.
func (h *history) badResults() bool {
	return slices.ContainsFunc(sortedKeys(h.nodes), func(name string) bool {
		node := h.nodes[name]
		rec := node.On.Record
		return rec != nil && h.unpublishable(node, rec.Results) != ""
	})
}

func (h *history) ended() bool {
	s := h.last.Status
	return len(h.last.Actions) == 0 && len(h.pods) == 0 && len(h.cache.pods) == 0 && len(s.Drains) == 0 &&
		(h.last.WakeAt.IsZero() || h.last.WakeAt.After(h.now.Add(9*time.Minute))) &&
		(isTrue(s, v1alpha1.ConditionComplete) || isTrue(s, v1alpha1.ConditionStalled) || s.Nodes.Total == 0)
}

func (h *history) finishDeletion() {
	h.until("the NodeJob goes or is held", func() bool {
		return h.gone || (len(h.last.Actions) == 0 && len(h.pods) == 0 && isTrue(h.last.Status, v1alpha1.ConditionStalled))
	})
	if h.gone || h.broken != "" {
		return
	}
	h.refuses = nil
	h.job = h.job.DeepCopy()
	if h.rng.Intn(2) == 0 {
		h.askAll()
	} else {
		h.say("the rollback is removed from the spec")
		h.job.Spec.DeletionPolicy = v1alpha1.DeletionForget
	}
	h.until("the NodeJob goes", func() bool { return h.gone })
}

func (h *history) until(what string, over func() bool) {
	passes := 600
	if h.refuses != nil {
		passes = 3000 // each of up to 14 nodes may need all its retries, one after the other
	}
	for pass := range passes {
		h.grow(pass)
		h.persist()
		h.relieveBudget()
		h.endAwaitedWork()
		if h.later == nil {
			h.now = h.now.Add(5 * time.Second)
		} else {
			h.later(what)
		}
		h.kubelets()
		h.sweep()
		if h.pass(); h.broken != "" || over() {
			return
		}
	}
	h.break_("liveness", "%s never: %s, pods %v", what, h.unfinished(), h.podNames())
}

// unfinished describes what is not finished: the nodes that are not done, and the status.
func (h *history) unfinished() string {
	var parts []string
	for _, st := range h.last.Nodes {
		if st.State != Done && st.Reason != v1alpha1.ReasonNotSelected {
			parts = append(parts, fmt.Sprintf("%s %s %s (%s)", st.Name, st.State, st.Reason, st.Message))
		}
	}
	for _, c := range h.last.Status.Conditions {
		if c.Status == metav1.ConditionTrue {
			parts = append(parts, fmt.Sprintf("%s %s: %s", c.Type, c.Reason, c.Message))
		}
	}
	return strings.Join(parts, "; ")
}
