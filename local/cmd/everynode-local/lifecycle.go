// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/everynode/everynode/local/binaries"
	"github.com/everynode/everynode/local/cluster"
	"github.com/everynode/everynode/local/prereq"
)

func binariesCommand() *cobra.Command {
	var kubernetes string
	cmd := &cobra.Command{
		Use:   "binaries [NAME...]",
		Short: "Build the programs a cluster is made of, and print their folder",
		Long: `Builds those of the named programs (all, without a name) that the cache lacks, from their Go modules,
and prints the folder that holds them. "envtest" stands for etcd, kube-apiserver and kubectl.`,
		Example: `  everynode-local binaries
  everynode-local binaries --kubernetes 1.34 kubelet kube-proxy
  KUBEBUILDER_ASSETS=$(everynode-local binaries envtest) go test ./...`,
		RunE: func(cmd *cobra.Command, args []string) error {
			var names []string
			for _, name := range args {
				if name == "envtest" {
					names = append(names, binaries.EnvTest()...)
				} else {
					names = append(names, name)
				}
			}
			if len(names) == 0 || slices.Contains(names, "runc") {
				if err := prereq.Ensure(cmd.Context(), cmd.ErrOrStderr(), cluster.Prerequisites(cmd.Context())); err != nil {
					return err
				}
			}
			dir, err := binaries.Ensure(cmd.Context(), cmd.ErrOrStderr(), kubernetes, names...)
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), dir)
			return nil
		},
	}
	kubernetesFlag(cmd, &kubernetes)
	return cmd
}

// kubernetesFlag adds the flag that picks the version of Kubernetes.
func kubernetesFlag(cmd *cobra.Command, version *string) {
	cmd.Flags().StringVar(version, "kubernetes", binaries.DefaultKubernetes,
		"minor version of Kubernetes: "+strings.Join(binaries.KubernetesVersions(), ", "))
}

func prereqsCommand() *cobra.Command {
	var check bool
	cmd := &cobra.Command{
		Use:   "prereqs",
		Short: "Install what this machine lacks for real nodes, or name it",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			needs := cluster.Prerequisites(cmd.Context())
			if !check {
				return prereq.Ensure(cmd.Context(), cmd.ErrOrStderr(), needs)
			}
			missing := prereq.Missing(cmd.Context(), needs)
			for _, m := range missing {
				fmt.Fprintf(cmd.OutOrStdout(), "%s\t%s\n", m.Package, m.What)
			}
			if len(missing) > 0 {
				return errors.New("this machine lacks the packages above")
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&check, "check", false, "only list what is missing")
	return cmd
}

func upCommand() *cobra.Command {
	var options cluster.Options
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Bring a cluster up and wait until its nodes are Ready",
		Example: `  everynode-local up --nodes 3
  everynode-local up --name bench --simulated 1000 --node-monitor-grace-period 2m
  everynode-local up --nodes 1 --audit metadata
  everynode-local up --kubernetes 1.34`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			options.Name = cmd.Flag("name").Value.String()
			options.Progress = cmd.ErrOrStderr()
			c, err := cluster.Up(cmd.Context(), options)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "export KUBECONFIG=%s\n", c.Kubeconfig())
			return nil
		},
	}
	kubernetesFlag(cmd, &options.KubernetesVersion)
	cmd.Flags().IntVar(&options.Nodes, "nodes", 2, "number of real nodes")
	cmd.Flags().IntVar(&options.Simulated, "simulated", 0, "number of simulated nodes")
	cmd.Flags().StringVar(&options.AuditPolicy, "audit", "", `log requests: "metadata", or the path of an audit policy`)
	cmd.Flags().DurationVar(&options.NodeMonitorGracePeriod, "node-monitor-grace-period", 20*time.Second,
		"how long a node may be silent before it is not ready")
	cmd.Flags().BoolVar(&options.KeepOnFailure, "keep-on-failure", false, "leave a half-built cluster for a look at its logs")
	return cmd
}

func downCommand() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Take a cluster down and remove everything of it",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			clusters, err := cluster.List()
			if err != nil {
				return err
			}
			name := cmd.Flag("name").Value.String()
			var errs []error
			for _, c := range clusters {
				if all || c.Name() == name {
					c.SetProgress(cmd.ErrOrStderr())
					errs = append(errs, c.Down(cmd.Context()))
				}
			}
			return errors.Join(errs...)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "take all clusters down")
	return cmd
}

func listCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the clusters of this machine",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			clusters, err := cluster.List()
			if err != nil {
				return err
			}
			table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(table, "NAME\tSTATE\tKUBERNETES\tCREATED\tFOLDER")
			for _, c := range clusters {
				fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", c.Name(), c.State(), c.KubernetesVersion(), c.Created().Format(time.DateTime), c.Dir())
			}
			return table.Flush()
		},
	}
}

func kubeconfigCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "kubeconfig",
		Short:   "Print the path of the administrator's kubeconfig",
		Example: `  export KUBECONFIG=$(everynode-local kubeconfig)`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := open(cmd)
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), c.Kubeconfig())
			return nil
		},
	}
}
