// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/api/v1alpha1"
)

func TestObjectsOfAnEarlierAPI(t *testing.T) {
	for name, tt := range map[string]struct {
		kind, object string
		refused      bool
	}{
		"a budget":                        {"NodeDisruptionBudget", `{metadata: {generation: 3}, status: {observedGeneration: 3, nodes: {unavailable: 1}}}`, true},
		"a guard":                         {"NodeGuard", `{metadata: {generation: 1}, status: {observedGeneration: 1, nodes: {released: 0}}}`, true},
		"a NodeJob":                       {"NodeJob", `{metadata: {generation: 1}, status: {observedGeneration: 1, nodes: {done: 4}}}`, true},
		"a budget that a user has edited": {"NodeDisruptionBudget", `{metadata: {generation: 4}, status: {observedGeneration: 3, nodes: {unavailable: 1}}}`, false},
		"a budget of this API":            {"NodeDisruptionBudget", `{metadata: {generation: 3}, status: {observedGeneration: 3, nodes: {total: 0, unavailable: 1}}}`, false},
		"a budget without a status":       {"NodeDisruptionBudget", `{metadata: {generation: 1}, status: {observedGeneration: -1}}`, false},
		"nothing":                         {},
	} {
		t.Run(name, func(t *testing.T) {
			scheme := runtime.NewScheme() // with the Go types, the fake would add the fields that they write
			for _, kind := range []string{"NodeDisruptionBudget", "NodeGuard", "NodeJob"} {
				scheme.AddKnownTypeWithName(v1alpha1.GroupVersion.WithKind(kind), &unstructured.Unstructured{})
				scheme.AddKnownTypeWithName(v1alpha1.GroupVersion.WithKind(kind+"List"), &unstructured.UnstructuredList{})
			}
			c := fake.NewClientBuilder().WithScheme(scheme)
			if tt.kind != "" {
				o := &unstructured.Unstructured{}
				if err := yaml.Unmarshal([]byte(tt.object), &o.Object); err != nil {
					t.Fatal(err)
				}
				o.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(tt.kind))
				o.SetName("mine")
				c = c.WithObjects(o)
			}
			err := refuseEarlier(t.Context(), c.Build())
			if (err != nil) != tt.refused ||
				err != nil && !strings.Contains(err.Error(), tt.kind+" mine was last observed by a manager with an earlier API") {
				t.Errorf("the error is %v", err)
			}
		})
	}
}
