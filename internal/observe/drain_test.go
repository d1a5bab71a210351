// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/everynode/everynode/api/v1alpha1"
)

func TestPodsThatADrainSelects(t *testing.T) {
	byApp := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}
	for name, tt := range map[string]struct {
		spec              *v1alpha1.DrainSpec
		wantA, wantB      bool // whether it selects pods with app=a and app=b
		wantDeleteOfFiles bool
	}{
		"all":                         {nil, true, true, false},
		"all, with emptyDir volumes":  {&v1alpha1.DrainSpec{DeleteEmptyDirData: true}, true, true, true},
		"some":                        {&v1alpha1.DrainSpec{PodSelector: byApp}, true, false, false},
		"some, with emptyDir volumes": {&v1alpha1.DrainSpec{PodSelector: byApp, DeleteEmptyDirData: true}, true, false, true},
	} {
		selector, deletes, err := Drain(tt.spec)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if a, b := selector.Matches(
			labels.Set{"app": "a"},
		), selector.Matches(
			labels.Set{"app": "b"},
		); a != tt.wantA || b != tt.wantB ||
			deletes != tt.wantDeleteOfFiles {
			t.Errorf("%s: %t, %t, deletes emptyDir volumes: %t", name, a, b, deletes)
		}
	}
	invalid := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Like"}}}
	if _, _, err := Drain(&v1alpha1.DrainSpec{PodSelector: invalid}); err == nil {
		t.Error("an invalid selector has no error")
	}
}

func TestPodsThatADrainLeaves(t *testing.T) {
	by := func(apiVersion, kind string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				OwnerReferences: []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: "a", Controller: new(true)}},
			},
		}
	}
	check := by("everynode.dev/v1alpha1", "NodeGuard")
	check.Labels = map[string]string{v1alpha1.GuardRoleLabel: v1alpha1.GuardRoleCheck}
	in := func(phase corev1.PodPhase) *corev1.Pod { return &corev1.Pod{Status: corev1.PodStatus{Phase: phase}} }
	for name, tt := range map[string]struct {
		pod  *corev1.Pod
		want bool // whether it is evicted
	}{
		"without an owner":                {&corev1.Pod{}, true},
		"of a ReplicaSet":                 {by("apps/v1", "ReplicaSet"), true},
		"of a DaemonSet":                  {by("apps/v1", "DaemonSet"), false},
		"of a DaemonSet of another group": {by("apps.kruise.io/v1alpha1", "DaemonSet"), true},
		"of a NodeJob":                    {by("everynode.dev/v1alpha1", "NodeJob"), false},
		"of a NodeJob of another group":   {by("example.com/v1alpha1", "NodeJob"), true},
		"of another kind of Everynode":    {by("everynode.dev/v1alpha1", "NodeGuard"), true},
		"the check of a NodeGuard":        {check, false},
		"of a kubelet":                    {&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{corev1.MirrorPodAnnotationKey: ""}}}, false},
		"running":                         {in(corev1.PodRunning), true},
		"succeeded":                       {in(corev1.PodSucceeded), false},
		"failed":                          {in(corev1.PodFailed), false},
	} {
		if got := EvictedByDrain(tt.pod); got != tt.want {
			t.Errorf("%s: %t, want %t", name, got, tt.want)
		}
	}
}

func TestPodsThatMustNotBeEvicted(t *testing.T) {
	pod := func(owned bool, volume corev1.VolumeSource) *corev1.Pod {
		p := &corev1.Pod{Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: "v", VolumeSource: volume}}}}
		if owned {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Controller: new(true)}}
		}
		return p
	}
	emptyDir, configMap := corev1.VolumeSource{
		EmptyDir: &corev1.EmptyDirVolumeSource{},
	}, corev1.VolumeSource{
		ConfigMap: &corev1.ConfigMapVolumeSource{},
	}
	for name, tt := range map[string]struct {
		pod     *corev1.Pod
		deletes bool
		want    bool // whether its eviction is refused
	}{
		"with another volume":               {pod(true, configMap), false, false},
		"with an emptyDir volume":           {pod(true, emptyDir), false, true},
		"with one whose content is deleted": {pod(true, emptyDir), true, false},
		"without a controller":              {pod(false, configMap), true, true},
	} {
		if got := DrainPod(tt.pod, tt.deletes).EvictionRefused; (got != "") != tt.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestWhichPodsOfADrainCanBePlacedOnCordonedNodes(t *testing.T) {
	created := metav1.Unix(1_800_000_000, 0)
	pod := func(apiVersion string, tolerations ...corev1.Toleration) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				CreationTimestamp: created,
				OwnerReferences:   []metav1.OwnerReference{{APIVersion: apiVersion, Kind: "Job", Controller: new(true)}},
			},
			Spec: corev1.PodSpec{Tolerations: tolerations},
		}
	}
	all, other := corev1.Toleration{Operator: corev1.TolerationOpExists}, corev1.Toleration{Key: "a", Operator: corev1.TolerationOpExists}
	cordoned := corev1.Toleration{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists}
	for name, tt := range map[string]struct {
		pod  *corev1.Pod
		want bool
	}{
		"without a toleration":                    {pod("batch/v1"), false},
		"with a toleration of another taint":      {pod("batch/v1", other), false},
		"with a toleration of the cordon":         {pod("batch/v1", cordoned), true},
		"with a toleration of all taints":         {pod("batch/v1", all), true},
		"of Everynode, such as that of NodeGuard": {pod("everynode.dev/v1alpha1", all), false},
	} {
		if got := DrainPod(tt.pod, true).Placed.Equal(created.Time); got != tt.want {
			t.Errorf("%s: %t, want %t", name, got, tt.want)
		}
	}
}
