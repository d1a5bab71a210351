// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
)

// TestPublishedConditions tests what the conditions of spec.publish say.
func TestPublishedConditions(t *testing.T) {
	publishes := func(j *v1alpha1.NodeJob) {
		j.Spec.Publish = []v1alpha1.PublishedResult{{Condition: "example.com/Kernel"}}
	}
	labels := func(j *v1alpha1.NodeJob) {
		j.Spec.Publish = []v1alpha1.PublishedResult{{Result: "a", Label: "example.com/a"}}
	}
	deleted := func(j *v1alpha1.NodeJob) { j.DeletionTimestamp = new(metav1.NewTime(now)) }
	undone := func(j *v1alpha1.NodeJob) {
		j.Spec.DeletionPolicy, j.Spec.Rollback = v1alpha1.DeletionRollback, &v1alpha1.RollbackSpec{
			ScriptBlock: v1alpha1.ScriptBlock{Script: "undo"},
		}
	}
	elsewhere := func(j *v1alpha1.NodeJob) {
		j.Spec.Nodes.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "other"}}
	}
	for name, tt := range map[string]struct {
		job  []func(*v1alpha1.NodeJob)
		node []func(*Node)
		want corev1.ConditionStatus // "" if there is none
	}{
		"no condition is published": {job: []func(*v1alpha1.NodeJob){labels}, node: []func(*Node){recorded(record.Succeeded)}},
		"done":                      {job: []func(*v1alpha1.NodeJob){publishes}, node: []func(*Node){recorded(record.Succeeded)}, want: corev1.ConditionTrue},
		"failed":                    {job: []func(*v1alpha1.NodeJob){publishes}, node: []func(*Node){recorded(record.Failed, attempts(2))}, want: corev1.ConditionFalse},
		"before the first attempt":  {job: []func(*v1alpha1.NodeJob){publishes}, want: corev1.ConditionUnknown},
		"results that were cut": {
			job: []func(*v1alpha1.NodeJob){publishes}, node: []func(*Node){recorded(record.Succeeded, func(r *record.Record) { r.Truncated = true })},
			want: corev1.ConditionTrue,
		},
		"the NodeJob is deleted": {job: []func(*v1alpha1.NodeJob){publishes, deleted}, node: []func(*Node){recorded(record.Succeeded)}},
		"the NodeJob is deleted, and rolled back": {
			job: []func(*v1alpha1.NodeJob){publishes, deleted, undone}, node: []func(*Node){recorded(record.Succeeded)},
		},
		"not selected": {job: []func(*v1alpha1.NodeJob){publishes, elsewhere}, node: []func(*Node){recorded(record.Succeeded)}},
	} {
		t.Run(name, func(t *testing.T) {
			in := see(newJob(tt.job...), []Node{newNode("a", tt.node...)})
			want := map[types.UID]corev1.ConditionStatus{}
			if tt.want != "" {
				want["a-uid"] = tt.want
			}
			got := Next(in).Conditions
			if diff := cmp.Diff(want, got); diff != "" && len(want)+len(got) > 0 {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
