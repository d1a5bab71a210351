// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package gitops_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/everynode/everynode/test/install"
	"github.com/everynode/everynode/test/publish"
)

// user commits manifests, here by applying them, and runs commands in a terminal.
type user struct {
	t      *testing.T
	ctx    context.Context
	plugin publish.Release
}

func newUser(t *testing.T) *user {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	t.Cleanup(cancel)
	u := &user{t: t, ctx: ctx, plugin: site.old}
	t.Cleanup(u.reset)
	return u
}

// reset prints what is useful for debugging if the test has failed, and removes everything that the test may have left.
func (u *user) reset() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	u.ctx = ctx
	if u.t.Failed() {
		u.tell()
	}
	u.kubectl("delete kustomizations.kustomize.toolkit.fluxcd.io --all --all-namespaces --timeout=200s")
	u.kubectl("everynode uninstall --yes --records")
	u.kubectl("delete ocirepositories.source.toolkit.fluxcd.io --all --all-namespaces --timeout=60s")
	u.kubectl("delete namespace node-setup " + install.Namespace + " --ignore-not-found --timeout=120s")
	for _, node := range []string{"node-1", "node-2"} {
		u.sh(node, "rm -f /var/tmp/*")
	}
}

// tell prints what is useful for debugging, the most useful last.
func (u *user) tell() {
	log, err := os.ReadFile(fluxLog())
	lines := strings.Split(strings.TrimSpace(string(log)), "\n")
	u.t.Logf("%s: %v\n%s", controller, err, strings.Join(lines[max(0, len(lines)-25):], "\n"))
	for _, args := range []string{
		"-n " + install.Namespace + " get events", "-n node-setup get nodejobs -o wide", "get pods -A -o wide", "get kustomizations -A",
	} {
		out, err := u.command("", site.cluster.Kubectl(), strings.Fields(args)...)
		u.t.Logf("kubectl %s\n%s%v", args, out, err)
	}
}

func (u *user) command(stdin, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(u.ctx, name, args...)
	cmd.Env = site.cluster.Environ(u.plugin.Bin)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out), err
}

// kubectl runs a command, whose arguments have no spaces, and fails the test if the command fails.
func (u *user) kubectl(args string) string {
	u.t.Helper()
	return u.must(u.command("", site.cluster.Kubectl(), strings.Fields(args)...))
}

// get returns a field of an object; "" if it has none, or does not exist.
func (u *user) get(object, path string) string {
	u.t.Helper()
	args := append(strings.Fields(object), "--ignore-not-found", "-o", "jsonpath={"+path+"}")
	return u.must(u.command("", site.cluster.Kubectl(), args...))
}

func (u *user) apply(manifest string) {
	u.t.Helper()
	u.must(u.command(manifest, site.cluster.Kubectl(), "apply", "-f", "-"))
}

func (u *user) must(out string, err error) string {
	u.t.Helper()
	if err != nil {
		u.t.Fatal(err)
	}
	return out
}

func (u *user) eventually(what string, check func() error) {
	u.t.Helper()
	deadline := time.Now().Add(3 * time.Minute)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) || u.ctx.Err() != nil {
			u.t.Fatalf("waiting until %s: %v", what, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// sh runs a script on a node.
func (u *user) sh(node, script string) string {
	u.t.Helper()
	stdout, _, err := site.cluster.Exec(u.ctx, node, "/bin/sh", "-c", script)
	return strings.TrimSpace(u.must(stdout, err))
}

// commit does what a source-controller does when these files are committed: it serves them, and reports that in the status of an
// OCIRepository. The first commit creates it.
func (u *user) commit(namespace, name string, files map[string]string) {
	u.t.Helper()
	content, err := tarGzip(files)
	u.must("", err)
	digest := fmt.Sprintf("sha256:%x", sha256.Sum256(content))
	path := "/" + namespace + "/" + name + "/" + digest + ".tar.gz"
	site.flux.artifacts.put(path, content)
	if u.get("-n "+namespace+" get ocirepository "+name, ".metadata.name") == "" {
		u.apply(fmt.Sprintf(`
apiVersion: source.toolkit.fluxcd.io/v1
kind: OCIRepository
metadata: {name: %s, namespace: %s}
spec: {interval: 1h, url: oci://registry.example.com/manifests, ref: {tag: latest}}
`, name, namespace))
	}
	u.status("ocirepository", namespace, name, map[string]any{
		"observedGeneration": 1,
		"artifact": map[string]any{
			"revision": "latest@" + digest, "digest": digest, "size": len(content), "path": path[1:],
			"url": "http://" + site.flux.address + path, "lastUpdateTime": time.Now().UTC().Format(time.RFC3339),
		},
		"conditions": []any{map[string]any{
			"type": "Ready", "status": "True", "reason": "Succeeded", "message": "stored artifact", "observedGeneration": 1,
			"lastTransitionTime": time.Now().UTC().Format(time.RFC3339),
		}},
	})
}

// status writes the status of an object.
func (u *user) status(kind, namespace, name string, status map[string]any) {
	u.t.Helper()
	patch, err := json.Marshal(map[string]any{"status": status})
	u.must("", err)
	u.must(
		u.command(
			"",
			site.cluster.Kubectl(),
			"-n",
			namespace,
			"patch",
			kind,
			name,
			"--subresource=status",
			"--type=merge",
			"-p",
			string(patch),
		),
	)
}

// tarGzip makes an archive of files.
func tarGzip(files map[string]string) ([]byte, error) {
	var content bytes.Buffer
	zipped := gzip.NewWriter(&content)
	archive := tar.NewWriter(zipped)
	for _, path := range slices.Sorted(maps.Keys(files)) {
		if err := archive.WriteHeader(&tar.Header{Name: path, Mode: 0o644, Size: int64(len(files[path]))}); err != nil {
			return nil, err
		}
		if _, err := archive.Write([]byte(files[path])); err != nil {
			return nil, err
		}
	}
	err := errors.Join(archive.Close(), zipped.Close())
	return content.Bytes(), err
}

// kustomization is the manifest of a Kustomization that waits for what is committed to the OCIRepository of the same name.
func kustomization(namespace, name, fields string) string {
	return fmt.Sprintf(`
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: %[2]s, namespace: %[1]s}
spec:
  interval: 1h
  retryInterval: 5s
  timeout: 3m
  prune: true
  wait: true
  path: ./
  sourceRef: {kind: OCIRepository, name: %[2]s}
%[3]s`, namespace, name, fields)
}

// install has Flux install a release, and waits until it works.
func (u *user) install(r publish.Release) {
	u.t.Helper()
	u.commitRelease(r)
	u.apply(kustomization(fluxNamespace, "everynode", ""))
	u.ready("everynode")
	u.installed(r)
}

// upgrade commits another release.
func (u *user) upgrade(r publish.Release) {
	u.t.Helper()
	u.commitRelease(r)
	u.applied(fluxNamespace, "everynode")
	u.ready("everynode")
	u.installed(r)
}

func (u *user) commitRelease(r publish.Release) {
	u.t.Helper()
	path, err := r.Manifest(site.cluster.KubernetesVersion())
	u.must("", err)
	content, err := os.ReadFile(path)
	u.commit(fluxNamespace, "everynode", map[string]string{"install.yaml": u.must(string(content), err)})
}

// applied waits until Flux has tried to apply what was committed last.
func (u *user) applied(namespace, name string) {
	u.t.Helper()
	u.eventually("Flux applies what is committed", func() error {
		committed := u.get("-n "+namespace+" get ocirepository "+name, ".status.artifact.revision")
		if attempted := u.get("-n "+namespace+" get kustomization "+name, ".status.lastAttemptedRevision"); attempted != committed {
			return fmt.Errorf("it has applied %s, and %s is committed", attempted, committed)
		}
		return nil
	})
}

// installed waits until the manager of a release leads, and checks the version of the CRDs.
func (u *user) installed(r publish.Release) {
	u.t.Helper()
	u.plugin = r
	u.eventually("all versions are "+r.Version, func() error {
		out, err := u.command("", site.cluster.Kubectl(), "everynode", "version")
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if err == nil &&
			(len(lines) != 3 || slices.ContainsFunc(lines, func(line string) bool { return strings.Fields(line)[1] != r.Version })) {
			err = errors.New(out)
		}
		return err
	})
	for _, crd := range []string{"nodejobs", "nodeguards"} {
		if version := u.get("get crd "+crd+".everynode.dev", ".metadata.labels.app\\.kubernetes\\.io/version"); version != r.Version {
			u.t.Errorf("the CRD %s is %q, want %s", crd, version, r.Version)
		}
	}
}

// condition returns status, reason and message of the condition Ready of a Kustomization.
func (u *user) condition(namespace, name string) string {
	u.t.Helper()
	const fields = `range .status.conditions[?(@.type=="Ready")]}{.status}{";"}{.reason}{";"}{.message}{end`
	return u.get("-n "+namespace+" get kustomization "+name, fields)
}

// ready waits until a Kustomization in the namespace of Flux is Ready.
func (u *user) ready(name string) {
	u.t.Helper()
	u.shows(fluxNamespace, name, "True;")
}

// shows waits until the condition Ready of a Kustomization begins with a text, and contains others.
func (u *user) shows(namespace, name, begin string, contains ...string) {
	u.t.Helper()
	u.eventually(fmt.Sprintf("the Kustomization %s is Ready=%s", name, begin), func() error {
		got := u.condition(namespace, name)
		missing := func(text string) bool { return !strings.Contains(got, text) }
		if !strings.HasPrefix(got, begin) || slices.ContainsFunc(contains, missing) {
			return fmt.Errorf("it is %s", got)
		}
		return nil
	})
}

// reconcile does what `flux reconcile` does, and waits until the controller has handled it.
func (u *user) reconcile(name string) {
	u.t.Helper()
	token := fmt.Sprint(time.Now().UnixNano())
	u.kubectl(fmt.Sprintf("-n %s annotate kustomization %s reconcile.fluxcd.io/requestedAt=%s --overwrite", fluxNamespace, name, token))
	u.eventually(name+" is reconciled", func() error {
		if handled := u.get("-n "+fluxNamespace+" get kustomization "+name, ".status.lastHandledReconcileAt"); handled != token {
			return fmt.Errorf("the last one was %s", handled)
		}
		return nil
	})
}

// changes are what Flux says that it has changed for a Kustomization, one object a line.
func (u *user) changes(name string) []string {
	u.t.Helper()
	const messages = `jsonpath={range.items[*]}{.message}{"\n"}{end}`
	out := u.must(u.command("", site.cluster.Kubectl(), "-n", fluxNamespace, "get", "events", "-o", messages,
		"--field-selector", "involvedObject.kind=Kustomization,involvedObject.name="+name))
	var changed []string
	for line := range strings.Lines(out) {
		if words := strings.Fields(line); len(words) == 2 && strings.Contains(words[0], "/") {
			changed = append(changed, strings.TrimSpace(line))
		}
	}
	return changed
}

// namespace creates the namespace node-setup for NodeJobs.
func (u *user) namespace() {
	u.t.Helper()
	u.kubectl("create namespace node-setup")
	u.kubectl("label namespace node-setup pod-security.kubernetes.io/enforce=privileged everynode.dev/enabled=true")
}

// nodeJob is the manifest of a NodeJob in the namespace node-setup.
func nodeJob(name, spec string) string {
	return "apiVersion: everynode.dev/v1alpha1\nkind: NodeJob\nmetadata: {name: " + name + ", namespace: node-setup}\nspec: {nodes: {selector: {matchLabels: {kubernetes.io/os: linux}}}, " + spec + "}\n"
}

// ranOnce checks that a script has run once on each node.
func (u *user) ranOnce(file string) {
	u.t.Helper()
	for _, node := range []string{"node-1", "node-2"} {
		if got := u.sh(node, "cat /var/tmp/"+file); got != "ran" {
			u.t.Errorf("%s has run on %s: %q", file, node, got)
		}
	}
}

// nothingLeft checks that nothing of Everynode is on nodes, or in the cluster outside of namespaces.
func (u *user) nothingLeft() {
	u.t.Helper()
	if err := u.left(); err != nil {
		u.t.Error(err)
	}
}

func (u *user) left() error {
	u.t.Helper()
	if left := u.kubectl("get nodes -o yaml"); strings.Contains(left, "everynode.dev") {
		return fmt.Errorf("left on nodes is\n%s", left)
	}
	kinds := "crds,clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings"
	if policies, err := install.ServesPolicies(site.cluster.KubernetesVersion()); policies || err != nil {
		kinds += ",mutatingadmissionpolicies,mutatingadmissionpolicybindings"
	}
	if left := u.kubectl("get " + kinds + " -o name"); strings.Contains(left, "everynode") {
		return fmt.Errorf("left is\n%s", left)
	}
	return nil
}
