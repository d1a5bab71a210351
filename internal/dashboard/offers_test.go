// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/testing/clitest"
)

const jobKey = "ns.everynode.dev/j"

var now = time.Date(2026, 7, 1, 12, 30, 0, 0, time.UTC)

// nodeA returns the metadata of node a.
func nodeA() *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: "a"},
	}
}

// labelsOf returns the label of each offer, with a part of its effect that the test wants to see.
func labelsOf(offers []Offer, parts ...string) []string {
	labels := []string{}
	for _, o := range offers {
		label := o.Label
		for _, part := range parts {
			if strings.Contains(o.Effect, part) {
				label += " [" + part + "]"
			}
		}
		labels = append(labels, label)
	}
	return labels
}

func TestWhatTheDashboardOffersForANodeJob(t *testing.T) {
	const (
		argo, resumed, later = "managed by Argo CD", "before it is resumed", "one more hour"
		pause                = "To pause it, set promoteTo: canary"
	)
	steps := func(j *v1alpha1.NodeJob, at, promoteTo string) {
		j.Spec.Rollout.Steps = []v1alpha1.RolloutStep{{Name: "canary"}, {Name: "half"}, {Name: "all"}}
		j.Spec.Rollout.PromoteTo = promoteTo
		j.Status.Rollout = &v1alpha1.RolloutStatus{Step: at}
	}
	for name, test := range map[string]struct {
		change func(*v1alpha1.NodeJob)
		want   []string
	}{
		"it runs":                {func(*v1alpha1.NodeJob) {}, []string{"Suspend"}},
		"it is suspended":        {func(j *v1alpha1.NodeJob) { j.Spec.Suspend = true }, []string{"Resume"}},
		"it waits in step one":   {func(j *v1alpha1.NodeJob) { steps(j, "canary", "canary") }, []string{"Promote to half", "Promote to all [" + pause + "]", "Suspend"}},
		"it waits in step two":   {func(j *v1alpha1.NodeJob) { steps(j, "half", "half") }, []string{"Promote to all", "Suspend"}},
		"it may reach step two":  {func(j *v1alpha1.NodeJob) { steps(j, "canary", "half") }, []string{"Promote to all", "Suspend"}},
		"it may reach all steps": {func(j *v1alpha1.NodeJob) { steps(j, "canary", "all") }, []string{"Suspend"}},
		"nodes have failed":      {func(j *v1alpha1.NodeJob) { j.Status.Nodes.Failed = 2 }, []string{"Retry failed nodes", "Suspend"}},
		"nodes have failed, and it is suspended": {func(j *v1alpha1.NodeJob) { j.Status.Nodes.Failed, j.Spec.Suspend = 2, true },
			[]string{"Retry failed nodes [" + resumed + "]", "Resume"}},
		"its deadline has passed": {func(j *v1alpha1.NodeJob) {
			j.CreationTimestamp, j.Spec.StartingDeadlineSeconds = metav1.NewTime(now.Add(-time.Hour)), new(int32(60))
		}, []string{"Suspend", "Resume [" + later + "]"}},
		"Argo CD applies it": {func(j *v1alpha1.NodeJob) { j.Annotations = map[string]string{"argocd.argoproj.io/tracking-id": "x"} },
			[]string{"Suspend [" + argo + "]"}},
		"it is being deleted": {func(j *v1alpha1.NodeJob) { steps(j, "canary", "canary"); j.DeletionTimestamp = &metav1.Time{Time: now} }, []string{}},
		"a rollback has failed": {func(j *v1alpha1.NodeJob) { j.DeletionTimestamp = &metav1.Time{Time: now}; j.Status.Nodes.Failed = 1 },
			[]string{"Retry failed rollbacks"}},
	} {
		t.Run(name, func(t *testing.T) {
			job := clitest.NodeJob("j")
			test.change(job)
			before := job.DeepCopy()
			got := offersOfJob(job, "", now)
			if diff := cmp.Diff(test.want, labelsOf(got, argo, resumed, later, pause)); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(before, job); diff != "" {
				t.Errorf("the NodeJob of the cache was changed:\n%s", diff)
			}
		})
	}
}

func TestWhatTheDashboardOffersForANode(t *testing.T) {
	const wait = "Other nodes of the rollout wait"
	failed := record.Record{Revision: "new", Outcome: record.Failed, Attempts: 1, FinishedAt: now}
	for name, test := range map[string]struct {
		label  string
		record *record.Record
		change func(*v1alpha1.NodeJob)
		want   []string
	}{
		"it has failed":                    {"", &failed, func(*v1alpha1.NodeJob) {}, []string{"Retry on this node [" + wait + "]", "Skip this node"}},
		"it has failed after the rollout":  {"", &failed, func(j *v1alpha1.NodeJob) { j.Status.Rollout = &v1alpha1.RolloutStatus{StableAt: metav1.NewTime(now)} }, []string{"Retry on this node", "Skip this node"}},
		"it has not run":                   {"", nil, func(*v1alpha1.NodeJob) {}, []string{"Skip this node"}},
		"it was skipped after a failure":   {"new", &failed, func(*v1alpha1.NodeJob) {}, []string{}},
		"the current spec is not observed": {"", nil, func(j *v1alpha1.NodeJob) { j.Generation++ }, []string{}},
		"the NodeJob is being deleted":     {"", &failed, func(j *v1alpha1.NodeJob) { j.DeletionTimestamp = &metav1.Time{Time: now} }, []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			node := nodeA()
			node.Labels = map[string]string{}
			if test.record != nil {
				record.SetOn(node, jobKey, *test.record)
			}
			if test.label != "" {
				node.Labels[jobKey] = test.label
			}
			job := clitest.NodeJob("j")
			test.change(job)
			got := offersOfNode(job, "", &plan.Node{Name: "a", Labels: node.Labels, Annotations: node.Annotations}, plan.Waiting)
			if diff := cmp.Diff(test.want, labelsOf(got, wait)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
