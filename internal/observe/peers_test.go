// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
)

func TestNodeJobsThatShareAGate(t *testing.T) {
	of := func(name string, gate *v1alpha1.GateSpec) *v1alpha1.NodeJob {
		return &v1alpha1.NodeJob{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)},
			Spec:       v1alpha1.NodeJobSpec{Gate: gate},
		}
	}
	by := func(key string, effect v1alpha1.GateEffect) *v1alpha1.GateSpec {
		return &v1alpha1.GateSpec{Key: key, Effect: effect}
	}
	deleted := of("b", by("x.example/k", ""))
	deleted.DeletionTimestamp = new(metav1.Now())
	for name, tt := range map[string]struct {
		job, other *v1alpha1.NodeJob
		want       bool
	}{
		"the same key":                    {of("a", by("x.example/k", "")), of("b", by("x.example/k", "")), true},
		"the same effect, one by default": {of("a", by("x.example/k", "")), of("b", by("x.example/k", v1alpha1.GateNoSchedule)), true},
		"another effect":                  {of("a", by("x.example/k", "")), of("b", by("x.example/k", v1alpha1.GateNoExecute)), false},
		"another key":                     {of("a", by("x.example/k", "")), of("b", by("x.example/l", "")), false},
		"the keys of their names":         {of("a", by("", "")), of("b", by("", "")), false},
		"itself":                          {of("a", by("x.example/k", "")), of("a", by("x.example/k", "")), false},
		"the other one is being deleted":  {of("a", by("x.example/k", "")), deleted, false},
		"the key of one without a gate":   {of("a", by("ns.everynode.dev/b", "")), of("b", nil), false},
		"its own key, and it has no gate": {of("a", nil), of("b", by("ns.everynode.dev/a", "")), false},
	} {
		if got := sharesGate(tt.job, tt.other); got != tt.want {
			t.Errorf("%s: %t, want %t", name, got, tt.want)
		}
	}
}
