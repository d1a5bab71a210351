// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cmdutil

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// pageSize limits the number of objects in one response of the API server.
const pageSize = 500

// EachPage lists objects in pages of 500, and calls do after each page was read into page. Pages bound the memory,
// since nodes with their images are large.
func EachPage(ctx context.Context, c client.Reader, page client.ObjectList, do func(), opts ...client.ListOption) error {
	opts = append(opts, client.Limit(pageSize))
	for next := ""; ; {
		if err := c.List(ctx, page, append(opts, client.Continue(next))...); err != nil {
			return Explain(err)
		}
		do()
		if next = page.GetContinue(); next == "" {
			return nil
		}
	}
}

// NewNodeMetadataList returns an empty list of nodes that is read without their spec and status.
func NewNodeMetadataList() *metav1.PartialObjectMetadataList {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
	return list
}
