// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/record"
	"github.com/everynode/everynode/internal/task"
)

// status.nodes.rollbackPending is what a pipeline waits for, so it must not count rollbacks that never start without help.
func TestRollbackPendingCountsWhatContinues(t *testing.T) {
	failed := func(changes ...func(*record.Record)) Node {
		return newNode("n", recorded(record.Failed, append([]func(*record.Record){attempts(2)}, changes...)...))
	}
	lost := failed()
	lost.Ready = corev1.ConditionUnknown
	suspended := func(j *v1alpha1.NodeJob) { j.Spec.Suspend = true }
	rollback := func(p *Pod) { p.Runs = task.Rollback }
	tests := map[string]struct {
		job  []func(*v1alpha1.NodeJob)
		node Node
		pods []Pod
		want int32
	}{
		"it starts now":                  {job: []func(*v1alpha1.NodeJob){withRollback}, node: failed(), want: 1},
		"it runs":                        {job: []func(*v1alpha1.NodeJob){withRollback}, node: failed(), pods: []Pod{newPod(failed(), rollback)}, want: 1},
		"it is retried":                  {job: []func(*v1alpha1.NodeJob){withRollback}, node: failed(undone(record.Failed, 1)), want: 1},
		"it has succeeded":               {job: []func(*v1alpha1.NodeJob){withRollback}, node: failed(undone(record.Succeeded, 1))},
		"it has failed":                  {job: []func(*v1alpha1.NodeJob){withRollback}, node: failed(undone(record.Failed, 2))},
		"the node is unreachable":        {job: []func(*v1alpha1.NodeJob){withRollback}, node: lost},
		"the NodeJob is suspended":       {job: []func(*v1alpha1.NodeJob){withRollback, suspended}, node: failed()},
		"there is no rollback":           {node: failed()},
		"the task failed and is retried": {job: []func(*v1alpha1.NodeJob){withRollback}, node: newNode("n", recorded(record.Failed, attempts(1)))},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := Next(see(newJob(tt.job...), []Node{tt.node}, tt.pods...)).Status.Nodes
			if got.RollbackPending != tt.want {
				t.Errorf("rollbackPending is %d, want %d; %+v", got.RollbackPending, tt.want, got)
			}
		})
	}
}
