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

func TestOfImage(t *testing.T) {
	tests := map[string]struct{ image, want string }{
		"a tag is the version":                  {"ghcr.io/everynode/manager:v1.2.3", "v1.2.3"},
		"a digest after the tag is not part":    {"ghcr.io/everynode/manager:v1.2.3-rc.1@sha256:0a1b", "v1.2.3-rc.1"},
		"a tag without v is the same version":   {"ghcr.io/everynode/manager:1.2.3", "v1.2.3"},
		"a port of the registry is not a tag":   {"localhost:5000/everynode/manager", ""},
		"a port and a tag":                      {"localhost:5000/everynode/manager:v1.2.3", "v1.2.3"},
		"a digest alone is not a version":       {"ghcr.io/everynode/manager@sha256:0a1b", ""},
		"a tag that can be moved is no version": {"registry.local/everynode/manager:dev", ""},
		"no image":                              {"", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := OfImage(tt.image); got != tt.want {
				t.Errorf("version %q, want %q", got, tt.want)
			}
		})
	}
}
