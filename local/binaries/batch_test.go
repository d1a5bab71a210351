// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package binaries

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestProgramsOfAModuleAreBuiltTogether(t *testing.T) {
	var jobs []job
	for _, r := range recipes {
		jobs = append(jobs, job{name: r.name, dir: r.module, pkg: r.pkg, tags: r.tags, cgo: r.cgo, ldflags: r.linkFlags("v1.36.3")})
	}
	var got []string
	for _, b := range batchesOf(jobs) {
		var names []string
		for _, j := range b.jobs {
			names = append(names, j.name)
		}
		got = append(got, strings.Join(names, " "))
	}
	want := []string{
		"etcd", "kubectl kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy", "kwok",
		"containerd containerd-shim-runc-v2 ctr", "runc", "bridge loopback host-local",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the batches are %q", got)
	}
}

func TestExecutable(t *testing.T) {
	for pkg, want := range map[string]string{
		"go.etcd.io/etcd/server/v3": "server", "k8s.io/kubernetes/cmd/kubelet": "kubelet", "./cmd/everynode-node": "everynode-node",
		"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2": "containerd-shim-runc-v2",
	} {
		if got := executable(pkg); got != want {
			t.Errorf("go build gives %s the name %s, not %s", pkg, got, want)
		}
	}
}

// twoPrograms makes a module with two programs that share a package.
func twoPrograms(t *testing.T, second string) []job {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{
		"go.mod":             "module example.com/programs\n\ngo 1.26\n",
		"shared/shared.go":   "package shared\n\nconst Text = `hello`\n",
		"cmd/first/main.go":  "package main\n\nimport \"example.com/programs/shared\"\n\nfunc main() { print(shared.Text) }\n",
		"cmd/second/main.go": second,
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return []job{
		{name: "one", version: "v1.2.3", dir: dir, key: "programs-1", pkg: "./cmd/first", ldflags: "-s -w"},
		{name: "two", version: "v1.2.3", dir: dir, key: "programs-1", pkg: "./cmd/second", ldflags: "-s -w"},
	}
}

func TestBuildAll(t *testing.T) {
	jobs, cache := twoPrograms(t, "package main\n\nfunc main() {}\n"), t.TempDir()
	var progress bytes.Buffer
	if err := buildAll(t.Context(), &progress, cache, jobs); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(filepath.Join(cache, "programs-1"))
	if err != nil || len(entries) != 2 || entries[0].Name() != "one" || entries[1].Name() != "two" {
		t.Errorf("the cache has %v, %v", entries, err)
	}
	if got := progress.String(); !strings.HasPrefix(got, "building one, two v1.2.3 (1/1) …\nbuilt one, two v1.2.3 (1/1) in ") {
		t.Errorf("the progress is %q", got)
	}
	progress.Reset()
	if err := buildAll(t.Context(), &progress, cache, jobs); err != nil || progress.Len() > 0 {
		t.Errorf("nothing is missing, and the progress is %q, %v", progress.String(), err)
	}
}

func TestAFailedBuildNamesTheError(t *testing.T) {
	jobs, cache := twoPrograms(t, "package main\n\nfunc main() { missing() }\n"), t.TempDir()
	err := buildAll(t.Context(), &bytes.Buffer{}, cache, jobs)
	if err == nil || !strings.Contains(err.Error(), "building one, two v1.2.3") || !strings.Contains(err.Error(), "undefined: missing") {
		t.Errorf("the error is %v", err)
	}
	if err != nil && strings.Contains(err.Error(), "\nexample.com/programs/shared\n") {
		t.Errorf("the error lists packages that were compiled: %v", err)
	}
	entries, err := os.ReadDir(filepath.Join(cache, "programs-1"))
	if err != nil || len(entries) > 0 {
		t.Errorf("the cache has %v, %v", entries, err)
	}
}
