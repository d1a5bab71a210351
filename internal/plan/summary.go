package plan

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/outcome"
)

const (
	// maxFailures bounds status.failures.
	maxFailures = 10
	// maxNamed bounds the nodes that a condition's message names.
	maxNamed = 3
	// maxFailureMessage bounds the message of one failure, in bytes.
	maxFailureMessage = 512
)

// status is bounded, whatever the size of the cluster, and stable: the same state gives the same
// text, so that it is only written when something changed.
func (s *survey) status(p *Plan) v1alpha1.NodeJobStatus {
	status := v1alpha1.NodeJobStatus{
		ObservedGeneration: s.in.Job.Generation,
		Revision:           s.in.Revision,
		Nodes:              count(p.Nodes),
		Failures:           s.boundedFailures(),
	}
	for _, c := range s.in.Job.Status.Conditions {
		status.Conditions = append(status.Conditions, *c.DeepCopy())
	}
	for _, c := range s.conditions(status.Nodes, p.Nodes) {
		c.ObservedGeneration = s.in.Job.Generation
		c.LastTransitionTime = metav1.NewTime(s.in.Now)
		meta.SetStatusCondition(&status.Conditions, c)
	}
	return status
}

func count(nodes []NodeState) v1alpha1.NodeCounts {
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
		}
		c.Matched++
	}
	return c
}

// boundedFailures are the nodes that need help first, then those that try again, by name.
func (s *survey) boundedFailures() []v1alpha1.NodeFailure {
	slices.SortFunc(s.failures, func(a, b v1alpha1.NodeFailure) int {
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

func failureOf(node *Node, retrying bool) v1alpha1.NodeFailure {
	r := node.On.Record
	return v1alpha1.NodeFailure{
		Node:       node.Name,
		Retrying:   retrying,
		Attempts:   r.Attempts,
		ExitCode:   r.ExitCode,
		Reason:     outcome.Clean(r.Reason, 128),
		Message:    outcome.Clean(r.Message, maxFailureMessage),
		FinishedAt: metav1.NewTime(r.FinishedAt),
	}
}

func lastLine(s string) string {
	s = strings.TrimRight(s, "\n")
	return outcome.Clean(s[strings.LastIndexByte(s, '\n')+1:], 160)
}
