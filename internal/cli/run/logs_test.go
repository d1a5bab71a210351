// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/testing/clitest"
)

// TestLogsAreRetriedWhileTheAPIServerDoesNotRespond covers retries: an API server gets more of them than a kubelet.
func TestLogsAreRetriedWhileTheAPIServerDoesNotRespond(t *testing.T) {
	const failures = 50
	tests := map[string]struct {
		refusal func(http.ResponseWriter)
		want    string
		opened  int32
	}{
		"the API server does not respond": {func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, "one\ntwo\n", failures + 3},
		"the API server cannot reach the kubelet": {func(w http.ResponseWriter) {
			clitest.RespondError(w, http.StatusInternalServerError, metav1.StatusReasonInternalError, "no route to host")
		}, "one\n", unreadableTries + 1},
		"the pod is deleted": {func(w http.ResponseWriter) {
			clitest.RespondError(w, http.StatusNotFound, metav1.StatusReasonNotFound, "no such pod")
		}, "one\n", 2},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var opened atomic.Int32
			r := newRun(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				switch n := opened.Add(1); {
				case n == 1:
					_, _ = io.WriteString(w, clitest.LogLine(0, "one")+"\n")
					clitest.BreakOff(w)
				case n <= failures+1:
					tt.refusal(w)
				default:
					_, _ = io.WriteString(w, clitest.LogLine(0, "one")+"\n"+clitest.LogLine(1, "two")+"\n")
				}
			}))
			pods, err := r.Pods("ns")
			if err != nil {
				t.Fatal(err)
			}
			l := newLogs(pods, r.parts, r.After)
			l.see(t.Context(), clitest.Pod("p", "node-1", corev1.PodSucceeded))
			var got strings.Builder
			for part := range r.parts {
				if got.Write(part.data); part.end {
					break
				}
			}
			if got.String() != tt.want || opened.Load() != tt.opened {
				t.Errorf("after %d times it has read %q, want %q after %d", opened.Load(), &got, tt.want, tt.opened)
			}
		})
	}
}

// TestAStreamThatEndsEarlyIsReadAgain covers a kubelet that restarts: the stream ends without an error while the container
// runs. The rest is read even if the end of the container is observed before the log is opened again.
func TestAStreamThatEndsEarlyIsReadAgain(t *testing.T) {
	for name, tt := range map[string]struct {
		again  func(http.ResponseWriter)
		want   string
		opened int32
	}{
		"the pod has ended": {func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, clitest.LogLine(0, "one")+"\n"+clitest.LogLine(1, "two")+"\n")
		}, "one\ntwo\n", 3},
		"the pod is deleted": {func(w http.ResponseWriter) {
			clitest.RespondError(w, http.StatusNotFound, metav1.StatusReasonNotFound, "no such pod")
		}, "one\n", 2},
	} {
		t.Run(name, func(t *testing.T) {
			var opened atomic.Int32
			var l *logs
			pod := clitest.Pod("p", "node-1", corev1.PodRunning)
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{
				{Name: "task", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
			}
			r := newRun(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if opened.Add(1) > 1 {
					tt.again(w)
					return
				}
				_, _ = io.WriteString(w, clitest.LogLine(0, "one")+"\n")
				terminated := pod.DeepCopy()
				terminated.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
				l.see(t.Context(), terminated)
			}))
			pods, err := r.Pods("ns")
			if err != nil {
				t.Fatal(err)
			}
			l = newLogs(pods, r.parts, func(time.Duration) <-chan time.Time { return nil })
			l.see(t.Context(), pod)
			var got strings.Builder
			for part := range r.parts {
				if got.Write(part.data); part.end {
					if part.err != nil {
						t.Error(part.err)
					}
					break
				}
			}
			if got.String() != tt.want || opened.Load() != tt.opened {
				t.Errorf("after %d times it has read %q, want %q after %d", opened.Load(), &got, tt.want, tt.opened)
			}
		})
	}
}
