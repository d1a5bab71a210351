// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package quickstart installs the checkout into the cluster of the current kubeconfig, to try it: it builds the images for the nodes,
// brings them to the cluster, and waits until the manager is available. It uses kubectl, and thus the user's own credentials.
package quickstart

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/everynode/everynode/release"
)

// Options say what is installed, and where the images are pulled from.
type Options struct {
	// Release says what is built. Version, Registry and Platforms are set by Install.
	Release release.Options
	// Registry is the prefix of images that nodes can pull, such as registry.example.com/everynode. It is empty if the images are
	// loaded into the nodes.
	Registry string
	// Plugin is the path where the kubectl plugin is written.
	Plugin string
	// Yes skips the question.
	Yes bool
	// In has the answer to the question, and Out gets the progress.
	In  io.Reader
	Out io.Writer
}

// Limits of the wait for the manager, as variables for tests.
var (
	timeout  = 3 * time.Minute
	interval = time.Second
)

// installer is an installation in progress.
type installer struct {
	Options
	cluster *clusterInfo
	build   func(context.Context, release.Options) error
	plugin  func(ctx context.Context, root, version, file string) error
}

// Install asks for confirmation, and then installs or upgrades Everynode. An error names the remedy.
func Install(ctx context.Context, o Options) error {
	return (&installer{Options: o, build: release.Build, plugin: buildPlugin}).install(ctx)
}

func (i *installer) install(ctx context.Context) error {
	var err error
	if i.cluster, err = inspect(ctx); err != nil {
		return err
	}
	i.print(i.cluster.String())
	target, err := i.target()
	if err != nil {
		return err
	}
	if err := i.cluster.checkRights(ctx); err != nil {
		return err
	}
	i.print("images     " + target.what)
	if err := i.confirm(); err != nil {
		return err
	}
	i.Release.Version = fmt.Sprintf("v0.0.0-trial-%.12s", i.Release.Revision)
	i.Release.Registry = i.Registry
	i.Release.Platforms = i.cluster.platforms()
	i.print("building the images for " + strings.Join(i.Release.Platforms, ", ") + " …")
	if err := i.build(ctx, i.Release); err != nil {
		return err
	}
	if err := i.plugin(ctx, i.Release.Root, i.Release.Version, i.Plugin); err != nil {
		return err
	}
	i.print("bringing the images to the cluster …")
	if err := target.bring(ctx); err != nil {
		return err
	}
	file := release.InstallFile
	if !i.cluster.servesPolicies() {
		file = release.InstallNoGatesFile
	}
	i.print("applying " + file + ", and waiting for the manager …")
	if _, err := i.cluster.kubectl(ctx, "apply", "-f", filepath.Join(i.Release.Dir, file)); err != nil {
		return err
	}
	if err := i.wait(ctx); err != nil {
		return err
	}
	i.print(fmt.Sprintf(next, i.Release.Version, i.Plugin))
	return nil
}

// next are the first commands of a user.
const next = `
Everynode %[1]s is ready. The plugin is %[2]s: copy it to a folder of your PATH to use it as kubectl everynode.
Next: make a namespace that may have NodeJobs, run a first one, which raises vm.max_map_count where it is too low, and look at it:

  kubectl apply -f config/samples/namespace.yaml
  kubectl apply -f config/samples/max-map-count.yaml
  %[2]s status max-map-count -n node-setup

make uninstall removes Everynode from the cluster.`

func (i *installer) print(line string) { fmt.Fprintln(i.Out, line) }

func (i *installer) confirm() error {
	if i.Yes {
		return nil
	}
	fmt.Fprint(i.Out, "Install or upgrade Everynode in this cluster? [y/N] ")
	answer, err := bufio.NewReader(i.In).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("reading the answer: %w", err)
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return errors.New("nothing was changed: answer y, or set YES=1")
}

// buildPlugin builds the plugin for this machine.
func buildPlugin(ctx context.Context, root, version, file string) error {
	if runtime.GOOS == "windows" {
		file += ".exe"
	}
	_, err := run(ctx, "go", "-C", root, "build", "-trimpath", "-buildvcs=false",
		"-ldflags=-s -w -X github.com/everynode/everynode/internal/version.version="+version, "-o", file, "./cmd/kubectl-everynode")
	return err
}

func checkInstalled(program string) error {
	if _, err := exec.LookPath(program); err != nil {
		return fmt.Errorf("%s is not installed, or not in PATH: install it, and repeat make install", program)
	}
	return nil
}

// run executes a program, and returns its standard output. If it fails, the error has the output.
func run(ctx context.Context, program string, args ...string) ([]byte, error) {
	var errs strings.Builder
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("running %s %s: %w\n%s%s", program, strings.Join(args, " "), err, out, errs.String())
	}
	return out, nil
}
