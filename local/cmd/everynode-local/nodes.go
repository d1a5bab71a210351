// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/local/cluster"
)

func joinCommand() *cobra.Command {
	var options cluster.NodeOptions
	var taints []string
	var wait bool
	cmd := &cobra.Command{
		Use:   "join NODE",
		Short: "Add a node and wait until it is Ready",
		Example: `  everynode-local join node-3
  everynode-local join node-4 --no-cni --wait=false
  everynode-local join sim-9 --simulated --labels pool=gpu --taints dedicated=gpu:NoSchedule`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := open(cmd)
			if err != nil {
				return err
			}
			options.Name = args[0]
			for _, text := range taints {
				taint, err := parseTaint(text)
				if err != nil {
					return err
				}
				options.Taints = append(options.Taints, taint)
			}
			if !wait || options.WithoutCNI {
				return c.Join(cmd.Context(), options)
			}
			return c.JoinReady(cmd.Context(), options)
		},
	}
	cmd.Flags().BoolVar(&options.Simulated, "simulated", false, "a node without a machine behind it")
	cmd.Flags().BoolVar(&options.WithoutCNI, "no-cni", false, "leave the pod network out: the node stays NotReady until install-cni")
	cmd.Flags().StringToStringVar(&options.Labels, "labels", nil, "labels, key=value,…")
	cmd.Flags().StringToStringVar(&options.Annotations, "annotations", nil, "annotations, key=value,…")
	cmd.Flags().StringSliceVar(&taints, "taints", nil, "taints, key=value:Effect,…")
	cmd.Flags().BoolVar(&wait, "wait", true, "wait until the node is Ready")
	return cmd
}

// parseTaint reads key=value:Effect or key:Effect.
func parseTaint(text string) (corev1.Taint, error) {
	keyValue, effect, found := strings.Cut(text, ":")
	key, value, _ := strings.Cut(keyValue, "=")
	switch corev1.TaintEffect(effect) {
	case corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
	default:
		found = false
	}
	if !found || key == "" {
		return corev1.Taint{}, fmt.Errorf("reading the taint %q: write it as key=value:NoSchedule", text)
	}
	return corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)}, nil
}

func execCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "exec NODE -- COMMAND [ARGUMENT...]",
		Short:   "Run a command on a real node",
		Example: `  everynode-local exec node-1 -- ctr -n k8s.io containers list`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.ArgsLenAtDash() != 1 || len(args) < 2 {
				return errors.New("name one node, and give the command after --, as in: everynode-local exec node-1 -- ls /")
			}
			c, err := open(cmd)
			if err != nil {
				return err
			}
			stdout, stderr, err := c.Exec(cmd.Context(), args[0], args[1:]...)
			fmt.Fprint(cmd.OutOrStdout(), stdout)
			fmt.Fprint(cmd.ErrOrStderr(), stderr)
			return err
		},
	}
}

func loadImageCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "load-image ARCHIVE...",
		Short:   "Load image archives into all real nodes, later ones included",
		Example: `  everynode-local load-image bin/images/runner.tar`,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := open(cmd)
			if err != nil {
				return err
			}
			for _, file := range args {
				if err := c.LoadArchive(cmd.Context(), file); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// waitLimit is the timeout for a node to become available again.
const waitLimit = 2 * time.Minute

// nodeVerb accepts names of nodes only.
type nodeVerb struct {
	name, short string
	do          func(*cluster.Cluster, context.Context, string) error
	// limit is the time for one node, of a verb that waits for it; 0 is none.
	limit time.Duration
}

// run does it to one node.
func (v nodeVerb) run(ctx context.Context, c *cluster.Cluster, node string) error {
	if v.limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, v.limit)
		defer cancel()
	}
	return v.do(c, ctx, node)
}

func nodeCommands() []*cobra.Command {
	var commands []*cobra.Command
	for _, verb := range []nodeVerb{
		{"stop-kubelet", "Kill a node's kubelet and keep it down", (*cluster.Cluster).StopKubelet, 0},
		{"start-kubelet", "Start a node's kubelet again", (*cluster.Cluster).StartKubelet, 0},
		{"kill-runtime", "Kill a node's containerd; its supervisor starts it again", (*cluster.Cluster).KillRuntime, 0},
		{"reboot", "Reboot a node and wait until it is Ready with a new boot ID", (*cluster.Cluster).RebootReady, waitLimit},
		{
			"reimage", "Give a node a fresh file system and a new machine ID under its name",
			(*cluster.Cluster).ReimageReady, waitLimit,
		},
		{"install-cni", "Give the pod network to a node that joined without", (*cluster.Cluster).InstallCNI, 0},
		{"remove", "Take a node away, with its Node object", (*cluster.Cluster).Remove, 0},
	} {
		commands = append(commands, &cobra.Command{
			Use: verb.name + " NODE...", Short: verb.short, Args: cobra.MinimumNArgs(1),
			RunE: func(cmd *cobra.Command, nodes []string) error {
				c, err := open(cmd)
				if err != nil {
					return err
				}
				for _, node := range nodes {
					if err := verb.run(cmd.Context(), c, node); err != nil {
						return err
					}
				}
				return nil
			},
		})
	}
	return commands
}
