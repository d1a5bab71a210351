// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/everynode/everynode/internal/manager/policies"
	"github.com/everynode/everynode/local/cluster"
)

// Simulated nodes run no containers, so the manager cannot run in a cluster that has no others. It
// then runs beside the cluster, with the permissions of its own service account.

// Outside applies config/local, and starts the manager beside the cluster.
func Outside(ctx context.Context, c *cluster.Cluster, root string) error {
	if err := apply(ctx, c, root); err != nil {
		return err
	}
	inForce := time.NewTimer(policies.Enforced + time.Second)
	defer inForce.Stop()
	if err := StartOutside(ctx, c, root); err != nil {
		return err
	}
	// A NodeJob that is created earlier has to be confirmed.
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-inForce.C:
		return nil
	}
}

func outsideDir(c *cluster.Cluster) string { return filepath.Join(c.Dir(), "manager") }

// StartOutside builds the manager, starts it as a process of this machine, and leaves it running. It replaces a running
// one.
func StartOutside(ctx context.Context, c *cluster.Cluster, root string) error {
	if err := StopOutside(c); err != nil {
		return err
	}
	dir := outsideDir(c)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	binary := filepath.Join(dir, "everynode")
	if err := Program(ctx, root, "everynode", binary, nil); err != nil {
		return err
	}
	kubeconfig, err := ManagerKubeconfig(ctx, c, dir)
	if err != nil {
		return err
	}
	// The simulated node pretends to run the manager: there must be only one.
	if _, err := Kubectl(ctx, c, "", "-n", Namespace, "scale", "deployment", Deployment, "--replicas=0"); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	manager := exec.Command(binary, "--runner-image", RunnerImage,
		"--leader-elect=false", "--metrics-bind-address=0", "--health-probe-bind-address=0")
	manager.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	manager.Stdout, manager.Stderr = log, log
	manager.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := manager.Start(); err != nil {
		return fmt.Errorf("starting the manager: %w", err)
	}
	return os.WriteFile(filepath.Join(dir, "pid"), []byte(strconv.Itoa(manager.Process.Pid)), 0o600)
}

// ManagerKubeconfig writes a kubeconfig with the manager's ServiceAccount into a folder, and returns its path. Its
// token is valid for 24 hours.
func ManagerKubeconfig(ctx context.Context, c *cluster.Cluster, dir string) (string, error) {
	token, err := Kubectl(ctx, c, "", "-n", Namespace, "create", "token", Deployment, "--duration=24h")
	if err != nil {
		return "", err
	}
	kubeconfig := filepath.Join(dir, "kubeconfig")
	flattened, err := Kubectl(ctx, c, "", "config", "view", "--raw", "--flatten")
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(kubeconfig, []byte(flattened), 0o600); err != nil {
		return "", err
	}
	for _, args := range [][]string{
		{"config", "set-credentials", Deployment, "--token=" + strings.TrimSpace(token)},
		{"config", "set-context", "--current", "--user=" + Deployment},
	} {
		if out, err := exec.CommandContext(ctx, c.Kubectl(), append([]string{"--kubeconfig", kubeconfig}, args...)...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("writing the manager's kubeconfig: %w\n%s", err, out)
		}
	}
	return kubeconfig, nil
}

// StopOutside ends a manager that runs beside the cluster, if there is one.
func StopOutside(c *cluster.Cluster) error {
	content, err := os.ReadFile(filepath.Join(outsideDir(c), "pid"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil {
		return fmt.Errorf("reading the manager's pid: %w", err)
	}
	// The process is ours only if it runs our binary, because its PID may have been reused.
	ours := func() bool {
		out, err := exec.Command("ps", "-o", "args=", "-p", strconv.Itoa(pid)).Output()
		return err == nil && strings.HasPrefix(string(out), filepath.Join(outsideDir(c), "everynode")+" ")
	}
	if ours() {
		if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
			return fmt.Errorf("stopping the manager: %w", err)
		}
	}
	for deadline := time.Now().Add(10 * time.Second); ours(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("stopping the manager: process %d runs on", pid)
		}
	}
	return os.Remove(filepath.Join(outsideDir(c), "pid"))
}
