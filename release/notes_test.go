// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"strings"
	"testing"
)

func TestChangesOf(t *testing.T) {
	const changelog = `# Changelog

Intro.

## [Unreleased]

### Added

- Next ([page](docs/next.md#part)).

## [0.2.0] - 2026-02-01

- Second ([site](https://example.com/a)).



- Third.

## 0.1.0

- First.

## [0.0.1]
`
	const tree = "https://github.com/everynode/everynode/blob/"
	tests := map[string]struct{ version, want, err string }{
		"a section with a date":      {"v0.2.0", "- Second ([site](https://example.com/a)).\n\n- Third.", ""},
		"a section without brackets": {"v0.1.0", "- First.", ""},
		"what is not released yet":   {"v0.3.0", "### Added\n\n- Next ([page](" + tree + "v0.3.0/docs/next.md#part)).", ""},
		"a section that has nothing": {"v0.0.1", "", "the section 0.0.1 of CHANGELOG.md is empty: describe the changes"},
		"a version that begins like others": {
			"v0.2.0-rc.1",
			"### Added\n\n- Next ([page](" + tree + "v0.2.0-rc.1/docs/next.md#part)).",
			"",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := changesOf(changelog, tt.version)
			if got != tt.want || (err == nil) != (tt.err == "") || err != nil && err.Error() != tt.err {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
	if _, err := changesOf("# Changelog\n", "v0.1.0"); err == nil {
		t.Error("a changelog without sections has changes")
	}
}

func TestNotesNameTheImages(t *testing.T) {
	notes := string(read(t, built(t), NotesFile))
	for _, want := range []string{
		"kubectl apply -f https://github.com/everynode/everynode/releases/download/v0.7.3-test.1/install.yaml\n",
		"helm install everynode oci://registry.example/everynode/charts/everynode --version 0.7.3-test.1 --namespace everynode-system ",
		"- `registry.example/everynode/manager:v0.7.3-test.1@sha256:", "- `registry.example/everynode/runner:v0.7.3-test.1@sha256:", "- `registry.example/everynode/runner-archive:v0.7.3-test.1@sha256:",
		"\n### Added\n",
	} {
		if !strings.Contains(notes, want) {
			t.Errorf("notes without %q:\n%s", want, notes)
		}
	}
}
