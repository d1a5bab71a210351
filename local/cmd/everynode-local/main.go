// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Command everynode-local runs a real Kubernetes cluster on this machine, without Docker.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/everynode/everynode/local/cluster"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := rootCommand().ExecuteContext(ctx)
	stop()
	if err == nil {
		return
	}
	// A command run on a node decides about our exit code as if it had run here.
	if exit, ok := errors.AsType[*cluster.ExitError](err); ok {
		os.Exit(exit.Code)
	}
	fmt.Fprintf(os.Stderr, "everynode-local: %v\n", err)
	os.Exit(1)
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "everynode-local",
		Short: "Run a real Kubernetes cluster on this machine, without Docker",
		Long: `Runs a real Kubernetes cluster on one Linux machine: a control plane of plain processes, real nodes
made of Linux namespaces (kubelet, containerd, runc), and simulated nodes. Without root, or elsewhere
than on Linux, all nodes are simulated.

Data goes to standard output, progress to standard error.`,
		Example: `  everynode-local up --nodes 3
  export KUBECONFIG=$(everynode-local kubeconfig)
  everynode-local join node-4 --no-cni
  everynode-local reboot node-2
  everynode-local down`,
		SilenceUsage: true, SilenceErrors: true,
	}
	root.PersistentFlags().String("name", "everynode", "name of the cluster")
	root.AddCommand(
		binariesCommand(), prereqsCommand(), upCommand(), downCommand(), listCommand(), kubeconfigCommand(),
		joinCommand(), execCommand(), loadImageCommand(),
	)
	root.AddCommand(nodeCommands()...)
	return root
}

// open finds the cluster that the flags name and shows its progress on standard error.
func open(cmd *cobra.Command) (*cluster.Cluster, error) {
	name, err := cmd.Flags().GetString("name")
	if err != nil {
		return nil, err
	}
	c, err := cluster.Open(name)
	if err != nil {
		return nil, err
	}
	c.SetProgress(cmd.ErrOrStderr())
	return c, nil
}
