// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/internal/testing/clitest"
	"github.com/everynode/everynode/internal/ui/apply"
)

// TestAbortWaitsUntilTheSpecIsObserved covers a reconcile that began earlier, and may still start an attempt.
func TestAbortWaitsUntilTheSpecIsObserved(t *testing.T) {
	for name, tt := range map[string]struct {
		seenAfter int
		gets      int
		said      string
	}{
		"the manager observes the spec soon": {3, 3, ""},
		"no manager is running":              {1 << 30, observedTries + 1, "The manager has not confirmed yet that no new attempts start. Check with: kubectl everynode status j -n ns\n"},
	} {
		t.Run(name, func(t *testing.T) {
			gets := 0
			f, _, errs := clitest.NewFactory(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodGet || r.URL.Path != clitest.JobsPath+"/j" {
					clitest.RespondError(w, http.StatusNotFound, metav1.StatusReasonNotFound, r.URL.String())
					return
				}
				gets++
				job := clitest.NodeJob("j")
				if job.Generation = 2; gets >= tt.seenAfter {
					job.Status.ObservedGeneration = 2
				}
				clitest.Respond(w, job)
			}))
			c, err := f.Client()
			if err != nil {
				t.Fatal(err)
			}
			a := aborting{f, &apply.Steering{Printer: f, Client: c, Key: client.ObjectKey{Namespace: "ns", Name: "j"}}}
			if _, err := a.waitObserved(t.Context()); err != nil || gets != tt.gets || errs.String() != tt.said {
				t.Errorf("%d reads (%v), message %q", gets, err, errs)
			}
		})
	}
}
