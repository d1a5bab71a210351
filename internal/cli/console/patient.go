// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package console

import (
	"context"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/internal/text"
)

const (
	// schemaPatience limits how long a write waits until the API server has loaded the schema of its kind. It takes a few
	// seconds after the CustomResourceDefinitions are created, and after a start of the API server.
	schemaPatience = 30 * time.Second
	schemaInterval = 500 * time.Millisecond
)

// patientClient repeats a write while the API server refuses it because a mutating policy needs a schema that is not loaded
// yet. The API server has not stored anything then. All other errors are returned at once.
type patientClient struct {
	client.WithWatch
	after func(time.Duration) <-chan time.Time
	tell  func(...text.Line)
}

func (c patientClient) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	return c.untilLoaded(ctx, func() error { return c.WithWatch.Create(ctx, obj, opts...) })
}

func (c patientClient) Update(ctx context.Context, obj client.Object, opts ...client.UpdateOption) error {
	return c.untilLoaded(ctx, func() error { return c.WithWatch.Update(ctx, obj, opts...) })
}

func (c patientClient) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	return c.untilLoaded(ctx, func() error { return c.WithWatch.Patch(ctx, obj, patch, opts...) })
}

// untilLoaded calls write until its error has another reason, the context is done, or schemaPatience is over.
func (c patientClient) untilLoaded(ctx context.Context, write func() error) error {
	err := write()
	for waited := time.Duration(0); schemaNotLoaded(err) && waited < schemaPatience; waited += schemaInterval {
		if waited == 0 {
			c.tell(text.Of("the API server has not loaded the schemas of its policies yet: trying again for up to " + schemaPatience.String() + " …"))
		}
		select {
		case <-ctx.Done():
			return err
		case <-c.after(schemaInterval):
		}
		err = write()
	}
	return err
}

// schemaNotLoaded reports whether the API server refuses a write until it has loaded a schema. Source: k8s.io/apiserver
// pkg/admission/plugin/policy/mutating/dispatcher.go.
func schemaNotLoaded(err error) bool {
	return apierrors.IsServiceUnavailable(err) && strings.Contains(err.Error(), "There can be a delay between when CustomResourceDefinitions are created")
}
