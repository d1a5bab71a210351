// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/observe"
)

// TestTheCommandLinePlansWhatTheManagerPlans compares the plan of the command line, which reads lists, with that of the manager.
func TestTheCommandLinePlansWhatTheManagerPlans(t *testing.T) {
	stalled := func(reason string) func(*v1alpha1.NodeJob) {
		return func(j *v1alpha1.NodeJob) {
			j.Status.ObservedGeneration = 1
			j.Status.Conditions = []metav1.Condition{
				{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Reason: reason, Message: "why"},
			}
		}
	}
	tests := map[string]struct {
		job    *v1alpha1.NodeJob
		others []client.Object
	}{
		"alone": {job: liveJob()},
		"with a shared gate": {
			job:    liveJob(gatedBy("example.com/gate")),
			others: []client.Object{called("other", gatedBy("example.com/gate"), at1("r"))},
		},
		"after another NodeJob":   {job: liveJob(needs("other")), others: []client.Object{called("other", at1("r"))}},
		"after a missing NodeJob": {job: liveJob(needs("other"))},
		"with a running pod": {
			job:    liveJob(),
			others: []client.Object{livePod(func(p *corev1.Pod) { p.ResourceVersion = "" })},
		},
		"with a pod of an earlier NodeJob": {job: liveJob(), others: []client.Object{livePod(earlier)}},
		"suspended":                        {job: liveJob(func(j *v1alpha1.NodeJob) { j.Spec.Suspend = true })},
		"Stalled by the plan":              {job: liveJob(stalled(v1alpha1.ReasonMaxFailuresExceeded))},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := newReconciler(t, append([]client.Object{tt.job, watchedNode()}, tt.others...)...)
			seen, err := r.observe(t.Context(), tt.job, nil)
			if err != nil {
				t.Fatal(err)
			}
			var nodes corev1.NodeList
			var jobs v1alpha1.NodeJobList
			var pods corev1.PodList
			for _, list := range []client.ObjectList{&nodes, &jobs, &pods} {
				if err := r.Client.List(t.Context(), list); err != nil {
					t.Fatal(err)
				}
			}
			cluster := observe.Cluster{Now: noon}
			for i := range nodes.Items {
				cluster.Nodes = append(cluster.Nodes, observe.Node(&nodes.Items[i]))
			}
			for i := range jobs.Items {
				cluster.Jobs = append(cluster.Jobs, &jobs.Items[i])
			}
			got := cluster.Input(tt.job, pods.Items)
			got.Revision, got.Digest = seen.input.Revision, seen.input.Digest // which the manager has reported in its status
			if diff := cmp.Diff(seen.input, got, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(plan.Input{}, "GateWarning")); diff != "" {
				t.Errorf("-the manager +from outside\n%s", diff)
			}
		})
	}
}

// earlier makes a pod belong to a deleted NodeJob with the same name.
func earlier(p *corev1.Pod) {
	p.ResourceVersion = ""
	p.OwnerReferences = []metav1.OwnerReference{
		{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeJob", Name: "job", UID: "another", Controller: new(true)},
	}
}

// TestRefusedPodsAreReadFromTheStatus covers refused pods, which only the manager can observe.
func TestRefusedPodsAreReadFromTheStatus(t *testing.T) {
	told := func(generation int64, reason string) *v1alpha1.NodeJob {
		return liveJob(func(j *v1alpha1.NodeJob) {
			j.Status.ObservedGeneration = generation
			j.Status.Conditions = []metav1.Condition{
				{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Reason: reason, Message: "why"},
			}
		})
	}
	tests := map[string]struct {
		job  *v1alpha1.NodeJob
		want *hold.Why
	}{
		"a refused pod": {
			told(1, v1alpha1.ReasonPodForbidden),
			&hold.Why{Reason: v1alpha1.ReasonPodForbidden, Message: "why"},
		},
		"an obstacle that the plan finds itself": {told(1, v1alpha1.ReasonNodesFailed), nil},
		"an obstacle of an earlier spec":         {told(0, v1alpha1.ReasonPodForbidden), nil},
		"nothing yet":                            {liveJob(), nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, observe.ToldObstacle(tt.job)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}
