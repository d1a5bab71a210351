// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
)

const (
	// maxHeld limits the length of status.waiting.
	maxHeld = 10
	// maxNames limits how many nodes a message names.
	maxNames = 3
	// takenAgain is when to check again whether a name is still taken. The pod may have no label that is watched.
	takenAgain = 30 * time.Second
)

// summary is what the status and the explanation say about all guarded nodes together.
type summary struct {
	observed
	counts v1alpha1.GuardCounts
	states []NodeState
	held   []*nodePlan
	// withoutCompanion is true if a node has no companion, and should have one.
	withoutCompanion bool
	// untolerated are nodes with a taint that no companion tolerates, and taint is the first such taint.
	untolerated []string
	taint       string
	// lacking are nodes without a companion that is ready and up to date, except nodes where no companion can run.
	lacking []string
}

// summarize sets the status and the states of the nodes.
func (p *planner) summarize() {
	s := summary{observed: p.observed}
	for _, n := range p.nodes {
		s.add(n)
	}
	if len(p.in.TakenNames) > 0 {
		p.plan.wake(p.in.Now.Add(takenAgain))
	}
	p.plan.Nodes = s.states
	p.plan.Status = s.status(p.releasedList())
}

// add adds a node to the summary.
func (s *summary) add(n *nodePlan) {
	s.states = append(s.states, explain(n))
	s.count(n)
	s.withoutCompanion = s.withoutCompanion || s.awaitsCompanion(n)
	if n.held != nil {
		s.held = append(s.held, n)
	}
	if taint := s.untoleratedTaint(n); taint != nil && n.companion == nil && n.Ready && n.stage == notReleased {
		s.taint = cmp.Or(s.taint, taint.Key)
		s.untolerated = append(s.untolerated, n.Name)
	}
	if text := s.lack(n); text != "" {
		s.lacking = append(s.lacking, text)
	}
}

// awaitsCompanion reports whether a node has no companion, and should have one.
func (s *summary) awaitsCompanion(n *nodePlan) bool {
	return n.companion == nil && !n.releasing && !n.active() && s.canRunCompanion(n)
}

func (s *summary) count(n *nodePlan) {
	s.counts.Total++
	if isReady(n.companion) {
		s.counts.Ready++
	}
	if n.companion != nil && n.companion.Revision == s.in.Revision && !n.companion.Terminating {
		s.counts.Updated++
	}
	if n.held != nil {
		s.counts.Waiting++
	}
	if n.isUnavailable() {
		s.counts.Unavailable++
	}
}

// lack names a node, and what it lacks; "" if it lacks nothing.
func (s *summary) lack(n *nodePlan) string {
	current := isReady(n.companion) && n.companion.Revision == s.in.Revision
	switch {
	case n.releasing || n.active():
		return ""
	case current || !n.Ready:
		return ""
	case n.companion != nil && n.companion.Waiting != "":
		return n.Name + " (" + bounded(n.companion.Waiting) + ")"
	default:
		return n.Name
	}
}

func explain(n *nodePlan) NodeState {
	state := NodeState{Name: n.Name, State: Guarded, Unavailable: n.isUnavailable(), Reason: v1alpha1.ReasonCompanionsReady, Message: "it has no release request"}
	switch {
	case n.held != nil:
		state.State, state.Reason, state.Message = Held, n.held.Reason, n.held.String()
	case n.isReleased():
		state.State, state.Reason, state.Message = Released, n.entry.Reason, "it is released, and not available again yet"
	}
	return state
}

// status returns the status after all nodes have been added.
func (s *summary) status(released []v1alpha1.ReleasedNode) v1alpha1.NodeGuardStatus {
	st := s.in.Guard.Status.DeepCopy()
	st.ObservedGeneration = s.in.Guard.Generation
	st.Revision = s.in.Revision
	st.Nodes = s.counts
	st.Nodes.Released = int32(len(released))
	st.Waiting, st.ControllerState.FailedChecks = s.waitingList()
	st.Released = released
	setCondition(s.in, st, s.condition())
	return *st
}

// heldNodes returns the nodes that are held, in the order in which they are considered for release.
func (s *summary) heldNodes() []*nodePlan {
	return slices.SortedFunc(slices.Values(s.held), func(a, b *nodePlan) int { return cmp.Compare(a.position, b.position) })
}

// waitingList returns status.waiting, in the order in which the nodes are considered for release, and how their checks have failed.
func (s *summary) waitingList() (waiting []v1alpha1.WaitingNode, failed []v1alpha1.FailedCheck) {
	nodes := s.heldNodes()
	for _, n := range nodes[:min(maxHeld, len(nodes))] {
		w := v1alpha1.WaitingNode{
			Node: n.Name, Since: metav1.NewTime(n.requestedAt).Rfc3339Copy(), By: n.requestedBy, Reason: n.held.Reason, Message: n.held.String(),
		}
		if !n.held.late {
			w.Until = metav1.NewTime(s.deadline(n)).Rfc3339Copy()
		}
		waiting = append(waiting, w)
		if w.Reason == v1alpha1.ReasonCheckFailed {
			failed = append(failed, v1alpha1.FailedCheck{Node: n.Name, RequestedAt: w.Since, Message: n.held.Message})
		}
	}
	return waiting, failed
}

// Sentence describes a held node in one sentence. Events and the command line use the same text.
func Sentence(guard string, w *v1alpha1.WaitingNode) string {
	return fmt.Sprintf("NodeGuard %s holds node %s (%s): %s", guard, w.Node, w.By, w.Message)
}

func podOnNode(pod, node string) string {
	if node == "" {
		return pod
	}
	return pod + " on node " + node
}

func listed(names []string) string {
	if more := len(names) - maxNames; more > 0 {
		return strings.Join(names[:maxNames], ", ") + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(names, ", ")
}
