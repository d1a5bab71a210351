// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guardcontroller

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/manager/loop"
	"github.com/everynode/everynode/internal/nodeguard/guard"
	"github.com/everynode/everynode/internal/seal"
)

var key = seal.Key{1, 2, 3}

// Any user of the namespace can create pods with our labels, annotations and owner references.
func TestWhichPodsAreOurs(t *testing.T) {
	g := nodeGuard("disks", "disks")
	r := newReconciler(t, interceptor.Funcs{})
	r.Key = key
	template := guard.Template(g, nil, r.Options)
	tests := map[string]struct {
		change func(*corev1.Pod)
		want   bool
	}{
		"as it was created":            {func(*corev1.Pod) {}, true},
		"orphaned by its NodeGuard":    {func(p *corev1.Pod) { p.OwnerReferences = nil }, true},
		"created by a user":            {func(p *corev1.Pod) { delete(p.Annotations, v1alpha1.SealAnnotation) }, false},
		"with the seal of another key": {func(p *corev1.Pod) { seal.Key{9}.SealPod(p) }, false},
		"under another name":           {func(p *corev1.Pod) { p.Name = "other" }, false},
		"a check instead of a companion": {func(p *corev1.Pod) {
			p.Labels[v1alpha1.GuardRoleLabel] = v1alpha1.GuardRoleCheck
		}, false},
		"an orphan of another NodeGuard": {func(p *corev1.Pod) {
			p.OwnerReferences, p.Annotations[v1alpha1.NodeGuardUIDAnnotation] = nil, "other"
		}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			pod := guard.Companion(g, &template, "n1", "c-n1")
			key.SealPod(pod)
			tt.change(pod)
			r := newReconciler(t, interceptor.Funcs{}, pod)
			r.Key = key
			made, err := r.made(t.Context(), client.ObjectKeyFromObject(g), r.live())
			if err != nil {
				t.Fatal(err)
			}
			companion := pod.Labels[v1alpha1.GuardRoleLabel] == v1alpha1.GuardRoleCompanion
			if got := len(made.pods) == 1; got != tt.want || (len(made.strangers) == 1) != (!tt.want && companion) {
				t.Errorf("ours: %d, foreign: %d", len(made.pods), len(made.strangers))
			}
		})
	}
}

func TestCreatedPodsAreSealed(t *testing.T) {
	g := nodeGuard("disks", "disks")
	g.Spec.Release.Check = &v1alpha1.ReleaseCheck{Script: "true"}
	r := newReconciler(t, interceptor.Funcs{}, g)
	r.Key = key
	seen := observedBudget(t, r, g)
	if _, err := r.apply(
		t.Context(),
		seen,
		[]guard.Action{guard.CreateCompanion{Node: "n1", Name: "a"}, guard.CreateCheck{Node: "n1", Name: "b"}},
	); err != nil {
		t.Fatal(err)
	}
	var pods corev1.PodList
	if err := r.Client.List(t.Context(), &pods); err != nil || len(pods.Items) != 2 {
		t.Fatalf("%d pods are created: %v", len(pods.Items), err)
	}
	for i := range pods.Items {
		if !key.MadePod(&pods.Items[i]) {
			t.Errorf("%s has no valid seal", pods.Items[i].Name)
		}
	}
}

// A user who may write statuses gives a NodeGuard none: neither its own decisions nor those of others depend on it.
func TestAStatusThatTheManagerHasNotWrittenDoesNotCount(t *testing.T) {
	forged := []v1alpha1.ReleasedNode{{Node: "n1", UID: "uid-n1", Since: metav1.NewTime(noon), Reason: v1alpha1.ReasonBreakGlass}}
	a, b := nodeGuard("a", "a"), nodeGuard("b", "b")
	a.Spec.Release.Approval = v1alpha1.ApprovalRequired
	a.Status.Released, b.Status.Released = forged, forged
	r := newReconciler(
		t,
		interceptor.Funcs{},
		a,
		b,
		daemonSet("a"),
		daemonSet("b"),
		readyNode("n1", true),
		targetPod("a", "n1", "True"),
		targetPod("b", "n1", "True"),
	)
	r.Key = key
	for _, from := range []origin{r.live(), {nodes: r.Client, made: r.Own, targets: r.live().targets}} {
		read, err := r.getNodeGuard(t.Context(), from.nodes, client.ObjectKeyFromObject(a))
		if err != nil {
			t.Fatal(err)
		}
		seen, err := r.observe(t.Context(), read, from)
		if err != nil {
			t.Fatal(err)
		}
		if len(seen.input.Guard.Status.Released)+len(seen.input.Peers[0].Released) > 0 {
			t.Errorf("forged releases count: %+v, %+v", seen.input.Guard.Status.Released, seen.input.Peers[0].Released)
		}
	}
}

// The manager remembers what it has written. It writes it again, and goes on as if nothing had happened.
func TestAnOverwrittenStatusIsRestored(t *testing.T) {
	g := nodeGuard("disks", "disks")
	r := newReconciler(t, interceptor.Funcs{}, g, daemonSet("disks"), readyNode("n1", true), targetPod("disks", "n1", "True"))
	r.Key, r.targets = key, nil
	now := noon
	r.Now = func() time.Time { return now }
	name := client.ObjectKeyFromObject(g)
	pass := func() *v1alpha1.NodeGuard {
		t.Helper()
		now = now.Add(2 * loop.StatusInterval)
		live, err := r.getNodeGuard(t.Context(), r.Reader, name)
		if err != nil {
			t.Fatal(err)
		}
		seen, err := r.observe(t.Context(), live, r.live())
		if err != nil {
			t.Fatal(err)
		}
		p := guard.Next(seen.input)
		if _, err := r.carryOut(t.Context(), seen, &p); err != nil {
			t.Fatal(err)
		}
		written := &v1alpha1.NodeGuard{}
		if err := r.Reader.Get(t.Context(), name, written); err != nil {
			t.Fatal(err)
		}
		return written
	}
	first := pass()
	second := pass()
	if len(second.Status.Released) != 1 || second.Status.ControllerState.Seal != key.NodeGuard(second) {
		t.Fatalf("the node is not released, or the status is not sealed: %+v", second.Status)
	}
	for what, status := range map[string]v1alpha1.NodeGuardStatus{"none": {}, "an earlier one": first.Status} {
		forged := &v1alpha1.NodeGuard{}
		if err := r.Reader.Get(t.Context(), name, forged); err != nil {
			t.Fatal(err)
		}
		forged.Status = status
		if err := r.Client.Status().Update(t.Context(), forged); err != nil {
			t.Fatal(err)
		}
		if got := pass(); !equality.Semantic.DeepEqual(got.Status.Released, second.Status.Released) ||
			got.Status.ControllerState.Seal != key.NodeGuard(got) {
			t.Errorf("a user wrote %s, and the manager wrote %+v", what, got.Status)
		}
	}
	before := pass().ResourceVersion
	if after := pass().ResourceVersion; after != before {
		t.Error("an unchanged status is written again")
	}
}
