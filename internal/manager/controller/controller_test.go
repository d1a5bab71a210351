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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/manager/loop"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/observe"
)

func TestViewNode(t *testing.T) {
	node := watchedNode()
	node.CreationTimestamp = at(1)
	node.Spec.Unschedulable = true
	node.Annotations = map[string]string{
		v1alpha1.CordonedAnnotation:  "b.everynode.dev/x,a.everynode.dev/x",
		v1alpha1.PublishedAnnotation: `{"labels":{"x":"a.everynode.dev/x"}}`,
	}
	want := plan.Node{
		Name: "n", UID: "node-uid", Created: noon.Add(time.Second), ResourceVersion: "1", Labels: node.Labels, Taints: node.Spec.Taints,
		Annotations:   node.Annotations,
		Unschedulable: true, CordonedBy: []string{"a.everynode.dev/x", "b.everynode.dev/x"},
		Ready: corev1.ConditionTrue, BootID: "boot", MachineID: "machine",
	}
	got := observe.Node(node)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("node (-want +got):\n%s", diff)
	}
}

// The status contains the state of a rollout: the next pass must see what the previous one
// has written, even if it follows at once.
func TestAPassSeesTheStatusThatThePreviousPassHasWritten(t *testing.T) {
	job := liveJob()
	var cached *v1alpha1.NodeJob
	behind := interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if live, ok := o.(*v1alpha1.NodeJob); ok && cached != nil {
				cached.DeepCopyInto(live)
				return nil
			}
			return c.Get(ctx, key, o, opts...)
		},
	}
	r := newFaultyReconciler(t, behind, job, watchedNode())
	name := client.ObjectKeyFromObject(job)
	first, err := r.newest(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	cached = first.DeepCopy()
	if _, err := r.pass(t.Context(), first, nil); err != nil {
		t.Fatal(err)
	}
	second, err := r.newest(t.Context(), name)
	if err != nil || second.Status.Rollout == nil || second.Status.Rollout.Step == "" {
		t.Fatalf("it sees %+v (%v), want the started step", second.Status, err)
	}

	changed := second.DeepCopy()
	changed.Spec.Suspend = true
	if err := r.Client.Update(t.Context(), changed); err != nil {
		t.Fatal(err)
	}
	cached = changed
	if third, err := r.newest(t.Context(), name); err != nil || !third.Spec.Suspend {
		t.Errorf("a later change by a user is not seen (%v)", err)
	}
}

// A new leader fills its caches one after the other: a NodeJob that is not in the cache yet is not deleted,
// and its pods are not orphans.
func TestANodeJobThatIsNotCachedYetIsNotDeleted(t *testing.T) {
	for _, exists := range []bool{true, false} {
		job := liveJob()
		blind := interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				if _, ok := o.(*v1alpha1.NodeJob); ok {
					return apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("nodejobs").GroupResource(), key.Name)
				}
				return c.Get(ctx, key, o, opts...)
			},
		}
		live := newReconciler(t, job)
		r := newFaultyReconciler(t, blind)
		r.Reader = live.Client
		if err := r.warmUp(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !exists {
			job.Finalizers = nil
			if err := live.Client.Update(t.Context(), job); err != nil {
				t.Fatal(err)
			}
			live.delete(job)
		}
		got, err := r.newest(t.Context(), client.ObjectKeyFromObject(job))
		if err != nil || (got != nil) != exists {
			t.Errorf("found: %v (%v), want %v", got != nil, err, exists)
		}
		if got == nil {
			if err := r.cleanUpDeleted(
				t.Context(),
				client.ObjectKeyFromObject(job),
			); err != nil ||
				r.written.knowsJob(client.ObjectKeyFromObject(job)) {
				t.Errorf("it is remembered although it is deleted (%v)", err)
			}
		}
	}
}

// The last leader may make two more requests while a new one fills its memory: it records an attempt, and then releases its pod. The
// new one must see the record or the pod, or it would start the attempt again.
func TestANewLeaderSeesTheRecordOrThePod(t *testing.T) {
	job, node, pod := liveJob(), watchedNode(), livePod(func(p *corev1.Pod) { p.Spec.NodeName = "n" })
	node.Name, pod.ResourceVersion = "n", ""
	last := newReconciler(t, job, node, pod)
	lists := 0
	r := newFaultyReconciler(
		t,
		interceptor.Funcs{List: func(ctx context.Context, _ client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			err := last.Client.List(ctx, list, opts...)
			if _, jobs := list.(*v1alpha1.NodeJobList); jobs {
				return err
			}
			if lists++; lists == 1 {
				live := last.node("n")
				record.SetOn(live, "ns.everynode.dev/job", record.Record{Revision: "rev", Outcome: record.Succeeded, Attempts: 1})
				if err := last.Client.Update(ctx, live); err != nil {
					t.Fatal(err)
				}
				released := pod.DeepCopy()
				released.Finalizers = nil
				if err := last.Client.Update(ctx, released); err != nil {
					t.Fatal(err)
				}
				last.delete(released)
			}
			return err
		}},
	)
	r.listNodes = func(context.Context) ([]*corev1.Node, error) { return []*corev1.Node{node}, nil } // the cache is behind
	if err := r.warmUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	seen := r.written.node(node)
	pods, _ := r.written.podsOf(job.UID, nil, noon)
	if on := record.Read(seen.Labels, seen.Annotations, "ns.everynode.dev/job"); on.Record == nil && len(pods) == 0 {
		t.Error("it sees neither the record nor the pod")
	}
}

// failedNode has the record of a failed node.
func recordedNode(outcome record.Outcome) *corev1.Node {
	node := watchedNode()
	node.Labels, node.Annotations = nil, nil
	record.SetOn(
		node,
		"ns.everynode.dev/job",
		record.Record{Revision: "rev", Outcome: outcome, Attempts: 1, PodUID: "gone", FinishedAt: noon},
	)
	return node
}

func undone(j *v1alpha1.NodeJob) {
	now := at(0)
	j.DeletionTimestamp = &now
	j.Spec.DeletionPolicy, j.Spec.Rollback = v1alpha1.DeletionRollback, &v1alpha1.RollbackSpec{
		ScriptBlock: v1alpha1.ScriptBlock{Script: "undo"},
	}
}

func TestADeletionThatRollsBackIsReported(t *testing.T) {
	job := liveJob(undone)
	r := newReconciler(t, job, recordedNode(record.Succeeded))
	if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(job)}); err != nil {
		t.Fatal(err)
	}
	var live v1alpha1.NodeJob
	if err := r.Client.Get(t.Context(), client.ObjectKeyFromObject(job), &live); err != nil {
		t.Fatal(err)
	}
	c := meta.FindStatusCondition(live.Status.Conditions, v1alpha1.ConditionReconciling)
	if c == nil || c.Status != metav1.ConditionTrue || c.Reason != v1alpha1.ReasonRollingBack {
		t.Errorf("the status is %+v", live.Status)
	}
}

// No pod can be created in a terminating namespace: the NodeJob must not block its deletion.
func TestADeletionInATerminatingNamespaceDoesNotHang(t *testing.T) {
	job := liveJob(undone)
	refuse := interceptor.Funcs{Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
		err := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "job-0123456789", errors.New("it is being terminated"))
		err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
		return err
	}}
	r := newFaultyReconciler(t, refuse, job, recordedNode(record.Succeeded))
	name := client.ObjectKeyFromObject(job)
	for range 5 {
		result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: name})
		if err != nil {
			t.Fatal(err)
		}
		err = r.Client.Get(t.Context(), name, &v1alpha1.NodeJob{})
		if apierrors.IsNotFound(err) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if result.RequeueAfter == 0 && record.Read(nil, r.node("n").Annotations, "ns.everynode.dev/job").Present {
			t.Fatal("nothing wakes it, and its records still exist")
		}
	}
	t.Error("it is still there")
}

func TestAPassWithAConflictIsRepeatedSoon(t *testing.T) {
	job := liveJob(func(j *v1alpha1.NodeJob) {
		j.Spec.OnFailure.Action = v1alpha1.FailureActionCordon
		j.Spec.Retry.Limit = new(int32(0))
	})
	node := watchedNode()
	r := newFaultyReconciler(t, raced(), job, node)
	seen, err := r.observe(t.Context(), job, nil)
	if err != nil {
		t.Fatal(err)
	}
	node = r.node("n")
	record.SetOn(
		node,
		"ns.everynode.dev/job",
		record.Record{Revision: seen.input.Revision, Outcome: record.Failed, Attempts: 1, PodUID: "gone", FinishedAt: noon},
	)
	delete(node.Labels, "ns.everynode.dev/job")
	if err := r.Client.Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(job)})
	if err != nil || result.RequeueAfter != loop.Soon {
		t.Errorf("%+v (%v), want another pass after %v", result, err, loop.Soon)
	}
}
