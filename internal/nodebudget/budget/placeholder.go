// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/kube"
)

// PlaceholderGroup is the group of placeholders. The PodDisruptionBudget of each group selects them as well.
const PlaceholderGroup = "placeholder"

// maxPlaceholders limits how many placeholders there are.
const maxPlaceholders = 10

// Placeholder is a pod that is never scheduled, and so never ready. A PodDisruptionBudget expects it in addition to its seats, and grants
// no eviction for it. AKS refuses to upgrade any node of a cluster in which a PodDisruptionBudget requires all pods that it expects.
// Source: https://github.com/Azure/AKS/issues/4860
type Placeholder struct {
	Number int
	Name   string
	UID    types.UID
	// Bound is true if another client has removed its scheduling gate, and it has a node. Then it counts as a pod of another owner.
	Bound bool
}

// CreatePlaceholder creates a placeholder.
type CreatePlaceholder struct{ Number int }

// DeletePlaceholder deletes a placeholder that is not needed.
type DeletePlaceholder struct{ Placeholder Placeholder }

func (CreatePlaceholder) action() {}
func (DeletePlaceholder) action() {}

// reconcilePlaceholders creates the placeholders that the PodDisruptionBudgets need, after all seats: if a quota allows fewer pods, nodes
// need them more. They stay while there are PodDisruptionBudgets, because a node that goes and comes back would need one each time.
func (p *planner) reconcilePlaceholders() {
	want := p.wantedPlaceholders()
	there := map[int]bool{}
	for i := range p.in.Placeholders {
		h := &p.in.Placeholders[i]
		if there[h.Number] = true; want == 0 || h.Bound {
			p.do(DeletePlaceholder{*h})
		}
	}
	if p.in.refusedFor(p.in.Now) != nil || slices.ContainsFunc(p.plan.Actions, func(a Action) bool { _, is := a.(CreateSeat); return is }) {
		return
	}
	for n := range want {
		if !there[n] {
			p.do(CreatePlaceholder{n})
		}
	}
}

// wantedPlaceholders returns how many placeholders there must be so that each PodDisruptionBudget requires fewer pods than it expects: a
// floor counts also the members of its group that have no seat. Those of a new group are about to get theirs.
func (p *planner) wantedPlaceholders() int {
	want := 0
	for _, g := range p.groups {
		want = max(want, 1)
		f := p.floors[g.key]
		if f == nil {
			continue
		}
		if settled := f.Created.Add(p.minute()); p.in.Now.Before(settled) {
			p.wake(settled)
			continue
		}
		away := 0
		for _, m := range g.members {
			if m.seat == nil || m.seat.Group != g.key {
				away++
			}
		}
		want = max(want, away-g.opened+1)
	}
	return min(want, maxPlaceholders)
}

// Placeholder returns a placeholder. Its name contains a secret, like that of a seat.
func (p *Place) Placeholder(number int) *corev1.Pod {
	pod := p.pod(p.placeholderName(number), PlaceholderGroup)
	pod.Annotations[kube.DescriptionAnnotation] = "is never scheduled, so that the PodDisruptionBudgets of seats expect more pods than they require"
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: v1alpha1.PlaceholderGate}}
	p.Key.SealSeat(pod)
	return pod
}

func (p *Place) placeholderName(number int) string {
	return "placeholder-" + p.Key.Digest("placeholder name", strconv.Itoa(number))
}

// ViewPlaceholder returns what the plan reads of a placeholder. It returns false for a pod that the manager has not created as one.
func (p *Place) ViewPlaceholder(pod *corev1.Pod) (Placeholder, bool) {
	if pod.Namespace != p.Namespace || pod.Labels[v1alpha1.BudgetGroupLabel] != PlaceholderGroup {
		return Placeholder{}, false
	}
	for n := range maxPlaceholders {
		if pod.Name != p.placeholderName(n) {
			continue
		}
		unbound := *pod // only read
		unbound.Spec.NodeName = ""
		return Placeholder{n, pod.Name, pod.UID, pod.Spec.NodeName != ""}, p.Key.MadeSeat(&unbound)
	}
	return Placeholder{}, false
}
