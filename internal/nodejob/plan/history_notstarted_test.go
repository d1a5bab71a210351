// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"strings"

	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/outcome"
)

// This file knows which runs may have started their task on a node. A rollback undoes only those.

// mayHaveBegun counts, by (name of the node, revision), the pods of the current run that are not known to have ended before the task.
type mayHaveBegun map[string]int

// of returns the key of a revision on a node. The UID of a node can change on the same machine, and whether another machine ID is another
// machine is up to rerun.onMachineChange.
func (mayHaveBegun) of(node, revision string) string { return node + "/" + revision }

// starts notes that a pod of the task is created.
func (b mayHaveBegun) starts(a task.Attempt) {
	if a.Phase == task.Task {
		b[b.of(a.NodeName, a.Revision)]++
	}
}

// fails ends a pod whose runner could not start the task.
func (b mayHaveBegun) fails(pod *simPod) {
	pod.Exit.Reason, pod.Exit.Results = outcome.ReasonInterpreterNotFound, nil
	b.neverBegins(pod)
}

// neverBegins notes that a pod of the task has ended before it.
func (b mayHaveBegun) neverBegins(pod *simPod) {
	if pod.recorded {
		return // as one that may have started
	}
	pod.NotStarted = true
	if key := b.of(pod.NodeName, pod.Revision); b[key] > 0 {
		b[key]--
	}
}

// onlyOf forgets what other revisions did on a node: with another revision, another run begins.
func (b mayHaveBegun) onlyOf(node *Node, key string) {
	for k := range b {
		if k != key && strings.HasPrefix(k, node.Name+"/") {
			delete(b, k)
		}
	}
}

// forgetMachine forgets what has begun on another machine, and on a Node that was created again, when the first record is written there.
func (h *history) forgetMachine(node *Node, r *record.Record) {
	if was := h.seen[node.Name].On.Record; was == nil || was.MachineID != r.MachineID {
		delete(h.recordedBegin, node.Name)
		delete(h.hasBegun, node.Name)
	}
}

// checkNotStarted checks what a record says about the start of the task, and notes the end of a run. A manager does not know of pods whose
// outcome it has not recorded because another client has removed them.
func (h *history) checkNotStarted(node *Node, r *record.Record, pod *simPod, ended record.Outcome) {
	key, was := h.mayHaveBegun.of(node.Name, r.Revision), h.seen[node.Name].On.Record
	h.forgetMachine(node, r)
	sameRun := was != nil && was.Revision == r.Revision && was.MachineID == r.MachineID && !was.Outcome.Done()
	if pod.Runs == task.Task && (r.NotStarted || r.NeverStarted) && sameRun && h.recordedBegin[node.Name] == r.Revision {
		h.break_(
			"rollback",
			"the run of %s on %s has not started the task, says its record, and an attempt before has",
			r.Revision,
			node.Name,
		)
	}
	if pod.Runs == task.Task && !pod.NotStarted {
		h.recordedBegin[node.Name], h.hasBegun[node.Name] = r.Revision, true
	}
	if ended == record.Succeeded {
		delete(h.mayHaveBegun, key)
		delete(h.recordedBegin, node.Name)
	}
	h.mayHaveBegun.onlyOf(node, key)
}
