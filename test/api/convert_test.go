// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/internal/cli/convert"
	"github.com/everynode/everynode/internal/cli/manifest"
)

// TestDefaultsOfTheAPIServerAreNotListed covers objects as kubectl get prints them: with defaults and metadata of the API server.
// convert must not list these fields.
func TestDefaultsOfTheAPIServerAreNotListed(t *testing.T) {
	w := newWorld(t)
	files, err := filepath.Glob("../../internal/cli/convert/testdata/*.yaml")
	must(t, err)
	compared := 0
	for _, file := range files {
		// The API server drops the unknown fields in manifests about fields.
		if name := filepath.Base(file); strings.HasSuffix(name, ".golden.yaml") || strings.HasPrefix(name, "fields-") {
			continue
		}
		content, err := os.ReadFile(file)
		must(t, err)
		objects, err := manifest.Decode(content)
		must(t, err)
		for _, object := range objects {
			if kind := object.GetKind(); kind != "DaemonSet" && kind != "Job" {
				continue
			}
			object.SetNamespace(w.Namespace)
			served := object.DeepCopy()
			if err := admin.Create(w.Ctx, served, client.DryRunAll); apierrors.IsInvalid(err) {
				continue // a template with placeholders
			} else if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			served.SetName(object.GetName()) // the API server generates one
			if diff := cmp.Diff(commentsOf(object), commentsOf(served)); diff != "" {
				t.Errorf("%s: -as in the file +as served\n%s", file, diff)
			}
			compared++
		}
	}
	if compared < 12 {
		t.Errorf("only %d objects were compared", compared)
	}
}

// commentsOf returns the comment at the top of the NodeJob, the warnings and the errors.
func commentsOf(object *unstructured.Unstructured) string {
	result := convert.Convert([]*unstructured.Unstructured{object}, "")
	comments, _, _ := strings.Cut(string(result.YAML), "\napiVersion:")
	for _, err := range result.Refused {
		comments += "\n" + err.Error()
	}
	return comments + "\n" + strings.Join(result.Todos, "\n")
}
