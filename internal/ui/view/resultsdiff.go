// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"maps"
	"slices"

	"github.com/everynode/everynode/internal/text"
)

// ResultDifference is a value of a node that differs between two NodeJobs, or two revisions of one. A value that one of
// them does not have is nil.
type ResultDifference struct {
	Node string `json:"node"`
	// Result is the key of a result, or outcome or exitCode.
	Result string  `json:"result"`
	Value  *string `json:"value,omitempty"`
	Other  *string `json:"other,omitempty"`
}

// CompareResults returns the differences between the records of two NodeJobs or revisions, by node and result. A node
// with a record of only one of them has a single difference: its outcome.
func CompareResults(nodes, others []NodeResult) []ResultDifference {
	byNode := map[string][2]*NodeResult{}
	for side, list := range [][]NodeResult{nodes, others} {
		for i := range list {
			pair := byNode[list[i].Node]
			pair[side] = &list[i]
			byNode[list[i].Node] = pair
		}
	}
	differences := []ResultDifference{}
	for _, node := range slices.Sorted(maps.Keys(byNode)) {
		pair := byNode[node]
		a, b := pair[0].compared(), pair[1].compared()
		if pair[0] == nil || pair[1] == nil {
			differences = append(differences, ResultDifference{Node: node, Result: ByOutcome, Value: valueOf(a, ByOutcome), Other: valueOf(b, ByOutcome)})
			continue
		}
		keys := maps.Clone(a)
		maps.Copy(keys, b)
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			value, other := valueOf(a, key), valueOf(b, key)
			if value == nil || other == nil || *value != *other {
				differences = append(differences, ResultDifference{Node: node, Result: key, Value: value, Other: other})
			}
		}
	}
	return differences
}

// compared returns what is compared: the results, outcome and exit code.
func (n *NodeResult) compared() map[string]string {
	if n == nil {
		return nil
	}
	values := map[string]string{}
	maps.Copy(values, n.Results)
	values[ByOutcome] = n.Outcome // also if the task has written a result with this name
	if delete(values, ByExitCode); n.ExitCode != nil {
		values[ByExitCode] = n.exitCode()
	}
	return values
}

func valueOf(values map[string]string, key string) *string {
	if value, ok := values[key]; ok {
		return &value
	}
	return nil
}

// DifferenceTable draws the differences between two NodeJobs or revisions, with their names as headers.
func DifferenceTable(name, other string, differences []ResultDifference) []text.Line {
	rows := [][]text.Line{text.Cells("NODE", "RESULT", name, other)}
	for i := range differences {
		d := &differences[i]
		rows = append(rows, []text.Line{text.Of(d.Node), text.Of(d.Result), shownValue(d.Value), shownValue(d.Other)})
	}
	return text.Table(rows)
}

func shownValue(value *string) text.Line {
	if value == nil {
		return text.Toned(text.Dim, "(none)")
	}
	return text.Of(*value)
}
