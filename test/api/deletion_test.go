// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/task"
)

// undoable creates a NodeJob with a rollback at deletion, whose task succeeds on a node.
func (w *world) undoable(job, node string) *v1alpha1.NodeJob {
	w.T.Helper()
	w.node(node)
	made := w.job(job, func(s *v1alpha1.NodeJobSpec) {
		s.Retry.Limit = new(int32(0))
		s.Rollback = &v1alpha1.RollbackSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "true"}}
		s.DeletionPolicy = v1alpha1.DeletionRollback
	})
	w.end(w.podOn(node), 0, "")
	w.Done(job, node)
	w.NoPods()
	return made
}

// ready sets the status of a node's Ready condition.
func (w *world) ready(name string, status corev1.ConditionStatus) {
	w.T.Helper()
	node := w.liveNode(name)
	node.Status.Conditions[0].Status = status
	must(w.T, admin.Status().Update(w.Ctx, node))
}

func TestADeletionWithAFailedRollbackEndsWithForget(t *testing.T) {
	w := newWorld(t)
	startManager(t, noFaults)
	job := w.undoable("forgets", "forget-it-1")
	must(t, admin.Delete(w.Ctx, job))
	w.end(w.podOf("forget-it-1", task.Rollback), 1, "")
	c := w.Condition("forgets", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonRollbackFailed)
	wantText(
		t,
		c.Message,
		"forget-it-1",
		fmt.Sprintf("kubectl -n %s patch nodejob forgets --type=merge -p '%s'", w.Namespace, `{"spec":{"deletionPolicy":"Forget"}}`),
	)
	w.change(job, `{"deletionPolicy":"Forget"}`)
	w.gone(job)
	if on := w.On("forgets", "forget-it-1"); on.Present {
		t.Errorf("the node carries %+v", on)
	}
	w.NoPods()
}

func TestALostNodeHoldsTheDeletionUntilItIsBack(t *testing.T) {
	w := newWorld(t)
	startManager(t, noFaults)
	job := w.undoable("waits", "away-1")
	w.ready("away-1", corev1.ConditionUnknown)
	must(t, admin.Delete(w.Ctx, job))
	c := w.Condition("waits", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonRollbackFailed)
	wantText(t, c.Message, "away-1", "the node is unreachable")
	w.ready("away-1", corev1.ConditionTrue)
	w.end(w.podOf("away-1", task.Rollback), 0, "")
	w.gone(job)
}

// TestANamespaceThatIsDeletedInMidRollbackIsNotHeld covers a namespace whose pods are deleted as well, and in which no
// pod can be created.
func TestANamespaceThatIsDeletedInMidRollbackIsNotHeld(t *testing.T) {
	w := newWorld(t)
	startManager(t, noFaults)
	job := w.undoable("mid-undo", "mid-undo-1")
	must(t, admin.Delete(w.Ctx, job))
	pod := w.podOf("mid-undo-1", task.Rollback)
	must(t, admin.Delete(w.Ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace}}))
	// There is no namespace controller here that would delete the pod, and no kubelet that would end it.
	must(t, admin.Delete(w.Ctx, pod, client.GracePeriodSeconds(0)))
	w.end(pod, 143, `{"exitCode":143,"reason":"Interrupted"}`)
	w.gone(job)
	if on := w.On("mid-undo", "mid-undo-1"); on.Present {
		t.Errorf("the node carries %+v", on)
	}
}

// TestABlockedDeletionEndsWithItsNamespace covers a namespace in which no pod creation fails, so that no error
// reports its deletion.
func TestABlockedDeletionEndsWithItsNamespace(t *testing.T) {
	for name, hold := range map[string]func(w *world, node string){
		"by a failed rollback":   func(w *world, node string) { w.end(w.podOf(node, task.Rollback), 1, "") },
		"by an unreachable node": func(w *world, node string) { w.ready(node, corev1.ConditionUnknown) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			startManager(t, noFaults)
			node := "held-" + w.Namespace
			job := w.undoable("held", node)
			if name == "by an unreachable node" {
				hold(w, node)
			}
			must(t, admin.Delete(w.Ctx, job))
			if name == "by a failed rollback" {
				hold(w, node)
			}
			w.Condition("held", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonRollbackFailed)
			must(t, admin.Delete(w.Ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace}}))
			w.gone(job)
		})
	}
}
