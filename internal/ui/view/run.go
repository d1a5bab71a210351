// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"strings"
	"time"

	"github.com/everynode/everynode/internal/plural"
	"github.com/everynode/everynode/internal/text"
)

// RunState is the state of a node for a command that runs once.
type RunState uint8

// States of a node. RunSucceeded and all later states are final.
const (
	// RunWaiting means that the node waits for a slot.
	RunWaiting RunState = iota
	// RunRunning means that the node has a pod that has not ended.
	RunRunning
	// RunSucceeded means that the command ended with exit code 0.
	RunSucceeded
	// RunFailed means that the node failed.
	RunFailed
	// RunUnreachable means that the node is unreachable.
	RunUnreachable
	// RunDeleted means that the Node was deleted.
	RunDeleted
	// RunNotRun means that the command was not run on the node.
	RunNotRun
)

// Final reports whether the state does not change any more.
func (s RunState) Final() bool { return s >= RunSucceeded }

// RunNode is one of the nodes.
type RunNode struct {
	Name  string
	State RunState
	// ExitCode of a command that failed; nil if the command did not end by itself.
	ExitCode *int32
	Reason   string
	// Said is the last line of the output, or the reason why the command has not started.
	Said string
	// Since is when the pod was created.
	Since time.Time
}

// Run is the state of a command that runs once on some nodes.
type Run struct {
	// Namespace and Name of the NodeJob.
	Namespace, Name string
	// Command is what runs, and Selection how its nodes were selected.
	Command, Selection string
	// Nodes, sorted by name.
	Nodes      []RunNode
	Began, Now time.Time
	// Width is the number of columns; 0 for no limit.
	Width int
	// Note is what the run waits for; "" if it only waits for its nodes.
	Note string
}

const (
	// maxRunFailures limits the failed nodes in the live view. maxRunLeft limits the remaining nodes in the final view.
	maxRunFailures = 5
	maxRunLeft     = 50
	runLabel       = 14
	// maxEndText limits the command and the selection in the final view, in characters.
	maxEndText = 300
	endLabel   = 9
)

// runStates are the words for each state, in the order in which they are shown.
var runStates = []struct {
	state RunState
	word  string
	tone  text.Tone
	mark  byte
}{
	{RunSucceeded, "succeeded", text.Good, '='},
	{RunFailed, "failed", text.Bad, '!'},
	{RunUnreachable, "unreachable", text.Bad, '?'},
	{RunDeleted, "deleted", text.Warn, '-'},
	{RunNotRun, "not run", text.Warn, '-'},
	{RunRunning, "running", text.Active, '>'},
	{RunWaiting, "waiting", text.Dim, '.'},
}

// Count returns how many nodes are in a state.
func (r Run) Count(state RunState) int {
	n := 0
	for i := range r.Nodes {
		if r.Nodes[i].State == state {
			n++
		}
	}
	return n
}

// counted returns, for example, "12 of 47 succeeded, 1 failed, 4 running". Failures come early, so that no terminal
// cuts them off.
func (r Run) counted() text.Line {
	line := text.Of(fmt.Sprintf("%d of %d ", r.Count(RunSucceeded), len(r.Nodes))).Tone(text.Good, "succeeded")
	for _, s := range runStates[1:] {
		if n := r.Count(s.state); n > 0 {
			line = line.With(fmt.Sprintf(", %d ", n)).Tone(s.tone, s.word)
		}
	}
	return line
}

// Frame draws a run in progress in a few lines, regardless of the number of nodes.
func (r Run) Frame() []text.Line {
	columns := narrowBar
	if r.Width >= wideEnough {
		columns = barColumns
	}
	parts := make([]text.Part, 0, len(runStates))
	for _, s := range runStates {
		parts = append(parts, text.Part{Count: r.Count(s.state), Mark: s.mark, Tone: s.tone})
	}
	head := append(text.Bar(columns, parts...), text.Of(" ")...)
	head = append(head, r.counted()...)
	lines := []text.Line{head.Tone(text.Dim, "  "+ago(r.Now, r.Began))}
	if line := r.running(); line != nil {
		lines = append(lines, line)
	}
	lines = append(lines, r.failed(maxRunFailures)...)
	if r.Note != "" {
		lines = append(lines, text.Wrap(runHead(text.Warn, "note"), text.Plain, r.Note, r.Width)...)
	}
	return lines
}

func runHead(tone text.Tone, word string) text.Line {
	return text.Of("  ").Tone(tone, fmt.Sprintf("%-*s", runLabel-2, word))
}

// running names as many running nodes as fit. Nodes whose container has not started come first.
func (r Run) running() text.Line {
	line, shown, total := runHead(text.Active, "running"), 0, r.Count(RunRunning)
	if total == 0 {
		return nil
	}
	for _, stuck := range []bool{true, false} {
		for i := range r.Nodes {
			n := &r.Nodes[i]
			if n.State != RunRunning || (n.Said != "") != stuck {
				continue
			}
			word := n.Name + " " + ago(r.Now, n.Since)
			if n.Said != "" {
				word += " (" + n.Said + ")"
			}
			if shown > 0 {
				word = ", " + word
			}
			const andMore = 14 // width of " and 3000 more"
			if shown > 0 && r.Width > 0 && line.Width()+text.Width(word)+andMore > r.Width {
				return line.Tone(text.Dim, fmt.Sprintf(" and %d more", total-shown))
			}
			line, shown = line.With(word), shown+1
		}
	}
	return line
}

// failed returns at most n nodes that did not succeed.
func (r Run) failed(most int) []text.Line {
	var lines []text.Line
	total := 0
	for _, s := range runStates {
		for i := range r.Nodes {
			n := &r.Nodes[i]
			if n.State != s.state || s.state <= RunSucceeded {
				continue
			}
			if total++; total <= most {
				lines = append(lines, runHead(s.tone, s.word).Tone(text.Strong, n.Name).With(n.why()))
			}
		}
	}
	if total > most {
		lines = append(lines, runHead(text.Dim, "").Tone(text.Dim, fmt.Sprintf("and %d more", total-most)))
	}
	return lines
}

// why returns the reason why a node did not succeed.
func (n *RunNode) why() string {
	var parts []string
	if n.ExitCode != nil {
		parts = append(parts, fmt.Sprintf("exit code %d", *n.ExitCode))
	}
	// The exit code already tells that a task failed.
	if n.Reason != "" && (n.ExitCode == nil || n.Reason != "TaskFailed") {
		parts = append(parts, n.Reason)
	}
	if n.Said != "" {
		parts = append(parts, n.Said)
	}
	if len(parts) == 0 {
		return ""
	}
	return ": " + strings.Join(parts, ": ")
}

// Summary returns the progress in one line. It changes with the state, but not with time.
func (r Run) Summary() text.Line {
	line := text.Of(r.Name + "  ")
	line = append(line, r.counted()...)
	if r.Note != "" {
		line = line.With("; " + r.Note)
	}
	return line
}

// End draws the result, in a form that can be copied into a ticket: how the run ended, what ran, where and when.
func (r Run) End() []text.Line {
	lines := []text.Line{r.counted().Tone(text.Dim, " in "+ago(r.Now, r.Began))}
	lines = append(lines, r.failed(maxRunLeft)...)
	nodes := fmt.Sprintf("%s (%s)", r.Selection, plural.Count(len(r.Nodes), "node"))
	for _, field := range [][2]string{{"Command", r.Command}, {"Nodes", nodes}, {"Time", span(r.Began, r.Now)}, {"NodeJob", r.Namespace + "/" + r.Name}} {
		lines = append(lines, r.endField(field[0], cutText(field[1], maxEndText))...)
	}
	return lines
}

// endField returns a field of the result. Only a text that does not fit is wrapped, because that changes its spaces.
func (r Run) endField(label, value string) []text.Line {
	head := text.Of(fmt.Sprintf("%-*s", endLabel, label))
	if line := head.With(value); line.Width() <= r.Width {
		return []text.Line{line}
	}
	return text.Wrap(head, text.Plain, value, r.Width)
}

// span returns a period of time, in UTC.
func span(from, to time.Time) string {
	from, to = from.UTC(), to.UTC()
	end := time.TimeOnly
	if from.Format(time.DateOnly) != to.Format(time.DateOnly) {
		end = time.DateTime
	}
	return from.Format(time.DateTime) + " to " + to.Format(end) + " UTC"
}

// cutText returns at most the first characters of a text.
func cutText(s string, most int) string {
	runes := []rune(text.Safe(s))
	if len(runes) <= most {
		return string(runes)
	}
	return string(runes[:most-1]) + "…"
}
