// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
)

// TestGitOpsToolsSeeNoDifference applies the recipes and samples like Flux and Argo CD. Flux, and Argo CD with ServerSideDiff=true,
// apply once more as a trial, and compare with the live object. Otherwise, Argo CD computes on its own what would change:
// it does not know the defaults of a CRD, and compares lists without a key as a whole.
func TestGitOpsToolsSeeNoDifference(t *testing.T) {
	w := newWorld(t)
	if policiesServed {
		w.writers(alice) // waits until the policy that writes an annotation is evaluated
	}
	const owner = "argocd-controller"
	apply := func(manifest *unstructured.Unstructured, options ...client.ApplyOption) *unstructured.Unstructured {
		live := manifest.DeepCopy()
		options = append(options, client.FieldOwner(owner), client.ForceOwnership)
		must(t, admin.Apply(w.Ctx, client.ApplyConfigurationFromUnstructured(live), options...))
		return live
	}
	compared := 0
	for _, manifest := range w.published(t) {
		compared++
		first := apply(manifest)
		if diff := cmp.Diff(first.Object, apply(manifest, client.DryRunAll).Object); diff != "" {
			t.Errorf("%s %s is changed by the same manifest (-before +after):\n%s", manifest.GetKind(), manifest.GetName(), diff)
		}
		if diff := listsDiffer(manifest.Object["spec"], first.Object["spec"]); diff != "" {
			t.Errorf("%s %s has another list than the manifest (-manifest +API server):\n%s", manifest.GetKind(), manifest.GetName(), diff)
		}
		for _, entry := range first.GetManagedFields() {
			if entry.Manager == owner && strings.Contains(entry.FieldsV1.GetRawString(), v1alpha1.ChangedByAnnotation) {
				t.Errorf(
					"%s %s: the tool owns the annotation that the API server adds, so it would remove it",
					manifest.GetKind(),
					manifest.GetName(),
				)
			}
		}
		if policiesServed && named(first) == "" {
			t.Errorf("%s %s does not have the annotation", manifest.GetKind(), manifest.GetName())
		}
		w.remove(w.Ctx, first)
	}
	if compared < 12 {
		t.Errorf("only %d objects were found", compared)
	}
}

// TestACommitAfterAPromotionByHand : promote owns rollout.promoteTo, so a tool that applies another value must force it.
func TestACommitAfterAPromotionByHand(t *testing.T) {
	w := newWorld(t)
	apply := func(promoteTo string, options ...client.ApplyOption) error {
		manifest := jobFromYAML(t, w.Namespace, "steps", `{task: {script: "true"}, rollout: {promoteTo: `+promoteTo+`,
			steps: [{name: canary, nodes: 1}, {name: quarter, nodes: 25%}, {name: all}]}}`)
		return admin.Apply(w.Ctx, client.ApplyConfigurationFromUnstructured(manifest), append(options, client.FieldOwner("gitops"))...)
	}
	must(t, apply("canary"))
	if got := w.everynode(w.kubeconfigOf(), "promote", "steps"); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	if err := apply("canary"); !apierrors.IsConflict(err) || !strings.Contains(err.Error(), ".spec.rollout.promoteTo") {
		t.Errorf("a commit that is behind: %v", err)
	}
	if err := apply("all"); !apierrors.IsConflict(err) {
		t.Errorf("a commit that is ahead: %v", err)
	}
	if err := apply("quarter"); err != nil {
		t.Errorf("a commit of the same step: %v", err)
	}
	if err := apply("all", client.ForceOwnership); err != nil {
		t.Errorf("a forced commit: %v", err)
	}
}

// published are the NodeJobs and NodeGuards of the recipes and samples, in the test's namespace.
func (w *world) published(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	var found []*unstructured.Unstructured
	for _, pattern := range []string{"../../recipes/*.yaml", "../../config/samples/*.yaml"} {
		files, err := filepath.Glob(pattern)
		must(t, err)
		for _, file := range files {
			content, err := os.ReadFile(file)
			must(t, err)
			for _, object := range objectsIn(t, content) {
				if object.GroupVersionKind().Group == v1alpha1.Group {
					object.SetNamespace(w.Namespace)
					content, err := object.MarshalJSON()
					must(t, err)
					must(t, object.UnmarshalJSON(content)) // so that its integers have the type of those in an answer
					found = append(found, object)
				}
			}
		}
	}
	return found
}

// listsDiffer returns the first difference of a list that is in both values.
func listsDiffer(want, got any) string {
	switch value := want.(type) {
	case []any:
		return cmp.Diff(want, got)
	case map[string]any:
		fields, _ := got.(map[string]any)
		for name := range value {
			if diff := listsDiffer(value[name], fields[name]); diff != "" {
				return fmt.Sprintf("%s: %s", name, diff)
			}
		}
	}
	return ""
}
