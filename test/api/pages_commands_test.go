// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/everynode/everynode/internal/cli"
)

var (
	// executable is a command that may be executed on the machine of the test.
	executable = regexp.MustCompile(`^([a-z]+=\$\(|source <\(|#!/bin/sh\nexec )?kubectl[ -]`)
	// assignment is a command that sets a variable for later commands of its page.
	assignment = regexp.MustCompile(`^([a-z]+)=\$\(`)
	// toFile is the end of a command that writes its output to a file.
	toFile = regexp.MustCompile(`> (\S+)$`)
	// endless is a command that follows changes and does not end.
	endless = regexp.MustCompile(`^kubectl (.*get .*|everynode status .*) --watch$`)
)

// TestTheCommandsInThePagesWork executes each command that the documentation shows, with the state that the page describes,
// in a shell with kubectl and the plugin. It checks the exit code, and that the command finds something to print.
func TestTheCommandsInThePagesWork(t *testing.T) {
	needsPolicies(t) // the pages describe an installation that is complete
	d := newDescribed(t)
	pages := readPages(t)
	for _, p := range pages {
		t.Run(p.file, func(t *testing.T) {
			commands := slices.DeleteFunc(p.commands(t), func(c command) bool { return c.text == last || why(notExecuted, c.text) != "" })
			if len(commands) == 0 {
				return
			}
			d.T = t
			d.begin(pages, p)
			variables := ""
			for _, c := range commands {
				if !executable.MatchString(c.text) {
					t.Errorf("%s:%d: neither executed nor listed: %s", p.file, c.line, c.text)
					continue
				}
				d.prepare(p, c)
				variables += d.execute(p, c, variables)
			}
			if i := slices.IndexFunc(d.states, func(s state) bool { return s.page == p.file }); i >= 0 {
				t.Errorf("no command begins with %q", d.states[i].command)
			}
		})
	}
	d.T = t
	d.dir = d.folder(nil)
	d.execute(page{file: "docs/uninstall.md"}, command{text: last}, "")
}

// programs are those that the commands use, apart from kubectl and the shell. This program is each of them if it is
// started with that name.
var programs = map[string]func() int{
	"jq": jq,
	"kubectl-everynode": func() int {
		streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
		args := os.Args[1:]
		if len(args) > 0 && args[0] == "freeze" {
			args = append(args, "--timeout=0") // no kubelet runs the seats
		}
		return cli.Run(context.Background(), streams, args)
	},
}

// prepare brings about the state in which a page shows a command.
func (d *described) prepare(p page, c command) {
	d.T.Helper()
	i := slices.IndexFunc(d.states, func(s state) bool { return s.page == p.file && strings.HasPrefix(c.text, s.command) })
	if i >= 0 {
		script := d.states[i].script
		d.states = slices.Delete(d.states, i, i+1)
		d.mustRun(script)
	}
}

// execute runs a command, and returns the variables that it sets.
func (d *described) execute(p page, c command, variables string) string {
	d.T.Helper()
	script := strings.NewReplacer(placeholders...).Replace(c.text)
	script = toFile.ReplaceAllString(script, "| tee $1")
	assigned := assignment.FindStringSubmatch(script)
	if assigned != nil {
		script += "\necho $" + assigned[1]
	}
	got := d.run(variables+script, endless.MatchString(script))
	d.T.Logf("%s:%d: %s\n%s%s", p.file, c.line, script, got.out, got.err)
	printed, listed := strings.TrimSpace(got.out) != "", why(printsNothing, c.text) != ""
	switch {
	case got.code != exitCodes[c.text]:
		d.T.Errorf("%s:%d: the exit code is %d, want %d", p.file, c.line, got.code, exitCodes[c.text])
	case !printed && !listed:
		d.T.Errorf("%s:%d: the command prints nothing", p.file, c.line)
	case printed && listed:
		d.T.Errorf("%s:%d: the command prints something: remove it from printsNothing", p.file, c.line)
	}
	if assigned == nil {
		return ""
	}
	return fmt.Sprintf("%s=%q\n", assigned[1], strings.TrimSpace(got.out))
}

// why returns the reason in a table with the beginnings of commands.
func why(reasons map[string]string, text string) string {
	for begin, reason := range reasons {
		if strings.HasPrefix(text, begin) {
			return reason
		}
	}
	return ""
}

// TestTheTablesForThePagesAreUsed finds entries that are for no command.
func TestTheTablesForThePagesAreUsed(t *testing.T) {
	var files, commands []string
	content := ""
	for _, p := range readPages(t) {
		files, content = append(files, p.file), content+p.content
		for _, c := range p.commands(t) {
			commands = append(commands, c.text)
		}
	}
	equal := func(command, entry string) bool { return command == entry }
	check := func(entry string, fits func(command, entry string) bool) {
		t.Helper()
		if !slices.ContainsFunc(commands, func(command string) bool { return fits(command, entry) }) {
			t.Errorf("no page has the command %q", entry)
		}
	}
	for begin := range notExecuted {
		check(begin, strings.HasPrefix)
	}
	for begin := range printsNothing {
		check(begin, strings.HasPrefix)
	}
	for command := range exitCodes {
		check(command, equal)
	}
	for pair := range slices.Chunk(placeholders, 2) {
		check(pair[0], strings.Contains)
	}
	check(last, equal)
	for _, name := range onlyNames {
		if !strings.Contains(content, "`"+name+"`") {
			t.Errorf("no page names %q", name)
		}
	}
	for _, s := range states { // whether they fit is checked when the commands are executed
		if !slices.Contains(files, s.page) {
			t.Errorf("there is no page %s", s.page)
		}
	}
}
