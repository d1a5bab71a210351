// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli/clitest"
)

func TestSkipNeedsTheCurrentRevision(t *testing.T) {
	tests := map[string]struct {
		change func(*v1alpha1.NodeJob)
		want   string
	}{
		"the spec is not observed": {
			func(j *v1alpha1.NodeJob) { j.Generation = 2 },
			"the current revision is not known yet, because the manager has not observed the current spec: wait, or check with: kubectl everynode status j -n ns",
		},
		"its script is missing": {
			func(j *v1alpha1.NodeJob) {
				j.Status.Revision = ""
				j.Status.Conditions = []metav1.Condition{
					{Type: v1alpha1.ConditionComplete, Status: metav1.ConditionFalse},
					{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonConfigMapNotFound, Message: "ConfigMap ns/a does not exist"},
				}
			},
			"the current revision is not known (ConfigMapNotFound): ConfigMap ns/a does not exist",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			job := clitest.NodeJob("j")
			tt.change(job)
			if _, err := revisionOf(job); err == nil || err.Error() != tt.want {
				t.Errorf("error: %v", err)
			}
		})
	}
}
