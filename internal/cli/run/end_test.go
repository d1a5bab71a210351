// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"bytes"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/everynode/everynode/internal/testing/clitest"
	"github.com/everynode/everynode/internal/ui/cmdutil"
	"github.com/everynode/everynode/internal/ui/view"
)

// failing is a writer that only returns errors.
type failing struct{ err error }

func (w failing) Write([]byte) (int, error) { return 0, w.err }

// TestAFullDiskIsAnError also checks that a pipe that its reader has closed is not an error.
func TestAFullDiskIsAnError(t *testing.T) {
	for name, tt := range map[string]struct {
		err   error
		state view.RunState
		want  int
		// told is true if the message is printed beside the exit code of the run.
		told bool
	}{
		"a full disk":                      {syscall.ENOSPC, view.RunSucceeded, cmdutil.ExitError, false},
		"a closed pipe":                    {syscall.EPIPE, view.RunSucceeded, cmdutil.ExitOK, false},
		"a full disk, and a failed node":   {syscall.ENOSPC, view.RunFailed, cmdutil.ExitNodesFailed, true},
		"a closed pipe, and a failed node": {syscall.EPIPE, view.RunFailed, cmdutil.ExitNodesFailed, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRun(t, &jobServer{uid: "uid-of-j"})
			var errs bytes.Buffer
			r.Out, r.ErrOut = failing{tt.err}, &errs
			for i := range r.view.Nodes {
				r.view.Nodes[i].State = tt.state
			}
			r.display.printLines("node-1", []string{"said"})
			r.draw()
			if err := r.end(t.Context(), endOver); cmdutil.CodeOf(err) != tt.want {
				t.Errorf("it ends with %v", err)
			}
			if told := strings.Contains(errs.String(), "writing what the nodes printed"); told != tt.told {
				t.Errorf("the error is printed: %v, want %v, in:\n%s", told, tt.told, errs.String())
			}
		})
	}
}

// TestTheResultIdentifiesTheRun checks the lines at the end, which are also in the summary of --save.
func TestTheResultIdentifiesTheRun(t *testing.T) {
	const sum = "b5bea41b6c62" // sha256sum of a script with the content true
	tests := map[string]struct {
		options options
		saved   bool
		state   view.RunState
		want    []string
		not     string
	}{
		"a command": {
			options: options{command: []string{"echo", "a  \u009b2J"}, all: true},
			state:   view.RunSucceeded,
			not:     "saved",
			want: []string{
				"2 of 2 succeeded in ",
				"\nCommand  echo 'a  \\u009b2J'\nNodes    --all (2 nodes)\nTime     20",
				" UTC\nNodeJob  ns/j\n",
				"NodeJob j is kept for 1h0m0s: kubectl everynode status j -n ns\n",
			},
		},
		"a script on some nodes": {
			options: options{
				file:     "fix.sh",
				script:   "true",
				selector: "pool in (db, web)",
				limits:   []string{"a*", "!ab"},
			},
			state: view.RunSucceeded,
			want: []string{
				"\nCommand  the script fix.sh (SHA-256 " + sum + ")\nNodes    -l 'pool in (db, web)' --limit 'a*,!ab' (2 nodes)\n",
			},
		},
		"a saved run": {
			options: options{
				command: []string{"true"},
				nodes:   []string{"node-1", "node-2"},
			},
			saved: true,
			state: view.RunSucceeded,
			not:   "--limit",
			want:  []string{"\nNodes    node-1, node-2 (2 nodes)\n", "The output is saved in DIR.\n"},
		},
		"a saved run that failed": {
			options: options{command: []string{"true"}, all: true},
			saved:   true,
			state:   view.RunFailed,
			want: []string{
				"0 of 2 succeeded, 2 failed in ",
				"  failed      node-1: exit code 3: TaskFailed\n",
				"The output is saved in DIR. To repeat the command on the nodes on which it did not succeed: --limit @DIR\n",
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRun(t, &jobServer{uid: "uid-of-j"}, func(o *options) {
				f, client := o.Factory, o.client
				*o = tt.options
				o.Factory, o.client, o.namespace, o.ttl = f, client, "ns", time.Hour
				o.limit.patterns = o.limits
			})
			dir := filepath.Join(t.TempDir(), "saved")
			if tt.saved {
				var err error
				if r.saved, err = newSaver(dir); err != nil {
					t.Fatal(err)
				}
				defer r.saved.close()
			}
			for i := range r.view.Nodes {
				if r.view.Nodes[i].State = tt.state; tt.state == view.RunFailed {
					r.view.Nodes[i].ExitCode, r.view.Nodes[i].Said = new(int32(3)), "TaskFailed"
				}
			}
			_ = r.end(t.Context(), endOver)
			told := r.ErrOut.(*clitest.Buffer).String()
			for _, want := range tt.want {
				if !strings.Contains(told, strings.ReplaceAll(want, "DIR", dir)) {
					t.Errorf("no %q in\n%s", want, told)
				}
			}
			if tt.not != "" && strings.Contains(told, tt.not) {
				t.Errorf("there is %q in\n%s", tt.not, told)
			}
			if tt.saved && savedFiles(t, dir)[summaryFile] != told {
				t.Errorf("the summary is\n%s\nwant\n%s", savedFiles(t, dir)[summaryFile], told)
			}
		})
	}
}
