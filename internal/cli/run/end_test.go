// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"syscall"
	"testing"

	"github.com/everynode/everynode/internal/cli/cmdutil"
	"github.com/everynode/everynode/internal/cli/view"
)

// failing is a writer that only returns errors.
type failing struct{ err error }

func (w failing) Write([]byte) (int, error) { return 0, w.err }

// TestAFullDiskIsAnError also checks that a pipe that its reader has closed is not an error.
func TestAFullDiskIsAnError(t *testing.T) {
	for name, tt := range map[string]struct {
		err  error
		want int
	}{"a full disk": {syscall.ENOSPC, cmdutil.ExitError}, "a closed pipe": {syscall.EPIPE, cmdutil.ExitOK}} {
		t.Run(name, func(t *testing.T) {
			r := newRun(t, &jobServer{uid: "uid-of-j"})
			r.Out = failing{tt.err}
			for i := range r.view.Nodes {
				r.view.Nodes[i].State = view.RunSucceeded
			}
			r.printLine(0, "said")
			r.draw()
			if err := r.end(t.Context(), endOver); cmdutil.CodeOf(err) != tt.want {
				t.Errorf("it ends with %v", err)
			}
		})
	}
}
