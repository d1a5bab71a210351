// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/kube"
	"github.com/everynode/everynode/internal/nodebudget/budget"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/plural"
	"github.com/everynode/everynode/internal/text"
)

// NodeBudgets is what NodeDisruptionBudgets mean for a node. It follows from their specs, their statuses, the Node, and its seat. If the
// seat and a status contradict each other, the seat counts.
type NodeBudgets struct {
	Node *plan.Node
	// Selecting are the budgets that select the node.
	Selecting []budget.Selecting
	// Seat is the seat of the node; nil if it has none. SeatUnknown is true if seats cannot be read.
	Seat        *budget.Seat
	SeatUnknown bool
	// SeatNamespace is the namespace of seats.
	SeatNamespace string
	Now           time.Time
}

// Limits for what is named in the sentence.
const (
	maxNamedBudgets = 3
	maxNamedHolders = 3
)

// Lines draws the sentence.
func (b NodeBudgets) Lines(width int) []text.Line {
	return text.Wrap(nil, text.Plain, b.Sentence(), width)
}

// Sentence says which budgets limit the node, whether it counts as unavailable or waits, for whom and since when, and what opens next.
func (b NodeBudgets) Sentence() string {
	limiting := b.limiting()
	if len(limiting) == 0 {
		return b.unlimited() + "."
	}
	exempt := ""
	if i := slices.IndexFunc(b.Selecting, func(s budget.Selecting) bool { return !s.ExemptUntil.IsZero() }); i >= 0 {
		exempt = " " + b.exempt(&b.Selecting[i]) + "."
	}
	var names []string
	for _, o := range limiting {
		names = append(names, o.Name)
	}
	verb := "limits"
	if len(names) > 1 {
		verb = "limit"
	}
	s := b.standing(limiting)
	return budgetsNamed(names) + " " + verb + " " + b.Node.Name + ": " + s.text + b.next(limiting, &s) + asOf(limiting) + "." + exempt
}

// exempt says that a budget does not limit the node yet.
func (b NodeBudgets) exempt(s *budget.Selecting) string {
	why := (&budget.Exempt{Nodes: 1, For: budget.JoiningFor}).Why()
	return "NodeDisruptionBudget " + s.Budget.Name + " selects " + b.Node.Name + ", and does not limit it " + until(b.Now, s.ExemptUntil) + why
}

// Exempt says for each NodeDisruptionBudget how many nodes are exempt, until when, why, and how to limit them.
func Exempt(list []budget.Exempt, now time.Time) []string {
	var all []string
	for i := range list[:min(len(list), maxNamedBudgets)] {
		e := &list[i]
		all = append(all, "NodeDisruptionBudget "+e.Budget+": "+e.Text(strings.TrimPrefix(until(now, e.Until), "until ")))
	}
	if more := len(list) - maxNamedBudgets; more > 0 {
		all = append(all, plural.Count(more, "more NodeDisruptionBudget")+" with exempt nodes: kubectl everynode budgets")
	}
	return all
}

// exemptLines draws what Exempt says.
func exemptLines(list []budget.Exempt, now time.Time, width int) []text.Line {
	var lines []text.Line
	for _, said := range Exempt(list, now) {
		lines = append(lines, text.Wrap(label("Note"), text.Warn, said, width)...)
	}
	return lines
}

// limiting are the budgets that limit the node.
func (b NodeBudgets) limiting() []*v1alpha1.NodeDisruptionBudget {
	var all []*v1alpha1.NodeDisruptionBudget
	for _, s := range b.Selecting {
		if !s.Unlimited {
			all = append(all, s.Budget)
		}
	}
	return all
}

// unlimited says why no budget limits the node.
func (b NodeBudgets) unlimited() string {
	if len(b.Selecting) == 0 {
		return "No NodeDisruptionBudget selects " + b.Node.Name
	}
	first := &b.Selecting[0]
	said := "NodeDisruptionBudget " + first.Budget.Name + " selects " + b.Node.Name
	switch {
	case first.Budget.Spec.Enforcement == v1alpha1.BudgetReport:
		return said + ", and only reports (enforcement: Report)"
	case !first.ExemptUntil.IsZero():
		return b.exempt(first)
	}
	return said + ", and does not limit it, because it does not run Linux"
}

func budgetsNamed(names []string) string {
	word := "NodeDisruptionBudget "
	if len(names) > 1 {
		word = "NodeDisruptionBudgets "
	}
	if more := len(names) - maxNamedBudgets; more > 0 {
		names = append(slices.Clone(names[:maxNamedBudgets]), fmt.Sprintf("%d more", more))
	}
	if last := len(names) - 1; last > 0 {
		return word + strings.Join(names[:last], ", ") + " and " + names[last]
	}
	return word + names[0]
}

// nodeStanding is whether a node counts as unavailable or waits.
type nodeStanding struct {
	text               string
	unavailable, waits bool
	// message is why it waits, from the status.
	message string
}

func (b NodeBudgets) standing(limiting []*v1alpha1.NodeDisruptionBudget) nodeStanding {
	counted, waiting, complete := b.told(limiting)
	because := b.evidence()
	requestedBy, since := kube.ReleaseRequest(&kube.Node{Taints: b.Node.Taints, Unschedulable: b.Node.Unschedulable, Deleting: b.Node.Deleting}, b.Now)
	switch seated := b.Seat != nil && because == ""; {
	case because != "" || !seated && counted != nil:
		s := nodeStanding{unavailable: true, text: "it counts as unavailable"}
		if counted != nil {
			s.text += " for " + ago(b.Now, counted.Since.Time)
			because = cmp.Or(counted.By, because)
		}
		s.text += " (" + because + ")"
		return s
	case waiting != nil:
		return nodeStanding{waits: true, message: cmp.Or(waiting.Message, waiting.Reason), text: waits(waiting.By, b.Now, waiting.Since.Time)}
	case requestedBy != "":
		return nodeStanding{waits: true, text: waits(requestedBy, b.Now, since)}
	case !seated && !complete:
		return nodeStanding{text: "whether it counts as unavailable cannot be seen, because the status names only some of the nodes"}
	}
	return nodeStanding{text: "it is available"}
}

func waits(by string, now, since time.Time) string {
	return fmt.Sprintf("it has waited for %s (%s)", ago(now, since), by)
}

// evidence is why the Node and its seat say that it is unavailable; "" if they do not.
func (b NodeBudgets) evidence() string {
	switch {
	case b.Node.Ready != corev1.ConditionTrue:
		return "not Ready"
	case b.SeatUnknown:
		return ""
	case b.Seat == nil:
		return "it has no seat"
	case !b.Seat.Ready && b.Seat.Waiting != "":
		return "its seat does not start: " + b.Seat.Waiting
	case !b.Seat.Ready:
		return "its seat is not ready"
	case b.Seat.Group == budget.PendingGroup:
		return "its new seat does not count yet"
	}
	return ""
}

// told is what the statuses say of the node. complete is false if they do not name all nodes.
func (b NodeBudgets) told(limiting []*v1alpha1.NodeDisruptionBudget) (counted *v1alpha1.UnavailableNode, waiting *v1alpha1.WaitingNode, complete bool) {
	complete = true
	for _, o := range limiting {
		st := &o.Status
		complete = complete && st.ObservedGeneration == o.Generation && int(st.Nodes.Unavailable) <= len(st.Unavailable)
		for i := range st.Unavailable {
			if st.Unavailable[i].Node == b.Node.Name && counted == nil {
				counted = &st.Unavailable[i]
			}
		}
		for i := range st.Waiting {
			if st.Waiting[i].Node == b.Node.Name && waiting == nil {
				waiting = &st.Waiting[i]
			}
		}
	}
	return counted, waiting, complete
}

// next says what must happen before a disruption of the node may begin.
func (b NodeBudgets) next(limiting []*v1alpha1.NodeDisruptionBudget, s *nodeStanding) string {
	closed := b.closed()
	switch {
	case closed != "":
		return "; " + closed + b.breakGlass(s)
	case s.unavailable:
		return "; it counts as available again when it is Ready and uncordoned, no NodeJob disrupts it, and its seat is back"
	}
	full, allowed := fullest(limiting)
	switch {
	case full == nil && allowed < 0:
		return ""
	case full == nil:
		return fmt.Sprintf("; %s may begin%s", plural.Count(allowed, "disruption"), b.closes(limiting))
	}
	said := cmp.Or(s.message, "NodeDisruptionBudget "+full.Name+" allows no disruption now")
	if holders := b.holders(full); holders != "" {
		said += "; next, one of these must be available again: " + holders
	}
	return "; " + said + b.breakGlass(s)
}

// closed says why a budget allows no disruption of any node, and until when. Of several, it is the one that opens last, and when all of
// them are open, if that is later.
func (b NodeBudgets) closed() string {
	var last *hold.Why
	for _, s := range b.Selecting {
		c := cmp.Or(s.Closed, paceOf(s.Budget))
		if c == nil || s.Unlimited {
			continue
		}
		if last == nil || c.Until.IsZero() || !last.Until.IsZero() && c.Until.After(last.Until) {
			last = c
		}
	}
	switch {
	case last == nil:
		return ""
	case last.Until.IsZero():
		return last.Message
	}
	said := last.Message + "; it opens " + b.at(last.Until)
	if together := budget.OpenTogether(b.Selecting, last.Until); together.After(last.Until) {
		said += "; all of them are open at the same time " + b.at(together)
	}
	return said
}

// at says when a time is.
func (b NodeBudgets) at(t time.Time) string {
	return "in " + duration.HumanDuration(t.Sub(b.Now).Round(time.Second)) + ", at " + clock(b.Now, t)
}

// paceOf returns a closure if the status says that the pace is not reached.
func paceOf(o *v1alpha1.NodeDisruptionBudget) *hold.Why {
	c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionReady)
	if c == nil || c.Reason != v1alpha1.ReasonPaceNotReached || o.Status.ObservedGeneration != o.Generation {
		return nil
	}
	return &hold.Why{By: o.Name, Reason: c.Reason, Message: c.Message}
}

// fullest returns a budget that allows no disruption; nil if all allow one. allowed is how many all of them allow, -1 if that is not known.
func fullest(limiting []*v1alpha1.NodeDisruptionBudget) (full *v1alpha1.NodeDisruptionBudget, allowed int32) {
	allowed = -1
	for _, o := range limiting {
		n := o.Status.DisruptionsAllowed
		if o.Status.ObservedGeneration <= 0 || allowed >= 0 && n >= allowed {
			continue
		}
		if allowed = n; n == 0 {
			return o, 0
		}
	}
	return nil, allowed
}

// holders are the nodes that use a budget, those that do so the longest first.
func (b NodeBudgets) holders(o *v1alpha1.NodeDisruptionBudget) string {
	var named []string
	for i := range o.Status.Unavailable {
		if u := &o.Status.Unavailable[i]; i < maxNamedHolders {
			named = append(named, fmt.Sprintf("%s (%s, for %s)", u.Node, u.By, ago(b.Now, u.Since.Time)))
		}
	}
	if more := int(o.Status.Nodes.Unavailable) - len(named); more > 0 && len(named) > 0 {
		named = append(named, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(named, ", ")
}

// closes says when the first window of a budget that is open closes; "" if none does.
func (b NodeBudgets) closes(limiting []*v1alpha1.NodeDisruptionBudget) string {
	var first time.Time
	for _, o := range limiting {
		w := o.Status.Window
		if w != nil && len(o.Spec.Windows) > 0 && b.Now.Before(w.ClosesAt.Time) && (first.IsZero() || w.ClosesAt.Time.Before(first)) {
			first = w.ClosesAt.Time
		}
	}
	if first.IsZero() {
		return ""
	}
	return " " + until(b.Now, first)
}

// breakGlass is the command that releases the node although its budgets do not allow it, if it waits and its seat is known.
func (b NodeBudgets) breakGlass(s *nodeStanding) string {
	if !s.waits || b.Seat == nil || !objectName.MatchString(b.Seat.Name) {
		return ""
	}
	return "; in an emergency, release it: kubectl -n " + b.SeatNamespace + " delete pod " + b.Seat.Name
}

// asOf says that a status is older than the spec.
func asOf(limiting []*v1alpha1.NodeDisruptionBudget) string {
	for _, o := range limiting {
		switch {
		case o.Status.ObservedGeneration <= 0:
			return "; the manager has not observed NodeDisruptionBudget " + o.Name + " yet"
		case o.Status.ObservedGeneration != o.Generation:
			return "; as of before the last change of NodeDisruptionBudget " + o.Name + ", which the manager has not observed yet" + writtenAt(o)
		}
	}
	return ""
}

// writtenAt says when the status was written; "" if it is not known.
func writtenAt(o *v1alpha1.NodeDisruptionBudget) string {
	for _, f := range o.ManagedFields {
		if f.Subresource == "status" && f.Time != nil {
			return " (status of " + f.Time.UTC().Format(time.RFC3339) + ")"
		}
	}
	return ""
}
