// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import "testing"

func TestParentOf(t *testing.T) {
	tests := map[string]struct {
		stat   string
		want   int
		wantOK bool
	}{
		"a plain name":                        {"12 (sh) S 7 12 12 0", 7, true},
		"a name made to look like the fields": {"12 (x) S 1 (y)) S 7 12", 7, true},
		"a name with a newline":               {"12 (a\nb) S 7 12", 7, true},
		"nothing":                             {"", 0, false},
		"half a line":                         {"12 (sh) S", 0, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got, ok := parentOf([]byte(tt.stat)); got != tt.want || ok != tt.wantOK {
				t.Errorf("parentOf(%q) = %d, %v, want %d, %v", tt.stat, got, ok, tt.want, tt.wantOK)
			}
		})
	}
}
