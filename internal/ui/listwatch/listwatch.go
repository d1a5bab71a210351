// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package listwatch follows the objects of one kind: it lists them, watches their changes, and lists them again when the watch ends.
// No change is missed, but some may be passed on twice. Unlike an informer, it stores nothing, and its caller decides what an error
// means.
package listwatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Loop lists and watches. Its functions are called one at a time, by Run.
type Loop struct {
	Client client.WithWatch
	After  func(time.Duration) <-chan time.Time
	// Kind is an empty list of the kind.
	Kind client.ObjectList
	// List lists the objects. It returns the resource version from which a watch with the options continues.
	List func(ctx context.Context) (version string, opts []client.ListOption, err error)
	// Changed receives an object that has changed since.
	Changed func(object client.Object, deleted bool)
	// Ended receives why the objects have to be listed again, and returns the pause before that. at is the request that has ended.
	Ended func(at Request, err error) (pause time.Duration)
}

// Request is what a Loop was doing.
type Request int

const (
	// Listing means that List has returned an error.
	Listing Request = iota
	// Starting means that the API server has refused the watch.
	Starting
	// Watching means that the watch had begun.
	Watching
)

// ErrEnded is the error for a watch that the API server has ended, which is normal.
var ErrEnded = errors.New("the API server has ended the watch")

// Run lists and watches until the context ends.
func (l *Loop) Run(ctx context.Context) {
	for {
		at, err := l.Once(ctx)
		if ctx.Err() != nil {
			return
		}
		select {
		case <-l.After(l.Ended(at, err)):
		case <-ctx.Done():
			return
		}
	}
}

// Once lists the objects, and watches them until the watch ends or the context does.
func (l *Loop) Once(ctx context.Context) (Request, error) {
	version, opts, err := l.List(ctx)
	if err != nil || ctx.Err() != nil {
		return Listing, err
	}
	w, err := l.Client.Watch(ctx, l.Kind.DeepCopyObject().(client.ObjectList), append(slices.Clip(opts), fromVersion(version))...)
	if err != nil {
		return Starting, err
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		object, ok := event.Object.(client.Object)
		switch {
		case event.Type == watch.Error: // for example, because the version is too old
			return Watching, fmt.Errorf("%w: %w", ErrEnded, apierrors.FromObject(event.Object))
		case ok && event.Type != watch.Bookmark:
			l.Changed(object, event.Type == watch.Deleted)
		}
	}
	return Watching, ErrEnded
}

// fromVersion starts a watch at the resource version of a list.
type fromVersion string

// ApplyToList sets the resource version.
func (v fromVersion) ApplyToList(o *client.ListOptions) { raw(o).ResourceVersion = string(v) }

// raw returns the options that client.ListOptions has no field for.
func raw(o *client.ListOptions) *metav1.ListOptions {
	if o.Raw == nil {
		o.Raw = o.AsListOptions()
	}
	return o.Raw
}

// Send sends a value, and reports whether it was received before the context ended.
func Send[T any](ctx context.Context, to chan<- T, value T) bool {
	select {
	case to <- value:
		return true
	case <-ctx.Done():
		return false
	}
}
