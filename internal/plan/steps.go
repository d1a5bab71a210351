// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
)

// step is one of rollout.steps after parsing.
type step struct {
	name string
	// selector selects its nodes.
	selector labels.Selector
	// selective is true if the step has its own nodeSelector.
	selective bool
	// quota is how many nodes must succeed; nil for all that the step selects.
	quota *intstr.IntOrString
	soak  time.Duration
	// nodes are the nodes that belong to the step, as indexes into Plan.Nodes.
	nodes []int
}

// defaultSteps are rollout.steps if omitted, as in the CRD: one node, then all.
var defaultSteps = []v1alpha1.RolloutStep{{Name: "canary", Nodes: new(intstr.FromInt32(1))}, {Name: "all"}}

// readSteps reads rollout.steps and the ceiling that rollout.promoteTo sets. The API rejects a name that no step has.
// If such a name is stored anyway, the rollout does not go past the first step.
func (s *rollout) readSteps() {
	spec := s.in.Job.Spec.Rollout
	steps := spec.Steps
	if len(steps) == 0 {
		steps = defaultSteps
	}
	for i := range steps {
		s.steps = append(s.steps, step{
			name:      steps[i].Name,
			selector:  s.readSelector(steps[i].NodeSelector, fmt.Sprintf("spec.rollout.steps[%d].nodeSelector", i)),
			selective: steps[i].NodeSelector != nil,
			quota:     steps[i].Nodes,
			soak:      time.Duration(steps[i].SoakSeconds) * time.Second,
		})
	}
	s.ceiling = len(s.steps) - 1
	if spec.PromoteTo != "" {
		s.ceiling = max(s.indexOf(spec.PromoteTo), 0)
	}
}

// stepNodes are the nodes of each step.
func (s *rollout) stepNodes() []StepNodes {
	var steps []StepNodes
	for i := range s.steps {
		steps = append(steps, StepNodes{s.steps[i].name, s.steps[i].soak, s.steps[i].nodes})
	}
	return steps
}

// indexOf is the index of a step by its name, or -1.
func (s *rollout) indexOf(name string) int {
	return slices.IndexFunc(s.steps, func(st step) bool { return st.name == name })
}

// assignSteps assigns each node to the first step that accepts it.
func (s *rollout) assignSteps() {
	var pool []int
	for i := range s.nodes {
		if s.nodes[i].State != Excluded {
			pool = append(pool, i)
		}
	}
	matched := slices.Clone(pool)
	for k := range s.steps {
		st := &s.steps[k]
		st.nodes = s.matchingStep(st, pool)
		if st.quota != nil {
			st.nodes = s.choose(k, quota(st.quota, s.base(k, s.matchingStep(st, matched))))
		}
		for _, i := range st.nodes {
			s.nodes[i].step = k
		}
		pool = slices.DeleteFunc(pool, func(i int) bool { return s.nodes[i].step == k })
	}
}

// matchingStep are the nodes that the selector of the step matches.
func (s *rollout) matchingStep(st *step, nodes []int) []int {
	if !st.selective {
		return slices.Clone(nodes)
	}
	var fits []int
	for _, i := range nodes {
		if node := s.nodes[i].node; matchesWith(st.selector, s.in.Job.Spec.RemoveLabels, node, node.On.Record) {
			fits = append(fits, i)
		}
	}
	return fits
}

// base is the number of nodes that a percentage of step k refers to. Nodes that have joined since the step started do
// not count, so that a step of a growing cluster can pass.
func (s *rollout) base(k int, matched []int) int {
	if k > s.current {
		return len(matched)
	}
	n := 0
	for _, i := range matched {
		if !s.joinedSince(i, s.status.StepStartedAt) {
			n++
		}
	}
	return n
}

// joinedSince reports whether a node was created after t, if t is set.
func (s *rollout) joinedSince(i int, t metav1.Time) bool {
	return !t.IsZero() && s.nodes[i].node.Created.After(t.Time)
}

// joinedInSoak reports whether a node was created since the soak started. The start of the soak is stored as the next
// whole second.
func (s *rollout) joinedInSoak(i int) bool {
	since := s.status.SoakingSince
	return !since.IsZero() && !s.nodes[i].node.Created.Before(since.Add(-time.Second))
}

// quota is how many nodes of base a step is for, at least one.
func quota(value *intstr.IntOrString, base int) int {
	n, err := intstr.GetScaledValueFromIntOrPercent(value, base, true)
	if err != nil {
		// The CRD validation rejects such values.
		return 1
	}
	return max(n, 1)
}

// choose selects the nodes of a step that is for a number of nodes. Nodes on which the revision has run come first, in
// the order of their runs, so that the choice stays the same if nodes join or are removed. A failed node is selected,
// but another node takes its place. The others follow by age, so that a joining node changes nothing, spread over the
// zones.
//
// While a step soaks, no node is selected that has joined since, because that would restart the soak.
func (s *rollout) choose(k, want int) []int {
	ran, fresh := s.choices(k)
	slices.SortFunc(ran, func(a, b int) int {
		return cmp.Or(cmp.Compare(s.stickiness(a), s.stickiness(b)), s.nodes[a].since.Compare(s.nodes[b].since), cmp.Compare(s.nodes[a].Name, s.nodes[b].Name))
	})
	var taken []int
	inZone := map[string]int{}
	for _, i := range ran {
		if want == 0 {
			return taken
		}
		taken = append(taken, i)
		if s.nodes[i].State != Failed && !s.nodes[i].progressDeadlineExceeded {
			want--
			inZone[zone(s.nodes[i].node)]++
		}
	}
	s.spread(fresh, inZone)
	return append(taken, fresh[:min(want, len(fresh))]...)
}

// choices are the nodes of a step on which the revision has run, and those on which it may run.
func (s *rollout) choices(k int) (ran, fresh []int) {
	for _, i := range s.steps[k].nodes {
		switch {
		case s.nodes[i].ranRevision && (s.nodes[i].State != Done || s.nodes[i].succeeded):
			ran = append(ran, i)
		case k == s.current && s.joinedInSoak(i):
		case s.nodes[i].startable():
			fresh = append(fresh, i)
		}
	}
	return ran, fresh
}

// stickiness orders the nodes on which the revision has run. A quarantined node comes before a node that would become
// unavailable in addition: maintenance.maxUnavailable may not allow both, and then the rollout would never continue.
func (s *rollout) stickiness(i int) int {
	switch {
	case s.nodes[i].countsAsDone() || !s.disrupts():
		return 0
	case s.cordonedForUs(s.nodes[i].node):
		return 1
	}
	return 2
}

// spread sorts nodes by the order in which a step selects them: Ready nodes first and control plane nodes last, one
// from each zone in turn, the oldest first. inZone is how many nodes each zone already has.
func (s *rollout) spread(nodes []int, inZone map[string]int) {
	byAge := func(a, b int) int {
		x, y := s.nodes[a].node, s.nodes[b].node
		return cmp.Or(cmp.Compare(s.canaryRank(x), s.canaryRank(y)), x.Created.Compare(y.Created), cmp.Compare(x.Name, y.Name))
	}
	slices.SortFunc(nodes, byAge)
	turn := make(map[int]int, len(nodes))
	for _, i := range nodes {
		z := zone(s.nodes[i].node)
		turn[i] = inZone[z]
		inZone[z]++
	}
	slices.SortStableFunc(nodes, func(a, b int) int {
		return cmp.Or(cmp.Compare(s.canaryRank(s.nodes[a].node), s.canaryRank(s.nodes[b].node)), cmp.Compare(turn[a], turn[b]), byAge(a, b))
	})
}

// canaryRank orders nodes by how suitable they are as a canary, the most suitable first.
func (s *rollout) canaryRank(node *Node) int {
	n := 0
	if s.disrupts() && node.Name == s.in.OwnNode {
		n += 8
	}
	if !s.disrupts() || !s.cordonedForUs(node) {
		n++ // a quarantined node is already unavailable
	}
	if node.Ready != corev1.ConditionTrue {
		n += 2
	}
	if isControlPlane(node) {
		n += 4
	}
	return n
}

// controlPlaneLabel is set by kubeadm and most distributions, etcdLabel by RKE2 and k3s on nodes that only run etcd.
// Source: k8s.io/kubernetes cmd/kubeadm/app/constants, LabelNodeRoleControlPlane.
const (
	controlPlaneLabel = "node-role.kubernetes.io/control-plane"
	etcdLabel         = "node-role.kubernetes.io/etcd"
)

func isControlPlane(node *Node) bool {
	_, runsControlPlane := node.Labels[controlPlaneLabel]
	_, runsEtcd := node.Labels[etcdLabel]
	return runsControlPlane || runsEtcd
}

func zone(node *Node) string { return node.Labels[corev1.LabelTopologyZone] }
