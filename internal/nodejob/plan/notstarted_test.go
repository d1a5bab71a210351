// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/outcome"
	"github.com/everynode/everynode/internal/testing/plantest"
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

// TestARunThatCannotStartKeepsTheEarlierSuccess runs the task again for each reason, on a node that is done, while it cannot start there.
func TestARunThatCannotStartKeepsTheEarlierSuccess(t *testing.T) {
	removeLabel := func(c *plantest.Cluster) { delete(c.Nodes["node-1"].Labels, c.Key()) }
	for name, tt := range map[string]struct {
		spec  string // in addition
		again func(*plantest.Cluster)
		// first is how the attempts of the new run end that do not end like the last one.
		first     []plantest.Result
		drifted   bool
		rollbacks int
	}{
		"the schedule": {spec: "rerun: {periodSeconds: 600}", again: func(*plantest.Cluster) {}},
		"a reboot":     {spec: "rerun: {onReboot: true}", again: func(c *plantest.Cluster) { c.Reboot("node-1") }},
		"drift":        {again: func(*plantest.Cluster) {}, drifted: true},
		"another script": {again: func(c *plantest.Cluster) {
			c.ChangeSpec(func(s *v1alpha1.NodeJobSpec) { s.Task.Script = "mkfs.xfs /dev/sdb" })
		}},
		"another script, and back": {again: changeAndBack},
		"another script, after a failure that was rolled back": {
			again: func(c *plantest.Cluster) {
				c.Happens("A user removes the label of node-1.", func() { removeLabel(c) })
				c.Run(10 * time.Minute)
				c.ChangeSpec(func(s *v1alpha1.NodeJobSpec) { s.Task.Script = "mkfs.xfs /dev/sdb" })
			},
			first:     []plantest.Result{{Code: 1, Reason: outcome.ReasonTaskFailed}, {Code: 1, Reason: outcome.ReasonTaskFailed}},
			rollbacks: 1,
		},
		"the label is removed":        {again: removeLabel},
		"an attempt has started":      {again: removeLabel, first: []plantest.Result{{Code: 1, Reason: outcome.ReasonTaskFailed}}, rollbacks: 1},
		"an attempt was interrupted":  {again: removeLabel, first: []plantest.Result{{Code: 143, Reason: outcome.ReasonDisrupted}}, rollbacks: 1},
		"interrupted before it began": {again: removeLabel, first: []plantest.Result{{Code: 143, Reason: outcome.ReasonDisrupted, NotStarted: true}}},
	} {
		t.Run(name, func(t *testing.T) {
			check := ""
			if tt.drifted {
				check = ", check: {script: blkid /dev/sdb, periodSeconds: 60, onDrift: Run}"
			}
			c := plantest.New(t, `
apiVersion: everynode.dev/v1alpha1
kind: NodeJob
metadata: {name: disk, namespace: node-setup}
spec:
  task: {script: mkfs.ext4 /dev/sdb`+check+`}
  rollback: {script: wipefs -a /dev/sdb}
  deletionPolicy: Rollback
  retry: {limit: 1, backoffSeconds: 10}
  rollout: {steps: [{name: all}]}
  `+tt.spec+`
`, "node-1", "node-2")
			again, attempts, rollbacks := false, 0, 0
			c.Task = func(a task.Attempt) plantest.Result {
				switch {
				case a.NodeName != "node-1" || !again:
				case a.Phase == task.Rollback:
					rollbacks++
				case a.Phase == task.CheckDrift:
					return plantest.Result{Code: 1, Reason: outcome.ReasonTaskFailed}
				case attempts < len(tt.first):
					attempts++
					return tt.first[attempts-1]
				case a.Phase == task.Task:
					attempts++
					return plantest.Result{Code: 125, Reason: outcome.ReasonProbeFailed, NotStarted: true}
				}
				return plantest.Result{}
			}
			c.Create()
			c.Run(time.Minute)
			again = true
			c.Happens("The task cannot start any more.", func() { tt.again(c) })
			c.Run(30 * time.Minute)
			if attempts < 2 || rollbacks != tt.rollbacks {
				t.Errorf("%d attempts and %d rollbacks, want %d", attempts, rollbacks, tt.rollbacks)
			}
			c.Happens("A user deletes the NodeJob.", c.Delete)
			c.Run(10 * time.Minute)
			if rollbacks != 1 {
				t.Errorf("%d rollbacks after the deletion, want 1", rollbacks)
			}
		})
	}
}

// changeAndBack changes the script, and changes it back after an attempt of the other revision could not start.
func changeAndBack(c *plantest.Cluster) {
	script := c.Job.Spec.Task.Script
	c.Happens("A user changes the script.", func() {
		c.ChangeSpec(func(s *v1alpha1.NodeJobSpec) { s.Task.Script = "mkfs.xfs /dev/sdb" })
	})
	c.Run(10 * time.Minute)
	c.Happens("A user changes the script back.", func() { c.ChangeSpec(func(s *v1alpha1.NodeJobSpec) { s.Task.Script = script }) })
}
