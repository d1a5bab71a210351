// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
)

// refuseEarlier returns an error if a manager with an earlier API has observed an object, and no user has changed its spec since. The API
// server drops fields that the CustomResourceDefinition does not have any more, so that a NodeDisruptionBudget could limit less than its
// author wants. A missing status.nodes.total shows it: this manager writes it in each status.
func refuseEarlier(ctx context.Context, c client.Reader) error {
	for _, kind := range []string{"NodeDisruptionBudget", "NodeGuard", "NodeJob"} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind + "List"))
		if err := c.List(ctx, list); err != nil {
			return fmt.Errorf("reading %ss, to find those of an earlier API: %w", kind, err)
		}
		for i := range list.Items {
			if o := &list.Items[i]; isEarlier(o) {
				return fmt.Errorf("%s %s was last observed by a manager with an earlier API, and fields of its spec may be lost: nothing is started. "+
					"Remove that installation first (kubectl everynode uninstall); or delete such objects and apply them again as this version documents them",
					kind, strings.TrimPrefix(client.ObjectKeyFromObject(o).String(), "/"))
			}
		}
	}
	return nil
}

// isEarlier reports whether a manager with an earlier API has written the status of an object, and no user has changed the spec since.
func isEarlier(o *unstructured.Unstructured) bool {
	observed, _, _ := unstructured.NestedInt64(o.Object, "status", "observedGeneration")
	nodes, written, _ := unstructured.NestedMap(o.Object, "status", "nodes")
	_, current := nodes["total"]
	return written && !current && observed > 0 && observed == o.GetGeneration()
}
