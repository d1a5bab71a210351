// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli/cmdutil"
)

func TestVerdict(t *testing.T) {
	is := func(kind string) func(*v1alpha1.NodeJob) {
		return func(j *v1alpha1.NodeJob) {
			j.Status.Conditions = []metav1.Condition{{Type: kind, Status: metav1.ConditionTrue}}
		}
	}
	tests := map[string]struct {
		changes []func(*v1alpha1.NodeJob)
		want    int
	}{
		"complete": {[]func(*v1alpha1.NodeJob){is(v1alpha1.ConditionComplete)}, cmdutil.ExitOK},
		"running":  {[]func(*v1alpha1.NodeJob){is(v1alpha1.ConditionReconciling)}, inProgress},
		"stopped":  {[]func(*v1alpha1.NodeJob){is(v1alpha1.ConditionStalled)}, cmdutil.ExitNodesFailed},
		"stopped, and a rollback has not ended": {[]func(*v1alpha1.NodeJob){
			is(v1alpha1.ConditionStalled), func(j *v1alpha1.NodeJob) { j.Status.Nodes.RollbackPending = 1 },
		}, inProgress},
		"stopped and suspended before the rollback": {[]func(*v1alpha1.NodeJob){
			is(v1alpha1.ConditionStalled), func(j *v1alpha1.NodeJob) { j.Status.Nodes.RollbackPending, j.Spec.Suspend = 1, true },
		}, cmdutil.ExitNodesFailed},
		"a status that is older than the spec": {[]func(*v1alpha1.NodeJob){is(v1alpha1.ConditionComplete), func(j *v1alpha1.NodeJob) { j.Generation = 2 }}, inProgress},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			job := &v1alpha1.NodeJob{}
			for _, change := range tt.changes {
				change(job)
			}
			if got := verdict(job); got != tt.want {
				t.Errorf("verdict %d, want %d", got, tt.want)
			}
		})
	}
}
