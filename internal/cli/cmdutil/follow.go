// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cmdutil

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
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
	go func() {
		defer close(observations)
		for {
			gone, err := followOnce(ctx, c, client.ObjectKeyFromObject(job), job.UID, observations)
			if gone || ctx.Err() != nil || !send(ctx, observations, Observation{Err: err}) {
				return
			}
			select {
			case <-after(followPause):
			case <-ctx.Done():
				return
			}
		}
	}()
	return observations
}

func send(ctx context.Context, observations chan<- Observation, s Observation) bool {
	select {
	case observations <- s:
		return true
	case <-ctx.Done():
		return false
	}
}

// errWatchEnded is the error for a watch that the API server has ended.
var errWatchEnded = errors.New("the API server has ended the watch")

// followOnce sends the current state, and then changes until the watch ends.
func followOnce(ctx context.Context, c client.WithWatch, key client.ObjectKey, uid types.UID, observations chan<- Observation) (gone bool, err error) {
	var job v1alpha1.NodeJob
	err = c.Get(ctx, key, &job)
	switch {
	case apierrors.IsNotFound(err) && !NotInstalled(err), err == nil && job.UID != uid:
		return send(ctx, observations, Observation{Gone: true}), nil
	case err != nil:
		return false, err
	}
	if !send(ctx, observations, Observation{Job: job.DeepCopy()}) {
		return false, ctx.Err()
	}
	w, err := c.Watch(ctx, &v1alpha1.NodeJobList{}, &client.ListOptions{
		Namespace:     key.Namespace,
		FieldSelector: fields.OneTermEqualSelector("metadata.name", key.Name),
	}, FromVersion(job.ResourceVersion))
	if err != nil {
		return false, err
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		if gone, err := pass(ctx, event, uid, observations); gone || err != nil {
			return gone, err
		}
	}
	return false, errWatchEnded
}

// pass sends the observation for an event.
func pass(ctx context.Context, event watch.Event, uid types.UID, observations chan<- Observation) (gone bool, err error) {
	job, ok := event.Object.(*v1alpha1.NodeJob)
	switch {
	case event.Type == watch.Error:
		return false, apierrors.FromObject(event.Object)
	case !ok:
		return false, nil
	case event.Type == watch.Deleted || job.UID != uid:
		return send(ctx, observations, Observation{Gone: true}), nil
	case !send(ctx, observations, Observation{Job: job}):
		return false, ctx.Err()
	}
	return false, nil
}

// FromVersion starts a watch at the resource version of a previous read.
type FromVersion string

// ApplyToList sets the resource version.
func (v FromVersion) ApplyToList(o *client.ListOptions) {
	if o.Raw == nil {
		o.Raw = o.AsListOptions()
	}
	o.Raw.ResourceVersion = string(v)
}
