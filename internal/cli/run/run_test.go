// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"strings"
	"testing"

	"github.com/everynode/everynode/internal/testing/clitest"
	"github.com/everynode/everynode/internal/ui/cmdutil"
)

func TestACommandForAShell(t *testing.T) {
	const hint = "note: no shell reads the command, so the node needs a program with this name. To run it in a shell: -- sh -c "
	for name, tt := range map[string]struct {
		command []string
		want    string
	}{
		"a pipe":                      {[]string{"echo hi | cat"}, hint + "'echo hi | cat'\n"},
		"a quote":                     {[]string{"it's"}, hint + `'it'\''s'` + "\n"},
		"a program":                   {[]string{"/usr/bin/uname"}, ""},
		"arguments with such letters": {[]string{"grep", "a | b"}, ""},
		"a pipe between arguments": {[]string{"uname", "-r", "|", "wc", "-l"}, "note: no shell reads the command, so | is an argument like the others. " +
			"To run it in a shell: -- sh -c 'uname -r | wc -l'\n"},
		"the end of find -exec": {[]string{"find", "/etc", "-exec", "ls", "{}", ";"}, ""},
		"a script":              {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := newRun(t, &jobServer{}, func(o *options) { o.command = tt.command }).options
			if err := o.confirm(
				t.Context(),
				targets{names: []string{"node-1"}},
			); err != nil ||
				o.ErrOut.(*clitest.Buffer).String() != tt.want {
				t.Errorf("%v, and it says %q, want %q", err, o.ErrOut, tt.want)
			}
		})
	}
}

func TestScriptsThatAnInterpreterWouldMisread(t *testing.T) {
	for name, tt := range map[string]struct{ script, want string }{
		"a script":             {"#!/bin/sh\ntrue\n", ""},
		"Windows line endings": {"#!/bin/sh\r\ntrue\r\n", "the script - has Windows line endings (CRLF), the first in line 1"},
		"a byte order mark":    {"\ufeff#!/bin/sh\ntrue\n", "the script - has a byte order mark (BOM) at the beginning of line 1"},
	} {
		t.Run(name, func(t *testing.T) {
			f, _, _ := clitest.NewFactory(t, &jobServer{})
			f.In = strings.NewReader(tt.script)
			o := &options{Factory: f, file: "-"}
			err := o.readScript()
			switch {
			case tt.want == "" && (err != nil || o.script != tt.script):
				t.Errorf("%v, and the script is %q", err, o.script)
			case tt.want != "" && (err == nil || !strings.HasPrefix(err.Error(), tt.want) || cmdutil.CodeOf(err) != cmdutil.ExitUsage):
				t.Errorf("%v, want %s", err, tt.want)
			}
		})
	}
}
