// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/observe"
	"github.com/everynode/everynode/internal/outcome"
	"github.com/everynode/everynode/internal/seal"
)

func TestStripKeepsWhatThePlanReads(t *testing.T) {
	report := `{"exitCode":3,"message":"` + strings.Repeat("x", 4000) + `"}`
	tests := map[string]func(*corev1.Pod){
		"a pod that runs": func(*corev1.Pod) {},
		"a pod with a script": func(p *corev1.Pod) {
			p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "x"}}
			p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "EVERYNODE_SCRIPT", Value: strings.Repeat("x", 65536)}}
		},
		"a pod that has failed": func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{terminated("task", 3, "Error", report[:outcome.MaxBytes-100])}
		},
		"a pod that waits for its image": func(p *corev1.Pod) {
			p.Status = corev1.PodStatus{
				Phase:             corev1.PodPending,
				ContainerStatuses: []corev1.ContainerStatus{waitingFor("task", "ErrImagePull", "no such image")},
			}
		},
		"a pod with a sidecar": func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "sidecar"}}
			p.Status = corev1.PodStatus{
				Phase:                 corev1.PodFailed,
				InitContainerStatuses: []corev1.ContainerStatus{terminated("sidecar", 1, "Error", "no")},
			}
		},
		"a pod with an added container": func(p *corev1.Pod) {
			p.Annotations[v1alpha1.ContainersAnnotation] = "task"
			p.Spec.Containers = append([]corev1.Container{{Name: "mesh"}}, p.Spec.Containers...)
			mesh := corev1.ContainerStatus{
				Name:  "mesh",
				State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at(1)}},
			}
			p.Status.ContainerStatuses = []corev1.ContainerStatus{mesh, terminated("task", 0, "Completed", `{"exitCode":0}`)}
		},
		"a pod with an init container that runs": func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "init"}}
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{
				{Name: "init", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at(1)}}},
			}
		},
		"a pod that is rejected": func(p *corev1.Pod) {
			p.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "OutOfcpu", Message: "node is full"}
		},
		"a pod that is disrupted": func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{
				{Type: corev1.PodReady},
				{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "Evicted", LastTransitionTime: at(9)},
			}
		},
		"a pod that is being deleted": func(p *corev1.Pod) {
			p.DeletionTimestamp, p.DeletionGracePeriodSeconds = new(at(30)), new(int64(30))
		},
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			pod := livePod(change)
			want := viewPod(seenPod{Pod: pod.DeepCopy()})
			strip(seal.Key{}, pod)
			if diff := cmp.Diff(want, viewPod(seenPod{Pod: pod})); diff != "" {
				t.Errorf("the plan sees another pod (-before +after):\n%s", diff)
			}
			if nodeJobOf(pod) != "job" || !ownedBy(pod, "job-uid") {
				t.Errorf("it belongs to %q, owners %v", nodeJobOf(pod), pod.OwnerReferences)
			}
			if again := viewPod(seenPod{Pod: strip(seal.Key{}, pod.DeepCopy()).(*corev1.Pod)}); !cmp.Equal(want, again) {
				t.Error("stripping it twice changes it")
			}
			if size(t, pod) > 8<<10 {
				t.Errorf("%d bytes are left", size(t, pod))
			}
		})
	}

	node := watchedNode()
	node.Spec.Unschedulable = true
	node.Annotations[v1alpha1.CordonedAnnotation] = "ns.everynode.dev/job"
	node.Status.Images = []corev1.ContainerImage{{Names: []string{"x"}}}
	node.Spec.ProviderID, node.Status.NodeInfo.Architecture = "cloud://1", "arm64"
	wantNode := observe.Node(node.DeepCopy())
	gotNode := observe.Node(strip(seal.Key{}, node).(*corev1.Node))
	if diff := cmp.Diff(wantNode, gotNode); diff != "" {
		t.Errorf("the plan sees another node (-before +after):\n%s", diff)
	}
	if len(node.Status.Images) > 0 {
		t.Error("the images are still there")
	}
}

// size returns the size of an object in JSON, which is about its size in memory.
func size(t *testing.T, o any) int {
	t.Helper()
	b, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return len(b)
}

// Anyone who can create a pod can give it our label, and a kubelet writes the status of the pods of its node.
func TestWhatOthersPutIntoPodsIsBounded(t *testing.T) {
	large := strings.Repeat("x", 256<<10)
	statuses := make([]corev1.ContainerStatus, 0, 1000)
	for i := range cap(statuses) {
		statuses = append(
			statuses,
			terminated(fmt.Sprint("c", i), 1, large[:2000], large[:5000]),
			waitingFor(fmt.Sprint("w", i), large[:2000], large[:5000]),
		)
	}
	fill := func(p *corev1.Pod) {
		p.Annotations["x.example/large"], p.Annotations[v1alpha1.RetryAnnotation] = large, large
		p.Labels["x.example/large"] = large
		p.Finalizers = append(p.Finalizers, large)
		p.Status.Message, p.Status.Reason = large, large
		p.Status.ContainerStatuses, p.Status.InitContainerStatuses = statuses, statuses
		p.Status.Conditions = []corev1.PodCondition{
			{Type: "x", Message: large},
			{Type: corev1.DisruptionTarget, Reason: large, Message: large},
		}
	}
	owned := func(owners ...metav1.OwnerReference) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.OwnerReferences = owners }
	}
	mirror := metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: "n", UID: "node-uid", Controller: new(true)}
	other := metav1.OwnerReference{APIVersion: "x.example/v1", Kind: "NodeJob", Name: "job", UID: "job-uid", Controller: new(true)}
	tests := map[string]struct {
		change func(*corev1.Pod)
		want   string // the NodeJob that it belongs to
		most   int
	}{
		"of a NodeJob":                         {func(*corev1.Pod) {}, "job", 800 << 10},
		"a mirror pod with our label":          {owned(mirror), "", 512},
		"a pod with only our label":            {func(p *corev1.Pod) { p.OwnerReferences, p.Finalizers = nil, nil }, "", 512},
		"a pod of another kind called NodeJob": {owned(other), "", 512},
		"a pod that its NodeJob has orphaned":  {owned(), "job", 800 << 10},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			pod := strip(seal.Key{}, livePod(fill, tt.change)).(*corev1.Pod)
			if got := nodeJobOf(pod); got != tt.want {
				t.Errorf("it belongs to %q, want %q", got, tt.want)
			}
			if got := size(t, pod); got > tt.most {
				t.Errorf("%d bytes are left, want at most %d", got, tt.most)
			}
		})
	}
}

// TestAPodThatAnotherClientHasWrittenIsNoAttempt : only what the manager could have to remove of it is kept.
func TestAPodThatAnotherClientHasWrittenIsNoAttempt(t *testing.T) {
	tests := map[string]struct {
		change func(*corev1.Pod)
		want   bool
	}{
		"the manager's":                          {func(*corev1.Pod) {}, true},
		"one without a seal":                     {func(p *corev1.Pod) { delete(p.Annotations, v1alpha1.SealAnnotation) }, false},
		"one with the seal of another pod":       {func(p *corev1.Pod) { p.Name = "job-another" }, false},
		"one with an additional annotation":      {func(p *corev1.Pod) { p.Annotations[v1alpha1.RebootAnnotation] = "Always" }, false},
		"one with another author":                {func(p *corev1.Pod) { p.Annotations[v1alpha1.ChangedByAnnotation] = "jane" }, false},
		"one with another attempt":               {func(p *corev1.Pod) { p.Annotations[v1alpha1.AttemptAnnotation] = "7" }, false},
		"the manager's after it was recorded":    {func(p *corev1.Pod) { p.Annotations[v1alpha1.RecordedAnnotation] = "true" }, true},
		"the manager's with a label of a user":   {func(p *corev1.Pod) { p.Labels["team"] = "a" }, true},
		"the manager's without its finalizer":    {func(p *corev1.Pod) { p.Finalizers = nil }, true},
		"one of a NodeJob that was recreated":    {func(p *corev1.Pod) { p.OwnerReferences[0].UID = "another" }, false},
		"one that a kubelet's mirror pod copies": {func(p *corev1.Pod) { p.OwnerReferences[0].Kind = "Node" }, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			pod := livePod()
			tt.change(pod)
			strip(seal.Key{}, pod)
			if got := ownedBy(pod, "job-uid") || ownedBy(pod, "another"); got != tt.want {
				t.Errorf("it is an attempt: %v, want %v", got, tt.want)
			}
			if view := viewPod(
				seenPod{Pod: pod},
			); !tt.want &&
				(view.Reboot != "" || view.Attempt != 1 || view.ChangedBy != "" || view.Exit != nil) {
				t.Errorf("the plan reads %+v of it", view)
			}
		})
	}
}

// What kubectl apply and the API server add to an object is as large as the object itself.
func TestCopiesOfWholeObjectsAreNotCached(t *testing.T) {
	large := strings.Repeat("x", 64<<10)
	meta := metav1.ObjectMeta{
		Name: "x", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: large}},
		Annotations: map[string]string{"kubectl.kubernetes.io/last-applied-configuration": large, v1alpha1.RetryAnnotation: "1"},
	}
	for _, o := range []client.Object{
		&v1alpha1.NodeJob{ObjectMeta: meta}, &v1alpha1.NodeGuard{ObjectMeta: meta},
		&metav1.PartialObjectMetadata{ObjectMeta: meta}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{ManagedFields: meta.ManagedFields}},
		&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{ManagedFields: meta.ManagedFields}},
	} {
		stripped := strip(seal.Key{}, o)
		if got := size(t, stripped); got > 2048 {
			t.Errorf("%T: %d bytes are left", o, got)
		}
		if job, ok := stripped.(*v1alpha1.NodeJob); ok && job.Annotations[v1alpha1.RetryAnnotation] != "1" {
			t.Error("the annotation that asks for a retry is lost")
		}
	}
	if stripped := strip(seal.Key{}, "a tombstone"); stripped != "a tombstone" {
		t.Error("a value that is not an object is changed")
	}
}
