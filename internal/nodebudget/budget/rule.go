// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/kube"
	"github.com/everynode/everynode/internal/nodebudget/window"
)

// rule is a budget at a time.
type rule struct {
	*v1alpha1.NodeDisruptionBudget
	selector labels.Selector
	// invalid is what cannot be used of its spec; "" if all can.
	invalid string
	window  window.State
	longest time.Duration
	// schedule is nil if it cannot be used.
	schedule *window.Schedule
	// answers are what is known of spec.requirements, in the same order.
	answers []Answer
	// expired is true if the budget has no effect any more.
	expired bool
	// closed is why no disruption may begin; nil if one may. inWindow is the same as if a window were open, unless the date is excepted.
	closed, inWindow *hold.Why
}

// readRule returns a budget at a time. answers are those of its requirements.
func readRule(b *v1alpha1.NodeDisruptionBudget, answers Answers, now time.Time) *rule {
	r := &rule{NodeDisruptionBudget: b, selector: labels.Everything()}
	r.expired = !b.DeletionTimestamp.IsZero() || b.Spec.ExpiresAt != nil && !now.Before(b.Spec.ExpiresAt.Time)
	if b.Spec.Selector != nil {
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err != nil {
			r.invalid, r.selector = "spec.selector: "+err.Error(), labels.Nothing()
		} else {
			r.selector = selector
		}
	}
	schedule, err := window.Parse(&b.Spec)
	if err != nil {
		r.invalid = cmp.Or(r.invalid, err.Error())
	} else {
		r.schedule, r.window, r.longest = schedule, schedule.At(now), schedule.Longest(now)
	}
	r.readAnswers(answers, now)
	r.closed, r.inWindow = r.closure(false), r.closure(true)
	return r
}

// closure returns why the budget is closed regardless of nodes, or would be in a window. A budget that cannot be used is closed: what it
// would allow is not known.
func (r *rule) closure(inWindow bool) *hold.Why {
	reason, message := r.unmet()
	switch {
	case r.invalid != "":
		return r.close(v1alpha1.ReasonInvalidSpec, "cannot be used, so it allows nothing: "+r.invalid, time.Time{})
	case r.neverThaws():
		return r.close(v1alpha1.ReasonFrozenWithoutEnd, "allows no disruption (maxUnavailable 0), and has no end", time.Time{})
	case allowsNothing(&r.Spec):
		return r.close(v1alpha1.ReasonFrozen, "allows no disruption (maxUnavailable 0)", time.Time{})
	case r.neverOpens():
		return r.close(v1alpha1.ReasonWindowNeverOpens, "has no window within a year", time.Time{})
	case !r.window.Open && inWindow && r.window.OnExceptedDate:
		return r.close(v1alpha1.ReasonWindowClosed, onExceptedDate, r.window.DateChangesAt)
	case !r.window.Open && !inWindow:
		return r.close(v1alpha1.ReasonWindowClosed, r.windowText(), r.window.ChangesAt)
	case reason != "":
		return r.close(reason, message, time.Time{})
	}
	return nil
}

// keepClosed closes the budget for a reason that does not depend on windows.
func (r *rule) keepClosed(c *hold.Why) {
	r.closed, r.inWindow = cmp.Or(r.closed, c), cmp.Or(r.inWindow, c)
}

// closedFor is why no disruption may begin on a node, on which a NodeJob may ignore windows; nil if one may.
func (r *rule) closedFor(ignoresWindows bool) *hold.Why {
	if ignoresWindows {
		return r.inWindow
	}
	return r.closed
}

// close returns a closure with the reason of the budget. It ends with the budget at the latest.
func (r *rule) close(reason, message string, until time.Time) *hold.Why {
	if reason := r.Spec.Description; reason != "" {
		message += ": " + reason
	}
	if at := r.Spec.ExpiresAt; at != nil && (until.IsZero() || at.Time.Before(until)) {
		until = at.Time
	}
	return &hold.Why{By: r.Name, Reason: reason, Message: "NodeDisruptionBudget " + r.Name + " " + message, Until: until}
}

// neverOpens reports whether no window opens within a year.
func (r *rule) neverOpens() bool {
	return !r.window.Open && r.window.OpensAt.IsZero() && len(r.Spec.Windows) > 0
}

const onExceptedDate = "allows no disruption on this date (exceptDates)"

func (r *rule) windowText() string {
	switch {
	case r.window.Excepted:
		return onExceptedDate
	case r.window.OpensAt.IsZero():
		return "is closed"
	}
	return "is closed until its next window opens at " + r.window.OpensAt.Format(time.RFC3339) + InZone(&r.Spec, r.window.OpensAt)
}

// allowsNothing reports whether a limit of a budget is 0.
func allowsNothing(spec *v1alpha1.NodeDisruptionBudgetSpec) bool {
	return slices.ContainsFunc(spec.Limits, func(l v1alpha1.BudgetLimit) bool {
		return l.MaxUnavailable != nil && kube.MaxUnavailable(l.MaxUnavailable, 100) == 0
	})
}

// IsFreeze reports whether a budget only stops: it allows nothing, and it has no windows. The commands freeze and thaw make and delete
// such budgets.
func IsFreeze(spec *v1alpha1.NodeDisruptionBudgetSpec) bool {
	return allowsNothing(spec) && len(spec.Windows) == 0
}

// neverThaws reports whether a budget stops disruptions until a user changes it.
func (r *rule) neverThaws() bool {
	return allowsNothing(&r.Spec) && r.Spec.ExpiresAt == nil && r.Spec.Enforcement != v1alpha1.BudgetReport
}

// toThaw says how to end what has no end; "" if it has one.
func (r *rule) toThaw() string {
	switch {
	case !r.neverThaws():
		return ""
	case IsFreeze(&r.Spec):
		return ". Set spec.expiresAt, or end it: kubectl everynode thaw " + r.Name
	}
	return ". Set spec.expiresAt, or increase maxUnavailable: kubectl edit nodedisruptionbudget " + r.Name
}

// permanent reports whether the groups of nodes depend on the budget. A budget that allows nothing only closes groups, so it moves no
// seat when it comes and goes.
func (r *rule) permanent() bool { return !allowsNothing(&r.Spec) }

// hasPace reports whether the budget has a time between disruptions.
func (r *rule) hasPace() bool { return r.Spec.PaceSeconds != nil && *r.Spec.PaceSeconds > 0 }

// pace is the time between disruptions; 0 if there is none.
func (r *rule) pace() time.Duration {
	if !r.hasPace() {
		return 0
	}
	return time.Duration(*r.Spec.PaceSeconds) * time.Second
}

// enforced reports whether the budget holds anything.
func (r *rule) enforced() bool { return !r.expired && r.Spec.Enforcement != v1alpha1.BudgetReport }

// applies reports whether a budget counts and limits a node. joiningFor is how long a node is exempt after it was created.
func (r *rule) applies(node *Node, joiningFor time.Duration, now time.Time) bool {
	return !r.expired && r.selects(node) && !r.exempts(node, joiningFor, now)
}

func (r *rule) selects(node *Node) bool {
	return r.selector.Matches(labels.Set(node.Labels))
}

func (r *rule) exempts(node *Node, joiningFor time.Duration, now time.Time) bool {
	return r.Spec.JoiningNodes != v1alpha1.JoiningNodesIncluded && now.Before(node.Created.Add(joiningFor))
}

// maxTopologyValues is how many values of a topology key the manager supports: each is a PodDisruptionBudget.
const maxTopologyValues = 100

func tooManyGroups(r *rule, key string, values int) *hold.Why {
	return &hold.Why{
		By: r.Name, Reason: v1alpha1.ReasonTooManyGroups,
		Message: fmt.Sprintf("NodeDisruptionBudget %s allows nothing: the selected nodes have %d values of the label %s (topologyKey), and at most %d are supported", r.Name, values, key, maxTopologyValues),
	}
}

func paceClosure(r *rule, by *member, next time.Time) *hold.Why {
	returned := "has returned"
	if by.seat == nil {
		returned = "returns"
	}
	return &hold.Why{
		By: r.Name, Reason: v1alpha1.ReasonPaceNotReached, Until: next,
		Message: fmt.Sprintf("NodeDisruptionBudget %s allows the next disruption at %s: node %s %s, and paceSeconds is %d",
			r.Name, next.Format(time.RFC3339), by.Name, returned, *r.Spec.PaceSeconds),
	}
}
