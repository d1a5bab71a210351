// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/testing/clitest"
	"github.com/everynode/everynode/internal/ui/cmdutil"
	"github.com/everynode/everynode/internal/ui/podlog"
)

// logServer is a fake API server with the NodeJob j, some pods and nodes, and logs.
type logServer struct {
	mu   sync.Mutex
	pods []*corev1.Pod
	// nodes maps the nodes to their records for j.
	nodes map[string]*record.Record
	// opened are the logs that were opened, with the sinceTime of the request.
	opened []string
	// log answers the n-th request for a log.
	log func(w http.ResponseWriter, pod string, n int)
	// over reports whether the NodeJob has no further output.
	over func(*logServer) bool
}

func (s *logServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	path := r.URL.Path
	name, isPod := strings.CutPrefix(path, clitest.PodsPath+"/")
	pod, isLog := strings.CutSuffix(name, "/log")
	switch {
	case isLog:
		s.opened = append(s.opened, strings.TrimSuffix(pod+" since "+r.URL.Query().Get("sinceTime"), " since "))
		s.log(w, pod, len(s.opened))
	case isPod:
		i := slices.IndexFunc(s.pods, func(p *corev1.Pod) bool { return p.Name == name })
		if i < 0 {
			clitest.RespondError(w, http.StatusNotFound, metav1.StatusReasonNotFound, "no such pod")
			return
		}
		clitest.Respond(w, s.pods[i])
	case path == clitest.PodsPath:
		list := corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
		for _, p := range s.pods {
			list.Items = append(list.Items, *p)
		}
		clitest.Respond(w, list)
	case path == clitest.NodesPath:
		list := metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"}}
		for name, rec := range s.nodes {
			node := metav1.PartialObjectMetadata{
				TypeMeta:   metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"},
				ObjectMeta: metav1.ObjectMeta{Name: name},
			}
			if rec != nil {
				record.SetOn(&node, jobKey, *rec)
			}
			list.Items = append(list.Items, node)
		}
		clitest.Respond(w, list)
	case path == clitest.JobsPath+"/j":
		job := clitest.NodeJob("j")
		if s.over(s) {
			meta.SetStatusCondition(
				&job.Status.Conditions,
				metav1.Condition{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Reason: "NodesFailed"},
			)
		}
		clitest.Respond(w, job)
	default:
		clitest.RespondError(w, http.StatusNotFound, metav1.StatusReasonNotFound, "not found")
	}
}

func TestALogThatBreaksOffContinuesWithoutRepeatedLines(t *testing.T) {
	pod := clitest.Pod("p", "node-1", corev1.PodRunning)
	s := &logServer{
		pods:  []*corev1.Pod{pod},
		nodes: map[string]*record.Record{"node-1": nil},
		over:  func(s *logServer) bool { return len(s.opened) > 0 },
	}
	s.log = func(w http.ResponseWriter, _ string, n int) {
		lines := func(lines ...string) { _, _ = io.WriteString(w, strings.Join(lines, "\n")) }
		switch n {
		case 1:
			lines(
				clitest.LogLine(900, "one"),
				clitest.LogLine(1200, "more"),
				clitest.LogLine(1500, "two"),
				clitest.LogLine(1500, "two"),
				clitest.LogLine(1700, "thr"),
			)
			clitest.BreakOff(w) // with the API server
		case 2:
			clitest.RespondError(
				w,
				http.StatusInternalServerError,
				metav1.StatusReasonInternalError,
				"dial tcp 10.0.0.1:10250: connect: connection refused",
			)
		case 3:
			lines(
				clitest.LogLine(1200, "more"),
				clitest.LogLine(1500, "two"),
				clitest.LogLine(1500, "two"),
				clitest.LogLine(1700, "three"),
				clitest.LogLine(1600, "late"),
				"",
			)
			// In good order, as when the kubelet is told to end.
		case 4:
			lines(
				clitest.LogLine(1200, "more"),
				clitest.LogLine(1500, "two"),
				clitest.LogLine(1500, "two"),
				clitest.LogLine(1700, "three"),
				clitest.LogLine(1600, "late"),
				clitest.LogLine(1700, "four"),
				"",
			)
			pod.Status.Phase = corev1.PodSucceeded
		default:
			lines(
				clitest.LogLine(1200, "more"),
				clitest.LogLine(1500, "two"),
				clitest.LogLine(1500, "two"),
				clitest.LogLine(1700, "three"),
				clitest.LogLine(1600, "late"),
				clitest.LogLine(1700, "four"),
				clitest.LogLine(2100, "five"),
				clitest.LogLine(2200, "six has no end"),
			)
		}
	}
	f, out, errs := clitest.NewFactory(t, s)
	if code := command(t, f, "logs", "j", "-f"); code != cmdutil.ExitOK {
		t.Errorf("exit code %d, and %s", code, errs)
	}
	var want strings.Builder
	for _, line := range []string{"one", "more", "two", "two", "three", "late", "four", "five", "six has no end"} {
		fmt.Fprintf(&want, "node-1 | %s\n", line)
	}
	if diff := cmp.Diff(want.String(), out.String()); diff != "" {
		t.Errorf("standard output (-want +got):\n%s", diff)
	}
	const second = " since 2026-07-01T12:30:01Z"
	const next = " since 2026-07-01T12:30:02Z"
	if diff := cmp.Diff([]string{"p", "p" + second, "p" + second, "p" + second, "p" + second, "p" + next}, s.opened); diff != "" {
		t.Errorf("what was opened (-want +got):\n%s", diff)
	}
}

// TestALogThatCannotBeReadIsSkipped checks that the other logs are still printed.
func TestALogThatCannotBeReadIsSkipped(t *testing.T) {
	deaf, fine := clitest.Pod("deaf", "node-1", corev1.PodRunning), clitest.Pod("fine", "node-2", corev1.PodSucceeded)
	s := &logServer{
		pods:  []*corev1.Pod{deaf, fine},
		nodes: map[string]*record.Record{"node-1": nil, "node-2": nil},
		over:  func(*logServer) bool { return true },
	}
	s.log = func(w http.ResponseWriter, pod string, _ int) {
		if pod == "deaf" {
			clitest.RespondError(w, http.StatusInternalServerError, metav1.StatusReasonInternalError, "no route to host")
			return
		}
		_, _ = io.WriteString(w, clitest.LogLine(0, "fine")+"\n")
	}
	f, out, errs := clitest.NewFactory(t, s)
	if code := command(t, f, "logs", "j", "-f"); code != cmdutil.ExitOK || out.String() != "node-2 | fine\n" {
		t.Errorf("exit code %d, and %q", code, out)
	}
	if want := "-- node-1: the log of pod deaf cannot be read: no route to host\n"; errs.String() != want ||
		len(s.opened) != podlog.Tries+2 {
		t.Errorf("after %d requests the message is %q, want %q", len(s.opened), errs, want)
	}
}

// TestFailedSelectsTheLogsToFollow expects the next attempts on nodes whose last attempt failed, and failed pods.
func TestFailedSelectsTheLogsToFollow(t *testing.T) {
	failed := func(pod string) *record.Record {
		return &record.Record{
			Revision: "new",
			Outcome:  record.Failed,
			Attempts: 1,
			Message:  "of " + pod,
			PodUID:   clitest.Pod(pod, "", "").UID,
		}
	}
	s := &logServer{
		pods: []*corev1.Pod{
			clitest.Pod(
				"again",
				"node-1",
				corev1.PodRunning,
			),
			clitest.Pod("first", "node-2", corev1.PodRunning),
			clitest.Pod("fails", "node-3", corev1.PodFailed),
			clitest.Pod("done", "node-4", corev1.PodSucceeded),
		},
		nodes: map[string]*record.Record{
			"node-1": failed("before"), "node-2": nil, "node-3": nil,
			"node-4": {Revision: "new", Outcome: record.Succeeded, Attempts: 1, PodUID: clitest.Pod("done", "", "").UID},
		},
		over: func(s *logServer) bool { return len(s.opened) > 0 },
	}
	s.log = func(w http.ResponseWriter, pod string, _ int) {
		if len(s.opened) == 1 {
			s.pods = append(s.pods, clitest.Pod("late", "node-5", corev1.PodRunning)) // there is no node with this name
		}
		s.pods[0].Status.Phase = corev1.PodSucceeded
		_, _ = io.WriteString(w, clitest.LogLine(0, "log of "+pod)+"\n")
	}
	f, out, errs := clitest.NewFactory(t, s)
	if code := command(t, f, "logs", "j", "--failed", "-f"); code != cmdutil.ExitOK {
		t.Errorf("exit code %d, and %s", code, errs)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	slices.Sort(lines)
	if diff := cmp.Diff([]string{"node-1 | log of again", "node-1 | of before", "node-3 | log of fails"}, lines); diff != "" {
		t.Errorf("standard output (-want +got):\n%s", diff)
	}
	for _, opened := range s.opened {
		if pod, _, _ := strings.Cut(opened, " "); pod != "again" && pod != "fails" {
			t.Errorf("the log of %s was opened", pod)
		}
	}
}
