// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package released_test makes two releases of the checkout, pushes them to a registry on this machine, and installs,
// upgrades and removes them on real nodes, with nothing but the files of the releases.
package released_test

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/everynode/everynode/local/cluster"
	"github.com/everynode/everynode/test/install"
	"github.com/everynode/everynode/test/publish"
)

var (
	kubernetes = flag.String("kubernetes", "", "the minor version of Kubernetes, such as 1.34")
	helm       = flag.String("helm", "", "the path of another helm than that of the tests of the chart")
)

// site is what all tests share.
var site struct {
	dir      string
	cluster  *cluster.Cluster
	registry *publish.Registry
	// old and new are releases of the same code with different versions.
	old, new publish.Release
	// policies says whether the API server serves the policies of the gate.
	policies bool
}

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(install.RunOnRealNodes(m.Run, setUp, tearDown))
}

func setUp(ctx context.Context) error {
	root, err := install.Root()
	if err != nil {
		return err
	}
	if site.dir, err = os.MkdirTemp("", "everynode-released-"); err != nil {
		return err
	}
	site.cluster, err = cluster.Up(ctx, cluster.Options{
		Name: fmt.Sprintf("everynode-released-%d", os.Getpid()), KubernetesVersion: *kubernetes, Nodes: 2, Progress: os.Stdout,
	})
	if err != nil {
		return err
	}
	if site.policies, err = install.ServesPolicies(site.cluster.KubernetesVersion()); err != nil {
		return err
	}
	if site.registry, err = publish.Serve(ctx, site.cluster, "node-1", "node-2"); err != nil {
		return fmt.Errorf("starting the registry: %w", err)
	}
	for version, made := range map[string]*publish.Release{"v0.1.0": &site.old, "v0.2.0": &site.new} {
		fmt.Printf("making release %s …\n", version)
		if *made, err = site.registry.Release(ctx, root, site.dir, version); err != nil {
			return fmt.Errorf("making release %s: %w", version, err)
		}
	}
	if *helm == "" {
		*helm, err = install.Helm(ctx, root)
	}
	return err
}

func tearDown() {
	if site.cluster != nil {
		site.cluster.SetProgress(io.Discard)
		if err := site.cluster.Down(context.Background()); err != nil {
			fmt.Println("taking the cluster down:", err)
		}
	}
	if site.dir != "" {
		if err := os.RemoveAll(site.dir); err != nil {
			fmt.Println("removing the releases:", err)
		}
	}
}
