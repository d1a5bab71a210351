// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package version

import "testing"

func TestDiffer(t *testing.T) {
	tests := map[string]struct {
		a, b string
		want bool
	}{
		"the same version does not differ":    {"v1.2.3", "v1.2.3", false},
		"another version differs":             {"v1.2.3", "v1.2.4", true},
		"a build without a version may be it": {"v1.2.3", "(devel)", false},
		"an unknown version may be it":        {"unknown", "v1.2.3", false},
		"no version may be it":                {"", "v1.2.3", false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := Differ(tt.a, tt.b); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestTheLinkersVersionComesFirst(t *testing.T) {
	if String() == "" {
		t.Error("no version at all")
	}
	version = "v1.2.3"
	defer func() { version = "" }()
	if got := String(); got != "v1.2.3" {
		t.Errorf("version %q, want the linker's", got)
	}
}
