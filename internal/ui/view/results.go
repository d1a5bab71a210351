// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/plural"
	"github.com/everynode/everynode/internal/text"
)

// NodeResult is the record of a node, as results shows it.
type NodeResult struct {
	Node     string            `json:"node"`
	Outcome  string            `json:"outcome"`
	Revision string            `json:"revision"`
	Attempts int32             `json:"attempts"`
	ExitCode *int32            `json:"exitCode,omitempty"`
	Reason   string            `json:"reason,omitempty"`
	Finished time.Time         `json:"finishedAt"`
	Results  map[string]string `json:"results,omitempty"`
	// Archives say where the whole output is.
	Archives record.Archives `json:"archives,omitempty"`
	// Labels are those of the node. They are not printed.
	Labels map[string]string `json:"-"`
	// Started is when the last attempt started, and Message the end of its output. Only reports have them.
	Started time.Time `json:"-"`
	Message string    `json:"-"`
}

// Duration returns how long the last attempt took; 0 if this is unknown.
func (n *NodeResult) Duration() time.Duration {
	if n.Started.IsZero() {
		return 0
	}
	return max(0, n.Finished.Sub(n.Started))
}

// ResultOf returns the record of a node.
func ResultOf(node string, labels map[string]string, rec *record.Record) NodeResult {
	ended := string(rec.Outcome)
	switch { // whether the task has run
	case rec.IsAnswer() && rec.CheckBefore == record.AnswerNo: // in an audit
		ended = v1alpha1.ReasonNonCompliant
	case rec.IsExpired():
	case rec.IsAlreadyDone():
		ended = v1alpha1.ReasonAlreadyDone
	case rec.IsAssumed():
		ended = v1alpha1.ReasonAssumedDone
	}
	return NodeResult{
		Node: node, Outcome: ended, Revision: rec.Revision, Attempts: rec.Attempts, ExitCode: rec.ExitCode, Reason: rec.Reason,
		Finished: rec.FinishedAt, Results: rec.Results, Archives: rec.Archives, Labels: labels,
		Started: rec.StartedAt, Message: rec.Message,
	}
}

// Results are the records of the nodes of a NodeJob, by node.
type Results struct {
	Nodes []NodeResult
	// Revision is the current revision. The table has a column of revisions if a node has another one.
	Revision string
	Now      time.Time
}

// The names of what is not a result, by which nodes can be grouped too.
const (
	ByOutcome  = "outcome"
	ByExitCode = "exitCode"
	ByRevision = "revision"
)

// Keys returns the keys of all results, sorted.
func (r Results) Keys() []string {
	keys := map[string]bool{}
	for i := range r.Nodes {
		for key := range r.Nodes[i].Results {
			keys[key] = true
		}
	}
	return slices.Sorted(maps.Keys(keys))
}

// Lines draws a table with a column for each result.
func (r Results) Lines() []text.Line {
	keys := r.Keys()
	revisions := slices.ContainsFunc(r.Nodes, func(n NodeResult) bool { return n.Revision != r.Revision })
	header := text.Cells("NODE", "OUTCOME", "EXIT", "FINISHED")
	if revisions {
		header = append(header, text.Of("REVISION"))
	}
	rows := [][]text.Line{append(header, text.Cells(keys...)...)}
	for i := range r.Nodes {
		n := &r.Nodes[i]
		tone := text.Plain
		if n.Outcome == string(record.Failed) {
			tone = text.Bad
		}
		row := []text.Line{text.Of(n.Node), text.Toned(tone, n.Outcome), text.Of(n.exitCode()), text.Of(ago(r.Now, n.Finished))}
		if revisions {
			row = append(row, text.Of(n.Revision))
		}
		for _, key := range keys {
			row = append(row, text.Of(n.Results[key]))
		}
		rows = append(rows, row)
	}
	return text.Table(rows)
}

// Grouped draws the number and the names of the nodes that have the same value of a result, of outcome, exitCode or
// revision, or of a label. The largest group comes first.
func (r Results) Grouped(by string, all bool) []text.Line {
	groups := map[string][]string{}
	for i := range r.Nodes {
		value := r.Nodes[i].value(by)
		groups[value] = append(groups[value], r.Nodes[i].Node)
	}
	values := slices.SortedFunc(maps.Keys(groups), func(a, b string) int {
		return cmp.Or(len(groups[b])-len(groups[a]), cmp.Compare(a, b))
	})
	rows := [][]text.Line{text.Cells(by, "NODES", "NAMES")}
	for _, value := range values {
		names := groups[value]
		shown := names
		if !all {
			shown = names[:min(len(names), maxNames)]
		}
		line := strings.Join(shown, ", ")
		if left := len(names) - len(shown); left > 0 {
			line += " and " + plural.Count(left, "other") + " (-o wide)"
		}
		if value == "" {
			value = "(none)"
		}
		rows = append(rows, text.Cells(value, strconv.Itoa(len(names)), line))
	}
	return text.Table(rows)
}

// Has reports whether the nodes can be grouped by this.
func (r Results) Has(by string) bool {
	if by == ByOutcome || by == ByExitCode || by == ByRevision {
		return true
	}
	return slices.ContainsFunc(r.Nodes, func(n NodeResult) bool {
		_, result := n.Results[by]
		_, label := n.Labels[by]
		return result || label
	})
}

// Table returns the header and a row for each node, for a spreadsheet.
func (r Results) Table() [][]string {
	keys := r.Keys()
	table := [][]string{append([]string{"node", ByOutcome, ByExitCode, "attempts", ByRevision, "finishedAt"}, keys...)}
	for i := range r.Nodes {
		n := &r.Nodes[i]
		row := []string{n.Node, n.Outcome, n.exitCode(), strconv.Itoa(int(n.Attempts)), n.Revision, n.Finished.UTC().Format(time.RFC3339)}
		for _, key := range keys {
			row = append(row, n.Results[key])
		}
		table = append(table, row)
	}
	return table
}

func (n *NodeResult) exitCode() string { return exitText(n.ExitCode) }

// exitText is an exit code in a table; "" if there is none.
func exitText(code *int32) string {
	if code == nil {
		return ""
	}
	return strconv.Itoa(int(*code))
}

// value returns what the node is grouped by: a result comes before a label with the same key.
func (n *NodeResult) value(by string) string {
	switch by {
	case ByOutcome:
		return n.Outcome
	case ByExitCode:
		return n.exitCode()
	case ByRevision:
		return n.Revision
	}
	if value, ok := n.Results[by]; ok {
		return value
	}
	return n.Labels[by]
}
