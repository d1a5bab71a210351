// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guardcontroller

import (
	"maps"
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/internal/manager/loop"
)

// Everything that is remembered about a NodeGuard is forgotten with it. A map that is added to the memory belongs into this test.
func TestTheMemoryForgets(t *testing.T) {
	g := nodeGuard("disks", "disks")
	name := client.ObjectKeyFromObject(g)
	m := newMemory()
	m.targets = newTargets(nil, nil, &waker{})
	m.targets.caches["ns"] = &targetCache{cancel: func() {}, guards: map[client.ObjectKey]labels.Selector{name: labels.Everything()}}
	refused := loop.AsRefusal(apierrors.NewForbidden(corev1.Resource("pods"), "p", nil))
	for _, refusals := range []*loop.Refusals{m.refusals, m.budgets, m.placeholders} {
		_, _ = refusals.Judge(g, []error{refused}, noon)
	}
	m.refusedOn.companion(g, "n1", true, noon)
	m.refusedOn.check(g, "n1", refused, noon)
	m.taken.note(name, "p", takenName{})
	m.reports.seal(key, g, noon)
	m.reports.open(key, g)
	m.reports.wrote(g, noon)
	for path, size := range sizes(reflect.ValueOf(&m).Elem(), "") {
		if size == 0 {
			t.Errorf("nothing is stored in %s: add it to this test", path)
		}
	}
	m.forget(name)
	stored := sizes(reflect.ValueOf(&m).Elem(), "")
	maps.DeleteFunc(stored, func(_ string, size int) bool { return size == 0 })
	if len(stored) > 0 {
		t.Errorf("something is stored in %v", slices.Sorted(maps.Keys(stored)))
	}
}

// sizes returns how much is in each map of a memory.
func sizes(v reflect.Value, path string) map[string]int {
	all := map[string]int{}
	switch v.Kind() {
	case reflect.Map:
		all[path] = v.Len()
	case reflect.Pointer:
		if !v.IsNil() {
			maps.Copy(all, sizes(v.Elem(), path))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			name := v.Type().Field(i).Name
			if path != "" {
				name = path + "." + name
			}
			maps.Copy(all, sizes(v.Field(i), name))
		}
	default:
	}
	return all
}
