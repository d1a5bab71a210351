// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/local/cluster"
)

func TestARebootMayAskForAnotherRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := w.join(cluster.NodeOptions{})
	key := v1alpha1.RecordKey(w.Namespace, "volatile")
	w.job("volatile", w.mark()+"; while [ -e "+w.markFile()+".hold ]; do sleep 0.1; done", func(s *v1alpha1.NodeJobSpec) {
		s.Rerun.OnReboot, s.Gate = true, &v1alpha1.GateSpec{Nodes: v1alpha1.GateJoiningAndRebooted}
	})
	w.Done("volatile", node)
	w.complete("volatile")
	w.sh(node, "touch "+w.markFile()+".hold")
	must(t, real.RebootReady(w.Ctx, node))
	w.Eventually("it runs again, behind a closed gate", func() error {
		live := w.node(node)
		if w.ran(node) != 2 || !tainted(&live, key) {
			return fmt.Errorf("it ran %d times, and the taints are %v", w.ran(node), live.Spec.Taints)
		}
		return nil
	})
	w.sh(node, "rm "+w.markFile()+".hold")
	w.Eventually("it is done in the new boot, and open", func() error {
		live := w.node(node)
		if rec := w.On(
			"volatile",
			node,
		).Record; rec == nil || rec.Outcome != record.Succeeded || rec.BootID != live.Status.NodeInfo.BootID ||
			tainted(&live, key) {
			return fmt.Errorf("the record is %+v, and the taints are %v", rec, live.Spec.Taints)
		}
		return nil
	})
	w.complete("volatile")
	w.wantRan(node, 2)
}

// TestTheContentOfASecretMayAskForAnotherRun lets the manager read one Secret, as its message says.
func TestTheContentOfASecretMayAskForAnotherRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := w.join(cluster.NodeOptions{})
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "token"}, StringData: map[string]string{"a": "1"}}
	must(t, admin.Create(w.Ctx, secret))
	w.job("secret", w.mark(), func(s *v1alpha1.NodeJobSpec) {
		s.Task.Inputs = []v1alpha1.ContentRef{{Kind: v1alpha1.ContentSecret, Name: "token"}}
	})
	c := w.Condition("secret", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonSecretForbidden)
	w.asTold(c.Message, "create role")
	w.Done("secret", node)
	w.complete("secret")
	must(t, admin.Patch(w.Ctx, secret, mergePatch(`{"stringData":{"a":"2"}}`)))
	w.Eventually("it has run again", func() error {
		if n := w.ran(node); n != 2 {
			return fmt.Errorf("it ran %d times", n)
		}
		return nil
	})
	w.complete("secret")
}

func TestATaskWaitsForWhatItDependsOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := w.join(cluster.NodeOptions{})
	w.job("second", w.mark(), func(s *v1alpha1.NodeJobSpec) { s.DependsOn = []string{"first"} })
	wantText(
		t,
		w.Condition("second", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonDependencyNotFound).Message,
		"first",
		"does not exist",
	)
	w.job("first", w.hold())
	w.began(node)
	wantText(t, w.Condition("second", v1alpha1.ConditionReconciling, metav1.ConditionTrue, "").Message, v1alpha1.ReasonWaitingForDependency)
	for _, pod := range w.Pods() {
		if pod.Labels[v1alpha1.NodeJobLabel] == "second" {
			t.Errorf("%s is there before the first is done", pod.Name)
		}
	}
	w.letGo(node)
	w.Done("second", node)
	w.complete("first")
	w.patch("first", `{"spec":{"dependsOn":["second"]}}`)
	for _, name := range []string{"first", "second"} {
		wantText(
			t,
			w.Condition(name, v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonDependencyCycle).Message,
			"first -> second",
			"second -> first",
		)
	}
	w.patch("first", `{"spec":{"dependsOn":null}}`)
	w.complete("first")
	w.complete("second")
}
