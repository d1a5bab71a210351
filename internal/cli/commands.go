// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import "github.com/spf13/cobra"

// mutatingCommands returns the commands that change objects.
func mutatingCommands(f *Factory) []*cobra.Command {
	return []*cobra.Command{
		newRunCommand(f), newPromoteCommand(f), newSuspendCommand(f), newResumeCommand(f), newRetryCommand(f), newRerunCommand(f),
		newSkipCommand(f), newAbortCommand(f), newCreateCommand(f), newUninstallCommand(f),
	}
}
