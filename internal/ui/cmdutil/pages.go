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

// JobKeys returns the namespaces and names of NodeJobs.
func JobKeys(ctx context.Context, c client.Reader, opts ...client.ListOption) ([]client.ObjectKey, error) {
	var keys []client.ObjectKey
	err := eachMetadata(ctx, c, v1alpha1.GroupVersion.WithKind("NodeJobList"), func(o *metav1.PartialObjectMetadata) {
		keys = append(keys, client.ObjectKeyFromObject(o))
	}, opts...)
	return keys, err
}

// NodeNames returns the names of the nodes, as far as the user may list them.
func NodeNames(ctx context.Context, c client.Client) []string {
	return namesIn(ctx, c, corev1.SchemeGroupVersion.WithKind("NodeList"))
}

// namesIn reads names only, because whole objects are large.
func namesIn(ctx context.Context, c client.Client, kind schema.GroupVersionKind, opts ...client.ListOption) []string {
	var found []string
	_ = eachMetadata(ctx, c, kind, func(o *metav1.PartialObjectMetadata) { found = append(found, o.Name) }, opts...) // what was read before an error is still useful
	return found
}

// EachNode calls do for each node, which is read without its spec and status.
func EachNode(ctx context.Context, c client.Reader, do func(*metav1.PartialObjectMetadata), opts ...client.ListOption) error {
	return eachMetadata(ctx, c, corev1.SchemeGroupVersion.WithKind("NodeList"), do, opts...)
}

func eachMetadata(ctx context.Context, c client.Reader, kind schema.GroupVersionKind, do func(*metav1.PartialObjectMetadata), opts ...client.ListOption) error {
	var page metav1.PartialObjectMetadataList
	page.SetGroupVersionKind(kind)
	return EachPage(ctx, c, &page, func() {
		for i := range page.Items {
			do(&page.Items[i])
		}
	}, opts...)
}
