// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cmdutil

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/ui/listwatch"
)

// Observation is one change of a NodeJob that is followed.
type Observation struct {
	// Job is its newest version. It is nil if only something else has changed.
	Job *v1alpha1.NodeJob
	// Gone reports whether it was deleted, even if another NodeJob with the same name exists. It is the last observation.
	Gone bool
	// Err is the reason why no observation is possible now. Follow retries automatically.
	Err error
}

// followPause is the pause before the next request after an error. It protects an API server that has just recovered.
const followPause = time.Second

// Follow sends observations of a NodeJob until it is deleted or the context ends. If the API server does not respond,
// Follow retries, and the last observation stays valid until then. If the user may not watch, Follow polls.
func Follow(ctx context.Context, c client.WithWatch, after func(time.Duration) <-chan time.Time, job *v1alpha1.NodeJob) <-chan Observation {
	observations := make(chan Observation)
	only := []client.ListOption{client.InNamespace(job.Namespace), client.MatchingFields{"metadata.name": job.Name}}
	ctx, cancel := context.WithCancel(ctx)
	see := func(live *v1alpha1.NodeJob, deleted bool) {
		if !deleted && live.UID == job.UID {
			listwatch.Send(ctx, observations, Observation{Job: live})
			return
		}
		listwatch.Send(ctx, observations, Observation{Gone: true})
		cancel()
	}
	loop := listwatch.Loop{
		Client: c, After: after, Kind: &v1alpha1.NodeJobList{},
		List: func(ctx context.Context) (string, []client.ListOption, error) {
			var live v1alpha1.NodeJob
			err := c.Get(ctx, client.ObjectKeyFromObject(job), &live)
			gone := apierrors.IsNotFound(err) && !NotInstalled(err)
			if err != nil && !gone {
				return "", nil, err
			}
			see(&live, gone)
			return live.ResourceVersion, only, nil
		},
		Changed: func(o client.Object, deleted bool) { see(o.(*v1alpha1.NodeJob), deleted) },
		Ended: func(_ listwatch.Request, err error) time.Duration {
			listwatch.Send(ctx, observations, Observation{Err: err})
			return followPause
		},
	}
	go func() {
		defer close(observations)
		defer cancel()
		loop.Run(ctx)
	}()
	return observations
}
