// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"
)

func TestMaxUnavailable(t *testing.T) {
	tests := map[string]struct {
		value *intstr.IntOrString
		nodes int
		want  int
	}{
		"no value":                     {nil, 10, 0},
		"a number":                     {new(intstr.FromInt32(3)), 10, 3},
		"zero":                         {new(intstr.FromInt32(0)), 10, 0},
		"a percentage":                 {new(intstr.FromString("25%")), 10, 2},
		"less than one node":           {new(intstr.FromString("10%")), 3, 1},
		"zero percent":                 {new(intstr.FromString("0%")), 10, 0},
		"a percentage of no nodes":     {new(intstr.FromString("25%")), 0, 1},
		"a value that the API rejects": {new(intstr.FromString("many")), 10, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := MaxUnavailable(tt.value, tt.nodes); got != tt.want {
				t.Errorf("%d, want %d", got, tt.want)
			}
		})
	}
}
