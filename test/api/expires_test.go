// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
)

const (
	stillNeeded = `{"exitCode":1,"reason":"TaskFailed"}`
	noAnswer    = `{"exitCode":3,"reason":"TaskFailed","message":"no version"}`
)

// TestATaskExpiresOnEachNode covers a node that joins fixed, and one that is fixed by a reboot, after a check that failed itself, and
// with a manager that is away between the check and the rollback.
func TestATaskExpiresOnEachNode(t *testing.T) {
	w := newWorld(t)
	stop := startManager(t, noFaults)
	w.job("deny", func(s *v1alpha1.NodeJobSpec) {
		s.Nodes.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"x.test/for": "deny"}}
		s.Rollback = &v1alpha1.RollbackSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "undo"}}
		s.Expires = &v1alpha1.ExpiresSpec{
			Check: &v1alpha1.ExpiresCheckSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "fixed?", Interpreter: []string{"/bin/ash"}}},
		}
		s.Publish = []v1alpha1.PublishedResult{{Result: "denied", Label: "x.test/denied"}}
	})
	w.comes("fixed", map[string]string{"x.test/for": "deny"})
	w.end(w.podOf("fixed", task.CheckExpires), 0, `{"exitCode":0}`)
	w.expired("deny", "fixed")
	w.message("deny", v1alpha1.ConditionComplete, "needed on no node: the NodeJob can be deleted")

	w.comes("old", map[string]string{"x.test/for": "deny"})
	pod := w.podOf("old", task.CheckExpires)
	if got := envOf(pod, "EVERYNODE_SCRIPT") + envOf(pod, "EVERYNODE_INTERPRETER"); got != `fixed?["/bin/ash"]` {
		t.Errorf("the pod of the check runs %s", got)
	}
	w.end(pod, 1, stillNeeded)
	w.end(w.podOf("old", task.Task), 0, `{"exitCode":0,"results":{"denied":"yes"}}`)
	w.Done("deny", "old")
	w.message("deny", v1alpha1.ConditionComplete, "2 of 2 nodes are done; needed on 1 of 2 nodes")

	w.reboots("old", "boot-2")
	w.end(w.podOf("old", task.CheckExpires), 3, noAnswer)
	w.told(v1alpha1.ReasonCheckError, "Node", "old")
	w.message("deny", v1alpha1.ConditionComplete, "spec.expires.check itself fails (old: exit code 3: no version)")
	w.outcome("deny", "old", record.Succeeded)
	pod = w.podOf("old", task.CheckExpires)
	stop()
	w.end(pod, 0, `{"exitCode":0}`)
	startManager(t, noFaults)
	w.told(v1alpha1.ReasonExpired, "Node", "old")
	pod = w.podOf("old", task.Rollback)
	if got := envOf(pod, "EVERYNODE_ROLLBACK_FOR"); got != "Expiry" {
		t.Errorf("the rollback is for %s", got)
	}
	if got := w.liveNode("old").Labels["x.test/denied"]; got != "yes" {
		t.Errorf("before the rollback, the label is %q", got)
	}
	w.end(pod, 0, `{"exitCode":0}`)
	w.expired("deny", "old")
	if _, published := w.liveNode("old").Labels["x.test/denied"]; published {
		t.Error("the result of the task is still published")
	}
	w.message("deny", v1alpha1.ConditionComplete, "needed on no node")
	if n := w.live("deny").Status.Nodes; n.Expired != 2 || n.Done != 2 {
		t.Errorf("the counts are %+v", n)
	}
	w.NoPods()
}

// TestATaskExpiresAtATime covers a node on which the task has run, and one that joins later.
func TestATaskExpiresAtATime(t *testing.T) {
	w := newWorld(t)
	startManager(t, noFaults)
	w.job("deny", func(s *v1alpha1.NodeJobSpec) {
		s.Nodes.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"x.test/for": "deny-at"}}
		s.Rollback = &v1alpha1.RollbackSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "undo"}}
		s.Expires = &v1alpha1.ExpiresSpec{At: &metav1.Time{Time: time.Now().Add(time.Hour)}}
	})
	w.comes("at-1", map[string]string{"x.test/for": "deny-at"})
	w.end(w.podOf("at-1", task.Task), 0, `{"exitCode":0}`)
	w.Done("deny", "at-1")
	must(t, admin.Patch(w.Ctx, w.live("deny"), mergePatch(`{"spec":{"expires":{"at":"2026-01-01T00:00:00Z"}}}`)))
	w.end(w.podOf("at-1", task.Rollback), 0, `{"exitCode":0}`)
	w.expired("deny", "at-1")
	w.comes("at-2", map[string]string{"x.test/for": "deny-at"})
	w.expired("deny", "at-2")
	w.message("deny", v1alpha1.ConditionComplete, "2 of 2 nodes are done; needed on no node")
	w.NoPods()
}

// expired waits until a node is done because the task is no longer needed there.
func (w *world) expired(job, node string) {
	w.T.Helper()
	rec := w.outcome(job, node, record.Expired)
	if on := w.On(job, node); on.Label != rec.Revision {
		w.T.Errorf("%s has the label %q and the record %+v", node, on.Label, rec)
	}
}

// message waits for a condition that is True with a message that contains a text.
func (w *world) message(name, kind, text string) {
	w.T.Helper()
	w.Eventually(fmt.Sprintf("%s of %s says: %s", kind, name, text), func() error {
		for _, c := range w.live(name).Status.Conditions {
			if c.Type == kind && c.Status == metav1.ConditionTrue && strings.Contains(c.Message, text) {
				return nil
			} else if c.Type == kind {
				return fmt.Errorf("it is %s: %s", c.Status, c.Message)
			}
		}
		return errors.New("there is no such condition")
	})
}
