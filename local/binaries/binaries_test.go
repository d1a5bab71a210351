// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package binaries

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestEveryRecipeHasAPinnedVersion(t *testing.T) {
	source, err := SourceDir()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range recipes {
		dir := filepath.Join(source, "binaries", r.module)
		version, err := pinnedVersion(filepath.Join(dir, "go.mod"), r.versionOf)
		if err != nil {
			t.Errorf("%s: %v", r.name, err)
			continue
		}
		flags := r.linkFlags(version)
		if strings.Contains(flags, "%") || (len(r.ldflags) > 0 && !strings.Contains(flags, version)) {
			t.Errorf("%s %s is linked with %q", r.name, version, flags)
		}
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(mod), r.pkg) {
			t.Errorf("the go.mod of %s names no tool %s: go mod tidy would drop what it needs", r.module, r.pkg)
		}
	}
}

func TestAReleaseContainsMajorAndMinor(t *testing.T) {
	got := kubernetes("kubectl").linkFlags("v1.36.3")
	for _, want := range []string{"gitVersion=v1.36.3", "gitMajor=1", "gitMinor=36", "-s -w"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
}

func TestProgramsAreSelectedInBuildingOrder(t *testing.T) {
	got, err := selectRecipes([]string{"kube-apiserver", "etcd"})
	if err != nil || len(got) != 2 || got[0].name != "etcd" {
		t.Errorf("selected %+v, %v", got, err)
	}
	if _, err := selectRecipes([]string{"docker"}); err == nil || !strings.Contains(err.Error(), "docker") {
		t.Errorf("an unknown program: %v", err)
	}
	all := append(ControlPlane(), RealNode()...)
	for _, name := range All() {
		if !slices.Contains(all, name) {
			t.Errorf("%s is built but used by no node and no control plane", name)
		}
	}
}

func TestTheKeyFollowsTheSources(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "binaries", "etcd", "go.mod")
	write := func(text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	key := func(goVersion string) string {
		t.Helper()
		k, err := pinnedKey(dir, goVersion)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	write("require go.etcd.io/etcd/server/v3 v3.6.16\n")
	first := key("go1.26.0")
	if key("go1.26.0") != first {
		t.Error("the same sources give two keys")
	}
	if key("go1.26.1") == first {
		t.Error("another Go release gives the same key")
	}
	write("require go.etcd.io/etcd/server/v3 v3.6.17\n")
	if key("go1.26.0") == first {
		t.Error("another version gives the same key")
	}
}
