// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/internal/testing/clitest"
	"github.com/everynode/everynode/internal/ui/podlog"
)

// stream serves a dashboard, and returns the lines of an answer until the context ends or the answer does.
func stream(ctx context.Context, t *testing.T, d *dashboard, path string) *json.Decoder {
	t.Helper()
	server := httptest.NewServer(d.handler())
	t.Cleanup(server.Close)
	d.host = strings.TrimPrefix(server.URL, "http://")
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+d.token)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = answer.Body.Close() })
	if answer.StatusCode != http.StatusOK {
		t.Fatalf("answer %d", answer.StatusCode)
	}
	return json.NewDecoder(answer.Body)
}

func TestATabFollowsTheState(t *testing.T) {
	d, _ := serve(t)
	d.After = func(time.Duration) <-chan time.Time { return nil }
	ctx, cancel := context.WithCancel(t.Context())
	got := stream(ctx, t, d, "/api/stream?since=0")
	next := func() (c change) {
		if err := got.Decode(&c); err != nil {
			t.Fatal(err)
		}
		return c
	}
	if c := next(); c.Version != 0 || c.Reset {
		t.Errorf("before anything is known: %+v", c)
	}
	d.state.replace(values("a", "1"))
	if c := next(); c.Version != 1 || !c.Reset || len(c.Set) != 1 {
		t.Errorf("first state: %+v", c)
	}
	d.state.replace(values("b", "1"))
	if c := next(); c.Version != 2 || c.Reset || len(c.Set) != 1 || len(c.Gone) != 1 {
		t.Errorf("second state: %+v", c)
	}
	cancel()
	d.tabs <- struct{}{} // the tab gives its place back
	for range maxTabs - 1 {
		d.tabs <- struct{}{}
	}
}

func TestALogIsFollowedUntilItsTaskEnds(t *testing.T) {
	pod := clitest.Pod("p", "a", corev1.PodRunning)
	reads := 0
	d, _ := local(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != clitest.PodsPath+"/p/log" {
			t.Errorf("request of %s", r.URL)
		}
		_, _ = w.Write([]byte(clitest.LogLine(1, "<b>one\x1b[2J\n")))
		if reads++; reads == 1 { // the kubelet restarts, and the task ends before the log is opened again
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{
				{Name: "task", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}},
			}
			return
		}
		_, _ = w.Write([]byte(clitest.LogLine(2, "two\n")))
	})
	d.mirrors.pods.items = map[client.ObjectKey]*corev1.Pod{{Namespace: "ns", Name: "p"}: pod}
	got := stream(t.Context(), t, d, "/api/log?namespace=ns&pod=p")
	for _, want := range []logLine{{Line: `<b>one\x1b[2J`}, {Line: "two"}, {End: "the attempt has ended"}} {
		var line logLine
		if err := got.Decode(&line); err != nil || line != want {
			t.Errorf("line %+v, want %+v: %v", line, want, err)
		}
	}
}

// TestALogEndsWithTheWatchesOfItsSession : the page must not show it as live.
func TestALogEndsWithTheWatchesOfItsSession(t *testing.T) {
	d, _ := serve(t)
	d.mirrors.pods.items = map[client.ObjectKey]*corev1.Pod{{Namespace: "ns", Name: "p"}: clitest.Pod("p", "a", corev1.PodRunning)}
	ctx, end := context.WithCancel(t.Context())
	end()
	w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
	d.serveLog(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/api/log?namespace=ns&pod=p", nil))
	if !strings.Contains(w.Body.String(), logStopped) {
		t.Errorf("the log ends with %s", w.Body)
	}
}

func TestTooManyLogsAreRefused(t *testing.T) {
	d, request := serve(t)
	d.mirrors.pods.items = map[client.ObjectKey]*corev1.Pod{{Namespace: "ns", Name: "p"}: clitest.Pod("p", "a", corev1.PodRunning)}
	for range maxLogs {
		d.logs <- struct{}{}
	}
	got := request("/api/log?namespace=ns&pod=p", func(*http.Request) {})
	if got.Code != http.StatusServiceUnavailable || !strings.Contains(got.Body.String(), "8 logs are open already: close one of them") {
		t.Errorf("answer %d: %s", got.Code, got.Body)
	}
}

func TestWhyALogEnds(t *testing.T) {
	for name, test := range map[string]struct {
		deleted bool
		err     error
		want    string
	}{
		"the stream ends again and again": {false, podlog.ErrEndsAgain, "the log ends again and again while its container runs"},
		"an error again and again":        {false, http.ErrHandlerTimeout, "the log cannot be read: http: Handler timeout"},
		"the task has ended":              {false, nil, "the attempt has ended"},
		"the pod is deleted":              {true, nil, "the attempt has ended, and its pod is deleted"},
		"the same after an error":         {true, http.ErrHandlerTimeout, "the attempt has ended, and its pod is deleted"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := endOfLog(test.deleted, test.err); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}
