// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"
	"math/rand"
	"slices"
	"strings"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
)

// namespaces are the users who label namespaces: they allow NodeJobs in a namespace, or no longer.
type namespaces struct {
	// denied is true while the namespace of the NodeJob is not allowed.
	denied bool
	// labels decides when that changes, so that histories without it do not change; nil if it does not.
	labels *rand.Rand
	// nodesOf is the annotation that limits the namespace to nodes; "" for none. limits decides when it changes, as labels does.
	nodesOf string
	limits  *rand.Rand
}

// teamLabel is a label of nodes that only an administrator can write. A compromised node cannot.
const teamLabel = "node-restriction.kubernetes.io/team"

// newNamespaces has users change the label in a quarter of the histories.
func newNamespaces(seed int64) namespaces {
	dice, limits := rand.New(rand.NewSource(seed+1<<42)), rand.New(rand.NewSource(seed+1<<43))
	var ns namespaces
	if !slices.Contains(kept, seed) && dice.Intn(4) == 0 {
		ns.labels, ns.denied = dice, dice.Intn(4) == 0
	}
	if !slices.Contains(kept, seed) && limits.Intn(3) == 0 {
		ns.limits = limits
		ns.nodesOf = ns.someLimit()
	}
	return ns
}

// someLimit is a value of the annotation. The last one cannot be used.
func (ns *namespaces) someLimit() string {
	return []string{"", teamLabel + "=a", teamLabel + "=b", "team=a"}[ns.limits.Intn(4)]
}

// addTeam makes a node one of a team, or of none.
func (h *history) addTeam(node *Node) {
	if h.limits == nil {
		return
	}
	delete(node.Labels, teamLabel)
	if team := []string{"a", "a", "b", ""}[h.limits.Intn(4)]; team != "" {
		node.Labels[teamLabel] = team
	}
}

// limitNamespace is an administrator who limits the namespace to other nodes, or gives a node to another team.
func (h *history) limitNamespace() {
	if h.limits == nil || h.limits.Intn(10) > 0 {
		return
	}
	if names := sortedKeys(h.nodes); len(names) > 0 && h.limits.Intn(2) == 0 {
		node := h.nodes[names[h.limits.Intn(len(names))]]
		node.Labels = maps.Clone(node.Labels)
		h.addTeam(node)
		h.say("%s is of team %q", node.Name, node.Labels[teamLabel])
		h.changed(node)
		return
	}
	h.nodesOf = h.someLimit()
	h.say("the namespace is limited to %q", h.nodesOf)
}

// annotations are those of the namespace.
func (h *history) annotations() map[string]string {
	if h.nodesOf == "" {
		return nil
	}
	return map[string]string{v1alpha1.NodesAnnotation: h.nodesOf}
}

// isAllowed reports whether a limit allows a node.
func isAllowed(limit string, node *Node) bool {
	team, is := strings.CutPrefix(limit, teamLabel+"=")
	return limit == "" || is && node.Labels[teamLabel] == team
}

// checkLimit checks that nothing starts on a node outside of the limit of the namespace, and that it is not restricted.
func (h *history) checkLimit(in Input, p Plan) {
	for _, action := range p.Actions {
		node := Node{}
		if name := actsOn(action, in); name != "" {
			node = in.Nodes[slices.IndexFunc(in.Nodes, func(n Node) bool { return n.Name == name })]
		}
		if node.Name != "" && !isAllowed(h.nodesOf, &node) {
			h.break_("rule 19", "%T on %s, and the namespace is limited to %q", action, node.Name, h.nodesOf)
		}
	}
	if _, valid := strings.CutPrefix(h.nodesOf, teamLabel); !valid && h.nodesOf != "" && in.Job.DeletionTimestamp.IsZero() &&
		!isTrue(p.Status, v1alpha1.ConditionStalled) {
		h.break_("rule 19", "the status does not say that the limit cannot be used")
	}
}

// actsOn names the node on which an action starts something, or that it restricts; "" if it does neither.
func actsOn(action Action, in Input) string {
	switch a := action.(type) {
	case Start:
		return a.Attempt.NodeName
	case Evict:
		return a.Node
	case Claim:
		return a.Node
	case Record:
		if in.NotAllowed == nil && a.Publish != nil && publishes(a.Publish, in, a.Node) {
			return a.Node // what runs ends as usual in a namespace that is not served
		}
	case PatchNode:
		node := in.Nodes[slices.IndexFunc(in.Nodes, func(n Node) bool { return n.Name == a.Node })]
		if a.Cordon != nil && len(a.Cordon.By) > len(node.CordonedBy) || a.Taints != nil && len(a.Taints.All) > len(node.Taints) ||
			a.Publish != nil && publishes(a.Publish, in, a.Node) {
			return a.Node
		}
	}
	return ""
}

// publishes reports whether more is published on a node after a write.
func publishes(p *record.Publish, in Input, name string) bool {
	node := in.Nodes[slices.IndexFunc(in.Nodes, func(n Node) bool { return n.Name == name })]
	return len(p.Published.Labels)+len(p.Published.Annotations) > len(node.Published.Labels)+len(node.Published.Annotations)
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
