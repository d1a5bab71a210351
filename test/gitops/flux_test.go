// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package gitops_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/everynode/everynode/test/install"
)

const (
	// fluxNamespace is the namespace in which a user installs Flux.
	fluxNamespace = "flux-system"
	controller    = "kustomize-controller"
	// sources is the module whose CRDs are installed, of the release of Flux in whose go.mod the controller is.
	sources = "github.com/fluxcd/source-controller@v1.9.6"
)

// flux has the kustomize-controller. It runs beside the cluster, as the administrator: it is a cluster administrator in each
// installation of Flux, unless a Kustomization names a service account.
type flux struct {
	program string
	// crds are the folders with its CRDs, and those of the sources.
	crds    []string
	running *exec.Cmd
	// artifacts serves what is committed at an address.
	address   string
	artifacts *artifacts
}

// buildFlux builds the version that a module pins. The cache of Go keeps the program.
func buildFlux(ctx context.Context, module string) (flux, error) {
	program, err := goCommand(ctx, module, "tool", "-n", controller)
	if err != nil {
		return flux{}, fmt.Errorf("building the %s: %w", controller, err)
	}
	own, err := goCommand(ctx, module, "list", "-m", "-f", "{{.Dir}}", "github.com/fluxcd/"+controller)
	if err != nil {
		return flux{}, fmt.Errorf("finding the CRDs of the %s: %w", controller, err)
	}
	downloaded, err := goCommand(ctx, module, "mod", "download", "-json", sources)
	if err != nil {
		return flux{}, fmt.Errorf("downloading the CRDs of sources: %w", err)
	}
	var from struct{ Dir string }
	if err := json.Unmarshal([]byte(downloaded), &from); err != nil {
		return flux{}, fmt.Errorf("downloading the CRDs of sources: %w", err)
	}
	crds := filepath.Join("config", "crd", "bases")
	return flux{program: program, crds: []string{filepath.Join(own, crds), filepath.Join(from.Dir, crds)}}, nil
}

func goCommand(ctx context.Context, module string, args ...string) (string, error) {
	var errs bytes.Buffer
	command := exec.CommandContext(ctx, "go", append([]string{"-C", module}, args...)...)
	command.Stderr = &errs
	out, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("%w\n%s", err, errs.String())
	}
	return strings.TrimSpace(string(out)), nil
}

// start installs the CRDs of Flux, and starts the controller.
func (f *flux) start(ctx context.Context) error {
	for _, crds := range f.crds {
		if _, err := install.Kubectl(ctx, site.cluster, "", "apply", "--server-side", "-f", crds); err != nil {
			return err
		}
	}
	if _, err := install.Kubectl(ctx, site.cluster, "", "create", "namespace", fluxNamespace); err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	f.address, f.artifacts = listener.Addr().String(), &artifacts{content: map[string][]byte{}}
	server := &http.Server{Handler: f.artifacts, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	log, err := os.Create(fluxLog())
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	f.running = exec.Command(f.program, "--metrics-addr=0", "--health-addr=0", "--events-addr=")
	f.running.Env = append(site.cluster.Environ(), "RUNTIME_NAMESPACE="+fluxNamespace, "TMPDIR="+site.dir, "HOME="+site.dir)
	f.running.Stdout, f.running.Stderr = log, log
	return f.running.Start()
}

func (f *flux) stop() {
	if f.running != nil && f.running.Process != nil {
		_ = f.running.Process.Kill()
		_ = f.running.Wait()
	}
}

func fluxLog() string { return filepath.Join(site.dir, controller+".log") }

// artifacts are archives, by their paths.
type artifacts struct {
	mu      sync.Mutex
	content map[string][]byte
}

func (a *artifacts) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	content, ok := a.content[r.URL.Path]
	a.mu.Unlock()
	if !ok {
		http.NotFound(w, r)
		return
	}
	_, _ = w.Write(content)
}

func (a *artifacts) put(path string, content []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.content[path] = content
}
