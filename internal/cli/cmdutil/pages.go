// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cmdutil

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
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

// JobNames returns the names of the NodeJobs of a namespace, as far as the user may list them.
func JobNames(ctx context.Context, c client.Client, namespace string) []string {
	return namesIn(ctx, c, v1alpha1.GroupVersion.WithKind("NodeJobList"), client.InNamespace(namespace))
}

// NodeNames returns the names of the nodes, as far as the user may list them.
func NodeNames(ctx context.Context, c client.Client) []string {
	return namesIn(ctx, c, corev1.SchemeGroupVersion.WithKind("NodeList"))
}

// namesIn reads names only, because whole objects are large.
func namesIn(ctx context.Context, c client.Client, kind schema.GroupVersionKind, opts ...client.ListOption) []string {
	var found []string
	var page metav1.PartialObjectMetadataList
	page.SetGroupVersionKind(kind)
	_ = EachPage(ctx, c, &page, func() {
		for i := range page.Items {
			found = append(found, page.Items[i].Name)
		}
	}, opts...) // results from before an error are still useful
	return found
}
