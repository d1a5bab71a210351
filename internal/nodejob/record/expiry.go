// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/outcome"
)

// Expiry is what spec.expires.check has answered on a node.
type Expiry struct {
	// Answer of the last check: Yes if the task is no longer needed.
	Answer Answer `json:"answer"`
	// Checks counts the checks on this machine with the revision.
	Checks int32 `json:"checks"`
	// Errors in a row, and other checks in a row that something else ended.
	Errors int32 `json:"errors,omitempty"`
	// RecordedAt is when the answer was recorded, as in the record.
	RecordedAt time.Time `json:"recordedAt,omitzero"`
	// BootID of the node when the check started. In another boot, it runs again.
	BootID string `json:"bootID,omitempty"`
	// ExitCode of the check; nil if it did not end on its own.
	ExitCode *int32 `json:"exitCode,omitempty"`
	// Message is the last line of the output of the check, or why it did not end on its own: at most 128 bytes.
	Message string `json:"message,omitempty"`
	// PodUID is the pod of the last check.
	PodUID types.UID `json:"podUID"`
}

// maxExpiryMessage limits Expiry.Message, in bytes.
const maxExpiryMessage = 128

// HasExpired reports whether the record, which may be nil, says that spec.expires.check has answered yes.
func (r *Record) HasExpired() bool {
	return r != nil && r.Expiry != nil && r.Expiry.Answer == AnswerYes
}

// bounded returns the answer with all fields limited; nil for one that no manager has written.
func (e *Expiry) bounded() *Expiry {
	if e == nil || !slices.Contains(answers, e.Answer) || e.Checks < 0 || e.Errors < 0 {
		return nil
	}
	b := *e
	b.Checks, b.Errors = min(b.Checks, maxCount), min(b.Errors, maxCount)
	b.RecordedAt, b.BootID = wholeSeconds(b.RecordedAt), BoundID(b.BootID)
	b.Message, b.PodUID = outcome.Clean(b.Message, maxExpiryMessage), types.UID(outcome.Clean(string(b.PodUID), 64))
	return &b
}
