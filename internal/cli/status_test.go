// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/testing/clitest"
	"github.com/everynode/everynode/internal/ui/cmdutil"
)

// TestStatusDoesNotReadPodsThatHaveEnded covers runs, which retain a pod on each node.
func TestStatusDoesNotReadPodsThatHaveEnded(t *testing.T) {
	asked := ""
	f, _, errs := clitest.NewFactory(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case clitest.JobsPath + "/j":
			clitest.Respond(w, clitest.NodeJob("j"))
		case clitest.PodsPath:
			asked = r.URL.Query().Get("fieldSelector")
			clitest.Respond(w, corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}})
		default:
			clitest.RespondError(w, http.StatusNotFound, metav1.StatusReasonNotFound, r.URL.String())
		}
	}))
	if code := command(t, f, "status", "j"); code != cmdutil.ExitOK {
		t.Errorf("exit code %d, and %s", code, errs)
	}
	if want := "status.phase!=Succeeded,status.phase!=Failed"; asked != want {
		t.Errorf("it lists pods with %q, want %q", asked, want)
	}
}
