// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"math/rand"
	"slices"

	"github.com/everynode/everynode/api/v1alpha1"
)

// namespaces are the users who label namespaces: they allow NodeJobs in a namespace, or no longer.
type namespaces struct {
	// denied is true while the namespace of the NodeJob is not allowed.
	denied bool
	// labels decides when that changes, so that histories without it do not change; nil if it does not.
	labels *rand.Rand
}

// newNamespaces has users change the label in a quarter of the histories.
func newNamespaces(seed int64) namespaces {
	dice := rand.New(rand.NewSource(seed + 1<<42))
	if slices.Contains(kept, seed) || dice.Intn(4) > 0 {
		return namespaces{}
	}
	return namespaces{labels: dice, denied: dice.Intn(4) == 0}
}

// labelNamespace is a user who allows the namespace, or no longer does.
func (h *history) labelNamespace() {
	if h.labels == nil || h.labels.Intn(12) > 0 {
		return
	}
	h.denied = !h.denied
	h.say("the namespace is allowed: %v", !h.denied)
}

// checkAllowed checks that nothing starts for a NodeJob in a namespace that is not allowed, and that nodes are not
// restricted for it. What has started is recorded, and what the NodeJob has put on nodes is removed.
func (h *history) checkAllowed(in Input, p Plan) {
	if !h.denied {
		return
	}
	for _, action := range p.Actions {
		switch a := action.(type) {
		case Start:
			h.break_(
				"rule 19",
				"%s %d starts on %s, and the namespace is not allowed",
				a.Attempt.Phase,
				a.Attempt.Number,
				a.Attempt.NodeName,
			)
		case Evict:
			h.break_("rule 19", "pods are evicted from %s, and the namespace is not allowed", a.Node)
		case PatchNode:
			node := in.Nodes[slices.IndexFunc(in.Nodes, func(n Node) bool { return n.Name == a.Node })]
			switch {
			case a.Cordon != nil && len(a.Cordon.By) > len(node.CordonedBy):
				h.break_("rule 19", "%s is cordoned, and the namespace is not allowed", a.Node)
			case a.Taints != nil && len(a.Taints.All) > len(node.Taints):
				h.break_("rule 19", "the gate of %s is closed, and the namespace is not allowed", a.Node)
			case a.Publish != nil && len(a.Publish.Published.Labels)+len(a.Publish.Published.Annotations) > len(node.Published.Labels)+len(node.Published.Annotations):
				h.break_("rule 19", "results are published on %s, and the namespace is not allowed", a.Node)
			}
		}
	}
	if in.Job.DeletionTimestamp.IsZero() && !isTrue(p.Status, v1alpha1.ConditionStalled) {
		h.break_("rule 19", "the status does not say that the namespace is not allowed")
	}
}
