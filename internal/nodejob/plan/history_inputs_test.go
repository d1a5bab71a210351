// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"
	"math/rand"
	"strings"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
)

// This file defines what a history knows about values that the task takes from its node, which anyone changes at any time.

const rackKey = "example.com/rack"

// inputs are the values of the nodes of a history.
type inputs struct {
	random *rand.Rand
	// takes is true if the task takes an annotation from its node.
	takes bool
	// begunWith are the values of the last task or check before it that started, and ranWith are those of the last success, by run.
	begunWith, ranWith map[string]string
}

// someInputs lets only every ninth history take a value from the nodes, so that the other histories do not change. Half of them
// run again when it changes.
func (h *history) someInputs(seed int64) {
	h.inputs = inputs{random: rand.New(rand.NewSource(seed ^ 36)), begunWith: map[string]string{}, ranWith: map[string]string{}}
	if h.takes = (seed%9+9)%9 == 5; !h.takes {
		return
	}
	ref := &v1alpha1.NodeFieldSelector{FieldPath: "metadata.annotations['" + rackKey + "']"}
	h.job.Spec.Task.Env = []v1alpha1.EnvVar{{Name: "RACK", ValueFrom: &v1alpha1.EnvVarSource{NodeFieldRef: ref}}}
	if h.job.Spec.Rerun.OnNodeFieldChange = seed%2 == 0; h.job.Spec.Rerun.OnNodeFieldChange {
		for i := range h.job.Spec.Rollout.Steps {
			h.job.Spec.Rollout.Steps[i].SoakSeconds = 0 // the oracle of soaks does not know reruns
		}
	}
}

// valueOf is the value of a node that a task may have.
func valueOf(node *Node) (string, bool) {
	value, there := node.Annotations[rackKey]
	return value, there && len(value) <= task.MaxNodeValueBytes && !strings.ContainsRune(value, 0)
}

// setValue gives a node a value.
func (h *history) setValue(node *Node, value string) {
	node.Annotations = maps.Clone(node.Annotations)
	if node.Annotations == nil {
		node.Annotations = map[string]string{}
	}
	node.Annotations[rackKey] = value
}

// changeValues is a user, or a node, that changes or removes a value.
func (h *history) changeValues() {
	if !h.takes || h.random.Intn(3) > 0 || len(h.nodes) == 0 {
		return
	}
	names := sortedKeys(h.nodes)
	node := h.nodes[names[h.random.Intn(len(names))]]
	value := []string{"1", "2", "2", "", "a\x00b", strings.Repeat("x", task.MaxNodeValueBytes+1)}[h.random.Intn(6)]
	h.setValue(node, value)
	if h.random.Intn(5) == 0 {
		delete(node.Annotations, rackKey)
	}
	is, valid := valueOf(node)
	h.say("the value of %s is %.10q, valid: %v", node.Name, is, valid)
	h.changed(node)
}

// equipValue gives a new node its value. Some have none.
func (h *history) equipValue(node *Node) {
	if h.takes && (!h.faults || h.random.Intn(4) > 0) {
		h.setValue(node, "1")
	}
}

// checkValues checks that a pod starts with the value of its node, and not without.
func (h *history) checkValues(seen *Node, a task.Attempt) {
	if !h.takes || a.Phase == task.Reboot {
		return
	}
	value, valid := valueOf(seen)
	if a.Phase == task.Task || a.Phase == task.CheckBefore {
		h.begunWith[run(seen, a.Revision)] = value
	}
	if got, there := a.NodeValues.Values["RACK"]; !valid || !there || got != value {
		h.break_("inputs", "%s %d starts on %s with %.10q, and the node has %.10q", a.Phase, a.Number, seen.Name, got, value)
	}
}

// mayRunWith reports whether a node that has succeeded may run again because of its value.
func (h *history) mayRunWith(seen *Node, key string) bool {
	value, valid := valueOf(seen)
	if !h.takes || !h.job.Spec.Rerun.OnNodeFieldChange || !valid || value == h.ranWith[key] {
		return false
	}
	pause := inputPause
	if h.with(skewedClocks) {
		pause -= clockStep
	}
	return !h.now.Before(h.done[key].at.Add(pause))
}

// hasOtherValue reports whether a node has another value than in the run on record, and runs again because of it.
func (h *history) hasOtherValue(node *Node, rec *record.Record) bool {
	value, valid := valueOf(node)
	return h.takes && h.job.Spec.Rerun.OnNodeFieldChange && valid && rec.Inputs != "" &&
		rec.Inputs != task.NodeValues{Values: map[string]string{"RACK": value}}.Hash()
}

// lacksValue reports whether a node has no value that the task may have.
func (h *history) lacksValue(node *Node) bool {
	_, valid := valueOf(node)
	return h.takes && !valid
}

// settleValue ends the changes of a node.
func (h *history) settleValue(node *Node) {
	if h.lacksValue(node) {
		h.setValue(node, "3")
		h.changed(node)
	}
}
