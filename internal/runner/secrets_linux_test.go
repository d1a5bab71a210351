// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/everynode/everynode/internal/outcome"
)

// TestSecretsAreMaskedEverywhere : in both streams, in the outcome, and in the outcome for a second container.
func TestSecretsAreMaskedEverywhere(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("0123456789abcdef", 32) // longer than a result may be
	secrets := []string{"TOKEN=s3cr3t-token", "LONG=" + long, "YES=true", `EVERYNODE_MASK=["TOKEN","LONG","YES"]`}
	tests := map[string]struct {
		script      string
		wantCode    int
		wantOut     string
		wantErr     string
		wantMessage string
		wantResults map[string]string
	}{
		"in both streams": {
			script:  `echo "out $TOKEN"; sleep 0.1; echo "err $TOKEN" >&2`,
			wantOut: "out ***\n", wantErr: "err ***\n", wantMessage: "out ***\nerr ***",
		},
		"in two writes": {
			script: `printf s3cr3t; sleep 0.2; echo -token`, wantOut: "***\n", wantMessage: "***",
		},
		"in the trace of a shell": {
			script: "set -x; : $TOKEN; exit 3", wantCode: 3, wantErr: "+ : ***\n+ exit 3\n", wantMessage: "+ : ***\n+ exit 3",
		},
		"the beginning of a secret at the end of the output is not masked": {
			script: `printf s3cr3t`, wantOut: "s3cr3t", wantMessage: "s3cr3t",
		},
		"in results": {
			script:      `printf 'token=%s\nkind=%s-1\n' "$TOKEN" "$TOKEN" >> "$EVERYNODE_RESULTS"`,
			wantResults: map[string]string{"token": "***", "kind": "***-1"},
		},
		"in results as JSON": {
			script: `printf '{"a": "%s"}' "$TOKEN" >> "$EVERYNODE_RESULTS"`, wantResults: map[string]string{"a": "***"},
		},
		"in a result that is too long": {
			script: `echo "a=$LONG" >> "$EVERYNODE_RESULTS"`, wantResults: map[string]string{"a": "***"},
		},
		"in the key of a result, which is reported masked": {
			script: `echo "$TOKEN=1" >> "$EVERYNODE_RESULTS"`, wantMessage: `results: line 1: "***" is no key: `,
			wantErr: `everynode-runner: results: line 1: "***" is no key: `,
		},
		"a request for a reboot is not masked": {
			script:      `echo reboot=true >> "$EVERYNODE_RESULTS"; echo more=true >> "$EVERYNODE_RESULTS"`,
			wantResults: map[string]string{"reboot": "true", "more": "***"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			got := runToEnd(t, append(secrets, "TEST_RUN_DIR="+dir, "EVERYNODE_SCRIPT="+tt.script)...)
			if got.code != tt.wantCode || got.stdout != tt.wantOut || !strings.HasPrefix(got.stderr, tt.wantErr) ||
				(tt.wantErr == "") != (got.stderr == "") {
				t.Errorf(
					"ended with %d, stdout %q, stderr %q; want %d, %q, %q",
					got.code,
					got.stdout,
					got.stderr,
					tt.wantCode,
					tt.wantOut,
					tt.wantErr,
				)
			}
			if !strings.HasPrefix(got.outcome.Message, tt.wantMessage) || (tt.wantMessage == "") != (got.outcome.Message == "") {
				t.Errorf("message %q, want %q", got.outcome.Message, tt.wantMessage)
			}
			if diff := cmp.Diff(tt.wantResults, got.outcome.Results); diff != "" {
				t.Errorf("results (-want +got):\n%s", diff)
			}
			kept, err := os.ReadFile(filepath.Join(dir, outcomeName))
			if err != nil || strings.Contains(string(kept), "s3cr3t-token") {
				t.Errorf("kept for another container: %q, %v", kept, err)
			}
		})
	}
}

func TestScriptsSeeTheirSecrets(t *testing.T) {
	t.Parallel()
	got := runToEnd(t, "TOKEN=s3cr3t-token", `EVERYNODE_MASK=["TOKEN"]`, "EVERYNODE_OUTPUT=Tail", "EVERYNODE_VERSION=v1",
		`EVERYNODE_SCRIPT=[ "$TOKEN" = s3cr3t-"token" ] && [ -z "${EVERYNODE_MASK+x}${EVERYNODE_OUTPUT+x}${EVERYNODE_VERSION+x}" ]`)
	if got.code != 0 {
		t.Errorf("ended with %d: %s", got.code, got.outcome.Message)
	}
}

// TestOutputNone : the output is in the container's log alone; the exit code, the reason, the results and what the runner
// itself has to say are kept.
func TestOutputNone(t *testing.T) {
	t.Parallel()
	const notKept = "the output is not kept (task.output.record: None)"
	tests := map[string]struct {
		script  string
		environ []string
		want    outcome.Outcome
	}{
		"of a success": {
			script: `echo hello; echo a=1 >> "$EVERYNODE_RESULTS"`,
			want:   outcome.Outcome{Results: map[string]string{"a": "1"}},
		},
		"of a failure": {
			script: `echo hello; exit 3`,
			want:   outcome.Outcome{ExitCode: 3, Reason: outcome.ReasonTaskFailed, Message: notKept},
		},
		"of a check": {
			script: ":", environ: []string{"EVERYNODE_CHECK=echo hello; exit 4"},
			want: outcome.Outcome{ExitCode: 4, Reason: outcome.ReasonCheckFailed, Message: notKept},
		},
		"of a script that is killed": {
			script: `echo hello; kill -9 $$`,
			want:   outcome.Outcome{ExitCode: 137, Reason: outcome.ReasonSignaled, Message: notKept + "\nthe script was killed by SIGKILL"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := runToEnd(t, append(tt.environ, "EVERYNODE_OUTPUT=None", "EVERYNODE_SCRIPT="+tt.script)...)
			if diff := cmp.Diff(tt.want, got.outcome); diff != "" {
				t.Errorf("outcome (-want +got):\n%s", diff)
			}
			if got.stdout != "hello\n" {
				t.Errorf("stdout %q: the log has it all the same", got.stdout)
			}
		})
	}
}

func TestARunnerOfAnotherVersionSaysSo(t *testing.T) {
	t.Parallel()
	const said = "this is everynode-runner v1.0.0, and the manager is v1.1.0: name the runner image of the manager's release in its flag --runner-image"
	for manager, want := range map[string]string{"v1.1.0": said, "v1.0.0": "", "": "", "unknown": ""} {
		t.Run("manager "+manager, func(t *testing.T) {
			t.Parallel()
			got := runToEnd(t, "TEST_VERSION=v1.0.0", "EVERYNODE_VERSION="+manager, "EVERYNODE_SCRIPT=:")
			if got.code != 0 || got.outcome.Message != want {
				t.Errorf("ended with %d, message %q, want %q", got.code, got.outcome.Message, want)
			}
		})
	}
}
