// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"net"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/everynode/everynode/internal/cli/console"
	"github.com/everynode/everynode/internal/dashboard"
	"github.com/everynode/everynode/internal/text"
	"github.com/everynode/everynode/internal/ui/cmdutil"
)

func newDashboardCommand(f *console.Factory) *cobra.Command {
	port, allowChanges := 0, false
	cmd := &cobra.Command{
		Use:   "dashboard",
		Short: "Show the nodes and their NodeJobs on a local web page",
		Long: `Show the nodes of the cluster on a web page that follows what happens: their state under each NodeJob, the reason
for every wait, the steps of each rollout, and the logs of tasks.

The page is served on 127.0.0.1 until you press Ctrl-C. It shows what your kubeconfig may read, and changes nothing. Only a
browser with the printed address can use it: the address contains a random token.

With --allow-changes, the page has buttons to promote, suspend and resume NodeJobs, and to retry and skip nodes, with the
permissions of your kubeconfig. Each change shows its effect and the equivalent command, and must be confirmed.`,
		Example: `  kubectl everynode dashboard

  # with buttons to promote, suspend, resume, retry and skip
  kubectl everynode dashboard --allow-changes

  # always at the same port
  kubectl everynode dashboard --port 8137`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if port < 0 || port > 65535 {
				return cmdutil.Failf(cmdutil.ExitUsage, "--port is from 0 to 65535")
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			o, err := localDashboard(f)
			if err != nil {
				return err
			}
			o.AllowChanges = allowChanges
			var config net.ListenConfig
			listener, err := config.Listen(ctx, "tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
			if err != nil {
				return cmdutil.Failf(cmdutil.ExitError, "listening on 127.0.0.1: %w. Choose another port: --port", err)
			}
			return o.Serve(ctx, listener)
		},
	}
	cmd.Flags().IntVar(&port, "port", 0, "the port on 127.0.0.1; 0 for any that is free")
	cmd.Flags().BoolVar(&allowChanges, "allow-changes", false, "the page can promote, suspend, resume, retry and skip")
	return cmd
}

// localDashboard returns the dashboard for the user's kubeconfig.
func localDashboard(f *console.Factory) (*dashboard.Local, error) {
	key, c, err := f.Target("")
	if err != nil {
		return nil, err
	}
	o := &dashboard.Local{
		Client: c, Pods: f.Pods, Namespace: key.Namespace, Now: f.Now, After: f.After, Tell: f.Tell,
		Ready: func(address string) error {
			if err := f.Say(text.Of(address)); err != nil {
				return err
			}
			f.Tell(text.Of("open this address in a browser on this machine; Ctrl-C ends the dashboard. Do not pass it on: it contains a token"))
			return nil
		},
	}
	if name := f.Config.Context; name != nil {
		o.ContextFlag = *name
	}
	if raw, err := f.Config.ToRawKubeConfigLoader().RawConfig(); err == nil {
		o.Context = cmp.Or(o.ContextFlag, raw.CurrentContext)
	}
	return o, nil
}
