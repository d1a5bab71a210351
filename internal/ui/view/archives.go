// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"

	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/text"
)

// ArchiveSentence says where the whole output of a pod is, or why it is not archived.
func ArchiveSentence(a *record.Archive) string {
	of := ""
	switch task.Phase(a.Phase) {
	case task.Rollback:
		of = " of the rollback"
	case task.Check:
		of = " of the check after the reboot"
	case task.CheckBefore:
		of = " of the check before the task"
	case task.Task, task.Reboot, task.CheckDrift, task.CheckExpires:
	}
	if !a.Stored {
		return fmt.Sprintf("the output%s is not archived: %s (it was to be %s)", of, a.Error, a.Location)
	}
	if of != "" {
		of = " (output" + of + ")"
	}
	s := fmt.Sprintf("%s%s, %d bytes", a.Location, of, a.Bytes)
	if a.Dropped > 0 {
		s += fmt.Sprintf("; %d bytes in the middle of the output were left out", a.Dropped)
	}
	if a.SHA256 != "" {
		s += ", SHA-256 " + a.SHA256
	}
	return s
}

// archives lists the archived outputs of the last attempt and its rollback.
func (e Explain) archives(rec *record.Record) [][]text.Line {
	var told [][]text.Line
	for i := range rec.Archives {
		tone := text.Plain
		if !rec.Archives[i].Stored {
			tone = text.Warn
		}
		told = append(told, text.Wrap(label("Archive"), tone, ArchiveSentence(&rec.Archives[i]), e.Width))
	}
	return told
}
