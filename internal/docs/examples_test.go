// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package docs

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/everynode/everynode/internal/testing/plantest"
)

var update = flag.Bool("update", false, "write the examples into the documentation")

// marked is an example in a page: its name, the language of the code block, and the text.
var marked = regexp.MustCompile("(?ms)^<!-- example: ([a-z0-9-]+) -->\n```([a-z]*)\n(.*?)^```\n")

// TestExamples compares the marked code blocks of the documentation with what the code prints.
func TestExamples(t *testing.T) {
	shown := map[string]bool{}
	for _, page := range pages(t) {
		content, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		fresh := marked.ReplaceAllFunc(content, func(block []byte) []byte {
			m := marked.FindSubmatch(block)
			name, language, text := string(m[1]), string(m[2]), string(m[3])
			shown[name] = true
			example, ok := examples[name]
			if !ok {
				t.Errorf("%s has the example %s, which does not exist", page, name)
				return block
			}
			printed := ""
			t.Run(name, func(t *testing.T) {
				printed = example(t)
				if diff := plantest.Diff(text, printed); diff != "" && !*update {
					t.Errorf("%s differs from what the code prints (- page, + code).\n"+
						"If the change is intended: go test ./internal/docs -update\n%s", page, diff)
				}
			})
			return []byte("<!-- example: " + name + " -->\n```" + language + "\n" + printed + "```\n")
		})
		if *update && !t.Failed() {
			if err := os.WriteFile(page, fresh, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name := range examples {
		if !shown[name] {
			t.Errorf("no page shows the example %s", name)
		}
	}
}

func pages(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, pattern := range []string{"../../*.md", "../../docs/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, found...)
	}
	if len(all) < 10 {
		t.Fatalf("only the pages %q were found", all)
	}
	return all
}
