// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/outcome"
	"github.com/everynode/everynode/internal/plantest"
)

// TestARollbackUndoesOnlyWhatHasBegun ends a run in each way in which a runner can end it, on a node that was done before and on one that
// was not. The retry and the quarantine are the same in all of them, and so is the rollback of a deletion: it undoes what an earlier run did.
func TestARollbackUndoesOnlyWhatHasBegun(t *testing.T) {
	fails := func(reason string) plantest.Result { return plantest.Result{Code: 1, Reason: reason} }
	cannotStart := func(reason string) plantest.Result {
		return plantest.Result{Code: 127, Reason: reason, NotStarted: true}
	}
	for name, tt := range map[string]struct {
		attempts [2]plantest.Result
		begins   bool
	}{
		"the task fails":                            {[2]plantest.Result{fails(outcome.ReasonTaskFailed), fails(outcome.ReasonTaskFailed)}, true},
		"its check fails":                           {[2]plantest.Result{fails(outcome.ReasonCheckFailed), fails(outcome.ReasonCheckFailed)}, true},
		"a signal ends it":                          {[2]plantest.Result{fails(outcome.ReasonSignaled), fails(outcome.ReasonSignaled)}, true},
		"it takes too long":                         {[2]plantest.Result{fails(outcome.ReasonTimedOut), fails(outcome.ReasonTimedOut)}, true},
		"the node has no interpreter":               {[2]plantest.Result{cannotStart(outcome.ReasonInterpreterNotFound), cannotStart(outcome.ReasonInterpreterNotFound)}, false},
		"the node has no such command":              {[2]plantest.Result{cannotStart(outcome.ReasonCommandNotFound), cannotStart(outcome.ReasonCommandNotFound)}, false},
		"the namespaces cannot be entered":          {[2]plantest.Result{cannotStart(outcome.ReasonNamespaceError), cannotStart(outcome.ReasonNamespaceError)}, false},
		"the environment is too large":              {[2]plantest.Result{cannotStart(outcome.ReasonBadConfiguration), cannotStart(outcome.ReasonBadConfiguration)}, false},
		"the node has no memory":                    {[2]plantest.Result{cannotStart(outcome.ReasonRunnerError), cannotStart(outcome.ReasonRunnerError)}, false},
		"a probe fails before the task":             {[2]plantest.Result{cannotStart(outcome.ReasonProbeFailed), cannotStart(outcome.ReasonProbeFailed)}, false},
		"the task fails, and then it cannot start":  {[2]plantest.Result{fails(outcome.ReasonTaskFailed), cannotStart(outcome.ReasonProbeFailed)}, true},
		"it cannot start, and then the task fails":  {[2]plantest.Result{cannotStart(outcome.ReasonProbeFailed), fails(outcome.ReasonTaskFailed)}, true},
		"a runner of an earlier version cannot say": {[2]plantest.Result{fails(outcome.ReasonProbeFailed), fails(outcome.ReasonProbeFailed)}, true},
	} {
		for _, doneBefore := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, done before: %t", name, doneBefore), func(t *testing.T) {
				c := plantest.New(t, `
apiVersion: everynode.dev/v1alpha1
kind: NodeJob
metadata: {name: disk, namespace: node-setup}
spec:
  task: {script: mkfs.ext4 /dev/sdb}
  rollback: {script: wipefs -a /dev/sdb}
  deletionPolicy: Rollback
  retry: {limit: 1, backoffSeconds: 10}
  onFailure: {action: Cordon}
  rollout: {steps: [{name: all}]}
`, "node-1", "node-2")
				attempts, rollbacks, before := 0, 0, doneBefore
				c.Task = func(a task.Attempt) plantest.Result {
					switch {
					case a.NodeName != "node-1" || before:
					case a.Phase == task.Rollback:
						rollbacks++
					default:
						attempts++
						return tt.attempts[attempts-1]
					}
					return plantest.Result{}
				}
				c.Create()
				if before {
					c.Run(time.Minute)
					before = false
					c.Happens("A user removes the label of node-1.", func() { delete(c.Nodes["node-1"].Labels, c.Key()) })
				}
				c.Run(10 * time.Minute)
				want, wantAtDeletion := 0, 0
				if tt.begins {
					want = 1
				}
				if tt.begins || doneBefore {
					wantAtDeletion = 1
				}
				if attempts != 2 || rollbacks != want || !c.Nodes["node-1"].Spec.Unschedulable {
					t.Errorf("%d attempts and %d rollbacks, want 2 and %d, and a node that is cordoned", attempts, rollbacks, want)
				}
				c.Happens("A user deletes the NodeJob.", c.Delete)
				c.Run(10 * time.Minute)
				if rollbacks != wantAtDeletion {
					t.Errorf("%d rollbacks after the deletion, want %d", rollbacks, wantAtDeletion)
				}
			})
		}
	}
}
