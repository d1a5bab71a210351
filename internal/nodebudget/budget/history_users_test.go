// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
)

// Users who change budgets and nodes.

// simBudget is a budget as the test knows it. The planner reads object.
type simBudget struct {
	object *v1alpha1.NodeDisruptionBudget
	// pool selects nodes by the label pool; all if "".
	pool   string
	limits []simLimit
	// A window opens each time that the minute is a multiple of every, for length. Without windows, every is 0.
	every   int
	length  time.Duration
	pace    time.Duration
	expires time.Time
	// requires is whether it has a requirement.
	requires bool
	// included means that nodes that join count at once.
	included, audit bool
}

type simLimit struct {
	number, percent int
	zone            bool
}

// addBudget creates a budget of a random kind.
func (h *history) addBudget(name string) {
	b := &simBudget{pool: "x"}
	if h.oneGroup || h.chance(65) {
		b.pool = ""
	}
	for range h.rng.Intn(3) {
		l := simLimit{number: 1 + h.rng.Intn(2), zone: !h.oneGroup && h.chance(50)}
		if h.chance(30) {
			l = simLimit{percent: []int{25, 50, 60}[h.rng.Intn(3)], zone: l.zone}
		}
		b.limits = append(b.limits, l)
	}
	if h.chance(25) {
		b.every, b.length = 3+h.rng.Intn(2), time.Duration(60+30*h.rng.Intn(3))*time.Second
	}
	if h.chance(30) {
		b.pace = time.Duration(5+h.rng.Intn(35)) * time.Second
	}
	if len(b.limits) == 0 && b.every == 0 && b.pace == 0 {
		b.limits = []simLimit{{number: 1}}
	}
	before := h.budgets[name]
	b.requires = h.chance(30) || before != nil && before.requires
	b.included = !h.oneGroup && h.chance(30)
	b.audit = h.chance(8)
	if !h.static && h.chance(10) {
		b.expires = second(h.now.Add(time.Duration(60+h.rng.Intn(300)) * time.Second))
	}
	h.setBudget(name, b)
}

// freeze creates a budget that allows nothing.
func (h *history) freeze() {
	b := &simBudget{limits: []simLimit{{}}, included: !h.oneGroup && h.chance(50)}
	h.met["frozen"]++
	if !h.oneGroup && h.chance(50) {
		b.pool = []string{"x", "y"}[h.rng.Intn(2)]
		h.met["frozen in part"]++
	}
	if h.chance(50) {
		b.expires = second(h.now.Add(time.Duration(20+h.rng.Intn(120)) * time.Second))
	}
	h.setBudget("freeze", b)
}

func (h *history) setBudget(name string, b *simBudget) {
	o := &v1alpha1.NodeDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(h.uid()), Generation: 1}}
	if before := h.budgets[name]; before != nil {
		o.ObjectMeta = before.object.ObjectMeta
		o.Generation++
	}
	if b.pool != "" {
		o.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"pool": b.pool}}
	}
	for _, l := range b.limits {
		limit := v1alpha1.BudgetLimit{MaxUnavailable: new(intstr.FromInt(l.number))}
		if l.percent > 0 {
			limit.MaxUnavailable = new(intstr.FromString(fmt.Sprint(l.percent, "%")))
		}
		if l.zone {
			limit.TopologyKey = "zone"
		}
		o.Spec.Limits = append(o.Spec.Limits, limit)
	}
	if b.every > 0 {
		o.Spec.Windows = []v1alpha1.BudgetWindow{
			{Schedule: fmt.Sprintf("*/%d * * * *", b.every), DurationSeconds: int32(b.length.Seconds())},
		}
	}
	if b.pace > 0 {
		o.Spec.PaceSeconds = new(int32(b.pace.Seconds()))
	}
	if b.requires {
		o.Spec.Requirements = []v1alpha1.BudgetRequirement{{Name: "calm"}}
	}
	if b.included {
		o.Spec.JoiningNodes = v1alpha1.JoiningNodesIncluded
	}
	if b.audit {
		o.Spec.Enforcement = v1alpha1.BudgetReport
	}
	if !b.expires.IsZero() {
		o.Spec.ExpiresAt = new(metav1.NewTime(b.expires))
	}
	b.object = o
	h.say("budget %s of pool %q: limits %+v, every %d min for %v, pace %v, requires %v, expires %v, included %v, audit %v",
		name, b.pool, b.limits, b.every, b.length, b.pace, b.requires, b.expires.Format("04:05"), b.included, b.audit)
	h.changes++
	h.budgets[name] = b
	h.changedAt[name] = h.now
}

func (h *history) deleteBudget(name string) {
	h.say("budget %s is deleted", name)
	h.met["budget deleted"]++
	h.changes++
	delete(h.budgets, name)
}

// users are changes that people, or a cluster autoscaler, make.
func (h *history) users() {
	if h.chance(15) {
		h.taint(pick(h, h.nodes))
		return
	}
	switch n := h.rng.Intn(10); {
	case n < 3:
		if len(h.nodes) < 7 {
			h.met["joined"]++
			h.addNode(0)
		}
	case n < 4:
		if name := pick(h, h.nodes); len(h.nodes) > 2 && h.chance(40) {
			h.deleteNode(name)
		}
	case h.static:
	case n < 5:
		h.relabel(pick(h, h.nodes))
	case n < 7:
		if h.budgets["freeze"] == nil {
			h.freeze()
		} else {
			h.deleteBudget("freeze")
		}
	default:
		h.changeBudget(fmt.Sprint("b", h.rng.Intn(3)))
	}
}

func (h *history) changeBudget(name string) {
	switch {
	case h.budgets[name] == nil:
		h.met["budget created"]++
		h.addBudget(name)
	case h.chance(50):
		h.met["budget changed"]++
		h.addBudget(name)
	default:
		h.deleteBudget(name)
	}
}

// taint gives a node a taint that lasts, and removes others of this kind.
func (h *history) taint(name string) {
	n, there := h.nodes[name]
	if !there {
		return
	}
	n.Taints = slices.DeleteFunc(slices.Clone(n.Taints), func(t corev1.Taint) bool { return isOfTeam(&t) })
	n.Taints = append(n.Taints, corev1.Taint{Key: fmt.Sprint("team-", h.rng.Intn(3)), Effect: corev1.TaintEffectNoSchedule})
	h.setNode(n)
}

func isOfTeam(t *corev1.Taint) bool { return strings.HasPrefix(t.Key, "team-") }

func (h *history) relabel(name string) {
	n, there := h.nodes[name]
	if !there {
		return
	}
	h.met["relabeled"]++
	n.Labels = maps.Clone(n.Labels)
	n.Labels["zone"] = []string{"a", "b", ""}[h.rng.Intn(3)]
	if n.Labels["zone"] == "" {
		delete(n.Labels, "zone")
	}
	if h.chance(30) {
		n.Labels["pool"] = []string{"x", "y"}[h.rng.Intn(2)]
	}
	h.say("%s is relabeled: %v", name, n.Labels)
	h.setNode(n)
	h.factsAt[n.UID] = h.now
	h.left = append(h.left, h.now)
}
