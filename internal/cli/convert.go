// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/everynode/everynode/internal/cli/console"
	"github.com/everynode/everynode/internal/cli/convert"
	"github.com/everynode/everynode/internal/cli/manifest"
	"github.com/everynode/everynode/internal/plural"
	"github.com/everynode/everynode/internal/text"
	"github.com/everynode/everynode/internal/ui/cmdutil"
)

type convertOptions struct {
	*console.Factory
	files []string
}

func newConvertCommand(f *console.Factory) *cobra.Command {
	o := &convertOptions{Factory: f}
	cmd := &cobra.Command{
		Use:   "convert -f FILE",
		Short: "Write the NodeJob that replaces a DaemonSet, Job, Plan or BroadcastJob, to standard output",
		Long: `Write the NodeJobs that replace other ways of running a task once on every node, to standard output: a DaemonSet that
labels its node or waits after its work, a Job for each node, a Plan of the system-upgrade-controller, or a BroadcastJob of
OpenKruise. No cluster is needed, and none is changed.

A script is never changed: the task is a template with the pod as it was, or a script or command if all of it runs on the
node. What a user must decide or change, such as a wait at the end of a script or a reboot, is a TODO in the comment of the
NodeJob and a warning, and the exit code is then 3. The NodeJobs are suspended, and their comments say how to switch over. A
DaemonSet that runs permanently is refused.`,
		Example: `  kubectl everynode convert -f node-setup-daemonset.yaml > nodejob.yaml

  # what runs in the cluster
  kubectl get daemonset sysctl -n kube-system -o yaml | kubectl everynode convert -f -`,
		Args:              console.ExactArgs(0, "no arguments"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(*cobra.Command, []string) error { return o.run() },
	}
	cmd.Flags().StringArrayVarP(&o.files, "filename", "f", nil, "a file with the objects, with their RBAC objects and ConfigMaps; - for standard input; may be repeated")
	_ = cmd.MarkFlagFilename("filename", "yaml", "yml", "json")
	return cmd
}

func (o *convertOptions) run() error {
	if len(o.files) == 0 {
		return cmdutil.Failf(cmdutil.ExitUsage, "which file? convert -f FILE, or convert -f - for standard input")
	}
	var objects []*unstructured.Unstructured
	for _, file := range o.files {
		content, err := o.ReadBeginning(file, file, manifest.MaxBytes+1)
		if err != nil {
			return err
		}
		decoded, err := manifest.Decode(content)
		if err != nil {
			return cmdutil.Failf(cmdutil.ExitUsage, "reading %s: %w", file, err)
		}
		objects = append(objects, decoded...)
	}
	// The namespace of the kubeconfig is not that of the objects.
	result := convert.Convert(objects, *o.Config.Namespace)
	if result.NodeJobs > 0 {
		if err := o.WriteFormatted(console.OutputYAML, result.YAML); err != nil {
			return err
		}
	}
	for _, todo := range result.Todos {
		o.Tell(text.Toned(text.Warn, "TODO: ").With(todo))
	}
	return o.rest(objects, result)
}

// rest returns the error for objects that could not be converted, of which it prints all but the last one, or for a TODO.
func (o *convertOptions) rest(objects []*unstructured.Unstructured, result convert.Result) error {
	switch n := len(result.Refused); {
	case n > 0:
		for _, err := range result.Refused[:n-1] {
			o.Tell(text.Toned(text.Bad, "error: ").With(err.Error()))
		}
		return cmdutil.Failf(cmdutil.ExitUsage, "%w", result.Refused[n-1])
	case result.NodeJobs == 0:
		return cmdutil.Failf(cmdutil.ExitUsage, "there is nothing to convert in %s: it has no DaemonSet of apps, no Job of batch, no Plan of upgrade.cattle.io and no BroadcastJob of apps.kruise.io%s",
			strings.Join(o.files, ", "), found(objects))
	case len(result.Todos) > 0:
		return cmdutil.Failf(cmdutil.ExitIncomplete, "%s in the comments of the NodeJobs: decide them before you resume a NodeJob", plural.Count(len(result.Todos), "TODO"))
	}
	return nil
}

// found names the kinds of the objects in the files.
func found(objects []*unstructured.Unstructured) string {
	var kinds []string
	hint := ""
	for _, o := range objects {
		kind := o.GetKind()
		if group := o.GroupVersionKind().Group; group != "" {
			kind += " of " + group
		}
		if strings.HasSuffix(o.GetKind(), "CronJob") {
			hint = ". For a task that repeats, write a NodeJob with rerun.periodSeconds"
		}
		if !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	if len(kinds) == 0 {
		return ""
	}
	return ", but " + strings.Join(kinds[:min(len(kinds), 5)], ", ") + hint
}
