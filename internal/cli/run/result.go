// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"strings"
	"time"

	"github.com/everynode/everynode/internal/cli/console"
	"github.com/everynode/everynode/internal/cli/view"
	"github.com/everynode/everynode/internal/text"
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
	Node string `json:"node"`
	// Outcome is Succeeded, Failed, Unreachable, Deleted or NotRun; or Running or Waiting for a run that continues.
	Outcome  string `json:"outcome"`
	ExitCode *int32 `json:"exitCode,omitempty"`
	Reason   string `json:"reason,omitempty"`
	Message  string `json:"message,omitempty"`
	// Attempts that count: disrupted ones are not included.
	Attempts   int32      `json:"attempts,omitempty"`
	StartedAt  *time.Time `json:"startedAt,omitempty"`
	FinishedAt *time.Time `json:"finishedAt,omitempty"`
	// DurationSeconds of the last attempt, in whole seconds.
	DurationSeconds *int64 `json:"durationSeconds,omitempty"`
}

type nodeResult struct {
	nodeOutcome
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
	if r.screen != nil {
		_ = r.screen.Draw(nil)
	}
	r.reportEnded(true)
	r.writePrinted()
	switch {
	case r.broken:
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
	outputs := make([]view.Output, 0, len(r.outputs))
	for i, o := range r.outputs {
		n := &r.view.Nodes[i]
		out := view.Output{Node: n.Name, State: n.State, ExitCode: n.ExitCode, Note: o.note}
		if n.ExitCode == nil && n.State != view.RunSucceeded {
			out.Why = strings.TrimPrefix(n.Reason+": "+n.Said, ": ")
		}
		out.Text, out.Cut, out.Sum = o.text()
		outputs = append(outputs, out)
	}
	return outputs
}

func (r *running) showJSON() error {
	all := result{Namespace: r.job.Namespace, NodeJob: r.job.Name, Succeeded: r.count(view.RunSucceeded) == len(r.view.Nodes)}
	for i := range r.outputs {
		all.Nodes = append(all.Nodes, r.nodeResult(i))
	}
	return r.PrintData(r.output, all)
}

func (r *running) nodeResult(i int) nodeResult {
	o := r.outputs[i]
	node := nodeResult{nodeOutcome: r.nodeOutcome(i), OutputNote: o.note}
	node.Output, node.OutputCut, _ = o.text()
	node.Truncated = node.OutputCut > 0 || r.incomplete(i)
	return node
}

func (r *running) nodeOutcome(i int) nodeOutcome {
	n := &r.view.Nodes[i]
	node := nodeOutcome{Node: n.Name, Outcome: outcomes[n.State], ExitCode: n.ExitCode, Reason: n.Reason}
	if n.State != view.RunSucceeded {
		node.Message = n.Said
	}
	rec := r.records[i]
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
func (r *running) ran(i int) bool { return r.last[i] != "" || r.records[i] != nil }

// readWhole reports whether the whole log of the attempt that counts was read.
func (r *running) readWhole(i int) bool {
	rec := r.records[i]
	return r.outputs[i].read && r.outputs[i].err == nil && (rec == nil || rec.PodUID == "" || rec.PodUID == r.last[i])
}

// incomplete reports whether output of a node is missing, apart from what was dropped to save memory.
func (r *running) incomplete(i int) bool {
	return r.ran(i) && !r.readWhole(i) && !r.outputs[i].recordedWhole
}

func timeOf(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
