// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodebudget/budget"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/plural"
	"github.com/everynode/everynode/internal/text"
)

// Budgets is a list of NodeDisruptionBudgets.
type Budgets struct {
	Items []v1alpha1.NodeDisruptionBudget
	Now   time.Time
	// Width is the number of columns; 0 for no limit.
	Width int
}

// Lines draws a table of the budgets, and below it, for each budget, the nodes that use it or wait for it.
func (l Budgets) Lines() []text.Line {
	c := l.columns()
	rows := [][]text.Line{c.row(text.Cells("NAME", "NODES", "UNAVAILABLE", "WAITING", "ALLOWED", "STATUS"), "WINDOW", "EXPIRES")}
	sections := make([][]text.Line, 1, len(l.Items)+1)
	for i := range l.Items {
		b := Budget{Budget: &l.Items[i], Now: l.Now, Width: l.Width}
		r := b.Row()
		cells := append(text.Cells(r.Name, r.Nodes, r.Unavailable, r.Waiting, r.Allowed), text.Toned(r.Tone, r.State))
		rows = append(rows, c.row(cells, r.Window, r.Expires))
		sections = append(sections, b.section())
	}
	sections[0] = text.Table(rows)
	return joined(sections...)
}

// budgetColumns are the columns that are only shown if a budget has a value for them.
type budgetColumns struct{ window, expires bool }

func (l Budgets) columns() budgetColumns {
	var c budgetColumns
	for i := range l.Items {
		spec := &l.Items[i].Spec
		c.window, c.expires = c.window || len(spec.Windows) > 0, c.expires || spec.ExpiresAt != nil
	}
	return c
}

// row adds the cells of these columns to a row.
func (c budgetColumns) row(cells []text.Line, window, expires string) []text.Line {
	if c.window {
		cells = append(cells, text.Of(window))
	}
	if c.expires {
		cells = append(cells, text.Of(expires))
	}
	return cells
}

// Budget is a NodeDisruptionBudget.
type Budget struct {
	Budget *v1alpha1.NodeDisruptionBudget
	Now    time.Time
	// Width is the number of columns; 0 for no limit.
	Width int
}

// Lines draws the budget with its rules and its nodes.
func (b Budget) Lines() []text.Line {
	name := label("Budget").Tone(text.Strong, b.Budget.Name).Tone(text.Dim, "  created ").With(ago(b.Now, b.Budget.CreationTimestamp.Time) + " ago")
	state := b.state()
	return joined(append([]text.Line{name, label("Status").Tone(state.tone, state.reason)}, b.rules("")...), b.requirements(), b.nodes())
}

// requirements has what the budget requires; nothing without requirements.
func (b Budget) requirements() []text.Line {
	list := b.Budget.Status.Requirements
	if len(list) == 0 {
		return nil
	}
	tones := map[v1alpha1.RequirementState]text.Tone{
		v1alpha1.RequirementMet: text.Good, v1alpha1.RequirementNotMet: text.Warn, v1alpha1.RequirementUnknown: text.Bad,
	}
	rows := [][]text.Line{text.Cells("  REQUIREMENT", "STATE", "SINCE")}
	for i := range list {
		r := &list[i]
		rows = append(rows, []text.Line{text.Of("  " + r.Name), text.Toned(tones[r.State], string(r.State)), text.Of(ago(b.Now, r.Since.Time))})
	}
	table := text.Table(rows)
	lines := table[:1:1]
	for i, row := range table[1:] {
		lines = append(lines, row)
		if message := list[i].Message; message != "" {
			lines = append(lines, text.Wrap(text.Of("    "), text.Plain, message, b.Width)...)
		}
	}
	return lines
}

// BudgetRow is a budget in a list. Numbers are "" if they are not known.
type BudgetRow struct {
	Name, Nodes, Allowed, Unavailable, Waiting string
	// State is the reason of the condition that is True, and Message describes it.
	State, Message string
	Tone           text.Tone
	// Window says for how long a window is open, or when the next one opens, and Expires when the budget ends; "" if it has none.
	Window, Expires string
}

// Row returns the budget as in a list.
func (b Budget) Row() BudgetRow {
	state := b.state()
	r := BudgetRow{Name: b.Budget.Name, State: state.reason, Message: state.message, Tone: state.tone, Window: b.window(), Expires: b.expires()}
	if b.Budget.Spec.Enforcement == v1alpha1.BudgetReport {
		r.State += " (Audit)"
	}
	if !b.neverObserved() {
		n := b.Budget.Status.Nodes
		r.Nodes, r.Allowed, r.Unavailable, r.Waiting = number(n.Total), number(b.Budget.Status.DisruptionsAllowed), number(n.Unavailable), number(n.Waiting)
	}
	return r
}

// neverObserved reports whether the counts of the status are not known.
func (b Budget) neverObserved() bool { return b.Budget.Status.ObservedGeneration <= 0 }

// budgetState is the state of a budget.
type budgetState struct {
	tone            text.Tone
	reason, message string
}

// state returns the state of the budget, from the status unless the status cannot be current.
func (b Budget) state() budgetState {
	o := b.Budget
	switch at := o.Spec.ExpiresAt; {
	case !o.DeletionTimestamp.IsZero():
		return budgetState{text.Warn, reasonDeleting, "it is being deleted"}
	case at != nil && !b.Now.Before(at.Time):
		return budgetState{text.Dim, v1alpha1.ReasonExpired, "it expired at " + clock(b.Now, at.Time) + ", and has no effect any more"}
	case o.Status.ObservedGeneration != o.Generation:
		return budgetState{text.Warn, reasonNotObserved, b.unobserved()}
	}
	tones := map[string]text.Tone{v1alpha1.ConditionStalled: text.Bad, v1alpha1.ConditionReconciling: text.Active, v1alpha1.ConditionReady: text.Warn}
	for kind, tone := range tones { // at most one of them is True
		c := meta.FindStatusCondition(o.Status.Conditions, kind)
		if c == nil || c.Status != metav1.ConditionTrue {
			continue
		}
		if c.Reason == v1alpha1.ReasonBudgetOpen {
			tone = text.Good
		}
		return budgetState{tone, c.Reason, c.Message}
	}
	return budgetState{text.Warn, reasonNotObserved, "its status has no condition"}
}

// unobserved says that the manager has not observed the budget, or its last change.
func (b Budget) unobserved() string {
	what := "its last change yet; the following is older"
	if b.neverObserved() {
		what = "it yet"
	}
	return "the manager has not observed " + what + ". If this lasts, check that it is running: " + CheckManager
}

// window says for how long a window is open, or when the next one opens.
func (b Budget) window() string {
	w := b.Budget.Status.Window
	switch {
	case w == nil || len(b.Budget.Spec.Windows) == 0:
		return ""
	case b.Now.Before(w.OpensAt.Time):
		return "opens in " + timeTo(b.Now, w.OpensAt.Time)
	case w.ClosesAt.IsZero():
		return "open"
	case b.Now.Before(w.ClosesAt.Time):
		return "open for " + timeTo(b.Now, w.ClosesAt.Time)
	}
	return "closed"
}

// windowTime is the time at which a window opens, or until which it is open; "" if that is not known.
func (b Budget) windowTime() string {
	switch w := b.Budget.Status.Window; {
	case b.Now.Before(w.OpensAt.Time):
		return ", at " + clock(b.Now, w.OpensAt.Time) + budget.InZone(&b.Budget.Spec, w.OpensAt.Time)
	case b.Now.Before(w.ClosesAt.Time):
		return ", until " + clock(b.Now, w.ClosesAt.Time) + budget.InZone(&b.Budget.Spec, w.ClosesAt.Time)
	}
	return ""
}

func (b Budget) expires() string {
	at := b.Budget.Spec.ExpiresAt
	switch {
	case at == nil:
		return ""
	case b.Now.Before(at.Time):
		return "in " + timeTo(b.Now, at.Time)
	}
	return ago(b.Now, at.Time) + " ago"
}

// timeTo returns the time from now until another time.
func timeTo(now, at time.Time) string { return duration.HumanDuration(at.Sub(now).Round(time.Second)) }

// section has the state and the nodes of the budget below its name; nothing if no node is exempt, unavailable or waits.
func (b Budget) section() []text.Line {
	nodes := b.nodes()
	if len(nodes) == 0 && b.Budget.Status.Nodes.Exempt == 0 {
		return nil
	}
	lines := []text.Line{text.Toned(text.Strong, b.Budget.Name)}
	lines = append(lines, text.Wrap(text.Of("  "), text.Plain, b.state().message, b.Width)...)
	return append(lines, nodes...)
}

// BudgetNode is a node that uses a budget, or waits for it.
type BudgetNode struct {
	Node, State string
	Tone        text.Tone
	// Since is for how long, and By who or what disrupts the node or wants to.
	Since, By string
	// Why is why it waits; "" if the next node waits for the same reason, which is said there.
	Why string
}

// Nodes returns the nodes that the status lists: first those that use the budget, then those that wait for it.
func (b Budget) Nodes() []BudgetNode {
	st := &b.Budget.Status
	nodes := make([]BudgetNode, 0, len(st.Unavailable)+len(st.Waiting))
	for i := range st.Unavailable {
		n := &st.Unavailable[i]
		nodes = append(nodes, BudgetNode{n.Node, "unavailable", text.Active, ago(b.Now, n.Since.Time), n.By, ""})
	}
	for i := range st.Waiting {
		n := &st.Waiting[i]
		nodes = append(nodes, BudgetNode{n.Node, "waiting", text.Warn, ago(b.Now, n.Since.Time), n.By, b.why(i)})
	}
	return nodes
}

// NotListed says how many nodes the status counts and does not list; "" for those of which it lists all.
func (b Budget) NotListed() (unavailable, waiting string) {
	st := &b.Budget.Status
	return notListed(st.Nodes.Unavailable, len(st.Unavailable), "unavailable"), notListed(st.Nodes.Waiting, len(st.Waiting), "waiting")
}

// nodes draws the nodes.
func (b Budget) nodes() []text.Line {
	nodes := b.Nodes()
	if len(nodes) == 0 {
		return nil
	}
	rows := [][]text.Line{text.Cells("  NODE", "STATE", "SINCE", "BY")}
	for _, n := range nodes {
		rows = append(rows, []text.Line{text.Of("  " + n.Node), text.Toned(n.Tone, n.State), text.Of(n.Since), text.Of(n.By)})
	}
	table, used := text.Table(rows), 1+len(b.Budget.Status.Unavailable)
	unavailable, waiting := b.NotListed()
	lines := append(slices.Clone(table[:used]), dimmed(unavailable)...)
	for i, line := range table[used:] {
		lines = append(lines, line)
		if why := nodes[used-1+i].Why; why != "" {
			lines = append(lines, text.Wrap(text.Of("    "), text.Plain, why, b.Width)...)
		}
	}
	return append(lines, dimmed(waiting)...)
}

// why says why the i-th node waits. If the next node waits for the same reason, it is said there.
func (b Budget) why(i int) string {
	message := func(n *v1alpha1.WaitingNode) string { return cmp.Or(n.Message, n.Reason) }
	waiting := b.Budget.Status.Waiting
	if said := message(&waiting[i]); i+1 == len(waiting) || message(&waiting[i+1]) != said {
		return said
	}
	return ""
}

func notListed(counted int32, listed int, state string) string {
	if more := int(counted) - listed; more > 0 {
		return fmt.Sprintf("and %d more %s", more, state)
	}
	return ""
}

// dimmed is a line below a table; nothing for "".
func dimmed(said string) []text.Line {
	if said == "" {
		return nil
	}
	return []text.Line{text.Toned(text.Dim, "  "+said)}
}

// Rules describes the rules of the budget, and what its state means, for below a heading with its name and its state.
func (b Budget) Rules() []text.Line { return b.rules("Status") }

// rules puts what the state means below a label.
func (b Budget) rules(below string) []text.Line {
	o, message := b.Budget, b.state().message
	var lines []text.Line
	if message != "" {
		lines = b.wrapped(below, message)
	}
	for _, field := range []struct{ name, value string }{
		{"Why", unlessIn(message, o.Spec.Description)},
		{"Spec", b.changed()},
		{"Nodes", b.counts()},
		{"Selects", b.selector()},
		{"Applies", appliesTo[o.Spec.AppliesTo]},
		{"Limits", b.limits()},
		{"Windows", b.windows()},
		{"Except", b.except()},
		{"Pace", b.pace()},
		{"Joining", joining[o.Spec.JoiningNodes]},
		{"Enforced", enforcement[o.Spec.Enforcement]},
		{"Expires", b.ends()},
	} {
		if field.value != "" {
			lines = append(lines, b.wrapped(field.name, field.value)...)
		}
	}
	return lines
}

// unlessIn returns a text unless another one has it already.
func unlessIn(said, text string) string {
	if strings.Contains(said, text) {
		return ""
	}
	return text
}

func (b Budget) wrapped(name, value string) []text.Line {
	return text.Wrap(label(name), text.Plain, value, b.Width)
}

// What the values of the fields mean; "" for those that need no explanation.
var (
	appliesTo = map[v1alpha1.BudgetAppliesTo]string{
		v1alpha1.AppliesToDisruptions: "Disruptions: drains, and NodeJobs that cordon, drain or reboot",
		v1alpha1.AppliesToAllTasks:    "AllTasks: while it is closed, no NodeJob starts anything either",
	}
	joining = map[v1alpha1.JoiningNodes]string{
		v1alpha1.JoiningNodesIncluded: "Included: it also applies to nodes that were created less than 10 minutes ago",
	}
	enforcement = map[v1alpha1.BudgetEnforcement]string{v1alpha1.BudgetReport: "no: with Report, it only reports"}
)

func (b Budget) changed() string {
	if by := record.ChangedBy(b.Budget.Annotations); by != "" {
		return "last changed by " + by
	}
	return ""
}

func (b Budget) counts() string {
	n := b.Budget.Status.Nodes
	if b.neverObserved() {
		return ""
	}
	s := fmt.Sprintf("%d selected", n.Total)
	if n.Exempt > 0 {
		s += fmt.Sprintf(", of which %d joining", n.Exempt)
	}
	return s + fmt.Sprintf(", %d unavailable, %d waiting; %s may begin", n.Unavailable, n.Waiting, plural.Count(b.Budget.Status.DisruptionsAllowed, "disruption"))
}

func (b Budget) selector() string {
	if b.Budget.Spec.Selector == nil {
		return "all nodes"
	}
	return metav1.FormatLabelSelector(b.Budget.Spec.Selector)
}

func (b Budget) limits() string {
	var all []string
	for _, l := range b.Budget.Spec.Limits {
		s := "maxUnavailable "
		if l.MaxUnavailable != nil {
			s += l.MaxUnavailable.String()
		}
		if l.TopologyKey != "" {
			s += " for each " + l.TopologyKey
		}
		all = append(all, s)
	}
	return strings.Join(all, "; ")
}

func (b Budget) windows() string {
	var all []string
	for _, w := range b.Budget.Spec.Windows {
		all = append(all, fmt.Sprintf("%q %s, for %s", w.Schedule, cmp.Or(b.Budget.Spec.TimeZone, "UTC"), seconds(w.DurationSeconds)))
	}
	if now := b.window(); now != "" {
		all = append(all, now+b.windowTime())
	}
	return strings.Join(all, "; ")
}

func (b Budget) except() string {
	dates := strings.Join(b.Budget.Spec.ExceptDates, ", ")
	if dates != "" && len(b.Budget.Spec.Windows) == 0 {
		dates += " " + cmp.Or(b.Budget.Spec.TimeZone, "UTC")
	}
	return dates
}

func (b Budget) pace() string {
	if s := b.Budget.Spec.PaceSeconds; s != nil && *s > 0 {
		return seconds(*s) + " between the end of a disruption and the next"
	}
	return ""
}

func (b Budget) ends() string {
	if b.Budget.Spec.ExpiresAt == nil {
		return ""
	}
	return b.expires() + ", at " + clock(b.Now, b.Budget.Spec.ExpiresAt.Time)
}

func seconds(n int32) string { return duration.HumanDuration(time.Duration(n) * time.Second) }
