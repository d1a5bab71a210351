// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// Counted are the labels with which a node counts. A kubelet may write most labels of its Node. So a node that is unavailable keeps the
// labels that it had before, and otherwise their change counts once in a while: each can move its seat and change two floors.
type Counted struct {
	Labels map[string]string
	// Since is when a change of them has counted last.
	Since time.Time
}

// countLabels replaces labels of nodes by those with which they count.
func (p *planner) countLabels() {
	p.nodes, p.labelKeys = p.in.Nodes, p.writableKeys()
	for i := range p.in.Nodes {
		node := &p.in.Nodes[i]
		last, known := p.in.Counted[node.UID]
		if !known || p.sameLabels(last.Labels, node.Labels) {
			continue
		}
		before := *node
		before.Labels = p.withLabels(node.Labels, last.Labels)
		until := last.Since.Add(p.minute())
		if !p.in.Now.Before(until) && !(p.isAbsent(node) && len(p.limiting(&before)) > 0) {
			continue
		}
		p.wake(until)
		if &p.nodes[0] == &p.in.Nodes[0] {
			p.nodes = slices.Clone(p.in.Nodes)
		}
		p.nodes[i] = before
	}
}

// isAbsent reports whether a node is not Ready, or has no ready seat that has joined a group.
func (p *planner) isAbsent(node *Node) bool {
	return !node.Ready || !slices.ContainsFunc(p.seats[node.UID], func(s *Seat) bool { return s.Ready && s.Group != PendingGroup })
}

// rememberLabels notes the labels with which nodes count for the next plan.
func (p *planner) rememberLabels() {
	limited := make(map[types.UID]bool, len(p.members))
	for _, m := range p.members {
		limited[m.UID] = true
	}
	p.plan.Counted = make(map[types.UID]Counted, len(p.members))
	for i := range p.nodes {
		node := &p.nodes[i]
		last, known := p.in.Counted[node.UID]
		is := Counted{Labels: node.Labels, Since: last.Since}
		if !known || !p.sameLabels(last.Labels, node.Labels) {
			is.Since = p.in.Now
		}
		if limited[node.UID] || known && p.in.Now.Before(is.Since.Add(p.minute())) {
			p.plan.Counted[node.UID] = is
		}
	}
}

// writableKeys are the keys that the budgets read and that a kubelet may write.
func (p *planner) writableKeys() []string {
	keys := []string{corev1.LabelOSStable}
	for _, r := range p.rules {
		requirements, _ := r.selector.Requirements()
		for i := range requirements {
			keys = append(keys, requirements[i].Key())
		}
		for i := range r.Spec.Limits {
			keys = append(keys, r.Spec.Limits[i].TopologyKey)
		}
	}
	slices.Sort(keys)
	return slices.DeleteFunc(slices.Compact(keys), func(key string) bool { return key == "" || !isWritable(key) })
}

// isWritable reports whether a kubelet may write a label of its Node. Source: k8s.io/kubernetes plugin/pkg/admission/noderestriction
// (getForbiddenLabels), k8s.io/kubelet pkg/apis (IsKubeletLabel).
func isWritable(key string) bool {
	domain, _, prefixed := strings.Cut(key, "/")
	in := func(parent string) bool {
		return prefixed && (domain == parent || strings.HasSuffix(domain, "."+parent))
	}
	switch {
	case in(corev1.LabelNamespaceNodeRestriction):
		return false
	case !in("kubernetes.io") && !in("k8s.io"):
		return true
	}
	return in(corev1.LabelNamespaceSuffixKubelet) || in(corev1.LabelNamespaceSuffixNode) || slices.Contains([]string{
		corev1.LabelHostname, corev1.LabelTopologyZone, corev1.LabelTopologyRegion, corev1.LabelFailureDomainBetaZone,
		corev1.LabelFailureDomainBetaRegion, corev1.LabelInstanceType, corev1.LabelInstanceTypeStable, corev1.LabelOSStable,
		corev1.LabelArchStable, "beta.kubernetes.io/os", "beta.kubernetes.io/arch",
	}, key)
}

// sameLabels reports whether labels differ in nothing that a kubelet may write and a budget reads.
func (p *planner) sameLabels(a, b map[string]string) bool {
	return !slices.ContainsFunc(p.labelKeys, func(key string) bool {
		va, ina := a[key]
		vb, inb := b[key]
		return va != vb || ina != inb
	})
}

// withLabels returns labels with earlier values of those that a kubelet may write.
func (p *planner) withLabels(now, before map[string]string) map[string]string {
	merged := labels.Merge(now, nil)
	for _, key := range p.labelKeys {
		if value, was := before[key]; was {
			merged[key] = value
		} else {
			delete(merged, key)
		}
	}
	return merged
}
