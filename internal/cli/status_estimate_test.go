// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"net/http"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/testing/clitest"
)

// TestTheNodesForAnEstimateAreReadOnceAMinute checks that a rollout that is followed does not read all nodes with each change.
func TestTheNodesForAnEstimateAreReadOnceAMinute(t *testing.T) {
	job := clitest.NodeJob("j")
	job.Generation, job.Status = 1, v1alpha1.NodeJobStatus{
		ObservedGeneration: 1,
		Revision:           "7d9f2c41",
		Nodes:              v1alpha1.NodeCounts{Total: 4, Done: 3, Waiting: 1},
		Rollout:            &v1alpha1.RolloutStatus{Step: "all", Steps: []v1alpha1.StepStatus{{Name: "all", Nodes: 4, Done: 3}}},
		Conditions: []metav1.Condition{
			{Type: v1alpha1.ConditionReconciling, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonInProgress},
		},
	}
	job.Spec.Nodes.Selector = &metav1.LabelSelector{}
	list := metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"}}
	for _, name := range []string{"a", "b", "c"} {
		node, key := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, v1alpha1.RecordKey(job.Namespace, job.Name)
		record.SetOn(&node, key, record.Record{
			Revision:   "7d9f2c41",
			Outcome:    record.Succeeded,
			StartedAt:  frozenNow.Add(-20 * time.Minute),
			FinishedAt: frozenNow.Add(-10 * time.Minute),
		})
		list.Items = append(list.Items, metav1.PartialObjectMetadata{ObjectMeta: node.ObjectMeta})
	}
	for name, tt := range map[string]struct {
		forbidden string
		missing   bool
		known     bool
	}{
		"all can be read":                 {known: true},
		"an older Everynode":              {missing: true, known: true},
		"a user who may not list nodes":   {forbidden: clitest.NodesPath},
		"a user who may not list budgets": {forbidden: budgetsPath},
	} {
		t.Run(name, func(t *testing.T) {
			var read []string
			f, _, _ := clitest.NewFactory(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				read = append(read, r.URL.Path)
				switch {
				case r.URL.Path == tt.forbidden:
					clitest.RespondError(w, http.StatusForbidden, metav1.StatusReasonForbidden, "not you")
				case r.URL.Path == clitest.NodesPath:
					clitest.Respond(w, list)
				case tt.missing:
					http.Error(w, "404 page not found", http.StatusNotFound)
				default:
					clitest.Respond(w, v1alpha1.NodeDisruptionBudgetList{
						TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeDisruptionBudgetList"},
					})
				}
			}))
			c, err := f.Client()
			if err != nil {
				t.Fatal(err)
			}
			now := frozenNow
			f.Now = func() time.Time { return now }
			o := &statusOptions{Factory: f, client: c}
			for _, later := range []time.Duration{0, 59 * time.Second, time.Second} {
				now = now.Add(later)
				e := o.estimate(t.Context(), job)
				if (e != nil) != tt.known || e != nil && !e.P50.Equal(now.Add(10*time.Minute)) {
					t.Errorf("at %s: %+v", now, e)
				}
			}
			if lists := len(slices.DeleteFunc(read, func(path string) bool { return path != clitest.NodesPath })); lists != 2 {
				t.Errorf("nodes were listed %d times, want 2", lists)
			}
		})
	}
}
