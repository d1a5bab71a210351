// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// sh runs a command on the node, beside the task.
func (w *world) sh(node, script string) string {
	w.T.Helper()
	stdout, stderr, err := real.Exec(w.Ctx, node, "/bin/sh", "-c", script)
	if err != nil {
		w.T.Fatalf("on %s: %s: %v\n%s%s", node, script, err, stdout, stderr)
	}
	return strings.TrimSpace(stdout)
}

// mark is a line of script that notes on the node's disk that the script ran.
func (w *world) mark() string { return "echo ran >> " + w.markFile() }

func (w *world) markFile() string { return "/var/tmp/" + w.Namespace }

// timed is a script that notes on the node's disk when its body began and ended, and ends as that does.
func (w *world) timed(body string) string {
	return fmt.Sprintf("date +%%s.%%N >> %[1]s.times\n(\n%[2]s\n)\ncode=$?\ndate +%%s.%%N >> %[1]s.times\nexit $code", w.markFile(), body)
}

type span struct{ began, ended time.Time }

// spans are the runs of timed scripts on a node, in their order. One that runs has not ended.
func (w *world) spans(node string) []span {
	w.T.Helper()
	var spans []span
	for i, line := range strings.Fields(w.sh(node, "cat "+w.markFile()+".times 2>/dev/null || true")) {
		seconds, err := strconv.ParseFloat(line, 64)
		must(w.T, err)
		at := time.UnixMicro(int64(seconds * 1e6))
		if i%2 == 0 {
			spans = append(spans, span{began: at})
		} else {
			spans[len(spans)-1].ended = at
		}
	}
	return spans
}

// ran is how often mark was run on the node.
func (w *world) ran(node string) int {
	w.T.Helper()
	return strings.Count(w.sh(node, "cat "+w.markFile()+" 2>/dev/null || true"), "ran")
}

func (w *world) wantRan(node string, want int) {
	w.T.Helper()
	if got := w.ran(node); got != want {
		w.T.Errorf("the script ran %d times on %s, want %d", got, node, want)
	}
}

// hold is a script that notes that it ran and ends once the test lets it.
func (w *world) hold() string {
	return w.mark() + "; while [ ! -e " + w.markFile() + ".go ]; do sleep 0.1; done"
}

// began waits until the script itself runs: a container runs a little earlier.
func (w *world) began(node string) {
	w.T.Helper()
	w.Eventually("the script runs on "+node, func() error {
		if w.ran(node) == 0 {
			return errors.New("it has not begun")
		}
		return nil
	})
}

func (w *world) letGo(node string) { w.sh(node, "touch "+w.markFile()+".go") }
