// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"testing"
	"time"

	"github.com/everynode/everynode/internal/cli/console"
	"github.com/everynode/everynode/internal/ui/cmdutil"
)

// jobKey is the key of the record of the NodeJob j.
const jobKey = "ns.everynode.dev/j"

// command executes a command, and returns its exit code.
func command(t *testing.T, f *console.Factory, args ...string) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	root := NewCommand(f)
	root.SetArgs(args)
	err := cmdutil.Explain(root.ExecuteContext(ctx))
	if err != nil && !cmdutil.IsSilent(err) {
		t.Log(err)
	}
	return cmdutil.CodeOf(err)
}
