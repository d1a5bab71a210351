// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
)

// settle ends a history: there are no more faults, and drains and NodeJobs that have begun continue.
func (h *history) settle() {
	h.say("the faults end")
	h.calm = true
	for _, w := range h.asleep {
		w(true)
	}
	h.wakeUp()
	h.rounds(10, func() bool { return false })
	terminating := map[types.UID]bool{} // those that have just been evicted get some time
	for _, p := range h.pods {
		terminating[p.UID] = p.Terminating
	}
	h.rounds(5, func() bool { return false })
	h.mayUpgrade()
	for _, name := range sorted(h.pods) {
		if p := h.pods[name]; terminating[p.UID] && !p.stranger && h.isUnreachable(p.on) {
			h.fail("22 liveness: drains of %s wait for its seat, which no kubelet ends", p.on)
		}
	}
	h.heal()
	h.rounds(1200, func() bool { return h.waitsFor() == "" })
	if why := h.waitsFor(); why != "" {
		h.fail("22 liveness: everything is fixed, and %s", why)
	}
	h.rounds(5, func() bool { return false })
	h.mayUpgrade()
	for _, name := range sorted(h.budgets) {
		h.deleteBudget(name)
	}
	h.rounds(10, func() bool { return len(h.pods)+len(h.floors)+len(h.placeholders) == 0 })
	if len(h.pods)+len(h.floors)+len(h.placeholders) > 0 {
		h.fail("22 cleanup: there are no budgets, and objects are left: %v %v %v", sorted(h.pods), sorted(h.floors), h.placeholders)
	}
}

// mayUpgrade checks that AKS would upgrade a cluster in which everything has been done: it refuses while a PodDisruptionBudget requires
// all pods that it expects. Source: https://github.com/Azure/AKS/issues/4860
func (h *history) mayUpgrade() {
	if h.broken != "" || !h.idle {
		return
	}
	for _, group := range sorted(h.floors) {
		f, expected := h.floors[group], len(h.placeholders)
		for _, p := range h.pods {
			if f.selects(&p) {
				expected++
			}
		}
		if int(f.MinAvailable) >= expected {
			h.fail("22 upgrades: the PodDisruptionBudget of %s requires %d of %d pods", group, f.MinAvailable, expected)
		}
	}
}

// isUnreachable reports whether the node lifecycle controller has set the taint of a node that does not report.
func (h *history) isUnreachable(name string) bool {
	n := h.nodes[name]
	return !n.Ready && slices.ContainsFunc(n.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeUnreachable })
}

// heal fixes everything that drains may wait for.
func (h *history) heal() {
	h.say("everything is fixed")
	clear(h.sick)
	h.hostile = ""
	h.requirement = v1alpha1.RequirementMet
	for _, name := range sorted(h.nodes) {
		h.setReady(name, true)
	}
	for _, name := range sorted(h.pods) {
		if h.pods[name].stranger {
			h.strangerAt = h.now
			h.deletePod(h.pods[name])
		}
	}
	if h.budgets["freeze"] != nil {
		h.deleteBudget("freeze")
	}
}

// rounds lets time pass until done. The manager plans only after a change, and when its last plan has asked for it.
func (h *history) rounds(most int, done func() bool) {
	seen := ""
	for range most {
		if h.broken != "" || done() {
			return
		}
		h.askAll(CheckEvery)
		before := h.fingerprint()
		if before != seen || !h.idle || !h.wake.IsZero() && !h.now.Before(h.wake) {
			seen = before
			h.catchUp()
			h.pass()
		}
		h.continueEvictions()
		h.controllers()
		for _, t := range h.tools {
			h.toolStep(t)
		}
		for _, j := range h.jobs {
			h.jobStep(j)
		}
		h.check()
		h.now = h.now.Add(time.Second)
		if h.idle && before == h.fingerprint() && h.wake.After(h.now) {
			h.now = h.wake
		}
	}
}

// fingerprint changes with everything of which the manager learns by an event.
func (h *history) fingerprint() string {
	return fmt.Sprint(h.changes, h.ownChanges, h.answersChanges, h.manager.claimed, h.manager.reports)
}

// waitsFor returns what must still happen; "" if nothing does.
func (h *history) waitsFor() string {
	for _, t := range h.tools {
		if t.phase != idle {
			return t.name + " drains " + t.node
		}
	}
	for _, j := range h.jobs {
		for _, w := range j.work {
			return j.name + " waits for or works on " + w.node
		}
	}
	seats := map[string]simPod{}
	for _, p := range h.pods {
		if p.Ready && !p.Terminating {
			seats[p.on] = p
		}
	}
	for _, name := range sorted(h.nodes) {
		n := h.nodes[name]
		limited := false
		for _, b := range h.budgets {
			expired := !b.expires.IsZero() && !h.now.Before(b.expires)
			limited = limited || !b.audit && !expired && b.selects(&n, h.now)
		}
		seat, seated := seats[name]
		for _, t := range n.Taints {
			if seated && isOfTeam(&t) && !strings.Contains(string(seat.Tolerates), t.Key+":") {
				return fmt.Sprintf("the seat of %s tolerates %q, and not %s", name, seat.Tolerates, t.Key)
			}
		}
		if seated != limited {
			return fmt.Sprintf("%s is limited: %v, and has a ready seat: %v", name, limited, seated)
		}
	}
	return ""
}
