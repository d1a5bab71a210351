// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/testing/clitest"
)

// jobServer is a fake API server with the NodeJob j that checks UIDs in preconditions.
type jobServer struct {
	uid types.UID
	// silent reports whether it never responds, and refuses whether it refuses writes.
	silent, refuses bool
	// pods is how many pods the NodeJob has.
	pods int
	// bodies are the bodies of the successful writes.
	bodies []string
	// done are the methods of the successful writes.
	done []string
}

func (s *jobServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	if s.silent {
		<-r.Context().Done()
		return
	}
	switch {
	case r.Method == http.MethodGet && r.URL.Path == clitest.PodsPath:
		clitest.Respond(w, corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: make([]corev1.Pod, s.pods)})
		return
	case r.Method == http.MethodGet:
		job := clitest.NodeJob("j")
		job.UID = s.uid
		clitest.Respond(w, job)
		return
	case s.refuses:
		clitest.RespondError(w, http.StatusForbidden, metav1.StatusReasonForbidden, "not you")
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
	s.done, s.bodies = append(s.done, r.Method), append(s.bodies, string(body))
	job := clitest.NodeJob("j")
	_ = json.Unmarshal(body, &struct{ Spec *v1alpha1.NodeJobSpec }{&job.Spec})
	clitest.Respond(w, job)
}

// newRun returns a run of the NodeJob j on two nodes.
func newRun(t *testing.T, server http.Handler, changes ...func(*options)) *running {
	t.Helper()
	f, _, _ := clitest.NewFactory(t, server)
	c, err := f.Client()
	if err != nil {
		t.Fatal(err)
	}
	o := &options{Factory: f, namespace: "ns", client: c, remove: true, ttl: time.Hour}
	for _, change := range changes {
		change(o)
	}
	return newRunning(o, clitest.NodeJob("j"), targets{names: []string{"node-1", "node-2"}})
}
