// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// forbiddenWords matches the words in quotation marks in the columns "Do not write" of the glossary.
func forbiddenWords(t *testing.T) *regexp.Regexp {
	t.Helper()
	page, err := os.ReadFile("../../docs/glossary.md")
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	column := -1
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(line, "|")
		if !strings.HasPrefix(line, "|") {
			column = -1
			continue
		}
		for i, cell := range cells {
			if strings.TrimSpace(cell) == "Do not write" {
				column = i
			}
		}
		if column < 0 {
			t.Fatalf("a table has no column \"Do not write\": %s", line)
		}
		for _, word := range regexp.MustCompile(`"([^"]+)"`).FindAllStringSubmatch(cells[column], -1) {
			words = append(words, regexp.QuoteMeta(word[1]))
		}
	}
	if len(words) < 50 {
		t.Fatalf("the glossary forbids %d words: where are the others?", len(words))
	}
	return regexp.MustCompile(`(?i)\b(` + strings.Join(words, "|") + `)\b`)
}

// messages are the packages and files whose texts users read: descriptions of fields, and messages in the status, in events and in
// rejections.
var messages = []string{
	"../../api/v1alpha1",
	"../nodejob/plan",
	"../nodeguard/guard",
	"../nodebudget/budget",
	"../nodebudget/window",
	"../nodejob/task",
	"../manager/controller",
	"../manager/guardcontroller",
	"../manager/budgetcontroller",
	"../observe",
	"../outcome",
	"../script",
	"../manager/notify",
	"../../config/authorization",
	"../../config/confinement",
	"../../config/gate",
	"../../config/warnings",
}

func TestDescriptionsAndMessagesUseTheTermsOfTheGlossary(t *testing.T) {
	forbidden := forbiddenWords(t)
	for _, dir := range messages {
		found := 0
		if err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil || entry.IsDir() || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "zz_generated"):
				return err
			case strings.HasSuffix(path, ".go"):
				found++
				checkStrings(t, path, strings.Contains(path, "v1alpha1"), forbidden)
			case strings.HasSuffix(path, ".yaml"):
				found++
				checkYAML(t, path, forbidden)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if found == 0 {
			t.Errorf("%s has no Go and no YAML files", dir)
		}
	}
}

// checkStrings checks the texts in a Go file: string literals with several words, and comments too if users read them.
func checkStrings(t *testing.T, path string, comments bool, forbidden *regexp.Regexp) {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	check := func(at token.Pos, text string) {
		if word := forbidden.FindString(text); word != "" {
			t.Errorf("%s: the glossary forbids %q: %s", set.Position(at), word, text)
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING && strings.Contains(lit.Value, " ") {
			if text, err := strconv.Unquote(lit.Value); err == nil {
				check(lit.Pos(), text)
			}
		}
		return true
	})
	for _, group := range file.Comments {
		if comments {
			check(group.Pos(), strings.Join(strings.Fields(group.Text()), " "))
		}
	}
}

// checkYAML checks the lines of a YAML file, comments included.
func checkYAML(t *testing.T, path string, forbidden *regexp.Regexp) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(string(data), "\n") {
		if word := forbidden.FindString(line); word != "" {
			t.Errorf("%s:%d: the glossary forbids %q: %s", path, i+1, word, strings.TrimSpace(line))
		}
	}
}
