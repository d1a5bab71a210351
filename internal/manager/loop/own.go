// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package loop

import (
	"fmt"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
)

// OwnCache adds a separate cache to a manager, for the objects that a controller creates. Of the kinds in which, it holds only what that
// selects. Objects are stripped by Strip.
func OwnCache(mgr ctrl.Manager, which map[client.Object]cache.ByObject) (cache.Cache, error) {
	own, err := cluster.New(mgr.GetConfig(), func(o *cluster.Options) {
		o.Scheme = mgr.GetScheme()
		o.Cache = cache.Options{ByObject: which, DefaultTransform: Strip, NewInformer: NewInformer}
	})
	if err != nil {
		return nil, fmt.Errorf("making a cache for the objects of a controller: %w", err)
	}
	return own.GetCache(), mgr.Add(own)
}

// WithLabel selects the objects that have a label, with any value. It panics if the key of the label is invalid.
func WithLabel(key string) labels.Selector {
	exists, err := labels.NewRequirement(key, selection.Exists, nil)
	if err != nil {
		panic(err) // keys are constants
	}
	return labels.NewSelector().Add(*exists)
}
