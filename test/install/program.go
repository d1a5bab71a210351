// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Program builds a program of the checkout, such as everynode, into a file. env is added to the environment of
// go build.
func Program(ctx context.Context, root, name, file string, env []string) error {
	args := []string{"build", "-trimpath", "-ldflags=-s -w", "-o", file, "./cmd/" + name}
	build := exec.CommandContext(ctx, "go", args...)
	build.Dir = root
	build.Env = slices.Concat(os.Environ(), []string{"CGO_ENABLED=0"}, env)
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w\n%s", name, err, out)
	}
	return nil
}

// Plugin builds kubectl-everynode from the checkout into a folder, and returns its path. With the folder in PATH,
// kubectl finds it.
func Plugin(ctx context.Context, root, dir string) (string, error) {
	path := filepath.Join(dir, "kubectl-everynode")
	return path, Program(ctx, root, "kubectl-everynode", path, nil)
}

// Helm returns the path of the version of helm that the tests of the chart use. It is built unless the cache of Go has it.
func Helm(ctx context.Context, root string) (string, error) {
	path, err := exec.CommandContext(ctx, "go", "-C", filepath.Join(root, "charts"), "tool", "-n", "helm").Output()
	if err != nil {
		return "", fmt.Errorf("building helm: %w", err)
	}
	return strings.TrimSpace(string(path)), nil
}
