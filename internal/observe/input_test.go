// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
)

// jobWith returns a NodeJob whose status has a condition.
func jobWith(kind string, status metav1.ConditionStatus, reason string) *v1alpha1.NodeJob {
	job := &v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job", UID: "uid", Generation: 2}}
	job.Status.ObservedGeneration = 2
	job.Status.Conditions = []metav1.Condition{{Type: kind, Status: status, Reason: reason, Message: "why"}}
	return job
}

func TestObstaclesThatTheStatusTells(t *testing.T) {
	changed := jobWith(v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonPodForbidden)
	changed.Generation = 3
	ofNode := func(reason string) *v1alpha1.NodeJob {
		job := jobWith(v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonPodForbidden)
		job.Status.NodeProblems = []v1alpha1.NodeProblem{{Node: "a", Reason: reason}}
		return job
	}
	obstacle := func(reason string) *hold.Why { return &hold.Why{Reason: reason, Message: "why"} }
	for name, tt := range map[string]struct {
		job            *v1alpha1.NodeJob
		want           *hold.Why
		wantNotAllowed bool
	}{
		"no condition":                      {&v1alpha1.NodeJob{}, nil, false},
		"it is Stalled":                     {jobWith(v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonPodForbidden), obstacle(v1alpha1.ReasonPodForbidden), false},
		"it is reconciling":                 {jobWith(v1alpha1.ConditionReconciling, metav1.ConditionTrue, v1alpha1.ReasonPodNotCreated), obstacle(v1alpha1.ReasonPodNotCreated), false},
		"its namespace is not allowed":      {jobWith(v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonNamespaceNotAllowed), obstacle(v1alpha1.ReasonNamespaceNotAllowed), true},
		"it was Stalled":                    {jobWith(v1alpha1.ConditionStalled, metav1.ConditionFalse, v1alpha1.ReasonPodForbidden), nil, false},
		"a reason that the plan detects":    {jobWith(v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonNodesFailed), nil, false},
		"the status is older than the spec": {changed, nil, false},
		"a problem of a node":               {ofNode(v1alpha1.ReasonPodForbidden), nil, false},
		"a node has another problem":        {ofNode(v1alpha1.ReasonPodNameTaken), obstacle(v1alpha1.ReasonPodForbidden), false},
	} {
		t.Run(name, func(t *testing.T) {
			in := Cluster{}.Input(tt.job, nil)
			if diff := cmp.Diff(tt.want, in.Obstacle); diff != "" {
				t.Errorf("obstacle (-want +got):\n%s", diff)
			}
			if (in.NotAllowed != nil) != tt.wantNotAllowed {
				t.Errorf("not allowed: %+v, want %t", in.NotAllowed, tt.wantNotAllowed)
			}
		})
	}
}

// The pods of an earlier NodeJob of the same name keep their nodes busy.
func TestPodsOfAnEarlierNodeJob(t *testing.T) {
	pod := func(name string, owner types.UID) corev1.Pod {
		return corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name:              name,
				CreationTimestamp: metav1.NewTime(time.Unix(9, 0)),
				OwnerReferences:   []metav1.OwnerReference{{Kind: "NodeJob", Name: "job", UID: owner, Controller: new(true)}},
			},
			Spec: corev1.PodSpec{NodeName: "on-" + name},
		}
	}
	in := Cluster{}.Input(
		&v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job", UID: "new"}},
		[]corev1.Pod{pod("a", "new"), pod("b", "old")},
	)
	if len(in.Pods) != 1 || in.Pods[0].Name != "a" {
		t.Errorf("its pods are %+v", in.Pods)
	}
	if _, busy := in.BusyNodes["on-b"]; !busy || len(in.BusyNodes) != 1 {
		t.Errorf("the busy nodes are %v", in.BusyNodes)
	}
}
