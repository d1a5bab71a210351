// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/api/v1alpha1"
)

// page is a page of the documentation.
type page struct {
	// file is its path in the repository.
	file, content string
}

// block is a code block of a page.
type block struct {
	line              int
	language, content string
}

// command is a shell command in a page.
type command struct {
	line int
	text string
}

var (
	fence = regexp.MustCompile("(?ms)^ *```([a-z]*)\n(.*?)\n *```$")
	// span is a command in a sentence.
	span = regexp.MustCompile("`(kubectl [^`]+)`")
	// verb is a span that only names a command: kubectl drain, or kubectl everynode explain.
	verb = regexp.MustCompile(`^kubectl (everynode )?\S+$`)
)

// prompts are the languages of the blocks with commands, and what is in front of each command.
var prompts = map[string]string{"sh": "", "console": "$ "}

func readPages(t *testing.T) []page {
	t.Helper()
	var pages []page
	for _, pattern := range []string{"*.md", "recipes/*.md", "docs/*.md"} {
		files, err := filepath.Glob("../../" + pattern)
		must(t, err)
		for _, file := range files {
			content, err := os.ReadFile(file)
			must(t, err)
			pages = append(pages, page{strings.TrimPrefix(file, "../../"), string(content)})
		}
	}
	if len(pages) < 20 {
		t.Fatalf("only %d pages were found", len(pages))
	}
	return pages
}

// blocks returns the code blocks of a page.
func (p page) blocks() []block {
	var found []block
	for _, at := range fence.FindAllStringSubmatchIndex(p.content, -1) {
		found = append(found, block{p.lineOf(at[4]), p.content[at[2]:at[3]], p.content[at[4]:at[5]]})
	}
	return found
}

func (p page) lineOf(offset int) int { return strings.Count(p.content[:offset], "\n") + 1 }

// commands returns the commands of a page in their order: those in its code blocks, and those of kubectl in its sentences.
func (p page) commands(t *testing.T) []command {
	t.Helper()
	var found []command
	for _, b := range p.blocks() {
		if b.language == "" {
			t.Errorf(
				"%s:%d: the code block has no language: sh has commands, console has commands and output, text has neither",
				p.file,
				b.line,
			)
		}
		found = append(found, p.commandsIn(t, b)...)
	}
	sentences := fence.ReplaceAllStringFunc(p.content, func(b string) string { return strings.Repeat("\n", strings.Count(b, "\n")) })
	for _, at := range span.FindAllStringSubmatchIndex(sentences, -1) {
		text := strings.ReplaceAll(sentences[at[2]:at[3]], "\n", " ")
		if !verb.MatchString(text) && !slices.Contains(onlyNames, text) {
			found = append(found, command{strings.Count(sentences[:at[2]], "\n") + 1, text})
		}
	}
	slices.SortStableFunc(found, func(a, b command) int { return cmp.Compare(a.line, b.line) })
	return found
}

// commandsIn returns the commands of a code block. A command ends with the line with which the shell can parse it. A
// script is one command.
func (p page) commandsIn(t *testing.T, b block) []command {
	t.Helper()
	prompt, ok := prompts[b.language]
	if !ok {
		return nil
	}
	if strings.HasPrefix(b.content, "#!") {
		return []command{{b.line, b.content}}
	}
	var found []command
	open := false
	for i, line := range strings.Split(b.content, "\n") {
		text, begins := strings.CutPrefix(strings.TrimLeft(line, " "), prompt)
		switch {
		case open:
			found[len(found)-1].text += "\n" + line
		case begins && text != "" && text[0] != '#':
			found = append(found, command{b.line + i, text})
		default:
			continue
		}
		open = !isWhole(found[len(found)-1].text)
	}
	if open {
		t.Errorf("%s:%d: the shell cannot parse: %s", p.file, found[len(found)-1].line, found[len(found)-1].text)
	}
	return found
}

// isWhole reports whether the shell can parse a command.
func isWhole(text string) bool {
	return !strings.HasSuffix(text, `\`) && exec.Command("bash", "-n", "-c", text).Run() == nil
}

// manifests returns the code blocks with whole objects, by the name of the NodeJob or NodeGuard among the objects, or of the
// first object, if the API server has their kinds.
func (p page) manifests(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, b := range p.blocks() {
		if b.language != "yaml" {
			continue
		}
		name := ""
		for _, object := range objectsIn(t, []byte(b.content)) {
			if object.GetName() == "" || foreign[object.GetKind()] != "" {
				name = ""
				break
			}
			if name == "" || object.GroupVersionKind().Group == v1alpha1.Group {
				name = object.GetName()
			}
		}
		if name != "" {
			found[name] = b.content
		}
	}
	return found
}

// objectsIn returns the documents in YAML that are mappings. Many of them only have some fields of an object.
func objectsIn(t *testing.T, content []byte) []*unstructured.Unstructured {
	t.Helper()
	var objects []*unstructured.Unstructured
	for _, document := range split(t, content) {
		var value any
		must(t, yaml.Unmarshal(document, &value))
		if fields, ok := value.(map[string]any); ok {
			objects = append(objects, &unstructured.Unstructured{Object: fields})
		}
	}
	return objects
}
