// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"github.com/everynode/everynode/internal/cli/text"
	"github.com/everynode/everynode/internal/record"
)

// changed names who has last changed the spec; it returns nothing if that is unknown.
func (s Status) changed() []text.Line {
	by := record.ChangedBy(s.Job.Annotations)
	if by == "" {
		return nil
	}
	return s.wrapped("Spec", text.Plain, "last changed by "+by)
}

// changed names who has last changed the spec: before the last attempt and, if it was another user, until now.
func (e Explain) changed() []text.Line {
	by, before := record.ChangedBy(e.Job.Annotations), ""
	if rec := e.Node.On.Record; rec != nil {
		before = rec.ChangedBy
	}
	sentence := "last changed by " + by
	switch {
	case by == "" && before == "":
		return nil
	case by == "":
		sentence = "changed by " + before + " before the last attempt"
	case before != "" && before != by:
		sentence += "; before the last attempt, by " + before
	}
	return text.Wrap(label("Spec"), text.Plain, sentence, e.Width)
}
