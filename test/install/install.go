// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package install builds Everynode's images from the checkout and installs them into a local
// cluster, with the same manifests that a user applies.
package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/v1"

	"github.com/everynode/everynode/local/cluster"
	"github.com/everynode/everynode/local/image"
)

// Names of the installation.
const (
	Namespace    = "everynode-system"
	Deployment   = "everynode-manager" // also the name of its ServiceAccount and its Lease
	ManagerImage = "registry.local/everynode/manager:dev"
	RunnerImage  = "registry.local/everynode/runner:dev"
	// ArchiveRunnerImage is that of the runner for outputs that are archived.
	ArchiveRunnerImage = "registry.local/everynode/runner-archive:dev"
	// PauseImage is on every real node of a local cluster, and does nothing forever.
	PauseImage = "registry.local/everynode/pause:1"
)

// Images are the images of an installation.
type Images struct {
	Manager v1.Image
	Runner  v1.Image
	// ArchiveRunner has a program more.
	ArchiveRunner v1.Image
}

// Build compiles the programs and puts them into images, which contain only static binaries.
func Build(ctx context.Context, root string) (Images, error) {
	dir, err := os.MkdirTemp("", "everynode-images-")
	if err != nil {
		return Images{}, err
	}
	defer os.RemoveAll(dir)
	var images Images
	programs := map[string]string{}
	for _, name := range []string{"everynode", "everynode-runner", "everynode-upload"} {
		programs[name] = filepath.Join(dir, name)
		if err := Program(ctx, root, name, programs[name], []string{"GOOS=linux", "GOARCH=" + runtime.GOARCH}); err != nil {
			return Images{}, err
		}
	}
	for _, part := range []struct {
		command string
		image   *v1.Image
		options image.Options
	}{
		{"everynode", &images.Manager, image.Options{}},
		{"everynode-runner", &images.Runner, image.Options{}},
		{"everynode-runner", &images.ArchiveRunner, image.Options{Programs: map[string]string{"/everynode-upload": programs["everynode-upload"]}}},
	} {
		if *part.image, err = image.FromBinary(programs[part.command], part.options); err != nil {
			return Images{}, fmt.Errorf("making the image of %s: %w", part.command, err)
		}
	}
	return images, nil
}

// Install loads the images into the cluster's nodes, present and future, applies config/local and
// waits until the manager is ready. Where all nodes are simulated, the manager runs beside the cluster.
func Install(ctx context.Context, c *cluster.Cluster, root string, images Images) error {
	if !c.Real() {
		return Outside(ctx, c, root)
	}
	if err := c.LoadImage(ctx, ManagerImage, images.Manager); err != nil {
		return fmt.Errorf("loading the manager's image: %w", err)
	}
	if err := c.LoadImage(ctx, RunnerImage, images.Runner); err != nil {
		return fmt.Errorf("loading the runner's image: %w", err)
	}
	if err := c.LoadImage(ctx, ArchiveRunnerImage, images.ArchiveRunner); err != nil {
		return fmt.Errorf("loading the runner's image for archives: %w", err)
	}
	if err := apply(ctx, c, root); err != nil {
		return err
	}
	// The same tag names a new image after a change of the code.
	if _, err := Kubectl(ctx, c, "", "-n", Namespace, "rollout", "restart", "deployment", Deployment); err != nil {
		return err
	}
	_, err := Kubectl(ctx, c, "", "-n", Namespace, "rollout", "status", "deployment", Deployment, "--timeout", (2 * time.Minute).String())
	return err
}

// apply applies config/local. Before Kubernetes 1.36 this is an installation without the policies of the gate.
func apply(ctx context.Context, c *cluster.Cluster, root string) error {
	policies, err := ServesPolicies(c.KubernetesVersion())
	if err != nil {
		return err
	}
	_, err = Kubectl(ctx, c, "", "apply", "-k", filepath.Join(root, "config", "local"))
	if !policies {
		return PoliciesRefused(err)
	}
	return err
}

// Kubectl runs kubectl against the cluster with the given standard input, and returns what it prints. What kubectl
// remembers of the kinds that the API server serves is the cluster's: another cluster, of another version, may have had
// the same address before.
func Kubectl(ctx context.Context, c *cluster.Cluster, stdin string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, c.Kubectl(), args...)
	cmd.Env = c.Environ()
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("running kubectl %v: %w\n%s", args, err, out)
	}
	return string(out), nil
}

// Root returns the checkout that contains the working directory.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "config", "local", "kustomization.yaml")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("this folder is in no checkout of Everynode: there is no config/local above it")
		}
	}
}
