// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plan decides what a NodeJob needs next. It is a pure function of what is seen: no client,
// no context, no logger, no clock (a linter keeps it so). What to do comes back as data, so a rollout
// over hundreds of nodes with failures and a dead manager is a unit test of milliseconds.
//
//	Input ──► survey ──► judge each pod ──► a state for each node ──► steps ──► slots ──────► the rest ────► Plan
//	          (join)     (attempt, reboot)  (rerun, retry, depend,   (steps,   (rollout,     (quarantine,  (summary)
//	                                         rollback, reboot)        budget)   disruption)   gate, facts)
//
// One pass is linear in nodes and pods.
package plan

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/record"
	"github.com/everynode/everynode/internal/task"
)

// Input is everything that Next looks at. It is only read.
type Input struct {
	Job *v1alpha1.NodeJob
	// Revision that the nodes should be done with; the last known one when an obstacle hides it.
	Revision string
	// Digest is task.Digest of the revision; "" where it is not known.
	Digest string
	// Obstacle keeps pods from being started; nil when nothing does.
	Obstacle *Obstacle
	Nodes    []Node
	Pods     []Pod
	// Drains are the pods that are still to leave the nodes that are being drained, by the node's UID.
	// A node that was not checked yet is not in it.
	Drains map[types.UID][]DrainPod
	// BusyNodes are nodes on which a pod of an earlier NodeJob of the same name has not ended yet.
	BusyNodes map[string]bool
	// DependsOn are the NodeJobs of spec.dependsOn.
	DependsOn []Peer
	// GatePeers are the other NodeJobs whose gate has the same key and effect.
	GatePeers []Peer
	// GateKeys are the keys of the gates of all NodeJobs of the cluster: none keeps a task off a node.
	GateKeys []string
	// GateWarning is why a node is not tainted in the request that creates it, and what to do; "" when it is.
	GateWarning string
	// RunnerRefused is why the API server refuses the pods of reboots, checks and rollbacks where the task itself is a pod
	// template, so that Obstacle does not speak for them; nil when it does not.
	RunnerRefused *Obstacle
	// NodeProblems are what only the manager has met on single nodes, by their UIDs.
	NodeProblems map[types.UID]NodeProblem
	// OwnNode is the node that the manager itself runs on; "" when that is none.
	OwnNode string
	Now     time.Time
}

// Obstacle is why no pod of this NodeJob can be started at all.
type Obstacle struct {
	// Reason and Message say what is wrong and what to do, as the Stalled condition shows it.
	Reason  string
	Message string
	// RetryAt is when one more start may be tried. Zero: not before the obstacle is seen to be gone.
	RetryAt time.Time
}

// Node is what the plan reads of a node.
type Node struct {
	Name string
	UID  types.UID
	// Created is when the Node was made.
	Created time.Time
	// ResourceVersion is what was seen, for writes under a precondition.
	ResourceVersion string
	Labels          map[string]string
	Annotations     map[string]string
	// Published is who has published which of them.
	Published record.Published
	Taints    []corev1.Taint
	// Unschedulable is true for a node that is cordoned, by whomever.
	Unschedulable bool
	// CordonedBy are the record keys of the NodeJobs that Everynode has cordoned it for.
	CordonedBy []string
	// Ready is the status of the Ready condition, "" when there is none yet; ReadySince is since when it is
	// True, zero when it is not.
	Ready      corev1.ConditionStatus
	ReadySince time.Time
	Deleting   bool
	// DeletingSince is when its deletion was requested, by the API server's clock; zero when it was not.
	DeletingSince time.Time
	// BootID and MachineID are what the kubelet reports; "" when it has not yet.
	BootID    string
	MachineID string
	// On is what the node carries for this NodeJob.
	On record.NodeRecord
}

// unreachable is true when nothing has been heard from the node's kubelet for long.
func (n *Node) unreachable() bool { return n.Ready == corev1.ConditionUnknown }

// Pod is what the plan reads of a task's pod.
type Pod struct {
	Name     string
	UID      types.UID
	NodeName string
	NodeUID  types.UID
	// Machine is task.Machine of the node when the pod was made.
	Machine string
	// Runs is what of the NodeJob it runs.
	Runs task.Phase
	// Reboot is maintenance.reboot when the pod was made; "" for Never.
	Reboot   v1alpha1.RebootPolicy
	Revision string
	Attempt  int32
	// Retry is task.RetryToken of the NodeJob when the pod was made.
	Retry   string
	Created time.Time
	// Finalized is true while our finalizer is on it.
	Finalized bool
	// Recorded is true for a pod that was released when its end was recorded, and kept for its logs. It is so also
	// when the user has taken the record off the node meanwhile.
	Recorded bool
	// DeleteRequested is when its deletion was asked for, zero when it was not, and DeleteGrace how long it has to end
	// after that.
	DeleteRequested time.Time
	DeleteGrace     time.Duration
	// Disrupted is since when the cluster marks it as disrupted (condition DisruptionTarget); zero
	// when it does not.
	Disrupted       time.Time
	DisruptedReason string
	Phase           corev1.PodPhase
	// PastDeadline is true when the kubelet ended it for its activeDeadlineSeconds.
	PastDeadline bool
	// StatusReason and StatusMessage are the pod's own, such as a kubelet's rejection.
	StatusReason  string
	StatusMessage string
	// Started is when the task's container started; zero when it did not.
	Started time.Time
	// Exit is how the task's container ended; nil when that is not known.
	Exit *Exit
	// Waiting is why the container does not start, such as "ImagePullBackOff: …"; "" when it does.
	Waiting string
}

// ended is true when no container of the pod runs or will run.
func (p *Pod) ended() bool {
	return p.Phase == corev1.PodSucceeded || p.Phase == corev1.PodFailed
}

// Exit is how a task's container ended.
type Exit struct {
	Code     int32
	Finished time.Time
	// Reported is true when the task wrote an outcome; else the rest is the container runtime's word.
	Reported bool
	// Lost is true when it is not known how it ended.
	Lost bool
	// OwnWord is true when Code is what the task reported, since the runtime does not know.
	OwnWord bool
	Reason  string
	Message string
	Results map[string]string
	// Truncated is true when results were left out or cut.
	Truncated bool
}

// DrainPod is a pod that is to leave a node.
type DrainPod struct {
	Namespace string
	Name      string
	UID       types.UID
	// Terminating is true once it is being deleted.
	Terminating bool
	// EvictionRefused is why it must not be evicted at all; "" when it may be.
	EvictionRefused string
	// Blocked is why it could not be evicted when that was tried last; "" when it was not, or could.
	Blocked string
	// TriedAt is when its eviction was tried last; zero when it was not.
	TriedAt time.Time
}

// Plan is what to do, what to say, and when to look again.
type Plan struct {
	// Actions are independent of each other and may run in parallel.
	Actions []Action
	Status  v1alpha1.NodeJobStatus
	// Nodes explains each node, in the order of the input. It is never stored.
	Nodes []NodeState
	// Steps are the nodes of each step of the rollout, and Slots is how many run at once. They are never stored.
	Steps []StepNodes
	Slots int
	// DrainPodRequests are the nodes whose pods the next plan must see in Input.Drains.
	DrainPodRequests []DrainPodRequest
	// WakeAt is when time alone changes the plan; zero when only an event can.
	WakeAt time.Time
}

// State of a node under a NodeJob.
type State string

const (
	// Excluded nodes are not selected or have an untolerated taint.
	Excluded State = "Excluded"
	// Waiting nodes will run later.
	Waiting State = "Waiting"
	// Running nodes have an attempt whose end is not on record yet.
	Running State = "Running"
	// Done nodes are done with the revision.
	Done State = "Done"
	// Failed nodes are not retried unless a user requests it.
	Failed State = "Failed"
)

// NodeState is why a node is where it is.
type NodeState struct {
	Name    string
	State   State
	Reason  string
	Message string
	// Until is when it changes automatically; zero when that is not known.
	Until time.Time
	// Unavailable is true for a node that uses maintenance.maxUnavailable.
	Unavailable bool
}

// StepNodes are the nodes that belong to a step of the rollout.
type StepNodes struct {
	Name string
	// Soak is how long they must stay Ready before the next step begins.
	Soak time.Duration
	// Nodes are indexes into Plan.Nodes.
	Nodes []int
}

// Action is one of Start, Record, PatchNode, Evict, Stop, FinalizePod, RetainPod, DeleteJob, CleanUpNode and RemoveFinalizer.
//
//sumtype:decl
type Action interface{ action() }

// Start makes the pod of an attempt.
type Start struct{ Attempt task.Attempt }

// DrainPodRequest asks for the pods that are still to leave a node.
type DrainPodRequest struct {
	Node string
	UID  types.UID
	// Drain says which pods leave, and which are held; nil for the defaults.
	Drain *v1alpha1.DrainSpec
}

// Record writes the end of an attempt on its node and then releases the pod. Never the other way
// round: a pod that is gone before its record is written would be run again.
type Record struct {
	Node string
	record.Change
	// Pod of the attempt; without a UID when no pod ended it, but time.
	Pod Pod
	// Final is true for a failure after which the attempt's phase is not tried again.
	Final bool
	// Quarantine is true when the node was quarantined for an earlier failure.
	Quarantine bool
	// Retain is true when the pod stays there, for its logs.
	Retain bool
}

// PatchNode writes something else on a node than the end of an attempt.
type PatchNode struct {
	Node string
	record.Change
	// Reason is Cordoned, Uncordoned, Draining, Drained, DrainTimedOut, DrainCancelled, Preparing, Settling,
	// GateClosed, GateOpened or Published.
	Reason  string
	Message string
	// Before is the attempt that the node is prepared for; nil when it is for none. What the API server would refuse the pod
	// of is not prepared.
	Before *task.Attempt
}

// Evict asks for the eviction of pods from a node that is being drained.
type Evict struct {
	Node string
	Pods []DrainPod
	// GracePeriodSeconds is nil for the pods' own.
	GracePeriodSeconds *int64
}

// Stop deletes a running pod; its end is recorded later.
type Stop struct {
	Pod    Pod
	Reason string
}

// FinalizePod lets a pod go that needs no record, or has one.
type FinalizePod struct {
	Pod Pod
	// Unrecorded is true for a pod that says that its end was recorded, while its node has no record of it.
	Unrecorded bool
}

// RetainPod lets a pod go whose end is on record, and leaves it there for its logs.
type RetainPod struct{ Pod Pod }

// DeleteJob deletes the NodeJob, whose time is over.
type DeleteJob struct{}

// CleanUpNode takes off a node what the NodeJob has put there.
type CleanUpNode struct {
	Node string
	record.Change
}

// RemoveFinalizer takes the finalizer off the NodeJob: nothing of it is left.
type RemoveFinalizer struct{}

func (Start) action()           {}
func (Record) action()          {}
func (PatchNode) action()       {}
func (Evict) action()           {}
func (Stop) action()            {}
func (FinalizePod) action()     {}
func (RetainPod) action()       {}
func (DeleteJob) action()       {}
func (CleanUpNode) action()     {}
func (RemoveFinalizer) action() {}

// Next returns the plan for what is seen.
func Next(in Input) Plan {
	s := newSurvey(in)
	if !in.Job.DeletionTimestamp.IsZero() {
		return s.planDeletion()
	}
	var p Plan
	for i := range in.Nodes {
		s.assessNode(&in.Nodes[i], &p)
	}
	s.removeOrphanedPods(&p)
	s.advance(&p)
	s.blockStarts(&p)
	s.countDrains()
	s.startWithinLimit(&p)
	s.noteUnavailable(&p)
	s.quarantine(&p)
	s.reconcileNodeMetadata(&p)
	p.Status = s.status(&p)
	s.expire(&p)
	for i := range s.steps {
		p.Steps = append(p.Steps, StepNodes{s.steps[i].name, s.steps[i].soak, s.steps[i].nodes})
	}
	p.Slots = s.slots
	return p
}

// wake keeps the earliest time at which the plan changes without an event.
func (p *Plan) wake(at time.Time) {
	if !at.IsZero() && (p.WakeAt.IsZero() || at.Before(p.WakeAt)) {
		p.WakeAt = at
	}
}
