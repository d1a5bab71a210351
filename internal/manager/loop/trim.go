// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package loop

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/task"
)

// trimmedAnnotation is on cached objects whose spec the cache does not have. It is never written.
const trimmedAnnotation = "trimmed"

// Trimmer keeps the specs of NodeJobs and NodeGuards in namespaces that are not allowed out of the cache: any user with rights
// in a namespace can create many, of a megabyte each. Nothing is done for those, so only their metadata and status is read.
// It learns which namespaces are allowed from the same cache. It is safe for concurrent use.
type Trimmer struct {
	mu sync.Mutex
	// allowed are the namespaces that were seen, and whether they are allowed.
	allowed map[string]bool
}

// NewTrimmer returns a Trimmer that knows no namespace.
func NewTrimmer() *Trimmer { return &Trimmer{allowed: map[string]bool{}} }

// Transform returns a transform of the cache that trims objects after another transform.
func (t *Trimmer) Transform(first toolscache.TransformFunc) toolscache.TransformFunc {
	return func(o any) (any, error) {
		o, err := first(o)
		if err != nil {
			return nil, err
		}
		switch o := o.(type) {
		case *metav1.PartialObjectMetadata:
			if o.Kind == "Namespace" {
				t.Note(o)
			}
		case *v1alpha1.NodeJob:
			// One that was served before is still planned.
			if o.Status.Revision == "" && t.isClosed(o.Namespace) {
				o.Spec = v1alpha1.NodeJobSpec{}
				markTrimmed(o)
			}
		case *v1alpha1.NodeGuard:
			if t.isClosed(o.Namespace) {
				// The name of the DaemonSet shows which nodes it may guard, should the namespace be allowed.
				o.Spec = v1alpha1.NodeGuardSpec{Target: v1alpha1.GuardTarget{DaemonSet: o.Spec.Target.DaemonSet}}
				markTrimmed(o)
			}
		}
		return o, nil
	}
}

// Load notes all namespaces, so that the first list of the cache is trimmed too.
func (t *Trimmer) Load(ctx context.Context, from client.Reader) error {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
	if err := from.List(ctx, list); err != nil {
		return fmt.Errorf("listing namespaces: %w", err)
	}
	for i := range list.Items {
		t.Note(&list.Items[i])
	}
	return nil
}

// Note records whether a namespace is allowed.
func (t *Trimmer) Note(namespace *metav1.PartialObjectMetadata) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.allowed[namespace.Name] = task.AllowsNodeJobs(namespace.Labels)
}

// isClosed reports whether a namespace is known not to be allowed. Objects of other namespaces are kept.
func (t *Trimmer) isClosed(namespace string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	allowed, known := t.allowed[namespace]
	return known && !allowed
}

func markTrimmed(o metav1.Object) {
	o.SetAnnotations(map[string]string{trimmedAnnotation: "true"})
}

// IsTrimmed reports whether the spec of a cached object must be read from the API server.
func IsTrimmed(o metav1.Object) bool { return o.GetAnnotations()[trimmedAnnotation] != "" }
