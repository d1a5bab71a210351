// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

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
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/kube"
	"github.com/everynode/everynode/internal/plural"
)

const (
	reasonMaxUnavailable = v1alpha1.ReasonMaxUnavailableReached
	reasonWaiting        = v1alpha1.ReasonWaitingForBudget

	// maxListed is how many nodes each list of a status has.
	maxListed = 10
)

// report makes the statuses. Since they are for users only, the lists take their times from the previous status.
func (p *planner) report() {
	for _, r := range p.rules {
		s := &summary{planner: p, rule: r, overlapping: p.overlapping(r)}
		s.fold()
		p.plan.Statuses = append(p.plan.Statuses, s.status())
	}
}

// overlapping returns the name of a PodDisruptionBudget of another owner that selects seats of a budget; "" if none does.
func (p *planner) overlapping(r *rule) string {
	for _, m := range p.members {
		if m.group.overlapping != "" && slices.Contains(m.rules, r) {
			return m.group.overlapping
		}
	}
	return ""
}

// summary is what the status of a budget says.
type summary struct {
	*planner
	rule               *rule
	selected, unseated int
	joining            Exempt
	seats              int
	down, waiting      []*member
	fresh              []*member // nodes that have joined and use no budget yet
	loose              []*member // nodes of which the API server may still grant the eviction of the seat
	allowed, exceeding int
	overlapping        string
}

// fold collects the nodes of a budget.
func (s *summary) fold() {
	members := s.ofRule()
	s.joining.For = s.joiningFor()
	for i := range s.nodes {
		node := &s.nodes[i]
		switch {
		case s.rule.expired || !s.rule.selects(node):
			continue
		case s.rule.exempts(node, s.joiningFor(), s.in.Now):
			s.joining.add(node)
		case !canHaveSeat(node):
			s.unseated++
		}
		s.selected++
	}
	s.foldMembers(members)
	s.countAllowed(members)
}

// foldMembers collects the nodes that the budget limits.
func (s *summary) foldMembers(members []*member) {
	for _, m := range members {
		switch {
		case m.unavailable:
			s.down = append(s.down, m)
		case m.waits(), len(s.heldBackOn(m)) > 0:
			s.waiting = append(s.waiting, m)
		}
		if m.seat != nil && m.seat.Ready {
			s.seats++
		}
		if !m.unavailable && s.mayLose(m) {
			s.loose = append(s.loose, m)
		}
	}
}

// mayLose reports whether the API server may grant the eviction of the seat of a node now.
func (s *summary) mayLose(m *member) bool {
	if m.seat == nil {
		return false
	}
	f := s.floors[m.seat.Group]
	return f == nil || !f.Processed || f.Allowed > 0
}

// ofRule are the nodes that a budget limits and counts. With enforcement Report, they have no seats, and a node that is cordoned counts.
func (s *summary) ofRule() []*member {
	var members []*member
	if s.rule.enforced() {
		for _, m := range s.members {
			switch {
			case !slices.Contains(m.rules, s.rule):
			case m.fresh:
				s.fresh = append(s.fresh, m)
			default:
				members = append(members, m)
			}
		}
		return members
	}
	for i := range s.nodes {
		node := &s.nodes[i]
		if !s.rule.applies(node, s.joiningFor(), s.in.Now) {
			continue
		}
		m := &member{Node: node, rules: []*rule{s.rule}}
		s.readMember(m)
		m.unavailable = !m.Ready || m.Unschedulable || m.Deleting || s.in.Holds[m.UID] != ""
		m.seat = nil
		members = append(members, m)
	}
	return members
}

// countAllowed counts the disruptions that may begin: what the limits of this budget leave. Other budgets may allow fewer. It also
// counts the nodes that are unavailable beyond a limit. A limit of 0 does not count: it stops only what has not begun. If the budget
// limits none of its nodes, such as those of a new cluster, all of their disruptions may begin.
func (s *summary) countAllowed(members []*member) {
	s.allowed = len(members) - len(s.down)
	for i := range s.rule.Spec.Limits {
		l := &s.rule.Spec.Limits[i]
		all, down := map[string]int{}, map[string]int{}
		for _, m := range members {
			value := m.Labels[l.TopologyKey] // "" without a key
			all[value]++
			if m.unavailable {
				down[value]++
			}
		}
		left, beyond := 0, 0
		for value, nodes := range all {
			rest := kube.MaxUnavailable(l.MaxUnavailable, nodes) - down[value]
			left += max(0, rest)
			beyond += max(0, -rest)
		}
		s.allowed = min(s.allowed, left)
		if s.rule.enforced() && kube.MaxUnavailable(l.MaxUnavailable, len(members)) > 0 {
			s.exceeding = max(s.exceeding, beyond)
		}
	}
	if len(members) == 0 {
		s.allowed = s.selected
	}
	if s.rule.closed != nil || s.rule.expired || s.overlapping != "" {
		s.allowed = 0
	}
}

func (s *summary) status() v1alpha1.NodeDisruptionBudgetStatus {
	before := &s.rule.Status
	st := v1alpha1.NodeDisruptionBudgetStatus{
		ObservedGeneration: s.rule.Generation,
		DisruptionsAllowed: int32(s.allowed),
		Nodes: v1alpha1.BudgetCounts{
			Total: int32(s.selected), Exempt: int32(s.joining.Nodes), Seats: int32(s.seats), Unavailable: int32(len(s.down)), Waiting: int32(len(s.waiting)),
			Exceeding: int32(s.exceeding),
		},
		Unavailable: s.unavailable(before), Waiting: s.waitingNodes(before),
		Requirements: s.requirements(before), Conditions: slices.Clone(before.Conditions),
	}
	if w := &s.rule.window; !w.OpensAt.IsZero() {
		st.Window = &v1alpha1.BudgetWindowStatus{OpensAt: metav1.NewTime(w.OpensAt), ClosesAt: metav1.NewTime(w.ClosesAt)}
	}
	kind, reason, message := s.condition()
	for _, of := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled} {
		status := metav1.ConditionFalse
		if of == kind {
			status = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&st.Conditions, metav1.Condition{
			Type: of, Status: status, Reason: reason, Message: message,
			ObservedGeneration: s.rule.Generation, LastTransitionTime: metav1.NewTime(s.in.Now),
		})
	}
	return st
}

func (s *summary) unavailable(before *v1alpha1.NodeDisruptionBudgetStatus) []v1alpha1.UnavailableNode {
	var list []v1alpha1.UnavailableNode
	for _, m := range s.down {
		since := metav1.NewTime(s.in.Now)
		if i := slices.IndexFunc(before.Unavailable, func(o v1alpha1.UnavailableNode) bool { return o.Node == m.Name }); i >= 0 {
			since = before.Unavailable[i].Since
		}
		list = append(list, v1alpha1.UnavailableNode{Node: m.Name, Since: since, By: s.by(m)})
	}
	slices.SortStableFunc(list, func(a, b v1alpha1.UnavailableNode) int { return a.Since.Compare(b.Since.Time) })
	return list[:min(len(list), maxListed)]
}

// by says who or what made a node unavailable.
func (s *summary) by(m *member) string {
	held := s.in.Holds[m.UID]
	return cmp.Or(held, m.requestedBy, s.unavailableText(m))
}

func (s *summary) unavailableText(m *member) string {
	switch {
	case !m.Ready:
		return "not Ready"
	case m.seat == nil:
		return "available again, and gets its seat back"
	case m.seat.Waiting != "":
		return "its seat does not start: " + m.seat.Waiting
	}
	return "its seat is not ready"
}

func (s *summary) waitingNodes(before *v1alpha1.NodeDisruptionBudgetStatus) []v1alpha1.WaitingNode {
	var list []v1alpha1.WaitingNode
	for _, m := range s.waiting {
		since := metav1.NewTime(cmp.Or(m.since, s.in.Now))
		if i := slices.IndexFunc(before.Waiting, func(o v1alpha1.WaitingNode) bool { return o.Node == m.Name }); i >= 0 && before.Waiting[i].Since.Before(&since) {
			since = before.Waiting[i].Since
		}
		w := v1alpha1.WaitingNode{Node: m.Name, Since: since, By: cmp.Or(m.requestedBy, bounded(strings.Join(s.heldBackOn(m), ", ")))}
		switch {
		case m.requestedBy == "":
			w.Reason, w.Message = s.rule.closed.Reason, s.rule.closed.Message
		case m.group != nil:
			w.Reason, w.Message = s.waitsFor(m)
		}
		list = append(list, w)
	}
	slices.SortStableFunc(list, func(a, b v1alpha1.WaitingNode) int { return a.Since.Compare(b.Since.Time) })
	return list[:min(len(list), maxListed)]
}

// condition returns which of the conditions is True, and why.
func (s *summary) condition() (kind, reason, message string) {
	r := s.rule
	stalled, why := s.stalled()
	switch missing := s.missing(); {
	case r.expired:
		return v1alpha1.ConditionReady, v1alpha1.ReasonExpired, "the budget has no effect any more"
	case stalled != "":
		return v1alpha1.ConditionStalled, stalled, bounded(why)
	case r.enforced() && missing != "":
		return v1alpha1.ConditionReconciling, v1alpha1.ReasonSeatsNotReady, bounded(missing)
	case r.closed != nil:
		return conditionOf(r.closed), r.closed.Reason, bounded(r.closed.Message + s.heldBack() + s.exempt() + r.toThaw())
	case s.selected == 0:
		return v1alpha1.ConditionReady, v1alpha1.ReasonNoSelectedNodes, "the budget selects no node"
	case s.allowed == 0:
		return v1alpha1.ConditionReady, reasonMaxUnavailable, s.text()
	}
	return v1alpha1.ConditionReady, v1alpha1.ReasonBudgetOpen, s.text()
}

// stalled returns what must be corrected, as a reason and a sentence; "" if nothing must.
func (s *summary) stalled() (reason, message string) {
	r := s.rule
	switch {
	case isMistake(r.closed):
		return r.closed.Reason, r.closed.Message
	case r.failsLong(s.in.Now):
		reason, message := r.unmet()
		return reason, r.close(reason, message, time.Time{}).Message
	case r.enforced() && s.in.Refused != nil:
		return v1alpha1.ReasonSeatRefused, s.in.Refused.Message
	case s.overlapping != "":
		return v1alpha1.ReasonOverlappingBudget, overlappingText(s.overlapping) +
			", so no drain of these nodes ends: delete it, or change its selector"
	case s.apart[r] != nil:
		return v1alpha1.ReasonWindowsNeverOverlap, s.apart[r].closure(r).Message
	}
	return "", ""
}

// isMistake reports whether only a change of the budget helps.
func isMistake(c *hold.Why) bool {
	return c != nil && slices.Contains([]string{v1alpha1.ReasonInvalidSpec, v1alpha1.ReasonWindowNeverOpens, v1alpha1.ReasonTooManyGroups}, c.Reason)
}

// condition returns the condition of a budget that is closed. While it is not known whether it would be open, it is Reconciling.
func conditionOf(c *hold.Why) string {
	if c.Reason == v1alpha1.ReasonRequirementUnknown {
		return v1alpha1.ConditionReconciling
	}
	return v1alpha1.ConditionReady
}

// text says what the budget allows.
func (s *summary) text() string {
	text := fmt.Sprintf("%d of %s not available, and %s may begin", len(s.down), plural.Count(s.selected, "node"), plural.Count(s.allowed, "disruption"))
	if w := &s.rule.window; !w.ClosesAt.IsZero() {
		until := " until the window closes at "
		if s.allowed == 0 { // another one may begin earlier
			until = "; the window closes at "
		}
		text += until + w.ClosesAt.Format(time.RFC3339) + InZone(&s.rule.Spec, w.ClosesAt)
	}
	text += s.exempt()
	if s.unseated > 0 {
		do := "it does"
		if s.unseated > 1 {
			do = "they do"
		}
		text += fmt.Sprintf("; %s not held, because %s not run Linux", plural.CountAre(s.unseated, "node"), do)
	}
	return text
}

// heldBackOn are the NodeJobs that wait on a node because the budget is closed.
func (s *summary) heldBackOn(m *member) []string {
	var names []string
	for _, w := range s.in.Closed[m.UID] {
		if r := s.rule; r.enforced() && r.closed != nil && (w.Disrupts || r.Spec.AppliesTo == v1alpha1.AppliesToAllTasks) {
			names = append(names, w.By)
		}
	}
	return names
}

// heldBack names the NodeJobs that wait because the budget is closed, those with most nodes first; "" if none does.
func (s *summary) heldBack() string {
	nodes := map[string]int{}
	for _, m := range s.waiting {
		for _, name := range s.heldBackOn(m) {
			nodes[name]++
		}
	}
	names := slices.SortedFunc(maps.Keys(nodes), func(a, b string) int {
		return cmp.Or(cmp.Compare(nodes[b], nodes[a]), cmp.Compare(a, b))
	})
	if len(names) == 0 {
		return ""
	}
	parts := make([]string, 0, maxNamed+1)
	for _, name := range names[:min(len(names), maxNamed)] {
		parts = append(parts, fmt.Sprintf("%s (%s)", strings.TrimPrefix(name, "NodeJob "), plural.Count(nodes[name], "node")))
	}
	if len(names) > maxNamed {
		parts = append(parts, "…")
	}
	return "; " + plural.Count(len(names), "NodeJob") + " waiting: " + strings.Join(parts, ", ")
}

// exempt says which nodes are exempt because they join; "" if none are.
func (s *summary) exempt() string {
	if s.joining.Nodes == 0 {
		return ""
	}
	return "; " + s.joining.Text(s.joining.Until.UTC().Format(time.RFC3339))
}

// missing says which nodes should have a seat and do not; "" if there are none. Nodes that are not available have none for that reason.
func (s *summary) missing() string {
	var without []*member
	for _, m := range slices.Concat(s.down, s.fresh) {
		if m.seat == nil && !s.mayHaveSeat(m) || !m.Ready {
			continue
		}
		without = append(without, m)
	}
	if len(without) == 0 {
		return s.looseText()
	}
	text := plural.Count(len(without), "node") + " without a ready seat: " + someNames(without)
	if waiting := without[0].seat; waiting != nil && waiting.Waiting != "" {
		text += ": " + waiting.Waiting
	}
	return text
}

// looseText says which nodes of a freeze are not held yet; "" if all are.
func (s *summary) looseText() string {
	if s.rule.closed == nil || !IsFreeze(&s.rule.Spec) || len(s.loose) == 0 {
		return ""
	}
	return fmt.Sprintf("%s; not yet held by their PodDisruptionBudgets: %s (%s)", s.rule.closed.Message, plural.Count(len(s.loose), "node"), someNames(s.loose))
}

// bounded limits a message to what a condition may have.
func bounded(message string) string {
	const most = 1024
	if len(message) <= most {
		return message
	}
	return strings.ToValidUTF8(message[:most-len("…")], "") + "…"
}
