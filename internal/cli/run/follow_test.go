// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/cli/clitest"
	"github.com/everynode/everynode/internal/cli/cmdutil"
	"github.com/everynode/everynode/internal/cli/view"
	"github.com/everynode/everynode/internal/record"
)

func TestAFailedSuspensionIsReportedAndRetried(t *testing.T) {
	s := &jobServer{uid: "uid-of-another"} // every write is a conflict
	r := newRun(t, s)
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
		r.records[i], r.view.Nodes[i].State = &record.Record{PodUID: pod}, view.RunSucceeded
	}
	if r.allRead() {
		t.Error("all is read before the pod was observed")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // no log is read: the test sends the pieces
	pod := clitest.Pod("a", "node-1", corev1.PodSucceeded)
	r.observePod(ctx, pod, false)
	if r.allRead() {
		t.Error("all is read before the log was")
	}
	r.observeLog(logPart{pod: pod.UID, data: []byte("said\n")})
	r.observeLog(logPart{pod: pod.UID, end: true})
	if !r.allRead() || r.printed.String() != "node-1: said\n" {
		t.Errorf("all is read: %v, and %q printed", r.allRead(), r.printed.String())
	}
	r.last[0], r.logsForbidden = "", errors.New("forbidden")
	if !r.allRead() {
		t.Error("it waits for a log that it may not read")
	}
}

// TestADeletionAfterTheLastNodeIsNotAFailure covers a NodeJob whose TTL has passed, or that a user deletes.
func TestADeletionAfterTheLastNodeIsNotAFailure(t *testing.T) {
	r := newRun(t, &jobServer{uid: "uid-of-j"})
	r.view.Nodes[0].State = view.RunSucceeded
	if how := r.endingWhenGone(); r.exitCode(how) != cmdutil.ExitGone {
		t.Errorf("with a node left it ends with %d", r.exitCode(how))
	}
	r.view.Nodes[1].State = view.RunSucceeded
	if how := r.endingWhenGone(); r.exitCode(how) != cmdutil.ExitOK {
		t.Errorf("with none left it ends with %d", r.exitCode(how))
	}
}
