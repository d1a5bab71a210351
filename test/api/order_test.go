// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
)

func after(names ...string) func(*v1alpha1.NodeJobSpec) {
	return func(s *v1alpha1.NodeJobSpec) { s.DependsOn = names }
}

// jobPods are the pods of a NodeJob that have not ended.
func (w *world) jobPods(job string) []corev1.Pod {
	w.T.Helper()
	var found []corev1.Pod
	for _, pod := range w.Pods() {
		if pod.Labels[v1alpha1.NodeJobLabel] == job && !over(&pod) {
			found = append(found, pod)
		}
	}
	return found
}

// only waits until this NodeJob alone has a pod, and returns it.
func (w *world) only(job string) *corev1.Pod {
	w.T.Helper()
	var pod *corev1.Pod
	w.Eventually("a pod of "+job+" runs", func() error {
		pods := w.jobPods(job)
		if len(pods) != 1 {
			return fmt.Errorf("there are %d", len(pods))
		}
		pod = &pods[0]
		return nil
	})
	if running := w.runOn(); len(running) != 1 {
		w.T.Errorf("there are pods on %v, want that of %s alone", running, job)
	}
	return pod
}

// TestAChainRunsInItsOrder also goes through it once more for a new revision of the first: those that follow are not
// run again, since theirs is the same.
func TestAChainRunsInItsOrder(t *testing.T) {
	w := newWorld(t)
	startManager(t, noFaults)
	w.node("chain-1")
	w.job("third", after("second"))
	c := w.Condition("third", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonDependencyNotFound)
	wantText(t, c.Message, w.Namespace+"/second does not exist", "Create it")
	w.job("second", after("first"))
	first := w.job("first", nil)
	for _, job := range []string{"first", "second", "third"} {
		w.end(w.only(job), 0, "")
		w.Done(job, "chain-1")
	}
	for _, job := range []string{"first", "second", "third"} {
		w.Condition(job, v1alpha1.ConditionComplete, metav1.ConditionTrue, "")
	}
	w.NoPods()
	before := w.On("third", "chain-1").Record.PodUID
	w.change(first, `{"task":{"script":"echo again"}}`)
	w.end(w.only("first"), 0, "")
	w.Condition("first", v1alpha1.ConditionComplete, metav1.ConditionTrue, "")
	w.NoPods()
	if got := w.Done("third", "chain-1").PodUID; got != before {
		t.Error("the third has rerun without a change")
	}
}

// TestANodeWaitsOnlyForDependenciesThatSelectIt covers labels that change.
func TestANodeWaitsOnlyForDependenciesThatSelectIt(t *testing.T) {
	w := newWorld(t)
	startManager(t, noFaults)
	w.comes("pooled-0", map[string]string{"pool": "gpu"})
	driver := w.job("driver", func(s *v1alpha1.NodeJobSpec) { s.Nodes.Selector.MatchLabels["pool"] = "gpu" })
	w.end(w.only("driver"), 0, "")
	w.Done("driver", "pooled-0")
	w.change(driver, `{"suspend":true}`)
	w.job("follows", after("driver"))
	w.end(w.only("follows"), 0, "")
	w.Done("follows", "pooled-0")
	w.NoPods()
	w.comes("pooled-1", map[string]string{"pool": "gpu"})
	w.Eventually("the new node waits for driver", func() error {
		c := meta.FindStatusCondition(w.Get("follows").Status.Conditions, v1alpha1.ConditionReconciling)
		if c == nil || !strings.Contains(c.Message, v1alpha1.ReasonWaitingForDependency) {
			return fmt.Errorf("the condition is %+v", c)
		}
		return nil
	})
	if running := w.runOn(); len(running) > 0 {
		t.Errorf("there are pods on %v", running)
	}
	w.label("pooled-1", "pool", "")
	w.end(w.only("follows"), 0, "")
	w.Done("follows", "pooled-1")
}

func TestADependencyCycleIsReportedOnEachNodeJobUntilItIsFixed(t *testing.T) {
	w := newWorld(t)
	startManager(t, noFaults)
	w.node("circle-1")
	w.job("a", after("b"))
	w.job("b", after("c"))
	c := w.job("c", after("a"))
	for job, circle := range map[string]string{"a": "a -> b -> c -> a", "b": "b -> c -> a -> b", "c": "c -> a -> b -> c"} {
		c := w.Condition(job, v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonDependencyCycle)
		wantText(t, c.Message, circle, "Take one of them out")
	}
	if running := w.runOn(); len(running) > 0 {
		t.Errorf("there are pods on %v", running)
	}
	w.change(c, `{"dependsOn":null}`)
	for _, job := range []string{"c", "b", "a"} {
		w.end(w.only(job), 0, "")
		w.Done(job, "circle-1")
		w.Condition(job, v1alpha1.ConditionStalled, metav1.ConditionFalse, "")
	}
}

func TestADeletedDependencyIsReported(t *testing.T) {
	w := newWorld(t)
	startManager(t, noFaults)
	w.node("missed-1")
	needed := w.job("needed", func(s *v1alpha1.NodeJobSpec) { s.Suspend = true })
	w.job("misses", after("needed"))
	w.Condition("misses", v1alpha1.ConditionReconciling, metav1.ConditionTrue, "")
	must(t, admin.Delete(w.Ctx, needed))
	w.Condition("misses", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonDependencyNotFound)
	w.change(&v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "misses"}}, `{"dependsOn":null}`)
	w.end(w.only("misses"), 0, "")
	w.Done("misses", "missed-1")
	w.Eventually("no record of the deleted dependency remains", func() error {
		if on := w.On("needed", "missed-1"); on.Present || on.Label != "" {
			return errors.New("its record is there")
		}
		return nil
	})
}
