// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plural_test

import (
	"testing"

	"github.com/everynode/everynode/internal/plural"
)

func TestCount(t *testing.T) {
	tests := map[int]struct{ count, are string }{
		0:    {"0 nodes", "0 nodes are"},
		1:    {"1 node", "1 node is"},
		2:    {"2 nodes", "2 nodes are"},
		5000: {"5000 nodes", "5000 nodes are"},
	}
	for n, want := range tests {
		if got := plural.Count(n, "node"); got != want.count {
			t.Errorf("Count(%d) = %q, want %q", n, got, want.count)
		}
		if got := plural.CountAre(int32(n), "node"); got != want.are {
			t.Errorf("CountAre(%d) = %q, want %q", n, got, want.are)
		}
	}
}
