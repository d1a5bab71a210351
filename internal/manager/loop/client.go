// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package loop

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// NewClient is client.New, except that the client does not decode the responses to deletions of pods. Its own Delete
// decodes the pod, converts it to JSON and back, and then discards it.
func NewClient(config *rest.Config, options client.Options) (client.Client, error) {
	return NewWithWatch(config, options)
}

// NewWithWatch is NewClient with watches, for tests.
func NewWithWatch(config *rest.Config, options client.Options) (client.WithWatch, error) {
	c, err := client.NewWithWatch(config, options)
	if err != nil {
		return nil, err
	}
	objects, err := metadata.NewForConfigAndClient(metadata.ConfigFor(config), options.HTTPClient)
	if err != nil {
		return nil, fmt.Errorf("making a client for deletions: %w", err)
	}
	return podDeleter{c, objects.Resource(corev1.SchemeGroupVersion.WithResource("pods"))}, nil
}

type podDeleter struct {
	client.WithWatch
	pods metadata.Getter
}

// Delete implements client.Writer.
func (d podDeleter) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return d.WithWatch.Delete(ctx, o, opts...)
	}
	options := (&client.DeleteOptions{}).ApplyOptions(opts)
	return d.pods.Namespace(pod.Namespace).Delete(ctx, pod.Name, *options.AsDeleteOptions())
}
