// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"strings"
	"time"

	"github.com/everynode/everynode/internal/cli/console"
	"github.com/everynode/everynode/internal/text"
	"github.com/everynode/everynode/internal/ui/view"
)

// result is the result of a run, for programs.
type result struct {
	Namespace string `json:"namespace"`
	NodeJob   string `json:"nodeJob"`
	// Succeeded reports whether the command succeeded on every node.
	Succeeded bool         `json:"succeeded"`
	Nodes     []nodeResult `json:"nodes"`
}

// nodeOutcome is how the run ended on a node.
type nodeOutcome struct {
	// Node is its name.
	Node string `json:"node"`
	// Outcome is Succeeded, Failed, Unreachable, Deleted or NotRun; or Running or Waiting for a run that continues.
	Outcome string `json:"outcome"`
	// ExitCode is absent if the command never ended by itself.
	ExitCode *int32 `json:"exitCode,omitempty"`
	// Reason and Message say why it did not succeed: the reason on record, and the last line.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Attempts that count: disrupted ones are not included.
	Attempts int32 `json:"attempts,omitempty"`
	// StartedAt and FinishedAt are those of the last attempt, by the clock of the node.
	StartedAt  *time.Time `json:"startedAt,omitempty"`
	FinishedAt *time.Time `json:"finishedAt,omitempty"`
	// DurationSeconds of the last attempt, in whole seconds.
	DurationSeconds *int64 `json:"durationSeconds,omitempty"`
}

type nodeResult struct {
	nodeOutcome
	// Output is standard output and standard error, in the order of arrival.
	Output string `json:"output"`
	// Truncated reports whether output is missing.
	Truncated bool `json:"truncated,omitempty"`
	// OutputCut is the number of bytes that were dropped from the beginning of the output.
	OutputCut int64 `json:"outputCut,omitempty"`
	// OutputNote states what may be missing.
	OutputNote string `json:"outputNote,omitempty"`
}

var outcomes = map[view.RunState]string{
	view.RunWaiting: "Waiting", view.RunRunning: "Running", view.RunSucceeded: "Succeeded", view.RunFailed: "Failed",
	view.RunUnreachable: "Unreachable", view.RunDeleted: "Deleted", view.RunNotRun: "NotRun",
}

// show writes the output that is only shown at the end.
func (r *running) show() error {
	if r.display.screen != nil {
		_ = r.display.screen.Draw(nil)
	}
	r.reportEnded(true)
	r.display.writePrinted()
	switch {
	case r.display.broken:
		return nil
	case r.output == console.OutputJSON:
		return r.showJSON()
	case r.fold:
		_, err := r.Out.Write([]byte(text.Print(view.Fold(r.foldable()), text.Options{Colour: r.Terminal().Colour})))
		return err
	}
	return nil
}

func (r *running) foldable() []view.Output {
	outputs := make([]view.Output, 0, len(r.nodes))
	for _, n := range r.nodes {
		out := view.Output{Node: n.Name, State: n.State, ExitCode: n.ExitCode, Note: n.output.note}
		if n.ExitCode == nil && n.State != view.RunSucceeded {
			out.Why = strings.TrimPrefix(n.Reason+": "+n.Said, ": ")
		}
		out.Text, out.Cut, out.Sum = n.output.text()
		outputs = append(outputs, out)
	}
	return outputs
}

func (r *running) showJSON() error {
	all := result{Namespace: r.job.Namespace, NodeJob: r.job.Name, Succeeded: r.view.Count(view.RunSucceeded) == len(r.view.Nodes)}
	for _, n := range r.nodes {
		all.Nodes = append(all.Nodes, n.result())
	}
	return r.PrintData(r.output, all)
}

func (n *node) result() nodeResult {
	node := nodeResult{nodeOutcome: n.outcome(), OutputNote: n.output.note}
	node.Output, node.OutputCut, _ = n.output.text()
	node.Truncated = node.OutputCut > 0 || n.incomplete()
	return node
}

func (n *node) outcome() nodeOutcome {
	node := nodeOutcome{Node: n.Name, Outcome: outcomes[n.State], ExitCode: n.ExitCode, Reason: n.Reason}
	if n.State != view.RunSucceeded {
		node.Message = n.Said
	}
	rec := n.record
	if rec == nil || !n.State.Final() {
		return node
	}
	if node.ExitCode = rec.ExitCode; node.ExitCode == nil && n.State == view.RunSucceeded {
		node.ExitCode = new(int32(0))
	}
	node.Attempts, node.StartedAt, node.FinishedAt = rec.Attempts, timeOf(rec.StartedAt), timeOf(rec.FinishedAt)
	if node.StartedAt != nil && node.FinishedAt != nil {
		node.DurationSeconds = new(max(0, int64(node.FinishedAt.Sub(*node.StartedAt)/time.Second)))
	}
	return node
}

// ran reports whether the command has started on a node, as far as this is known.
func (n *node) ran() bool { return n.last != "" || n.record != nil }

// attemptSeen reports whether the pod of the recorded attempt was observed, if there is one.
func (n *node) attemptSeen() bool {
	return n.record == nil || n.record.PodUID == "" || n.record.PodUID == n.last
}

// readWhole reports whether the whole log of the attempt that counts was read.
func (n *node) readWhole() bool { return n.output.read && n.output.err == nil && n.attemptSeen() }

// incomplete reports whether output of a node is missing, apart from what was dropped to save memory.
func (n *node) incomplete() bool { return n.ran() && !n.readWhole() && !n.output.recordedWhole }

func timeOf(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
