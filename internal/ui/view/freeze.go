// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/plural"
	"github.com/everynode/everynode/internal/text"
)

// Freeze is a NodeDisruptionBudget that allows nothing at this time, and that a user must end or correct.
type Freeze struct {
	Budget *v1alpha1.NodeDisruptionBudget
	// Mistake is why it allows nothing until it is corrected; "" for a freeze.
	Mistake string
	// Nodes is the number of nodes that it selects; 0 if it is not known.
	Nodes int
	// Node is the name of the node that is meant; "" if all selected nodes are.
	Node string
}

const (
	frozen = "Frozen"
	closed = "Closed"
	// maxFreezes limits how many freezes are shown.
	maxFreezes = 3
)

// Sentence says what the freeze holds, until when, and who has created it.
func (f Freeze) Sentence(now time.Time) string { return f.head() + " " + f.rest(now) }

// head is the first word of the sentence.
func (f Freeze) head() string {
	if f.Mistake != "" {
		return closed
	}
	return frozen
}

// rest is the sentence without its first word.
func (f Freeze) rest(now time.Time) string {
	if f.Mistake != "" {
		return "until it is corrected: " + f.Mistake
	}
	s := f.Until(now)
	if by := record.ChangedBy(f.Budget.Annotations); by != "" {
		s += " by " + by
	}
	if reason := f.Budget.Spec.Description; reason != "" {
		s += ": " + reason
	}
	return s + " (NodeDisruptionBudget " + f.Budget.Name + "): " + f.Holds()
}

// Until says when the freeze ends.
func (f Freeze) Until(now time.Time) string {
	if at := f.Budget.Spec.ExpiresAt; at != nil {
		return until(now, at.Time)
	}
	return "without an end"
}

// Holds says what the freeze holds, and where.
func (f Freeze) Holds() string {
	what := "no disruption begins"
	if f.Budget.Spec.AppliesTo == v1alpha1.AppliesToAllTasks {
		what = "nothing starts"
	}
	switch {
	case f.Node != "":
		return what + " on " + f.Node
	case f.Nodes > 0:
		return what + " on " + plural.Count(f.Nodes, "node")
	}
	return what + " on the nodes that it selects"
}

// Freezes draws the freezes, one sentence for each.
func Freezes(freezes []Freeze, now time.Time, width int) []text.Line {
	var lines []text.Line
	for _, f := range freezes[:min(len(freezes), maxFreezes)] {
		lines = append(lines, text.Wrap(text.Toned(text.Warn, f.head()+" "), text.Plain, f.rest(now), width)...)
	}
	if more := len(freezes) - maxFreezes; more > 0 {
		lines = append(lines, text.Toned(text.Dim, fmt.Sprintf("and %d more: kubectl everynode budgets", more)))
	}
	return lines
}
