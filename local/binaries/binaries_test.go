// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package binaries

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestEveryRecipeHasAPinnedVersion(t *testing.T) {
	source, err := SourceDir()
	if err != nil {
		t.Fatal(err)
	}
	for _, minor := range KubernetesVersions() {
		for _, r := range recipes {
			dir := filepath.Join(source, "binaries", r.folder(minor))
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
				t.Errorf("the go.mod of %s names no tool %s: go mod tidy would drop what it needs", r.folder(minor), r.pkg)
			}
		}
	}
}

// TestTheDefaultClusterSharesPackagesWithOurPrograms : a package that two programs need is compiled once if all modules that it is made
// of have the same version. This is more than a minute of the first build on two cores.
func TestTheDefaultClusterSharesPackagesWithOurPrograms(t *testing.T) {
	source, err := SourceDir()
	if err != nil {
		t.Fatal(err)
	}
	required := regexp.MustCompile(`(?m)^\t(\S+/\S+) (v\S+)`)
	first := map[string][2]string{} // of each module: version and folder
	for _, folder := range []string{
		filepath.Join("..", "test"), ".", filepath.Join("binaries", kubernetesModule+"-"+DefaultKubernetes),
		filepath.Join("binaries", "etcd"), filepath.Join("binaries", "containerd"),
	} {
		mod, err := os.ReadFile(filepath.Join(source, folder, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		found := required.FindAllStringSubmatch(string(mod), -1)
		if len(found) < 10 {
			t.Fatalf("the go.mod of %s requires %d modules, want more", folder, len(found))
		}
		for _, m := range found {
			module, version := m[1], m[2]
			other, known := first[module]
			switch {
			case !known:
				first[module] = [2]string{version, folder}
			case other[0] != version:
				t.Errorf("%s is %s in %s and %s in %s: go get the newer one in both", module, other[0], other[1], version, folder)
			}
		}
	}
}

// TestEachKubernetesModulePinsOneRelease : a staging module of another release may compile.
func TestEachKubernetesModulePinsOneRelease(t *testing.T) {
	source, err := SourceDir()
	if err != nil {
		t.Fatal(err)
	}
	folders, err := filepath.Glob(filepath.Join(source, "binaries", kubernetesModule+"-*"))
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, dir := range folders {
		minor := strings.TrimPrefix(filepath.Base(dir), kubernetesModule+"-")
		found = append(found, minor)
		version, err := pinnedVersion(filepath.Join(dir, "go.mod"), "k8s.io/kubernetes")
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(version, "v"+minor+".") {
			t.Errorf("%s pins %s", filepath.Base(dir), version)
		}
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		staging := "v0." + strings.TrimPrefix(version, "v1.")
		replaced := regexp.MustCompile(`(?m)^\t(k8s\.io/\S+) => (\S+) (v\S+)$`).FindAllStringSubmatch(string(mod), -1)
		if len(replaced) < 25 {
			t.Errorf("%s replaces %d modules", filepath.Base(dir), len(replaced))
		}
		for _, r := range replaced {
			if r[1] != r[2] || r[3] != staging {
				t.Errorf("%s replaces %s by %s %s, and not by its %s", filepath.Base(dir), r[1], r[2], r[3], staging)
			}
		}
	}
	if !slices.Equal(found, KubernetesVersions()) {
		t.Errorf("there are modules for %v, and versions %v", found, KubernetesVersions())
	}
}

func TestAnUnknownKubernetesVersionIsRejected(t *testing.T) {
	if got, err := ResolveKubernetes(""); err != nil || got != DefaultKubernetes {
		t.Errorf("the default is %q, %v", got, err)
	}
	if got, err := ResolveKubernetes("1.34"); err != nil || got != "1.34" {
		t.Errorf("1.34 is %q, %v", got, err)
	}
	for _, version := range []string{"1.33", "1.34.4", "v1.36"} {
		_, err := ResolveKubernetes(version)
		if err == nil || !strings.Contains(err.Error(), version) || !strings.Contains(err.Error(), "1.34, 1.35, 1.36, 1.37") {
			t.Errorf("%s: %v", version, err)
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
	all := slices.Concat(ControlPlane(), SimulatedNode(), RealNode())
	for _, name := range All() {
		if !slices.Contains(all, name) {
			t.Errorf("%s is built but used by no node and no control plane", name)
		}
	}
}

func TestTheKeysFollowTheSources(t *testing.T) {
	dir := t.TempDir()
	write := func(folder, text string) {
		t.Helper()
		for _, file := range []string{"go.mod", "go.sum"} {
			path := filepath.Join(dir, "binaries", folder, file)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	// The keys of the cluster's folder and of the modules.
	keys := func(goVersion, kubernetes string) map[string]string {
		t.Helper()
		keys, err := moduleKeys(dir, goVersion, kubernetes)
		if err != nil {
			t.Fatal(err)
		}
		keys["cluster"] = clusterKey(kubernetes, keys)
		return keys
	}
	for _, r := range recipes {
		write(r.folder("1.34"), "before\n")
		write(r.folder("1.36"), "before\n")
	}
	old, oldest := keys("go1.26.0", "1.36"), keys("go1.26.0", "1.34")
	changed := func(goVersion, kubernetes string) []string {
		var names []string
		before := old
		if kubernetes == "1.34" {
			before = oldest
		}
		for name, key := range keys(goVersion, kubernetes) {
			if before[name] != key {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		return names
	}
	if got := changed("go1.26.0", "1.36"); len(got) > 0 {
		t.Errorf("the same sources give other keys of %v", got)
	}
	if got := changed("go1.26.1", "1.36"); len(got) != len(old) {
		t.Errorf("another Go release gives other keys only of %v", got)
	}
	for name, key := range oldest {
		shared := name != "cluster" && name != "kubernetes-1.34"
		if shared != (old[name] == key) {
			t.Errorf("the key of %s is %s for 1.34 and %s for 1.36", name, key, old[name])
		}
	}
	write("kubernetes-1.34", "after\n")
	if got := changed("go1.26.0", "1.36"); len(got) > 0 {
		t.Errorf("a change of 1.34 gives other keys of %v for 1.36", got)
	}
	if got := changed("go1.26.0", "1.34"); !slices.Equal(got, []string{"cluster", "kubernetes-1.34"}) {
		t.Errorf("a change of 1.34 gives other keys of %v", got)
	}
	write("etcd", "after\n")
	if got := changed("go1.26.0", "1.36"); !slices.Equal(got, []string{"cluster", "etcd"}) {
		t.Errorf("a change of etcd gives other keys of %v", got)
	}
}
