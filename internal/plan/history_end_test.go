package plan

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
)

// settle ends all faults. Then the rollout must finish, or be stalled with a reason, in bounded time;
// when everything that failed is tried again, it must finish; and a deleted NodeJob must go.
func (h *history) settle() {
	h.say("all faults end")
	h.faults = false
	h.obstacle = nil
	h.job = h.job.DeepCopy()
	h.job.Spec.Suspend = false
	h.job.Spec.Rollout.PromoteTo = ""
	for _, node := range h.nodes {
		node.Ready = corev1.ConditionTrue
		node.Taints = nil
		h.changed(node)
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
	h.until("the rollout ends", h.ended)
	if isTrue(h.job.Status, v1alpha1.ConditionStalled) && h.broken == "" {
		h.job = h.job.DeepCopy()
		h.askAll()
		h.until("the second try ends", h.ended)
	}
	if h.broken != "" {
		return
	}
	if isTrue(h.job.Status, v1alpha1.ConditionStalled) && !h.stepIsEmpty() {
		h.break_("liveness", "it is stalled although nothing fails any more: %+v", h.job.Status.Conditions)
	}
	for _, node := range h.nodes {
		sameMachine := node.On.Record == nil || node.On.Record.MachineID == node.MachineID
		if slices.Contains(node.CordonedBy, ownKey) && node.On.Label == h.rev && sameMachine {
			h.break_("rule 8", "%s is done and stays cordoned", node.Name)
		}
	}
}

// stepIsEmpty is true when no node is there for the staging step beside the canaries.
func (h *history) stepIsEmpty() bool {
	return h.last.Status.Conditions[2].Reason == v1alpha1.ReasonStepWithoutNodes && len(h.job.Spec.Rollout.Steps) == 3
}

func (h *history) ended() bool {
	s := h.last.Status
	return len(h.last.Actions) == 0 && len(h.pods) == 0 && len(s.Drains) == 0 && h.last.WakeAt.IsZero() &&
		(isTrue(s, v1alpha1.ConditionComplete) || isTrue(s, v1alpha1.ConditionStalled) || s.Nodes.Matched == 0)
}

func (h *history) finishDeletion() {
	h.until("the NodeJob goes or is held", func() bool {
		return h.gone || (len(h.last.Actions) == 0 && len(h.pods) == 0 && isTrue(h.last.Status, v1alpha1.ConditionStalled))
	})
	if h.gone || h.broken != "" {
		return
	}
	h.job = h.job.DeepCopy()
	if h.rng.Intn(2) == 0 {
		h.askAll()
	} else {
		h.say("the rollback is given up")
		h.job.Spec.DeletionPolicy = v1alpha1.DeletionForget
	}
	h.until("the NodeJob goes", func() bool { return h.gone })
}

func (h *history) until(what string, over func() bool) {
	for range 600 {
		h.now = h.now.Add(5 * time.Second)
		h.kubelets()
		if h.pass(); h.broken != "" || over() {
			return
		}
	}
	h.break_("liveness", "%s never: %+v, pods %v, %+v", what, h.last.Nodes, h.podNames(), h.last.Status.Conditions)
}
