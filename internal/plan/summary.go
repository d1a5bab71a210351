// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/outcome"
)

const (
	// maxFailures bounds status.failures.
	maxFailures = 10
	// maxNodeProblems bounds status.nodeProblems.
	maxNodeProblems = 10
	// maxNamed bounds the nodes that a condition's message names.
	maxNamed = 3
	// maxFailureMessage bounds the message of one failure, in bytes.
	maxFailureMessage = 512
)

// status is bounded, regardless of the size of the cluster, and stable: the same state gives the same text, so that it
// is only written when something changed.
func (s *statusBuilder) status() v1alpha1.NodeJobStatus {
	status := v1alpha1.NodeJobStatus{
		ObservedGeneration: s.in.Job.Generation,
		Revision:           s.in.Revision,
		RevisionDigest:     s.in.Digest,
		Nodes:              s.counts,
		Failures:           s.boundedFailures(),
		Drains:             s.boundedDrains(),
		NodeProblems:       s.nodeProblems(),
		Gate:               s.gateStatus(),
	}
	for _, c := range s.in.Job.Status.Conditions {
		status.Conditions = append(status.Conditions, *c.DeepCopy())
	}
	s.setConditions(&status, s.summarize(status.Nodes), progress(status.Nodes, s.nodes))
	if s.in.Revision != "" {
		s.rollout.noteRisks()
		s.rollout.status.Steps = s.rollout.stepCounts()
		status.Rollout = &s.rollout.status
	}
	return status
}

// stepCounts is the progress of each step.
func (s *rollout) stepCounts() []v1alpha1.StepStatus {
	counts := make([]v1alpha1.StepStatus, 0, len(s.steps))
	for i := range s.steps {
		c := v1alpha1.StepStatus{Name: s.steps[i].name, Nodes: int32(len(s.steps[i].nodes))}
		for _, n := range s.steps[i].nodes {
			switch s.nodes[n].State {
			case Done:
				c.Done++
			case Failed:
				c.Failed++
			case Excluded, Waiting, Running:
			}
		}
		counts = append(counts, c)
	}
	return counts
}

func count(nodes []nodePlan) v1alpha1.NodeCounts {
	var c v1alpha1.NodeCounts
	for i := range nodes {
		switch nodes[i].State {
		case Excluded:
			continue
		case Done:
			c.Done++
		case Running:
			c.Running++
		case Waiting:
			c.Waiting++
		case Failed:
			c.Failed++
			switch nodes[i].Reason {
			case v1alpha1.ReasonRolledBack:
				c.RolledBack++
			case v1alpha1.ReasonRollbackFailed:
				c.RollbackFailed++
			}
		}
		c.Matched++
	}
	return c
}

// boundedFailures are the nodes that need a user first, then the nodes that are retried, by name.
func (s *statusBuilder) boundedFailures() []v1alpha1.NodeFailure {
	slices.SortStableFunc(s.failures, func(a, b v1alpha1.NodeFailure) int {
		if a.Retrying != b.Retrying {
			if b.Retrying {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.Node, b.Node)
	})
	return s.failures[:min(len(s.failures), maxFailures)]
}

// boundedDrains are the drains, the oldest first.
func (s *statusBuilder) boundedDrains() []v1alpha1.NodeDrain {
	slices.SortFunc(s.drains, func(a, b v1alpha1.NodeDrain) int {
		return cmp.Or(a.Since.Compare(b.Since.Time), cmp.Compare(a.Node, b.Node))
	})
	return s.drains[:min(len(s.drains), maxDrains)]
}

func (s *cordons) failureOf(node *Node, retrying bool) v1alpha1.NodeFailure {
	r := node.On.Record
	return v1alpha1.NodeFailure{
		Node:       node.Name,
		Retrying:   retrying,
		Attempts:   r.Attempts,
		ExitCode:   r.ExitCode,
		Reason:     outcome.Clean(r.Reason, 128),
		Message:    outcome.Clean(r.Message, maxFailureMessage),
		FinishedAt: metav1.NewTime(r.FinishedAt),
		Quarantine: s.quarantineState(node),
	}
}

func lastLine(s string) string {
	s = strings.TrimRight(s, "\n")
	return outcome.Clean(s[strings.LastIndexByte(s, '\n')+1:], 160)
}
