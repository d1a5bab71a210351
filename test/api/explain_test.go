// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
)

// TestEarlierAttemptsAreExplained from the record, without permission to read events.
func TestEarlierAttemptsAreExplained(t *testing.T) {
	w := newWorld(t)
	startManager(t, noFaults)
	w.node("earlier-1")
	w.job("twice", func(s *v1alpha1.NodeJobSpec) { s.Retry.Limit = new(int32(1)) })
	for attempt := 1; attempt <= 2; attempt++ {
		w.end(w.podOn("earlier-1"), 7, fmt.Sprintf(`{"exitCode":7,"reason":"TaskFailed","message":"no space\nthe %d. time"}`, attempt))
		w.Eventually("it is on record", func() error {
			if rec := w.On("twice", "earlier-1").Record; rec == nil || rec.Attempts != int32(attempt) {
				return fmt.Errorf("the record is %+v", rec)
			}
			return nil
		})
	}
	w.Condition("twice", v1alpha1.ConditionStalled, metav1.ConditionTrue, "")
	const want = `NAMESPACE/twice has failed on earlier-1 after 2 attempts, the last AGO: TaskFailed, exit code 7: the 2. time.

State     Failed, RetriesExhausted, step all
Before    attempt 1 failed at TIME (AGO) after SPAN, exit code 7 (TaskFailed)
          | the 1. time
Last      attempt 2 failed at TIME (AGO) after SPAN, exit code 7 (TaskFailed)
          | no space
          | the 2. time
Next      retry it: kubectl everynode retry twice earlier-1 -n NAMESPACE; or leave the node out: kubectl everynode skip twice earlier-1 -n NAMESPACE
`
	got := w.everynode(w.viewer(), "explain", "twice", "earlier-1")
	got.out = timeless(got.out)
	wantTold(t, "explain", told{0, want, ""}, got)
}
