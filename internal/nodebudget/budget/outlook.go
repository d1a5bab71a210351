// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"maps"
	"slices"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/kube"
	"github.com/everynode/everynode/internal/nodebudget/window"
)

// Outlook is what a budget would mean for the nodes of a cluster.
type Outlook struct {
	// Selected is the number of nodes that it selects, of which Exempt are exempt because they join.
	Selected int
	Exempt   Exempt
	// Limits are those of the spec, in the same order.
	Limits []LimitOutlook
	// Closed is why the spec allows no disruption now, and Invalid is true if only a change of the spec helps; nil if it allows one.
	// Requirements are not checked.
	Closed  *hold.Why
	Invalid bool
	// Windows are the next ones: at most 5, with the one that is open. There are none if the budget is always open, or never.
	Windows []Span
	// Zone is the time zone of all windows; UTC if they have several.
	Zone *time.Location
	// Common is when the budget and each other one that selects some of its nodes are open at the same time next.
	Common []CommonOutlook
}

// LimitOutlook is a limit, and how many nodes it would allow to be unavailable among those with each value of its topology key.
type LimitOutlook struct {
	Limit  *v1alpha1.BudgetLimit
	Groups []GroupOutlook
}

// GroupOutlook is the nodes with a value of a topology key; "" for those without the label, or if there is no key.
type GroupOutlook struct {
	Value       string
	Nodes, Most int
}

// Span is the time of a window. A begin or an end that does not occur, or is more than a year away, is zero.
type Span struct{ OpensAt, ClosesAt time.Time }

// CommonOutlook is when another budget and this one are open at the same time next; zero if they are not within a year.
type CommonOutlook struct {
	Budget string
	Next   time.Time
}

// outlookWindows is how many windows an Outlook has.
const outlookWindows = 5

// OutlookOf returns what a budget would mean for nodes, beside the other budgets.
func OutlookOf(b *v1alpha1.NodeDisruptionBudget, others []*v1alpha1.NodeDisruptionBudget, nodes []Node, now time.Time) Outlook {
	unchecked := b.DeepCopy()
	unchecked.Spec.Requirements = nil
	r := readRule(unchecked, Answers{}, now)
	o := Outlook{Exempt: Exempt{For: JoiningFor}, Closed: r.closed, Invalid: isMistake(r.closed), Zone: zoneOf(&b.Spec)}
	limited := o.limited(r, nodes, now)
	for i := range b.Spec.Limits {
		o.Limits = append(o.Limits, outlookOfLimit(&b.Spec.Limits[i], limited))
	}
	if r.schedule != nil && len(b.Spec.Windows)+len(b.Spec.ExceptDates) > 0 {
		o.Windows, o.Common = nextWindows(r.schedule, now), commonWith(r, others, limited, now)
	}
	return o
}

// limited returns the nodes that a budget limits, or will, and counts them.
func (o *Outlook) limited(r *rule, nodes []Node, now time.Time) []*Node {
	var limited []*Node
	for i := range nodes {
		node := &nodes[i]
		if !r.selects(node) || !canHaveSeat(node) {
			continue
		}
		if r.exempts(node, JoiningFor, now) {
			o.Exempt.add(node)
		}
		limited = append(limited, node)
	}
	o.Selected = len(limited)
	return limited
}

// commonWith returns when other budgets with windows that select some of the nodes are open together with one.
func commonWith(r *rule, others []*v1alpha1.NodeDisruptionBudget, nodes []*Node, now time.Time) []CommonOutlook {
	var all []CommonOutlook
	for _, other := range others {
		q := readRule(other, Answers{}, now)
		if q.Name == r.Name || !q.enforced() || q.schedule == nil || len(q.Spec.Windows) == 0 || !slices.ContainsFunc(nodes, q.selects) {
			continue
		}
		all = append(all, CommonOutlook{q.Name, window.Common([]*window.Schedule{r.schedule, q.schedule}, now)})
	}
	return all
}

func outlookOfLimit(l *v1alpha1.BudgetLimit, nodes []*Node) LimitOutlook {
	counts := map[string]int{}
	for _, node := range nodes {
		counts[node.Labels[l.TopologyKey]]++ // "" without a key
	}
	o := LimitOutlook{Limit: l}
	for _, value := range slices.Sorted(maps.Keys(counts)) {
		o.Groups = append(o.Groups, GroupOutlook{value, counts[value], kube.MaxUnavailable(l.MaxUnavailable, counts[value])})
	}
	return o
}

// nextWindows returns the window that is open, and those that follow.
func nextWindows(s *window.Schedule, now time.Time) []Span {
	var spans []Span
	for at := now; len(spans) < outlookWindows; {
		state := s.At(at)
		if state.OpensAt.IsZero() && state.ClosesAt.IsZero() {
			return spans
		}
		spans = append(spans, Span{state.OpensAt, state.ClosesAt})
		if state.ClosesAt.IsZero() {
			return spans
		}
		at = state.ClosesAt
	}
	return spans
}

// InZone returns a time in the time zone of a budget, to add to the time in UTC; "" if that is UTC, or unknown.
func InZone(spec *v1alpha1.NodeDisruptionBudgetSpec, t time.Time) string {
	zone := zoneOf(spec)
	if zone == time.UTC {
		return ""
	}
	return t.In(zone).Format(" (Mon 15:04 MST)")
}

// zoneOf returns the time zone of a budget; UTC if it is unknown.
func zoneOf(spec *v1alpha1.NodeDisruptionBudgetSpec) *time.Location {
	zone, err := window.Zone(spec)
	if err != nil {
		return time.UTC
	}
	return zone
}
