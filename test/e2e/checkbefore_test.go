// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/local/cluster"
)

// TestANodeIsDrainedOnlyIfItsCheckSaysNo has a check say yes, fail itself, and say no, before a drain that a PodDisruptionBudget
// blocks.
func TestANodeIsDrainedOnlyIfItsCheckSaysNo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := w.join(cluster.NodeOptions{})
	web, _ := w.workloads(node)
	before := func(check string) func(*v1alpha1.NodeJobSpec) {
		return func(s *v1alpha1.NodeJobSpec) {
			s.Task.Check = &v1alpha1.CheckSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: check}, Before: true}
			s.Maintenance.Drain = &v1alpha1.DrainSpec{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}
			s.Retry = v1alpha1.RetrySpec{BackoffSeconds: new(int32(1)), MaxBackoffSeconds: new(int32(1))}
		}
	}

	w.job("not-needed", w.mark(), onNodes(node), before("echo as it should be"))
	rec := w.Done("not-needed", node)
	if !rec.IsAlreadyDone() || rec.Reason != v1alpha1.ReasonAlreadyDone || !strings.Contains(rec.Message, "as it should be") {
		t.Errorf("the record is %+v", rec)
	}
	w.complete("not-needed")
	w.wantRan(node, 0)
	w.wantCordoned(node, false)

	// The check says yes when the task has run, and before that what the file says.
	answer := w.markFile() + ".answer"
	w.job("needed", w.mark(), onNodes(node), before(fmt.Sprintf("[ ! -e %s ] || exit 0; exit $(cat %s || echo 75)", w.markFile(), answer)))
	w.Condition("needed", v1alpha1.ConditionReconciling, metav1.ConditionTrue, v1alpha1.ReasonCheckError)
	w.wantCordoned(node, false)
	wantText(t, w.say("explain", "needed", node).out, "task.check itself failed")
	w.sh(node, "echo 2 > "+answer) // as grep of a file that is missing
	w.wantBlocked("needed", node, "web", "one-at-least")
	w.wantCordoned(node, true, "needed")
	if on := w.On("needed", node); on.Record == nil || on.Record.Outcome != record.Needed {
		t.Errorf("the record is %+v", on.Record)
	}
	w.wantRan(node, 0)
	if w.runs("web", node).UID != web.UID {
		t.Error("web was evicted despite its PodDisruptionBudget")
	}
	must(t, admin.Patch(w.Ctx, &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "one-at-least"}},
		mergePatch(`{"spec":{"minAvailable":0}}`)))
	if rec := w.Done("needed", node); rec.CheckBefore != "" || rec.Attempts != 1 || rec.Disruptions != 0 {
		t.Errorf("the record is %+v", rec)
	}
	w.wantRan(node, 1)
	w.complete("needed")
	w.Eventually("the node is uncordoned", func() error {
		if w.node(node).Spec.Unschedulable {
			return errors.New("it is not")
		}
		return nil
	})
}
