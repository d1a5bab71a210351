// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package loop

import (
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// WrittenObjects holds the newest known version of objects of one kind until the cache shows it. It is not safe for
// concurrent use.
type WrittenObjects[O client.Object] map[client.ObjectKey]O

// Newer reports whether a is a later version than b. Resource versions of one resource are ordered (KEP-5504). Versions
// that cannot be compared count as not newer.
func Newer(a, b client.Object) bool {
	order, err := resourceversion.CompareResourceVersion(a.GetResourceVersion(), b.GetResourceVersion())
	return err == nil && order > 0
}

// Remember stores an object that was written, or read from the API server.
func (n WrittenObjects[O]) Remember(o O) {
	key := client.ObjectKeyFromObject(o)
	if known, ok := n[key]; !ok || Newer(o, known) {
		n[key] = o
	}
}

// Of returns the newest known version of a cached object, even if it was deleted and recreated with the same name.
func (n WrittenObjects[O]) Of(cached O) O {
	key := client.ObjectKeyFromObject(cached)
	known, ok := n[key]
	if !ok {
		return cached
	}
	if Newer(known, cached) {
		return known
	}
	delete(n, key)
	return cached
}
