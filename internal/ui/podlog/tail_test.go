// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package podlog

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/everynode/everynode/internal/testing/clitest"
)

// TestAReopenedLogContinues has the responses to each request for one log. All but the last break off.
func TestAReopenedLogContinues(t *testing.T) {
	long, other := strings.Repeat("0123456789", 3*MaxLine/10), strings.Repeat("abcdefghij", 3*MaxLine/10)
	tests := map[string]struct {
		answers []string
		want    string
	}{
		"in one go": {[]string{clitest.LogLine(0, "one\n") + clitest.LogLine(0, "two\n")}, "one\ntwo\n"},
		"between two lines": {
			[]string{clitest.LogLine(0, "one\n"), clitest.LogLine(0, "one\n") + clitest.LogLine(1, "two\n")},
			"one\ntwo\n",
		},
		"in the middle of one": {
			[]string{clitest.LogLine(0, "one\n") + clitest.LogLine(1, "tw"), clitest.LogLine(0, "one\n") + clitest.LogLine(1, "two\n")},
			"one\ntwo\n",
		},
		"lines of the same time": {
			[]string{
				clitest.LogLine(0, "a\n") + clitest.LogLine(0, "a\n"),
				clitest.LogLine(0, "a\n") + clitest.LogLine(0, "a\n") + clitest.LogLine(0, "a\n") + clitest.LogLine(0, "b\n"),
			},
			"a\na\na\nb\n",
		},
		"a log that was rotated": {
			[]string{
				clitest.LogLine(0, "one\n") + clitest.LogLine(1000, "two\n"),
				clitest.LogLine(1000, "two\n") + clitest.LogLine(1001, "three\n"),
			},
			"one\ntwo\nthree\n",
		},
		"a rotated log with missing lines": {
			[]string{clitest.LogLine(0, "one\n") + clitest.LogLine(1000, "two\n"), clitest.LogLine(1005, "three\n")},
			"one\ntwo\nthree\n",
		},
		"no newline at the end of the log": {
			[]string{clitest.LogLine(0, "one\n") + clitest.LogLine(1, "tw"), clitest.LogLine(0, "one\n") + clitest.LogLine(1, "two")},
			"one\ntwo",
		},
		"a long line": {[]string{clitest.LogLine(0, long+"\n") + clitest.LogLine(1, "two\n")}, long + "\ntwo\n"},
		"in a long line": {
			[]string{
				clitest.LogLine(0, "one\n") + clitest.LogLine(1, long[:2*MaxLine]),
				clitest.LogLine(0, "one\n") + clitest.LogLine(1, long+"\n") + clitest.LogLine(2, "two\n"),
			},
			"one\n" + long + "\ntwo\n",
		},
		"twice in a long line": {
			[]string{
				clitest.LogLine(0, "one\n") + clitest.LogLine(0, long[:2*MaxLine]),
				clitest.LogLine(0, "one\n") + clitest.LogLine(0, long[:MaxLine]),
				clitest.LogLine(0, "one\n") + clitest.LogLine(0, long+"\n") + clitest.LogLine(0, "two\n"),
			},
			"one\n" + long + "\ntwo\n",
		},
		"in the second of two long lines": {
			[]string{
				clitest.LogLine(0, long+"\n") + clitest.LogLine(0, other[:2*MaxLine]),
				clitest.LogLine(0, long+"\n") + clitest.LogLine(0, other+"\n"),
			},
			long + "\n" + other + "\n",
		},
		"a long line without an end": {[]string{clitest.LogLine(0, long[:2*MaxLine]), clitest.LogLine(0, long)}, long},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			opened := 0
			f, _, _ := clitest.NewFactory(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, tt.answers[opened])
				if opened++; opened < len(tt.answers) {
					clitest.BreakOff(w)
				}
			}))
			pods, err := f.Pods("ns")
			if err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			hand := func(piece string, _ bool) { got.WriteString(piece) }
			log := Tail{Pods: pods, Pod: "p", Lines: -1}
			for i := range tt.answers {
				if _, err := log.Read(t.Context(), hand); (err == nil) != (i == len(tt.answers)-1) {
					t.Errorf("request %d ends with %v", i+1, err)
				}
			}
			log.Flush(hand)
			if diff := cmp.Diff(tt.want, got.String()); diff != "" {
				t.Errorf("-want +got\n%.2000s", diff)
			}
		})
	}
}
