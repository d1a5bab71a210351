// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package guard decides what a NodeGuard needs next. Like package plan, it is a pure function of the observed state: no
// client, no context, no logger, no clock (a linter enforces this).
//
//	Input ──► nodes ──► requests ──► releases and holds ──► companions, budgets, checks ──► status ──► Plan
//	         (target)  (request)    (release, held)        (companion, budget, check)      (status)
//
// What only reads the input is a method of observed. Why a node is held is one ordered list (holdRules) of rules that
// read the input, the unavailable nodes (capacity) and the other NodeGuards (peers). Only nodePlan changes the state of a
// node, and only planner adds to the plan.
//
// One pass is linear in nodes and pods, except for sorting the release requests.
//
// One PodDisruptionBudget, the budget, requires all companions, so that the API server grants no eviction of them. It never opens: the
// manager deletes the companion of a node that is released, and a drain continues. A node is released in three writes, each of
// which survives a restart of the manager:
//
//  1. The node is added to status.released with its companion, under the resource version of the NodeGuard, based on a live read of the
//     API server (Input.Live). If two managers with different views try this, one of the writes conflicts.
//  2. That companion is deleted, under its resource version: only if it is already in status.released.
//  3. When the release request ends, status.released says so (returning). If the companion still exists, it records which release has
//     ended. Only then, and when the node is available again, it is removed from status.released. So a manager that was suspended
//     meanwhile finds a changed companion and cannot delete it.
package guard

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/kube"
)

// Input is everything that Next reads. Next does not modify it.
type Input struct {
	Guard  *v1alpha1.NodeGuard
	Target Target
	// Revision and Tolerations of the current companion template.
	Revision    string
	Tolerations []corev1.Toleration
	// Labels of a companion. Budgets of other owners may select it by them.
	Labels labels.Set
	Nodes  []kube.Node
	// Seats are the nodes that have the seat of a NodeDisruptionBudget, which a drain must evict first, by UID. A seat that is being
	// deleted, or that nothing holds yet, does not count.
	Seats map[types.UID]bool
	// Companions, Placeholders and Checks are the pods that the manager has created for a NodeGuard of this name, including an earlier one.
	// Budgets are those with the labels and the owner of one: who can write a budget can delete it as well, so its state
	// only decides about this NodeGuard.
	Companions   []Pod
	Placeholders []Pod
	Checks       []Pod
	Budgets      []Budget
	// ForeignPods are pods that have the labels of companions and that the manager has not created, or that were changed
	// since. Users of the namespace and kubelets can create pods with any labels.
	ForeignPods []Stranger
	// TakenNames are pods of other owners that have the names of companions or checks, by name.
	TakenNames map[string]NameHolder
	// NameKey is a secret in the names of companions and checks, so that they cannot be guessed.
	NameKey string
	// Foreign are the PodDisruptionBudgets of other owners in the namespace.
	Foreign []kube.ForeignBudget
	// Peers are the other NodeGuards of the cluster, sorted by name.
	Peers []Peer
	// PeersUnknown is true if a node has the break-glass annotation (RequestingNodes) and the peers were not asked. Then no
	// other node is released.
	PeersUnknown bool
	// Obstacle is why companions cannot be created; nil if there is none.
	Obstacle *hold.Why
	// NotAllowed is why the manager does not serve the namespace of the NodeGuard; nil if it does. Then no pod and no budget
	// is created. Those that exist stay.
	NotAllowed *hold.Why
	// AllowedNodes are the nodes that the namespace is limited to; nil for all. No others are guarded.
	AllowedNodes labels.Selector
	// RefusedAt is when the API server last rejected the companion of a node, by node.
	RefusedAt map[string]time.Time
	// PlaceholderObstacle is why the placeholder cannot be created; nil if there is no reason.
	PlaceholderObstacle *hold.Why
	// CheckObstacles are why the checks of nodes cannot be created, by node.
	CheckObstacles map[string]*hold.Why
	// BudgetRefused is why the API server rejects PodDisruptionBudgets; "" if it does not.
	BudgetRefused string
	// Live is true if all this was read from the API server, not from a cache. Decisions that must not be based on a
	// stale view are only made then.
	Live bool
	Now  time.Time
}

// Target is what is guarded, as it was observed.
type Target struct {
	// Name is the target in messages, such as "DaemonSet storage".
	Name string
	// Missing is true if the DaemonSet does not exist.
	Missing bool
	// Invalid is why the pod selector cannot be used; "" if it can.
	Invalid string
	// Template of the DaemonSet, by which it selects nodes; nil if only the pods show where the target is.
	Template *corev1.PodSpec
	Pods     []TargetPod
}

// TargetPod is a pod of the target that has not ended.
type TargetPod struct {
	// Node is "" for a pod that is not bound yet.
	Node  string
	Ready bool
	// OwnerKind is the kind of its controller; "" if it has none.
	OwnerKind string
}

// Pod is a pod that the NodeGuard has created.
type Pod struct {
	Name            string
	UID             types.UID
	ResourceVersion string
	Node            string
	// Owner is the UID of the NodeGuard that created it.
	Owner types.UID
	// EndedRelease is the ID of the release that has ended before the companion was deleted; "" if none has.
	EndedRelease string
	Revision     string
	Created      time.Time
	Phase        corev1.PodPhase
	Ready        bool
	Terminating  bool
	// Waiting is why its container does not start, such as "ImagePullBackOff: …"; "" if it does.
	Waiting string
	// RequestedAt identifies the release request of a check.
	RequestedAt string
	// Ended and Message are when and how the container of a check ended, by the clock of the API server. Ended is zero
	// until then.
	Ended    time.Time
	ExitCode int32
	Message  string
}

func (p *Pod) ended() bool { return kube.PodEnded(p.Phase) }

// Budget is the PodDisruptionBudget of the companions, or one of an earlier NodeGuard.
type Budget struct {
	Name            string
	UID             types.UID
	ResourceVersion string
	Owner           types.UID
	BudgetState
	// Healthy is how many ready pods it has, as far as the disruption controller has counted them since its last change (Processed).
	Healthy   int32
	Processed bool
	// Drifted is true if something else has changed fields of it that Everynode manages.
	Drifted bool
}

// Stranger is a pod that has the labels of a companion and that no NodeGuard has created.
type Stranger struct {
	Name string
	// Node that it is bound to.
	Node string
}

// NameHolder is a pod of another owner that has the name of a companion or a check.
type NameHolder struct {
	// Node that it is bound to, and the guarded node that the pod was for.
	Node string
	For  string
}

// BudgetState is the state of a budget.
type BudgetState struct {
	// MinAvailable is how many ready pods it requires, which is at least how many companions can be ready; or Locked.
	MinAvailable int32
	// RequestedAt is when the release requests of nodes were first observed, by NodeID.
	RequestedAt map[string]time.Time
}

// Peer is another NodeGuard.
type Peer struct {
	Guard *v1alpha1.NodeGuard
	// Name with its namespace.
	Name       string
	SameTarget bool
	Released   []v1alpha1.ReleasedNode
	// NotAllowed is true if its namespace is not allowed. Then it counts only with what it has released and still holds.
	NotAllowed bool
	// Stances are its decisions on the nodes with a release request, where they matter (Asking).
	Stances map[string]PeerView
}

// Plan is what to do, what to report, and when to check again.
type Plan struct {
	// Actions are independent of each other and may run in parallel. They run after the status is written if Moves
	// contains changes of status.released: a companion is deleted only for a stored entry.
	Actions []Action
	Status  v1alpha1.NodeGuardStatus
	// Moves are the changes of status.released.
	Moves []Move
	// Confirm requests another plan with Input.Live, for a decision that must not be based on a stale view.
	Confirm bool
	// Nodes explains each guarded node. It is never stored.
	Nodes []NodeState
	// WakeAt is when the plan changes without an event; zero if only an event can change it.
	WakeAt time.Time
}

// State is the state of a guarded node.
type State string

const (
	// Guarded nodes have no release request.
	Guarded State = "Guarded"
	// Held nodes request release and are not released yet.
	Held State = "Held"
	// Released nodes are not available again yet.
	Released State = "Released"
)

// NodeState explains the state of a node.
type NodeState struct {
	Name  string
	State State
	// Unavailable is true for a node that is released, not Ready, or without a ready pod of the target.
	Unavailable bool
	Reason      string
	Message     string
}

// MoveKind is what happens to a node in status.released.
type MoveKind string

const (
	// MoveReleased : the node is added.
	MoveReleased MoveKind = "Released"
	// MoveReturning : its release request has ended, and it is not available yet.
	MoveReturning MoveKind = "Returning"
	// MoveAvailable : the node is removed, because it is available again or deleted.
	MoveAvailable MoveKind = "Available"
)

// Move is a change of status.released.
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

// Action is one of CreateCompanion, CreatePlaceholder, CreateCheck, CreateBudget, SetBudget, DeletePod, EndRelease, DeleteBudget and
// RemoveApproval.
//
//sumtype:decl
type Action interface{ action() }

// CreateCompanion creates the companion of a node. The budget must not have changed since it was observed: it counts the companion.
type CreateCompanion struct {
	Node string
	Name string
}

// CreatePlaceholder creates the placeholder.
type CreatePlaceholder struct{ Name string }

// CreateCheck creates the pod that checks whether a node may be released.
type CreateCheck struct {
	Node        string
	Name        string
	RequestedAt string
}

// CreateBudget creates the budget.
type CreateBudget struct{ BudgetState }

// SetBudget changes the budget, under its resource version. If it requires fewer pods then, a live read must show that no more companions
// exist: a stale view may not show all.
type SetBudget struct {
	Budget Budget
	BudgetState
}

// DeletePod deletes a pod that the NodeGuard has created. Unchanged is true if it must have the resource version that was observed.
type DeletePod struct {
	Pod       Pod
	Reason    string
	Unchanged bool
}

// EndRelease notes on a companion that a release has ended before it was deleted.
type EndRelease struct {
	Companion Pod
	Release   string
}

// DeleteBudget deletes a budget that the NodeGuard has created.
type DeleteBudget struct{ Budget Budget }

// RemoveApproval removes from a node the annotations that were set for a release that has ended.
type RemoveApproval struct {
	Node            string
	ResourceVersion string
	// Approved is what remains of the annotation, and BreakGlass whether that annotation is removed.
	Approved   string
	BreakGlass bool
}

func (CreateCompanion) action()   {}
func (CreatePlaceholder) action() {}
func (CreateCheck) action()       {}
func (CreateBudget) action()      {}
func (SetBudget) action()         {}
func (DeletePod) action()         {}
func (EndRelease) action()        {}
func (DeleteBudget) action()      {}
func (RemoveApproval) action()    {}

// Next returns the plan for the observed state.
func Next(in Input) Plan {
	if !in.Guard.DeletionTimestamp.IsZero() {
		return planDeletion(&in)
	}
	if in.NotAllowed != nil && !IsServed(in.Guard, len(in.Companions)) {
		return planNotAllowed(&in)
	}
	p := newPlanner(&in)

	// 1. Update the nodes in status.released. The decisions below need it: a node that is available again does not count
	// against maxUnavailable, and a node that requests release again is held again.
	p.trackReleased()
	// 2. Sort the release requests. All nodes that are being checked reserve a place before the first decision, because a
	// node with an earlier request must not overtake them.
	p.queueRequests()
	// 3. Release the nodes with the break-glass annotation. They wait for no other node, and count for all others.
	p.releaseByBreakGlass()
	// 4. Release or hold each of the other nodes. A decision sees the earlier ones.
	p.releaseOrHold()
	// 5. Create, change and delete objects according to the decisions: a node that is released in this pass gets no companion
	// and no further check, and a check starts only on a node that has reserved a place.
	p.reconcileCompanions()
	p.reconcileBudget()
	p.reconcilePlaceholder()
	p.reconcileChecks()
	p.deleteUnneeded()
	// 6. Report all of this in the status.
	p.summarize()
	return p.plan
}

// wake keeps the earliest time at which the plan changes without an event.
func (p *Plan) wake(at time.Time) {
	if !at.IsZero() && (p.WakeAt.IsZero() || at.Before(p.WakeAt)) {
		p.WakeAt = at
	}
}

func (p *Plan) do(a Action) { p.Actions = append(p.Actions, a) }
