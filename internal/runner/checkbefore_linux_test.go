// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/everynode/everynode/internal/outcome"
)

// TestCheckBefore runs a check that counts its runs. The task succeeds and leaves a file, unless the case has its own.
func TestCheckBefore(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		check      string // after which the answer is taken from the count
		env        []string
		wantCode   int
		wantReason string
		wantSaid   string
		wantTask   bool
	}{
		"yes: the task is not needed": {check: "exit 0", wantReason: outcome.ReasonAlreadyDone},
		"no, and yes after the task":  {check: `[ "$n" = 2 ]`, wantTask: true},
		"no, and no after the task": {
			check:      "exit 1",
			wantCode:   1,
			wantReason: outcome.ReasonCheckFailed,
			wantTask:   true,
		},
		"no, as grep says it of a file that does not exist": {check: `[ "$n" = 2 ] || grep -q x /no/such`, wantTask: true},
		"no, as cmp says it": {check: `[ "$n" = 2 ] || cmp -s /no/such /no/such`, wantTask: true},
		"no, as diff says it of a file that does not exist":        {check: `[ "$n" = 2 ] || diff -q /no/such /etc/passwd`, wantTask: true},
		"no, as getent says it of a group that does not exist":     {check: `[ "$n" = 2 ] || getent group no-such-group`, wantTask: true},
		"no, as test says it of a number that is missing":          {check: `[ "$n" = 2 ] || [ "$(cat /no/such)" -ge 1 ]`, wantTask: true},
		"no, as a shell says it of a file that cannot be executed": {check: `[ "$n" = 2 ] || /etc/passwd`, wantTask: true},
		"no, as a shell says it":                                   {check: `[ "$n" = 2 ] || no-such-command`, wantTask: true},
		"no, as systemctl says it":                                 {check: `[ "$n" = 2 ] || exit 3`, wantTask: true},
		"a signal to a program of the check is no answer": {
			check: "sh -c 'kill -KILL $$'; exit $?", wantCode: 137, wantReason: outcome.ReasonCheckError,
		},
		"it cannot say": {
			check:      "echo no database; exit 75",
			wantCode:   75,
			wantReason: outcome.ReasonCheckError,
			wantSaid:   "no database",
		},
		"an exit code after the task is a no": {
			check:      "exit $((n == 1 ? 1 : 3))",
			wantCode:   3,
			wantReason: outcome.ReasonCheckFailed,
			wantTask:   true,
		},
		"a signal is no answer": {
			check:      "kill -KILL $$",
			wantCode:   137,
			wantReason: outcome.ReasonCheckError,
			wantSaid:   "SIGKILL",
		},
		"a signal with the number of a no is none": {check: "kill -HUP $$", wantCode: 129, wantReason: outcome.ReasonCheckError},
		"a timeout is no answer": {
			check:      "sleep 100",
			env:        []string{"EVERYNODE_TIMEOUT=1"},
			wantCode:   124,
			wantReason: outcome.ReasonCheckError,
			wantSaid:   "the time limit of 1s passed while the check before the task ran",
		},
		"a missing interpreter is no answer": {check: "", env: []string{`EVERYNODE_CHECK_INTERPRETER=["/no/such"]`}, wantCode: 125,
			wantReason: outcome.ReasonCheckError, wantSaid: `interpreter "/no/such" not found on the node`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			count := "echo >>" + dir + "/checks; n=$(wc -l <" + dir + "/checks)\n"
			got := runToEnd(
				t,
				append(
					[]string{
						"EVERYNODE_SCRIPT=echo >" + dir + "/task",
						"EVERYNODE_CHECK=" + count + tt.check,
						"EVERYNODE_CHECK_BEFORE=true",
					},
					tt.env...)...)
			o := got.outcome
			if got.code != tt.wantCode || o.Reason != tt.wantReason || !strings.Contains(o.Message, tt.wantSaid) {
				t.Errorf(
					"exit code %d, reason %q, message %q; want %d, %q, %q",
					got.code,
					o.Reason,
					o.Message,
					tt.wantCode,
					tt.wantReason,
					tt.wantSaid,
				)
			}
			if ran, _ := filepath.Glob(dir + "/task"); (len(ran) == 1) != tt.wantTask {
				t.Errorf("the task ran: %v, want %v", len(ran) == 1, tt.wantTask)
			}
		})
	}
}
