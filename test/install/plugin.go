// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Plugin builds kubectl-everynode from the checkout into a folder, and returns its path. With the folder in PATH,
// kubectl finds it.
func Plugin(ctx context.Context, root, dir string) (string, error) {
	path := filepath.Join(dir, "kubectl-everynode")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", path, "./cmd/kubectl-everynode")
	build.Dir = root
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building kubectl-everynode: %w\n%s", err, out)
	}
	return path, nil
}
