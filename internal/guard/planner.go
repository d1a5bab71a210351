// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
)

// planner is one pass for a NodeGuard: the input, joined by node.
type planner struct {
	in   Input
	plan Plan
	// nodes are the guarded nodes, sorted by name.
	nodes  []*nodePlan
	byName map[string]*nodePlan
	// all also contains the nodes that are not guarded.
	all map[string]*nodePlan
	// released is the future status.released, by node.
	released map[string]v1alpha1.ReleasedNode
	// unbound counts pods of the target that are not on a node. They count as unavailable.
	unbound int
	max     int
	// blocked is the name of a budget that Everynode did not create and that selects the companions; "" when none does.
	blocked string
	// releasingShared is a node that this pass releases and that another NodeGuard guards too.
	releasingShared string
	// peerReleases is when other NodeGuards have released nodes, by name.
	peerReleases map[string]time.Time
}

// nodePlan is what is known about one guarded node.
type nodePlan struct {
	*Node
	// targets and readyTargets count the target's pods on the node.
	targets, readyTargets int
	companion             *Pod
	check                 *Pod
	budget                *Budget
	// surplus are further companions. crowded is true while other pods have the labels of the companion. succeeds is
	// true while one of these is the companion of an earlier NodeGuard of the same name, which must terminate first.
	surplus           []*Pod
	crowded, succeeds bool
	// requestedBy is the source of the release request; "" if there is none.
	requestedBy string
	// requestedAt is when the request was first observed.
	requestedAt time.Time
	// released is true while the node is in the stored status.released, and returning after its request has ended.
	// releasing is true if this pass adds it to status.released.
	released, returning, releasing bool
	// expected is true if releasing is only assumed, because another NodeGuard has released the node.
	expected bool
	// held is why the node is not released; nil if it has no request or is released.
	held *hold
	// reserved is true while its check may still lead to its release; position is its position in the queue.
	reserved bool
	position int
}

// hold is why a node is held.
type hold struct {
	reason, message, release string
	// late is true past the deadline.
	late bool
}

// isUnhealthy reports whether the node is unavailable without a release.
func (w *nodePlan) isUnhealthy() bool { return !w.Ready || w.readyTargets == 0 }

// isUnavailable reports whether the node counts against maxUnavailable.
func (w *nodePlan) isUnavailable() bool { return w.released || w.releasing || w.isUnhealthy() }

// active reports whether the budget of the node should be open.
func (w *nodePlan) active() bool { return w.released && !w.returning }

// retainsPlace reports whether the node counts as released although it is not, because it has not become available again
// since then. A second release takes capacity from no other node, and may be needed to repair it.
func (w *nodePlan) retainsPlace() bool { return w.returning && w.isUnhealthy() }

func (w *nodePlan) requestsRelease() bool { return w.requestedBy != "" }

func newSurvey(in Input) *planner {
	s := &planner{in: in, byName: map[string]*nodePlan{}, released: map[string]v1alpha1.ReleasedNode{}}
	for _, g := range in.Guard.Status.Released {
		s.released[g.Node] = g
	}
	s.all = s.join()
	for i := range in.Nodes {
		w := s.all[in.Nodes[i].Name]
		w.requestedBy, w.requestedAt = releaseRequest(w.Node, w.budget, in.Now)
		g, let := s.released[w.Name]
		w.released = let && g.UID == w.UID
		w.returning = w.released && g.Returning
		if s.guards(w) {
			s.nodes = append(s.nodes, w)
			s.byName[w.Name] = w
		}
	}
	slices.SortFunc(s.nodes, func(a, b *nodePlan) int { return strings.Compare(a.Name, b.Name) })
	s.max = scaled(in.Guard.Spec.MaxUnavailable, len(s.nodes))
	s.blocked = s.overlapping()
	return s
}

// join combines what was observed on each node.
func (s *planner) join() map[string]*nodePlan {
	all := make(map[string]*nodePlan, len(s.in.Nodes))
	for i := range s.in.Nodes {
		all[s.in.Nodes[i].Name] = &nodePlan{Node: &s.in.Nodes[i]}
	}
	s.joinTargets(all)
	s.joinCompanions(all)
	s.eachPod(s.in.Checks, func(pod *Pod) {
		if w := all[pod.Node]; w != nil {
			w.check = pod
		}
	})
	for i := range s.in.Budgets {
		budget := &s.in.Budgets[i]
		if w := all[budget.Node]; w != nil && s.ours(budget.Owner) {
			w.budget = budget
		}
	}
	return all
}

// joinCompanions selects the oldest companion of a node as its companion, so that all views that contain it agree, and
// notes which other pods have the same labels.
func (s *planner) joinCompanions(all map[string]*nodePlan) {
	for i := range s.in.Companions {
		pod := &s.in.Companions[i]
		w := all[pod.Node]
		switch {
		case w == nil:
		case !s.ours(pod.Owner): // of an earlier NodeGuard of the same name
			w.crowded, w.succeeds = true, true
		case w.companion == nil:
			w.companion = pod
		default:
			w.crowded = true
			if older(pod, w.companion) {
				w.companion, pod = pod, w.companion
			}
			w.surplus = append(w.surplus, pod)
		}
	}
	if len(s.in.ForeignPods) == 0 {
		return
	}
	byID := map[string]*nodePlan{}
	for name, w := range all {
		byID[NodeID(name)] = w
	}
	for _, stranger := range s.in.ForeignPods {
		if w := byID[stranger.GuardedID]; w != nil {
			w.crowded = true
		}
	}
}

func older(a, b *Pod) bool {
	return cmp.Or(a.Created.Compare(b.Created), strings.Compare(string(a.UID), string(b.UID))) < 0
}

func (s *planner) joinTargets(all map[string]*nodePlan) {
	for _, pod := range s.in.Target.Pods {
		w := all[pod.Node]
		switch {
		case w != nil && pod.Ready:
			w.targets++
			w.readyTargets++
		case w != nil:
			w.targets++
		case pod.Node == "" && s.in.Target.Template == nil:
			s.unbound++ // a missing pod of a DaemonSet already counts on the node that it belongs to
		}
	}
}

// eachPod calls do for each pod that this NodeGuard created, but not an earlier one of the same name.
func (s *planner) eachPod(pods []Pod, do func(*Pod)) {
	for i := range pods {
		if s.ours(pods[i].Owner) {
			do(&pods[i])
		}
	}
}

// ours reports whether this NodeGuard created an object, and not an earlier one of the same name.
func (s *planner) ours(owner types.UID) bool { return owner == s.in.Guard.UID }

// overlapping returns the name of a budget that Everynode did not create and that selects the companions.
func (s *planner) overlapping() string {
	for _, f := range s.in.Foreign {
		if f.Selector != nil && f.Selector.Matches(s.in.Labels) {
			return f.Name
		}
	}
	return ""
}

// planDeletion deletes everything that the NodeGuard has created. Budgets are deleted first, because they hold the
// nodes.
func (s *planner) planDeletion() Plan {
	for i := range s.in.Budgets {
		s.plan.do(DeleteBudget{s.in.Budgets[i]})
	}
	for _, pods := range [][]Pod{s.in.Companions, s.in.Checks} {
		for i := range pods {
			if !pods[i].Terminating {
				s.plan.do(DeletePod{pods[i], v1alpha1.ReasonTerminating})
			}
		}
	}
	s.plan.Status = *s.in.Guard.Status.DeepCopy()
	s.plan.Status.ObservedGeneration = s.in.Guard.Generation
	s.plan.Status.Held = nil
	s.conditionsAs(&s.plan.Status, v1alpha1.ConditionReconciling, v1alpha1.ReasonTerminating, s.deletionMessage())
	return s.plan
}

// deletionMessage says what delays the deletion of a NodeGuard. Everynode has no finalizer on it.
func (s *planner) deletionMessage() string {
	message := "it is being deleted and holds no node"
	var left []string
	for _, pods := range [][]Pod{s.in.Companions, s.in.Checks} {
		for i := range pods {
			left = append(left, podOnNode(pods[i].Name, pods[i].Node))
		}
	}
	if n := len(s.in.Budgets); n > 0 {
		message += fmt.Sprintf("; %d PodDisruptionBudgets are being deleted", n)
	}
	if len(left) > 0 {
		slices.Sort(left)
		message += "; pods that have not ended yet: " + listed(left)
	}
	if finalizers := s.in.Guard.Finalizers; len(finalizers) > 0 {
		message += "; it is gone when its finalizers are removed by those who set them: " + bounded(listed(finalizers))
	}
	return message
}

// deleteUnneeded deletes objects that are on no guarded node, or that an earlier NodeGuard of the same name created.
func (s *planner) deleteUnneeded() {
	kept := func(owner types.UID, node string) bool { return s.ours(owner) && s.byName[node] != nil }
	for i := range s.in.Budgets {
		if b := s.in.Budgets[i]; !kept(b.Owner, b.Node) {
			s.plan.do(DeleteBudget{b})
		}
	}
	for _, pods := range [][]Pod{s.in.Companions, s.in.Checks} {
		for i := range pods {
			if pod := pods[i]; !kept(pod.Owner, pod.Node) && !pod.Terminating {
				s.plan.do(DeletePod{pod, v1alpha1.ReasonNoGuardedNodes})
			}
		}
	}
}

func isReady(pod *Pod) bool {
	return pod != nil && !pod.Terminating && pod.Ready && pod.Phase == corev1.PodRunning
}
