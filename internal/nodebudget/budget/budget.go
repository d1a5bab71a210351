// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package budget decides what the NodeDisruptionBudgets of a cluster need next: seats, and PodDisruptionBudgets that allow as many
// evictions of seats as the budgets allow. Like package plan, it is a pure function of the observed state: no client, no context, no
// logger, no clock (a linter enforces this).
//
//	Input ──► rules ───────► members ──────► groups ─────► grants ───► seats ──► status ──► Plan
//	         (rule, effect)  (member)        (group)       (grant)    (seats)   (status)
//
// A seat is a pod that the manager runs on each node that a budget limits. To take the node away, its seat must be evicted, and the
// API server grants an eviction only if the PodDisruptionBudget of the seat's group allows it. So the limit holds for every tool that
// uses the Eviction API, with no manager running.
//
// All budgets are planned together, because several can select a node, and a pod that two PodDisruptionBudgets select cannot be
// evicted. So a group is the set of nodes that are subject to the same limits. Each group has a PodDisruptionBudget whose
// minAvailable, the floor, is
//
//	members of the group - grant of the group + other pods with its label
//
// It also selects a Placeholder, so that it expects more pods than it requires.
//
// The grant is how many of its members may be unavailable at the same time. The sum of the grants of the groups that share a limit
// never exceeds the limit. A node that becomes unavailable by itself needs no change of the floor: its seat is not ready, so
// one eviction fewer is allowed.
//
// Three rules keep the sum within the limits at each moment, with a manager that stops at any point:
//
//  1. A floor is raised at once, and lowered only as far as the observed floors of the other groups leave room.
//  2. A seat is created, or joins a group, only when the observed floor of the group already counts it.
//  3. A node gets its seat back only when it is available: Ready for some time, not cordoned, and not used by a NodeJob.
package budget

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/kube"
)

const (
	// JoiningFor is how long a node is exempt after its creation, unless spec.joiningNodes is Included.
	JoiningFor = 10 * time.Minute

	// SettleFor is how long a node must be Ready before it gets a seat.
	SettleFor = 30 * time.Second

	// RepairAfter is how long a node must be not Ready before its seat is deleted, so that nothing holds its repair.
	RepairAfter = time.Minute
)

// PendingGroup is the group of new seats, which no PodDisruptionBudget selects. A seat joins its group when the node is known to be
// uncordoned after the seat was created: a drain that began before has not seen the seat, and takes the node nevertheless.
const PendingGroup = "pending"

// Input is everything that Next reads. Next does not modify it.
type Input struct {
	// Budgets are all budgets, sorted by name.
	Budgets []*v1alpha1.NodeDisruptionBudget
	Nodes   []Node
	// Seats are the pods that the manager has created as seats. Strangers are other pods with the label of a group.
	Seats        []Seat
	Strangers    []Stranger
	Placeholders []Placeholder
	// Floors are the PodDisruptionBudgets of groups, and Foreign are the others in the namespace of the seats.
	Floors  []Floor
	Foreign []kube.ForeignBudget
	// Holds are the nodes that NodeJobs disrupt, or are about to, with the name of the NodeJob, by the UID of the node. HoldsKnown is
	// false while the manager does not know yet what all NodeJobs do: then no node gets its seat back.
	Holds      map[types.UID]string
	HoldsKnown bool
	// Waits are the nodes on which NodeJobs wait for a budget.
	Waits map[types.UID]Wait
	// Closed are the NodeJobs that wait on a node only because a budget is closed, by the UID of the node. They are only reported, and
	// change nothing else.
	Closed map[types.UID][]ClosedWait
	// Answers are what is known of the requirements of the budgets, by the name of the budget. A requirement without an answer is not met.
	Answers map[string]Answers
	// Ungranted are the nodes whose absence was not granted, as far as the manager has observed it.
	Ungranted Ungranted
	// Deleted are the nodes whose seat was deleted since the plan before, instead of evicted.
	Deleted map[types.UID]bool
	// Fixed are the seats whose tolerations the API server does not let the manager change, by UID.
	Fixed map[types.UID]bool
	// Common, Paced, Counted and Fresh are those of the plan before; nil if there is none.
	Common  map[string]Common
	Paced   map[PaceKey]Paced
	Counted map[types.UID]Counted
	Fresh   Fresh
	// Refused is why the API server rejects seats or PodDisruptionBudgets; nil if it does not.
	Refused *hold.Why
	// JoiningFor and SettleFor replace the constants of the same name if they are not zero.
	JoiningFor time.Duration
	SettleFor  time.Duration
	Now        time.Time
}

// Node is what the plan reads of a node.
type Node struct {
	kube.Node
	Created time.Time
	// ReadyChanged is when the Ready condition changed last; zero if the node has not reported it.
	ReadyChanged time.Time
}

// Seat is a pod that holds the place of a node.
type Seat struct {
	Name string
	UID  types.UID
	// Node is the UID of the Node that it is for.
	Node    types.UID
	Group   string
	Created time.Time
	// Returned is true if the node returned with it from an absence that was granted.
	Returned bool
	// Evicted is true if the Eviction API has ended it. A node can write that too.
	Evicted bool
	// Ready is true if the disruption controller counts it as healthy.
	Ready bool
	// Terminating is true if it was evicted or deleted, and Ended if its phase is Failed or Succeeded.
	// AtOnce is true if it terminates without a grace period, so that no kubelet must confirm its end.
	Terminating bool
	AtOnce      bool
	Ended       bool
	// Tolerates are the taints that it tolerates by their key.
	Tolerates Taints
	// Waiting is why its container does not start, such as "ImagePullBackOff: …"; "" if it does.
	Waiting string
}

// Stranger is a pod that has the label of a group, and that the manager has not created.
type Stranger struct {
	Name  string
	Group string
}

// Floor is the PodDisruptionBudget of a group.
type Floor struct {
	Group           string
	UID             types.UID
	ResourceVersion string
	Created         time.Time
	MinAvailable    int32
	// Owners are the UIDs of the budgets that own it.
	Owners []types.UID
	// Drifted is true if something else has changed fields of it that Everynode manages.
	Drifted bool
	// Allowed is how many evictions the API server grants now, and Processed is true if that follows from the current spec.
	Allowed   int32
	Processed bool
	// Evicted are the names of the pods whose eviction the API server has counted, until they terminate, or for two minutes.
	Evicted []string
}

// Wait is a NodeJob that waits for a budget before it disrupts a node.
type Wait struct {
	By    string
	Since time.Time
	// IgnoresWindows is true if it may begin outside of windows.
	IgnoresWindows bool
}

// ClosedWait is a NodeJob that waits because a budget is closed. Only one whose task disrupts nodes waits for a budget with scope Disruptions.
type ClosedWait struct {
	By       string
	Disrupts bool
}

// Plan is what to do, what to report, and when to plan next.
type Plan struct {
	// Actions are independent of each other and may run in parallel.
	Actions []Action
	// Statuses are the statuses of the budgets, in the order of the input.
	Statuses []v1alpha1.NodeDisruptionBudgetStatus
	// Stances are what budgets mean for NodeJobs that disrupt a node, by the UID of the node. Nodes that no budget limits are missing.
	Stances map[types.UID]hold.Stance
	// Common are the common windows of budgets that select the same nodes, for the next plan: they are expensive to calculate.
	Common map[string]Common
	// Paced are the paces that nodes have begun, for the next plan.
	Paced map[PaceKey]Paced
	// Counted are the labels with which nodes count, by the UID of the node, for the next plan.
	Counted map[types.UID]Counted
	// Fresh are the nodes that have joined and not had a seat yet, for the next plan.
	Fresh Fresh
	// Bypasses are the nodes that were taken although a budget was closed.
	Bypasses []Bypass
	// WakeAt is when time alone changes the plan; zero if only an event can change it.
	WakeAt time.Time
}

// Action is one of CreateFloor, SetFloor, DeleteFloor, CreateSeat, MoveSeat, TolerateTaints, DeleteSeat, CreatePlaceholder and
// DeletePlaceholder.
//
//sumtype:decl
type Action interface{ action() }

// CreateFloor creates the PodDisruptionBudget of a group.
type CreateFloor struct{ State FloorState }

// SetFloor changes the PodDisruptionBudget of a group, under its resource version.
type SetFloor struct {
	Floor Floor
	State FloorState
}

// DeleteFloor deletes the PodDisruptionBudget of a group without members.
type DeleteFloor struct{ Floor Floor }

// CreateSeat creates the seat of a node, after a live read that shows that the node is still available.
type CreateSeat struct {
	Node      string
	NodeUID   types.UID
	Group     string
	Returned  bool
	Tolerates Taints
}

// MoveSeat changes the group of a seat. From PendingGroup, it requires a live read of the node, as CreateSeat does.
type MoveSeat struct {
	Node  string
	Seat  Seat
	Group string
}

// TolerateTaints adds tolerations to a seat.
type TolerateTaints struct {
	Seat   Seat
	Taints Taints
}

// DeleteSeat deletes a seat: of a node that no budget limits, or that is not Ready, or one that has ended. Broken is the name of a node
// that is not Ready, and requires a live read that shows that the node still is not; empty otherwise. AtOnce is true if the node is
// unreachable, and requires that the read shows this too: the pod is then deleted without a kubelet that confirms its end.
type DeleteSeat struct {
	Seat   Seat
	Broken string
	AtOnce bool
}

// FloorState is what a PodDisruptionBudget should be.
type FloorState struct {
	Group        string
	MinAvailable int32
	Owners       []Owner
}

// Owner is a budget that owns a PodDisruptionBudget: the garbage collector deletes it with the last of them, even if no manager is
// running.
type Owner struct {
	Name string
	UID  types.UID
}

func (CreateFloor) action()    {}
func (SetFloor) action()       {}
func (DeleteFloor) action()    {}
func (CreateSeat) action()     {}
func (MoveSeat) action()       {}
func (TolerateTaints) action() {}
func (DeleteSeat) action()     {}

// Next returns the plan for the observed state.
func Next(in *Input) Plan {
	p := newPlanner(in)
	p.readMembers()
	p.formGroups()
	p.grant()
	p.reconcileFloors()
	p.reconcileSeats()
	p.reconcilePlaceholders()
	p.takeStances()
	p.findApart()
	p.findBypasses()
	p.report()
	return p.plan
}

// wake stores the earliest time at which the plan changes without an event.
func (p *planner) wake(at time.Time) {
	if at.After(p.in.Now) && (p.plan.WakeAt.IsZero() || at.Before(p.plan.WakeAt)) {
		p.plan.WakeAt = at
	}
}

func (p *planner) do(a Action) { p.plan.Actions = append(p.plan.Actions, a) }
