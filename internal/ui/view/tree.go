// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"slices"
	"strings"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/plural"
	"github.com/everynode/everynode/internal/text"
)

// Limits of the tree. The table of -o wide has all nodes.
const (
	maxTreeNodes  = 10 // nodes of a state with a line of their own
	maxTreeNames  = 3  // names of nodes that share a line
	maxTreeGroups = 5  // lines for nodes of a step that wait
)

// tree draws the steps of a rollout, and below each its nodes: first those that need a user. It is bounded.
type tree struct {
	Status
	// reason and message are those of the NodeJob, above the tree.
	reason, message string
	// shown are the nodes in the tree, which the sections below it leave out.
	shown map[string]bool
	// left is how many more nodes of a state may have a line of their own.
	left map[plan.State]int
}

// tree draws the rollout as a tree. Without rows, it has only the steps.
func (s Status) tree() *tree {
	_, reason, message, _ := situationAt(s.Job, s.Now)
	left := map[plan.State]int{plan.Failed: maxTreeNodes, plan.Running: maxTreeNodes, plan.Waiting: maxTreeNodes}
	return &tree{Status: s, reason: reason, message: message, shown: map[string]bool{}, left: left}
}

func (t *tree) lines() []text.Line {
	steps := t.Steps()
	rows := make([][]text.Line, 0, len(steps))
	for _, step := range steps {
		name := text.Of("  ").Tone(step.Tone, t.sign(step.state())+" "+step.Name)
		rows = append(rows, []text.Line{name, text.Of(step.Counts), text.Toned(step.Tone, step.State)})
	}
	var lines []text.Line
	for i, line := range text.Table(rows) {
		lines = append(append(lines, line), t.nodes(steps[i].Name)...)
	}
	return section("Steps", lines)
}

// state returns the state of a node that has the same sign as the step.
func (s *Step) state() plan.State {
	switch {
	case s.Tone == text.Bad:
		return plan.Failed
	case s.Tone == text.Active:
		return plan.Running
	case s.Tone == text.Good, s.Waiting == 0 && s.Nodes > 0:
		return plan.Done
	}
	return plan.Waiting
}

// sign returns the sign of a state: without Unicode, the mark that bars have for it.
func (s Status) sign(state plan.State) string {
	if s.Unicode {
		return map[plan.State]string{plan.Done: "✔", plan.Failed: "✖", plan.Running: "●", plan.Waiting: "◌"}[state]
	}
	return map[plan.State]string{plan.Done: "=", plan.Failed: "!", plan.Running: ">", plan.Waiting: "."}[state]
}

// nodes draws the nodes of a step.
func (t *tree) nodes(step string) []text.Line {
	var lines []text.Line
	states := map[plan.State][]*NodeRow{}
	for i := range t.Rows {
		if r := &t.Rows[i]; r.Step == step {
			t.shown[r.State.Name] = true
			states[r.State.State] = append(states[r.State.State], r)
		}
	}
	for _, state := range []plan.State{plan.Failed, plan.Running, plan.Waiting} {
		slices.SortStableFunc(states[state], func(a, b *NodeRow) int { return t.order(a) - t.order(b) })
		var rest []*NodeRow
		for _, r := range states[state] {
			if t.left[state] == 0 || state == plan.Waiting && t.order(r) > 0 {
				rest = append(rest, r)
				continue
			}
			t.left[state]--
			lines = append(lines, t.node(r)...)
		}
		lines = append(lines, t.groups(state, rest)...)
	}
	return append(lines, t.groups(plan.Done, states[plan.Done])...)
}

// order returns the place of a node among those with the same state: 0 if the status says more of it than its reason.
func (t *tree) order(r *NodeRow) int {
	node := r.State.Name
	if t.failureOf(node) != nil || len(t.obstacles(node)) > 0 {
		return 0
	}
	return 1
}

func (t *tree) failureOf(node string) *v1alpha1.NodeFailure {
	for i := range t.Job.Status.Failures {
		if f := &t.Job.Status.Failures[i]; f.Node == node {
			return f
		}
	}
	return nil
}

// node draws a node, and what the status says of it.
func (t *tree) node(r *NodeRow) []text.Line {
	name := r.State.Name
	head := text.Of("    ").Tone(stateTone(r.State.State), t.sign(r.State.State)+" "+name)
	var details []text.Line
	words, attempt := r.State.Reason, t.attempt(name)
	if f := t.failureOf(name); f != nil {
		words = t.failureWords(f)
		if r.State.State == plan.Running {
			details = []text.Line{text.Of("    ").With(words)}
		}
		details = append(details, t.output(f)...)
	} else if r.State.Message != "" && r.State.State != plan.Running && !t.isSaid(r.State.Message, name) {
		words += ": " + r.State.Message
	}
	switch {
	case attempt == nil:
		head = head.With("  " + words)
	case r.State.State == plan.Running:
		head = append(head, attempt...)
	default:
		head = append(head.With("  "+words), attempt...)
	}
	lines := append([]text.Line{head}, t.obstacles(name)...)
	for _, line := range details {
		lines = append(lines, line.Indent(2))
	}
	return lines
}

// isSaid reports whether a message of a node is in the message of the NodeJob, or is that of what the manager cannot do on the node.
func (t *tree) isSaid(message, node string) bool {
	return strings.Contains(t.message, message) || slices.ContainsFunc(t.Job.Status.NodeProblems, func(p v1alpha1.NodeProblem) bool {
		return p.Node == node && p.Message == message
	})
}

// attempt describes the attempt that runs on a node; nil if there is none.
func (t *tree) attempt(node string) text.Line {
	i := slices.IndexFunc(t.Running, func(a Attempt) bool { return a.Node == node })
	if i < 0 {
		return nil
	}
	a := &t.Running[i]
	line := text.Of(fmt.Sprintf("  attempt %s for %s", a.name(), ago(t.Now, a.Created)))
	if note := a.note(t.Now); len(note) > 0 {
		line = append(line.With("  "), note...)
	}
	return line
}

// obstacles says what the manager cannot do on a node, and what blocks its drain.
func (t *tree) obstacles(node string) []text.Line {
	var lines []text.Line
	for i := range t.Job.Status.NodeProblems {
		if p := &t.Job.Status.NodeProblems[i]; p.Node == node {
			line := text.Of("      ").Tone(text.Bad, p.Reason).Tone(text.Dim, " since "+ago(t.Now, p.Since.Time))
			if !strings.Contains(t.message, p.Message) {
				line = line.Tone(text.Dim, ": ").With(p.Message)
			}
			lines = append(lines, line)
		}
	}
	for i := range t.Job.Status.Drains {
		if d := &t.Job.Status.Drains[i]; d.Node == node {
			lines = append(lines, drain(text.Of("      drain "), text.Of("      "), d, t.Now, t.Width)...)
		}
	}
	return lines
}

// groups draws the nodes of a state in a line for each reason, those with most nodes first.
func (t *tree) groups(state plan.State, rows []*NodeRow) []text.Line {
	byReason := map[string][]*NodeRow{}
	var reasons []string
	for _, r := range rows {
		reason := r.reason()
		if len(byReason[reason]) == 0 {
			reasons = append(reasons, reason)
		}
		byReason[reason] = append(byReason[reason], r)
	}
	slices.SortStableFunc(reasons, func(a, b string) int { return len(byReason[b]) - len(byReason[a]) })
	var lines []text.Line
	for i, reason := range reasons {
		if i == maxTreeGroups {
			more := 0
			for _, reason := range reasons[i:] {
				more += len(byReason[reason])
			}
			return append(lines, text.Toned(text.Dim, "      and "+plural.Count(more, "other node")+": -o wide shows all"))
		}
		lines = append(lines, t.group(state, reason, byReason[reason]))
	}
	return lines
}

// group draws nodes with the same state and reason. The first of them says why it waits, unless the whole NodeJob waits for it.
func (t *tree) group(state plan.State, reason string, rows []*NodeRow) text.Line {
	var names []string
	for _, r := range rows[:min(len(rows), maxTreeNames)] {
		names = append(names, r.State.Name)
	}
	said := strings.Join(names, ", ")
	if more := len(rows) - len(names); more > 0 {
		said += fmt.Sprintf(" and %d more", more)
	}
	shown := judgedState(state, reason)
	line := text.Of("    ").Tone(stateTone(shown), t.sign(shown)+" ").With(said)
	if state == plan.Done && reason == v1alpha1.ReasonDone {
		return line
	}
	line = line.Tone(text.Dim, "  "+reason)
	common := reason == t.reason || reason == v1alpha1.ReasonWaitingForStep
	if message := rows[0].State.Message; (shown != state || state == plan.Waiting && !common) && message != "" {
		line = line.Tone(text.Dim, ": "+message)
	}
	return line
}
