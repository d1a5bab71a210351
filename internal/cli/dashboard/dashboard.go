// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package dashboard is the command dashboard: a local web page that shows the nodes of a cluster, their NodeJobs and the
// reason for every wait, and that follows what happens.
//
//	mirror: lists and watches, once ──► observed ──► model, detail (pure) ──► state: what changed since a version ──► tabs
//
// The page is in the folder page: modules without a build step. It has only what the user may read, and writes text only.
package dashboard

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"net"
	"net/http"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/everynode/everynode/internal/cli/cmdutil"
	"github.com/everynode/everynode/internal/text"
)

// dashboard is the server of the page for the user who runs the command.
type dashboard struct {
	*cmdutil.Factory
	*viewer
	// token is what a request must have, and host the address on which the server listens.
	token, host string
	// making counts the changes that are being made.
	making chan struct{}
}

// NewCommand returns the command dashboard. The page offers the changes.
func NewCommand(f *cmdutil.Factory, changes Changes) *cobra.Command {
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
			d, err := newDashboard(f, changes)
			if err != nil {
				return err
			}
			d.makes = allowChanges
			return d.run(ctx, port)
		},
	}
	cmd.Flags().IntVar(&port, "port", 0, "the port on 127.0.0.1; 0 for any that is free")
	cmd.Flags().BoolVar(&allowChanges, "allow-changes", false, "the page can promote, suspend, resume, retry and skip")
	return cmd
}

// run serves the page until the context ends.
func (d *dashboard) run(ctx context.Context, port int) error {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return cmdutil.Failf(cmdutil.ExitError, "listening on 127.0.0.1: %w. Choose another port: --port", err)
	}
	d.host = listener.Addr().String()
	go d.viewer.run(ctx)
	server := &http.Server{
		Handler: d.handler(), ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 16 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx }, // so that streams end with the command
	}
	go func() {
		<-ctx.Done()
		_ = server.Close()
	}()
	if err := d.Print([]text.Line{text.Of(d.address())}); err != nil {
		return err
	}
	d.Tell(text.Of("open this address in a browser on this machine; Ctrl-C ends the dashboard. Do not pass it on: it contains a token"))
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func newDashboard(f *cmdutil.Factory, changes Changes) (*dashboard, error) {
	namespace, err := f.Namespace()
	if err != nil {
		return nil, err
	}
	c, err := f.Client()
	if err != nil {
		return nil, err
	}
	a := access{
		client: c, pods: f.Pods, now: f.Now, after: f.After,
		machine: time.Now, //nolint:forbidigo // it measures durations on this machine
	}
	d := &dashboard{Factory: f, viewer: newViewer(a, namespace, changes), token: rand.Text(), making: make(chan struct{}, maxChanges)}
	if name := f.Config.Context; name != nil {
		d.flag = *name
	}
	if raw, err := f.Config.ToRawKubeConfigLoader().RawConfig(); err == nil {
		d.context = cmp.Or(d.flag, raw.CurrentContext)
	}
	return d, nil
}

// address returns the address of the page. The token is in the fragment, which a browser sends to no server.
func (d *dashboard) address() string { return "http://" + d.host + "/#token=" + d.token }
