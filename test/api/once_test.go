// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
)

// TestARunForOnce checks that a NodeJob with node names runs on these nodes only, retains its pods for their logs, and
// is deleted with everything that it created after its TTL.
func TestARunForOnce(t *testing.T) {
	w := newWorld(t)
	startManager(t, noFaults)
	w.node("once-1")
	w.node("once-2")
	job := w.job("once", func(s *v1alpha1.NodeJobSpec) {
		s.Nodes.Names = []string{"once-1"}
		s.RetainPodsSeconds = 600
		s.TTLSecondsAfterFinished = new(int32(3))
	})
	pod := w.podOn("once-1")
	w.end(pod, 0, `{"exitCode":0,"message":"fine"}`)
	w.Done("once", "once-1")
	w.Eventually("the pod is retained", func() error {
		var live corev1.Pod
		must(t, admin.Get(w.Ctx, client.ObjectKeyFromObject(pod), &live))
		if len(live.Finalizers) > 0 || live.Annotations[v1alpha1.RecordedAnnotation] == "" || !live.DeletionTimestamp.IsZero() {
			return errors.New("it has the finalizer, or is being deleted")
		}
		return nil
	})
	w.Condition("once", v1alpha1.ConditionComplete, metav1.ConditionTrue, v1alpha1.ReasonAllNodesDone)
	if on := w.On("once", "once-2"); on.Present {
		t.Errorf("once-2 was not named, and has %+v", on)
	}
	w.gone(job)
	w.NoPods()
	if on := w.On("once", "once-1"); on.Present {
		t.Errorf("the record remains: %+v", on)
	}
}

// TestAPodThatIsRetained is recorded once, even if the record is removed, and is deleted before the next attempt, which has
// its name.
func TestAPodThatIsRetained(t *testing.T) {
	w := newWorld(t)
	startManager(t, noFaults)
	w.node("kept-1")
	w.job("kept", func(s *v1alpha1.NodeJobSpec) { s.RetainPodsSeconds = 600 })
	first := w.podOn("kept-1")
	w.end(first, 0, `{"exitCode":0}`)
	w.Done("kept", "kept-1")
	key := v1alpha1.RecordKey(w.Namespace, "kept")
	must(t, admin.Patch(w.Ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "kept-1"}},
		mergePatch(`{"metadata":{"labels":{"`+key+`":null},"annotations":{"`+key+`":null}}}`)))
	second := w.podOn("kept-1")
	if second.UID == first.UID || second.Name != first.Name {
		t.Errorf("the second pod is %s (%s), the first was %s (%s)", second.Name, second.UID, first.Name, first.UID)
	}
	w.end(second, 0, `{"exitCode":0}`)
	if rec := w.Done("kept", "kept-1"); rec.PodUID != second.UID {
		t.Errorf("the record is that of pod %s", rec.PodUID)
	}
}

// TestNothingStartsLate checks that nothing starts after startingDeadlineSeconds, until a user increases it.
func TestNothingStartsLate(t *testing.T) {
	w := newWorld(t)
	startManager(t, noFaults)
	node := w.node("late-1")
	node.Status.Conditions[0].Status = corev1.ConditionUnknown
	must(t, admin.Status().Update(w.Ctx, node))
	job := w.job("late", func(s *v1alpha1.NodeJobSpec) { s.StartingDeadlineSeconds = new(int32(1)) })
	w.Condition("late", v1alpha1.ConditionReconciling, metav1.ConditionFalse, v1alpha1.ReasonSuspended)
	node.Status.Conditions[0].Status = corev1.ConditionTrue
	must(t, admin.Status().Update(w.Ctx, node))
	w.Eventually("the node that is back is known to be suspended", func() error {
		var live v1alpha1.NodeJob
		must(t, admin.Get(w.Ctx, client.ObjectKeyFromObject(job), &live))
		if c := live.Status.Conditions[0].Message; c != "the end of spec.startingDeadlineSeconds keeps new attempts from starting; 0 of 1 node is done; waiting: 1 Suspended (late-1)" {
			return errors.New(c)
		}
		return nil
	})
	if pods := w.Pods(); len(pods) > 0 {
		t.Errorf("pod %s was started late", pods[0].Name)
	}
	must(t, admin.Patch(w.Ctx, job, mergePatch(`{"spec":{"startingDeadlineSeconds":null}}`)))
	w.podOn("late-1")
}

// TestACommandReachesThePod as it is.
func TestACommandReachesThePod(t *testing.T) {
	w := newWorld(t)
	startManager(t, noFaults)
	w.node("command-1")
	w.job("command", func(s *v1alpha1.NodeJobSpec) {
		s.Task = v1alpha1.TaskSpec{Command: []string{"printf", "%s $HOME\n", "<a & b>"}}
	})
	env := w.podOn("command-1").Spec.Containers[0].Env
	if env[0].Name != "EVERYNODE_COMMAND" || env[0].Value != `["printf","%s $$HOME\n","<a & b>"]` {
		t.Errorf("the pod's first variable is %+v", env[0])
	}

	w.job("nul", func(s *v1alpha1.NodeJobSpec) { s.Task = v1alpha1.TaskSpec{Command: []string{"printf", "a\x00b"}} })
	c := w.Condition("nul", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonInvalidScript)
	wantText(t, c.Message, "spec.task.command contains a zero byte")
}
