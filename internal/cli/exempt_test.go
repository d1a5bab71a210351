// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/testing/clitest"
)

// TestExemptNodesAreShown checks that the commands say which nodes are exempt from a NodeDisruptionBudget because they join, as far as the
// NodeJob would wait for it.
func TestExemptNodesAreShown(t *testing.T) {
	const what = "NodeDisruptionBudget night: 1 node is exempt until "
	const why = "because less than 10 minutes have passed since it was created: set joiningNodes: Included to limit it now"
	for name, tt := range map[string]struct {
		change func(*v1alpha1.NodeJob, *v1alpha1.NodeDisruptionBudget)
		want   bool
	}{
		"a NodeJob that drains": {func(*v1alpha1.NodeJob, *v1alpha1.NodeDisruptionBudget) {}, true},
		"a NodeJob that disrupts no node": {func(j *v1alpha1.NodeJob, _ *v1alpha1.NodeDisruptionBudget) {
			j.Spec.Maintenance = v1alpha1.MaintenanceSpec{}
		}, false},
		"a NodeJob that disrupts no node, and a budget for tasks": {func(j *v1alpha1.NodeJob, b *v1alpha1.NodeDisruptionBudget) {
			j.Spec.Maintenance, b.Spec.AppliesTo = v1alpha1.MaintenanceSpec{}, v1alpha1.AppliesToAllTasks
		}, true},
		"a node that the NodeJob does not select": {func(j *v1alpha1.NodeJob, _ *v1alpha1.NodeDisruptionBudget) {
			j.Spec.Nodes.Names = []string{"n2"}
		}, false},
		"an audit": {func(_ *v1alpha1.NodeJob, b *v1alpha1.NodeDisruptionBudget) {
			b.Spec.Enforcement = v1alpha1.BudgetReport
		}, false},
		"a budget for joining nodes": {func(_ *v1alpha1.NodeJob, b *v1alpha1.NodeDisruptionBudget) {
			b.Spec.JoiningNodes = v1alpha1.JoiningNodesIncluded
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			young, old := readyNode("n1"), readyNode("n2")
			young.CreationTimestamp = metav1.NewTime(time.Now())
			old.UID, old.CreationTimestamp = "u2", metav1.NewTime(time.Now().Add(-time.Hour))
			job := v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "x", UID: "j", Generation: 1}}
			job.APIVersion, job.Kind = v1alpha1.GroupVersion.String(), "NodeJob"
			job.Spec.Task.Script, job.Spec.Maintenance.Cordon = "true", true
			job.Status.Revision, job.Status.ObservedGeneration = "r1", 1
			b := v1alpha1.NodeDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "night"}}
			tt.change(&job, &b)
			server := &planServer{
				t:       t,
				nodes:   []corev1.Node{young, old},
				jobs:    []v1alpha1.NodeJob{job},
				budgets: []v1alpha1.NodeDisruptionBudget{b},
			}
			file, err := json.Marshal(job)
			if err != nil {
				t.Fatal(err)
			}
			for _, args := range [][]string{{"plan", "-f", "-", "-n", "ns"}, {"explain", "x", "n1", "-n", "ns"}, {"status", "x", "-n", "ns"}} {
				f, out, errs := clitest.NewFactory(t, server)
				f.In = bytes.NewReader(file)
				if code := command(t, f, args...); code != 0 {
					t.Fatalf("%s: exit code %d: %s", args, code, errs)
				}
				said := strings.Join(strings.Fields(out.String()), " ")
				if got := strings.Contains(said, what) && strings.Contains(said, why); got != tt.want {
					t.Errorf("%s: says that a node is exempt: %t, want %t:\n%s", args, got, tt.want, out)
				}
			}
		})
	}
}
