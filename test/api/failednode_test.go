// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
)

// workload makes a running pod of a Deployment, on a node.
func (w *world) workload(name, node string) *corev1.Pod {
	w.T.Helper()
	yes := true
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.Namespace, Name: name, Labels: map[string]string{"app": name},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: name, UID: "1", Controller: &yes}},
		},
		Spec: corev1.PodSpec{
			NodeName:                      node,
			Containers:                    []corev1.Container{{Name: "x", Image: "y"}},
			TerminationGracePeriodSeconds: new(int64(0)),
		},
	}
	must(w.T, admin.Create(w.Ctx, pod))
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	must(w.T, admin.Status().Update(w.Ctx, pod))
	return pod
}

func (w *world) live(job string) *v1alpha1.NodeJob {
	w.T.Helper()
	var live v1alpha1.NodeJob
	must(w.T, admin.Get(w.Ctx, client.ObjectKey{Namespace: w.Namespace, Name: job}, &live))
	return &live
}

func (w *world) told(reason, kind, name string) {
	w.T.Helper()
	w.Eventually(fmt.Sprintf("an event %s is on %s %s", reason, kind, name), func() error {
		var list eventsv1.EventList
		must(w.T, admin.List(w.Ctx, &list))
		for _, e := range list.Items {
			if e.Reason == reason && e.Regarding.Kind == kind && e.Regarding.Name == name {
				return nil
			}
		}
		return fmt.Errorf("%d events, none of them", len(list.Items))
	})
}

// podOf waits for a pod of the task, or of the rollback, that has not ended.
func (w *world) podOf(node string, phase task.Phase) *corev1.Pod {
	w.T.Helper()
	var found *corev1.Pod
	w.Eventually("the pod of a "+string(phase)+" is on "+node, func() error {
		for _, pod := range w.Pods() {
			if pod.Spec.NodeName == node && pod.Labels[v1alpha1.PhaseLabel] == string(phase) && pod.Status.Phase == corev1.PodPending &&
				pod.DeletionTimestamp.IsZero() {
				found = &pod
				return nil
			}
		}
		return errors.New("there is none")
	})
	return found
}

// TestAFailedNodeIsRolledBackQuarantinedAndUncordoned covers all steps for a node on which a task failed.
func TestAFailedNodeIsRolledBackQuarantinedAndUncordoned(t *testing.T) {
	w := newWorld(t)
	startManager(t, noFaults)
	w.node("harmed-1")
	web, db := w.workload("web", "harmed-1"), w.workload("db", "harmed-1")
	pdb := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "db"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: new(intstr.FromInt32(1)),
			Selector:     &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}},
		},
	}
	must(t, admin.Create(w.Ctx, pdb))
	pdb.Status = policyv1.PodDisruptionBudgetStatus{
		ObservedGeneration: pdb.Generation,
		CurrentHealthy:     1,
		DesiredHealthy:     1,
		ExpectedPods:       1,
	}
	must(t, admin.Status().Update(w.Ctx, pdb))
	job := w.job("harms", func(s *v1alpha1.NodeJobSpec) {
		s.Retry.Limit = new(int32(0))
		s.Rollback = &v1alpha1.RollbackSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "true"}}
		s.OnFailure.Action = v1alpha1.FailureActionDrain
	})

	w.end(w.podOf("harmed-1", task.Task), 7, `{"exitCode":7,"results":{"disk":"sda"}}`)
	var node corev1.Node
	w.Eventually("the node is cordoned", func() error {
		must(t, admin.Get(w.Ctx, client.ObjectKey{Name: "harmed-1"}, &node))
		if !node.Spec.Unschedulable || node.Annotations[v1alpha1.CordonedAnnotation] != v1alpha1.RecordKey(w.Namespace, "harms") {
			return fmt.Errorf("it is %+v with %v", node.Spec, node.Annotations)
		}
		return nil
	})
	undo := w.podOf("harmed-1", task.Rollback)
	if rec := w.On("harms", "harmed-1").Record; rec.Drain != nil {
		t.Errorf("it is drained before its rollback has ended: %+v", rec.Drain)
	}
	w.end(undo, 0, "")
	w.told(v1alpha1.ReasonRolledBack, "Node", "harmed-1")
	w.told(v1alpha1.ReasonCordoned, "NodeJob", "harms")

	w.Eventually("web is evicted, and the status names what blocks db", func() error {
		if err := admin.Get(w.Ctx, client.ObjectKeyFromObject(web), &corev1.Pod{}); client.IgnoreNotFound(err) != nil || err == nil {
			return fmt.Errorf("web still exists (%w)", err)
		}
		d := w.live("harms").Status.Drains
		if len(d) != 1 || d[0].Node != "harmed-1" || d[0].Pods != 1 || len(d[0].Blocked) != 1 || d[0].Blocked[0].Pod != w.Namespace+"/db" {
			return fmt.Errorf("the drains are %+v", d)
		}
		wantText(t, d[0].Blocked[0].Message, "disruption budget db needs 1 healthy pods")
		return nil
	})
	must(t, admin.Get(w.Ctx, client.ObjectKeyFromObject(pdb), pdb))
	pdb.Status.DisruptionsAllowed = 1
	must(t, admin.Status().Update(w.Ctx, pdb))
	w.gone(db)
	w.told(v1alpha1.ReasonDrained, "Node", "harmed-1")

	must(t, admin.Patch(w.Ctx, job, mergePatch(fmt.Sprintf(`{"metadata":{"annotations":{%q:"1"}}}`, v1alpha1.RetryAnnotation))))
	w.end(w.podOf("harmed-1", task.Task), 0, "")
	w.Done("harms", "harmed-1")
	must(t, admin.Get(w.Ctx, client.ObjectKey{Name: "harmed-1"}, &node))
	if _, there := node.Annotations[v1alpha1.CordonedAnnotation]; node.Spec.Unschedulable || there {
		t.Errorf("after the success it is %+v with %v", node.Spec, node.Annotations)
	}
	w.told(v1alpha1.ReasonUncordoned, "Node", "harmed-1")
}

// TestABudgetThatIsNotProcessedHoldsUpNothingElse covers an API server that repeatedly asks the client to wait for 10
// s. There is no disruption controller here that would process the budget.
func TestABudgetThatIsNotProcessedHoldsUpNothingElse(t *testing.T) {
	w := newWorld(t)
	startManager(t, noFaults)
	w.node("slow-1")
	w.workload("web", "slow-1")
	must(t, admin.Create(w.Ctx, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "web"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: new(intstr.FromInt32(1)),
			Selector:     &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		},
	}))
	w.job("slow", func(s *v1alpha1.NodeJobSpec) {
		s.Retry.Limit = new(int32(0))
		s.OnFailure.Action = v1alpha1.FailureActionDrain
	})
	w.end(w.podOf("slow-1", task.Task), 1, "")
	w.Eventually("the status says why", func() error {
		d := w.live("slow").Status.Drains
		if len(d) != 1 || len(d[0].Blocked) != 1 || !strings.Contains(d[0].Blocked[0].Message, "PodDisruptionBudget is not processed yet") {
			return fmt.Errorf("the drains are %+v", d)
		}
		return nil
	})
	w.node("slow-2")
	w.end(w.podOf("slow-2", task.Task), 0, "")
	w.Done("slow", "slow-2")
}

// TestAConcurrentCordonByAnotherClientIsKept covers a cordon between the plan and the write of the manager.
func TestAConcurrentCordonByAnotherClientIsKept(t *testing.T) {
	w := newWorld(t)
	var once atomic.Bool
	var conflicts atomic.Int32
	startManager(t, interceptor.Funcs{
		Patch: func(ctx context.Context, next client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if data, err := p.Data(o); err == nil && strings.Contains(string(data), "unschedulable") && once.CompareAndSwap(false, true) {
				must(
					t,
					admin.Patch(
						ctx,
						&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: o.GetName()}},
						mergePatch(`{"spec":{"unschedulable":true}}`),
					),
				)
				err := next.Patch(ctx, o, p, opts...)
				if err != nil {
					conflicts.Add(1)
				}
				return err
			}
			return next.Patch(ctx, o, p, opts...)
		},
	})
	w.node("both-1")
	w.job("both", func(s *v1alpha1.NodeJobSpec) {
		s.Retry.Limit = new(int32(0))
		s.OnFailure.Action = v1alpha1.FailureActionCordon
	})
	w.end(w.podOn("both-1"), 1, "")
	w.Condition("both", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonNodesFailed)
	w.Eventually("our write came too late", func() error {
		if n := conflicts.Load(); n != 1 {
			return fmt.Errorf("%d conflicts", n)
		}
		return nil
	})
	must(t, admin.Patch(w.Ctx, w.live("both"), mergePatch(fmt.Sprintf(`{"metadata":{"annotations":{%q:"1"}}}`, v1alpha1.RetryAnnotation))))
	w.end(w.podOn("both-1"), 0, "")
	w.Done("both", "both-1")
	var node corev1.Node
	must(t, admin.Get(w.Ctx, client.ObjectKey{Name: "both-1"}, &node))
	if _, ours := node.Annotations[v1alpha1.CordonedAnnotation]; !node.Spec.Unschedulable || ours {
		t.Errorf("it is %+v with %v: another client has cordoned it", node.Spec, node.Annotations)
	}
	var list eventsv1.EventList
	must(t, admin.List(w.Ctx, &list, client.InNamespace(w.Namespace)))
	for _, e := range list.Items {
		if e.Reason == v1alpha1.ReasonWriteFailed {
			t.Errorf("an event alarms: %s", e.Note)
		}
	}
}

func TestADeletionRollsBackOnEveryNodeAndThenEnds(t *testing.T) {
	w := newWorld(t)
	startManager(t, noFaults)
	w.node("undo-1")
	w.node("undo-2")
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "do", Labels: scriptLabel},
		Data:       map[string]string{"sh": "true"},
	}
	must(t, admin.Create(w.Ctx, cm))
	job := w.job("undoes", func(s *v1alpha1.NodeJobSpec) {
		s.Task = v1alpha1.TaskSpec{
			ScriptBlock: v1alpha1.ScriptBlock{
				ScriptFrom: &v1alpha1.ScriptSource{ConfigMapKeyRef: v1alpha1.ConfigMapKeyRef{Name: "do", Key: "sh"}},
			},
		}
		s.Rollout.MaxConcurrent = percent("100%")
		s.Rollback = &v1alpha1.RollbackSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "true"}}
		s.Retry.Limit = new(int32(0))
		s.DeletionPolicy = v1alpha1.DeletionRollback
	})
	for _, node := range []string{"undo-1", "undo-2"} {
		w.end(w.podOn(node), 0, "")
		w.Done("undoes", node)
	}
	w.NoPods()
	// All NodeJobs of a release are deleted at once.
	must(t, admin.Delete(w.Ctx, cm))
	must(t, admin.Delete(w.Ctx, job))
	w.end(w.podOf("undo-1", task.Rollback), 0, "")
	w.end(w.podOf("undo-2", task.Rollback), 1, "")
	c := w.Condition("undoes", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonRollbackFailed)
	wantText(t, c.Message, "undo-2", "annotate nodejob undoes "+v1alpha1.RetryAnnotation)
	w.told(v1alpha1.ReasonRollbackFailed, "Node", "undo-2")
	w.Eventually("the record of the first NodeJob is removed", func() error {
		if on := w.On("undoes", "undo-1"); on.Present {
			return fmt.Errorf("it carries %+v", on)
		}
		return nil
	})
	must(t, admin.Patch(w.Ctx, job, mergePatch(fmt.Sprintf(`{"metadata":{"annotations":{%q:"1"}}}`, v1alpha1.RetryAnnotation))))
	w.end(w.podOf("undo-2", task.Rollback), 0, "")
	w.gone(job)
	if on := w.On("undoes", "undo-2"); on.Present {
		t.Errorf("the node carries %+v", on)
	}
}

// TestANamespaceThatIsDeletedIsNotHeld covers a namespace in which no pod can be created, so nothing can be rolled
// back.
func TestANamespaceThatIsDeletedIsNotHeld(t *testing.T) {
	w := newWorld(t)
	startManager(t, noFaults)
	w.node("ns-1")
	job := w.job("goes", func(s *v1alpha1.NodeJobSpec) {
		s.Rollback = &v1alpha1.RollbackSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "true"}}
		s.DeletionPolicy = v1alpha1.DeletionRollback
	})
	w.end(w.podOn("ns-1"), 0, "")
	w.Done("goes", "ns-1")
	w.NoPods()
	// There is no namespace controller here that would delete what is in it.
	must(t, admin.Delete(w.Ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace}}))
	must(t, admin.Delete(w.Ctx, job))
	w.gone(job)
	if on := w.On("goes", "ns-1"); on.Present {
		t.Errorf("the node carries %+v", on)
	}
}

// TestTheNextStepStartsOnceAfterThePreviousOne checks that the state of a rollout persists when the manager is replaced.
func TestTheNextStepStartsOnceAfterThePreviousOne(t *testing.T) {
	w := newWorld(t)
	stop := startManager(t, noFaults)
	for i := 1; i <= 3; i++ {
		w.node(fmt.Sprintf("step-%d", i))
	}
	w.job("steps", func(s *v1alpha1.NodeJobSpec) {
		one := intstr.FromInt32(1)
		s.Rollout = v1alpha1.RolloutSpec{
			MaxConcurrent: percent("100%"),
			Steps:         []v1alpha1.RolloutStep{{Name: "canary", Nodes: &one}, {Name: "all"}},
		}
	})
	w.Eventually("the canary runs", func() error {
		if len(w.Pods()) == 0 {
			return errors.New("there is no pod")
		}
		return nil
	})
	canary := w.Pods()[0]
	if n := len(w.Pods()); n != 1 {
		t.Fatalf("%d pods run in the first step, want 1", n)
	}
	stop()
	w.end(&canary, 0, "")
	startManager(t, noFaults)
	for i := 1; i <= 3; i++ {
		if node := fmt.Sprintf("step-%d", i); node != canary.Spec.NodeName {
			w.end(w.podOn(node), 0, "")
		}
		if rec := w.Done("steps", fmt.Sprintf("step-%d", i)); rec.Attempts != 1 || rec.Outcome != record.Succeeded {
			t.Errorf("the record is %+v", rec)
		}
	}
	w.Condition("steps", v1alpha1.ConditionComplete, metav1.ConditionTrue, "")
	w.Eventually("the revision is stable", func() error {
		if w.live("steps").Status.Rollout.StableAt.IsZero() {
			return errors.New("it is not")
		}
		return nil
	})
	w.Eventually("one event reports the start of the step", func() error { // the recorder writes events later
		var list eventsv1.EventList
		if err := admin.List(w.Ctx, &list, client.InNamespace(w.Namespace)); err != nil {
			return err
		}
		begun := 0
		for _, e := range list.Items {
			if e.Reason == v1alpha1.ReasonStepStarted {
				begun++
				wantText(t, e.Note, "step all", "nodes in it: 2")
			}
		}
		if begun != 1 {
			return fmt.Errorf("%d do", begun)
		}
		return nil
	})
}
