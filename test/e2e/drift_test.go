// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"errors"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/ui/cmdutil"
	"github.com/everynode/everynode/local/cluster"
)

// TestANodeThatHasDriftedIsRepaired changes a node by hand after the task. One NodeJob reports that until it is repaired by hand,
// another one repairs it, and an audit only asks.
func TestANodeThatHasDriftedIsRepaired(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := w.join(cluster.NodeOptions{})
	file := w.markFile() + ".setting"
	check := func(task string, onDrift v1alpha1.DriftPolicy) func(*v1alpha1.NodeJobSpec) {
		return func(s *v1alpha1.NodeJobSpec) {
			s.Task.Script = task
			s.Task.Check = &v1alpha1.CheckSpec{
				ScriptBlock: v1alpha1.ScriptBlock{
					Script: fmt.Sprintf("[ -e %s ] || { echo no file; exit 1; }", file),
				},
				PeriodSeconds: 10,
				OnDrift:       onDrift,
			}
		}
	}
	says := func(job string, want record.Answer) {
		w.Eventually(job+" says "+string(want), func() error {
			on := w.On(job, node)
			if on.Record == nil || on.Record.Compliance().Answer != want || on.Label == "" {
				return errors.New("it does not")
			}
			return nil
		})
	}

	w.job("reports", w.mark(), check("touch "+file, v1alpha1.DriftReport), onNodes(node))
	w.job("audits", "", check("", ""), onNodes(node))
	w.Done("reports", node)
	says("reports", record.AnswerYes)
	says("audits", record.AnswerYes)
	w.sh(node, "rm "+file)
	says("reports", record.AnswerNo)
	says("audits", record.AnswerNo)
	wantText(t, w.say("explain", "reports", node).out, "task.check has answered no since")
	w.Condition("audits", v1alpha1.ConditionComplete, metav1.ConditionTrue, v1alpha1.ReasonNonCompliant)
	if got := w.say("report", "audits", "--fail"); got.code != cmdutil.ExitNonCompliant {
		t.Errorf("report --fail ended with %d: %s", got.code, got.out)
	}
	w.complete("reports")
	w.sh(node, "[ ! -e "+file+" ]")
	w.sh(node, "touch "+file)
	says("reports", record.AnswerYes)

	w.job("repairs", w.mark(), check("touch "+file, v1alpha1.DriftRun), onNodes(node))
	w.Done("repairs", node)
	w.sh(node, "rm "+file)
	w.Eventually("the node is repaired", func() error {
		_, _, err := real.Exec(w.Ctx, node, "/bin/sh", "-c", "[ -e "+file+" ]")
		return err
	})
	w.complete("repairs")
}
