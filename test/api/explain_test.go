// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
)

// TestEarlierAttemptsAreExplained by their events, for as long as the cluster keeps them; and without them for who may
// not read them.
func TestEarlierAttemptsAreExplained(t *testing.T) {
	w := newWorld(t)
	startManager(t, noFaults)
	w.node("earlier-1")
	w.job("twice", func(s *v1alpha1.NodeJobSpec) { s.Retry.Limit = new(int32(1)) })
	for attempt := 1; attempt <= 2; attempt++ {
		w.end(w.podOn("earlier-1"), 7, fmt.Sprintf(`{"exitCode":7,"reason":"TaskFailed","message":"no space\nthe %d. time"}`, attempt))
		w.eventually("it is on record", func() error {
			if rec := w.recordOn("twice", "earlier-1").Record; rec == nil || rec.Attempts != int32(attempt) {
				return fmt.Errorf("the record is %+v", rec)
			}
			return nil
		})
	}
	w.condition("twice", v1alpha1.ConditionStalled, metav1.ConditionTrue, "")
	const before = `NAMESPACE/twice has failed on earlier-1 after 2 attempts, the last AGO: TaskFailed, exit code 7: the 2. time.

State     Failed, RetriesExhausted, step all
Before    1 attempt failed before it
`
	const events = `          attempt 1 failed (TaskFailed, exit code 7), at TIME (AGO)
          | no space
          | the 1. time
`
	const last = `Last      attempt 2 failed at TIME (AGO) after SPAN, exit code 7 (TaskFailed)
          | no space
          | the 2. time
`
	const next = "Next      retry it: kubectl everynode -n NAMESPACE retry twice earlier-1; or leave the node out: kubectl everynode -n NAMESPACE skip twice earlier-1\n"
	config := w.kubeconfigOf(viewer(t)...)
	var got told
	w.eventually("the events are there", func() error {
		if got = w.everynode(config, "explain", "twice", "earlier-1"); !strings.Contains(got.out, "attempt 1") {
			return errors.New(got.out)
		}
		return nil
	})
	got.out = timeless(got.out)
	wantTold(t, "explain", told{0, before + events + last + next, ""}, got)

	var blind []rbacv1.PolicyRule
	for _, rule := range viewer(t) {
		if rule.Resources[0] != "events" {
			blind = append(blind, rule)
		}
	}
	other := newWorld(t)
	config = other.kubeconfigOf(blind...)
	got = w.everynode(config, "explain", "twice", "earlier-1")
	got.out = strings.ReplaceAll(timeless(got.out), other.namespace, "OTHER")
	wantTold(t, "explain without events", told{0, before + last +
		"Events    not known: user-OTHER may not list events in namespace NAMESPACE. The ClusterRole everynode-view has what the reading verbs need. To check: kubectl auth can-i list events -n NAMESPACE\n" + next, ""}, got)
}
