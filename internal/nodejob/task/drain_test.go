// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package task

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// kubectl drain fails at a pod with an emptyDir (localStorageFilter) and at one without a controller
// (unreplicatedFilter), in any phase.
func TestDrainDoesNotFailAtTask(t *testing.T) {
	for _, phase := range phases {
		t.Run(string(phase), func(t *testing.T) {
			a := attempt()
			a.Phase = phase
			pod := Pod(withRollback(scriptJob()), Source{Script: "true", Check: "true", Rollback: "true"}, a, options)
			if len(pod.Spec.Volumes) > 0 || metav1.GetControllerOf(pod) == nil {
				t.Errorf("volumes %v, owners %v", pod.Spec.Volumes, pod.OwnerReferences)
			}
		})
	}
}
