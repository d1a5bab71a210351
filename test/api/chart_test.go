// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/release/chart"
	"github.com/everynode/everynode/test/install"
)

// helmed is an API server on which helm installs Everynode.
type helmed struct {
	*removable
	dir, program string
}

func newHelmed(t *testing.T) *helmed {
	t.Helper()
	program, err := install.Helm(t.Context(), "../..")
	must(t, err)
	return &helmed{newRemovable(t), t.TempDir(), program}
}

// TestTheChartIsInstalledUpgradedRolledBackAndUninstalled uses the charts of two releases, of which the later one has
// other CRDs. No manager runs.
func TestTheChartIsInstalledUpgradedRolledBackAndUninstalled(t *testing.T) {
	h := newHelmed(t)
	first, second := h.release("v0.1.0", ""), h.release("v0.2.0", "changed")

	h.helm("install everynode " + first + " --create-namespace")
	h.is("v0.1.0", "", "1")
	must(t, h.admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "node-setup"}}))
	h.Eventually("a NodeJob can be created", func() error { return h.kubectl("apply -f ../../config/samples/max-map-count.yaml") })
	if policiesServed {
		h.exist("mutatingadmissionpolicy/everynode-gate", "mutatingadmissionpolicybinding/everynode-manager-node-setup")
	}

	h.helmFails("install second "+first, `cannot be imported into the current release: invalid ownership metadata`)

	h.helm(
		"upgrade everynode " + second + " --set manager.replicas=2,networkPolicy.enabled=true,nodeJobNamespaces[0].name=team-a,nodeJobNamespaces[0].create=true",
	)
	h.is("v0.2.0", "changed", "2")
	h.exist("namespace/team-a", "-n everynode-system pdb/everynode-manager networkpolicy/everynode-manager")

	h.helm("rollback everynode")
	h.is("v0.1.0", "", "1")
	h.areGone("-n everynode-system pdb/everynode-manager", "-n everynode-system networkpolicy/everynode-manager")
	h.exist("namespace/team-a") // it may have NodeJobs

	h.helm("uninstall everynode")
	h.areGone("-n everynode-system deployment/everynode-manager", "clusterrole/everynode-manager", "clusterrole/everynode-view")
	h.exist("-n node-setup nodejob/max-map-count", "crd/nodeguards.everynode.dev")

	h.helm("install everynode " + second)
	h.is("v0.2.0", "changed", "1")
	h.exist("-n node-setup nodejob/max-map-count")

	h.helm("upgrade everynode " + second + " --set crds.keep=false")
	h.helm("uninstall everynode")
	h.areGone("crd/nodejobs.everynode.dev", "crd/nodeguards.everynode.dev")

	if policiesServed { // else kubectl exits with 1
		h.takesOver(second)
	}
}

// takesOver has helm replace an installation of kubectl.
func (h *helmed) takesOver(release string) {
	h.T.Helper()
	must(h.T, h.kubectl("apply -k ../../config/local"))
	h.Eventually("a NodeJob can be created", func() error { return h.kubectl("apply -f ../../config/samples/max-map-count.yaml") })
	h.helm("install everynode " + release + " --take-ownership --force-conflicts")
	h.is("v0.2.0", "changed", "1")
	h.exist("-n node-setup nodejob/max-map-count")
}

// crdVersion is the annotation of the CRDs in which those of a release may differ.
var crdVersion = regexp.MustCompile(`(controller-gen\.kubebuilder\.io/version: ).*`)

// release writes the chart of a release. The CRDs have another annotation if crds is not empty.
func (h *helmed) release(version, crds string) string {
	h.T.Helper()
	var images []string
	for _, name := range []string{"manager", "runner", "runner-archive"} {
		images = append(images, "registry.example/"+name+":"+version+"@sha256:"+strings.Repeat("0", 64))
	}
	root := "../.."
	if crds != "" {
		root = h.T.TempDir()
		folder := filepath.Join(root, "charts", chart.Name)
		must(h.T, os.CopyFS(folder, os.DirFS("../../charts/everynode")))
		files, err := filepath.Glob(filepath.Join(folder, "files", "crd", "*"))
		must(h.T, err)
		for _, file := range files {
			content, err := os.ReadFile(file)
			must(h.T, err)
			must(h.T, os.WriteFile(file, crdVersion.ReplaceAll(content, []byte("${1}"+crds)), 0o600))
		}
	}
	must(h.T, chart.Package(root, h.dir, version, images, time.Unix(1, 0)))
	return filepath.Join(h.dir, chart.FileName(version))
}

// helm runs helm in the namespace of Everynode.
func (h *helmed) helm(args string) {
	h.T.Helper()
	if out, err := h.runHelm(args); err != nil {
		h.T.Fatalf("helm %s: %v\n%s", args, err, out)
	}
}

// helmFails has helm refuse a command.
func (h *helmed) helmFails(args, want string) {
	h.T.Helper()
	if out, err := h.runHelm(args); err == nil || !strings.Contains(out, want) {
		h.T.Fatalf("helm %s: %v, want %q\n%s", args, err, want, out)
	}
}

func (h *helmed) runHelm(args string) (output string, err error) {
	cmd := exec.CommandContext(h.T.Context(), h.program, append([]string{"--namespace", "everynode-system"}, strings.Fields(args)...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+h.kubeconfig, "HELM_CACHE_HOME="+h.dir, "HELM_CONFIG_HOME="+h.dir, "HELM_DATA_HOME="+h.dir)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// is checks which version is installed: the image of the manager, the annotation of the CRDs, and the replicas.
func (h *helmed) is(version, crds, replicas string) {
	h.T.Helper()
	for arguments, want := range map[string]string{
		"-n everynode-system deployment/everynode-manager -o jsonpath={.spec.template.spec.containers[0].image}": "registry.example/manager:" + version + "@",
		"-n everynode-system deployment/everynode-manager -o jsonpath={.spec.replicas}":                          replicas,
		`crd/nodejobs.everynode.dev -o jsonpath={.metadata.annotations}`:                                         `"controller-gen.kubebuilder.io/version":"` + crds,
	} {
		got, err := h.get(arguments)
		if err != nil || !strings.Contains(got, want) || crds == "" && strings.Contains(got, `"changed"`) {
			h.T.Errorf("get %s: %q, %v, want %q", arguments, got, err, want)
		}
	}
}

func (h *helmed) exist(objects ...string) {
	h.T.Helper()
	for _, object := range objects {
		if _, err := h.get(object); err != nil {
			h.T.Error(err)
		}
	}
}

func (h *helmed) areGone(objects ...string) {
	h.T.Helper()
	for _, object := range objects {
		h.Eventually(object+" is gone", func() error {
			switch _, err := h.get(object); {
			case err == nil:
				return errors.New("it exists")
			case !strings.Contains(err.Error(), "NotFound"):
				return err
			}
			return nil
		})
	}
}

func (h *helmed) get(arguments string) (string, error) {
	err := h.kubectl("get " + arguments)
	return h.printed, err
}
