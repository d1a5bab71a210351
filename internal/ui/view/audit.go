// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/text"
)

// Judged are the counts of a NodeJob by what its nodes are now, and the word for the good ones. In the status, a node is also done after it
// has drifted or the task has expired there, and in an audit whatever it has answered. Here, a node of an audit is done only if it is
// compliant, and has failed otherwise.
func Judged(job *v1alpha1.NodeJob) (n v1alpha1.NodeCounts, done string) {
	n = job.Status.Nodes
	if !task.IsAudit(job) {
		n.Done = max(n.Done-n.Expired-drifted(job), 0)
		return n, "done"
	}
	n.Done, n.Failed = n.Done-n.NonCompliant, n.Failed+n.NonCompliant
	return n, "compliant"
}

// drifted counts the nodes that have drifted and do not run the task again.
func drifted(job *v1alpha1.NodeJob) int32 {
	if task.IsAudit(job) || repairs(job) {
		return 0
	}
	return job.Status.Nodes.NonCompliant
}

// judgment says how many of the nodes are compliant.
func judgment(job *v1alpha1.NodeJob) string {
	n, is := Judged(job)
	return fmt.Sprintf("%d of %d %s", n.Done, n.Total, is)
}

// reportCommand is the command that lists the nodes on which task.check answers no, and why.
func reportCommand(job *v1alpha1.NodeJob) string {
	return "kubectl everynode report " + job.Name + " -n " + job.Namespace
}

// judgedState is the state whose sign and color a node has: that of a failure if an audit has found that it is not compliant.
func judgedState(state plan.State, reason string) plan.State {
	if reason == v1alpha1.ReasonNonCompliant {
		return plan.Failed
	}
	return state
}

// nodeTone is the tone of a node.
func nodeTone(n *plan.NodeState) text.Tone {
	switch n.Reason {
	case v1alpha1.ReasonNonCompliant:
		return text.Bad
	case v1alpha1.ReasonDrifted:
		return text.Warn
	}
	return stateTone(n.State)
}
