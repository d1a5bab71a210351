package subject

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// follow shows all objects and then each that is added or changed, until see is false. It keeps none of them,
// which is why it is no informer, and it begins with the API server's cache. A watch that breaks is an
// error: it would have to begin anew, and nothing that is measured takes that long.
func follow(ctx context.Context, client rest.Interface, resource, labels, fields string, see func(runtime.Object) bool) error {
	events, err := client.Get().Namespace(namespaceOf(resource)).Resource(resource).
		VersionedParams(&metav1.ListOptions{
			Watch: true, LabelSelector: labels, FieldSelector: fields, ResourceVersion: "0", TimeoutSeconds: new(int64(6 * 3600)),
		}, scheme.ParameterCodec).Watch(ctx)
	if err != nil {
		return err
	}
	defer events.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case event, open := <-events.ResultChan():
			switch {
			case !open && ctx.Err() != nil:
				return nil
			case !open:
				return fmt.Errorf("the watch of %s has ended", resource)
			case event.Type == watch.Error:
				return apierrors.FromObject(event.Object)
			case event.Type == watch.Deleted:
			case !see(event.Object):
				return nil
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
