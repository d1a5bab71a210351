// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/everynode/everynode/internal/outcome"
)

const (
	// maxArchives limits Record.Archives: one for each phase that has an output.
	maxArchives = 3
	// maxLocation limits Archive.Location, in bytes.
	maxLocation = 1024
)

// Archive is what became of the whole output of one pod of an attempt. For display only.
type Archive struct {
	// Phase of the pod: task, check (after a reboot) or rollback.
	Phase string `json:"phase"`
	// Location is the URL of the output in the archive.
	Location string `json:"location"`
	// Stored is true if the archive has the output.
	Stored bool `json:"stored,omitempty"`
	// Bytes is the size of what was stored, or was to be stored; 0 if that is not known.
	Bytes int64 `json:"bytes,omitempty"`
	// Dropped is how many bytes were left out of the middle of the output.
	Dropped int64 `json:"dropped,omitempty"`
	// SHA256 is the digest of what was stored, in hexadecimal; "" if that is not known.
	SHA256 string `json:"sha256,omitempty"`
	// Error is why the output is not stored, in one line; "" if it is.
	Error string `json:"error,omitempty"`
}

// Archives are those of the last attempt and of its rollback, at most one for each phase.
type Archives []Archive

// NotReported is the error of an archive of which the pod has reported nothing.
const NotReported = "the attempt ended before its output was stored"

// ArchiveOf returns what became of the output of a pod, which was to be stored at a location. reported is what the runner
// says about it; nil if it says nothing.
func ArchiveOf(phase, location string, reported *outcome.Archive) Archive {
	if reported == nil {
		reported = outcome.NotStored(NotReported)
	}
	return Archive{
		Phase: phase, Location: location,
		Stored: reported.Stored, Bytes: reported.Bytes, Dropped: reported.Dropped, SHA256: reported.SHA256, Error: reported.Error,
	}
}

// With returns the archives with others, each of which replaces that of its phase. It does not share what it modifies.
func (a Archives) With(others ...Archive) Archives {
	all := slices.Clone(a)
	for _, next := range others {
		all = append(slices.DeleteFunc(all, func(was Archive) bool { return was.Phase == next.Phase }), next)
	}
	return all
}

// UnmarshalJSON drops what it cannot read, as that of Attempts does.
func (a *Archives) UnmarshalJSON(b []byte) error {
	var list []Archive
	if json.Unmarshal(b, &list) != nil {
		list = nil
	}
	*a = list
	return nil
}

// ValidLocation returns a location, or "" for a text that the manager has not written. A location is shown in commands that
// users copy, so it has no character with a meaning for a shell.
func ValidLocation(location string) string {
	scheme, _, _ := strings.Cut(location, "://")
	strange := func(r rune) bool {
		letter := (r >= 'a' && r <= 'z') || (r >= 'A' && r <= 'Z') || (r >= '0' && r <= '9')
		return !letter && !strings.ContainsRune(":/._=-[]", r)
	}
	if len(location) > maxLocation || !slices.Contains(schemes, scheme) || strings.ContainsFunc(location, strange) {
		return ""
	}
	return location
}

// schemes are those of locations.
var schemes = []string{"s3", "https", "http"}

// archivePhases are all values of Archive.Phase.
var archivePhases = []string{"task", "check", "rollback", "check-before"}

// bounded returns the archives with all fields limited, without those that no manager has written.
func (a Archives) bounded() Archives {
	var valid Archives
	for _, archive := range a {
		if !slices.Contains(archivePhases, archive.Phase) || ValidLocation(archive.Location) == "" || len(valid) == maxArchives {
			continue
		}
		reported := outcome.Archive{Stored: archive.Stored, Bytes: archive.Bytes, Dropped: archive.Dropped, SHA256: archive.SHA256, Error: archive.Error}
		valid = append(valid, ArchiveOf(archive.Phase, archive.Location, reported.Bounded()))
	}
	return valid
}
