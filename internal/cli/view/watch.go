// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"time"

	"github.com/everynode/everynode/internal/cli/text"
)

// Summary returns the status in one line. It changes with the state, but not with time.
func (s Status) Summary() text.Line {
	job := s.Job
	tone, reason, message := situationAt(job, s.Now)
	message, _ = cutRemedy(job, message)
	line := text.Of(job.Namespace+"/"+job.Name+"  ").Tone(tone, reason)
	if rollout := job.Status.Rollout; rollout != nil && rollout.Step != "" && job.DeletionTimestamp.IsZero() {
		line = line.With("  step " + rollout.Step)
	}
	return line.With("  " + message)
}

// Stamp adds the time at the beginning of a line.
func Stamp(now time.Time) text.Line { return text.Toned(text.Dim, now.UTC().Format("15:04:05Z  ")) }

// Disconnected returns a line below an old view. It says that the API server does not respond.
func Disconnected(now, since time.Time, why string) text.Line {
	return text.Toned(text.Bad, fmt.Sprintf("The API server has not answered for %s; this is what was seen last: ", ago(now, since))).With(why)
}
