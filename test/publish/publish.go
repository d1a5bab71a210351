// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package publish makes releases of the checkout, and pushes them to a registry on this machine, from which the nodes of a local
// cluster pull.
package publish

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/everynode/everynode/local/cluster"
	"github.com/everynode/everynode/release"
	"github.com/everynode/everynode/test/install"
)

// Registry is a registry that only the nodes of a cluster and this machine can reach: at the address of the API server. It has
// no certificate.
type Registry struct {
	// Address is the host and port.
	Address string
	cluster *cluster.Cluster
}

// Serve starts a registry, and configures these nodes for it. It ends with the process.
func Serve(ctx context.Context, c *cluster.Cluster, nodes ...string) (*Registry, error) {
	config, err := c.RESTConfig()
	if err != nil {
		return nil, err
	}
	apiServer, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(apiServer.Hostname(), "0"))
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: registry.New(registry.Logger(log.New(io.Discard, "", 0))), ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	r := &Registry{Address: listener.Addr().String(), cluster: c}
	for _, node := range nodes {
		if err := r.Trust(ctx, node); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// Trust lets a node pull from the registry over HTTP.
func (r *Registry) Trust(ctx context.Context, node string) error {
	_, _, err := r.cluster.Exec(ctx, node, "/bin/sh", "-c", fmt.Sprintf(
		`dir=/etc/containerd/certs.d/%[1]s; mkdir -p $dir; echo 'server = "http://%[1]s"' > $dir/hosts.toml`, r.Address))
	return err
}

// Release is a release in a registry.
type Release struct {
	// Version begins with v.
	Version string
	// Dir has the files of the release, and Bin the plugin from its archive.
	Dir, Bin string
}

// Release makes a release for the platform of this machine from the checkout in the folder root, below the folder dir, and
// pushes it.
func (r *Registry) Release(ctx context.Context, root, dir, version string) (Release, error) {
	made := Release{Version: version, Dir: filepath.Join(dir, version), Bin: filepath.Join(dir, version+"-bin")}
	err := release.Build(ctx, release.Options{
		Root: root, Dir: made.Dir, Version: version, Revision: strings.Repeat("0", 40), Created: time.Unix(1, 0),
		Platforms: []string{"linux/" + runtime.GOARCH},
	})
	if err != nil {
		return made, err
	}
	if _, err := release.Publish(ctx, made.Dir, r.Address+"/everynode"); err != nil {
		return made, err
	}
	return made, made.unpackPlugin(ctx)
}

// unpackPlugin writes the plugin in the archive of the release to the folder Bin.
func (r Release) unpackPlugin(ctx context.Context) error {
	if err := os.Mkdir(r.Bin, 0o755); err != nil {
		return err
	}
	archive := filepath.Join(r.Dir, fmt.Sprintf("kubectl-everynode_%s_linux_%s.tar.gz", r.Version, runtime.GOARCH))
	out, err := exec.CommandContext(ctx, "tar", "-xzf", archive, "-C", r.Bin, "kubectl-everynode").CombinedOutput()
	if err != nil {
		return fmt.Errorf("unpacking %s: %w\n%s", archive, err, out)
	}
	return nil
}

// ChartVersion is the version of the chart, without v.
func (r Release) ChartVersion() string { return strings.TrimPrefix(r.Version, "v") }

// Manifest is the file for kubectl apply, for an API server of this version.
func (r Release) Manifest(kubernetes string) (string, error) {
	policies, err := install.ServesPolicies(kubernetes)
	if !policies {
		return filepath.Join(r.Dir, release.InstallNoGatesFile), err
	}
	return filepath.Join(r.Dir, release.InstallFile), nil
}
