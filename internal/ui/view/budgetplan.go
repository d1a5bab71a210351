// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodebudget/budget"
	"github.com/everynode/everynode/internal/plural"
	"github.com/everynode/everynode/internal/text"
)

// BudgetPlan is what a NodeDisruptionBudget of a file would mean for the cluster.
type BudgetPlan struct {
	Budget  *v1alpha1.NodeDisruptionBudget
	Outlook budget.Outlook
	// Exists is true if the budget exists, maybe with another spec.
	Exists bool
	Notes  []string
	Now    time.Time
	// Width is the number of columns; 0 for no limit.
	Width int
}

// maxGroups is how many values of a topology key are shown.
const maxGroups = 8

// Lines draws the plan.
func (p BudgetPlan) Lines() []text.Line {
	what := "  new"
	if p.Exists {
		what = "  exists"
	}
	lines := []text.Line{
		label("Budget").Tone(text.Strong, "NodeDisruptionBudget "+p.Budget.Name).With(what), label("").Tone(text.Dim, "a dry run: nothing has been changed"),
	}
	for _, note := range p.Notes {
		lines = append(lines, p.line("Note", text.Warn, note)...)
	}
	o := &p.Outlook
	selects := plural.Count(o.Selected, "node")
	if o.Exempt.Nodes > 0 {
		selects += "; " + o.Exempt.Text(clock(p.Now, o.Exempt.Until))
	}
	lines = append(lines, p.line("Selects", text.Plain, selects)...)
	for _, l := range o.Limits {
		lines = append(lines, p.line("Limit", text.Plain, groupsText(l)+" may be unavailable")...)
	}
	return append(append(lines, p.now()...), p.times()...)
}

func (p BudgetPlan) line(name string, tone text.Tone, s string) []text.Line {
	return text.Wrap(label(name), tone, s, p.Width)
}

// now says whether a disruption may begin now.
func (p BudgetPlan) now() []text.Line {
	switch o := &p.Outlook; {
	case o.Closed == nil && len(p.Budget.Spec.Requirements) > 0:
		return p.line("Now", text.Plain, "open, if its requirements are met, which this plan does not check")
	case o.Closed == nil:
		return p.line("Now", text.Plain, "open")
	case o.Invalid:
		return p.line("Now", text.Bad, o.Closed.Message)
	default:
		return p.line("Now", text.Warn, o.Closed.Message)
	}
}

// times are the next windows, and those that other budgets have at the same time.
func (p BudgetPlan) times() []text.Line {
	var lines []text.Line
	name := "Windows"
	for _, s := range p.Outlook.Windows {
		lines = append(lines, p.line(name, text.Plain, p.window(s))...)
		name = ""
	}
	for _, c := range p.Outlook.Common {
		if c.Next.IsZero() {
			lines = append(lines, p.line("Never", text.Bad, "not open at the same time as NodeDisruptionBudget "+c.Budget+" within a year, so no disruption of the nodes of both begins")...)
			continue
		}
		lines = append(lines, p.line("Common", text.Plain, "open at the same time as NodeDisruptionBudget "+c.Budget+" next at "+p.zoned(c.Next))...)
	}
	return lines
}

// BudgetPlanData is a BudgetPlan for programs. Times are in UTC.
type BudgetPlanData struct {
	Name     string `json:"name"`
	Exists   bool   `json:"exists"`
	Selected int    `json:"selectedNodes"`
	Joining  int    `json:"joiningNodes"`
	// Closed is why no disruption may begin now; absent if one may.
	Closed  string             `json:"closed,omitempty"`
	Limits  []BudgetLimitData  `json:"limits"`
	Windows []BudgetWindowData `json:"windows"`
	Notes   []string           `json:"notes,omitempty"`
}

// BudgetLimitData is the nodes for which a limit counts together.
type BudgetLimitData struct {
	TopologyKey    string `json:"topologyKey,omitempty"`
	Value          string `json:"value,omitempty"`
	Nodes          int    `json:"nodes"`
	MaxUnavailable int    `json:"maxUnavailable"`
}

// BudgetWindowData is a window. A time that is not known is absent.
type BudgetWindowData struct {
	OpensAt  time.Time `json:"opensAt,omitzero"`
	ClosesAt time.Time `json:"closesAt,omitzero"`
}

// Data returns the plan for programs.
func (p BudgetPlan) Data() BudgetPlanData {
	o := &p.Outlook
	d := BudgetPlanData{
		Name: p.Budget.Name, Exists: p.Exists, Selected: o.Selected, Joining: o.Exempt.Nodes, Limits: []BudgetLimitData{},
		Windows: []BudgetWindowData{}, Notes: p.Notes,
	}
	if o.Closed != nil {
		d.Closed = o.Closed.Message
	}
	for _, l := range o.Limits {
		for _, g := range l.Groups {
			d.Limits = append(d.Limits, BudgetLimitData{l.Limit.TopologyKey, g.Value, g.Nodes, g.Most})
		}
	}
	for _, s := range o.Windows {
		d.Windows = append(d.Windows, BudgetWindowData(s))
	}
	return d
}

func (p BudgetPlan) zoned(t time.Time) string {
	return t.In(p.Outlook.Zone).Format("Mon 2006-01-02 15:04 MST")
}

// window says when a window is open, in the time zone of the windows.
func (p BudgetPlan) window(s budget.Span) string {
	switch {
	case s.OpensAt.IsZero():
		return "until " + p.zoned(s.ClosesAt)
	case s.ClosesAt.IsZero():
		return "from " + p.zoned(s.OpensAt)
	}
	text := p.zoned(s.OpensAt) + " to " + p.zoned(s.ClosesAt) + ", " + duration.HumanDuration(s.ClosesAt.Sub(s.OpensAt))
	if !p.Now.Before(s.OpensAt) {
		text += ", open now"
	}
	return text
}

func groupsText(l budget.LimitOutlook) string {
	var parts []string
	for i, g := range l.Groups {
		if i == maxGroups {
			parts = append(parts, "…")
			break
		}
		value := ""
		if l.Limit.TopologyKey != "" {
			value = " with " + l.Limit.TopologyKey + "=" + g.Value
			if g.Value == "" {
				value = " without the label " + l.Limit.TopologyKey
			}
		}
		parts = append(parts, fmt.Sprintf("%d of %s%s", g.Most, plural.Count(g.Nodes, "node"), value))
	}
	return strings.Join(parts, "; ")
}
