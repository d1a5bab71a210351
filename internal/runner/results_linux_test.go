// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/everynode/everynode/internal/outcome"
)

func TestResults(t *testing.T) {
	t.Parallel()
	many := map[string]string{}
	for i := range outcome.MaxResults {
		many[fmt.Sprintf("k%05d", i)] = fmt.Sprint(i)
	}
	tests := map[string]struct {
		script        string
		wantCode      int
		want          map[string]string
		wantTruncated bool
		wantSaid      string
	}{
		"lines": {
			script: `printf 'a=1\n# no\n\nb = 2\na=3\n' >> "$EVERYNODE_RESULTS"`,
			want:   map[string]string{"a": "3", "b": "2"},
		},
		"a JSON object": {
			script: `echo '{"a":"1","n":[1, 2]}' > "$EVERYNODE_RESULTS"`,
			want:   map[string]string{"a": "1", "n": "[1,2]"},
		},
		"no results": {script: ":"},
		"results of a task that fails": {
			script:   `echo a=1 >> "$EVERYNODE_RESULTS"; exit 3`,
			wantCode: 3,
			want:     map[string]string{"a": "1"},
		},
		"control characters are escaped": {
			script: `printf 'a=\033[31m\000\n' >> "$EVERYNODE_RESULTS"`,
			want:   map[string]string{"a": `\x1b[31m\x00`},
		},
		"an invalid result is reported": {
			script:   `echo hello > "$EVERYNODE_RESULTS"`,
			wantSaid: `results: line 1: "hello" is not key=value`,
		},
		"1 MB on one line is harmless": {
			script:        `head -c 1000000 /dev/zero | tr '\0' x > "$EVERYNODE_RESULTS"`,
			wantTruncated: true,
			wantSaid:      "results: some were omitted or cut",
		},
		"of 10,000 keys the first 32 are kept": {
			script:        `i=0; while [ $i -lt 10000 ]; do printf 'k%05d=%d\n' $i $i; i=$((i+1)); done > "$EVERYNODE_RESULTS"`,
			want:          many,
			wantTruncated: true,
			wantSaid:      "at most 32",
		},
		"a results file may be replaced in place, read and grown": {
			script: `echo a=1 > "$EVERYNODE_RESULTS"; read -r old < "$EVERYNODE_RESULTS"; echo "b=$old" > "$EVERYNODE_RESULTS"`,
			want:   map[string]string{"b": "a=1"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := runToEnd(t, "EVERYNODE_SCRIPT="+tt.script)
			if got.code != tt.wantCode || got.outcome.Truncated != tt.wantTruncated || !strings.Contains(got.outcome.Message, tt.wantSaid) {
				t.Errorf(
					"ended with %d, truncated %v, message %q; want %d, %v, %q",
					got.code,
					got.outcome.Truncated,
					got.outcome.Message,
					tt.wantCode,
					tt.wantTruncated,
					tt.wantSaid,
				)
			}
			if diff := cmp.Diff(tt.want, got.outcome.Results); diff != "" {
				t.Errorf("results (-want +got):\n%s", diff)
			}
		})
	}
}

func TestResultsOfTheCheckAreAdded(t *testing.T) {
	t.Parallel()
	got := runToEnd(t, `EVERYNODE_SCRIPT=echo a=1 >> "$EVERYNODE_RESULTS"`, `EVERYNODE_CHECK=echo b=2 >> "$EVERYNODE_RESULTS"`)
	if diff := cmp.Diff(map[string]string{"a": "1", "b": "2"}, got.outcome.Results); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
}

func TestResultsFileIsBounded(t *testing.T) {
	t.Parallel()
	// The loop ends because a write fails; without the bound it would run into the time limit.
	got := runToEnd(
		t,
		"EVERYNODE_TIMEOUT=20",
		`EVERYNODE_SCRIPT=while head -c 65536 /dev/zero; do :; done >> "$EVERYNODE_RESULTS" 2>/dev/null; echo stopped`,
	)
	if got.code != 0 || !strings.Contains(got.stdout, "stopped") {
		t.Errorf("ended with %d %s, stdout %q", got.code, got.outcome.Reason, got.stdout)
	}
}
