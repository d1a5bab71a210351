// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cmdutil

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/uninstall"
)

// TestTheMapperKnowsAllKinds checks the kinds of the API: a command cannot read a kind that the mapper does not have.
func TestTheMapperKnowsAllKinds(t *testing.T) {
	known := uninstall.Mapper()
	for kind := range Scheme.KnownTypes(v1alpha1.GroupVersion) {
		gvk := v1alpha1.GroupVersion.WithKind(kind)
		object, err := Scheme.New(gvk)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := object.(client.Object); !ok {
			continue // lists and options
		}
		if _, err := known.RESTMapping(gvk.GroupKind(), gvk.Version); err != nil {
			t.Error(err)
		}
	}
}
