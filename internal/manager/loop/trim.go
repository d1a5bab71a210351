// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package loop

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
)

// trimmedAnnotation is on cached objects whose spec the cache does not have, or not completely. It is never written, and the API server accepts
// no annotation with a space, so no user can set it. Its value is the size of the spec if there is no room for it.
const trimmedAnnotation = "is trimmed"

// MaxSpecs limits the specs of the NodeJobs of a namespace together, in bytes of JSON. In memory, a spec can be some ten times as large.
const MaxSpecs = 4 << 20

// Trimmer keeps the specs of NodeJobs and NodeGuards in namespaces that are not allowed out of the cache, and those of NodeJobs for which there
// is no room: any user with rights in a namespace can create many, of a megabyte each. Nothing is done for those, so only their
// metadata and status is read.
// It learns which namespaces are allowed from the same cache. It is safe for concurrent use.
type Trimmer struct {
	// All is true if all namespaces are allowed.
	All bool

	mu sync.Mutex
	// allowed are the namespaces that were seen, and whether they are allowed.
	allowed map[string]bool
	// specs are the sizes of the specs of NodeJobs for which there is room.
	specs map[client.ObjectKey]int
}

// NewTrimmer returns a Trimmer that knows no namespace.
func NewTrimmer() *Trimmer {
	return &Trimmer{allowed: map[string]bool{}, specs: map[client.ObjectKey]int{}}
}

// Transform returns a transform of the cache that trims objects after another transform. An informer may transform an object more than once.
func (t *Trimmer) Transform(first toolscache.TransformFunc) toolscache.TransformFunc {
	return func(o any) (any, error) {
		if trimmed, is := o.(metav1.Object); is && IsTrimmed(trimmed) {
			return o, nil
		}
		o, err := first(o)
		if err != nil {
			return nil, err
		}
		t.trim(o)
		return o, nil
	}
}

func (t *Trimmer) trim(o any) {
	switch o := o.(type) {
	case *metav1.PartialObjectMetadata:
		if o.Kind == "Namespace" {
			t.Note(o)
		}
	case *v1alpha1.NodeJob:
		// One that was served before is still planned.
		if t.isClosed(o.Namespace) && o.Status.Revision == "" {
			o.Spec = v1alpha1.NodeJobSpec{}
			markTrimmed(o, "true")
		} else if size := sizeOf(o.Spec); !t.takeRoom(client.ObjectKeyFromObject(o), size) {
			o.Spec = seenByOthers(&o.Spec)
			markTrimmed(o, strconv.Itoa(size))
		}
	case *v1alpha1.NodeGuard:
		if t.isClosed(o.Namespace) {
			// The name of the DaemonSet shows which nodes it may guard, should the namespace be allowed.
			o.Spec = v1alpha1.NodeGuardSpec{Target: v1alpha1.GuardTarget{DaemonSet: o.Spec.Target.DaemonSet}}
			markTrimmed(o, "true")
		}
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
	t.allowed[namespace.Name] = hold.AllowsNodeJobs(namespace.Labels)
}

// seenByOthers returns what other NodeJobs read of a spec for which there is no room, such as its gate.
func seenByOthers(spec *v1alpha1.NodeJobSpec) v1alpha1.NodeJobSpec {
	seen := *spec
	seen.Task, seen.Rollback, seen.Expires = v1alpha1.TaskSpec{}, nil, nil
	if sizeOf(seen) > maxPlacement {
		return v1alpha1.NodeJobSpec{}
	}
	return seen
}

// LacksRoom reports whether there is no room for the whole spec of a NodeJob, which is from the cache or from the API server.
func (t *Trimmer) LacksRoom(job *v1alpha1.NodeJob) bool {
	if t == nil {
		return false
	}
	size, err := strconv.Atoi(job.Annotations[trimmedAnnotation])
	if err != nil {
		size = sizeOf(job.Spec)
	}
	return !t.takeRoom(client.ObjectKeyFromObject(job), size)
}

// takeRoom reports whether there is room for the spec of a NodeJob beside those of the other NodeJobs of its namespace, and takes it.
func (t *Trimmer) takeRoom(key client.ObjectKey, size int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.specs, key)
	taken := 0
	for other, bytes := range t.specs {
		if other.Namespace == key.Namespace {
			taken += bytes
		}
	}
	if taken+size > MaxSpecs {
		return false
	}
	t.specs[key] = size
	return true
}

// Forget makes room for others when a NodeJob is gone.
func (t *Trimmer) Forget(job client.ObjectKey) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.specs, job)
}

// isClosed reports whether a namespace is known not to be allowed. Objects of other namespaces are kept.
func (t *Trimmer) isClosed(namespace string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	allowed, known := t.allowed[namespace]
	return known && !allowed && !t.All
}

func markTrimmed(o metav1.Object, why string) {
	o.SetAnnotations(map[string]string{trimmedAnnotation: why})
}

// IsTrimmed reports whether the spec of a cached object must be read from the API server.
func IsTrimmed(o metav1.Object) bool { return o.GetAnnotations()[trimmedAnnotation] != "" }
