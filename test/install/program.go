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
)

// Program builds a program of the checkout, such as everynode, into a file. env is added to the environment of
// go build, and flags are added to its flags.
func Program(ctx context.Context, root, name, file string, env []string, flags ...string) error {
	args := slices.Concat([]string{"build", "-trimpath", "-ldflags=-s -w", "-o", file}, flags, []string{"./cmd/" + name})
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
