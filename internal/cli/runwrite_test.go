// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/cli/clitest"
	"github.com/everynode/everynode/internal/cli/cmdutil"
)

// jobServer is a stand-in that has the NodeJob j, with rules for UIDs like those of an API server.
type jobServer struct {
	uid types.UID
	// deaf is true for one that never answers.
	deaf bool
	// done are the writes that it has carried out.
	done []string
}

func (s *jobServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	if s.deaf {
		<-r.Context().Done()
		return
	}
	var wants struct {
		Metadata      struct{ UID types.UID }
		Preconditions struct{ UID types.UID }
	}
	if err := json.Unmarshal(body, &wants); err != nil || r.URL.Path != clitest.JobsPath+"/j" {
		clitest.RespondError(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, fmt.Sprint(r.URL, err))
		return
	}
	if uid := wants.Metadata.UID + wants.Preconditions.UID; uid != "" && uid != s.uid {
		clitest.RespondError(w, http.StatusConflict, metav1.StatusReasonConflict, "the UID in the precondition is another one")
		return
	}
	s.done = append(s.done, r.Method)
	job := clitest.NodeJob("j")
	job.Spec.Suspend = true
	clitest.Respond(w, job)
}

// aRun is one of the NodeJob j on two nodes, which has been going on for a while.
func aRun(t *testing.T, server http.Handler) *running {
	t.Helper()
	f, _, _ := clitest.NewFactory(t, server)
	c, err := f.Client()
	if err != nil {
		t.Fatal(err)
	}
	o := &runOptions{Factory: f, namespace: "ns", client: c, remove: true, ttl: time.Hour}
	return newRunning(o, clitest.NodeJob("j"), targets{names: []string{"node-1", "node-2"}})
}

// TestARunChangesItsOwnNodeJobAndNoOther covers a NodeJob that was deleted and replaced by another one with its name.
func TestARunChangesItsOwnNodeJobAndNoOther(t *testing.T) {
	for name, tt := range map[string]struct {
		uid       types.UID
		done      []string
		suspended bool
	}{
		"its own":                  {"uid-of-j", []string{"PATCH", "DELETE"}, true},
		"another one of that name": {"uid-of-another", nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := &jobServer{uid: tt.uid}
			r := aRun(t, s)
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

// TestARunWaitsForNoAnswerForEver checks the timeout of requests: the command does not react to Ctrl-C during a
// request.
func TestARunWaitsForNoAnswerForEver(t *testing.T) {
	r := aRun(t, &jobServer{deaf: true})
	if r.patience != requestFor {
		t.Errorf("a request may take %s", r.patience)
	}
	r.patience = 50 * time.Millisecond
	over := make(chan string)
	go func() {
		r.suspend(t.Context())
		if _, err := r.whyAway(t.Context()); cmdutil.CodeOf(err) != cmdutil.ExitNoAnswer {
			t.Errorf("looking at nodes: %v", err)
		}
		r.lookAtNodes(t.Context())
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
