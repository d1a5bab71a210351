// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/manager/loop"
)

// memory is what the manager remembers from one pass to the next about NodeJobs, nodes and pods. It need not survive a restart:
// a new leader starts with a consistent list (warmUp), and finds out everything else again. It is safe for concurrent use.
type memory struct {
	written *writtenObjects
	// refusals are those of the task's pods. runnerRefusals are those of reboots, checks and rollbacks if the task is a
	// template.
	refusals, runnerRefusals *loop.Refusals
	problems                 nodeProblems
	scripts                  scripts
	contents                 contents
	drains                   drains
	budgets                  budgetMemory
	records                  records
	nodeViews                nodeViews
	podViews                 podViews
	uncachedNodes            uncachedNodes
	pace                     loop.Pace
	looks                    looks

	// primed allows one warmUp at a time, and isWarm is true after it.
	primed sync.Mutex
	isWarm atomic.Bool
}

func newMemory() memory {
	return memory{
		written: newWrittenObjects(), refusals: loop.NewRefusals(refusalWords), runnerRefusals: loop.NewRefusals(runnerRefusalWords),
		problems: newNodeProblems(), scripts: newScripts(), contents: newContents(), drains: newDrains(), budgets: newBudgetMemory(),
		records: newRecords(), nodeViews: newNodeViews(), podViews: newPodViews(),
	}
}

// refusalWords are the words of messages about a rejected pod.
var refusalWords = loop.Words{
	Kind:       "NodeJob",
	Made:       "the task's pod",
	Privileged: "A task is root on its node: keep NodeJobs in a namespace of their own and allow it there with",
	Template: func(o client.Object) string {
		if job, is := o.(*v1alpha1.NodeJob); is && job.Spec.Task.Template != nil {
			return "spec.task.template"
		}
		return ""
	},
	Field: "spec.task",
}

// runnerRefusalWords are those for pods that run scripts if the task is a template.
var runnerRefusalWords = loop.Words{
	Kind:       "NodeJob",
	Made:       "the pods of reboots and rollbacks",
	Privileged: "Their scripts run as root on the node: allow them with",
	Field:      "spec.rollback",
}

// forgetJob forgets a NodeJob that no longer exists.
func (m *memory) forgetJob(name client.ObjectKey) {
	m.written.forgetJob(name)
	m.refusals.Clear(name)
	m.runnerRefusals.Clear(name)
	m.problems.forget(name)
	m.scripts.forget(name)
	m.contents.forget(name)
	m.drains.forget(name)
	m.budgets.forget(name)
	m.records.forget(v1alpha1.RecordKey(name.Namespace, name.Name))
	m.podViews.forget(name)
	m.pace.Forget(name)
	m.looks.forget(name)
}

// forgetNode forgets a node that no longer exists.
func (m *memory) forgetNode(name string) {
	m.written.forgetNode(name)
	m.records.forgetNode(name)
	m.nodeViews.forget(name)
	m.uncachedNodes.forget(name)
}

// retrySoon lets pods that the API server has rejected be retried at once, because a deleted pod may have freed quota.
func (m *memory) retrySoon(job client.ObjectKey, now time.Time) {
	m.refusals.Soon(job, now)
	m.runnerRefusals.Soon(job, now)
}

// refusalsFor are the rejections of pods of one kind.
func (m *memory) refusalsFor(runner bool) *loop.Refusals {
	if runner {
		return m.runnerRefusals
	}
	return m.refusals
}

// podForceDeleted notes that a pod was removed before its end was recorded.
func (m *memory) podForceDeleted(job client.ObjectKey, node types.UID, pod string, now time.Time) {
	m.problems.note(job, node, v1alpha1.ReasonPodForceDeleted, fmt.Sprintf(
		"pod %s/%s was removed by force, without its finalizer, before its end was recorded; the attempt is repeated", job.Namespace, pod),
		now, firstVanishedWait, longestVanishedWait)
}
