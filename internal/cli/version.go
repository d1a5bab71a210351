// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/internal/cli/console"
	"github.com/everynode/everynode/internal/text"
	"github.com/everynode/everynode/internal/ui/cmdutil"
	"github.com/everynode/everynode/internal/uninstall"
	"github.com/everynode/everynode/internal/version"
)

type versionOptions struct {
	*console.Factory
	clientOnly bool
	output     string
}

var versionFormats = []string{console.OutputJSON, console.OutputYAML}

func newVersionCommand(f *console.Factory) *cobra.Command {
	o := &versionOptions{Factory: f}
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of this program and of the installation, and check that a manager is available",
		Long: `Print the versions of this program, and of the manager and the runner in the cluster. Warn if they differ, and if no
manager is available: with the reason, such as an image that cannot be pulled, and what to do.

The versions in the cluster are those of the images in the Deployment everynode-manager.`,
		Example: `  kubectl everynode version

  # without access to a cluster
  kubectl everynode version --client`,
		Args:              console.ExactArgs(0, "no arguments"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context())
		},
	}
	cmd.Flags().BoolVar(&o.clientOnly, "client", false, "do not ask the cluster")
	console.AddOutputFlag(cmd, &o.output, versionFormats...)
	return cmd
}

// versions is what the command prints for programs.
type versions struct {
	Client   component  `json:"client"`
	Manager  *component `json:"manager,omitempty"`
	Runner   *component `json:"runner,omitempty"`
	Warnings []string   `json:"warnings,omitempty"`
}

// component is the version of one program, or the reason why it is not known.
type component struct {
	Version string `json:"version,omitempty"`
	Image   string `json:"image,omitempty"`
	Problem string `json:"problem,omitempty"`
}

// run does not return an error if the cluster does not answer: the version of this program is always known.
func (o *versionOptions) run(ctx context.Context) error {
	v := versions{Client: component{Version: version.String()}}
	if !o.clientOnly {
		var warnings []string
		v.Manager, v.Runner, warnings = o.installed(ctx)
		v.Warnings = append(skew(v.Client.Version, v.Manager.Version, v.Runner.Version), warnings...)
	}
	if o.output != console.OutputPeople {
		return o.write(v)
	}
	rows := [][]text.Line{text.Cells("client", v.Client.Version)}
	if !o.clientOnly {
		rows = append(rows, v.Manager.row("manager"), v.Runner.row("runner"))
	}
	err := o.Say(text.Table(rows)...)
	for _, warning := range v.Warnings {
		o.Tell(text.Toned(text.Warn, "warning: ").With(warning))
	}
	return err
}

func (o *versionOptions) write(v versions) error {
	content, err := json.MarshalIndent(v, "", "    ")
	if err == nil && o.output == console.OutputYAML {
		content, err = yaml.JSONToYAML(content)
	}
	if err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	return o.WriteFormatted(o.output, []byte(strings.TrimSuffix(string(content), "\n")+"\n"))
}

func (c *component) row(name string) []text.Line {
	if c.Version == "" {
		return []text.Line{text.Of(name), text.Toned(text.Dim, "(not known: "+c.Problem+")")}
	}
	return []text.Line{text.Of(name), text.Of(c.Version), text.Toned(text.Dim, c.Image)}
}

// skew returns the warnings for versions that differ. An unknown version is not known to differ.
func skew(ours, manager, runner string) []string {
	var warnings []string
	if version.Differ(ours, manager) {
		warnings = append(warnings, fmt.Sprintf(
			"this program is %s, and the manager is %s: explain and plan can show other decisions than those of the manager. %s",
			ours, manager, installOf(manager)))
	}
	if version.Differ(manager, runner) {
		warnings = append(warnings, fmt.Sprintf(
			"the manager is %s, and the runner is %s: set both images in the Deployment %s to the same version", manager, runner, managerName.Name))
	}
	return warnings
}

// installOf says how to get the command of a version. A checkout that was installed has no release.
func installOf(version string) string {
	if strings.HasPrefix(version, "v0.0.0-trial-") {
		return "Build kubectl-everynode from the checkout of the manager: make install"
	}
	return "Install kubectl-everynode " + version
}

// managerName is the Deployment of config/manager.
var managerName = client.ObjectKeyFromObject(uninstall.Deployment())

// versionLabel has the version of the release in its Deployment and its CRDs.
const versionLabel = "app.kubernetes.io/version"

// installed reads the versions of the manager and the runner from the Deployment of the manager, and returns warnings if the
// CRDs are older, or the manager does not run.
func (o *versionOptions) installed(ctx context.Context) (manager, runner *component, warnings []string) {
	c, err := o.Client()
	var deployment appsv1.Deployment
	if err == nil {
		err = c.Get(ctx, managerName, &deployment)
	}
	if err != nil {
		manager, runner = unreadable(err)
		if apierrors.IsNotFound(err) {
			warnings = append(warnings, fmt.Sprintf("no manager is installed in this cluster: the Deployment %s does not exist", managerName))
		}
		return manager, runner, warnings
	}
	manager, runner = programsOf(&deployment)
	warnings = []string{crdWarning(ctx, c, manager.Version), managerWarning(ctx, c, &deployment)}
	return manager, runner, slices.DeleteFunc(warnings, func(warning string) bool { return warning == "" })
}

func programsOf(deployment *appsv1.Deployment) (manager, runner *component) {
	containers := deployment.Spec.Template.Spec.Containers
	at := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == "manager" })
	if at < 0 {
		problem := fmt.Sprintf("the Deployment %s has no container manager", managerName)
		return &component{Problem: problem}, &component{Problem: problem}
	}
	label := deployment.Labels[versionLabel]
	return ofImage(containers[at].Image, label), ofImage(runnerImage(&containers[at]), label)
}

func unreadable(err error) (manager, runner *component) {
	problem := cmdutil.Explain(err).Error()
	switch {
	case apierrors.IsForbidden(err):
		problem = fmt.Sprintf("you may not get the Deployment %s; the ClusterRole everynode-view-nodes allows it", managerName)
	case apierrors.IsNotFound(err):
		problem = fmt.Sprintf("the Deployment %s does not exist", managerName)
	}
	return &component{Problem: problem}, &component{Problem: problem}
}

// runnerImage returns the image that the manager uses. A flag takes precedence over the environment.
func runnerImage(manager *corev1.Container) string {
	for i, arg := range manager.Args {
		name, value, found := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		switch {
		case name != "runner-image" || !strings.HasPrefix(arg, "-"):
		case found:
			return value
		case i+1 < len(manager.Args):
			return manager.Args[i+1]
		}
	}
	for _, env := range manager.Env {
		if env.Name == "EVERYNODE_RUNNER_IMAGE" {
			return env.Value
		}
	}
	return ""
}

// loadedImages are the names of images that were loaded into nodes. Their tags are the version of the release and a part of their digest.
const loadedImages = "localhost/everynode/"

// ofImage returns the version of an image: its tag, or the label of the Deployment if the image is named only by its digest, or was loaded
// into the nodes.
func ofImage(image, label string) *component {
	c := &component{Version: version.OfImage(image), Image: image}
	switch _, digest, _ := strings.Cut(image, "@"); {
	case label != "" && strings.HasPrefix(image, loadedImages) && strings.HasPrefix(c.Version, label+"-"):
		c.Version = label
	case c.Version != "":
	case image == "":
		c.Problem = "the Deployment " + managerName.String() + " names no image"
	case digest != "" && label != "":
		c.Version = label
	default:
		c.Problem = "the image " + image + " has no version as its tag"
	}
	return c
}
