// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/everynode/everynode/internal/outcome"
)

const (
	// MaxEarlier limits Record.Earlier.
	MaxEarlier = 5
	// maxEarlierMessage and maxEarlierReason limit the texts of an earlier attempt, in bytes.
	maxEarlierMessage = 128
	maxEarlierReason  = 64
)

// Attempt is how an attempt ended that is not the last one. Several disruptions in a row are one Attempt.
type Attempt struct {
	// Revision that it ran, or rolled back.
	Revision string `json:"revision"`
	// Rollback is true for an attempt of the rollback.
	Rollback bool `json:"rollback,omitempty"`
	// Number of the attempt in its run, from 1. After a disruption, the next attempt has the same number.
	Number int32 `json:"attempt"`
	// Outcome is Succeeded, Failed or Disrupted.
	Outcome Outcome `json:"outcome"`
	// Disruptions is the number of disruptions in a row, this one included. A run with a reboot that failed has those of
	// its later pods.
	Disruptions int32 `json:"disruptions,omitempty"`
	// StartedAt and FinishedAt are in whole seconds, by the node's clock.
	StartedAt  time.Time `json:"startedAt,omitzero"`
	FinishedAt time.Time `json:"finishedAt,omitzero"`
	// ExitCode is nil if the attempt did not end on its own.
	ExitCode *int32 `json:"exitCode,omitempty"`
	// Reason in one word, at most 64 bytes; "" for a success.
	Reason string `json:"reason,omitempty"`
	// Message is the last line of the message, at most 128 bytes; "" for a success.
	Message string `json:"message,omitempty"`
	// DriftedAt is when task.check first answered no after this success, so that the task ran again (onDrift: Run); zero if it did not.
	DriftedAt time.Time `json:"driftedAt,omitzero"`
}

// Attempts are the attempts before the last one, the oldest first.
type Attempts []Attempt

// UnmarshalJSON drops a list that it cannot read. The list is only for display, and must not make the outcome of the
// last attempt unreadable.
func (a *Attempts) UnmarshalJSON(b []byte) error {
	var list []Attempt
	if json.Unmarshal(b, &list) != nil {
		list = nil
	}
	*a = list
	return nil
}

// EarlierThan returns the attempts before next, of which prev is the record that next replaces; nil if there is none.
// rollback is true if next records the end of an attempt of the rollback.
//
// The list belongs to the NodeJob on this machine: a new revision, a retry and a rerun continue it, and each attempt
// names its revision. It is empty on another machine, and after a user has removed the record.
func EarlierThan(prev, next *Record, rollback bool) Attempts {
	if prev == nil || OtherMachine(prev, next) {
		return nil
	}
	all := slices.Concat(prev.Earlier, endedBefore(prev, next, rollback))
	// A rollback may stay on record while the drains before the next attempts fail.
	slices.SortStableFunc(all, func(a, b Attempt) int { return a.FinishedAt.Compare(b.FinishedAt) })
	return all[max(len(all)-MaxEarlier, 0):]
}

// OtherMachine reports whether both machines are known and different.
func OtherMachine(prev, next *Record) bool {
	return prev.MachineID != "" && next.MachineID != "" && prev.MachineID != next.MachineID
}

// endedBefore returns the attempts that prev contains and next does not.
func endedBefore(prev, next *Record, rollback bool) []Attempt {
	var ended []Attempt
	if !rollback && !prev.IsAssumed() && prev.CheckBefore == "" && prev.Outcome.endsAttempt() && !continuesDisruptions(prev, next) { // neither a reboot nor a check is the end of an attempt
		ended = append(ended, prev.last())
	}
	if b := prev.Rollback; b != nil && b != next.Rollback && !b.continuedBy(next.Rollback) {
		ended = append(ended, b.last(prev.Revision))
	}
	return ended
}

// continuesDisruptions reports whether next is a further disruption in a row, which it counts itself.
func continuesDisruptions(prev, next *Record) bool {
	return prev.Outcome == Disrupted && next.Outcome == Disrupted && prev.Revision == next.Revision && next.Disruptions > 1
}

// continuedBy has the same meaning for a rollback.
func (b *Rollback) continuedBy(next *Rollback) bool {
	return b.Outcome == Disrupted && next != nil && next.Outcome == Disrupted && next.Disruptions > 1
}

// last returns the last attempt of a record.
func (r *Record) last() Attempt {
	return Attempt{
		Revision: r.Revision, Number: numberOf(r.Attempts, r.Outcome), Outcome: r.Outcome, Disruptions: r.Disruptions,
		StartedAt: r.StartedAt, FinishedAt: r.FinishedAt, ExitCode: r.ExitCode, Reason: r.Reason, Message: r.Message,
		DriftedAt: r.Asked[QuestionCheck].NoSince,
	}.bounded()
}

// last returns the last attempt of a rollback of a revision.
func (b *Rollback) last(revision string) Attempt {
	return Attempt{
		Revision: revision, Rollback: true, Number: numberOf(b.Attempts, b.Outcome), Outcome: b.Outcome, Disruptions: b.Disruptions,
		StartedAt: b.StartedAt, FinishedAt: b.FinishedAt, ExitCode: b.ExitCode, Reason: b.Reason, Message: b.Message,
	}.bounded()
}

// numberOf returns the number of an attempt by the attempts that count with it: a disrupted one does not.
func numberOf(counted int32, o Outcome) int32 {
	if o == Disrupted {
		counted++
	}
	return min(max(counted, 1), maxCount)
}

// bounded returns the attempt with all fields limited.
func (a Attempt) bounded() Attempt {
	a.Number, a.Disruptions = min(max(a.Number, 1), maxCount), min(max(a.Disruptions, 0), maxCount)
	a.StartedAt, a.FinishedAt, a.DriftedAt = wholeSeconds(a.StartedAt), wholeSeconds(a.FinishedAt), wholeSeconds(a.DriftedAt)
	if a.Outcome == Succeeded {
		a.Reason, a.Message = "", ""
		return a
	}
	message := strings.TrimRight(a.Message, "\r\n")
	message = message[strings.LastIndexByte(message, '\n')+1:]
	a.Reason, a.Message = outcome.Clean(a.Reason, maxEarlierReason), outcome.Clean(message, maxEarlierMessage)
	return a
}

// bounded returns at most MaxEarlier attempts, the last ones, without those that no manager has written. It does not
// share what it modifies.
func (a Attempts) bounded() Attempts {
	var valid Attempts
	for _, attempt := range a {
		if attempt.Revision != "" && len(validation.IsValidLabelValue(attempt.Revision)) == 0 && attempt.Outcome.ended() {
			valid = append(valid, attempt.bounded())
		}
	}
	return valid[max(len(valid)-MaxEarlier, 0):]
}

// endsAttempt reports whether a record with that outcome has the end of an attempt that no earlier record has.
func (o Outcome) endsAttempt() bool { return o != Rebooting && o != Needed && o != Expired }

// ended reports whether an attempt with that outcome has ended.
func (o Outcome) ended() bool { return o == Succeeded || o == Failed || o == Disrupted }
