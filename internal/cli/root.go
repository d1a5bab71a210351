// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cli is kubectl everynode. Everything that it does, it does through the objects of the API, where everyone can
// see it and where it survives the command.
//
//	one file per command: flags ──► Complete ──► Validate ──► Run
//	                                                          │ reads the API, makes a view of it (data)
//	                                                          ▼
//	                                     view: view in, lines out (pure) ──► text: lines made safe ──► stdout, or term.Screen
package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"

	"github.com/everynode/everynode/internal/cli/console"
	"github.com/everynode/everynode/internal/cli/run"
	"github.com/everynode/everynode/internal/cli/uninstall"
	"github.com/everynode/everynode/internal/text"
	"github.com/everynode/everynode/internal/ui/cmdutil"
)

// Run executes the command line and returns the exit code. It also prints errors.
func Run(ctx context.Context, streams genericiooptions.IOStreams, args []string) int {
	f := console.NewFactory(streams)
	rest.SetDefaultWarningHandler(warnings{f})
	return execute(ctx, f, args)
}

// execute executes a command, and returns the exit code. It also prints errors.
func execute(ctx context.Context, f *console.Factory, args []string) int {
	root := NewCommand(f) //nolint:contextcheck // cobra passes the context to each command
	root.SetArgs(args)
	return tellError(f, root.ExecuteContext(ctx))
}

// tellError prints an error, unless its command has already done so, and returns its exit code.
func tellError(f *console.Factory, err error) int {
	err = cmdutil.Explain(err)
	if err != nil && !cmdutil.IsSilent(err) {
		f.Tell(text.Toned(text.Bad, "error: ").With(err.Error()))
	}
	return cmdutil.CodeOf(err)
}

// NewCommand returns the command with all subcommands.
func NewCommand(f *console.Factory) *cobra.Command {
	root := &cobra.Command{
		Use:   "kubectl-everynode",
		Short: "Run a task on every node, watch it, explain it, and control it",
		Long: `Run a task on every node of a cluster, watch it, explain it, and control it.

Everything is done through NodeJobs, so it is visible to everyone and survives this command.`,
		Annotations:       map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl everynode"},
		SilenceErrors:     true,
		SilenceUsage:      true,
		DisableAutoGenTag: true,
		// Without RunE, cobra does not distinguish a missing subcommand from a mistyped one.
		SuggestionsMinimumDistance: 2,
		Args:                       noCommand,
		RunE:                       func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetIn(f.In)
	root.SetOut(f.Out)
	root.SetErr(f.ErrOut)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return cmdutil.Failf(cmdutil.ExitUsage, "%w. See: %s --help", err, cmd.CommandPath())
	})
	f.Config.AddFlags(root.PersistentFlags())
	hideRareFlags(root)
	root.AddGroup(&cobra.Group{ID: groupRead, Title: "Commands that read:"}, &cobra.Group{ID: groupDo, Title: "Commands that change objects:"})
	for _, command := range readOnlyCommands(f) {
		command.GroupID = groupRead
		root.AddCommand(command)
	}
	for _, command := range mutatingCommands(f) {
		command.GroupID = groupDo
		root.AddCommand(command)
	}
	root.AddCommand(newVersionCommand(f))
	return root
}

const (
	groupRead = "read"
	groupDo   = "do"
)

// readOnlyCommands returns the commands that change nothing.
func readOnlyCommands(f *console.Factory) []*cobra.Command {
	return []*cobra.Command{newStatusCommand(f), newListCommand(f), newExplainCommand(f), newResultsCommand(f), newReportCommand(f), newPlanCommand(f), newBudgetsCommand(f), newCanICommand(f), newLogsCommand(f), newDashboardCommand(f), newMCPCommand(f)}
}

// mutatingCommands returns the commands that change objects.
func mutatingCommands(f *console.Factory) []*cobra.Command {
	return []*cobra.Command{
		run.NewCommand(f), newPromoteCommand(f), newSuspendCommand(f), newResumeCommand(f), newRetryCommand(f), newRerunCommand(f),
		newSkipCommand(f), newAbortCommand(f), newFreezeCommand(f), newThawCommand(f), newCreateCommand(f), newConvertCommand(f), uninstall.NewCommand(f),
	}
}

func noCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	message := fmt.Sprintf("unknown command %q", args[0])
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		message += fmt.Sprintf(" (similar: %q)", near[0])
	}
	return cmdutil.Failf(cmdutil.ExitUsage, "%s. See: %s --help", message, cmd.CommandPath())
}

// hideRareFlags hides all but the common flags of kubectl in the help, such as --as. The hidden flags still work.
func hideRareFlags(root *cobra.Command) {
	for _, name := range []string{
		"as-group", "as-uid", "as-user-extra", "cache-dir", "certificate-authority", "client-certificate", "client-key", "cluster",
		"disable-compression", "insecure-skip-tls-verify", "password", "request-timeout", "server", "tls-server-name", "token", "user", "username",
	} {
		if flag := root.PersistentFlags().Lookup(name); flag != nil {
			flag.Hidden = true
		}
	}
}

// warnings prints the warnings of the API server.
type warnings struct{ f *console.Factory }

// HandleWarningHeader is called for each warning.
func (w warnings) HandleWarningHeader(code int, _ string, message string) {
	if code == 299 && message != "" {
		w.f.Tell(text.Toned(text.Warn, "warning: ").With(message))
	}
}
