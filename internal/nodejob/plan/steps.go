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
	"github.com/everynode/everynode/internal/nodejob/task"
)

// step is one of rollout.steps after parsing.
type step struct {
	name string
	// selector selects its nodes.
	selector labels.Selector
	// selective is true if the step has its own selector.
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
func (ro *rollout) readSteps() {
	spec := ro.in.Job.Spec.Rollout
	steps := spec.Steps
	switch {
	case task.IsAudit(ro.in.Job):
		steps = defaultSteps[len(defaultSteps)-1:] // it changes no node, so all are asked at once
	case len(steps) == 0:
		steps = defaultSteps
	}
	for i := range steps {
		ro.steps = append(ro.steps, step{
			name:      steps[i].Name,
			selector:  ro.readSelector(steps[i].Selector, fmt.Sprintf("spec.rollout.steps[%d].selector", i)),
			selective: steps[i].Selector != nil,
			quota:     steps[i].Nodes,
			soak:      time.Duration(steps[i].SoakSeconds) * time.Second,
		})
	}
	ro.ceiling = len(ro.steps) - 1
	if spec.PromoteTo != "" {
		ro.ceiling = max(ro.indexOf(spec.PromoteTo), 0)
	}
}

// stepNodes are the nodes of each step.
func (ro *rollout) stepNodes() []StepNodes {
	var steps []StepNodes
	for i := range ro.steps {
		steps = append(steps, StepNodes{ro.steps[i].name, ro.steps[i].soak, ro.steps[i].nodes})
	}
	return steps
}

// indexOf is the index of a step by its name, or -1.
func (ro *rollout) indexOf(name string) int {
	return slices.IndexFunc(ro.steps, func(st step) bool { return st.name == name })
}

// chooser chooses the nodes of steps.
type chooser struct{ *rollout }

// assignSteps assigns each node to the first step that accepts it.
func (ro *rollout) assignSteps() {
	c := chooser{ro}
	pool := make([]int, 0, len(ro.nodes))
	for i := range ro.nodes {
		if ro.nodes[i].State != Excluded {
			pool = append(pool, i)
		}
	}
	matched := slices.Clone(pool)
	for k := range ro.steps {
		st := &ro.steps[k]
		st.nodes = c.matchingStep(st, pool)
		if st.quota != nil {
			st.nodes = c.choose(k, scaled(st.quota, c.base(k, c.matchingStep(st, matched)), 1, roundUp))
		}
		for _, i := range st.nodes {
			ro.nodes[i].step = k
		}
		pool = slices.DeleteFunc(pool, func(i int) bool { return ro.nodes[i].step == k })
	}
}

// matchingStep are the nodes that the selector of the step matches.
func (c chooser) matchingStep(st *step, nodes []int) []int {
	if !st.selective {
		return slices.Clone(nodes)
	}
	var fits []int
	for _, i := range nodes {
		if node := c.nodes[i].node; matchesWith(st.selector, c.in.Job.Spec.RemoveLabels, node, node.On.Record) {
			fits = append(fits, i)
		}
	}
	return fits
}

// base is the number of nodes that a percentage of step k refers to. Nodes that have joined since the step started do
// not count, so that a step of a growing cluster can pass.
func (c chooser) base(k int, matched []int) int {
	if k > c.current {
		return len(matched)
	}
	n := 0
	for _, i := range matched {
		if !c.joinedSince(i, c.status.StepStartedAt) {
			n++
		}
	}
	return n
}

// joinedSince reports whether a node was created after t, if t is set.
func (ro *rollout) joinedSince(i int, t metav1.Time) bool {
	return !t.IsZero() && ro.nodes[i].node.Created.After(t.Time)
}

// joinedInSoak reports whether a node was created since the soak started. The start of the soak is stored as the next
// whole second.
func (c chooser) joinedInSoak(i int) bool {
	since := c.status.SoakingSince
	return !since.IsZero() && !c.nodes[i].node.Created.Before(since.Add(-time.Second))
}

// choose selects the nodes of a step with a number of nodes. Nodes on which the revision has run come first, in
// the order of their runs, so that the choice stays the same if nodes join or are removed. A failed node is selected,
// but another node takes its place. The others follow by age, so that a joining node changes nothing, spread over the
// zones.
//
// While a step soaks, no node is selected that has joined since, because that would restart the soak.
func (c chooser) choose(k, want int) []int {
	ran, fresh := c.choices(k)
	slices.SortFunc(ran, func(a, b int) int {
		return cmp.Or(cmp.Compare(c.stickiness(a), c.stickiness(b)), c.nodes[a].since.Compare(c.nodes[b].since), cmp.Compare(c.nodes[a].Name, c.nodes[b].Name))
	})
	var taken []int
	inZone := map[string]int{}
	for _, i := range ran {
		if want == 0 {
			return taken
		}
		taken = append(taken, i)
		if c.nodes[i].State != Failed && !c.nodes[i].progressDeadlineExceeded && !c.leavesSoak(k, i) {
			want--
			inZone[zone(c.nodes[i].node)]++
		}
	}
	c.spread(fresh, inZone)
	return append(taken, fresh[:min(want, len(fresh))]...)
}

// leavesSoak reports whether a node of a step that has not soaked yet is no longer Ready because it is being removed.
// Another node takes its place.
func (c chooser) leavesSoak(k, i int) bool {
	w := &c.nodes[i]
	unready := w.countsAsDone() && !w.slot && w.node.Ready != corev1.ConditionTrue
	return k == c.current && c.steps[k].soak > 0 && c.status.SoakedAt.IsZero() && unready && c.isRemoved(w)
}

// choices are the nodes of a step on which the revision has run, and those on which it may run.
func (c chooser) choices(k int) (ran, fresh []int) {
	for _, i := range c.steps[k].nodes {
		switch {
		case c.nodes[i].ranRevision && (c.nodes[i].State != Done || c.nodes[i].succeeded):
			ran = append(ran, i)
		case k == c.current && c.joinedInSoak(i):
		case c.nodes[i].startable():
			fresh = append(fresh, i)
		}
	}
	return ran, fresh
}

// stickiness orders the nodes on which the revision has run: those that are done first, then those that cost the least.
func (c chooser) stickiness(i int) int {
	if c.nodes[i].countsAsDone() || !c.disrupts() {
		return 0
	}
	return 1 + c.cost(c.nodes[i].node)
}

// cost orders nodes by what the run takes there in addition, from 0 to 2. A quarantined node comes before a node that would become
// unavailable: maintenance.maxUnavailable may not allow both. Of two quarantined nodes, the one that has lost its seat comes first: a
// NodeDisruptionBudget may not allow the other one as well. Otherwise, the rollout would never continue.
func (c chooser) cost(node *Node) int {
	switch {
	case !c.disrupts() || !c.cordonedForUs(node):
		return 2
	case c.in.Budgets[node.UID].Seat != "":
		return 1
	}
	return 0
}

// spread sorts nodes by the order in which a step selects them: Ready nodes first and control plane nodes last, one
// from each zone in turn, the oldest first. inZone is how many nodes each zone already has.
func (c chooser) spread(nodes []int, inZone map[string]int) {
	type place struct{ index, rank, turn int }
	places := make([]place, 0, len(nodes))
	for _, i := range nodes {
		places = append(places, place{index: i, rank: c.canaryRank(&c.nodes[i])})
	}
	slices.SortFunc(places, func(a, b place) int {
		if a.rank != b.rank {
			return cmp.Compare(a.rank, b.rank)
		}
		return compareAge(c.nodes[a.index].node, c.nodes[b.index].node)
	})
	for k := range places {
		z := zone(c.nodes[places[k].index].node)
		places[k].turn = inZone[z]
		inZone[z]++
	}
	slices.SortStableFunc(places, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.turn, b.turn))
	})
	for k := range places {
		nodes[k] = places[k].index
	}
}

// compareAge orders nodes by age, the oldest first, and nodes of the same age by name.
func compareAge(a, b *Node) int {
	if c := a.Created.Compare(b.Created); c != 0 {
		return c
	}
	return cmp.Compare(a.Name, b.Name)
}

// canaryRank orders nodes by how suitable they are as a canary, the most suitable first. A node that waits for a
// NodeJob of spec.dependsOn comes after those that can start, but before control plane nodes.
func (c chooser) canaryRank(w *nodePlan) int {
	node, n := w.node, c.cost(w.node)
	if node.Ready != corev1.ConditionTrue {
		n += 4
	}
	if w.cause == causeDependency {
		n += 8
	}
	if isControlPlane(node) {
		n += 16
	}
	if (c.disrupts() || c.in.Job.Spec.Confirm != nil) && node.Name == c.in.OwnNode {
		n += 32
	}
	return n
}

// controlPlaneLabel is set by kubeadm and most distributions, etcdLabel by RKE2 and k3s on nodes that only run etcd.
// Source: k8s.io/kubernetes cmd/kubeadm/app/constants, LabelNodeRoleControlPlane.
const (
	controlPlaneLabel = "node-role.kubernetes.io/control-plane"
	etcdLabel         = "node-role.kubernetes.io/etcd"
)

func isControlPlane(node *Node) bool { return IsControlPlane(node.Labels) }

// IsControlPlane reports whether a node with these labels runs a control plane or a member of etcd.
func IsControlPlane(labels map[string]string) bool {
	_, runsControlPlane := labels[controlPlaneLabel]
	_, runsEtcd := labels[etcdLabel]
	return runsControlPlane || runsEtcd
}

func zone(node *Node) string { return node.Labels[corev1.LabelTopologyZone] }
