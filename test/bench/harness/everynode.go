// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"path/filepath"
	"time"

	"github.com/everynode/everynode/internal/manager/policies"
	"github.com/everynode/everynode/test/install"
)

// installManager installs the manager from its manifests. Simulated nodes run no containers, so it runs outside of the
// cluster: as its own service account, with the flags and the environment of its Deployment.
func (w *world) installManager(ctx context.Context) error {
	if _, err := install.Kubectl(ctx, w.cluster, "", "apply", "-k", filepath.Join(w.Root, "config", "local")); err != nil {
		return err
	}
	// A simulated node would only simulate the manager. There must be one manager only.
	_, err := install.Kubectl(ctx, w.cluster, "", "-n", install.Namespace, "scale", "deployment", install.Deployment, "--replicas=0")
	if err != nil {
		return err
	}
	return w.startManager(ctx)
}

// startManager starts the manager, and gives it time to begin.
func (w *world) startManager(ctx context.Context) error {
	kubeconfig, err := install.ManagerKubeconfig(ctx, w.cluster, w.dir)
	if err != nil {
		return err
	}
	settings, err := w.goSettings()
	if err != nil {
		return err
	}
	w.program, err = startProcess(ctx, w.dir, "manager", append(settings,
		"KUBECONFIG="+kubeconfig, "POD_NAMESPACE="+install.Namespace, "POD_NAME="+install.Deployment+"-0", "NODE_NAME=",
		"EVERYNODE_RUNNER_IMAGE="+install.RunnerImage,
	), w.managerProgram(), "--leader-elect", "--metrics-bind-address=127.0.0.1:0", "--health-probe-bind-address=127.0.0.1:0",
		"--pprof-bind-address=127.0.0.1:16060") // docs/benchmark.md says how to use it
	if err != nil {
		return err
	}
	// It leads, and its caches are filled, before that. A NodeJob that is created earlier after the policies has to be confirmed.
	return pause(ctx, policies.Enforced+time.Second)
}
