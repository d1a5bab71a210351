// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
)

// writeLog is the order of the writes of a client. Its hold makes the deletions of pods wait.
type writeLog struct {
	mu     sync.Mutex
	writes []string
	hold   chan struct{}
	// deleting counts the deletions that wait.
	deleting int
	fail     bool
}

func (l *writeLog) add(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writes = append(l.writes, fmt.Sprintf(format, args...))
}

func (l *writeLog) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deleting
}

func (l *writeLog) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.writes)
}

func (l *writeLog) faults() interceptor.Funcs {
	kind := func(o client.Object) string {
		if _, ok := o.(*corev1.Pod); ok {
			return "pod " + o.GetName()
		}
		return "node " + o.GetName()
	}
	return interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if o.GetName() == "" || kind(o)[0] != 'p' {
				return c.Create(ctx, o, opts...)
			}
			l.add("create a pod")
			return nil
		},
		Patch: func(_ context.Context, _ client.WithWatch, o client.Object, _ client.Patch, _ ...client.PatchOption) error {
			l.add("patch %s", kind(o))
			return nil
		},
		Delete: func(ctx context.Context, _ client.WithWatch, o client.Object, _ ...client.DeleteOption) error {
			l.mu.Lock()
			hold, fail := l.hold, l.fail
			l.deleting++
			l.mu.Unlock()
			if hold != nil {
				select {
				case <-hold:
				case <-ctx.Done():
				}
			}
			l.add("delete %s", kind(o))
			if fail {
				return errors.New("denied by a webhook")
			}
			return nil
		},
	}
}

// runs runs the queue until the test or the returned function ends it.
func (r *fakeReconciler) runs() (stop func()) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := r.releasePods(ctx); err != nil {
			r.t.Error(err)
		}
	}()
	stop = sync.OnceFunc(func() { cancel(); <-ended })
	r.t.Cleanup(stop)
	r.eventually("the queue runs", func() bool {
		r.releases.mu.Lock()
		defer r.releases.mu.Unlock()
		return r.releases.runs
	})
	return stop
}

func (r *fakeReconciler) eventually(what string, is func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatalf("waiting until %s", what)
		}
	}
}

func endedPod(name string) plan.Pod {
	return plan.Pod{Name: name, UID: types.UID(name + "-uid"), Finalized: true, Phase: corev1.PodSucceeded, NodeName: name}
}

func recordFor(name string) plan.Record {
	return plan.Record{
		Node: name,
		Pod:  endedPod(name),
		Change: record.Change{
			UID:    types.UID(name),
			Key:    "ns.everynode.dev/job",
			Record: &record.Record{Revision: "rev", Outcome: record.Succeeded},
		},
	}
}

// TestByUrgency covers the order of the writes of a pass.
func TestByUrgency(t *testing.T) {
	actions := []plan.Action{
		plan.RetainPod{},
		plan.FinalizePod{},
		plan.Evict{},
		plan.Claim{},
		plan.Start{},
		plan.FinalizePod{Awaited: true},
		plan.PatchNode{},
		plan.Stop{},
		plan.Record{},
	}
	want := []string{
		"plan.Record", "plan.FinalizePod", "plan.PatchNode", "plan.Stop", "plan.Start", "plan.Claim", "plan.Evict", "plan.RetainPod",
		"plan.FinalizePod",
	}
	var got []string
	for _, group := range byUrgency(actions) {
		for _, action := range group {
			got = append(got, fmt.Sprintf("%T", action))
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

// TestNoWriteWaitsForReleases covers writes of two passes, while the releases of pods hang.
func TestNoWriteWaitsForReleases(t *testing.T) {
	job := liveJob()
	log := &writeLog{hold: make(chan struct{})}
	r := newFaultyReconciler(t, log.faults(), job, watchedNode())
	stop := r.runs()
	seen, err := r.observe(t.Context(), job, nil)
	if err != nil {
		t.Fatal(err)
	}
	actions := []plan.Action{
		plan.FinalizePod{Pod: endedPod("old")},
		plan.Start{Attempt: task.Attempt{Phase: task.Task, Revision: "rev", Number: 1, NodeName: "n", NodeUID: "node-uid"}},
		plan.PatchNode{Node: "gated", Reason: v1alpha1.ReasonGateClosed},
		recordFor("done"),
	}
	for range 2 { // the second pass contains the pods that are not released yet
		if _, err := r.apply(t.Context(), seen, plan.Plan{Actions: actions}); err != nil {
			t.Fatal(err)
		}
		actions = []plan.Action{plan.FinalizePod{Pod: endedPod("old")}, plan.FinalizePod{Pod: endedPod("done")}}
	}
	got := log.all()
	slices.Sort(got)
	if diff := cmp.Diff([]string{"create a pod", "patch node done", "patch node gated"}, got); diff != "" {
		t.Errorf("writes while the deletions of pods hang (-want +got):\n%s", diff)
	}
	if pending := testutil.ToFloat64(r.Metrics.releases); pending != 2 {
		t.Errorf("%v releases are pending, want 2", pending)
	}
	close(log.hold)
	stop()
	got = log.all()[3:]
	slices.Sort(got)
	if diff := cmp.Diff([]string{"delete pod done", "delete pod old", "patch pod done", "patch pod old"}, got); diff != "" {
		t.Errorf("writes after that (-want +got):\n%s", diff)
	}
	if pending := testutil.ToFloat64(r.Metrics.releases); pending != 0 {
		t.Errorf("%v releases are pending in the end, want none", pending)
	}
}

// TestReleasesBesidePasses covers how many pods are released at a time: never none.
func TestReleasesBesidePasses(t *testing.T) {
	log := &writeLog{hold: make(chan struct{})}
	r := newFaultyReconciler(t, log.faults())
	r.runs()
	r.releases.passBegins()
	for i := range 40 {
		if err := r.releaseLater(t.Context(), release{job: liveJob(), pod: endedPod(fmt.Sprint(i))}); err != nil {
			t.Fatal(err)
		}
	}
	r.eventually("some are released beside a pass", func() bool { return log.count() == besidePasses })
	r.releases.passEnds()
	r.eventually("more are released after it", func() bool { return log.count() == maxParallelWrites })
	close(log.hold)
	r.eventually("all are released", func() bool { return r.releases.idle() })
	if n := log.count(); n != 40 {
		t.Errorf("%d pods are deleted, want 40", n)
	}
}

// atOnce returns how many more pods the queue lets be released now.
func (q *releases) atOnce() int {
	n := 0
	for _, ok := q.next(); ok; _, ok = q.next() {
		n++
	}
	return n
}

func queued(n int) *releases {
	q := newReleases(NewMetrics(prometheus.NewRegistry()).releases)
	q.setRuns(true)
	for i := range n {
		q.add(release{pod: endedPod(fmt.Sprint(i))})
	}
	return q
}

// TestReleasesCatchUp covers passes that write all the time.
func TestReleasesCatchUp(t *testing.T) {
	for pods, want := range map[int]int{1: 1, 10: 1, 1100: 2, 20000: maxParallelWrites} {
		q := queued(pods)
		q.passBegins()
		if n := q.atOnce(); n != want {
			t.Errorf("%d of %d are released at a time, want %d", n, pods, want)
		}
	}
}

// TestReleasesBetweenPasses covers passes that follow each other: what they write goes before releases, also between them.
func TestReleasesBetweenPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := queued(100)
		for range 3 {
			q.passBegins()
			q.passEnds()
			time.Sleep(afterPasses / 2)
		}
		if n := q.atOnce(); n != besidePasses {
			t.Errorf("%d are released at a time between passes, want %d", n, besidePasses)
		}
		<-q.changed
		time.Sleep(afterPasses / 2)
		synctest.Wait()
		if len(q.changed) == 0 {
			t.Error("the queue does not look again after the last pass")
		}
		if n := q.atOnce(); n != maxParallelWrites-besidePasses {
			t.Errorf("%d more are released after the passes, want %d", n, maxParallelWrites-besidePasses)
		}
	})
}

// TestAnAwaitedReleaseIsMadeAtOnce covers a node that waits for a pod that is queued.
func TestAnAwaitedReleaseIsMadeAtOnce(t *testing.T) {
	log := &writeLog{}
	r := newFaultyReconciler(t, log.faults())
	r.releases.setRuns(true) // and nothing runs it
	seen := observation{job: liveJob()}
	for _, awaited := range []bool{false, true} {
		if _, err := r.apply(
			t.Context(),
			seen,
			plan.Plan{Actions: []plan.Action{plan.FinalizePod{Pod: endedPod("n"), Awaited: awaited}}},
		); err != nil {
			t.Fatal(err)
		}
		if got := len(log.all()) > 0; got != awaited {
			t.Errorf("awaited %v: released %v", awaited, got)
		}
	}
	if !r.releases.idle() {
		t.Error("it is still queued")
	}
}

// TestAReleaseThatFailsIsPlannedAgain covers a webhook that denies the deletion of pods.
func TestAReleaseThatFailsIsPlannedAgain(t *testing.T) {
	log := &writeLog{fail: true}
	r := newFaultyReconciler(t, log.faults())
	r.runs()
	next := release{job: liveJob(), pod: endedPod("n")}
	for range 3 {
		if err := r.releaseLater(t.Context(), next); err != nil {
			t.Fatal(err)
		}
		r.eventually("it is idle", func() bool { return r.releases.idle() })
	}
	if n := log.count(); n != 1 {
		t.Errorf("it is tried %d times at once, want once", n)
	}
	select {
	case e := <-r.wake:
		if e.Object.GetName() != "job" {
			t.Errorf("%s is planned again", e.Object.GetName())
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the NodeJob is not planned again")
	}
	if got := r.told.events(); len(got) != 1 {
		t.Errorf("events %q, want one", got)
	}
	if err := r.releaseLater(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	r.eventually("it is tried again", func() bool { return log.count() == 2 })
}

// TestAPassLeavesPodsToTheNextPass covers a NodeJob with many nodes: what has ended is recorded before all pods exist.
func TestAPassLeavesPodsToTheNextPass(t *testing.T) {
	job := liveJob()
	log := &writeLog{}
	r := newFaultyReconciler(t, log.faults(), job, watchedNode())
	seen, err := r.observe(t.Context(), job, nil)
	if err != nil {
		t.Fatal(err)
	}
	var steps atomic.Int64
	r.Now = func() time.Time { return noon.Add(time.Duration(steps.Add(1)) * leastStarts / 2) }
	var actions []plan.Action
	for i := range 20 {
		actions = append(
			actions,
			plan.Start{Attempt: task.Attempt{Phase: task.Task, Revision: "rev", Number: int32(i), NodeName: "n", NodeUID: "node-uid"}},
		)
	}
	did, err := r.apply(t.Context(), seen, plan.Plan{Actions: actions})
	if err != nil || !did.more || did.refused {
		t.Errorf("%+v, %v, want more to do", did, err)
	}
	if n := len(log.all()); n < 1 || n > 4 {
		t.Errorf("%d pods are created, want a few", n)
	}
}

// TestNoReleaseIsLostWhenTheManagerEnds covers a release that hangs while the manager ends.
func TestNoReleaseIsLostWhenTheManagerEnds(t *testing.T) {
	pod := livePod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
	r := newReconciler(t, pod)
	stop := r.runs()
	if err := r.releaseLater(t.Context(), release{job: liveJob(), pod: viewPod(seenPod{Pod: pod})}); err != nil {
		t.Fatal(err)
	}
	stop()
	var live corev1.Pod
	if err := r.Client.Get(
		t.Context(),
		client.ObjectKeyFromObject(pod),
		&live,
	); err == nil &&
		slices.Contains(live.Finalizers, v1alpha1.PodFinalizer) {
		t.Errorf("it still has the finalizers %v", live.Finalizers)
	}
	if err := r.releaseLater(
		t.Context(),
		release{job: &v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}}, pod: endedPod("other")},
	); err != nil {
		t.Errorf("without a queue, pods are released at once: %v", err)
	}
}

// TestAPodIsReleasedOnce covers a plan that was made before the pod was released, and is applied after that.
func TestAPodIsReleasedOnce(t *testing.T) {
	job := liveJob()
	log := &writeLog{}
	r := newFaultyReconciler(t, log.faults(), job, watchedNode())
	r.runs()
	seen, err := r.observe(t.Context(), job, nil)
	if err != nil {
		t.Fatal(err)
	}
	ended := plan.Plan{Actions: []plan.Action{plan.FinalizePod{Pod: endedPod("done")}}}
	for range 2 {
		if _, err := r.apply(t.Context(), seen, ended); err != nil {
			t.Fatal(err)
		}
		r.eventually("the pod is released", r.releases.idle)
		r.written.forgetPod("done-uid") // the cache shows that it is deleted
	}
	if diff := cmp.Diff([]string{"delete pod done", "patch pod done"}, log.all()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
}
