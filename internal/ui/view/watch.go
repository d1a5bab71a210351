// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/everynode/everynode/internal/text"
)

// Summary returns the status in one line. It changes with the state, but not with time.
func (s Status) Summary() text.Line {
	job := s.Job
	tone, reason, message, _ := situationAt(job, s.Now)
	line := text.Of(job.Namespace+"/"+job.Name+"  ").Tone(tone, reason)
	if rollout := job.Status.Rollout; rollout != nil && rollout.Step != "" && job.DeletionTimestamp.IsZero() {
		line = line.With("  step " + rollout.Step)
	}
	line = line.With("  " + message)
	for i, shown := 0, 0; i < len(job.Status.Failures) && shown < maxRetries; i++ {
		if f := &job.Status.Failures[i]; f.Retrying && !strings.Contains(message, f.Node+": ") {
			line, shown = line.With("; "+f.Node+": "+failure(f.Reason, f.ExitCode, cmp.Or(f.RollbackMessage, f.Message))), shown+1
		}
	}
	if s.NoManager != "" {
		line = line.Tone(text.Warn, "; warning: ").With(s.NoManager)
	}
	return line
}

// maxRetries limits the nodes whose last failure is in the line, although it is retried.
const maxRetries = 3

// failure describes how an attempt failed, with the last line of its output.
func failure(reason string, code *int32, output string) string {
	said := reason
	if code != nil {
		said += fmt.Sprintf(", exit code %d", *code)
	}
	if last := lastLine(output); last != "" {
		said += ": " + last
	}
	return said
}

// lastLine is the last line of an output; "" if it has none.
func lastLine(output string) string {
	lines := text.Lines(output)
	if len(lines) == 0 {
		return ""
	}
	return lines[len(lines)-1]
}

// Stamp adds the time at the beginning of a line.
func Stamp(now time.Time) text.Line { return text.Toned(text.Dim, now.UTC().Format("15:04:05Z  ")) }

// Disconnected returns a line below an old view. It says that the API server does not respond.
func Disconnected(now, since time.Time, why string) text.Line {
	return text.Toned(text.Bad, fmt.Sprintf("The API server has not answered for %s; this is what was seen last: ", ago(now, since))).With(why)
}
