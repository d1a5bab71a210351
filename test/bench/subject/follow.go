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

// follow sends all objects, and then each one that is added or changed, until see returns false. It is not an informer,
// because it stores no objects. It starts with the cache of the API server. The API server ends a watch whose client is
// too slow. Then follow starts again, and sends existing objects again.
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

// show reports whether see has returned false, or the context has ended.
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

// namespaceOf returns an empty string for objects without a namespace.
func namespaceOf(resource string) string {
	if resource == corev1.ResourcePods.String() {
		return Namespace
	}
	return ""
}
