// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package gitops_test has the kustomize-controller of Flux install Everynode on real nodes, and wait for NodeJobs. It is built from
// the module in the folder flux. This takes some minutes, so `make test-gitops` is not a part of `make test`.
//
// The Go module proxy does not serve the helm-controller, and a library of the source-controller. The tests do what a
// source-controller does: they serve what is committed, and report it in the status of an OCIRepository.
package gitops_test

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/everynode/everynode/local/cluster"
	"github.com/everynode/everynode/test/install"
	"github.com/everynode/everynode/test/publish"
)

var kubernetes = flag.String("kubernetes", "", "the minor version of Kubernetes, such as 1.36")

// site is what all tests share.
var site struct {
	dir      string
	cluster  *cluster.Cluster
	registry *publish.Registry
	// old and new are releases of the same code with different versions.
	old, new publish.Release
	flux     flux
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
	if site.dir, err = os.MkdirTemp("", "everynode-gitops-"); err != nil {
		return err
	}
	fmt.Println("building the kustomize-controller of Flux (the first time, this takes some minutes) …")
	if site.flux, err = buildFlux(ctx, filepath.Join(root, "test", "gitops", "flux")); err != nil {
		return err
	}
	site.cluster, err = cluster.Up(ctx, cluster.Options{
		Name: fmt.Sprintf("everynode-gitops-%d", os.Getpid()), KubernetesVersion: *kubernetes, Nodes: 2, Progress: os.Stdout,
	})
	if err != nil {
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
	return site.flux.start(ctx)
}

func tearDown() {
	site.flux.stop()
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
