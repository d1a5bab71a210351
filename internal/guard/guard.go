// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package guard decides what a NodeGuard needs next. As package plan, it is a pure function of what is seen: no
// client, no context, no logger, no clock (a linter keeps it so).
//
//	Input ──► which nodes ──► who asks ──► who is away ──► who may go ──► companions, budgets, checks ──► Plan
//	          (select)        (ask)                        (release,      (companion, budget)              (summary)
//	                                                        peers, check)
//
// One pass is linear in nodes and pods, but for the sorting of those that ask.
//
// A node is released in three writes, each of which survives a restart of the manager:
//
//  1. The node is added to status.released, under the resource version of the NodeGuard, based on a live read of the API
//     server (Input.Live). If two managers with different views try this, one of the writes conflicts.
//  2. Its budget opens, under the resource version of the budget: only for a node that is already in status.released.
//  3. When its release request ends, status.released says so (returning), and the budget is closed and records which
//     release it was closed after. Only then, and when the node is available again, it is removed from status.released. So
//     a manager that was suspended meanwhile finds a changed budget and cannot open it.
package guard

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
)

// Input is everything that Next looks at. It is only read.
type Input struct {
	Guard  *v1alpha1.NodeGuard
	Target Target
	// Revision of the companion as it should be, and the tolerations that it has.
	Revision    string
	Tolerations []corev1.Toleration
	// Labels of a companion, by which budgets of others select it.
	Labels labels.Set
	Nodes  []Node
	// Companions, Checks and Budgets are all that are labelled as this NodeGuard's and that it has made, also in an
	// earlier life under the same name.
	Companions []Pod
	Checks     []Pod
	Budgets    []Budget
	// ForeignPods are pods of other owners that have the labels of companions. A kubelet can make pods with any labels.
	ForeignPods []Stranger
	// TakenNames are the pods of other owners that have names that companions or checks were to have, by name.
	TakenNames map[string]NameHolder
	// NewSalt is random. It becomes status.nameSalt if there is none yet.
	NewSalt string
	// Foreign are PodDisruptionBudgets of others in the namespace.
	Foreign []ForeignBudget
	// Peers are the other NodeGuards of the cluster, in the order of their names.
	Peers []Peer
	// PeersUnknown is true when a node breaks its glass (BreaksGlass) and the peers were not asked: then no other node is
	// released.
	PeersUnknown bool
	// Obstacle keeps companions from being made; nil when nothing does.
	Obstacle *Obstacle
	// RefusedAt is when the API server last refused the companion of a node, by node.
	RefusedAt map[string]time.Time
	// CheckObstacles keep the checks of nodes from being made, by node.
	CheckObstacles map[string]*Obstacle
	// BudgetRefused is why the API server takes no PodDisruptionBudget; "" when it does.
	BudgetRefused string
	// Live is true when all this was read from the API server itself. What must not be decided on a view that is
	// behind is decided only then.
	Live bool
	Now  time.Time
}

// Target is what is guarded, as it was seen.
type Target struct {
	// Name is how messages call it, such as "DaemonSet storage".
	Name string
	// Missing is true when the DaemonSet does not exist.
	Missing bool
	// Invalid is why the pod selector cannot be used; "" when it can.
	Invalid string
	// Template of the DaemonSet, by which it selects nodes; nil when pods alone say where the target is.
	Template *corev1.PodSpec
	Pods     []TargetPod
}

// TargetPod is a pod of the target that has not ended.
type TargetPod struct {
	// Node is "" for a pod that is on none yet.
	Node  string
	Ready bool
	// OwnerKind is the kind of its controller; "" when it has none.
	OwnerKind string
}

// Node is what the plan reads of a node.
type Node struct {
	Name            string
	UID             types.UID
	ResourceVersion string
	Labels          map[string]string
	Taints          []corev1.Taint
	Unschedulable   bool
	Ready           bool
	Deleting        bool
	// Approved and BreakGlass are the values of the annotations.
	Approved   string
	BreakGlass string
}

// Pod is a pod that the NodeGuard has made.
type Pod struct {
	Name string
	UID  types.UID
	Node string
	// Owner is the UID of the NodeGuard that made it.
	Owner    types.UID
	Revision string
	Created  time.Time
	Phase    corev1.PodPhase
	Ready    bool
	Leaving  bool
	// Waiting is why its container does not start, such as "ImagePullBackOff: …"; "" when it does.
	Waiting string
	// RequestedAt, of a check, is which release request it is for.
	RequestedAt string
	// Ended and Message, of a check, are when and how its container ended, by the clock of the API server; zero while it
	// has not.
	Ended    time.Time
	ExitCode int32
	Message  string
}

func (p *Pod) ended() bool { return p.Phase == corev1.PodSucceeded || p.Phase == corev1.PodFailed }

// Budget is a PodDisruptionBudget that the NodeGuard has made.
type Budget struct {
	Name            string
	UID             types.UID
	ResourceVersion string
	Node            string
	Owner           types.UID
	BudgetState
	// Drifted is true if something else has changed fields of it that Everynode manages.
	Drifted bool
}

// Stranger is a pod that has the labels of a companion and that no NodeGuard has made.
type Stranger struct {
	Name string
	// Node that it is bound to, and the value of its label everynode.dev/guarded-node.
	Node      string
	GuardedID string
}

// NameHolder is a pod of another owner that has the name that a companion or a check was to have.
type NameHolder struct {
	// Node that it is bound to, and the guarded node that the pod was for.
	Node string
	For  string
}

// BudgetState is what a budget says.
type BudgetState struct {
	// Open lets the companion be evicted.
	Open bool
	// Locked keeps it closed whatever other pods with the labels of the companion are ready.
	Locked bool
	// RequestedAt is when the node was first seen to ask to go; zero while it does not.
	RequestedAt time.Time
	// Ended is the release after which it was closed.
	Ended string
}

// ForeignBudget is a PodDisruptionBudget that Everynode did not create.
type ForeignBudget struct {
	Name     string
	Selector labels.Selector
}

// Peer is another NodeGuard.
type Peer struct {
	// Name with its namespace.
	Name       string
	SameTarget bool
	Released   []v1alpha1.ReleasedNode
	// Stances are what it says of the nodes that ask to go, where that matters (Asking).
	Stances map[string]PeerView
}

// Obstacle is why no pod can be made, as the Stalled condition shows it.
type Obstacle struct {
	Reason  string
	Message string
	// RetryAt is when one more may be tried.
	RetryAt time.Time
}

// Plan is what to do, what to say, and when to look again.
type Plan struct {
	// Actions are independent of each other and may run in parallel. They come after the status, where Moves says that
	// status.going changes: a budget opens only for what is written.
	Actions []Action
	Status  v1alpha1.NodeGuardStatus
	// Moves are what is new in status.going.
	Moves []Move
	// Confirm asks for another plan with Input.Live: something is to be decided that a view that is behind must not.
	Confirm bool
	// Nodes explains each guarded node. It is never stored.
	Nodes []NodeState
	// WakeAt is when time alone changes the plan; zero when only an event can.
	WakeAt time.Time
}

// State of a guarded node.
type State string

const (
	// Guarded nodes stay where they are.
	Guarded State = "Guarded"
	// Held nodes ask to go and may not yet.
	Held State = "Held"
	// Released nodes are not available again yet.
	Released State = "Going"
)

// NodeState is why a node is where it is.
type NodeState struct {
	Name  string
	State State
	// Unavailable is true for a node that is going, not Ready, or without a ready pod of the target.
	Unavailable bool
	Reason      string
	Message     string
}

// MoveKind is what happens to a node in status.going.
type MoveKind string

const (
	// MoveReleased : it comes in.
	MoveReleased MoveKind = "LetGo"
	// MoveReturning : it asks no more, and is not back yet.
	MoveReturning MoveKind = "Returns"
	// MoveAvailable : it goes out, since it is back or gone.
	MoveAvailable MoveKind = "Back"
)

// Move is a change of status.going.
type Move struct {
	Node string
	UID  types.UID
	Kind MoveKind
	// Reason and Note say why.
	Reason string
	Note   string
	// Held is how long it was held before it was released.
	Held time.Duration
}

// Action is one of MakeCompanion, MakeCheck, MakeBudget, SetBudget, DeletePod, DeleteBudget and RemoveApproval.
//
//sumtype:decl
type Action interface{ action() }

// MakeCompanion makes the companion of a node.
type MakeCompanion struct {
	Node string
	Name string
}

// MakeCheck makes the pod that checks whether a node may go.
type MakeCheck struct {
	Node        string
	Name        string
	RequestedAt string
}

// MakeBudget makes the budget of a node.
type MakeBudget struct {
	Node string
	BudgetState
}

// SetBudget changes the budget of a node, under its resource version.
type SetBudget struct {
	Budget Budget
	BudgetState
}

// DeletePod deletes a pod that the NodeGuard has made.
type DeletePod struct {
	Pod    Pod
	Reason string
}

// DeleteBudget deletes a budget that the NodeGuard has made.
type DeleteBudget struct{ Budget Budget }

// RemoveApproval removes from a node the annotations that were set for a release that has ended.
type RemoveApproval struct {
	Node            string
	ResourceVersion string
	// Approved is what stays of the annotation, and BreakGlass whether that one goes.
	Approved   string
	BreakGlass bool
}

func (MakeCompanion) action()  {}
func (MakeCheck) action()      {}
func (MakeBudget) action()     {}
func (SetBudget) action()      {}
func (DeletePod) action()      {}
func (DeleteBudget) action()   {}
func (RemoveApproval) action() {}

// Next returns the plan for what is seen.
func Next(in Input) Plan {
	s := newSurvey(in)
	if !in.Guard.DeletionTimestamp.IsZero() {
		return s.planDeletion()
	}
	s.trackReleased()
	s.releaseNodes()
	s.reconcileCompanions()
	s.reconcileBudgets()
	s.reconcileChecks()
	s.deleteUnneeded()
	s.summarize()
	return s.plan
}

// wake keeps the earliest time at which the plan changes without an event.
func (p *Plan) wake(at time.Time) {
	if !at.IsZero() && (p.WakeAt.IsZero() || at.Before(p.WakeAt)) {
		p.WakeAt = at
	}
}

func (p *Plan) do(a Action) { p.Actions = append(p.Actions, a) }
