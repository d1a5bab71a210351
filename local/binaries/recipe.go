// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package binaries builds the programs a local cluster is made of from their Go modules, once, into
// a cache outside the work tree. Nothing is downloaded but Go modules, whose checksums are committed.
package binaries

import (
	"fmt"
	"slices"
	"strings"
)

// recipe says how one program is built.
type recipe struct {
	name string
	// module is the folder below local/binaries whose go.mod pins the versions. The programs'
	// requirements contradict each other, so there is one module per origin. Kubernetes has one per minor
	// version, and its recipes have the name without the version: see folder.
	module string
	// pkg is the import path of the main package.
	pkg string
	// versionOf is the module path whose pinned version is the program's version.
	versionOf string
	// tags are Go build tags.
	tags string
	// cgo is set where the program links C: runc needs libseccomp, and without seccomp every pod
	// that is not privileged is refused by runc.
	cgo bool
	// ldflags are added to "-s -w"; %s is the version with its leading v.
	ldflags []string
}

const (
	kubernetesModule = "kubernetes"
	componentVersion = "k8s.io/component-base/version."
	noSnapshotters   = "no_btrfs,no_devmapper,no_zfs"
)

// kubernetes makes the recipe of a Kubernetes component. The version is set as in a release build,
// or the API server would report v0.0.0-master and clients would refuse features by version.
func kubernetes(name string) recipe {
	return recipe{
		name: name, module: kubernetesModule, pkg: "k8s.io/kubernetes/cmd/" + name, versionOf: "k8s.io/kubernetes",
		ldflags: []string{
			"-X " + componentVersion + "gitVersion=%s",
			"-X " + componentVersion + "gitTreeState=archive",
		},
	}
}

func containerd(name string) recipe {
	const module = "github.com/containerd/containerd/v2"
	return recipe{
		name: name, module: "containerd", pkg: module + "/cmd/" + name, versionOf: module,
		tags: noSnapshotters, ldflags: []string{"-X " + module + "/version.Version=%s"},
	}
}

func cni(name, kind string) recipe {
	const module = "github.com/containernetworking/plugins"
	return recipe{name: name, module: "cni", pkg: module + "/plugins/" + kind + "/" + name, versionOf: module}
}

// recipes lists every program in the order they are built: what a test of the API needs first.
var recipes = []recipe{
	{
		name: "etcd", module: "etcd", pkg: "go.etcd.io/etcd/server/v3", versionOf: "go.etcd.io/etcd/server/v3",
	},
	kubernetes("kubectl"),
	kubernetes("kube-apiserver"),
	kubernetes("kube-controller-manager"),
	kubernetes("kube-scheduler"),
	{
		name: "kwok", module: "kwok", pkg: "sigs.k8s.io/kwok/cmd/kwok", versionOf: "sigs.k8s.io/kwok",
		ldflags: []string{"-X sigs.k8s.io/kwok/pkg/consts.Version=%s"},
	},
	kubernetes("kubelet"),
	kubernetes("kube-proxy"),
	containerd("containerd"),
	containerd("containerd-shim-runc-v2"),
	containerd("ctr"),
	{
		name: "runc", module: "runc", pkg: "github.com/opencontainers/runc", versionOf: "github.com/opencontainers/runc",
		tags: "seccomp", cgo: true, ldflags: []string{"-X main.version=%s"},
	},
	cni("bridge", "main"),
	cni("loopback", "main"),
	cni("host-local", "ipam"),
}

// EnvTest are the programs controller-runtime's envtest looks for in KUBEBUILDER_ASSETS.
func EnvTest() []string { return []string{"etcd", "kube-apiserver", "kubectl"} }

// ControlPlane are the programs that each cluster needs.
func ControlPlane() []string {
	return []string{"etcd", "kubectl", "kube-apiserver", "kube-controller-manager", "kube-scheduler"}
}

// SimulatedNode are the programs for simulated nodes, in addition to those of the control plane.
func SimulatedNode() []string { return []string{"kwok"} }

// RealNode are the programs that run on a real node, in addition to those of the control plane.
func RealNode() []string {
	return []string{
		"kubelet", "kube-proxy", "containerd", "containerd-shim-runc-v2", "ctr", "runc",
		"bridge", "loopback", "host-local",
	}
}

// All are the names of every program, in the order they are built.
func All() []string {
	names := make([]string, 0, len(recipes))
	for _, r := range recipes {
		names = append(names, r.name)
	}
	return names
}

// selectRecipes returns the recipes of the names, in building order; all of them for no name.
func selectRecipes(names []string) ([]recipe, error) {
	if len(names) == 0 {
		return recipes, nil
	}
	var out []recipe
	for _, r := range recipes {
		if slices.Contains(names, r.name) {
			out = append(out, r)
		}
	}
	for _, name := range names {
		if !slices.ContainsFunc(recipes, func(r recipe) bool { return r.name == name }) {
			return nil, fmt.Errorf("unknown program %q: known are %s", name, strings.Join(All(), ", "))
		}
	}
	return out, nil
}

// folder is the folder of the recipe's module below local/binaries, for a minor version of Kubernetes.
func (r recipe) folder(kubernetes string) string {
	if r.module == kubernetesModule {
		return r.module + "-" + kubernetes
	}
	return r.module
}

// linkFlags is the value of -ldflags for the version (with its leading v).
func (r recipe) linkFlags(version string) string {
	flags := []string{"-s", "-w"}
	for _, f := range r.ldflags {
		flags = append(flags, strings.ReplaceAll(f, "%s", version))
	}
	if r.module == kubernetesModule {
		parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
		if len(parts) == 3 {
			flags = append(flags,
				"-X "+componentVersion+"gitMajor="+parts[0],
				"-X "+componentVersion+"gitMinor="+parts[1])
		}
	}
	return strings.Join(flags, " ")
}
