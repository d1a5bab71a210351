// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"io"
	"strings"
	"testing"
)

// TestAScriptThatFailsWithoutOutput requires a message that helps, and none where the output helps more.
func TestAScriptThatFailsWithoutOutput(t *testing.T) {
	t.Parallel()
	const xtrace = "To see which command failed, let it print what it does"
	for name, tt := range map[string]struct {
		env  []string
		want []string // all are in the message
		not  string   // is not
	}{
		"a script": {
			env:  []string{"EVERYNODE_SCRIPT=set -e\ntrue\nfalse\ntrue\n"},
			want: []string{"the script ended with exit code 1 and printed nothing (interpreter /bin/sh). " + xtrace},
		},
		"a script with one command": {
			env:  []string{"EVERYNODE_SCRIPT=#!/bin/sh -u\n\n# why\ngrep -q x /dev/null\n"},
			want: []string{"the script ended with exit code 1 in line 4 (grep -q x /dev/null) and printed nothing (interpreter /bin/sh). " + xtrace},
		},
		"a script of another language has comments of its own": {
			env:  []string{`EVERYNODE_INTERPRETER=["/usr/bin/env","sh"]`, "EVERYNODE_SCRIPT=false\n"},
			want: []string{"the script ended with exit code 1 and printed nothing (interpreter /usr/bin/env). "},
		},
		"a check after a task that prints": {
			env:  []string{"EVERYNODE_SCRIPT=echo wrote it", "EVERYNODE_CHECK=test -e /no/such\n"},
			want: []string{"wrote it\nthe check ended with exit code 1 in line 1 (test -e /no/such) and printed nothing (interpreter /bin/sh). "},
		},
		"a check after a task that prints much": {
			env:  []string{"EVERYNODE_SCRIPT=head -c 3000000 /dev/zero | tr '\\0' x", "EVERYNODE_CHECK=exit 3"},
			want: []string{"the check ended with exit code 3 in line 1 (exit 3) and printed nothing"},
		},
		"a check that prints after a silent task": {
			env:  []string{"EVERYNODE_SCRIPT=:", "EVERYNODE_CHECK=echo wrong; false"},
			want: []string{"wrong"}, not: "printed nothing",
		},
		"a script that prints to standard error":  {env: []string{"EVERYNODE_SCRIPT=echo wrong >&2; false"}, want: []string{"wrong"}, not: "printed nothing"},
		"a script whose child prints at the end":  {env: []string{"EVERYNODE_SCRIPT=(sleep 0.1; echo late) & exit 1"}, want: []string{"late"}, not: "printed nothing"},
		"a script that prints only a line ending": {env: []string{"EVERYNODE_SCRIPT=echo; false"}, not: "printed nothing"},
		"a script that succeeds":                  {env: []string{"EVERYNODE_SCRIPT=true"}, not: "printed nothing"},
		"a script that is killed":                 {env: []string{"EVERYNODE_SCRIPT=kill -KILL $$"}, want: []string{"the script was killed by SIGKILL"}, not: "printed nothing"},
		"a script that takes too long":            {env: []string{"EVERYNODE_SCRIPT=sleep 60", "EVERYNODE_TIMEOUT=1"}, want: []string{"the time limit"}, not: "printed nothing"},
		"a script whose output is not kept":       {env: []string{"EVERYNODE_SCRIPT=false", "EVERYNODE_OUTPUT=None"}, want: []string{"the output is not kept (task.output.record: None)"}, not: "printed nothing"},
		"a command that was not found":            {env: []string{"EVERYNODE_SCRIPT=nosuch 2>/dev/null"}, want: []string{"exit code 127 in line 1 (nosuch 2>/dev/null)", "Exit code 127 usually means that a command was not found. " + xtrace}},
		"a command that cannot be executed":       {env: []string{"EVERYNODE_SCRIPT=/etc/passwd 2>/dev/null"}, want: []string{"exit code 126 in line 1", "Exit code 126 usually means that a command was found, but cannot be executed. "}},
		"a command that was killed":               {env: []string{"EVERYNODE_SCRIPT=exit 137"}, want: []string{"Exit code 137 usually means that a command was killed by SIGKILL. "}},
		"an exit code that is no signal":          {env: []string{"EVERYNODE_SCRIPT=exit 255"}, want: []string{"exit code 255 in line 1 (exit 255) and printed nothing (interpreter /bin/sh). " + xtrace}},
		"a task that is a command":                {env: []string{`EVERYNODE_COMMAND=["false"]`}, want: []string{"the command (false) ended with exit code 1 and printed nothing"}, not: "interpreter"},
		"a check of a task that is a command":     {env: []string{`EVERYNODE_COMMAND=["true"]`, "EVERYNODE_CHECK=false"}, want: []string{"the check ended with exit code 1 in line 1 (false) and printed nothing (interpreter /bin/sh). "}},
		"a line that has a secret":                {env: []string{"EVERYNODE_SCRIPT=test s3cr3t-token = \t$TOKEN-", "TOKEN=s3cr3t-token", `EVERYNODE_MASK=["TOKEN"]`}, want: []string{`in line 1 (test *** = \t$TOKEN-) and`}},
		"a line that is long":                     {env: []string{"EVERYNODE_SCRIPT=test " + strings.Repeat("a", 300) + " = b"}, want: []string{"aaa...) and printed nothing (interpreter /bin/sh). " + xtrace}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := runToEnd(t, tt.env...)
			for _, want := range tt.want {
				if !strings.Contains(got.outcome.Message, want) {
					t.Errorf("message %q, want %q in it", got.outcome.Message, want)
				}
			}
			if tt.not != "" && strings.Contains(got.outcome.Message, tt.not) {
				t.Errorf("message %q, and %q in it", got.outcome.Message, tt.not)
			}
		})
	}
}

func TestPrintedCountsWhatIsStillInThePipe(t *testing.T) {
	t.Parallel()
	read, write, err := pipe()
	if err != nil {
		t.Fatal(err)
	}
	p := startPump(read, io.Discard, &tail{}, nil, patience, nil)
	for i := range 5000 {
		if _, err := write.WriteString("x\n"); err != nil {
			t.Fatal(err)
		}
		if got, want := p.printed(), 2*(i+1); got != want {
			t.Fatalf("%d bytes, want %d", got, want)
		}
	}
	if err := write.Close(); err != nil {
		t.Fatal(err)
	}
	p.finish(patience, patience)
	if got := p.printed(); got != 10000 {
		t.Errorf("at the end: %d bytes, want 10000", got)
	}
}
