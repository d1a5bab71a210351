// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/internal/cli/cmdutil"
	"github.com/everynode/everynode/internal/cli/text"
	"github.com/everynode/everynode/internal/version"
)

func newVersionCommand(f *cmdutil.Factory) *cobra.Command {
	var clientOnly bool
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this program and of the manager in the cluster",
		Example: "  kubectl everynode version\n  kubectl everynode version --client",
		Args:    cmdutil.ExactArgs(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			rows := [][]text.Line{text.Cells("client", version.String())}
			if !clientOnly {
				rows = append(rows, []text.Line{text.Of("manager"), managerVersion(cmd.Context(), f)})
			}
			return f.Print(text.Table(rows))
		},
	}
	cmd.Flags().BoolVar(&clientOnly, "client", false, "do not ask the cluster")
	return cmd
}

// managerName is the Deployment of config/manager.
var managerName = client.ObjectKey{Namespace: "everynode-system", Name: "everynode-manager"}

// managerVersion returns the image of the manager. A read error is ignored, because few users may read the Deployment.
func managerVersion(ctx context.Context, f *cmdutil.Factory) text.Line {
	c, err := f.Client()
	if err != nil {
		return text.Toned(text.Dim, "(not known: "+err.Error()+")")
	}
	var manager appsv1.Deployment
	if err := c.Get(ctx, managerName, &manager); err != nil {
		return text.Toned(text.Dim, "(not known: "+cmdutil.Explain(err).Error()+")")
	}
	for _, container := range manager.Spec.Template.Spec.Containers {
		return text.Of(container.Image)
	}
	return text.Toned(text.Dim, "(not known: its Deployment has no container)")
}
