// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
)

// TestCheckBeforeTheTask covers the answers of a check in the pod of the task, and in a pod of its own before a cordon.
func TestCheckBeforeTheTask(t *testing.T) {
	w := newWorld(t)
	startManager(t, noFaults)
	for _, cordon := range []bool{false, true} {
		name, node := "asks", "asks-1"
		if cordon {
			name, node = "asks-first", "asks-first-1"
		}
		job := w.job(name, func(s *v1alpha1.NodeJobSpec) {
			s.Nodes.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"x.test/for": name}}
			s.Task.Check = &v1alpha1.CheckSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "check"}, Before: true}
			s.Maintenance.Cordon = cordon
		})
		w.comes(node, map[string]string{"x.test/for": name})
		phase, reported := task.Task, `{"exitCode":0,"reason":"AlreadyDone","message":"as it should be"}`
		if cordon {
			phase, reported = task.CheckBefore, `{"exitCode":0,"message":"as it should be"}`
		}
		pod := w.podOf(node, phase)
		w.cordoned(node, "")
		if got := envOf(pod, "EVERYNODE_CHECK_BEFORE"); (got == "true") == cordon {
			t.Errorf("%s is told to check before: %q", name, got)
		}
		w.end(pod, 0, reported)
		if rec := w.Done(name, node); !rec.IsAlreadyDone() || rec.Attempts != 0 || rec.Message != "as it should be" {
			t.Errorf("the record is %+v", rec)
		}
		w.cordoned(node, "")
		w.Condition(name, v1alpha1.ConditionComplete, metav1.ConditionTrue, "")
		if !cordon {
			continue
		}
		w.comes("asks-first-2", map[string]string{"x.test/for": name})
		w.end(w.podOf("asks-first-2", task.CheckBefore), 2, `{"exitCode":2,"reason":"TaskFailed"}`) // as cmp of a missing file
		w.outcome(name, "asks-first-2", record.Needed)
		pod = w.podOf("asks-first-2", task.Task)
		w.cordoned("asks-first-2", v1alpha1.RecordKey(job.Namespace, name))
		w.end(pod, 0, `{"exitCode":0}`)
		if rec := w.Done(name, "asks-first-2"); rec.CheckBefore != "" || rec.Attempts != 1 {
			t.Errorf("the record is %+v", rec)
		}
	}
	w.NoPods()
}
