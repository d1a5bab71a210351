// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/manager/controller"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/seal"
)

// skews are how far a clock is ahead of the API server's.
var skews = map[string]time.Duration{"hours behind": -3 * time.Hour, "hours ahead": 3 * time.Hour}

// endAt reports the end of a pod with the credential of its kubelet, at a time of the node's clock.
func (w *world) endAt(pod *corev1.Pod, code int32, at time.Time) {
	w.T.Helper()
	live := &corev1.Pod{}
	must(w.T, admin.Get(w.Ctx, client.ObjectKeyFromObject(pod), live))
	setEnd(live, code, "")
	ended := live.Status.ContainerStatuses[0].State.Terminated
	ended.StartedAt, ended.FinishedAt = metav1.NewTime(at), metav1.NewTime(at)
	live.Status.StartTime = &ended.StartedAt
	must(w.T, w.kubeletOf(pod.Spec.NodeName).Status().Update(w.Ctx, live))
}

// recordedSince fails unless an end was recorded between then and now, by the API server's clock.
func (w *world) recordedSince(then time.Time, rec record.Record) {
	w.T.Helper()
	// The manager knows the API server's time to within a second, and rounds up.
	if earliest, latest := then.Add(
		-time.Second,
	), time.Now().
		Add(2*time.Second); rec.RecordedAt.Before(earliest) ||
		rec.RecordedAt.After(latest) {
		w.T.Errorf("it was recorded at %s, want between %s and %s", rec.RecordedAt, earliest, latest)
	}
}

func TestTimesOfANodeWhoseClockIsWrongDelayNothingAndStartNothingEarly(t *testing.T) {
	for name, skew := range skews {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			startManager(t, noFaults)
			made := w.podsMade()
			node := w.node(w.Namespace + "-1").Name
			w.job("skewed", func(s *v1alpha1.NodeJobSpec) {
				s.Retry.BackoffSeconds = new(int32(4))
				s.Rerun.PeriodSeconds = 3600
			})
			before := time.Now()
			w.endAt(w.podOf(node, task.Task), 1, before.Add(skew))
			failed := w.outcome("skewed", node, record.Failed)
			w.recordedSince(before, failed)

			second := w.podOf(node, task.Task)
			earliest := before.Add(4 * time.Second).Truncate(time.Second)
			if got := second.CreationTimestamp.Time; got.Before(earliest) || got.After(earliest.Add(4*time.Second)) {
				t.Errorf("the second attempt began at %s, want %s or a little later", got, earliest)
			}
			before = time.Now()
			w.endAt(second, 0, before.Add(skew))
			w.recordedSince(before, w.Done("skewed", node))
			w.Condition("skewed", v1alpha1.ConditionComplete, metav1.ConditionTrue, "")
			w.nodeJoins(w.Namespace + "-2") // the manager has planned with the success by now
			if diff := cmp.Diff([]string{"task 1", "task 2"}, made(node)); diff != "" {
				t.Errorf("a schedule of an hour has the node run: %s", diff)
			}
		})
	}
}

// TestAManagerWhoseClockIsWrongEndsAnAttemptOnceAndInTime : it knows the time from the answers of the API server.
func TestAManagerWhoseClockIsWrongEndsAnAttemptOnceAndInTime(t *testing.T) {
	for name, skew := range skews {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			cacheOptions, err := controller.CacheOptions(seal.Key{})
			must(t, err)
			stop, err := runManager(asManager, cacheOptions, noFaults, nil, func() time.Time { return time.Now().Add(skew) })
			must(t, err)
			t.Cleanup(func() { must(t, stop()) })
			made := w.podsMade()
			node := w.node(w.Namespace + "-1").Name
			w.job("slow", func(s *v1alpha1.NodeJobSpec) {
				s.Task.TimeoutSeconds = new(int32(2))
				s.Retry.Limit = new(int32(0))
			})
			pod := w.podOf(node, task.Task)
			w.Eventually("the manager ends the attempt", func() error {
				must(t, admin.Get(w.Ctx, client.ObjectKeyFromObject(pod), pod))
				if pod.DeletionTimestamp.IsZero() {
					return fmt.Errorf("it runs since %s", pod.CreationTimestamp)
				}
				return nil
			})
			// The API server sets the time of a deletion to its end: the grace period is over by then.
			asked := pod.DeletionTimestamp.Add(-time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second)
			if ran := asked.Sub(pod.CreationTimestamp.Time); ran < 11*time.Second {
				t.Errorf("it was ended after %s, want 2 s and the time that the runner has to end it", ran)
			}
			before := time.Now()
			w.endAt(pod, 137, before)
			rec := w.outcome("slow", node, record.Failed)
			w.recordedSince(before, rec)
			if rec.Reason != v1alpha1.ReasonDeadlineExceeded || rec.Attempts != 1 || rec.Disruptions != 0 {
				t.Errorf("the record is %+v", rec)
			}
			w.Condition("slow", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonNodesFailed)
			w.nodeJoins(w.Namespace + "-2") // the manager has planned with the failure by now
			if diff := cmp.Diff([]string{"task 1"}, made(node)); diff != "" {
				t.Errorf("pods on the node: %s", diff)
			}
		})
	}
}
