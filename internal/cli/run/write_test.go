// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/ui/cmdutil"
	"github.com/everynode/everynode/internal/ui/view"
)

// TestARunChangesItsOwnNodeJobAndNoOther covers a NodeJob that was deleted and replaced by another one with its name.
func TestARunChangesItsOwnNodeJobAndNoOther(t *testing.T) {
	for name, tt := range map[string]struct {
		uid       types.UID
		done      []string
		suspended bool
	}{
		"its own":                    {"uid-of-j", []string{"PATCH", "DELETE"}, true},
		"another with the same name": {"uid-of-another", nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := &jobServer{uid: tt.uid}
			r := newRun(t, s)
			r.suspend(t.Context())
			if r.suspended != tt.suspended || (r.stopErr == nil) != tt.suspended {
				t.Errorf("it is suspended: %v (%v)", r.suspended, r.stopErr)
			}
			if said := r.cleanUp(t.Context(), endDetached); said != "" {
				t.Errorf("it says: %s", said)
			}
			if diff := cmp.Diff(tt.done, s.done); diff != "" {
				t.Errorf("what it did (-want +got):\n%s", diff)
			}
		})
	}
}

// TestARunThatHasStartedNothingIsGoneWithItsCommand : otherwise it would start unattended, such as at the end of a freeze.
func TestARunThatHasStartedNothingIsGoneWithItsCommand(t *testing.T) {
	const deleted = "Nothing had started, and NodeJob j is deleted."
	for name, tt := range map[string]struct {
		change func(*running)
		server jobServer
		done   []string
		said   string
	}{
		"nothing has started":          {func(*running) {}, jobServer{uid: "uid-of-j"}, []string{"PATCH", "DELETE"}, deleted},
		"a node is unreachable":        {func(r *running) { r.view.Nodes[0].State = view.RunUnreachable }, jobServer{uid: "uid-of-j"}, []string{"PATCH", "DELETE"}, deleted},
		"it runs":                      {func(r *running) { r.view.Nodes[0].State = view.RunRunning }, jobServer{uid: "uid-of-j"}, nil, "The run continues without this command."},
		"a pod was observed":           {func(r *running) { r.pods["p"] = r.nodes[0] }, jobServer{uid: "uid-of-j"}, nil, "The run continues without this command."},
		"the status says that it runs": {func(r *running) { r.job.Status.Nodes.Running = 1 }, jobServer{uid: "uid-of-j"}, nil, "The run continues without this command."},
		"there is a pod":               {func(*running) {}, jobServer{uid: "uid-of-j", pods: 1}, []string{"PATCH"}, "No new attempts start"},
		"the user may not":             {func(*running) {}, jobServer{uid: "uid-of-j", refuses: true}, nil, "The run continues without this command."},
	} {
		t.Run(name, func(t *testing.T) {
			s := tt.server
			r := newRun(t, &s, func(o *options) { o.remove = false })
			tt.change(r)
			if said := r.cleanUp(t.Context(), endDetached); !strings.HasPrefix(said, tt.said) {
				t.Errorf("it says %q, want %q", said, tt.said)
			}
			if diff := cmp.Diff(tt.done, s.done); diff != "" {
				t.Errorf("what it did (-want +got):\n%s", diff)
			}
		})
	}
}

// TestRequestsOfARunTimeOut checks the timeout of requests: the command does not react to Ctrl-C during a
// request.
func TestRequestsOfARunTimeOut(t *testing.T) {
	r := newRun(t, &jobServer{silent: true})
	if r.patience != requestTimeout {
		t.Errorf("a request may take %s", r.patience)
	}
	r.patience = 50 * time.Millisecond
	over := make(chan string)
	go func() {
		r.suspend(t.Context())
		if _, err := r.unreachableNodes(t.Context()); cmdutil.CodeOf(err) != cmdutil.ExitNoAnswer {
			t.Errorf("reading nodes: %v", err)
		}
		r.readRecords(t.Context())
		over <- r.cleanUp(t.Context(), endDetached)
	}()
	select {
	case said := <-over:
		if r.suspended || cmdutil.CodeOf(r.stopErr) != cmdutil.ExitNoAnswer {
			t.Errorf("it is suspended: %v (%v)", r.suspended, r.stopErr)
		}
		if want := "NodeJob j could not be deleted: the API server does not answer: "; !strings.HasPrefix(said, want) {
			t.Errorf("it says %q, want %q", said, want)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("it is still waiting")
	}
}
