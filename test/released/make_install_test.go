// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package released_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/everynode/everynode/test/install"
	"github.com/everynode/everynode/test/publish"
)

// TestMakeInstall installs the checkout as README says: with images that are loaded into the nodes, and then with images of a
// registry, first of one from which the nodes cannot pull.
func TestMakeInstall(t *testing.T) {
	u := newUser(t)
	root := u.must(install.Root())
	plugin := filepath.Join(root, "bin", "kubectl-everynode")
	u.plugin.Bin = filepath.Dir(plugin)
	makeInstall := func(args ...string) (string, error) {
		return u.command("", "make", append([]string{"-C", root, "install"}, args...)...)
	}
	wantImages := func(prefix string) {
		t.Helper()
		image := u.kubectl(
			"-n " + install.Namespace + " get deployment " + install.Deployment + " -o jsonpath={.spec.template.spec.containers[0].image}",
		)
		if !strings.HasPrefix(image, prefix) {
			t.Errorf("the image is %s, want %s…", image, prefix)
		}
	}

	if out, err := makeInstall(); err == nil || !strings.Contains(out, "nothing was changed: answer y, or set YES=1") {
		t.Errorf("without an answer: %v\n%s", err, out)
	}
	if left := u.kubectl("get namespace " + install.Namespace + " --ignore-not-found -o name"); left != "" {
		t.Errorf("without an answer, it has made %s", left)
	}
	if out, err := makeInstall("YES=1", "KUBECONFIG="+u.impersonate("system:kube-scheduler")); err == nil ||
		!strings.Contains(out, "you may not create namespaces, customresourcedefinitions.apiextensions.k8s.io") {
		t.Errorf("as a user who may only read nodes: %v\n%s", err, out)
	}
	out := u.must(makeInstall("YES=1"))
	t.Logf("%s", out)
	wantImages("localhost/everynode/manager:")
	if !strings.Contains(out, plugin+" status max-map-count -n node-setup") {
		t.Errorf("the next commands are missing:\n%s", out)
	}
	if versions := u.must(
		u.command("", plugin, "version"),
	); strings.Contains(versions, "warning: ") ||
		strings.Contains(out, "Sorting order") {
		t.Errorf("there are warnings in\n%s\n%s", out, versions)
	}
	for _, file := range []string{"namespace.yaml", "max-map-count.yaml"} {
		u.kubectl("apply -f " + filepath.Join(root, "config", "samples", file))
	}
	u.kubectl("-n node-setup wait nodejob/max-map-count --for=condition=Complete --timeout=150s")
	if out := u.must(u.command("", plugin, "status", "max-map-count", "-n", "node-setup")); !strings.Contains(out, "max-map-count") {
		t.Errorf("status: %s", out)
	}
	before := u.kubectl("-n node-setup get nodejobs -o jsonpath={.items[*].status.revision}")

	unreachable, err := publish.Serve(u.ctx, site.cluster)
	u.must("", err)
	began := time.Now()
	out, err = makeInstall("YES=1", "REGISTRY="+unreachable.Address+"/everynode")
	if err == nil || !strings.Contains(out, "ImagePullBackOff") ||
		!strings.Contains(out, "Check that the nodes can pull from the registry") {
		t.Errorf("from a registry that the nodes do not trust: %v\n%s", err, out)
	}
	t.Logf("after %s:\n%s", time.Since(began).Round(time.Second), out)

	prefix := site.registry.Address + "/everynode"
	u.must(makeInstall("YES=1", "REGISTRY="+prefix))
	wantImages(prefix + "/manager:")
	if after := u.kubectl("-n node-setup get nodejobs -o jsonpath={.items[*].status.revision}"); after != before {
		t.Errorf("the revision was %q and is %q", before, after)
	}
	u.must(u.command("", "make", "-C", root, "uninstall", "YES=1"))
	u.uninstallWithNamespace()
}

// impersonate writes a kubeconfig for another user, and returns its path.
func (u *user) impersonate(name string) string {
	u.t.Helper()
	var config map[string]any
	u.must("", json.Unmarshal([]byte(u.kubectl("config view --raw -o json")), &config))
	config["users"].([]any)[0].(map[string]any)["user"].(map[string]any)["as"] = name
	content, err := json.Marshal(config)
	u.must("", err)
	file := filepath.Join(u.t.TempDir(), "kubeconfig")
	u.must("", os.WriteFile(file, content, 0o600))
	return file
}
