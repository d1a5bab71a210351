// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package outcome

import (
	"encoding/json"
	"strings"
)

const (
	// MaxArchiveErrorBytes limits Archive.Error.
	MaxArchiveErrorBytes = 200
	// maxArchiveCount limits the other fields: no output has a pebibyte.
	maxArchiveCount = 1 << 50
)

// Archive is what became of the whole output of an attempt.
type Archive struct {
	// Stored is true if the archive has the output.
	Stored bool `json:"stored,omitempty"`
	// Bytes is the size of what was stored, or was to be stored.
	Bytes int64 `json:"bytes,omitempty"`
	// Dropped is how many bytes were left out of the middle of the output, because it was longer than the archive accepts.
	Dropped int64 `json:"dropped,omitempty"`
	// SHA256 is the digest of what was stored, in hexadecimal.
	SHA256 string `json:"sha256,omitempty"`
	// Error is why the output is not stored; "" if it is. One line of at most MaxArchiveErrorBytes.
	Error string `json:"error,omitempty"`
}

// NotStored returns the Archive of an output that was not stored.
func NotStored(why string) *Archive { return &Archive{Error: why} }

// Bounded returns a copy within all limits. It is consistent: an output that is stored has no error, and another one has.
func (a *Archive) Bounded() *Archive {
	if a == nil {
		return nil
	}
	b := *a
	b.Bytes, b.Dropped = min(max(b.Bytes, 0), maxArchiveCount), min(max(b.Dropped, 0), maxArchiveCount)
	if !b.Stored || !isDigest(b.SHA256) {
		b.SHA256 = ""
	}
	switch {
	case b.Stored:
		b.Error = ""
	case b.Error == "":
		b.Error = "it is not known why"
	default:
		b.Error, _ = cutValue(b.Error, MaxArchiveErrorBytes)
	}
	return &b
}

// isDigest reports whether a text has the form of a SHA-256 in hexadecimal.
func isDigest(text string) bool {
	return len(text) == 64 && strings.Trim(text, "0123456789abcdef") == ""
}

// decodeArchive reads the field of an outcome; nil if it has another form. It is only for display, and must not make the
// outcome unreadable.
func decodeArchive(value json.RawMessage) *Archive {
	var a Archive
	if value[0] != '{' || json.Unmarshal(value, &a) != nil {
		return nil
	}
	return &a
}
