// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/internal/testing/clitest"
	"github.com/everynode/everynode/internal/ui/cmdutil"
	"github.com/everynode/everynode/internal/ui/view"
)

// TestARunThatHasEndedStartsNothing checks that the NodeJob is suspended with the result, unless the run continues without the
// command or the NodeJob is deleted anyway.
func TestARunThatHasEndedStartsNothing(t *testing.T) {
	suspend := []string{`{"metadata":{"uid":"uid-of-j"},"spec":{"suspend":true}}`}
	const kept = "NodeJob j is kept for 1h0m0s: kubectl everynode status j -n ns\n"
	for name, tt := range map[string]struct {
		how    ending
		remove bool
		server jobServer
		bodies []string
		said   string
		code   int
	}{
		"all nodes have ended":          {how: endOver, server: jobServer{uid: "uid-of-j"}, bodies: suspend, said: kept},
		"the NodeJob is at rest":        {how: endRest, server: jobServer{uid: "uid-of-j"}, bodies: suspend, said: kept},
		"the command ends, not the run": {how: endDetached, server: jobServer{uid: "uid-of-j"}, said: "The run continues without this command.", code: cmdutil.ExitDetached},
		"the command waited too long":   {how: endTimedOut, server: jobServer{uid: "uid-of-j"}, said: "The run continues without this command.", code: cmdutil.ExitTimedOut},
		"it was deleted":                {how: endGone, server: jobServer{uid: "uid-of-j"}, code: cmdutil.ExitGone},
		"another one has its name":      {how: endOver, server: jobServer{uid: "uid-of-another"}, said: kept},
		"the user may not": {
			how: endOver, server: jobServer{uid: "uid-of-j", refuses: true},
			said: "NodeJob j could not be suspended: not you. Until 2026-07-01 13:00:00 UTC, a machine that registers with the name of one of its nodes runs the command. " +
				"To prevent this: kubectl everynode suspend j -n ns. " + kept,
		},
		"with --rm, and the user may not": {
			how: endOver, remove: true, server: jobServer{uid: "uid-of-j", refuses: true},
			said: "NodeJob j could not be deleted: not you. Delete it with: kubectl delete nodejob j -n ns. NodeJob j could not be suspended: not you.",
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := tt.server
			r := newRun(t, &server, func(o *options) { o.remove, o.startingDeadline = tt.remove, time.Hour })
			r.job.CreationTimestamp = metav1.NewTime(time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC))
			for i := range r.view.Nodes {
				r.view.Nodes[i].State = view.RunSucceeded
			}
			if code := cmdutil.CodeOf(r.end(t.Context(), tt.how)); code != tt.code {
				t.Errorf("exit code %d", code)
			}
			if diff := cmp.Diff(tt.bodies, server.bodies); diff != "" {
				t.Errorf("what it wrote (-want +got):\n%s", diff)
			}
			if said := r.ErrOut.(*clitest.Buffer).String(); !strings.Contains(said, tt.said) ||
				(tt.said == kept && strings.Contains(said, "could not")) {
				t.Errorf("no %q in\n%s", tt.said, said)
			}
		})
	}
}

// TestAMachineWithTheNameOfADeletedNodeIsNoNodeOfTheRun checks that the names of deleted nodes are removed from the NodeJob, also
// if the run has ended there, and that a NodeJob without names, which would select all nodes, is never written.
func TestAMachineWithTheNameOfADeletedNodeIsNoNodeOfTheRun(t *testing.T) {
	node := func(name string, uid types.UID) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid}}
	}
	both := []client.Object{node("node-1", "uid-1"), node("node-2", "uid-2")}
	const without1, suspend = `{"metadata":{"uid":"uid-of-j"},"spec":{"nodes":{"names":["node-2"]}}}`, `{"metadata":{"uid":"uid-of-j"},"spec":{"suspend":true}}`
	for name, tt := range map[string]struct {
		changes []change
		state   view.RunState
		bodies  []string
		want    view.RunState
	}{
		"nothing happens":             {[]change{{fresh: true, all: both}, {one: both[0]}}, view.RunWaiting, nil, view.RunWaiting},
		"a node is deleted":           {[]change{{one: both[0], deleted: true}}, view.RunWaiting, []string{without1}, view.RunDeleted},
		"it is deleted after its end": {[]change{{one: both[0], deleted: true}}, view.RunSucceeded, []string{without1}, view.RunSucceeded},
		"it is missing":               {[]change{{fresh: true, all: both[1:]}}, view.RunRunning, []string{without1}, view.RunDeleted},
		"another one has its name":    {[]change{{one: node("node-1", "uid-3")}}, view.RunWaiting, []string{without1}, view.RunDeleted},
		"another one is in the list":  {[]change{{fresh: true, all: []client.Object{node("node-1", "uid-3"), both[1]}}}, view.RunSucceeded, []string{without1}, view.RunSucceeded},
		"both are deleted":            {[]change{{one: both[0], deleted: true}, {one: both[1], deleted: true}}, view.RunWaiting, []string{suspend}, view.RunDeleted},
		"a node of another run":       {[]change{{one: node("node-9", "uid-9"), deleted: true}}, view.RunWaiting, nil, view.RunWaiting},
	} {
		t.Run(name, func(t *testing.T) {
			s := &jobServer{uid: "uid-of-j"}
			r := newRun(t, s)
			r.nodes[0].uid, r.nodes[1].uid, r.job.Spec.Nodes.Names = "uid-1", "uid-2", []string{"node-1", "node-2"}
			r.view.Nodes[0].State = tt.state
			for _, c := range tt.changes {
				r.observeNodes(c)
			}
			r.excludeGone(t.Context())
			r.excludeGone(t.Context())
			if diff := cmp.Diff(tt.bodies, s.bodies); diff != "" {
				t.Errorf("what it wrote (-want +got):\n%s", diff)
			}
			if got := r.view.Nodes[0].State; got != tt.want {
				t.Errorf("node-1 is in state %v, want %v", got, tt.want)
			}
		})
	}
}

// TestAnExclusionThatFailsIsReportedAndRetried at the next periodic check, and not with each frame.
func TestAnExclusionThatFailsIsReportedAndRetried(t *testing.T) {
	s := &jobServer{uid: "uid-of-j", refuses: true}
	r := newRun(t, s)
	r.seen, r.job.Spec.Nodes.Names = true, []string{"node-1", "node-2"}
	r.observeNodes(change{deleted: true, one: &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}})
	r.excludeGone(t.Context())
	if said := r.note(); !strings.HasPrefix(
		said,
		"the name of a deleted node could not be removed from the NodeJob, so a machine that registers with it runs the command; retrying: not you",
	) {
		t.Errorf("it says %q", said)
	}
	s.refuses = false
	if r.checkPeriodically(t.Context()); len(s.bodies) != 1 || r.note() != "" || !slices.Equal(r.job.Spec.Nodes.Names, []string{"node-2"}) {
		t.Errorf("it wrote %q, and says %q", s.bodies, r.note())
	}
}

// TestARunKnowsTheUIDsOfItsNodes also if other nodes are listed between them.
func TestARunKnowsTheUIDsOfItsNodes(t *testing.T) {
	o := &options{}
	found := targets{unreachable: map[string]string{}, otherOS: map[string]string{}, uids: map[string]types.UID{}}
	for _, name := range []string{"node-2", "node-1"} {
		o.addTarget(&found, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-of-" + name)},
			Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		}, "")
	}
	f, _, _ := clitest.NewFactory(t, &jobServer{})
	found.unreachable["node-0"] = "it is being deleted"
	r := newRunning(&options{Factory: f}, clitest.NodeJob("j"), found)
	for i, want := range []types.UID{"", "uid-of-node-1", "uid-of-node-2"} {
		if got := r.nodes[i].uid; got != want {
			t.Errorf("the UID of %s is %q, want %q", r.nodes[i].Name, got, want)
		}
	}
}
