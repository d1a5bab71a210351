// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/plan"
)

// workload is a pod of a ReplicaSet on node n.
func workload(changes ...func(*corev1.Pod)) *corev1.Pod {
	yes := true
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "web-uid", OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "rs-uid", Controller: &yes},
		}},
		Spec:   corev1.PodSpec{NodeName: "n"},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, change := range changes {
		change(pod)
	}
	return pod
}

// lookAt requests the pods of node n.
func lookAt(spec *v1alpha1.DrainSpec) []plan.DrainPodRequest {
	return []plan.DrainPodRequest{{Node: "n", UID: "node-uid", Drain: spec}}
}

func TestPodsThatADrainEvicts(t *testing.T) {
	const emptyDir = "it has an emptyDir volume, whose content would be lost: set drain.deleteEmptyDirData, or delete it"
	const bare = "it has no controller that would recreate it: delete it if it is not needed"
	withEmptyDir := func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{
			{Name: "config"},
			{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		}
	}
	labelled := func(p *corev1.Pod) { p.Labels = map[string]string{"app": "web"} }
	unmanaged := func(p *corev1.Pod) { p.OwnerReferences[0].Controller = nil }
	web := plan.DrainPod{Namespace: "shop", Name: "web", UID: "web-uid"}
	held := func(why string) []plan.DrainPod { pod := web; pod.EvictionRefused = why; return []plan.DrainPod{pod} }
	tests := map[string]struct {
		pod                func(*corev1.Pod)
		deleteEmptyDirData bool
		selector           *metav1.LabelSelector
		want               []plan.DrainPod
	}{
		"one that drain.podSelector selects": {
			pod:      labelled,
			selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			want:     []plan.DrainPod{web},
		},
		"one that drain.podSelector does not select": {
			pod:      labelled,
			selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}},
		},
		"the manager's own":   {pod: func(p *corev1.Pod) { p.Name = "manager" }},
		"one of a ReplicaSet": {pod: func(*corev1.Pod) {}, want: []plan.DrainPod{web}},
		"a pending pod": {
			pod:  func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending },
			want: []plan.DrainPod{web},
		},
		"one on another node": {pod: func(p *corev1.Pod) { p.Spec.NodeName = "n2" }},
		"one of a DaemonSet":  {pod: func(p *corev1.Pod) { p.OwnerReferences[0].Kind = "DaemonSet" }},
		"one of an owner called DaemonSet in another API group": {pod: func(p *corev1.Pod) {
			p.OwnerReferences[0].Kind, p.OwnerReferences[0].APIVersion = "DaemonSet", "x.example/v1"
		}, want: []plan.DrainPod{web}},
		"a mirror pod of a static pod": {
			pod: func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} },
		},
		"a task": {pod: func(p *corev1.Pod) {
			yes := true
			p.OwnerReferences = []metav1.OwnerReference{
				{APIVersion: "everynode.dev/v1alpha1", Kind: "NodeJob", Name: "any", UID: "any", Controller: &yes},
			}
		}},
		"one with only the label of a task": {
			pod:  func(p *corev1.Pod) { p.Labels = map[string]string{v1alpha1.NodeJobLabel: "any"} },
			want: []plan.DrainPod{web},
		},
		"one that has succeeded":                 {pod: func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }},
		"one that has failed":                    {pod: func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }},
		"one that no controller would recreate":  {pod: unmanaged, want: held(bare)},
		"one with an emptyDir":                   {pod: withEmptyDir, want: held(emptyDir)},
		"one whose emptyDir data may be deleted": {pod: withEmptyDir, deleteEmptyDirData: true, want: []plan.DrainPod{web}},
		"one with an emptyDir that no controller would recreate": {
			pod:                func(p *corev1.Pod) { withEmptyDir(p); unmanaged(p) },
			deleteEmptyDirData: true,
			want:               held(bare),
		},
		"one that is being deleted": {
			pod: func(p *corev1.Pod) {
				now := at(0)
				p.DeletionTimestamp, p.Finalizers = &now, []string{"somebody.example/keep"}
			},
			want: []plan.DrainPod{{Namespace: "shop", Name: "web", UID: "web-uid", Terminating: true}},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := newReconciler(t, workload(tt.pod))
			r.Own.Pod = client.ObjectKey{Namespace: "shop", Name: "manager"}
			job := liveJob()
			r.drains.ask(
				client.ObjectKeyFromObject(job),
				lookAt(&v1alpha1.DrainSpec{DeleteEmptyDirData: tt.deleteEmptyDirData, PodSelector: tt.selector}),
			)
			got, _ := r.observeDrains(t.Context(), job, plan.Input{Now: noon})
			if diff := cmp.Diff(map[types.UID][]plan.DrainPod{"node-uid": tt.want}, got); diff != "" {
				t.Errorf("pods (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOnlyNodesThatThePlanAsksForAreLookedAt(t *testing.T) {
	lists := 0
	r := newFaultyReconciler(
		t,
		interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			lists++
			return c.List(ctx, l, opts...)
		}},
	)
	job, other := liveJob(), liveJob(func(j *v1alpha1.NodeJob) { j.Name = "other" })
	for _, step := range []struct {
		what string
		ask  []plan.DrainPodRequest
		want int
	}{
		{"no node is requested", nil, 0},
		{"one node is requested", lookAt(nil), 1},
		{"no node is requested any more", nil, 0},
	} {
		lists = 0
		r.drains.ask(client.ObjectKeyFromObject(job), step.ask)
		got, _ := r.observeDrains(t.Context(), job, plan.Input{Now: noon})
		if len(got) != step.want || lists != step.want {
			t.Errorf("%s: %d nodes with %d lists, want %d", step.what, len(got), lists, step.want)
		}
		if got, _ := r.observeDrains(t.Context(), other, plan.Input{Now: noon}); len(got) != 0 {
			t.Errorf("%s: the other NodeJob sees %v", step.what, got)
		}
	}
}

// Each event triggers a pass; pods are listed once a second, and after the manager's own evictions.
func TestADrainIsLookedAtOnceASecond(t *testing.T) {
	lists := 0
	r := newFaultyReconciler(
		t,
		interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			lists++
			return c.List(ctx, l, opts...)
		}},
		workload(),
	)
	job := liveJob()
	r.drains.ask(client.ObjectKeyFromObject(job), lookAt(nil))
	key := drainKey{client.ObjectKeyFromObject(job), "n"}
	look := func(after time.Duration) plan.DrainPod {
		t.Helper()
		got, _ := r.observeDrains(t.Context(), job, plan.Input{Now: noon.Add(after)})
		if len(got["node-uid"]) != 1 {
			t.Fatalf("%+v, want one pod", got)
		}
		return got["node-uid"][0]
	}
	for _, step := range []struct {
		what  string
		do    func()
		after time.Duration
		lists int
		tried time.Time
	}{
		{what: "first", lists: 1},
		{what: "half a second later", after: 500 * time.Millisecond, lists: 1},
		{what: "a second later", after: time.Second, lists: 2},
		{
			what: "right after an eviction", after: time.Second, lists: 3, tried: noon.Add(time.Second),
			do: func() { r.drains.tried(key, "web-uid", eviction{noon.Add(time.Second), "not now"}) },
		},
		{what: "once more", after: 1100 * time.Millisecond, lists: 3, tried: noon.Add(time.Second)},
		{what: "the attempt is remembered", after: time.Minute, lists: 4, tried: noon.Add(time.Second)},
	} {
		if step.do != nil {
			step.do()
		}
		pod := look(step.after)
		if lists != step.lists || !pod.TriedAt.Equal(step.tried) || (pod.Blocked != "") != !step.tried.IsZero() {
			t.Errorf("%s: %d lists and %+v, want %d and a try at %v", step.what, lists, pod, step.lists, step.tried)
		}
	}
}

func TestWhatIsRememberedOfADrainIsDropped(t *testing.T) {
	job := liveJob()
	key := drainKey{client.ObjectKeyFromObject(job), "n"}
	tests := map[string]func(r *fakeReconciler){
		"when the drain is over": func(r *fakeReconciler) {
			r.drains.ask(client.ObjectKeyFromObject(job), nil)
		},
		"when the NodeJob is deleted": func(r *fakeReconciler) {
			if err := r.cleanUpDeleted(t.Context(), client.ObjectKeyFromObject(job)); err != nil {
				t.Error(err)
			}
		},
	}
	for name, happens := range tests {
		t.Run(name, func(t *testing.T) {
			r := newReconciler(t)
			r.drains.looked(key, []plan.DrainPod{{UID: "web-uid"}}, noon)
			r.drains.tried(key, "web-uid", eviction{at: noon})
			r.drains.looked(drainKey{client.ObjectKey{Namespace: "ns", Name: "other"}, "n"}, nil, noon)
			happens(r)
			if len(r.drains.seen) != 1 {
				t.Errorf("%v is remembered, want only that of the other NodeJob", r.drains.seen)
			}
			r.drains.tried(key, "web-uid", eviction{at: noon})
			if len(r.drains.seen) != 1 {
				t.Errorf("a late response is remembered: %v", r.drains.seen)
			}
		})
	}
}

func TestEvictedPodsAreForgotten(t *testing.T) {
	d, key := newDrains(), drainKey{node: "n"}
	d.looked(key, []plan.DrainPod{{UID: "web-uid"}, {UID: "db-uid"}}, noon)
	d.tried(key, "web-uid", eviction{at: noon})
	d.tried(key, "db-uid", eviction{at: noon})
	d.looked(key, []plan.DrainPod{{UID: "db-uid"}}, noon)
	if diff := cmp.Diff(map[types.UID]eviction{"db-uid": {at: noon}}, d.seen[key].tries, cmp.AllowUnexported(eviction{})); diff != "" {
		t.Errorf("remembered evictions (-want +got):\n%s", diff)
	}
}

// A failed list must not look like an empty one, or the node would count as drained.
func TestAListOfPodsThatFailsShowsNoNode(t *testing.T) {
	r := newFaultyReconciler(
		t,
		interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return errors.New("away")
		}},
	)
	job := liveJob()
	r.drains.ask(client.ObjectKeyFromObject(job), lookAt(nil))
	if got, _ := r.observeDrains(t.Context(), job, plan.Input{Now: noon}); len(got) != 0 {
		t.Errorf("got the nodes %v, want none", got)
	}
}
