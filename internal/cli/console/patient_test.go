// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package console

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/internal/text"
)

func TestWritesWaitUntilTheAPIServerHasLoadedASchema(t *testing.T) {
	notLoaded := apierrors.NewServiceUnavailable(
		"Resource kind everynode.dev/v1alpha1, Kind=NodeJob not found. There can be a delay between when CustomResourceDefinitions are created and when they are available.",
	)
	for name, tt := range map[string]struct {
		errs        []error // of each attempt; the last one repeats
		want        error
		calls, told int
	}{
		"a schema that is loaded":            {errs: []error{nil}, calls: 1},
		"a schema that takes three attempts": {errs: []error{notLoaded, notLoaded, nil}, calls: 3, told: 1},
		"a schema that is never loaded":      {errs: []error{notLoaded}, want: notLoaded, calls: 61, told: 1},
		"another reason for status 503":      {errs: []error{apierrors.NewServiceUnavailable("etcd is down")}, want: apierrors.NewServiceUnavailable("etcd is down"), calls: 1},
		"a refusal while it waits":           {errs: []error{notLoaded, errors.New("no")}, want: errors.New("no"), calls: 2, told: 1},
	} {
		t.Run(name, func(t *testing.T) {
			inner := &failing{errs: tt.errs}
			told := 0
			now := make(chan time.Time)
			close(now)
			c := patientClient{
				WithWatch: inner,
				after:     func(time.Duration) <-chan time.Time { return now },
				tell:      func(lines ...text.Line) { told += len(lines) },
			}
			for verb, write := range map[string]func() error{
				"create": func() error { return c.Create(t.Context(), &corev1.Node{}) },
				"update": func() error { return c.Update(t.Context(), &corev1.Node{}) },
				"patch":  func() error { return c.Patch(t.Context(), &corev1.Node{}, client.RawPatch(types.MergePatchType, nil)) },
			} {
				inner.calls, told = 0, 0
				err := write()
				if (err == nil) != (tt.want == nil) || err != nil && err.Error() != tt.want.Error() {
					t.Errorf("%s: the error is %v, want %v", verb, err, tt.want)
				}
				if inner.calls != tt.calls || told != tt.told {
					t.Errorf("%s: %d calls and %d messages, want %d and %d", verb, inner.calls, told, tt.calls, tt.told)
				}
			}
		})
	}
}

// TestAWriteEndsWithItsContext: Ctrl-C must not wait for the API server.
func TestAWriteEndsWithItsContext(t *testing.T) {
	notLoaded := apierrors.NewServiceUnavailable(
		"There can be a delay between when CustomResourceDefinitions are created and when they are available.",
	)
	ctx, cancel := context.WithCancel(t.Context())
	inner := &failing{errs: []error{notLoaded}}
	c := patientClient{
		WithWatch: inner,
		after:     func(time.Duration) <-chan time.Time { cancel(); return nil },
		tell:      func(...text.Line) {},
	}
	if err := c.Create(ctx, &corev1.Node{}); !errors.Is(err, notLoaded) || inner.calls != 1 {
		t.Errorf("%d calls ended with %v, want 1 and the API server's error", inner.calls, err)
	}
}

// failing is a client whose writes return the given errors in turn.
type failing struct {
	client.WithWatch
	errs  []error
	calls int
}

func (f *failing) next() error {
	f.calls++
	return f.errs[min(f.calls, len(f.errs))-1]
}

func (f *failing) Create(context.Context, client.Object, ...client.CreateOption) error {
	return f.next()
}

func (f *failing) Update(context.Context, client.Object, ...client.UpdateOption) error {
	return f.next()
}

func (f *failing) Patch(context.Context, client.Object, client.Patch, ...client.PatchOption) error {
	return f.next()
}
