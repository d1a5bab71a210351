// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package steer

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
)

func TestPromoteIgnoresTheStepOfThePreviousRevision(t *testing.T) {
	steps := []v1alpha1.RolloutStep{{Name: "canary"}, {Name: "half"}, {Name: "all"}}
	for name, tt := range map[string]struct {
		observed int64
		step, to string
		want     string
		wantErr  bool
	}{
		"the spec is observed":                   {observed: 2, step: "half", want: "all"},
		"not observed, after a complete rollout": {observed: 1, step: "all", wantErr: true},
		"not observed, with --to":                {observed: 1, step: "all", to: "half", want: "half"},
		"not observed, in the first step":        {observed: 0, step: "canary", want: "half"},
	} {
		t.Run(name, func(t *testing.T) {
			job := &v1alpha1.NodeJob{
				ObjectMeta: metav1.ObjectMeta{Name: "j", Namespace: "ns", Generation: 2},
				Spec:       v1alpha1.NodeJobSpec{Rollout: v1alpha1.RolloutSpec{Steps: steps, PromoteTo: "canary"}},
				Status:     v1alpha1.NodeJobStatus{ObservedGeneration: tt.observed, Rollout: &v1alpha1.RolloutStatus{Step: tt.step}},
			}
			d, err := Promote(job, tt.to)
			if (err != nil) != tt.wantErr {
				t.Fatalf("error: %v", err)
			}
			if !tt.wantErr && d.Job.Spec.Rollout.PromoteTo != tt.want {
				t.Errorf("promoteTo is %s, want %s", d.Job.Spec.Rollout.PromoteTo, tt.want)
			}
		})
	}
}
