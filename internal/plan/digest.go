// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import "github.com/everynode/everynode/internal/record"

// digestOf is the digest of a revision that a pod ran, by the spec or by the record before; "" where neither knows.
func (s *planner) digestOf(revision string, prev *record.Record) string {
	switch {
	case revision == s.in.Revision:
		return s.in.Digest
	case prev != nil && prev.Revision == revision:
		return prev.Digest
	}
	return ""
}
