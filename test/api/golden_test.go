// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

const goldenRemedy = "Files of a released version never change: change the CRD so that such objects stay as they are (docs/api-stability.md)"

// eachGolden calls check for each object that a released version has stored.
func eachGolden(t *testing.T, check func(t *testing.T, file string, golden *unstructured.Unstructured)) {
	t.Helper()
	paths, err := filepath.Glob("../../api/v1alpha1/testdata/objects/*/*.json")
	must(t, err)
	if len(paths) < 6 {
		t.Fatalf("%d golden objects were found: where are the others?", len(paths))
	}
	for _, path := range paths {
		content, err := os.ReadFile(path)
		must(t, err)
		golden := &unstructured.Unstructured{}
		must(t, golden.UnmarshalJSON(content))
		file := filepath.Base(filepath.Dir(path)) + "/" + filepath.Base(path)
		t.Run(file, func(t *testing.T) { check(t, file, golden) })
	}
}

// storeStrictly creates an object with the spec and the status of a golden one, as the current CRDs store it.
func (w *world) storeStrictly(golden *unstructured.Unstructured, spec any) *unstructured.Unstructured {
	w.T.Helper()
	stored := golden.DeepCopy()
	stored.Object["metadata"] = map[string]any{"namespace": w.Namespace, "name": golden.GetName()}
	if golden.GetKind() == "NodeDisruptionBudget" { // which has no namespace
		stored.Object["metadata"] = map[string]any{"name": w.Namespace + "-" + golden.GetName()}
		w.T.Cleanup(func() { w.remove(context.Background(), stored) })
	}
	stored.Object["spec"] = spec
	strict := client.WithFieldValidation(admin, metav1.FieldValidationStrict)
	must(w.T, strict.Create(w.Ctx, stored))
	stored.Object["status"] = golden.DeepCopy().Object["status"]
	must(w.T, client.WithFieldValidation(w.as(managerUser), metav1.FieldValidationStrict).Status().Update(w.Ctx, stored))
	must(w.T, admin.Get(w.Ctx, client.ObjectKeyFromObject(stored), stored))
	return stored
}

// withoutAdded returns an object without the fields that a later version has added to the golden one.
func withoutAdded(golden, stored any) any {
	switch g := golden.(type) {
	case map[string]any:
		s, ok := stored.(map[string]any)
		if !ok {
			return stored
		}
		kept := map[string]any{}
		for name, value := range s {
			if field, ok := g[name]; ok {
				kept[name] = withoutAdded(field, value)
			}
		}
		return kept
	case []any:
		s, ok := stored.([]any)
		if !ok || len(s) != len(g) {
			return stored
		}
		kept := make([]any, len(s))
		for i := range s {
			kept[i] = withoutAdded(g[i], s[i])
		}
		return kept
	}
	return stored
}

// TestGoldenObjectsAreAccepted creates the objects of each version with the current CRDs. The API server must accept them, and
// return each field of spec and status as it was: no rule became stricter, and no name has changed.
func TestGoldenObjectsAreAccepted(t *testing.T) {
	eachGolden(t, func(t *testing.T, file string, golden *unstructured.Unstructured) {
		stored := newWorld(t).storeStrictly(golden, golden.DeepCopy().Object["spec"])
		for _, part := range []string{"spec", "status"} {
			if diff := cmp.Diff(golden.Object[part], withoutAdded(golden.Object[part], stored.Object[part])); diff != "" {
				t.Errorf("%s: the API server returns another %s (-file +API server):\n%s%s", file, part, diff, goldenRemedy)
			}
		}
	})
}

// withDefaults are the specs from which the API server has made those of the golden objects, by their files.
var withDefaults = map[string]string{
	"v0.1.0/nodejob-defaults.json": `{nodes: {selector: {matchLabels: {kubernetes.io/os: linux}}}, task: {command: [uname, -r]}, rollback: {script: "true"}, confirm: {}, onFailure: {action: Drain, drain: {}},
		publish: [{result: kernel, label: example.com/kernel}], gate: {}, maintenance: {drain: {}}}`,
	"v0.1.0/nodeguard-defaults.json":            `{target: {daemonSet: storage}}`,
	"v0.1.0/nodedisruptionbudget-defaults.json": `{selector: {matchLabels: {pool: golden}}, limits: [{maxUnavailable: 1}]}`,
	"v0.1.0/nodeguard-check-defaults.json":      `{target: {daemonSet: storage}, release: {check: {script: "true"}}}`,
}

// TestDefaultsStayTheSame creates objects without the fields that have defaults.
func TestDefaultsStayTheSame(t *testing.T) {
	tested := 0
	eachGolden(t, func(t *testing.T, file string, golden *unstructured.Unstructured) {
		text, ok := withDefaults[file]
		if !ok {
			return
		}
		tested++
		var spec map[string]any
		must(t, yaml.Unmarshal([]byte(text), &spec))
		stored := newWorld(t).storeStrictly(golden, spec)
		if diff := cmp.Diff(golden.Object["spec"], withoutAdded(golden.Object["spec"], stored.Object["spec"])); diff != "" {
			t.Errorf("%s: the API server sets other defaults (-file +API server):\n%s%s", file, diff, goldenRemedy)
		}
	})
	if tested != len(withDefaults) {
		t.Errorf("%d of %d objects were found", tested, len(withDefaults))
	}
}
