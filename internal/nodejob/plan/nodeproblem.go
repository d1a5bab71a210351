// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/outcome"
)

// NodeProblem is what prevents the manager from continuing with a single node, and that no object of the API shows.
type NodeProblem struct {
	// Until is when the operation may be retried; zero for immediately.
	hold.Why
	// Since is when the problem was first seen, and TriedAt when it was seen last. While nothing is tried, it is not known whether the
	// problem still exists.
	Since, TriedAt time.Time
	// General is true for a pod that was refused while the API server refused all other pods too. Then the node is not the
	// cause.
	General bool
}

// nodeProblems is what the status shows of the problems on single nodes, by name. The time of the next retry is not
// included, so that a retry does not change the status.
func (sb *statusBuilder) nodeProblems() []v1alpha1.NodeProblem {
	if len(sb.in.NodeProblems) == 0 {
		return nil
	}
	var problems []v1alpha1.NodeProblem
	for i := range sb.in.Nodes {
		node := &sb.in.Nodes[i]
		if t, ok := sb.in.NodeProblems[node.UID]; ok && !t.General {
			problems = append(problems, v1alpha1.NodeProblem{
				Node: node.Name, Reason: t.Reason, Message: outcome.CleanHead(t.Message, maxFailureMessage), Since: metav1.NewTime(t.Since.Truncate(time.Second)),
			})
		}
	}
	slices.SortFunc(problems, func(a, b v1alpha1.NodeProblem) int { return cmp.Compare(a.Node, b.Node) })
	return problems[:min(len(problems), maxNodeProblems)]
}

// hindrance is the problem that blocks a node; nil if there is none, or if the operation may be retried.
func (j *job) hindrance(node *Node) *NodeProblem {
	if t := j.in.NodeProblems[node.UID]; j.in.Now.Before(t.Until) {
		return new(t)
	}
	return nil
}

// stillTroubled counts the nodes that a problem blocks and that do not count as failed yet.
func (su *summarizer) stillTroubled() int {
	n := 0
	for i := range su.nodes {
		if (su.nodes[i].State == Waiting || su.nodes[i].State == Running) && su.hindrance(su.nodes[i].node) != nil {
			n++
		}
	}
	return n
}

// obstacleFor is what prevents the creation of the next pod of a phase on any node; nil if nothing does. The reboot
// only needs a pod, and what the NodeJob waits for before a run does not matter later in the run.
func (j *job) obstacleFor(phase task.Phase) *hold.Why {
	o := j.obstacle
	switch {
	case phase == task.CheckBefore && o == nil:
		return j.in.RunnerRefused // a pod that only pulls the images of a template
	case phase == task.Task, phase == task.CheckBefore, j.notAllowed():
		return o
	}
	otherPods := j.in.Job.Spec.Task.Template != nil // the API server may accept one kind of pod and refuse the other
	switch {
	case o == nil:
		return j.in.RunnerRefused
	case beforeRun(o), phase == task.Reboot && o.Until.IsZero(), otherPods && !o.Until.IsZero():
		return j.in.RunnerRefused
	}
	return o
}

// beforeRun reports whether an obstacle matters only before a run.
func beforeRun(o *hold.Why) bool {
	switch o.Reason {
	case v1alpha1.ReasonDependencyNotFound, v1alpha1.ReasonDependencyCycle, v1alpha1.ReasonInvalidSelector,
		v1alpha1.ReasonSecretNotFound, v1alpha1.ReasonSecretForbidden, v1alpha1.ReasonArchiveNotConfigured, v1alpha1.ReasonNodeConditionsDisabled:
		return !o.AllPhases
	}
	return false
}
