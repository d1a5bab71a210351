// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package script

import (
	"strings"
	"testing"
)

func TestProblem(t *testing.T) {
	for name, tt := range map[string]struct{ text, want string }{
		"nothing":                                {"#!/bin/sh\nprintf 'a\\r\\n'\n", ""},
		"a text without a line ending":           {"true", ""},
		"Windows line endings":                   {"#!/bin/sh\r\ntrue\r\n", "has Windows line endings (CRLF), the first in line 1: "},
		"Windows line endings in a part":         {"set -e\ntouch /run/x\r\ntrue\n", "has Windows line endings (CRLF), the first in line 2: "},
		"a carriage return at the end":           {"touch /run/x\r", "has Windows line endings (CRLF), the first in line 1: "},
		"a carriage return within a line":        {"printf 'a\rb'\n", ""},
		"a byte order mark":                      {"\ufeffset -e\n", "has a byte order mark (BOM) at the beginning of line 1, "},
		"a byte order mark after an empty line":  {"\n\ufeff#!/bin/bash\n", "has a byte order mark (BOM) at the beginning of line 2, "},
		"a byte order mark within a line":        {"echo '\ufeff'\n", ""},
		"a byte order mark and Windows, as both": {"\ufeff#!/bin/bash\r\n", "has a byte order mark (BOM) at the beginning of line 1, "},
	} {
		t.Run(name, func(t *testing.T) {
			got := Problem(tt.text)
			if (got == "") != (tt.want == "") || !strings.HasPrefix(got, tt.want) {
				t.Errorf("problem %q, want one that begins with %q", got, tt.want)
			}
		})
	}
}

func TestInterpreter(t *testing.T) {
	for name, tt := range map[string]struct {
		text, program, argument string
		line                    int
	}{
		"no line":                             {text: "set -e\n"},
		"an empty script":                     {text: ""},
		"the first line":                      {"#!/bin/bash\ntrue", "/bin/bash", "", 1},
		"the first line, with one argument":   {"#! /usr/bin/env -S bash -eu \n", "/usr/bin/env", "-S bash -eu", 1},
		"the first line, without a path":      {"#!bash\n", "bash", "", 1},
		"the first line, without a program":   {"#! \n", "", "", 1},
		"after an empty line":                 {"\n#!/bin/bash\n", "/bin/bash", "", 2},
		"after lines with blanks":             {" \n\t\n#!/bin/bash -e", "/bin/bash", "-e", 3},
		"after comments":                      {"# License\n#\n\n  # more\n#!/usr/bin/python3\nimport os\n", "/usr/bin/python3", "", 5},
		"after a comment, not a path":         {"# Set up\n#!important: read this\ntrue\n", "", "", 0},
		"after a comment that looks like one": {"# Set up\n#!important\n#!/bin/bash\n", "/bin/bash", "", 3},
		"after a command":                     {"cat > /run/x <<'END'\n#!/bin/bash\nEND\n", "", "", 0},
		"after blanks":                        {"  #!/bin/bash\n  true\n", "/bin/bash", "", 1},
		"after a comment and blanks":          {"# Set up\n\t#!/bin/bash\n", "/bin/bash", "", 2},
		"the first line beats a later one":    {"#!/bin/sh\n#!/bin/bash\n", "/bin/sh", "", 1},
		"after blanks, not a path":            {" #!bash\n", "", "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			program, argument, line := Interpreter(tt.text)
			if program != tt.program || argument != tt.argument || line != tt.line {
				t.Errorf("%q %q in line %d, want %q %q in line %d", program, argument, line, tt.program, tt.argument, tt.line)
			}
		})
	}
}

func TestOnlyLine(t *testing.T) {
	for name, tt := range map[string]struct {
		text string
		want int
	}{
		"one line":             {"grep -q x /etc/y", 1},
		"one line of comments": {"#!/bin/sh\n# why\n\n  grep -q x /etc/y\n\n", 4},
		"two lines":            {"set -e\nfalse\n", 0},
		"a continued line":     {"false ||\n  false\n", 0},
		"none":                 {"# nothing\n", 0},
	} {
		t.Run(name, func(t *testing.T) {
			content, got := OnlyLine(tt.text)
			if got != tt.want || (content == "grep -q x /etc/y") != (got > 0) {
				t.Errorf("line %d is %q, want line %d", got, content, tt.want)
			}
		})
	}
}
