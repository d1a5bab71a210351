// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
)

// gone waits until a NodeJob is deleted and its labels and annotations are removed from the nodes.
func (w *world) gone(job string, nodes ...string) {
	w.T.Helper()
	w.Eventually(job+" is gone", func() error {
		var live v1alpha1.NodeJob
		err := admin.Get(w.Ctx, client.ObjectKey{Namespace: w.Namespace, Name: job}, &live)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is there: %w, %+v", err, live.Status)
	})
	for _, node := range nodes {
		if on := w.On(job, node); on.Present {
			w.T.Errorf("%s still carries label %q and record %+v", node, on.Label, on.Record)
		}
	}
}

func TestDeletionRollsBackEveryNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	log := w.logPods()
	made := w.markFile() + ".made"
	job := w.job(
		"undone",
		"touch "+made+"; echo file="+made+" >> $EVERYNODE_RESULTS",
		onNodes("node-1", "node-2"),
		func(s *v1alpha1.NodeJobSpec) {
			s.Rollback = &v1alpha1.RollbackSpec{
				ScriptBlock: v1alpha1.ScriptBlock{Script: w.timed("rm $EVERYNODE_RESULT_FILE; env > " + w.markFile() + ".env; sleep 1")},
			}
			s.DeletionPolicy = v1alpha1.DeletionRollback
			s.Rollout.MaxConcurrent = new(intstr.FromInt32(1))
		},
	)
	w.complete("undone")
	must(t, admin.Delete(w.Ctx, job))
	w.gone("undone", "node-1", "node-2")
	var spans []span
	for _, node := range []string{"node-1", "node-2"} {
		if out := w.sh(node, "ls "+made+" 2>&1 || true"); !strings.Contains(out, "No such file") {
			t.Errorf("on %s the task is not undone: %s", node, out)
		}
		wantText(t, w.sh(node, "cat "+w.markFile()+".env"), "EVERYNODE_ROLLBACK_FOR=Deletion\n")
		spans = append(spans, w.spans(node)...)
	}
	if len(spans) != 2 || spans[0].began.Before(spans[1].ended) && spans[1].began.Before(spans[0].ended) {
		t.Errorf("the rollbacks ran at the same time, and one may at once: %v", spans)
	}
	if story := log.story("undone"); len(story) != 4 {
		t.Errorf("the pods were %q", story)
	}
}

// TestARollbackThatFailsHoldsTheDeletion checks that the deletion waits until a user acts, and that the status says
// how.
func TestARollbackThatFailsHoldsTheDeletion(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	job := w.job("held", w.mark(), onNode2, func(s *v1alpha1.NodeJobSpec) {
		s.Rollback = &v1alpha1.RollbackSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "echo it stays; exit 9"}}
		s.Retry.Limit = new(int32(0))
		s.DeletionPolicy = v1alpha1.DeletionRollback
	})
	w.complete("held")
	must(t, admin.Delete(w.Ctx, job))
	c := w.Condition("held", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonRollbackFailed)
	wantText(t, c.Message, "node-2")
	first := w.rolledBack("held", "node-2", record.Failed)
	w.asTold(c.Message, "annotate nodejob")
	w.Eventually("the rollback was tried again", func() error {
		if rec := w.On("held", "node-2").Record; rec == nil || rec.Rollback == nil || rec.Rollback.PodUID == first.PodUID {
			return fmt.Errorf("the record is %+v", rec)
		}
		return nil
	})
	c = w.Condition("held", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonRollbackFailed)
	w.asTold(c.Message, `"deletionPolicy":"Forget"`)
	w.gone("held", "node-2")
	w.NoPods()
	w.wantRan("node-2", 1)
}
