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
func (sb *statusBuilder) status() v1alpha1.NodeJobStatus {
	status := v1alpha1.NodeJobStatus{
		ObservedGeneration: sb.in.Job.Generation,
		Revision:           sb.in.Revision,
		RevisionDigest:     sb.in.Digest,
		Nodes:              sb.counts,
		Failures:           sb.boundedFailures(),
		Drains:             sb.boundedDrains(),
		NodeProblems:       sb.nodeProblems(),
		Gate:               sb.gateStatus(),
	}
	for _, c := range sb.in.Job.Status.Conditions {
		status.Conditions = append(status.Conditions, *c.DeepCopy())
	}
	sb.setConditions(&status, sb.summarize(status.Nodes), progress(status.Nodes, sb.nodes))
	if sb.in.Revision != "" {
		sb.rollout.noteRisks()
		sb.rollout.status.Steps = sb.rollout.stepCounts()
		status.Rollout = &sb.rollout.status
	}
	return status
}

// stepCounts is the progress of each step.
func (ro *rollout) stepCounts() []v1alpha1.StepStatus {
	counts := make([]v1alpha1.StepStatus, 0, len(ro.steps))
	for i := range ro.steps {
		c := v1alpha1.StepStatus{Name: ro.steps[i].name, Nodes: int32(len(ro.steps[i].nodes))}
		for _, n := range ro.steps[i].nodes {
			switch ro.nodes[n].State {
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
func (sb *statusBuilder) boundedFailures() []v1alpha1.NodeFailure {
	slices.SortStableFunc(sb.failures, func(a, b v1alpha1.NodeFailure) int {
		if a.Retrying != b.Retrying {
			if b.Retrying {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.Node, b.Node)
	})
	return sb.failures[:min(len(sb.failures), maxFailures)]
}

// boundedDrains are the drains, the oldest first.
func (sb *statusBuilder) boundedDrains() []v1alpha1.NodeDrain {
	slices.SortFunc(sb.drains, func(a, b v1alpha1.NodeDrain) int {
		return cmp.Or(a.Since.Compare(b.Since.Time), cmp.Compare(a.Node, b.Node))
	})
	return sb.drains[:min(len(sb.drains), maxDrains)]
}

func (co *cordons) failureOf(node *Node, retrying bool) v1alpha1.NodeFailure {
	r := node.On.Record
	return v1alpha1.NodeFailure{
		Node:       node.Name,
		Retrying:   retrying,
		Attempts:   r.Attempts,
		ExitCode:   r.ExitCode,
		Reason:     outcome.Clean(r.Reason, 128),
		Message:    outcome.Clean(r.Message, maxFailureMessage),
		FinishedAt: metav1.NewTime(r.FinishedAt),
		Quarantine: co.quarantineState(node),
	}
}

func lastLine(s string) string {
	s = strings.TrimRight(s, "\n")
	return outcome.Clean(s[strings.LastIndexByte(s, '\n')+1:], 160)
}
