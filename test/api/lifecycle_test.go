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
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
)

var noFaults = interceptor.Funcs{}

func mergePatch(body string) client.Patch {
	return client.RawPatch(types.MergePatchType, []byte(body))
}

func TestASuccessIsRecordedAndItsPodIsGone(t *testing.T) {
	w := newWorld(t)
	writes := &writeCounter{}
	startManager(t, writes.funcs())
	w.node("a-1")
	w.job("once", nil)
	pod := w.podOn("a-1")
	if got := pod.Spec.AutomountServiceAccountToken; got == nil || *got {
		t.Error("the task's pod mounts a service account token")
	}
	w.end(pod, 0, `{"exitCode":0,"message":"fine","results":{"kernel":"6.1"}}`)
	rec := w.Done("once", "a-1")
	if rec.Attempts != 1 || rec.Results["kernel"] != "6.1" || rec.MachineID != "machine-of-a-1" || rec.PodUID != pod.UID {
		t.Errorf("the record is %+v", rec)
	}
	w.NoPods()
	w.Condition("once", v1alpha1.ConditionComplete, metav1.ConditionTrue, v1alpha1.ReasonAllNodesDone)
	w.Condition("once", v1alpha1.ConditionReconciling, metav1.ConditionFalse, "")
	if got := writes.perRun(); got != "create pods: 1, delete pods: 1, patch nodes: 1, patch pods: 1" {
		t.Errorf("a successful run cost %s", got)
	}
}

// TestAPodThatIsThereAlreadyIsAdopted drops the response to the creation of the pod, and lets the manager retry before
// any watch shows the pod.
func TestAPodThatIsThereAlreadyIsAdopted(t *testing.T) {
	w := newWorld(t)
	var creations atomic.Int32
	startManager(
		t,
		interceptor.Funcs{Create: func(ctx context.Context, next client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if pod, isPod := o.(*corev1.Pod); isPod && creations.Add(1) == 1 {
				if err := next.Create(ctx, pod.DeepCopy(), opts...); err != nil {
					return err
				}
			}
			return next.Create(ctx, o, opts...)
		}},
	)
	w.node("adopts-1")
	w.job("adopts", nil)
	pod := w.podOn("adopts-1")
	w.end(pod, 0, "")
	if rec := w.Done("adopts", "adopts-1"); rec.PodUID != pod.UID || rec.Attempts != 1 {
		t.Errorf("the record is %+v", rec)
	}
	w.NoPods()
	if got := creations.Load(); got != 1 {
		t.Errorf("the manager made %d pods, want 1", got)
	}
}

// writeCounter counts the writes that one run costs; those of the NodeJob itself are few and its own.
type writeCounter struct {
	mu     sync.Mutex
	counts map[string]int
}

func (c *writeCounter) add(verb string, o client.Object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil {
		c.counts = map[string]int{}
	}
	c.counts[fmt.Sprintf("%s %T", verb, o)]++
}

func (c *writeCounter) perRun() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprintf("create pods: %d, delete pods: %d, patch nodes: %d, patch pods: %d",
		c.counts["create *v1.Pod"], c.counts["delete *v1.Pod"], c.counts["patch *v1.Node"], c.counts["patch *v1.Pod"])
}

func (c *writeCounter) funcs() interceptor.Funcs {
	return interceptor.Funcs{
		Create: func(ctx context.Context, next client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			c.add("create", o)
			return next.Create(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, next client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			c.add("patch", o)
			return next.Patch(ctx, o, p, opts...)
		},
		Delete: func(ctx context.Context, next client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			c.add("delete", o)
			return next.Delete(ctx, o, opts...)
		},
	}
}

func TestANodeThatJoinsLaterRunsTheTask(t *testing.T) {
	w := newWorld(t)
	startManager(t, noFaults)
	w.job("later", nil)
	w.Condition("later", v1alpha1.ConditionComplete, metav1.ConditionUnknown, v1alpha1.ReasonNoMatchingNodes)
	w.Condition("later", v1alpha1.ConditionReconciling, metav1.ConditionFalse, "")
	w.node("joins-1")
	w.end(w.podOn("joins-1"), 0, "")
	w.Done("later", "joins-1")
}

func TestRemovingTheLabelRunsTheTaskAgain(t *testing.T) {
	w := newWorld(t)
	startManager(t, noFaults)
	w.node("again-1")
	w.job("again", nil)
	first := w.podOn("again-1")
	w.end(first, 0, "")
	w.Done("again", "again-1")
	w.NoPods()

	key := v1alpha1.RecordKey(w.Namespace, "again")
	must(t, admin.Patch(w.Ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "again-1"}},
		mergePatch(fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, key))))
	second := w.podOn("again-1")
	if second.UID == first.UID {
		t.Fatal("the first pod is still there")
	}
	w.end(second, 0, "")
	if rec := w.Done("again", "again-1"); rec.PodUID != second.UID {
		t.Errorf("the record is of pod %s, want %s", rec.PodUID, second.UID)
	}
}

func TestAFailureIsRetriedUpToTheLimitWithEventsOnNodeJobAndNode(t *testing.T) {
	w := newWorld(t)
	startManager(t, noFaults)
	w.node("fails-1")
	w.job("fails", func(s *v1alpha1.NodeJobSpec) { s.Retry.Limit = new(int32(1)) })
	for attempt := int32(1); attempt <= 2; attempt++ {
		pod := w.podOn("fails-1")
		if got := pod.Annotations[v1alpha1.AttemptAnnotation]; got != fmt.Sprint(attempt) {
			t.Fatalf("this is attempt %s, want %d", got, attempt)
		}
		w.end(pod, 7, `{"exitCode":7,"reason":"TaskFailed","message":"no space\u001b[2J left"}`)
		w.Eventually("the failure is recorded", func() error {
			if rec := w.On("fails", "fails-1").Record; rec == nil || rec.Attempts != attempt {
				return fmt.Errorf("the record is %+v", rec)
			}
			return nil
		})
	}
	on := w.On("fails", "fails-1")
	if on.Label != "" || on.Record.Outcome != record.Failed || *on.Record.ExitCode != 7 {
		t.Errorf("the node carries label %q and %+v", on.Label, on.Record)
	}
	c := w.Condition("fails", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonNodesFailed)
	wantText(
		t,
		c.Message,
		"fails-1: TaskFailed, exit code 7: no space",
		"kubectl annotate node NAME "+v1alpha1.RecordKey(w.Namespace, "fails")+"-",
	)
	if strings.ContainsRune(c.Message, '\x1b') {
		t.Error("a control character of the task reached the status")
	}
	w.NoPods()
	for kind, name := range map[string]string{"NodeJob": "fails", "Node": "fails-1"} {
		w.Eventually("an event on the "+kind+" tells it", func() error {
			var list eventsv1.EventList
			must(t, admin.List(w.Ctx, &list))
			for _, e := range list.Items {
				if e.Regarding.Kind == kind && e.Regarding.Name == name && e.Reason == v1alpha1.ReasonRetriesExhausted &&
					e.Type == corev1.EventTypeWarning {
					return nil
				}
			}
			return fmt.Errorf("%d events, none of them", len(list.Items))
		})
	}

	// The instruction in the message starts another run.
	must(t, admin.Patch(w.Ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "fails-1"}},
		mergePatch(fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, v1alpha1.RecordKey(w.Namespace, "fails")))))
	w.end(w.podOn("fails-1"), 0, "")
	w.Done("fails", "fails-1")
	w.Condition("fails", v1alpha1.ConditionComplete, metav1.ConditionTrue, "")
}

func TestDeletingForgetsOrRetainsTheRecords(t *testing.T) {
	for policy, wantPresent := range map[v1alpha1.DeletionPolicy]bool{v1alpha1.DeletionForget: false, v1alpha1.DeletionRetain: true} {
		t.Run(string(policy), func(t *testing.T) {
			w := newWorld(t)
			startManager(t, noFaults)
			first, second := strings.ToLower(string(policy))+"-1", strings.ToLower(string(policy))+"-2"
			w.node(first)
			job := w.job("leaves", func(s *v1alpha1.NodeJobSpec) { s.DeletionPolicy = policy })
			w.end(w.podOn(first), 0, "")
			w.Done("leaves", first)
			// The second node is in mid-run when the NodeJob goes.
			w.node(second)
			w.podOn(second)
			must(t, admin.Delete(w.Ctx, job))
			w.gone(job)
			w.noRunningTask()
			if on := w.On("leaves", first); on.Present != wantPresent {
				t.Errorf("the node carries %+v", on)
			}
		})
	}
}

// noRunningTask plays the kubelet that ends pods which are being deleted, and waits for none.
func (w *world) noRunningTask() {
	w.T.Helper()
	for _, pod := range w.Pods() {
		if pod.DeletionTimestamp.IsZero() || len(pod.Finalizers) > 0 {
			w.T.Errorf("pod %s stays, with finalizers %v", pod.Name, pod.Finalizers)
		}
		must(w.T, client.IgnoreNotFound(admin.Delete(w.Ctx, &pod, client.GracePeriodSeconds(0))))
	}
	w.NoPods()
}

func TestAPodWhoseNodeJobVanishedLosesItsFinalizer(t *testing.T) {
	w := newWorld(t)
	startManager(t, noFaults)
	w.node("vanish-1")
	job := w.job("vanishes", nil)
	w.podOn("vanish-1")
	// In one step, so that the manager cannot see the deletion first.
	must(t, admin.Patch(w.Ctx, job, mergePatch(`{"metadata":{"finalizers":null}}`)))
	must(t, admin.Delete(w.Ctx, job))
	w.Eventually("the pod has no finalizer", func() error {
		for _, pod := range w.Pods() {
			if len(pod.Finalizers) > 0 {
				return errors.New(pod.Name)
			}
		}
		return nil
	})
}

func TestSuspendStartsNothingAndRecordsWhatRuns(t *testing.T) {
	w := newWorld(t)
	startManager(t, noFaults)
	w.node("sus-1")
	w.node("sus-2")
	job := w.job("suspended", nil)
	pod := w.podOn("sus-1")
	must(t, admin.Patch(w.Ctx, job, mergePatch(`{"spec":{"suspend":true}}`)))
	w.Condition("suspended", v1alpha1.ConditionComplete, metav1.ConditionUnknown, v1alpha1.ReasonSuspended)
	w.end(pod, 0, "")
	w.Done("suspended", "sus-1")
	w.NoPods()
	must(t, admin.Patch(w.Ctx, job, mergePatch(`{"spec":{"suspend":false}}`)))
	w.end(w.podOn("sus-2"), 0, "")
	w.Done("suspended", "sus-2")
}

func TestNodeNamesThatShareTheirFirstLabelOrAreLongAreDifferentNodes(t *testing.T) {
	w := newWorld(t)
	startManager(t, noFaults)
	long := strings.Repeat("a", 61) + "." + strings.Repeat("b", 61) + "." + strings.Repeat("c", 61) + "." + strings.Repeat("d", 67)
	if len(long) != 253 {
		t.Fatalf("the long name has %d characters", len(long))
	}
	names := []string{"worker.zone-a.example", "worker.zone-b.example", long}
	for _, name := range names {
		w.node(name)
	}
	w.job(strings.Repeat("n", 63), func(s *v1alpha1.NodeJobSpec) { s.Rollout.MaxConcurrent = percent("100%") })
	podNames := map[string]bool{}
	for _, name := range names {
		pod := w.podOn(name)
		podNames[pod.Name] = true
		w.end(pod, 0, "")
		w.Done(strings.Repeat("n", 63), name)
	}
	if len(podNames) != len(names) {
		t.Errorf("the pods are %v", podNames)
	}
}

func TestAPodOfAnotherOwnerIsNotAnAttempt(t *testing.T) {
	w := newWorld(t)
	if err := admin.Get(w.Ctx, client.ObjectKey{Namespace: w.Namespace, Name: "none"}, &corev1.Pod{}); !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	startManager(t, noFaults)
	w.node("other-1")
	w.unprotected()
	// A pod with our label that has no owner must not be taken for an attempt.
	must(t, admin.Create(w.Ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "impostor", Labels: map[string]string{v1alpha1.NodeJobLabel: "mine"}},
		Spec:       corev1.PodSpec{NodeName: "other-1", Containers: []corev1.Container{{Name: "x", Image: "y"}}},
	}))
	w.job("mine", nil)
	w.Eventually("our own pod exists as well", func() error {
		if len(w.Pods()) != 2 {
			return fmt.Errorf("%d pods", len(w.Pods()))
		}
		return nil
	})
}

func TestPodsOfAPreviousNodeJobWithTheSameNameLoseTheirFinalizer(t *testing.T) {
	w := newWorld(t)
	stop := startManager(t, noFaults)
	w.node("heir-1")
	earlier := w.job("heir", nil)
	old := w.podOn("heir-1")
	stop()
	// A user removes the finalizer, and creates the NodeJob again, while no manager is running.
	must(t, admin.Patch(w.Ctx, earlier, mergePatch(`{"metadata":{"finalizers":null}}`)))
	must(t, admin.Delete(w.Ctx, earlier))
	w.gone(earlier)
	w.job("heir", nil)
	startManager(t, noFaults)
	w.Eventually("the finalizer of the old pod is removed", func() error {
		must(t, admin.Get(w.Ctx, client.ObjectKeyFromObject(old), old))
		if len(old.Finalizers) > 0 || old.DeletionTimestamp.IsZero() {
			return errors.New("it is held")
		}
		return nil
	})
	// There is no kubelet here that would end it.
	must(t, admin.Delete(w.Ctx, old, client.GracePeriodSeconds(0)))
	if pod := w.podOn("heir-1"); pod.UID == old.UID {
		t.Error("the old pod is still there")
	}
}

func TestARecreatedNodeJobWaitsForThePodOfThePreviousOne(t *testing.T) {
	w := newWorld(t)
	startManager(t, noFaults)
	w.node("recreated-job-1")
	earlier := w.job("recreated-job", nil)
	old := w.podOn("recreated-job-1")
	must(t, admin.Delete(w.Ctx, earlier))
	w.gone(earlier)
	// Its pod is being stopped: there is no kubelet here that would end it.
	w.job("recreated-job", nil)
	w.Eventually("the new NodeJob waits for it", func() error {
		c := w.Condition("recreated-job", v1alpha1.ConditionReconciling, metav1.ConditionTrue, "")
		if !strings.Contains(c.Message, "1 PodTerminating (recreated-job-1)") {
			return errors.New(c.Message)
		}
		return nil
	})
	if pods := w.Pods(); len(pods) != 1 || pods[0].UID != old.UID {
		t.Fatalf("there are %d pods, want the old one", len(pods))
	}
	must(t, admin.Delete(w.Ctx, old, client.GracePeriodSeconds(0)))
	if pod := w.podOn("recreated-job-1"); pod.UID == old.UID {
		t.Error("the old pod is still there")
	}
}

// TestARemovedFailureDoesNotReappear : the failed attempt's pod has not left its node yet.
func TestARemovedFailureDoesNotReappear(t *testing.T) {
	w := newWorld(t)
	startManager(t, noFaults)
	node := w.node("took-1")
	w.job("took", func(s *v1alpha1.NodeJobSpec) {
		s.Task.TimeoutSeconds = new(int32(1))
		s.Retry.Limit = new(int32(0))
	})
	pod := w.podOn("took-1")
	must(t, admin.Get(w.Ctx, client.ObjectKeyFromObject(node), node))
	node.Status.Conditions[0].Status = corev1.ConditionUnknown
	must(t, admin.Status().Update(w.Ctx, node))
	w.Condition("took", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonNodesFailed)
	w.Eventually("the finalizer of the pod is removed", func() error {
		must(t, admin.Get(w.Ctx, client.ObjectKeyFromObject(pod), pod))
		if len(pod.Finalizers) > 0 || pod.DeletionTimestamp.IsZero() {
			return errors.New("it is held")
		}
		return nil
	})
	must(
		t,
		admin.Patch(
			w.Ctx,
			node,
			mergePatch(fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, v1alpha1.RecordKey(w.Namespace, "took"))),
		),
	)
	w.Condition("took", v1alpha1.ConditionComplete, metav1.ConditionUnknown, v1alpha1.ReasonInProgress)
	must(t, admin.Get(w.Ctx, client.ObjectKeyFromObject(node), node))
	node.Status.Conditions[0].Status = corev1.ConditionTrue
	must(t, admin.Status().Update(w.Ctx, node))
	must(t, admin.Delete(w.Ctx, pod, client.GracePeriodSeconds(0)))
	w.end(w.podOn("took-1"), 0, "")
	w.Done("took", "took-1")
}
