// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/outcome"
	"github.com/everynode/everynode/internal/plural"
)

// maxOSBytes bounds the value of a node's label in a message.
const maxOSBytes = 63

// otherOS says that nodes are excluded because of their operating system; "" if none is.
func otherOS(nodes []nodePlan) string {
	count, first := int32(0), ""
	for i := range nodes {
		if nodes[i].Reason != v1alpha1.ReasonUnsupportedOS {
			continue
		}
		if count++; first == "" || nodes[i].Name < first {
			first = nodes[i].Name
		}
	}
	if count == 0 {
		return ""
	}
	return fmt.Sprintf("%s excluded by the operating system (such as %s): scripts and commands run on Linux only. For others use spec.task.template with spec.os",
		plural.CountAre(count, "node"), first)
}

// unselected is why a node does not match the NodeJob.
func (as *assessor) unselected(node *Node) (reason, message string) {
	switch {
	case !as.named.has(node):
		return v1alpha1.ReasonNotSelected, "spec.nodes.names does not name it"
	case !matchesWith(as.selector, as.in.Job.Spec.RemoveLabels, node, node.On.Record):
		return v1alpha1.ReasonNotSelected, "spec.nodes.selector does not match its labels"
	case !as.allowsNode(node):
		return v1alpha1.ReasonNodeNotAllowed, as.nodeNotAllowed()
	}
	return v1alpha1.ReasonUnsupportedOS, fmt.Sprintf("its label %s is %q, and the task runs on %s nodes", corev1.LabelOSStable,
		outcome.CleanHead(node.Labels[corev1.LabelOSStable], maxOSBytes), task.OS(&as.in.Job.Spec))
}
