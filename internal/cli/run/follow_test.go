// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli/term"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/testing/clitest"
	"github.com/everynode/everynode/internal/ui/cmdutil"
	"github.com/everynode/everynode/internal/ui/view"
)

func TestAFailedSuspensionIsReportedAndRetried(t *testing.T) {
	s := &jobServer{uid: "uid-of-another"} // every write is a conflict
	r := newRun(t, s)
	r.seen = true
	if r.signalled(t.Context(), os.Interrupt) {
		t.Error("the first Ctrl-C ends the command")
	}
	if said := r.note(); r.suspended || !strings.HasPrefix(said, "the NodeJob could not be suspended; retrying: ") {
		t.Errorf("it is suspended: %v, and says %q", r.suspended, said)
	}
	s.uid = "uid-of-j"
	if r.checkPeriodically(t.Context()) || !r.suspended || len(s.done) != 1 {
		t.Errorf("it is suspended: %v, by %v", r.suspended, s.done)
	}
	if said := r.note(); !strings.HasPrefix(said, "stopping: no new attempts start") {
		t.Errorf("it says %q", said)
	}
	r.checkPeriodically(t.Context())
	if len(s.done) != 1 {
		t.Errorf("the suspension was written again: %v", s.done)
	}
	if !r.signalled(t.Context(), os.Interrupt) {
		t.Error("the second Ctrl-C does not end the command")
	}
}

// TestAConnectionThatBreaksIsNoReasonToEnd checks that SIGPIPE, which the kernel also sends for a connection to an API
// server that has ended, does not end the command.
func TestAConnectionThatBreaksIsNoReasonToEnd(t *testing.T) {
	r := newRun(t, &jobServer{uid: "uid-of-j"})
	r.catchSignals()
	for _, sent := range []syscall.Signal{syscall.SIGPIPE, syscall.SIGTERM} {
		if err := syscall.Kill(os.Getpid(), sent); err != nil {
			t.Fatal(err)
		}
	}
	if got := <-r.signals; got != syscall.SIGTERM {
		t.Errorf("signal %v reaches the command", got)
	}
}

// TestAClosedOutputEndsTheCommand checks that the run goes on without a command whose output is not read.
func TestAClosedOutputEndsTheCommand(t *testing.T) {
	for name, tt := range map[string]struct {
		err  error
		want bool
	}{
		"a closed pipe": {syscall.EPIPE, true},
		"a full disk":   {syscall.ENOSPC, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRun(t, &jobServer{uid: "uid-of-j"})
			r.Out = failing{tt.err}
			r.display.printLines("node-1", []string{"said"})
			r.draw()
			if got := r.display.closed(); got != tt.want {
				t.Errorf("the output is closed: %v, want %v", got, tt.want)
			}
		})
	}
}

// TestAStopWithoutAManagerEndsTheRun checks that the command does not wait for attempts that no manager starts.
func TestAStopWithoutAManagerEndsTheRun(t *testing.T) {
	s := &jobServer{uid: "uid-of-j"}
	r := newRun(t, s)
	r.remove = false
	if r.signalled(t.Context(), os.Interrupt) || !r.atRest() || r.overNow() || r.rest == nil {
		t.Errorf("at rest: %t", r.atRest())
	}
	if said := r.note(); said != "stopping: no manager has observed the NodeJob, so nothing was started" {
		t.Errorf("it says %q", said)
	}
	err := r.end(t.Context(), endRest)
	said := r.ErrOut.(*clitest.Buffer).String()
	if code := cmdutil.CodeOf(err); code != cmdutil.ExitDetached || !slices.Equal(s.done, []string{"PATCH", "DELETE"}) ||
		!strings.Contains(said, "Nothing was run, and NodeJob j is deleted.") {
		t.Errorf("exit code %d after %v, and it says\n%s", code, s.done, said)
	}
	// If a manager observes the NodeJob after all, the command waits as usual.
	r = newRun(t, &jobServer{uid: "uid-of-j"})
	r.signalled(t.Context(), os.Interrupt)
	observed := r.job.DeepCopy()
	observed.Finalizers = []string{v1alpha1.NodeJobFinalizer}
	if r.observeJob(cmdutil.Observation{Job: observed}); r.atRest() {
		t.Error("it is at rest although a manager has observed it")
	}
}

// TestWaitingNodesDoNotRunLater checks that no attempt starts after the command has ended.
func TestWaitingNodesDoNotRunLater(t *testing.T) {
	s := &jobServer{uid: "uid-of-j"}
	r := newRun(t, s)
	r.view.Nodes[0].State, r.view.Nodes[1].State = view.RunSucceeded, view.RunFailed
	r.suspendWaitingNodes(t.Context())
	if r.suspended {
		t.Error("it is suspended although no node waits")
	}
	r.view.Nodes[1].State = view.RunWaiting
	r.suspendWaitingNodes(t.Context())
	if !r.suspended {
		t.Error("it is not suspended")
	}
}

// TestTheOutputOfARecordedAttemptIsAwaited covers a record that is observed before its pod: they have separate watches.
func TestTheOutputOfARecordedAttemptIsAwaited(t *testing.T) {
	r := newRun(t, &jobServer{})
	pods, err := r.Pods("ns")
	if err != nil {
		t.Fatal(err)
	}
	r.logs = newLogs(pods, r.parts, r.After)
	for i, pod := range []types.UID{"uid-of-a", ""} { // the second was recorded without a pod
		r.nodes[i].record, r.view.Nodes[i].State = &record.Record{PodUID: pod}, view.RunSucceeded
	}
	if r.allRead() {
		t.Error("all is read before the pod was observed")
	}
	pod := clitest.Pod("a", "node-1", corev1.PodSucceeded)
	r.observePod(endedContext(), pod, false)
	if r.allRead() {
		t.Error("all is read before the log was")
	}
	r.observeLog(logPart{pod: pod.UID, data: []byte("said\n")})
	r.observeLog(logPart{pod: pod.UID, end: true})
	if !r.allRead() || r.display.printed.String() != "node-1: said\n" {
		t.Errorf("all is read: %v, and %q printed", r.allRead(), r.display.printed.String())
	}
	r.nodes[0].last, r.logsForbidden = "", errors.New("forbidden")
	if !r.allRead() {
		t.Error("it waits for a log that it may not read")
	}
}

// TestAStoppedRunWaitsForTheOutput covers a run that has ended before all nodes: the outcome of the last attempt is recorded
// before the end of its log is read.
func TestAStoppedRunWaitsForTheOutput(t *testing.T) {
	for name, tt := range map[string]struct {
		observe func(*running)
		over    bool
	}{
		"the rest of the log is read": {func(r *running) { r.observeLog(logPart{pod: "uid-of-a", data: []byte("over\n"), end: true}) }, true},
		"it is not read":              {func(*running) {}, false},
		"another user resumes the run": {func(r *running) {
			r.observeLog(logPart{pod: "uid-of-a", end: true})
			r.observePod(endedContext(), clitest.Pod("b", "node-2", corev1.PodRunning), false)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRun(t, &jobServer{uid: "uid-of-j"})
			pods, err := r.Pods("ns")
			if err != nil {
				t.Fatal(err)
			}
			r.logs = newLogs(pods, r.parts, r.After)
			r.observePod(endedContext(), clitest.Pod("a", "node-1", corev1.PodSucceeded), false)
			r.observeLog(logPart{pod: "uid-of-a", data: []byte("begun\n")})
			r.nodes[0].record, r.view.Nodes[0].State = &record.Record{PodUID: "uid-of-a"}, view.RunSucceeded
			r.suspended, r.rested = true, true
			if r.overNow() || r.logsOver == nil {
				t.Error("it is over before the log was read")
			}
			if tt.observe(r); r.overNow() != tt.over || r.endingUnlessFinished(endRest) != endRest {
				t.Errorf("it is over: %v, as %v", !tt.over, r.endingUnlessFinished(endRest))
			}
		})
	}
}

// endedContext returns a context that has ended, so that no log is read: the test sends the pieces.
func endedContext() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// TestNotesAboutLogsAreWrittenAfterTheLiveView checks that the screen is not redrawn after a note.
func TestNotesAboutLogsAreWrittenAfterTheLiveView(t *testing.T) {
	r := newRun(t, &jobServer{uid: "uid-of-j"})
	r.display.screen = term.NewScreen(r.ErrOut, term.Terminal{Interactive: true, Size: func() (int, int) { return 80, 24 }})
	for i := range r.view.Nodes {
		r.view.Nodes[i].State = view.RunSucceeded
		r.nodes[i].record = &record.Record{PodUID: "uid-of-p", ExitCode: new(int32(0)), Message: "…the last line"}
	}
	r.draw()
	if err := r.end(t.Context(), endOver); err != nil {
		t.Fatal(err)
	}
	const note = "node-1: the log could not be read; on record is its end, of at most 1024 bytes\n"
	_, after, told := strings.Cut(r.ErrOut.(*clitest.Buffer).String(), note)
	if !told || strings.Contains(after, "\x1b") || !strings.HasPrefix(after, "node-2: the log could not be read") {
		t.Errorf("the notes are written: %v, and after the first one:\n%q", told, after)
	}
	if out := r.Out.(*clitest.Buffer).String(); out != "node-1: …the last line\nnode-2: …the last line\n" {
		t.Errorf("the output is %q", out)
	}
}

// TestADeletedNodeStaysDeleted covers a node that registers again with the same name after its end was reported. Its record
// does not count, because another machine may have the name.
func TestADeletedNodeStaysDeleted(t *testing.T) {
	r := newRun(t, &jobServer{uid: "uid-of-j"})
	node := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
	r.observeNode(node, true)
	again, encoded := node.DeepCopy(), record.Encode(record.Record{Revision: "new", Outcome: record.Succeeded, Attempts: 1})
	again.Annotations, again.Labels = map[string]string{r.key: encoded}, map[string]string{record.SealKey(r.key): record.Seal(encoded)}
	r.observeNodes(change{fresh: true, all: []client.Object{again}})
	for i, n := range r.view.Nodes {
		if n.State != view.RunDeleted || r.nodes[i].record != nil {
			t.Errorf("%s is in state %v: %s, with the record %+v", n.Name, n.State, n.Said, r.nodes[i].record)
		}
	}
	// A deletion after the end changes nothing either.
	r.view.Nodes[0].State = view.RunRunning
	r.observeNode(again, false)
	r.observeNode(again, true)
	if n := r.view.Nodes[0]; n.State != view.RunSucceeded {
		t.Errorf("%s is in state %v after its deletion", n.Name, n.State)
	}
}

// TestADeletionAfterTheLastNodeIsNotAFailure covers a NodeJob whose TTL has passed, or that a user deletes.
func TestADeletionAfterTheLastNodeIsNotAFailure(t *testing.T) {
	r := newRun(t, &jobServer{uid: "uid-of-j"})
	r.view.Nodes[0].State = view.RunSucceeded
	if how := r.endingUnlessFinished(endGone); r.exitCode(how) != cmdutil.ExitGone {
		t.Errorf("with a node left it ends with %d", r.exitCode(how))
	}
	r.view.Nodes[1].State = view.RunSucceeded
	if how := r.endingUnlessFinished(endGone); r.exitCode(how) != cmdutil.ExitOK {
		t.Errorf("with none left it ends with %d", r.exitCode(how))
	}
}
