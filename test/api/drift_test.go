// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
)

// TestNodesThatAreDoneAreAskedAgain has nodes drift that are only reported, repaired, or audited.
func TestNodesThatAreDoneAreAskedAgain(t *testing.T) {
	w := newWorld(t)
	startManager(t, noFaults)
	on := func(name string, onDrift v1alpha1.DriftPolicy) {
		w.job(name, func(s *v1alpha1.NodeJobSpec) {
			s.Nodes.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"x.test/for": name}}
			s.Task.Check = &v1alpha1.CheckSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "check"}, PeriodSeconds: 10, OnDrift: onDrift}
			if name == "audits" {
				s.Task.Script = ""
			}
		})
		w.comes(name+"-1", map[string]string{"x.test/for": name})
	}
	says := func(name string, want record.Answer) record.Compliance {
		var is record.Compliance
		w.Eventually(name+" says "+string(want), func() error {
			on := record.Read(w.liveNode(name+"-1").Labels, w.liveNode(name+"-1").Annotations, v1alpha1.RecordKey(w.Namespace, name))
			if is = on.Record.Compliance(); is.Answer != want || on.Label == "" {
				return errors.New("it says " + string(is.Answer))
			}
			return nil
		})
		return is
	}
	nonCompliant := func(name string, want int32) {
		w.Eventually("the status counts it", func() error {
			if w.live(name).Status.Nodes.NonCompliant != want {
				return errors.New("it does not")
			}
			return nil
		})
	}

	on("reports", "")
	w.end(w.podOf("reports-1", task.Task), 0, `{"exitCode":0}`)
	w.Done("reports", "reports-1")
	w.end(w.podOf("reports-1", task.CheckDrift), 1, `{"exitCode":1,"reason":"TaskFailed","message":"1 of 2"}`)
	if is := says("reports", record.AnswerNo); is.Message != "1 of 2" || is.DriftedSince.IsZero() {
		t.Errorf("the record says %+v", is)
	}
	nonCompliant("reports", 1)
	w.Condition("reports", v1alpha1.ConditionComplete, metav1.ConditionTrue, v1alpha1.ReasonAllNodesDone)
	w.told(v1alpha1.ReasonDrifted, "Node", "reports-1")
	w.end(w.podOf("reports-1", task.CheckDrift), 75, `{"exitCode":75,"reason":"TaskFailed"}`)
	if is := says("reports", record.AnswerError); is.DriftedSince.IsZero() || is.FailingSince.IsZero() {
		t.Errorf("the record says %+v", is)
	}
	w.end(w.podOf("reports-1", task.CheckDrift), 0, `{"exitCode":0}`)
	says("reports", record.AnswerYes)
	nonCompliant("reports", 0)

	on("repairs", v1alpha1.DriftRun)
	w.end(w.podOf("repairs-1", task.Task), 0, `{"exitCode":0}`)
	w.Done("repairs", "repairs-1")
	w.end(w.podOf("repairs-1", task.CheckDrift), 1, `{"exitCode":1,"reason":"TaskFailed"}`)
	w.end(w.podOf("repairs-1", task.Task), 0, `{"exitCode":0}`)
	says("repairs", "")

	on("audits", "")
	w.end(w.podOf("audits-1", task.CheckBefore), 1, `{"exitCode":1,"reason":"TaskFailed","message":"root may log in"}`)
	if is := says("audits", record.AnswerNo); is.Message != "root may log in" || is.DriftedSince.IsZero() {
		t.Errorf("the record says %+v", is)
	}
	w.Condition("audits", v1alpha1.ConditionComplete, metav1.ConditionTrue, v1alpha1.ReasonNonCompliant)
	w.told(v1alpha1.ReasonNonCompliant, "Node", "audits-1")
	nonCompliant("audits", 1)
	w.end(w.podOf("audits-1", task.CheckDrift), 0, `{"exitCode":0}`)
	says("audits", record.AnswerYes)
	nonCompliant("audits", 0)
	w.Condition("audits", v1alpha1.ConditionComplete, metav1.ConditionTrue, v1alpha1.ReasonAllNodesDone)
}
