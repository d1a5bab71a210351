// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"slices"
	"time"

	"github.com/everynode/everynode/internal/cli/text"
	"github.com/everynode/everynode/internal/plan"
	"github.com/everynode/everynode/internal/record"
)

// NodeRow is a row in the table of nodes.
type NodeRow struct {
	State plan.NodeState
	Step  string
	On    record.NodeRecord
}

// NodeTable draws the matching nodes of a NodeJob. Nodes that need a user to act come first. The record of an earlier
// revision is ignored, unless the node is done because of it.
func NodeTable(now time.Time, revision string, rows []NodeRow) []text.Line {
	table := [][]text.Line{text.Cells("NODE", "STATE", "STEP", "REASON", "ATTEMPTS", "EXIT", "ENDED", "MESSAGE")}
	order := []plan.State{plan.Failed, plan.Running, plan.Waiting, plan.Done, plan.Excluded}
	slices.SortStableFunc(rows, func(a, b NodeRow) int {
		return slices.Index(order, a.State.State) - slices.Index(order, b.State.State)
	})
	for _, r := range rows {
		attempts, exit, ended, message := "", "", "", r.State.Message
		if rec := r.On.Record; rec != nil && (rec.Revision == revision || r.State.State == plan.Done) {
			attempts, ended = fmt.Sprint(rec.Attempts), ago(now, rec.FinishedAt)
			if rec.ExitCode != nil {
				exit = fmt.Sprint(*rec.ExitCode)
			}
			if said := text.Lines(rec.Message); len(said) > 0 && (message == "" || r.State.State == plan.Failed) {
				message = said[len(said)-1]
			}
		}
		table = append(table, []text.Line{
			text.Of(r.State.Name), text.Toned(stateTone(r.State.State), string(r.State.State)), text.Of(r.Step), text.Of(r.State.Reason),
			text.Of(attempts), text.Of(exit), text.Of(ended), text.Of(message),
		})
	}
	return text.Table(table)
}
