// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
)

func percent(s string) *intstr.IntOrString { v := intstr.FromString(s); return &v }

func TestAManagerKilledWhileATaskRunsRepeatsNothing(t *testing.T) {
	w := newWorld(t)
	stop := startManager(t, noFaults)
	w.node("crash-1")
	w.job("crash", nil)
	pod := w.podOn("crash-1")
	stop()
	w.end(pod, 0, "")
	startManager(t, noFaults)
	if rec := w.Done("crash", "crash-1"); rec.PodUID != pod.UID || rec.Attempts != 1 {
		t.Errorf("the record is %+v, want that of pod %s", rec, pod.UID)
	}
	w.NoPods()
}

func TestAFinishedPodDeletedByHandWhileNoManagerIsThereLosesNothing(t *testing.T) {
	w := newWorld(t)
	stop := startManager(t, noFaults)
	w.node("hand-1")
	w.job("by-hand", nil)
	pod := w.podOn("hand-1")
	stop()
	w.end(pod, 0, `{"exitCode":0,"results":{"a":"b"}}`)
	must(t, admin.Delete(w.Ctx, pod, client.GracePeriodSeconds(0)))
	startManager(t, noFaults)
	if rec := w.Done("by-hand", "hand-1"); rec.PodUID != pod.UID || rec.Results["a"] != "b" {
		t.Errorf("the record is %+v", rec)
	}
	w.NoPods()
}

// TestACrashBetweenAnyTwoWritesLosesAndRepeatsNothing ends the manager before and after each write of a run in turn,
// and continues with a new manager.
func TestACrashBetweenAnyTwoWritesLosesAndRepeatsNothing(t *testing.T) {
	for _, cut := range []struct {
		name  string
		write int32
		after bool
	}{
		{"before the pod is made", 1, false}, {"after the pod is made", 1, true},
		{"before the record", 2, false}, {"after the record", 2, true},
		{"before the finalizer is removed", 3, false}, {"after the finalizer is removed", 3, true},
		{"before the pod is deleted", 4, false}, {"after the pod is deleted", 4, true},
	} {
		t.Run(cut.name, func(t *testing.T) {
			w := newWorld(t)
			dead := &deadline{write: cut.write, after: cut.after, died: make(chan struct{})}
			stop := startManager(t, dead.funcs())
			node := "cut-" + w.Namespace
			w.node(node)
			w.job("cut", nil)
			var pod *corev1.Pod
			if cut.write > 1 {
				pod = w.podOn(node)
				w.end(pod, 0, "")
			}
			select {
			case <-dead.died:
			case <-w.Ctx.Done():
				t.Fatal("the write never came")
			}
			stop()
			startManager(t, noFaults)
			if cut.write == 1 {
				pod = w.podOn(node)
				w.end(pod, 0, "")
			}
			if rec := w.Done("cut", node); rec.PodUID != pod.UID || rec.Attempts != 1 {
				t.Errorf("the record is %+v, want that of pod %s", rec, pod.UID)
			}
			w.NoPods()
			w.Condition("cut", v1alpha1.ConditionComplete, metav1.ConditionTrue, "")
		})
	}
}

// deadline fails the n-th write of pods and nodes and all later ones, as if the process had ended. With
// after, that write itself succeeds, and only its response is lost.
type deadline struct {
	write  int32
	after  bool
	writes atomic.Int32
	died   chan struct{}
}

var errDead = errors.New("the manager is dead")

func (d *deadline) do(o client.Object, write func() error) error {
	switch o.(type) {
	case *corev1.Pod, *corev1.Node:
	default:
		return write()
	}
	n := d.writes.Add(1)
	if n < d.write {
		return write()
	}
	if n > d.write {
		return errDead
	}
	defer close(d.died)
	if d.after {
		if err := write(); err != nil {
			return err
		}
	}
	return errDead
}

func (d *deadline) funcs() interceptor.Funcs {
	return interceptor.Funcs{
		Create: func(ctx context.Context, next client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return d.do(o, func() error { return next.Create(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, next client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return d.do(o, func() error { return next.Patch(ctx, o, p, opts...) })
		},
		Delete: func(ctx context.Context, next client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return d.do(o, func() error { return next.Delete(ctx, o, opts...) })
		},
	}
}

func TestWritesThatFailAreRetried(t *testing.T) {
	w := newWorld(t)
	// Each kind of write fails twice, in two ways, before it works.
	var mu sync.Mutex
	tries := map[string]int{}
	flaky := func(verb string, o client.Object, write func() error) error {
		mu.Lock()
		kind := fmt.Sprintf("%s %T", verb, o)
		tries[kind]++
		n := tries[kind]
		mu.Unlock()
		switch n % 3 {
		case 1:
			return apierrors.NewConflict(
				v1alpha1.GroupVersion.WithResource("x").GroupResource(),
				"x",
				errors.New("another client was faster"),
			)
		case 2:
			return apierrors.NewInternalError(errors.New("etcd does not respond"))
		}
		return write()
	}
	startManager(t, interceptor.Funcs{
		Create: func(ctx context.Context, next client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return flaky("create", o, func() error { return next.Create(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, next client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return flaky("patch", o, func() error { return next.Patch(ctx, o, p, opts...) })
		},
		Delete: func(ctx context.Context, next client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return flaky("delete", o, func() error { return next.Delete(ctx, o, opts...) })
		},
	})
	w.node("flaky-1")
	w.job("flaky", nil)
	pod := w.podOn("flaky-1")
	w.end(pod, 0, "")
	if rec := w.Done("flaky", "flaky-1"); rec.PodUID != pod.UID {
		t.Errorf("the record is %+v", rec)
	}
	w.NoPods()
}

// TestADeniedWriteIsToldByAnEvent covers a webhook that denies the record. The other nodes continue.
func TestADeniedWriteIsToldByAnEvent(t *testing.T) {
	w := newWorld(t)
	var allowed atomic.Bool
	startManager(t, interceptor.Funcs{
		Patch: func(ctx context.Context, next client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if o.GetName() == "denied-1" && !allowed.Load() {
				return apierrors.NewForbidden(corev1.Resource("nodes"), o.GetName(), errors.New("denied by policy x"))
			}
			return next.Patch(ctx, o, p, opts...)
		},
	})
	w.node("denied-1")
	w.node("denied-2")
	w.job("denied", func(s *v1alpha1.NodeJobSpec) { s.Rollout.MaxConcurrent = percent("100%") })
	pod := w.podOn("denied-1")
	w.end(pod, 0, "")
	w.end(w.podOn("denied-2"), 0, "")
	w.Done("denied", "denied-2")
	w.Eventually("an event reports it", func() error {
		var list eventsv1.EventList
		must(t, admin.List(w.Ctx, &list, client.InNamespace(w.Namespace)))
		for _, e := range list.Items {
			if e.Reason == v1alpha1.ReasonWriteFailed && strings.Contains(e.Note, "recording on node denied-1") &&
				strings.Contains(e.Note, "denied by policy x") {
				return nil
			}
		}
		return fmt.Errorf("%d events, none of them", len(list.Items))
	})
	allowed.Store(true)
	if rec := w.Done("denied", "denied-1"); rec.PodUID != pod.UID {
		t.Errorf("the record is %+v", rec)
	}
}

func TestANodeDeletedInMidRunLeavesNothing(t *testing.T) {
	w := newWorld(t)
	startManager(t, noFaults)
	node := w.node("deleted-1")
	w.job("deleted", nil)
	pod := w.podOn("deleted-1")
	must(t, admin.Delete(w.Ctx, node))
	w.Eventually("the finalizer of the pod is removed", func() error {
		live := &corev1.Pod{}
		if err := admin.Get(w.Ctx, client.ObjectKeyFromObject(pod), live); err != nil {
			return client.IgnoreNotFound(err)
		}
		if len(live.Finalizers) > 0 || live.DeletionTimestamp.IsZero() {
			return errors.New("the finalizer still exists")
		}
		return nil
	})
	w.Condition("deleted", v1alpha1.ConditionComplete, metav1.ConditionUnknown, v1alpha1.ReasonNoMatchingNodes)
}

func TestARecreatedNodeRunsTheTask(t *testing.T) {
	w := newWorld(t)
	startManager(t, noFaults)
	node := w.node("recreated-1")
	w.job("recreated", nil)
	first := w.podOn("recreated-1")
	w.end(first, 0, "")
	w.Done("recreated", "recreated-1")
	w.NoPods()
	must(t, admin.Delete(w.Ctx, node))
	w.node("recreated-1")
	second := w.podOn("recreated-1")
	if second.Name == first.Name {
		t.Errorf("both pods are called %s", first.Name)
	}
	w.end(second, 0, "")
	if rec := w.Done("recreated", "recreated-1"); rec.PodUID != second.UID {
		t.Errorf("the record is %+v", rec)
	}
}

func TestAnotherMachineUnderTheSameNodeRunsTheTaskAgain(t *testing.T) {
	w := newWorld(t)
	startManager(t, noFaults)
	node := w.node("image-1")
	w.job("image", nil)
	w.end(w.podOn("image-1"), 0, "")
	w.Done("image", "image-1")
	w.NoPods()
	must(t, admin.Get(w.Ctx, client.ObjectKeyFromObject(node), node))
	node.Status.NodeInfo.MachineID = "another"
	must(t, admin.Status().Update(w.Ctx, node))
	w.end(w.podOn("image-1"), 0, "")
	w.Eventually("the new machine is on record", func() error {
		if rec := w.Done("image", "image-1"); rec.MachineID != "another" {
			return errors.New(rec.MachineID)
		}
		return nil
	})
}

// TestAContainerRuntimeThatForgotAnExitCodeLosesNothing covers a task that restarts containerd and ends while
// containerd is not running. The pod is Failed with code 255, but the outcome of the task is recorded.
func TestAContainerRuntimeThatForgotAnExitCodeLosesNothing(t *testing.T) {
	w := newWorld(t)
	startManager(t, noFaults)
	forgotten := func(pod *corev1.Pod, message string) {
		now := metav1.Now()
		pod.Status.Phase = corev1.PodFailed
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: pod.Spec.Containers[0].Name,
			State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				ExitCode: 255, Reason: "Unknown", Message: message, StartedAt: now, FinishedAt: now,
			}},
		}}
		must(t, admin.Status().Update(w.Ctx, pod))
	}
	w.node("forgot-1")
	w.job("success", nil)
	pod := w.podOn("forgot-1")
	forgotten(pod, `{"exitCode":0,"results":{"restarted":"yes"}}`)
	if rec := w.Done("success", "forgot-1"); rec.PodUID != pod.UID || *rec.ExitCode != 0 || rec.Results["restarted"] != "yes" {
		t.Errorf("the record is %+v", rec)
	}
	w.NoPods()

	w.job("failure", nil)
	forgotten(w.podOn("forgot-1"), `{"exitCode":3,"reason":"TaskFailed"}`)
	w.Eventually("the task's own exit code is recorded", func() error {
		if rec := w.On("failure", "forgot-1").Record; rec == nil || rec.Outcome != record.Failed || *rec.ExitCode != 3 {
			return fmt.Errorf("the record is %+v", rec)
		}
		return nil
	})

	w.job("silence", nil)
	w.Eventually("a pod without an outcome is a disruption", func() error {
		for _, pod := range w.Pods() {
			if pod.Labels[v1alpha1.NodeJobLabel] == "silence" && pod.Status.Phase == corev1.PodPending {
				forgotten(&pod, "")
			}
		}
		if rec := w.On("silence", "forgot-1").Record; rec == nil || rec.Outcome != record.Disrupted || rec.Attempts != 0 {
			return fmt.Errorf("the record is %+v", rec)
		}
		return nil
	})
}
