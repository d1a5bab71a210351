// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/record"
)

func TestDeletion(t *testing.T) {
	a := newNode("a", recorded(record.Succeeded))
	b := newNode("b", recorded(record.Failed), func(n *Node) { n.Ready = corev1.ConditionUnknown })
	clean := newNode("c")
	letGo := func(p *Pod) { p.Finalized, p.DeleteRequested = false, ago(1) }
	retain := func(j *v1alpha1.NodeJob) { j.Spec.DeletionPolicy = v1alpha1.DeletionRetain }
	tests := map[string]struct {
		job  *v1alpha1.NodeJob
		in   Input
		want []string
	}{
		"pods and records are removed first": {
			in: see(nil, []Node{a, b, clean}, newPod(clean), newPod(a, exited(0))), want: []string{"release c-pod", "release a-pod", "forget a", "forget b"},
		},
		"it finishes when nothing is left":                {in: see(nil, []Node{clean}), want: []string{"finish"}},
		"it does not wait for a kubelet":                  {in: see(nil, []Node{clean}, newPod(clean, letGo)), want: []string{"finish"}},
		"pods of deleted nodes are released":              {in: see(nil, nil, newPod(a)), want: []string{"release a-pod"}},
		"records are retained with deletionPolicy Retain": {job: newJob(retain), in: see(nil, []Node{a, b}, newPod(clean)), want: []string{"release c-pod"}},
		"it finishes with retained records":               {job: newJob(retain), in: see(nil, []Node{a, b}), want: []string{"finish"}},
		"a record that cannot be read is removed as well": {in: see(nil, []Node{newNode("d", func(n *Node) { n.On.Present = true })}), want: []string{"forget d"}},
		"an invalid selector does not prevent the deletion": {
			job: newJob(func(j *v1alpha1.NodeJob) {
				j.Spec.NodeSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}}}
			}), in: see(nil, []Node{a}), want: []string{"forget a"},
		},
		"suspend does not prevent the deletion": {job: newJob(func(j *v1alpha1.NodeJob) { j.Spec.Suspend = true }), in: see(nil, []Node{a}), want: []string{"forget a"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if tt.in.Job = tt.job; tt.in.Job == nil {
				tt.in.Job = newJob()
			}
			tt.in.Job.DeletionTimestamp = &metav1.Time{Time: ago(1)}
			tt.in.Job.Status.Revision = "old"
			p := Next(tt.in)
			if diff := cmp.Diff(tt.want, told(p)); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.in.Job.Status, p.Status); diff != "" {
				t.Errorf("status (-before +after):\n%s", diff)
			}
			if !p.WakeAt.IsZero() {
				t.Errorf("wakes at %v, want no wake-up", p.WakeAt)
			}
		})
	}
}
