// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
)

// valueIn returns the value of a variable of the only container of a pod.
func valueIn(pod *corev1.Pod, name string) string {
	for _, e := range pod.Spec.Containers[0].Env {
		if e.Name == name {
			return e.Value
		}
	}
	return ""
}

// reads waits until the message of the NodeJob reads says so.
func (w *world) reads(message string) {
	w.T.Helper()
	w.Eventually("the message says "+message, func() error {
		if c := w.Condition("reads", v1alpha1.ConditionComplete, metav1.ConditionUnknown, ""); !strings.Contains(c.Message, message) {
			return errors.New(c.Message)
		}
		return nil
	})
}

// A node waits for the label that task.env names, and starts when a user sets it. A change of the label, or of an annotation by the
// kubelet of the node itself, runs the task again, and not earlier than a minute after the last run.
func TestAValueOfTheNodeThatChangesRunsTheTaskAgain(t *testing.T) {
	w := newWorld(t)
	startManager(t, noFaults)
	w.node("input-1")
	w.job("reads", func(s *v1alpha1.NodeJobSpec) {
		from := func(path string, otherwise *string) *v1alpha1.EnvVarSource {
			return &v1alpha1.EnvVarSource{NodeFieldRef: &v1alpha1.NodeFieldSelector{FieldPath: path, Default: otherwise}}
		}
		s.Task.Env = []v1alpha1.EnvVar{
			{Name: "RACK", ValueFrom: from("metadata.labels['example.com/rack']", nil)},
			{Name: "BOND", ValueFrom: from("metadata.annotations['example.com/bond']", new("none"))},
		}
		s.Rerun.OnNodeFieldChange = true
	})
	w.reads("waiting: 1 " + v1alpha1.ReasonNodeFieldNotFound + " (input-1)")
	w.label("input-1", "example.com/rack", "7")
	pod := w.podOn("input-1")
	if rack, bond := valueIn(pod, "RACK"), valueIn(pod, "BOND"); rack != "7" || bond != "none" {
		t.Errorf("the pod has RACK=%q and BOND=%q", rack, bond)
	}
	// The value that counts is that of the pod, and not that of its end.
	must(t, w.annotate(w.kubeletOf("input-1"), "input-1", "example.com/bond", "$(RACK)"))
	w.end(pod, 0, "")
	first := w.Done("reads", "input-1")
	w.reads("waiting: 1 " + v1alpha1.ReasonRerunDelayed + " (input-1)")
	w.Within(2*time.Minute, time.Second, "the task runs again", func() error {
		if pods := w.Pods(); len(pods) == 1 && pods[0].UID != pod.UID {
			pod = &pods[0]
			return nil
		}
		return errors.New("there is no other pod")
	})
	if bond := valueIn(pod, "BOND"); bond != "$$(RACK)" {
		t.Errorf("the second pod has BOND=%q, and Kubernetes replaces $$ with $", bond)
	}
	if early := pod.CreationTimestamp.Sub(first.RecordedAt); early < time.Minute {
		t.Errorf("the second run starts %s after the end of the first one", early)
	}
	w.end(pod, 0, "")
	w.Condition("reads", v1alpha1.ConditionComplete, metav1.ConditionTrue, "")
	if again := w.Done("reads", "input-1"); again.Revision != first.Revision || again.Inputs == first.Inputs || again.Inputs == "" {
		t.Errorf(
			"the records have the revisions %s and %s, and the inputs %q and %q",
			first.Revision,
			again.Revision,
			first.Inputs,
			again.Inputs,
		)
	}
}
