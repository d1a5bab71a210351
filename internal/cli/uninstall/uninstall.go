// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package uninstall is the command uninstall: it removes Everynode from a cluster, step by step.
package uninstall

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/internal/cli/console"
	"github.com/everynode/everynode/internal/text"
	"github.com/everynode/everynode/internal/ui/cmdutil"
	"github.com/everynode/everynode/internal/uninstall"
)

// uninstalling is the execution of the command.
type uninstalling struct {
	*console.Factory
	client client.Client

	yes, dryRun, records, skipRollback bool
	// timeout is how long the manager may make no progress before the command does the work itself.
	timeout time.Duration

	// found is what existed at the beginning.
	found *installation
}

// NewCommand returns the command uninstall.
func NewCommand(f *console.Factory) *cobra.Command {
	u := &uninstalling{Factory: f}
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove Everynode from the cluster, with all NodeJobs and NodeGuards",
		Long: `Remove Everynode from the cluster: stop what runs, open gates, uncordon nodes, delete all NodeJobs and NodeGuards, and
then the manager, its admission policies, its CRDs, its roles and its namespace.

The manager cleans up if it runs. If it does not, or makes no progress for --timeout, the command does it instead. You
can repeat the command, also after a "kubectl delete" that hangs. Records and published results of NodeJobs with
deletionPolicy: Retain stay on the nodes unless you add --records. Nodes that others cordoned stay cordoned.

Rollbacks run only for NodeJobs with deletionPolicy: Rollback. The command names the others, also those that expire, and the
roles and bindings of users that stay.`,
		Example: "  kubectl everynode uninstall --dry-run\n  kubectl everynode uninstall\n  kubectl everynode uninstall --yes --records",
		Args:    console.ExactArgs(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if u.timeout <= 0 {
				return cmdutil.Failf(cmdutil.ExitUsage, "--timeout must be more than 0")
			}
			return u.run(cmd.Context())
		},
	}
	cmd.Flags().BoolVarP(&u.yes, "yes", "y", false, "do not ask")
	cmd.Flags().BoolVar(&u.dryRun, "dry-run", false, "only show what would be removed")
	cmd.Flags().BoolVar(&u.records, "records", false, "also remove all records and published results from the nodes, regardless of deletionPolicy")
	cmd.Flags().BoolVar(&u.skipRollback, "skip-rollback", false, "do not roll back NodeJobs with deletionPolicy: Rollback; leave the nodes as they are")
	cmd.Flags().DurationVar(&u.timeout, "timeout", time.Minute, "how long the manager may make no progress before the command cleans up instead")
	return cmd
}

// run executes the whole command, in the order of its steps.
func (u *uninstalling) run(ctx context.Context) error {
	if err := u.connect(); err != nil {
		return err
	}
	found, err := u.inspect(ctx)
	if err != nil {
		return cmdutil.Explain(err)
	}
	u.found = found
	if found.empty() {
		return u.Say(text.Of("nothing to remove: Everynode is not installed in this cluster"))
	}
	if u.dryRun {
		return u.Say(found.lines(u.records)...)
	}
	if err := u.confirm(ctx); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{
		u.deleteNodeBudgets, u.deleteJobsAndGuards, u.stopManager, u.cleanUp, u.deleteMutatingPolicies, u.deleteCRDs, u.deleteValidatingPolicies, u.cleanUpAgain, u.deleteRBAC, u.deleteNamespace,
	} {
		if err := step(ctx); err != nil {
			return u.interrupted(err)
		}
	}
	u.Tell(found.stays()...)
	return u.Say(text.Toned(text.Good, "Everynode is removed"))
}

// interrupted adds how to continue. Each step can be repeated.
func (u *uninstalling) interrupted(err error) error {
	err = cmdutil.Explain(err)
	return cmdutil.Failf(cmdutil.CodeOf(err), "%w. The removal is not complete. To continue, repeat: kubectl everynode uninstall", err)
}

func (u *uninstalling) confirm(ctx context.Context) error {
	if u.yes {
		return nil
	}
	u.Tell(u.found.lines(u.records)...)
	return u.Confirm(ctx, "Remove Everynode from this cluster", "--yes (--dry-run shows what is removed)")
}

func (u *uninstalling) say(format string, args ...any) {
	u.Tell(text.Of(fmt.Sprintf(format, args...)))
}

// connect creates a client that knows all kinds of an installation.
func (u *uninstalling) connect() error {
	config, err := u.RESTConfig()
	if err != nil {
		return err
	}
	u.client, err = client.New(config, client.Options{Scheme: cmdutil.Scheme, Mapper: uninstall.Mapper()})
	return cmdutil.Explain(err)
}
