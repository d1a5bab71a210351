// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/outcome"
)

// MaxAllowedNodes limits the annotation v1alpha1.NodesAnnotation, in bytes.
const MaxAllowedNodes = 1024

// AllowedNodes returns the nodes that the annotations of a namespace limit its NodeJobs and NodeGuards to; nil for all nodes. If the
// annotation cannot be used, it returns an obstacle, and no node is allowed.
func AllowedNodes(namespace string, annotations map[string]string) (labels.Selector, *Why) {
	value, limited := annotations[v1alpha1.NodesAnnotation]
	if !limited {
		return nil, nil
	}
	if selector, valid := readAllowedNodes(value); valid {
		return selector, nil
	}
	return labels.Nothing(), &Why{
		Reason: v1alpha1.ReasonInvalidNamespaceNodes,
		Message: fmt.Sprintf("annotation %s of namespace %s cannot be used: %q. Nothing starts. An administrator can correct it, with labels that begin with node-restriction.kubernetes.io/: kubectl annotate namespace %[2]s %[1]s=node-restriction.kubernetes.io/team=a --overwrite",
			v1alpha1.NodesAnnotation, namespace, outcome.CleanHead(value, 80)),
	}
}

// readAllowedNodes reads the value of the annotation, and reports whether it can be used: if all its labels are such that a kubelet
// cannot set them on its own Node. Source: k8s.io/kubernetes plugin/pkg/admission/noderestriction, getForbiddenLabels.
// config/authorization/namespaces.yaml has the same rules.
func readAllowedNodes(value string) (labels.Selector, bool) {
	const restricted = corev1.LabelNamespaceNodeRestriction
	for part := range strings.SplitSeq(value, ",") {
		key, want, _ := strings.Cut(part, "=")
		prefix, _, _ := strings.Cut(key, "/")
		if _, err := labels.ValidatedSelectorFromSet(labels.Set{key: want}); err != nil || want == "" || prefix != restricted && !strings.HasSuffix(prefix, "."+restricted) {
			return nil, false
		}
	}
	selector, err := labels.Parse(value)
	return selector, err == nil && len(value) <= MaxAllowedNodes
}

// AllowsNode reports whether a node with these labels is among the allowed nodes of a namespace; nil for all nodes.
func AllowsNode(allowed labels.Selector, node map[string]string) bool {
	return allowed == nil || allowed.Matches(labels.Set(node))
}

// NodeNotAllowed says why nothing starts on a node that is not among the allowed nodes of a namespace, and who can change that.
func NodeNotAllowed(namespace string, allowed labels.Selector) string {
	return fmt.Sprintf("annotation %s of namespace %s limits its NodeJobs and NodeGuards to nodes with %s. An administrator can change the annotation, or the labels of the node",
		v1alpha1.NodesAnnotation, namespace, outcome.CleanHead(allowed.String(), 160))
}

// BoundNodesAnnotation returns the annotations of a namespace that its AllowedNodes are read from, with a bounded size.
func BoundNodesAnnotation(annotations map[string]string) map[string]string {
	value, limited := annotations[v1alpha1.NodesAnnotation]
	if !limited {
		return nil
	}
	if len(value) > MaxAllowedNodes {
		value = "more than 1 KiB" // cannot be used
	}
	return map[string]string{v1alpha1.NodesAnnotation: value}
}
