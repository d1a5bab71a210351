// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"fmt"
	"strconv"
	"strings"
)

// Ended is the content of an event about an attempt that has ended. The manager writes it with String, and the command
// line reads it with ParseEnded, because a node stores only the record of its last attempt.
type Ended struct {
	// Rollback is true for an attempt of the rollback.
	Rollback bool
	Attempt  int32
	// How it ended: "failed (TaskFailed, exit code 7)".
	How string
	// Next is what happens next: "retried". Empty after a disruption, after which nothing is decided.
	Next string
	// Said is the last output of the attempt, or what disrupted it; empty if unknown.
	Said string
}

const (
	endedAttempt  = "attempt "
	endedRollback = "of the rollback "
	endedNext     = ", it is "
	endedSaid     = ": "
)

// Sentence says what ended and how, without what happens next.
func (e Ended) Sentence() string {
	of := ""
	if e.Rollback {
		of = endedRollback
	}
	return fmt.Sprintf("%s%d %s%s", endedAttempt, e.Attempt, of, e.How)
}

func (e Ended) String() string {
	s := e.Sentence()
	if e.Next != "" {
		s += endedNext + e.Next
	}
	if e.Said != "" {
		s += endedSaid + e.Said
	}
	return s
}

// ParseEnded reads the note of an event. It ignores the prefix, because the manager first names the NodeJob and the
// node. It returns false for a note that is not about an attempt.
func ParseEnded(note string) (Ended, bool) {
	if _, after, found := strings.Cut(note, endedSaid+endedAttempt); found {
		note = after
	} else if note, found = strings.CutPrefix(note, endedAttempt); !found {
		return Ended{}, false
	}
	number, rest, _ := strings.Cut(note, " ")
	attempt, err := strconv.ParseInt(number, 10, 32)
	if err != nil {
		return Ended{}, false
	}
	e := Ended{Attempt: int32(attempt)}
	rest, e.Rollback = strings.CutPrefix(rest, endedRollback)
	rest, e.Said, _ = strings.Cut(rest, endedSaid)
	e.How, e.Next, _ = strings.Cut(rest, endedNext)
	return e, true
}
