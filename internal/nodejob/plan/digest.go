// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import "github.com/everynode/everynode/internal/nodejob/record"

// digestOf is the digest of the revision that a pod ran, from the spec or from the previous record; "" if neither has
// it.
func (a *attemptReader) digestOf(revision string, prev *record.Record) string {
	switch {
	case revision == a.in.Revision:
		return a.in.Digest
	case prev != nil && prev.Revision == revision:
		return prev.Digest
	}
	return ""
}
