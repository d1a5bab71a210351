// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package released_test makes two releases of the checkout, pushes them to a registry on this machine, and installs,
// upgrades and removes them on real nodes, with nothing but the files of the releases.
package released_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/everynode/everynode/local/cluster"
	"github.com/everynode/everynode/release"
	"github.com/everynode/everynode/release/archive"
	"github.com/everynode/everynode/test/install"
)

var (
	kubernetes = flag.String("kubernetes", "", "the minor version of Kubernetes, such as 1.34")
	helm       = flag.String("helm", "", "the path of another helm than that of the tests of the chart")
)

// site is what all tests share.
var site struct {
	dir     string
	cluster *cluster.Cluster
	// registry is the address of a registry that the nodes can reach.
	registry string
	// old and new are releases of the same code with different versions.
	old, new published
	// policies says whether the API server serves the policies of the gate.
	policies bool
}

// published is a release in a registry.
type published struct {
	version string
	// dir has the files of the release, and bin the plugin from its archive.
	dir, bin string
}

// manifest is the file for kubectl apply.
func (p published) manifest() string {
	if site.policies {
		return filepath.Join(p.dir, release.InstallFile)
	}
	return filepath.Join(p.dir, release.InstallNoGatesFile)
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
	if err := serveRegistry(ctx); err != nil {
		return fmt.Errorf("starting the registry: %w", err)
	}
	for version, p := range map[string]*published{"v0.1.0": &site.old, "v0.2.0": &site.new} {
		fmt.Printf("making release %s …\n", version)
		if *p, err = publish(ctx, root, version); err != nil {
			return fmt.Errorf("making release %s: %w", version, err)
		}
	}
	if *helm == "" {
		*helm, err = install.Helm(ctx, root)
	}
	return err
}

// serveRegistry starts a registry that only the nodes of the cluster can reach: at the address of its API server. It has no
// certificate, so the nodes need a configuration for it.
func serveRegistry(ctx context.Context) error {
	config, err := site.cluster.RESTConfig()
	if err != nil {
		return err
	}
	apiServer, err := url.Parse(config.Host)
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(apiServer.Hostname(), "0"))
	if err != nil {
		return err
	}
	server := &http.Server{Handler: registry.New(registry.Logger(log.New(io.Discard, "", 0))), ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	site.registry = listener.Addr().String()
	for _, node := range []string{"node-1", "node-2"} {
		if err := trustRegistry(ctx, node); err != nil {
			return err
		}
	}
	return nil
}

// trustRegistry lets a node pull from the registry over HTTP.
func trustRegistry(ctx context.Context, node string) error {
	_, _, err := site.cluster.Exec(ctx, node, "/bin/sh", "-c", fmt.Sprintf(
		`dir=/etc/containerd/certs.d/%[1]s; mkdir -p $dir; echo 'server = "http://%[1]s"' > $dir/hosts.toml`, site.registry))
	return err
}

// publish makes a release for the platform of this machine, and pushes it.
func publish(ctx context.Context, root, version string) (published, error) {
	p := published{version: version, dir: filepath.Join(site.dir, version), bin: filepath.Join(site.dir, version+"-bin")}
	platform := []release.Platform{{OS: "linux", Arch: runtime.GOARCH}}
	err := release.Build(ctx, release.Options{
		Root: root, Dir: p.dir, Version: version, Revision: strings.Repeat("0", 40), Created: time.Unix(1, 0),
		ImagePlatforms: platform, PluginPlatforms: platform,
	})
	if err != nil {
		return p, err
	}
	if _, err := release.Publish(ctx, p.dir, site.registry+"/everynode"); err != nil {
		return p, err
	}
	content, err := os.ReadFile(filepath.Join(p.dir, fmt.Sprintf("kubectl-everynode_%s_linux_%s.tar.gz", version, runtime.GOARCH)))
	if err != nil {
		return p, err
	}
	files, _, err := archive.ReadTarGzip(content)
	if err != nil {
		return p, err
	}
	if err := os.Mkdir(p.bin, 0o755); err != nil {
		return p, err
	}
	for _, file := range files {
		if file.Path == "kubectl-everynode" {
			return p, os.WriteFile(filepath.Join(p.bin, file.Path), file.Content, 0o755)
		}
	}
	return p, errors.New("the archive of the plugin has no kubectl-everynode")
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
