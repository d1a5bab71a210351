// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package e2e_test runs Everynode, installed from the manifests that a user applies, on real nodes:
// real kubelets with containerd and runc. A test that shows a requirement is named after its row in
// docs/requirements.md.
package e2e_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/local/cluster"
	"github.com/everynode/everynode/local/prereq"
	"github.com/everynode/everynode/test/install"
	"github.com/everynode/everynode/test/shards"
)

func TestMain(m *testing.M) {
	flag.Parse()
	ctrl.SetLogger(logr.Discard())
	switch {
	case flag.Lookup("test.list").Value.String() != "":
		os.Exit(m.Run()) // needs no cluster
	case *shardsAtOnce > 1 && *keep:
		fmt.Println("-keep keeps one cluster: use it without -shards")
		os.Exit(2)
	case *shardsAtOnce > 1 && os.Geteuid() == 0:
		os.Exit(shards.Run(*shardsAtOnce, shards.Suite{Slow: slow, Night: night}))
	}
	os.Exit(install.RunOnRealNodes(m.Run, setUp, tearDown))
}

func setUp(ctx context.Context) error {
	name := clusterName
	if !*keep {
		name = fmt.Sprintf("%s-%d", clusterName, os.Getpid())
	}
	var err error
	if pluginDir, err = os.MkdirTemp("", "everynode-plugin-"); err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return err
	}
	root, err := install.Root()
	if err != nil {
		return err
	}
	if images, err = install.Build(ctx, root); err != nil {
		return err
	}
	if err := prereq.Ensure(ctx, os.Stdout, prereq.ForNetworkTests()); err != nil {
		return err
	}
	if real, err = cluster.Open(name); err != nil {
		real, err = cluster.Up(ctx, cluster.Options{
			Name: name, KubernetesVersion: *kubernetes, Nodes: 2, AuditPolicy: cluster.AuditMetadata, Progress: os.Stdout,
		})
	}
	if err != nil {
		return err
	}
	cfg, err := real.RESTConfig()
	if err != nil {
		return err
	}
	// An API server that was just restarted may leave a request unanswered for a minute: ask again.
	cfg.Timeout = 15 * time.Second
	if admin, err = client.New(cfg, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	return installHere(ctx)
}

// installHere installs Everynode in the cluster of the tests.
func installHere(ctx context.Context) error {
	root, err := install.Root()
	if err != nil {
		return err
	}
	if err := install.Install(ctx, real, root, images); err != nil {
		return err
	}
	// Nodes other than the first may be killed by a test.
	_, err = install.Kubectl(ctx, real, "", "-n", install.Namespace, "patch", "deployment", install.Deployment, "-p",
		`{"spec":{"template":{"spec":{"nodeSelector":{"kubernetes.io/hostname":"node-1"}}}}}`)
	if err != nil {
		return err
	}
	_, err = install.Kubectl(ctx, real, "", "-n", install.Namespace, "rollout", "status", "deployment", install.Deployment, "--timeout=60s")
	return err
}

func tearDown() {
	if pluginDir != "" {
		if err := os.RemoveAll(pluginDir); err != nil {
			fmt.Println("removing the plugin:", err)
		}
	}
	if real == nil || *keep {
		return
	}
	real.SetProgress(io.Discard)
	if err := real.Down(context.Background()); err != nil {
		fmt.Println("taking the cluster down:", err)
	}
}
