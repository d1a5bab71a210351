// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/text"
)

// NodeRow is a row in the table of nodes.
type NodeRow struct {
	State plan.NodeState
	Step  string
	On    record.NodeRecord
}

// NodeRows returns the rows of a plan: the matching nodes, and those that are selected and excluded.
func NodeRows(in plan.Input, p plan.Plan) []NodeRow {
	steps := make([]string, len(p.Nodes))
	for _, step := range p.Steps {
		for _, i := range step.Nodes {
			steps[i] = step.Name
		}
	}
	rows := make([]NodeRow, 0, len(p.Nodes))
	for i := range p.Nodes {
		if IsSelected(&p.Nodes[i]) {
			rows = append(rows, NodeRow{State: p.Nodes[i], Step: steps[i], On: in.Nodes[i].On})
		}
	}
	return rows
}

// IsSelected reports whether a NodeJob selects a node, which may be excluded for another reason, such as a taint.
func IsSelected(s *plan.NodeState) bool {
	return s.State != plan.Excluded || s.Reason == v1alpha1.ReasonUntoleratedTaint || s.Reason == v1alpha1.ReasonUnsupportedOS ||
		s.Reason == v1alpha1.ReasonNodeNotAllowed
}

// NodeTable draws the selected nodes of a NodeJob. Nodes that need a user to act come first. The record of an earlier
// revision is ignored, unless the node is done because of it. With results, each result has a column.
func NodeTable(now time.Time, revision string, rows []NodeRow, results bool) []text.Line {
	var keys []string
	if results {
		keys = resultKeys(revision, rows)
	}
	header := append(text.Cells("NODE", "STATE", "STEP", "REASON", "ATTEMPTS", "EXIT", "ENDED"), text.Cells(keys...)...)
	table := [][]text.Line{append(header, text.Of("MESSAGE"))}
	slices.SortStableFunc(rows, func(a, b NodeRow) int { return Urgency(a.State.State) - Urgency(b.State.State) })
	for _, r := range rows {
		attempts, exit, ended, message := "", "", "", r.State.Message
		rec := r.counts(revision)
		if rec != nil {
			attempts, exit, ended = fmt.Sprint(rec.Attempts), exitText(rec.ExitCode), ago(now, rec.FinishedAt)
			if said := lastLine(rec.Message); said != "" && (message == "" || r.State.State == plan.Failed) {
				message = said
			}
		}
		row := []text.Line{
			text.Of(r.State.Name), text.Toned(nodeTone(&r.State), string(r.State.State)), text.Of(r.Step), text.Of(r.reason()),
			text.Of(attempts), text.Of(exit), text.Of(ended),
		}
		for _, key := range keys {
			value := ""
			if rec != nil {
				value = rec.Results[key]
			}
			row = append(row, text.Of(value))
		}
		table = append(table, append(row, text.Of(message)))
	}
	return text.Table(table)
}

// UrgencyUnknown is the urgency of a state that is not known.
const UrgencyUnknown = 3

// Urgency returns the place of a state in a list. States that need a user come first.
func Urgency(s plan.State) int {
	switch s {
	case plan.Failed:
		return 0
	case plan.Running:
		return 1
	case plan.Waiting:
		return 2
	case plan.Done:
		return 4
	case plan.Excluded:
		return 5
	}
	return UrgencyUnknown
}

// reason returns the reason for the state. It distinguishes a node on which the task has not run.
func (r *NodeRow) reason() string {
	rec := r.On.Record
	switch {
	case r.State.State != plan.Done || rec == nil, rec.IsExpired(), r.State.Reason != v1alpha1.ReasonDone:
	case rec.IsAlreadyDone():
		return v1alpha1.ReasonAlreadyDone
	case rec.IsAssumed():
		return v1alpha1.ReasonAssumedDone
	}
	return r.State.Reason
}

// counts returns the record of the row if it is not ignored; nil otherwise.
func (r *NodeRow) counts(revision string) *record.Record {
	if rec := r.On.Record; rec != nil && (rec.Revision == revision || r.State.State == plan.Done) {
		return rec
	}
	return nil
}

// resultKeys returns the keys of the results in all rows, sorted.
func resultKeys(revision string, rows []NodeRow) []string {
	keys := map[string]bool{}
	for i := range rows {
		if rec := rows[i].counts(revision); rec != nil {
			for key := range rec.Results {
				keys[key] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(keys))
}
