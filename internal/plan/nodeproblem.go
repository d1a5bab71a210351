// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/task"
)

// NodeProblem is what keeps the manager from going on with a single node, and that no object of the API shows.
type NodeProblem struct {
	// Reason and Message say what is wrong and what to do.
	Reason  string
	Message string
	// Since is when it was first met.
	Since time.Time
	// General is true for a pod that was refused when the API server took no others either: it does not speak against the node.
	General bool
	// RetryAt is when what failed may be tried again; zero for at once.
	RetryAt time.Time
}

// hindrance is the trouble that must be waited for on a node; nil when there is none, or its time has come.
func (s *planner) hindrance(node *Node) *NodeProblem {
	t, ok := s.in.NodeProblems[node.UID]
	if !ok || !s.in.Now.Before(t.RetryAt) {
		return nil
	}
	return &t
}

// noteTrouble names a node in the status that does not go on.
func (s *planner) noteTrouble(node *Node, t *NodeProblem) {
	s.troubled = append(s.troubled, node.Name+": "+t.Message)
	s.troubleReason = t.Reason
}

// stillTroubled counts the nodes that trouble keeps from going on, and that do not count as failed yet.
func (s *planner) stillTroubled(nodes []NodeState) int {
	n := 0
	for i := range nodes {
		if (nodes[i].State == Waiting || nodes[i].State == Running) && s.hindrance(s.work[i].node) != nil {
			n++
		}
	}
	return n
}

// obstacleFor is what keeps the next pod of a phase from being made on any node; nil when nothing does. The reboot needs
// nothing but a pod, and what the NodeJob waits for before a run does not matter later in it.
func (s *planner) obstacleFor(phase task.Phase) *Obstacle {
	o := s.obstacle
	if phase == task.Task {
		return o
	}
	otherPods := s.in.Job.Spec.Task.Template != nil // the API server may take one sort and refuse the other
	switch {
	case o == nil:
		return s.in.RunnerRefused
	case beforeRun(o.Reason), phase == task.Reboot && o.RetryAt.IsZero(), otherPods && !o.RetryAt.IsZero():
		return s.in.RunnerRefused
	}
	return o
}

// beforeRun reports whether the reason of an obstacle matters only before a run.
func beforeRun(reason string) bool {
	switch reason {
	case v1alpha1.ReasonDependencyNotFound, v1alpha1.ReasonDependencyCycle, v1alpha1.ReasonInvalidSelector,
		v1alpha1.ReasonSecretNotFound, v1alpha1.ReasonSecretForbidden:
		return true
	}
	return false
}

// obstructs notes that an obstacle keeps a node from starting.
func (s *planner) obstructs(o *Obstacle) {
	if o == s.in.RunnerRefused {
		s.runnerObstructed++
	} else {
		s.obstructed++
	}
}

// startsLike counts the starts of this pass that the API server judges as it judges those of a phase.
func (s *planner) startsLike(phase task.Phase) *int32 {
	if phase != task.Task && s.in.Job.Spec.Task.Template != nil {
		return &s.runnerStarts
	}
	return &s.taskStarts
}
