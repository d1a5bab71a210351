// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// capture is a picture in the docs: its name, and what it shows.
var capture = regexp.MustCompile("(?s)<!-- ([a-z0-9.-]+) -->\n```\n(.*?)```\n")

// TestTheDocsShowWhatIsDrawn : the pictures in docs/cli.md are those that are tested. With -update they are put there.
func TestTheDocsShowWhatIsDrawn(t *testing.T) {
	const page = "../../../docs/cli.md"
	content, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if len(capture.FindAll(content, -1)) < 3 {
		t.Error("there are hardly any pictures")
	}
	fresh := capture.ReplaceAllFunc(content, func(found []byte) []byte {
		m := capture.FindSubmatch(found)
		drawn, err := os.ReadFile(filepath.Join("testdata", string(m[1])+".txt"))
		if err != nil {
			t.Error(err)
			return found
		}
		if string(drawn) != string(m[2]) && !*update {
			t.Errorf("docs/cli.md shows something else than %s: go test ./internal/cli/view -update", m[1])
		}
		return []byte("<!-- " + string(m[1]) + " -->\n```\n" + string(drawn) + "```\n")
	})
	if *update {
		if err := os.WriteFile(page, fresh, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
