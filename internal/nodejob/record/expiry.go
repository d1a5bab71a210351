// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"github.com/everynode/everynode/internal/outcome"
)

// Expiry is what spec.expires.check has answered on a node: Yes if the task is no longer needed.
type Expiry struct {
	Asked
	// Checks counts the checks on this machine with the revision.
	Checks int32 `json:"checks"`
	// BootID of the node when the check started. In another boot, it runs again.
	BootID string `json:"bootID,omitempty"`
}

// maxExpiryMessage limits the message of an Expiry, in bytes.
const maxExpiryMessage = 128

// HasExpired reports whether the record, which may be nil, says that spec.expires.check has answered yes.
func (r *Record) HasExpired() bool {
	return r != nil && r.Expiry != nil && r.Expiry.Answer == AnswerYes
}

// bounded returns the answer with all fields limited; nil for one that no manager has written.
func (e *Expiry) bounded() *Expiry {
	if e == nil || e.Checks < 0 {
		return nil
	}
	is, valid := e.Asked.bounded()
	if !valid {
		return nil
	}
	is.Message = outcome.Clean(is.Message, maxExpiryMessage)
	return &Expiry{Asked: is, Checks: min(e.Checks, maxCount), BootID: BoundID(e.BootID)}
}
