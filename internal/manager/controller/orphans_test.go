// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/manager/loop"
)

func gateTaint(key string) corev1.Taint {
	return corev1.Taint{Key: key, Value: v1alpha1.GateValue, Effect: corev1.TaintEffectNoSchedule}
}

// tainted is a node with these taints.
func tainted(taints ...corev1.Taint) *corev1.Node {
	node := watchedNode()
	node.Spec.Taints = taints
	return node
}

func cordonedFor(keys string) *corev1.Node {
	node := tainted()
	node.Spec.Unschedulable = true
	node.Annotations[v1alpha1.CordonedAnnotation] = keys
	return node
}

// sweep checks the node n once if the cache shows an orphaned taint or cordon.
func (r *fakeReconciler) sweep() (ctrl.Result, error) {
	s := orphanCollector{r.writer}
	if !s.mayHaveOrphans(r.t.Context(), r.node("n")) {
		return ctrl.Result{}, nil
	}
	return s.Reconcile(r.t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "n"}})
}

func TestOrphanedTaintsAndCordons(t *testing.T) {
	const own, user = "ns.everynode.dev/job", "x.example/k"
	foreign := corev1.Taint{Key: user, Value: "kubelet", Effect: corev1.TaintEffectNoSchedule}
	noExecute := gateTaint(user)
	noExecute.Effect = corev1.TaintEffectNoExecute
	tests := map[string]struct {
		node *corev1.Node
		jobs []client.Object
		// want are the remaining taints, wantCordoned the owner of the remaining cordon; "-" for an uncordoned node.
		want         []corev1.Taint
		wantCordoned string
	}{
		"a taint without a NodeJob": {node: tainted(gateTaint(own)), wantCordoned: "-"},
		"one among taints of other owners": {
			node:         tainted(foreign, gateTaint(own), gateTaint("example.com/b")),
			want:         []corev1.Taint{foreign},
			wantCordoned: "-",
		},
		"one with the value of gates, and a key that no gate can have": {
			node:         tainted(gateTaint("team")),
			want:         []corev1.Taint{gateTaint("team")},
			wantCordoned: "-",
		},
		"the gate of a NodeJob": {
			node:         tainted(gateTaint(own)),
			jobs:         []client.Object{liveJob(gated)},
			want:         []corev1.Taint{gateTaint(own)},
			wantCordoned: "-",
		},
		"the default key of a NodeJob without a gate is left to its plan": {
			node:         tainted(gateTaint(own)),
			jobs:         []client.Object{liveJob()},
			want:         []corev1.Taint{gateTaint(own)},
			wantCordoned: "-",
		},
		"the gate of a NodeJob with another key now": {
			node:         tainted(gateTaint(user)),
			jobs:         []client.Object{liveJob(gatedBy("x.example/other"))},
			wantCordoned: "-",
		},
		"the gate of a NodeJob with another effect now": {
			node:         tainted(noExecute),
			jobs:         []client.Object{liveJob(gatedBy(user))},
			wantCordoned: "-",
		},
		"the gate of two NodeJobs, of which one is deleted": {
			node:         tainted(gateTaint(user)),
			jobs:         []client.Object{called("b", gatedBy(user))},
			want:         []corev1.Taint{gateTaint(user)},
			wantCordoned: "-",
		},
		"the gate of another namespace": {
			node:         tainted(gateTaint(own)),
			jobs:         []client.Object{called("job", in("other"), gated)},
			wantCordoned: "-",
		},
		"a taint of another owner": {
			node:         tainted(foreign),
			want:         []corev1.Taint{foreign},
			wantCordoned: "-",
		},
		"a taint of another owner with the key of a deleted gate": {
			node: tainted(
				corev1.Taint{Key: own, Effect: corev1.TaintEffectNoSchedule},
			),
			want:         []corev1.Taint{{Key: own, Effect: corev1.TaintEffectNoSchedule}},
			wantCordoned: "-",
		},
		"a cordon without a NodeJob": {node: cordonedFor(own), wantCordoned: "-"},
		"a cordon of a NodeJob":      {node: cordonedFor(own), jobs: []client.Object{liveJob()}, wantCordoned: own},
		"a cordon of two NodeJobs, of which one is deleted": {
			node: cordonedFor(own + ",ns.everynode.dev/gone"), jobs: []client.Object{liveJob()}, wantCordoned: own,
		},
		"a cordon by a user": {node: cordonedFor(""), wantCordoned: ""},
		"nothing":            {node: tainted(), wantCordoned: "-"},
		"a NodeJob whose finalizer was removed": {node: func() *corev1.Node {
			n := cordonedFor(own)
			n.Spec.Taints = []corev1.Taint{gateTaint(own), foreign}
			return n
		}(), want: []corev1.Taint{foreign}, wantCordoned: "-"},
		"taints, labels and annotations of other owners": {
			node:         tainted(gateTaint(own), foreign),
			jobs:         []client.Object{called("b", gatedBy(user))},
			want:         []corev1.Taint{foreign},
			wantCordoned: "-",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			before := tt.node.DeepCopy()
			r := newReconciler(t, append(tt.jobs, tt.node)...)
			if result, err := r.sweep(); err != nil || result.RequeueAfter != 0 {
				t.Fatalf("%+v, %v", result, err)
			}
			node := r.node("n")
			if diff := cmp.Diff(tt.want, node.Spec.Taints, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("taints (-want +got):\n%s", diff)
			}
			cordoned := "-"
			if node.Spec.Unschedulable {
				cordoned = node.Annotations[v1alpha1.CordonedAnnotation]
			}
			if cordoned != tt.wantCordoned {
				t.Errorf("it is cordoned for %q, want %q", cordoned, tt.wantCordoned)
			}
			delete(before.Annotations, v1alpha1.CordonedAnnotation)
			delete(node.Annotations, v1alpha1.CordonedAnnotation)
			if diff := cmp.Diff(
				[]map[string]string{before.Labels, before.Annotations},
				[]map[string]string{node.Labels, node.Annotations},
			); diff != "" {
				t.Errorf("fields of other owners have changed (-before +after):\n%s", diff)
			}
			version := node.ResourceVersion
			if _, err := r.sweep(); err != nil || r.node("n").ResourceVersion != version {
				t.Errorf("the node is written again (%v)", err)
			}
		})
	}
}

// The API server may taint a node for a NodeJob that the manager's cache does not have yet.
func TestATaintOfANodeJobThatIsNotCachedYetIsKept(t *testing.T) {
	live := newReconciler(t, liveJob(gated), tainted(gateTaint("ns.everynode.dev/job")))
	r := newReconciler(t, tainted(gateTaint("ns.everynode.dev/job")))
	r.Reader = live.Client
	if !(orphanCollector{r.writer}).mayHaveOrphans(r.t.Context(), r.node("n")) {
		t.Error("according to the cache, the taint is not orphaned")
	}
	if _, err := r.sweep(); err != nil || len(r.node("n").Spec.Taints) != 1 {
		t.Errorf("the taints are %v (%v)", r.node("n").Spec.Taints, err)
	}
}

func TestAFailedRemovalOfAnOrphanIsRetried(t *testing.T) {
	tests := map[string]struct {
		patch   error
		want    ctrl.Result
		wantErr bool
	}{
		"a conflict": {
			patch: apierrors.NewConflict(corev1.Resource("nodes"), "n", errors.New("modified")),
			want:  ctrl.Result{RequeueAfter: loop.Soon},
		},
		"the node is deleted": {patch: apierrors.NewNotFound(corev1.Resource("nodes"), "n")},
		"the patch is forbidden": {
			patch:   apierrors.NewForbidden(corev1.Resource("nodes"), "n", errors.New("policy")),
			wantErr: true,
		},
		"the API server does not respond": {patch: errors.New("away"), wantErr: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := newFaultyReconciler(
				t,
				interceptor.Funcs{Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
					return tt.patch
				}},
				tainted(gateTaint("example.com/a")),
			)
			got, err := r.sweep()
			if got != tt.want || (err != nil) != tt.wantErr {
				t.Errorf("%+v, %v, want %+v and an error: %v", got, err, tt.want, tt.wantErr)
			}
		})
	}
}

// Without a list of NodeJobs, nothing counts as orphaned.
func TestNothingIsRemovedWithoutAListOfNodeJobs(t *testing.T) {
	broken := false
	r := newFaultyReconciler(
		t,
		interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			if broken {
				return errors.New("away")
			}
			return c.List(ctx, l, opts...)
		}},
		tainted(gateTaint("example.com/a")),
	)
	broken = true
	if _, err := r.sweep(); err == nil || len(r.node("n").Spec.Taints) != 1 {
		t.Errorf("the taints are %v (%v)", r.node("n").Spec.Taints, err)
	}
}

func TestANodeJobChangeChecksItsNodesForOrphans(t *testing.T) {
	other := tainted(gateTaint("ns.everynode.dev/other"))
	other.Name = "other"
	r := newReconciler(t, tainted(gateTaint("ns.everynode.dev/gone")), other, called("other", gated))
	requests := orphanCollector{r.writer}.jobChanged(t.Context(), called("gone", gated))
	if len(requests) != 1 || requests[0].Name != "n" {
		t.Errorf("it looks at %v, want n", requests)
	}
	for name, tt := range map[string]struct {
		got, want bool
	}{
		"it is created":      {claimsChanged.Create(event.CreateEvent{Object: liveJob()}), false},
		"its status changes": {claimsChanged.Update(event.UpdateEvent{ObjectOld: liveJob(), ObjectNew: liveJob(at1("rev"))}), false},
		"its spec changes":   {claimsChanged.Update(event.UpdateEvent{ObjectOld: liveJob(), ObjectNew: liveJob(func(j *v1alpha1.NodeJob) { j.Generation++ })}), true},
		"it is deleted":      {claimsChanged.Delete(event.DeleteEvent{Object: liveJob()}), true},
	} {
		if tt.got != tt.want {
			t.Errorf("%s triggers a check: %v, want %v", name, tt.got, tt.want)
		}
	}
}

// A manager that starts checks each node: almost none has anything orphaned.
func TestANodeWithNothingOfOursCostsNothing(t *testing.T) {
	r := newFaultyReconciler(
		t,
		interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			t.Error("something is listed")
			return nil
		}},
	)
	if (orphanCollector{r.writer}).mayHaveOrphans(t.Context(), watchedNode()) {
		t.Error("the node is checked")
	}
}
