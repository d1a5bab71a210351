// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/text"
)

// changed names who has last changed the spec, and who has last requested a retry, as far as that is known.
func (s Status) changed() []text.Line {
	var lines []text.Line
	if by := record.ChangedBy(s.Job.Annotations); by != "" {
		lines = s.wrapped("Spec", text.Plain, "last changed by "+by)
	}
	return append(lines, requested(s.Job, s.Width)...)
}

// changed names who has last changed the spec, before the last attempt and, if it was another user, until now, and who has last
// requested a retry.
func (e Explain) changed() []text.Line {
	by, before := record.ChangedBy(e.Job.Annotations), ""
	if rec := e.Node.On.Record; rec != nil {
		before = rec.ChangedBy
	}
	sentence := "last changed by " + by
	switch {
	case by == "" && before != "":
		sentence = "changed by " + before + " before the last attempt"
	case before != "" && before != by:
		sentence += "; before the last attempt, by " + before
	}
	var lines []text.Line
	if by != "" || before != "" {
		lines = text.Wrap(label("Spec"), text.Plain, sentence, e.Width)
	}
	if rec := e.Node.On.Record; rec != nil && rec.OutsideWindow != "" {
		lines = append(lines, text.Wrap(label("Window"), text.Plain,
			"the last attempt started outside of the window of NodeDisruptionBudget "+rec.OutsideWindow+" (maintenance.ignoreWindowsOn)", e.Width)...)
	}
	return append(lines, requested(e.Job, e.Width)...)
}

// requested names who has last requested a retry of all failed nodes; it returns nothing if that is unknown.
func requested(job *v1alpha1.NodeJob, width int) []text.Line {
	by := record.RequestedBy(job.Annotations)
	if by == "" {
		return nil
	}
	return text.Wrap(label("Retry"), text.Plain, "last requested by "+by, width)
}
