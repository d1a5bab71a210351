// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli/console"
	"github.com/everynode/everynode/internal/cli/manifest"
	"github.com/everynode/everynode/internal/nodejob/steer"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/ui/cmdutil"
	"github.com/everynode/everynode/recipes"
)

// The values of a user are in environment variables. None becomes part of a script, so none must be quoted for a shell.

// createOptions are the options that all manifests have in common.
type createOptions struct {
	*console.Factory
	name, selector, maxConcurrent, promoteTo string
}

func newCreateCommand(f *console.Factory) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Write a manifest that is ready to apply, to standard output",
		Long: `Write a manifest that is ready to apply, or to commit, to standard output. Nothing is created in the cluster, and none
is needed. For a kernel parameter, a file or a certificate, copy a recipe.`,
		Example: "  kubectl everynode create script tune-disks -f tune.sh -n node-setup | kubectl apply -f -",
		Args:    noCommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newCreateScriptCommand(f), newCreateMitigationCommand(f))
	return cmd
}

func (o *createOptions) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.name, "name", "", "name of the NodeJob")
	cmd.Flags().StringVarP(&o.selector, "selector", "l", "", "only nodes with these labels")
	cmd.Flags().StringVar(&o.maxConcurrent, "max-concurrent", "", "how many nodes at once: a number or a percentage")
	cmd.Flags().StringVar(&o.promoteTo, "promote-to", "", "the last step that the rollout may reach without promotion; with canary it runs on one node and then waits for promotion")
}

// recipe reads the NodeJob of a recipe.
func recipe(name string) (*v1alpha1.NodeJob, error) {
	content, err := recipes.Files.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("reading a recipe: %w", err)
	}
	job := &v1alpha1.NodeJob{}
	if err := yaml.UnmarshalStrict(content, job); err != nil {
		return nil, fmt.Errorf("reading the recipe %s: %w", name, err)
	}
	return job, nil
}

// setEnv sets a variable of the task. Kubernetes expands $(NAME) in values, and replaces $$ with $.
func setEnv(job *v1alpha1.NodeJob, name, value string) {
	value = strings.ReplaceAll(value, "$", "$$")
	for i := range job.Spec.Task.Env {
		if job.Spec.Task.Env[i].Name == name {
			job.Spec.Task.Env[i].Value = value
			return
		}
	}
	job.Spec.Task.Env = append(job.Spec.Task.Env, v1alpha1.EnvVar{Name: name, Value: value})
}

// finish sets the fields that all manifests have in common.
func (o *createOptions) finish(job *v1alpha1.NodeJob, name string) error {
	if o.name != "" {
		name = o.name
	}
	namespace, err := o.Namespace()
	if err != nil {
		return err
	}
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 || len(name) > validation.DNS1123LabelMaxLength {
		return cmdutil.Failf(cmdutil.ExitUsage, "%q cannot be the name of a NodeJob: give --name, of at most 63 lower case letters, digits, '-' and '.'", name)
	}
	job.Namespace, job.Name = namespace, name
	return o.limit(job)
}

// limit sets the nodes, the concurrency and the last step of the rollout.
func (o *createOptions) limit(job *v1alpha1.NodeJob) error {
	if o.selector != "" {
		selector, err := metav1.ParseToLabelSelector(o.selector)
		if err != nil {
			return cmdutil.Failf(cmdutil.ExitUsage, "-l %s is no selector: %w", o.selector, err)
		}
		job.Spec.Nodes.Selector = selector
	}
	if nodes := &job.Spec.Nodes; nodes.Selector == nil && nodes.Names == nil {
		nodes.Selector = task.AllNodes(&job.Spec)
	}
	if o.maxConcurrent != "" {
		value, err := console.ParseNumberOrPercent("--max-concurrent", o.maxConcurrent, 1)
		if err != nil {
			return err
		}
		job.Spec.Rollout.MaxConcurrent = &value
	}
	if o.promoteTo != "" {
		steps := steer.StepNames(job)
		if !slices.Contains(steps, o.promoteTo) {
			return cmdutil.Failf(cmdutil.ExitUsage, "--promote-to %s: the steps are %s", o.promoteTo, cmdutil.JoinNames(steps))
		}
		job.Spec.Rollout.PromoteTo = o.promoteTo
		if len(job.Spec.Rollout.Steps) == 0 {
			job.Spec.Rollout.Steps = []v1alpha1.RolloutStep{{Name: "canary", Nodes: new(intstr.FromInt32(1))}, {Name: "all"}}
		}
	}
	return nil
}

// writeManifest writes the manifest, with a comment that names the next commands.
func (o *createOptions) writeManifest(what string, job *v1alpha1.NodeJob) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# %s\n#\n", strings.ReplaceAll(what, "\n", " "))
	fmt.Fprintf(&b, "# Namespace %s must allow NodeJobs and privileged pods:\n#   kubectl label namespace %[1]s %s=%s pod-security.kubernetes.io/enforce=privileged\n#\n",
		job.Namespace, v1alpha1.EnabledLabel, v1alpha1.EnabledValue)
	fmt.Fprintf(&b, "# See that it worked:\n#   kubectl everynode status %s -n %s --watch\n", job.Name, job.Namespace)
	if job.Spec.Rollback != nil {
		fmt.Fprintf(&b, "#\n# Take it back:\n#   kubectl everynode abort %s -n %s --rollback\n", job.Name, job.Namespace)
	}
	y, err := manifest.Write(job)
	if err != nil {
		return err
	}
	b.Write(y)
	return o.WriteFormatted(console.OutputYAML, b.Bytes())
}

// isText reports whether a manifest can contain the data as text.
func isText(content []byte) bool {
	return utf8.Valid(content) && !bytes.ContainsRune(content, 0)
}
