// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestTestsInPagesExist checks that the tests that pages name as evidence are those of the repository.
func TestTestsInPagesExist(t *testing.T) {
	named := regexp.MustCompile("`((?:Test|Fuzz|Benchmark)[A-Z][A-Za-z0-9_]+)`")
	defined := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)[A-Z][A-Za-z0-9_]+)\(`)
	pages, exists := map[string][]string{}, map[string]bool{}
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		isPage := strings.HasSuffix(path, ".md")
		if err != nil || entry.IsDir() || !isPage && !strings.HasSuffix(path, "_test.go") {
			return err
		}
		content, err := os.ReadFile(path)
		if isPage {
			for _, name := range named.FindAllStringSubmatch(string(content), -1) {
				pages[name[1]] = append(pages[name[1]], path)
			}
			return err
		}
		for _, name := range defined.FindAllStringSubmatch(string(content), -1) {
			exists[name[1]] = true
		}
		return err
	})
	if err != nil || len(pages) < 200 {
		t.Fatalf("pages name %d tests: %v", len(pages), err)
	}
	for name, where := range pages {
		if !exists[name] {
			t.Errorf("%s does not exist, and is named in %q", name, where)
		}
	}
}
