// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"strings"
	"time"

	"github.com/everynode/everynode/internal/cli/text"
)

// RunState is how far a node is under a command that runs once.
type RunState uint8

// States of a node. Those from RunSucceeded on are final.
const (
	// RunWaiting : its turn has not come.
	RunWaiting RunState = iota
	// RunRunning : it has a pod that has not ended.
	RunRunning
	// RunSucceeded : the command has ended with 0.
	RunSucceeded
	// RunFailed : it has failed for good.
	RunFailed
	// RunUnreachable : the node is unreachable.
	RunUnreachable
	// RunDeleted : the Node is gone.
	RunDeleted
	// RunNotRun : it did not come to run there.
	RunNotRun
)

// Final is true for a state that does not change any more.
func (s RunState) Final() bool { return s >= RunSucceeded }

// RunNode is one of the nodes.
type RunNode struct {
	Name  string
	State RunState
	// ExitCode of a command that has failed; nil when it never ended by itself.
	ExitCode *int32
	Reason   string
	// Said is the last line of what it printed, or why it has not started.
	Said string
	// Since is when its pod was made.
	Since time.Time
}

// Run is what there is to see of a command that runs once on some nodes.
type Run struct {
	// Name of the NodeJob.
	Name string
	// Nodes in the order of their names.
	Nodes      []RunNode
	Began, Now time.Time
	// Width is how many columns there are; 0 for as many as it takes.
	Width int
	// Note is what it waits for; "" for nothing beside its nodes.
	Note string
}

const (
	// maxRunFailures bounds the failed nodes of the live view, maxRunLeft those that its end names.
	maxRunFailures = 5
	maxRunLeft     = 50
	runLabel       = 14
)

// runStates are the words for each state, in the order in which they are told.
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

func (r Run) count(state RunState) int {
	n := 0
	for i := range r.Nodes {
		if r.Nodes[i].State == state {
			n++
		}
	}
	return n
}

// counted is "12 of 47 succeeded, 1 failed, 4 running": what went wrong stands where no terminal cuts it off.
func (r Run) counted() text.Line {
	line := text.Of(fmt.Sprintf("%d of %d ", r.count(RunSucceeded), len(r.Nodes))).Tone(text.Good, "succeeded")
	for _, s := range runStates[1:] {
		if n := r.count(s.state); n > 0 {
			line = line.With(fmt.Sprintf(", %d ", n)).Tone(s.tone, s.word)
		}
	}
	return line
}

// Frame draws it while it goes on: a few lines, however many nodes there are.
func (r Run) Frame() []text.Line {
	columns := narrowBar
	if r.Width >= wideEnough {
		columns = barColumns
	}
	parts := make([]text.Part, 0, len(runStates))
	for _, s := range runStates {
		parts = append(parts, text.Part{Count: r.count(s.state), Mark: s.mark, Tone: s.tone})
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

// running names the nodes that run, as many as fit, those that do not start first.
func (r Run) running() text.Line {
	line, shown, total := runHead(text.Active, "running"), 0, r.count(RunRunning)
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
			const andMore = 14 // columns of " and 3000 more"
			if shown > 0 && r.Width > 0 && line.Width()+text.Width(word)+andMore > r.Width {
				return line.Tone(text.Dim, fmt.Sprintf(" and %d more", total-shown))
			}
			line, shown = line.With(word), shown+1
		}
	}
	return line
}

// failed are the nodes that did not succeed, at most so many.
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

// why a node did not succeed.
func (n *RunNode) why() string {
	var parts []string
	if n.ExitCode != nil {
		parts = append(parts, fmt.Sprintf("exit code %d", *n.ExitCode))
	}
	// That a task has failed is told by its exit code already.
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

// Summary is how far it is in one line, which changes when something has and not with time.
func (r Run) Summary() text.Line {
	line := text.Of(r.Name + "  ")
	line = append(line, r.counted()...)
	if r.Note != "" {
		line = line.With("; " + r.Note)
	}
	return line
}

// End draws how it came out.
func (r Run) End() []text.Line {
	line := r.counted().Tone(text.Dim, " in "+ago(r.Now, r.Began))
	return append([]text.Line{line}, r.failed(maxRunLeft)...)
}
