// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"
)

func TestMaxConcurrent(t *testing.T) {
	tests := map[string]struct {
		flag  string
		nodes int
		want  intstr.IntOrString
	}{
		"a small cluster": {"", 7, intstr.FromInt32(5)},
		"fewer than five": {"", 3, intstr.FromInt32(5)},
		"fifty":           {"", 50, intstr.FromInt32(5)},
		"a large cluster": {"", 3000, intstr.FromInt32(300)},
		"one at a time":   {"1", 3000, intstr.FromInt32(1)},
		"a percentage":    {"20%", 10, intstr.FromString("20%")},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			o := &options{maxConcurrent: tt.flag, maxFailures: "100%"}
			if err := o.validateLimits(); err != nil {
				t.Fatal(err)
			}
			if got := o.concurrency(tt.nodes); got != tt.want {
				t.Errorf("%s of %d nodes at once, want %s", got.String(), tt.nodes, tt.want.String())
			}
		})
	}
}

func TestMaxConcurrentIsANumberOrAPercentage(t *testing.T) {
	for want, o := range map[string]*options{
		"--max-concurrent 0: give a number from 1, or a percentage from 1% to 100%":      {maxConcurrent: "0"},
		"--max-concurrent 1,5,10: give a number from 1, or a percentage from 1% to 100%": {maxConcurrent: "1,5,10"},
		"--max-concurrent 0%: give a number from 1, or a percentage from 1% to 100%":     {maxConcurrent: "0%"},
	} {
		o.maxFailures = "100%"
		if err := o.validateLimits(); err == nil || err.Error() != want {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
