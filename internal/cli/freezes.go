// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/internal/cli/console"
	"github.com/everynode/everynode/internal/text"
	"github.com/everynode/everynode/internal/ui/cmdutil"
	"github.com/everynode/everynode/internal/ui/view"
)

// freezes returns the freezes that select nodes of the cluster. If they cannot be read, the command continues without them.
func freezes(ctx context.Context, f *console.Factory, c client.Reader) []view.Freeze {
	found, err := cmdutil.Freezes(ctx, c, f.Now)
	if err != nil {
		f.Tell(text.Of("could not check whether nodes are frozen: " + err.Error()))
	}
	return found
}

// sayFreezes prints freezes above what a command prints.
func sayFreezes(f *console.Factory, found []view.Freeze) error {
	if len(found) == 0 {
		return nil
	}
	return f.Say(append(view.Freezes(found, f.Now(), f.Terminal().Options().Width), nil)...)
}
