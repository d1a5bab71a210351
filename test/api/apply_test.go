// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
)

// TestServerSideApplyTwiceChangesNothing covers what Flux and Argo CD do every few minutes: defaults, and fields in another
// form than that of the API, must not lead to a new generation.
func TestServerSideApplyTwiceChangesNothing(t *testing.T) {
	w := newWorld(t)
	kinds := map[string]int{}
	for _, pattern := range []string{"../../config/samples/*.yaml", "../../recipes/*.yaml", "../../internal/cli/convert/testdata/*.golden.yaml"} {
		for _, object := range w.manifests(pattern) {
			kinds[object.GetKind()]++
			created := w.applied(object)
			first, second := w.applied(object), w.applied(object)
			if diff := cmp.Diff(first.Object, second.Object); diff != "" {
				t.Errorf(
					"%s %s from %s is changed by the same manifest (-first +second):\n%s",
					object.GetKind(),
					object.GetName(),
					pattern,
					diff,
				)
			}
			// The first update stores the default of status.observedGeneration, as the manager otherwise does.
			created.SetResourceVersion(first.GetResourceVersion())
			if diff := cmp.Diff(created.Object, first.Object); diff != "" {
				t.Errorf(
					"%s %s from %s is changed by its own manifest (-created +applied):\n%s",
					object.GetKind(),
					object.GetName(),
					pattern,
					diff,
				)
			}
			w.remove(w.Ctx, first)
			w.gone(first)
		}
	}
	if kinds["NodeJob"] < 30 || kinds["NodeGuard"] == 0 {
		t.Errorf("only these were applied: %v", kinds)
	}
}

// applied applies an object as kubectl apply --server-side does.
func (w *world) applied(object *unstructured.Unstructured) *unstructured.Unstructured {
	w.T.Helper()
	live := object.DeepCopy()
	must(w.T, admin.Apply(w.Ctx, client.ApplyConfigurationFromUnstructured(live), client.FieldOwner("gitops")))
	return live
}

// manifests returns the NodeJobs and NodeGuards in files, in the namespace of this test.
func (w *world) manifests(pattern string) []*unstructured.Unstructured {
	w.T.Helper()
	var objects []*unstructured.Unstructured
	_, documents := w.documents(pattern)
	for _, document := range documents {
		for _, object := range objectsIn(w.T, document.content) {
			if object.GroupVersionKind().Group == v1alpha1.Group && object.GetName() != "" {
				object.SetNamespace(w.Namespace)
				objects = append(objects, object)
			}
		}
	}
	return objects
}
