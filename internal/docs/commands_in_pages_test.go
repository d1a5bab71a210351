// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/everynode/everynode/internal/cli"
	"github.com/everynode/everynode/internal/cli/console"
	"github.com/everynode/everynode/internal/ui/cmdutil"
)

var (
	codeBlock = regexp.MustCompile("(?s)\n *```[a-z]*\n(.*?)\n *```")
	codeSpan  = regexp.MustCompile("`(kubectl everynode [^`]+)`")
	// substitution is the output of another command, which is one or more words.
	substitution = regexp.MustCompile(`"?\$\([^)]*\)"?`)
	// word is a word of a shell command. A quoted part is never empty here.
	word = regexp.MustCompile(`(?:'[^']*'|"[^"]*"|[^\s'"])+`)
)

// TestCommandsInPages parses each kubectl everynode command that the documentation shows: commands, flags, and how many
// arguments they have. test/api executes them.
func TestCommandsInPages(t *testing.T) {
	recipes, err := filepath.Glob("../../recipes/*.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, page := range append(pages(t), recipes...) {
		content, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range commandsInBlocks(string(content)) {
			found++
			if err := parseCommand(line, true); err != nil {
				t.Errorf("%s: %s: %v", page, line, err)
			}
		}
		for _, span := range codeSpan.FindAllStringSubmatch(string(content), -1) {
			found++
			if err := parseCommand(span[1], false); err != nil {
				t.Errorf("%s: %s: %v", page, span[1], err)
			}
		}
	}
	if found < 60 {
		t.Errorf("only %d commands were found", found)
	}
}

func TestParseCommandFindsMistakes(t *testing.T) {
	for _, line := range []string{
		"kubectl everynode stauts NAME", "kubectl everynode explain", "kubectl everynode status NAME --wat", "kubectl everynode skip NAME",
		"kubectl everynode results NAME -o csv --by", "kubectl everynode",
	} {
		if parseCommand(line, true) == nil {
			t.Errorf("no mistake is found in: %s", line)
		}
	}
	if err := parseCommand("kubectl everynode run -l 'a=b' --yes -- sh -c 'x | y' > out", true); err != nil {
		t.Error(err)
	}
}

// commandsInBlocks returns the commands in the code blocks of a page.
func commandsInBlocks(content string) []string {
	var commands []string
	for _, block := range codeBlock.FindAllStringSubmatch(content, -1) {
		for line := range strings.Lines(strings.ReplaceAll(block[1], "\\\n", " ")) {
			line = strings.TrimPrefix(strings.TrimSpace(line), "$ ")
			if _, after, piped := strings.Cut(line, "| kubectl everynode "); piped {
				line = "kubectl everynode " + after
			}
			if strings.HasPrefix(line, "kubectl everynode ") {
				commands = append(commands, line)
			}
		}
	}
	return commands
}

// parseCommand parses a command as the plugin does, without running it. A sentence may name a command without its arguments:
// then complete is false.
func parseCommand(line string, complete bool) error {
	words := slices.DeleteFunc(wordsOf(line), func(w string) bool { return w == "--help" })
	streams, _, _, _ := genericiooptions.NewTestIOStreams()
	root := cli.NewCommand(console.NewFactory(streams))
	command, rest, err := root.Find(words[2:])
	if err != nil {
		return err
	}
	if command == root && len(rest) == 0 {
		return cmdutil.Failf(cmdutil.ExitUsage, "it has no command")
	}
	if err := command.ParseFlags(rest); err != nil {
		return err
	}
	if !complete {
		return nil
	}
	return command.ValidateArgs(command.Flags().Args())
}

// wordsOf returns the words of a simple command, up to a pipe, a redirection or a comment.
func wordsOf(line string) []string {
	var words []string
	for _, w := range word.FindAllString(substitution.ReplaceAllString(line, "OUTPUT"), -1) {
		if strings.ContainsAny(w[:1], "|>;&#<") {
			break
		}
		words = append(words, strings.Trim(w, `'"`))
	}
	return words
}
