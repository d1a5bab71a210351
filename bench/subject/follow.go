// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// follow shows all objects and then each that is added or changed, until see is false. It keeps none of them,
// which is why it is no informer, and it begins with the API server's cache. The API server ends a watch
// whose client does not keep up; it is begun anew then, and shows again what is there.
func follow(ctx context.Context, client rest.Interface, resource, labels, fields string, see func(runtime.Object) bool) error {
	for ctx.Err() == nil {
		events, err := client.Get().Namespace(namespaceOf(resource)).Resource(resource).
			VersionedParams(&metav1.ListOptions{
				Watch: true, LabelSelector: labels, FieldSelector: fields, ResourceVersion: "0", TimeoutSeconds: new(int64(6 * 3600)),
			}, scheme.ParameterCodec).Watch(ctx)
		if err != nil {
			return err
		}
		seen, err := show(ctx, events, see)
		if seen || err != nil {
			return err
		}
	}
	return nil
}

// show is true when see was false, or nobody wants to see any more.
func show(ctx context.Context, events watch.Interface, see func(runtime.Object) bool) (seen bool, err error) {
	defer events.Stop()
	for {
		select {
		case <-ctx.Done():
			return true, nil
		case event, open := <-events.ResultChan():
			switch {
			case !open:
				return false, nil
			case event.Type == watch.Error:
				return false, apierrors.FromObject(event.Object)
			case event.Type == watch.Deleted:
			case !see(event.Object):
				return true, nil
			}
		}
	}
}

// namespaceOf is empty for what has none.
func namespaceOf(resource string) string {
	if resource == corev1.ResourcePods.String() {
		return Namespace
	}
	return ""
}
