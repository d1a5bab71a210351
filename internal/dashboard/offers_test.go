// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli/clitest"
	"github.com/everynode/everynode/internal/cli/cmdutil"
	"github.com/everynode/everynode/internal/cli/dashboard"
	"github.com/everynode/everynode/internal/plan"
	"github.com/everynode/everynode/internal/record"
)

// labelsOf returns the label of each offer, with a part of its effect that the test wants to see.
func labelsOf(offers []dashboard.Offer, parts ...string) []string {
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
			got := changes{}.OfJob(job, now)
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
			node := newNodeMetadata("a")
			node.Labels = map[string]string{}
			if test.record != nil {
				record.SetOn(node, jobKey, *test.record)
			}
			if test.label != "" {
				node.Labels[jobKey] = test.label
			}
			job := clitest.NodeJob("j")
			test.change(job)
			got := changes{}.OfNode(job, &plan.Node{Name: "a", Labels: node.Labels, Annotations: node.Annotations})
			if diff := cmp.Diff(test.want, labelsOf(got, wait)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAChangeIsForTheNodeJobThatThePageShowed(t *testing.T) {
	patches := 0
	f, _, _ := clitest.NewFactory(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPatch {
			patches++
		}
		clitest.Respond(w, clitest.NodeJob("j"))
	}))
	c, err := f.Client()
	if err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{dashboard.Promote, dashboard.Suspend, dashboard.Resume, dashboard.Retry, dashboard.Skip} {
		node := map[string]string{dashboard.Skip: "a"}[verb]
		err := changes{}.Make(t.Context(), f, c, dashboard.Change{Verb: verb, Namespace: "ns", Name: "j", UID: "other", Node: node, To: "all"})
		if cmdutil.CodeOf(err) != cmdutil.ExitNotFound || !strings.Contains(err.Error(), "NodeJob ns/j was deleted, and another NodeJob with this name was created") || patches > 0 {
			t.Errorf("%s: %v, %d patches", verb, err, patches)
		}
	}
	if err := (changes{}).Make(t.Context(), f, c, dashboard.Change{Verb: dashboard.Suspend, Namespace: "ns", Name: "j", UID: "uid-of-j"}); err != nil || patches != 1 {
		t.Errorf("%v, %d patches", err, patches)
	}
}

func TestAChangeIsForTheNodeThatThePageShowed(t *testing.T) {
	node := newNodeMetadata("a")
	node.APIVersion, node.UID = "v1", "new"
	record.SetOn(node, jobKey, record.Record{Revision: "new", Outcome: record.Failed, Attempts: 1, FinishedAt: now})
	patches := 0
	f, _, _ := clitest.NewFactory(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPatch {
			patches++
		}
		if strings.HasPrefix(r.URL.Path, clitest.NodesPath) {
			clitest.Respond(w, node)
			return
		}
		clitest.Respond(w, clitest.NodeJob("j"))
	}))
	c, err := f.Client()
	if err != nil {
		t.Fatal(err)
	}
	for i, verb := range []string{dashboard.Retry, dashboard.Skip} {
		change := dashboard.Change{Verb: verb, Namespace: "ns", Name: "j", UID: "uid-of-j", Node: "a", NodeUID: "old"}
		if err := (changes{}).Make(t.Context(), f, c, change); cmdutil.CodeOf(err) != cmdutil.ExitNotFound || patches != i {
			t.Errorf("%s on another node: %v, %d patches", verb, err, patches)
		}
		change.NodeUID = "new"
		if err := (changes{}).Make(t.Context(), f, c, change); err != nil || patches != i+1 {
			t.Errorf("%s: %v, %d patches", verb, err, patches)
		}
	}
	if said := f.ErrOut.(*clitest.Buffer).String(); !strings.Contains(said, "node a was deleted, and another node with this name was created. Nothing was changed") {
		t.Errorf("the command says %s", said)
	}
}
