package plan

import (
	"cmp"
	"fmt"
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
	for _, c := range s.conditions(status.Nodes) {
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

// conditions are Complete, Reconciling and Stalled, in every pass.
func (s *survey) conditions(n v1alpha1.NodeCounts) []metav1.Condition {
	progress := fmt.Sprintf("%d of %d nodes are done", n.Done, n.Matched)
	if n.Failed > 0 {
		progress += fmt.Sprintf(", %d failed", n.Failed)
	}
	complete := condition(v1alpha1.ConditionComplete, false, v1alpha1.ReasonInProgress, progress)
	reconciling := condition(v1alpha1.ConditionReconciling, false, v1alpha1.ReasonInProgress, progress)
	stalled := condition(v1alpha1.ConditionStalled, false, v1alpha1.ReasonNotStalled, "nothing needs help")
	unfinished := n.Running + n.Waiting

	switch {
	case s.obstacle != nil:
		stalled = condition(v1alpha1.ConditionStalled, true, s.obstacle.Reason, s.obstacle.Message)
		complete.Reason = s.obstacle.Reason
		reconciling.Reason = s.obstacle.Reason
	case n.Matched == 0:
		message := "no node matches spec.nodeSelector without a taint that is not tolerated; the task runs as soon as one does"
		complete.Reason, complete.Message = v1alpha1.ReasonNoMatchingNodes, message
		reconciling.Reason, reconciling.Message = v1alpha1.ReasonNoMatchingNodes, message
	case n.Done == n.Matched:
		complete = condition(v1alpha1.ConditionComplete, true, v1alpha1.ReasonAllNodesDone, progress)
		reconciling.Reason = v1alpha1.ReasonAllNodesDone
	case n.Failed > 0 && unfinished == 0:
		stalled = condition(v1alpha1.ConditionStalled, true, v1alpha1.ReasonNodesFailed, s.failedMessage(n.Failed))
		complete.Reason = v1alpha1.ReasonNodesFailed
		reconciling.Reason = v1alpha1.ReasonNodesFailed
	case s.in.Job.Spec.Suspend:
		complete.Reason = v1alpha1.ReasonSuspended
		reconciling.Reason = v1alpha1.ReasonSuspended
		reconciling.Message = "spec.suspend keeps new attempts from starting; " + progress
	default:
		reconciling.Status = metav1.ConditionTrue
		if len(s.notStarted) > 0 {
			complete.Reason = v1alpha1.ReasonPodNotStarting
			reconciling.Reason = v1alpha1.ReasonPodNotStarting
			reconciling.Message = s.notStartedMessage()
		}
	}
	return []metav1.Condition{complete, reconciling, stalled}
}

func condition(kind string, is bool, reason, message string) metav1.Condition {
	status := metav1.ConditionFalse
	if is {
		status = metav1.ConditionTrue
	}
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
}

// failedMessage names up to three nodes with what they said last, and what to do.
func (s *survey) failedMessage(failed int32) string {
	var named []string
	for _, f := range s.boundedFailures() {
		if len(named) == maxNamed {
			break
		}
		text := f.Node + ": " + f.Reason
		if f.ExitCode != nil {
			text += fmt.Sprintf(", exit code %d", *f.ExitCode)
		}
		if line := lastLine(f.Message); line != "" {
			text += ": " + line
		}
		named = append(named, text)
	}
	key := v1alpha1.RecordKey(s.in.Job.Namespace, s.in.Job.Name)
	return fmt.Sprintf("every attempt failed on %d nodes (%s). Correct the task, or have it tried again on a node with: kubectl annotate node NAME %s-",
		failed, strings.Join(named, "; "), key)
}

func (s *survey) notStartedMessage() string {
	slices.Sort(s.notStarted)
	named := s.notStarted[:min(len(s.notStarted), maxNamed)]
	return fmt.Sprintf("on %d nodes the pod does not start (%s). Check the image's name and that the nodes can pull it",
		len(s.notStarted), outcome.Clean(strings.Join(named, "; "), maxFailureMessage))
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
