// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cmdutil

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSimilarNamesComeFirst(t *testing.T) {
	got := Nearest("max-map", []string{"zeta", "sysctl", "max-map-count", "map"})
	if diff := cmp.Diff([]string{"max-map-count", "map", "sysctl", "zeta"}, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
