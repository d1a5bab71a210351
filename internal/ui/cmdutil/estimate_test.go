// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cmdutil

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/ui/eta"
)

func TestEstimate(t *testing.T) {
	now := time.Date(2026, 7, 4, 12, 0, 0, 0, time.UTC) // a Saturday
	const revision = "7d9f2c41"
	n := func(s string) *intstr.IntOrString { v := intstr.Parse(s); return &v }
	// Of 12 nodes, 3 are done after 10 minutes each.
	var nodes []metav1.PartialObjectMetadata
	for i := range 12 {
		node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("node-", i), Labels: map[string]string{
			"zone": fmt.Sprint(i % 3), "pool": map[bool]string{true: "a", false: "b"}[i < 11],
		}}}
		if i < 3 {
			key := v1alpha1.RecordKey("ns", "j")
			record.SetOn(&node, key, record.Record{
				Revision:   revision,
				Outcome:    record.Succeeded,
				Attempts:   1,
				StartedAt:  now.Add(-20 * time.Minute),
				FinishedAt: now.Add(-10 * time.Minute),
				Label:      revision,
			})
			node.Labels[key] = revision
		}
		nodes = append(nodes, metav1.PartialObjectMetadata{ObjectMeta: node.ObjectMeta})
	}
	budget := func(change func(*v1alpha1.NodeDisruptionBudgetSpec)) []*v1alpha1.NodeDisruptionBudget {
		b := &v1alpha1.NodeDisruptionBudget{Spec: v1alpha1.NodeDisruptionBudgetSpec{AppliesTo: v1alpha1.AppliesToDisruptions}}
		change(&b.Spec)
		return []*v1alpha1.NodeDisruptionBudget{b}
	}
	limits := func(all ...v1alpha1.BudgetLimit) []*v1alpha1.NodeDisruptionBudget {
		return budget(func(s *v1alpha1.NodeDisruptionBudgetSpec) { s.Limits = all })
	}
	ends := func(work time.Duration) *eta.Estimate {
		return &eta.Estimate{Work: work, P50: now.Add(work), P95: now.Add(work)}
	}
	const run, between = 10 * time.Minute, 30 * time.Second
	for name, tt := range map[string]struct {
		change  func(*v1alpha1.NodeJob)
		budgets []*v1alpha1.NodeDisruptionBudget
		want    *eta.Estimate
	}{
		"three at a time":        {want: ends(3 * run)},
		"a lower maxUnavailable": {change: func(j *v1alpha1.NodeJob) { j.Spec.Maintenance.MaxUnavailable = n("2") }, want: ends(5 * run)},
		"a budget of one node":   {budgets: limits(v1alpha1.BudgetLimit{MaxUnavailable: n("1")}), want: ends(9 * (run + between))},
		"a budget with more":     {budgets: limits(v1alpha1.BudgetLimit{MaxUnavailable: n("100%")}), want: ends(3 * (run + between))},
		"the lower of two limits": {
			budgets: limits(v1alpha1.BudgetLimit{MaxUnavailable: n("2")}, v1alpha1.BudgetLimit{MaxUnavailable: n("1"), TopologyKey: "zone"}),
			want:    ends(5 * (run + between)),
		},
		"a check that fails": {change: func(j *v1alpha1.NodeJob) { j.Status.Conditions[0].Reason = v1alpha1.ReasonCheckError }},
		"a closed window":    {change: func(j *v1alpha1.NodeJob) { j.Status.Conditions[0].Reason = v1alpha1.ReasonBudgetClosed }, want: ends(3 * run)},
		"a pace": {
			budgets: budget(func(s *v1alpha1.NodeDisruptionBudgetSpec) { s.PaceSeconds = new(int32(600)) }),
			want:    ends(3 * 2 * run),
		},
		"a budget of other nodes": {
			change: func(j *v1alpha1.NodeJob) {
				j.Spec.Nodes.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "a"}}
			},
			budgets: budget(func(s *v1alpha1.NodeDisruptionBudgetSpec) {
				s.Selector, s.Limits = &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "b"}}, []v1alpha1.BudgetLimit{{MaxUnavailable: n("0")}}
			}),
			want: ends(3 * run),
		},
		"a budget that only reports": {
			budgets: budget(func(s *v1alpha1.NodeDisruptionBudgetSpec) {
				s.Enforcement, s.Limits = v1alpha1.BudgetReport, []v1alpha1.BudgetLimit{{MaxUnavailable: n("1")}}
			}), want: ends(3 * run),
		},
		"a budget of disruptions, and a task that does not disrupt": {
			change:  func(j *v1alpha1.NodeJob) { j.Spec.Maintenance.Cordon = false },
			budgets: limits(v1alpha1.BudgetLimit{MaxUnavailable: n("0")}), want: ends(3 * run),
		},
		"a freeze without an end": {budgets: limits(v1alpha1.BudgetLimit{MaxUnavailable: n("0")})},
		"a freeze of an hour": {
			budgets: budget(func(s *v1alpha1.NodeDisruptionBudgetSpec) {
				s.ExpiresAt, s.Limits = &metav1.Time{Time: now.Add(time.Hour)}, []v1alpha1.BudgetLimit{{MaxUnavailable: n("0")}}
			}),
			want: &eta.Estimate{Work: 3 * run, P50: now.Add(time.Hour + 3*run), P95: now.Add(time.Hour + 3*run)},
		},
		"a schedule that cannot be used": {
			budgets: budget(func(s *v1alpha1.NodeDisruptionBudgetSpec) { s.Windows = []v1alpha1.BudgetWindow{{Schedule: "x"}} }),
		},
		"the limits of a run do not fit into the window": {
			budgets: budget(func(s *v1alpha1.NodeDisruptionBudgetSpec) {
				s.Windows = []v1alpha1.BudgetWindow{{Schedule: "0 2 * * SUN", DurationSeconds: 60}}
			}),
		},
		"suspended":              {change: func(j *v1alpha1.NodeJob) { j.Spec.Suspend = true }},
		"stalled":                {change: func(j *v1alpha1.NodeJob) { j.Status.Conditions[0].Status = metav1.ConditionFalse }},
		"of an earlier revision": {change: func(j *v1alpha1.NodeJob) { j.Status.Revision = "other" }},
		"of an earlier spec":     {change: func(j *v1alpha1.NodeJob) { j.Generation++ }},
		"two nodes are done":     {change: func(j *v1alpha1.NodeJob) { j.Status.Nodes.Done = 2 }},
		"the soak of a later step": {
			change: func(j *v1alpha1.NodeJob) {
				j.Spec.Rollout.Steps = []v1alpha1.RolloutStep{{Name: "canary", SoakSeconds: 60}, {Name: "half", SoakSeconds: 600}, {Name: "all"}}
				j.Status.Rollout.Steps = []v1alpha1.StepStatus{{Name: "canary", Nodes: 3, Done: 3}, {Name: "half", Nodes: 3}, {Name: "all", Nodes: 6}}
				j.Status.Rollout.Step = "half"
			},
			want: &eta.Estimate{Work: 3 * run, P50: now.Add(4 * run), P95: now.Add(4 * run)},
		},
		"the rest of a soak, up to promoteTo": {
			change: func(j *v1alpha1.NodeJob) {
				j.Spec.Rollout.PromoteTo = "canary"
				j.Spec.Rollout.Steps = []v1alpha1.RolloutStep{{Name: "canary", SoakSeconds: 600}, {Name: "all"}}
				j.Status.Rollout.Steps = []v1alpha1.StepStatus{{Name: "canary", Nodes: 3, Done: 3}, {Name: "all", Nodes: 9}}
				j.Status.Rollout.Step, j.Status.Rollout.SoakingSince = "canary", metav1.NewTime(now.Add(-4*time.Minute))
			},
			want: &eta.Estimate{P50: now.Add(6 * time.Minute), P95: now.Add(6 * time.Minute)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			job := &v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "j", Generation: 1}}
			job.Spec.Maintenance.Cordon, job.Spec.Maintenance.MaxUnavailable = true, n("100%")
			job.Spec.Nodes.Selector = &metav1.LabelSelector{}
			job.Status = v1alpha1.NodeJobStatus{
				ObservedGeneration: 1,
				Revision:           revision,
				Nodes:              v1alpha1.NodeCounts{Total: 12, Done: 3, Waiting: 9},
				Rollout:            &v1alpha1.RolloutStatus{Step: "all", Steps: []v1alpha1.StepStatus{{Name: "all", Nodes: 12, Done: 3}}},
				Conditions: []metav1.Condition{
					{Type: v1alpha1.ConditionReconciling, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonInProgress},
				},
			}
			if tt.change != nil {
				tt.change(job)
			}
			if diff := cmp.Diff(tt.want, Estimate(job, tt.budgets, nodes, now)); diff != "" {
				t.Errorf("estimate (-want +got):\n%s", diff)
			}
		})
	}
}
