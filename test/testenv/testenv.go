// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package testenv has what the tests with an API server and the tests on real nodes share: how they wait, and what they read of NodeJobs.
package testenv

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
)

// World is the namespace of one test.
type World struct {
	T         *testing.T
	Ctx       context.Context //nolint:containedctx // a World lives as long as its test
	Client    client.Client
	Namespace string
	// Limit is how long Eventually waits, with a pause between two checks.
	Limit, Pause time.Duration
	// Late says what the test waited for when its time was over; "" before.
	Late string
}

// NewNamespace returns a namespace that allows NodeJobs and privileged pods.
func NewNamespace(meta metav1.ObjectMeta) *corev1.Namespace {
	meta.Labels = map[string]string{"pod-security.kubernetes.io/enforce": "privileged", v1alpha1.EnabledLabel: v1alpha1.EnabledValue}
	return &corev1.Namespace{ObjectMeta: meta}
}

// Must ends a test if there is an error.
func Must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// WantText reports each text that is missing in another.
func WantText(t *testing.T, text string, want ...string) {
	t.Helper()
	for _, s := range want {
		if !strings.Contains(text, s) {
			t.Errorf("%q is not in\n%s", s, text)
		}
	}
}

// Eventually waits until check returns nil, and ends the test with its last error.
func (w *World) Eventually(what string, check func() error) {
	w.T.Helper()
	w.Within(w.Limit, w.Pause, what, check)
}

// Within is Eventually with another limit and another pause: for many objects, long, and without much load for the API server.
func (w *World) Within(limit, pause time.Duration, what string, check func() error) {
	w.T.Helper()
	deadline := time.Now().Add(limit)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) || w.Ctx.Err() != nil {
			w.Late = fmt.Sprintf("waiting until %s: %v", what, err)
			w.T.Fatal(w.Late)
		}
		time.Sleep(pause)
	}
}

// Get returns a NodeJob. It tries again while the API server does not answer.
func (w *World) Get(job string) v1alpha1.NodeJob {
	w.T.Helper()
	var live v1alpha1.NodeJob
	w.Eventually("NodeJob "+job+" can be read", func() error {
		return w.Client.Get(w.Ctx, client.ObjectKey{Namespace: w.Namespace, Name: job}, &live)
	})
	return live
}

// On returns what a node carries of a NodeJob.
func (w *World) On(job, node string) record.NodeRecord {
	w.T.Helper()
	var live corev1.Node
	w.Eventually("node "+node+" can be read", func() error {
		return w.Client.Get(w.Ctx, client.ObjectKey{Name: node}, &live)
	})
	return record.Read(live.Labels, live.Annotations, v1alpha1.RecordKey(w.Namespace, job))
}

// Done waits until the node is done with the NodeJob.
func (w *World) Done(job, node string) record.Record {
	w.T.Helper()
	var rec record.Record
	w.Eventually(node+" is done with "+job, func() error {
		on := w.On(job, node)
		if on.Label == "" || on.Record == nil || on.Record.Outcome != record.Succeeded {
			return fmt.Errorf("it carries label %q and record %+v", on.Label, on.Record)
		}
		rec = *on.Record
		return nil
	})
	return rec
}

// Condition waits until the NodeJob has a condition with this status, and this reason unless it is "".
func (w *World) Condition(job, kind string, status metav1.ConditionStatus, reason string) metav1.Condition {
	w.T.Helper()
	var found metav1.Condition
	w.Eventually(fmt.Sprintf("%s is %s=%s (%s)", job, kind, status, reason), func() error {
		live := w.Get(job)
		c := meta.FindStatusCondition(live.Status.Conditions, kind)
		if c == nil || c.Status != status || (reason != "" && c.Reason != reason) {
			return fmt.Errorf("the status is %+v", live.Status)
		}
		found = *c
		return nil
	})
	return found
}

// Pods returns the pods of NodeJobs.
func (w *World) Pods() []corev1.Pod {
	w.T.Helper()
	var pods corev1.PodList
	w.Eventually("pods can be listed", func() error {
		return w.Client.List(w.Ctx, &pods, client.InNamespace(w.Namespace), client.HasLabels{v1alpha1.NodeJobLabel})
	})
	return pods.Items
}

// NoPods waits until no pod of a NodeJob is left.
func (w *World) NoPods() {
	w.T.Helper()
	w.Eventually("no pod is left", func() error {
		if pods := w.Pods(); len(pods) > 0 {
			return fmt.Errorf("there are %d, the first is %s (%s, on node %s, labels %v) with finalizers %v",
				len(pods), pods[0].Name, pods[0].Status.Phase, pods[0].Spec.NodeName, pods[0].Labels, pods[0].Finalizers)
		}
		return nil
	})
}
