// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"encoding/json"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Previous is the last attempt of the latest earlier revision that wrote results.
type Previous struct {
	// Revision that it ran.
	Revision string `json:"revision"`
	// Outcome of the attempt.
	Outcome Outcome `json:"outcome"`
	// Attempts of its run that count.
	Attempts int32 `json:"attempts"`
	// FinishedAt is in whole seconds, by the node's clock.
	FinishedAt time.Time `json:"finishedAt,omitzero"`
	// ExitCode is nil if the attempt did not end on its own.
	ExitCode *int32 `json:"exitCode,omitempty"`
	// Results that the task wrote.
	Results map[string]string `json:"results,omitempty"`
	// Truncated is true if results were omitted or truncated.
	Truncated bool `json:"truncated,omitempty"`
}

// UnmarshalJSON drops what it cannot read, as that of Attempts does.
func (p *Previous) UnmarshalJSON(b []byte) error {
	type plain Previous
	var read plain
	if json.Unmarshal(b, &read) != nil {
		read = plain{}
	}
	*p = Previous(read)
	return nil
}

// PreviousTo returns the results of the revision before that of next, of which prev is the record that next replaces;
// nil if there are none. Like the earlier attempts, they belong to the NodeJob on this machine.
func PreviousTo(prev, next *Record) *Previous {
	switch {
	case prev == nil || OtherMachine(prev, next):
		return nil
	case prev.Revision != next.Revision && len(prev.Results) > 0:
		return prev.asPrevious()
	case prev.Previous != nil && prev.Previous.Revision == next.Revision:
		return nil // the user has returned to this revision
	}
	return prev.Previous
}

func (r *Record) asPrevious() *Previous {
	return &Previous{
		Revision: r.Revision, Outcome: r.Outcome, Attempts: r.Attempts, FinishedAt: r.FinishedAt,
		ExitCode: r.ExitCode, Results: r.Results, Truncated: r.Truncated,
	}
}

// bounded returns p with all fields limited; nil if no manager has written it.
func (p *Previous) bounded() *Previous {
	if p == nil || p.Revision == "" || len(validation.IsValidLabelValue(p.Revision)) > 0 || !p.Outcome.known() || p.Attempts < 0 {
		return nil
	}
	b := *p
	b.Attempts, b.FinishedAt = min(b.Attempts, maxCount), wholeSeconds(b.FinishedAt)
	return &b
}
