// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/test/install"
)

// foreign are the kinds of objects in the pages that the API server does not have, and what they belong to.
var foreign = map[string]string{
	"Application":          "Argo CD: the tests of charts read its values",
	"HelmRelease":          "Flux: the tests of charts read its values",
	"NodePool":             "Karpenter",
	"NodeReadinessRule":    "the node-readiness-controller",
	"OCIRepository":        "Flux",
	"KubeletConfiguration": "the configuration file of the kubelet",
}

// chartPages are the pages whose fragments are values of the chart. The tests of charts check them.
var chartPages = []string{"docs/install.md", "docs/monitoring.md", "docs/notifications.md", "docs/archive.md"}

// place is where a fragment may belong: a field of an object, such as spec.rollout, or an object without its kind and name.
type place struct {
	kind, field string
	// decode decodes such an object, and refuses unknown fields.
	decode func(*unstructured.Unstructured) error
}

// places are in the order in which they are tried.
var places = []place{
	{"NodeJob", "", decodes[v1alpha1.NodeJob]},
	{"NodeJob", "spec", decodes[v1alpha1.NodeJob]},
	{"NodeJob", "spec.rollout", decodes[v1alpha1.NodeJob]},
	{"NodeGuard", "", decodes[v1alpha1.NodeGuard]},
	{"NodeGuard", "spec", decodes[v1alpha1.NodeGuard]},
	{"Pod", "spec", decodes[corev1.Pod]},
	{"ConfigMap", "", decodes[corev1.ConfigMap]},
}

func decodes[T any](object *unstructured.Unstructured) error {
	content, err := yaml.Marshal(object)
	if err != nil {
		return err
	}
	return yaml.UnmarshalStrict(content, new(T))
}

// TestTheYAMLInThePagesIsAccepted covers all YAML in the documentation: whole objects, and fragments of them.
func TestTheYAMLInThePagesIsAccepted(t *testing.T) {
	w := newWorld(t)
	found := 0
	for _, p := range readPages(t) {
		for _, b := range p.blocks() {
			if b.language != "yaml" {
				continue
			}
			for _, document := range split(t, []byte(b.content)) {
				found++
				switch {
				case strings.HasPrefix(string(document), "fault-remediation:"): // values of NVSentinel: TestNVSentinelRepairsNodes
					continue
				case slices.Contains(chartPages, p.file) && !strings.Contains(string(document), "kind:"):
					continue
				case !policiesServed && strings.Contains(string(document), "kind: MutatingAdmissionPolicy"):
					t.Logf("%s:%d is not checked: %s", p.file, b.line, install.WhyNoPolicies(kubernetes))
					continue
				}
				if err := w.acceptsYAML(document); err != nil {
					t.Errorf("%s:%d: %v", p.file, b.line, err)
				}
			}
		}
	}
	if found < 35 {
		t.Errorf("only %d documents were found", found)
	}
}

func TestMistakesInYAMLAreFound(t *testing.T) {
	w := newWorld(t)
	const jobHead = "apiVersion: everynode.dev/v1alpha1\nkind: NodeJob\n"
	for name, content := range map[string]string{
		"an unknown field of a fragment":            "spec: {dependOn: [a]}",
		"an unknown field below a fragment":         "task: {script: a, inputs: [{kind: Secret, names: a}]}",
		"a value that no fragment may have":         "task: {script: a, inputs: [{kind: Secrets, name: a}]}",
		"an unknown field of steps":                 "steps: [{name: canary, node: 1}]",
		"a number that is a text":                   "retry: {limit: three}",
		"an unknown field of a status":              "status: {drains: [{nodes: a}]}",
		"an unknown field of an affinity":           "affinity: {nodeAffinities: {}}",
		"a fragment that fits nowhere":              "somewhere: {else: true}",
		"an unknown field of a NodeJob":             jobHead + "metadata: {name: a}\nspec: {task: {scripts: a}}",
		"an unknown field of an unnamed object":     jobHead + "spec: {gate: {keys: example.com/a}}",
		"an unknown field of an object that exists": "apiVersion: v1\nkind: Namespace\nmetadata: {name: default}\nspec: {finalizer: []}",
		"an invalid label of an object that exists": "apiVersion: v1\nkind: Namespace\nmetadata: {name: default, labels: {a: '-'}}",
		"an unknown kind":                           "apiVersion: example.com/v1\nkind: Other\nmetadata: {name: a}",
		"a patch of a missing object":               "patches: [{target: {kind: Deployment, name: everynode}, patch: '[{op: remove, path: /spec}]'}]",
		"a missing folder":                          "resources: [../everynode/config/crds]",
		"a rule without an expression":              "- {alert: A, expression: up}",
		"a text":                                    "text",
	} {
		if w.acceptsYAML([]byte(content)) == nil {
			t.Errorf("%s is not found", name)
		}
	}
}

// acceptsYAML checks a document of a page.
func (w *world) acceptsYAML(content []byte) error {
	var rules []struct {
		Alert, Expr, For    string
		Labels, Annotations map[string]string
	}
	if yaml.UnmarshalStrict(content, &rules) == nil && len(rules) > 0 && rules[0].Expr != "" {
		return nil // an alert of Prometheus
	}
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(content, &object.Object); err != nil {
		return err
	}
	_, resources := object.Object["resources"]
	_, patches := object.Object["patches"]
	switch {
	case resources || patches:
		return w.builds(object.Object)
	case object.GetKind() == "":
		return w.fits(object.Object)
	case foreign[object.GetKind()] != "":
		return nil
	}
	return w.applies(object)
}

// applies has the API server check an object. What an excerpt omits is added.
func (w *world) applies(object *unstructured.Unstructured) error {
	object = object.DeepCopy()
	if object.GetName() == "" {
		object.SetName("excerpt")
		if err := selectsNodes(object); err != nil {
			return err
		}
	}
	if object.GetKind() != "Namespace" {
		object.SetNamespace(w.Namespace)
	}
	for kind, required := range map[string][]string{"NodeJob": {"spec", "task", "script"}, "NodeGuard": {"spec", "target", "daemonSet"}} {
		if _, has, _ := unstructured.NestedFieldNoCopy(object.Object, required[:2]...); object.GetKind() == kind && !has {
			if err := unstructured.SetNestedField(object.Object, "excerpt", required...); err != nil {
				return err
			}
		}
	}
	// Another test may have created a namespace of the pages. The API server looks for it last, after all other checks.
	return client.IgnoreAlreadyExists(admin.Create(w.Ctx, object, client.DryRunAll, client.FieldValidation("Strict")))
}

// selectsNodes adds which nodes the excerpt of a NodeJob is for, if it does not say so.
func selectsNodes(object *unstructured.Unstructured) error {
	_, selector, _ := unstructured.NestedFieldNoCopy(object.Object, "spec", "nodes", "selector")
	_, names, _ := unstructured.NestedFieldNoCopy(object.Object, "spec", "nodes", "names")
	if object.GetKind() != "NodeJob" || selector || names {
		return nil
	}
	return unstructured.SetNestedField(object.Object, "excerpt", "spec", "nodes", "selector", "matchLabels", "example.com/pool")
}

// fits finds the place where a fragment belongs.
func (w *world) fits(fragment map[string]any) error {
	var errs []error
	for _, at := range places {
		object := &unstructured.Unstructured{Object: map[string]any{}}
		if at.field == "" {
			object.Object = fragment
		} else if err := unstructured.SetNestedMap(object.Object, fragment, strings.Split(at.field, ".")...); err != nil {
			return err
		}
		if err := at.decode(object); err != nil {
			errs = append(errs, fmt.Errorf("as %s %s: %w", at.kind, at.field, err))
			continue
		}
		if _, isStatus := object.Object["status"]; isStatus || (at.kind != "NodeJob" && at.kind != "NodeGuard") {
			return nil
		}
		object.SetAPIVersion(v1alpha1.GroupVersion.String())
		object.SetKind(at.kind)
		return w.applies(object)
	}
	return fmt.Errorf("the fragment fits nowhere: %w", errors.Join(errs...))
}

// builds builds a part of a kustomization. Patches without resources are for config/default.
func (w *world) builds(kustomization map[string]any) error {
	dir := w.T.TempDir()
	root, err := filepath.Abs("../..")
	must(w.T, err)
	must(w.T, os.Symlink(root, filepath.Join(dir, "everynode")))
	overlay := filepath.Join(dir, "overlay")
	must(w.T, os.Mkdir(overlay, 0o700))
	if kustomization["resources"] == nil {
		kustomization["resources"] = []any{"../everynode/config/default"}
	}
	content, err := yaml.Marshal(kustomization)
	must(w.T, err)
	must(w.T, os.WriteFile(filepath.Join(overlay, "kustomization.yaml"), content, 0o600))
	if out, err := exec.CommandContext(w.Ctx, filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl"), "kustomize", overlay).
		CombinedOutput(); err != nil {
		return fmt.Errorf("building the kustomization: %w: %s", err, out)
	}
	return nil
}
