// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plan decides what a NodeJob needs next. It is a pure function of the observed state: no client, no context,
// no logger, no clock (a linter enforces that). It returns its actions as data, so a rollout over hundreds of nodes
// with failures and a manager that is not running is a unit test of milliseconds.
//
//	Input ──► job ──► assess each node ──────► rollout ──► capacity ──────► quarantine, ──► status ──► Plan
//	          (read)  (attempt, reboot, rerun, (steps,     (slots,          gate, publish   (fold over
//	                   retry, depend, rollback) failures)   maintenance)                     the nodes)
//
// One pass is linear in nodes and pods.
package plan

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/kube"
	"github.com/everynode/everynode/internal/nodecondition"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/outcome"
)

// Input is everything that Next reads. Next does not change it.
type Input struct {
	Job *v1alpha1.NodeJob
	// Revision is the revision that the nodes should be done with; the last known one if it is not known because of an
	// obstacle.
	Revision string
	// Digest is task.Digest of the revision; "" if it is not known.
	Digest string
	// Obstacle prevents pods from being started; nil if there is none.
	Obstacle *hold.Why
	// NotAllowed is why the manager does not serve the namespace of the NodeJob; nil if it does. Nothing starts then, and nodes
	// are changed only to record what ends, and to remove what the NodeJob has put there.
	NotAllowed *hold.Why
	// AllowedNodes are the nodes that the namespace of the NodeJob is limited to; nil for all. The same holds on all others.
	AllowedNodes labels.Selector
	Nodes        []Node
	Pods         []Pod
	// Drains are the remaining pods on the nodes that are being drained, by the UID of the node. A node that was not
	// checked yet is not included.
	Drains map[types.UID][]DrainPod
	// BusyNodes are nodes on which a pod of an earlier NodeJob with the same name has not ended yet, and since when it
	// should have.
	BusyNodes map[string]time.Time
	// DependsOn are the NodeJobs of spec.dependsOn.
	DependsOn []Peer
	// GatePeers are the other NodeJobs whose gate has the same key and effect.
	GatePeers []Peer
	// GateKeys are the keys of the gates of all NodeJobs of the cluster. No gate prevents a task from running on a node.
	GateKeys []string
	// GateWarning is why a node does not get the taint in the request that creates it, and what to do; "" if it does.
	GateWarning string
	// RunnerRefused is why the API server refuses the pods of reboots, checks and rollbacks if the task itself is a pod
	// template, so that Obstacle does not apply to them; nil if it does not refuse them.
	RunnerRefused *hold.Why
	// NodeProblems are problems on single nodes that only the manager knows, by the UID of the node.
	NodeProblems map[types.UID]NodeProblem
	// OwnNode is the node that the manager itself runs on; "" if there is none.
	OwnNode string
	// Budgets are what NodeDisruptionBudgets mean for the nodes, by the UID of the node. A node that no enforced budget limits is
	// not included. BudgetsChangeAt is when time alone changes them; zero if it does not.
	Budgets         map[types.UID]NodeBudget
	BudgetsChangeAt time.Time
	Now             time.Time
}

// Node is what the plan reads of a node.
type Node struct {
	Name string
	UID  types.UID
	// Created is the creation time of the Node.
	Created time.Time
	// ResourceVersion is the version that was read, for writes with a precondition.
	ResourceVersion string
	Labels          map[string]string
	Annotations     map[string]string
	// Published says which NodeJob has published which of them.
	Published record.Published
	Taints    []corev1.Taint
	// Unschedulable is true for a cordoned node, regardless of who cordoned it.
	Unschedulable bool
	// CordonedBy are the record keys of the NodeJobs for which Everynode has cordoned the node.
	CordonedBy []string
	// CordonedWith is the field manager that cordoned the node, such as "kubectl-cordon"; "" if that is not known. Who cordons can choose it.
	CordonedWith string
	// Ready is the status of the Ready condition, "" if there is none yet. ReadySince is since when it is True, zero if it
	// is not.
	Ready      corev1.ConditionStatus
	ReadySince time.Time
	// UnreachableSince is since when the status of the Ready condition is Unknown; zero if it is not.
	UnreachableSince time.Time
	Deleting         bool
	// DeletingSince is when its deletion was requested, by the clock of the API server; zero if it was not.
	DeletingSince time.Time
	// BootID and MachineID are what the kubelet reports; "" if it has not reported yet.
	BootID    string
	MachineID string
	// ProviderID and Architecture are those of the Node; "" if they are not set yet.
	ProviderID   string
	Architecture string
	// On is what the node stores for this NodeJob, and OnPeers what it stores for each of Input.DependsOn, followed by each
	// of Input.GatePeers.
	On      record.NodeRecord
	OnPeers []record.NodeRecord
}

// unreachable reports whether the Ready condition is Unknown: the control plane gets no status from the kubelet.
func (n *Node) unreachable() bool { return n.Ready == corev1.ConditionUnknown }

// Pod is what the plan reads of the pod of a task.
type Pod struct {
	Name     string
	UID      types.UID
	NodeName string
	NodeUID  types.UID
	// Machine is task.Machine of the node when the pod was created.
	Machine string
	// Runs is the phase of the NodeJob that the pod runs.
	Runs task.Phase
	// Reboot is maintenance.reboot when the pod was created; "" for Never.
	Reboot v1alpha1.RebootPolicy
	// Disrupts is true if the NodeJob disrupted nodes when the pod was created, so its run disrupts the node.
	Disrupts bool
	// ChecksBefore is true if the pod runs the check before the task, and then the task only if it is needed.
	ChecksBefore bool
	Revision     string
	Attempt      int32
	// Retry is task.RetryToken of the NodeJob when the pod was created.
	Retry string
	// Inputs is a hash of the values that the pod has from the Node (task.env); "" if it has none.
	Inputs string
	// ChangedBy is the user who had last changed the spec when the pod was created; "" if that is unknown.
	ChangedBy string
	// OutsideWindow is the NodeDisruptionBudget whose closed window it ignores; "" if it ignores none.
	OutsideWindow string
	// Archive is where the whole output of the attempt is stored; "" for nowhere.
	Archive string
	// NotStarted is true if its task has not started, as far as its runner or its kubelet knows.
	NotStarted bool
	// Images are the digests of the images of its containers, as far as the kubelet has reported them.
	Images record.Images
	// Confirm is true if the pod waits for a confirmation after the task. Confirming is true if its kubelet has reported that the task
	// has ended and waits, and Confirmed if the manager has confirmed the node.
	Confirm, Confirming, Confirmed bool
	Created                        time.Time
	// Finalized is true while the finalizer of Everynode is on the pod.
	Finalized bool
	// Recorded is true for a pod that was released when its outcome was recorded, and retained for its logs. It stays true
	// if a user removes the record from the node later.
	Recorded bool
	// DeleteRequested is when its deletion was requested, zero if it was not. DeleteGrace is how long it has to end after
	// that.
	DeleteRequested time.Time
	DeleteGrace     time.Duration
	// Disrupted is since when the cluster marks it as disrupted (condition DisruptionTarget); zero if it does not.
	Disrupted       time.Time
	DisruptedReason string
	Phase           corev1.PodPhase
	// PastDeadline is true if the kubelet ended it because of its activeDeadlineSeconds.
	PastDeadline bool
	// StatusReason and StatusMessage are from the status of the pod, for example if the kubelet rejected it.
	StatusReason  string
	StatusMessage string
	// Started is when the container of the task started; zero if it did not.
	Started time.Time
	// Exit is how the container of the task ended; nil if that is not known.
	Exit *Exit
	// Concluded is true if Exit is the outcome, whatever the phase says or will say: the only container has reported its
	// outcome itself, has ended, and is not restarted. Kubelets report that a second before the phase of the pod. It is also true if
	// an admission webhook or policy has added other containers, and those that the pod was created with have ended.
	Concluded bool
	// Added are the names of added containers that have not ended, separated by commas. They may run for ever.
	Added string
	// RecordedOn is the UID of the Node on which this manager has recorded the outcome; "" if it has not. It stays if a
	// user removes the record from the node later.
	RecordedOn types.UID
	// Waiting is why the container does not start, such as "ImagePullBackOff: …"; "" if it does.
	Waiting string
	// Initializing is the init container that runs, before the task can start; "" if none does.
	Initializing string
	// Silent is true if its kubelet has reported nothing about it.
	Silent bool
}

// ended reports whether no container of the pod runs or will run.
func (p *Pod) ended() bool {
	return kube.PodEnded(p.Phase)
}

// over reports whether nothing of the pod is waited for: it has ended, or runs only containers that were added to it.
func (p *Pod) over() bool { return p.ended() || p.Concluded && p.Added != "" }

// succeeded reports whether the task has succeeded. What the task itself has reported counts more than the phase: a pod
// whose container has ended can still be evicted.
func (p *Pod) succeeded() bool {
	return p.Phase == corev1.PodSucceeded || p.Exit != nil && p.Exit.Code == 0 && (p.Exit.OwnWord || p.Concluded)
}

// Exit is how the container of a task ended.
type Exit struct {
	Code     int32
	Finished time.Time
	// Reported is true if the task wrote an outcome; otherwise the other fields are from the container runtime.
	Reported bool
	// Lost is true if it is not known how the container ended.
	Lost bool
	// OwnWord is true if Code is what the task reported, because the container runtime does not know it.
	OwnWord bool
	Reason  string
	Message string
	Results map[string]string
	// Truncated is true if results were omitted or cut.
	Truncated bool
	// Archive is what the task reports about the archive of its output; nil if it reports nothing.
	Archive *outcome.Archive
	// NotStarted is true if the task reports that it has not started.
	NotStarted bool
	// RollbackExitCode is how the rollback ended that the node has run by itself after the task; nil if it has not.
	RollbackExitCode *int
}

// DrainPod is a pod that must be evicted from a node.
type DrainPod struct {
	Namespace string
	Name      string
	UID       types.UID
	// Terminating is true if the pod is being deleted.
	Terminating bool
	// EvictionRefused is why it must not be evicted at all; "" if it may be evicted.
	EvictionRefused string
	// Blocked is why its last eviction failed; "" if it was not tried, or did not fail.
	Blocked string
	// TriedAt is when its eviction was tried last; zero if it was not.
	TriedAt time.Time
	// Placed is when it was created, if it can be placed on cordoned nodes; zero otherwise.
	Placed time.Time
}

// Plan is what to do, what to report in the status, and when to plan next.
type Plan struct {
	// Actions are independent of each other and may run in parallel.
	Actions []Action
	Status  v1alpha1.NodeJobStatus
	// GateClosedSince is when the gate that has been closed the longest was closed; zero if no gate is closed. It is never
	// stored.
	GateClosedSince time.Time
	// Nodes explains the state of each node, in the order of the input. It is never stored.
	Nodes []NodeState
	// Steps are the nodes of each step of the rollout, and Slots is how many run at the same time. They are never stored.
	Steps []StepNodes
	Slots int
	// DrainPodRequests are the nodes whose pods the next plan must see in Input.Drains.
	DrainPodRequests []DrainPodRequest
	// Holds are the UIDs of the nodes that the NodeJob disrupts or is about to disrupt: their seats must not come back. Claims are
	// those of them on which a run that has claimed its node continues. Waits are those of the nodes that it would claim if their
	// NodeDisruptionBudgets allowed it. They are never stored.
	Holds  map[types.UID]bool
	Claims map[types.UID]bool
	Waits  map[types.UID]bool
	// Closed are the nodes that wait only because a NodeDisruptionBudget is closed. They take no place in the order of Waits.
	Closed map[types.UID]bool
	// Stages are how far the disruption of each node of Holds is, for the conditions of the nodes.
	Stages map[types.UID]nodecondition.Stage
	// Conditions are the statuses of the conditions of spec.publish, by the UID of the node. Excluded nodes have none.
	Conditions map[types.UID]corev1.ConditionStatus
	// AwaitsBudgets is true if any node waits for NodeDisruptionBudgets.
	AwaitsBudgets bool
	// WakeAt is when time alone changes the plan; zero if only an event can change it.
	WakeAt time.Time
}

// State of a node under a NodeJob.
type State string

const (
	// Excluded nodes are not selected or have an untolerated taint.
	Excluded State = "Excluded"
	// Waiting nodes will run later.
	Waiting State = "Waiting"
	// Running nodes have an attempt whose outcome is not on record yet.
	Running State = "Running"
	// Done nodes are done with the revision.
	Done State = "Done"
	// Failed nodes are not retried unless a user requests it.
	Failed State = "Failed"
)

// NodeState is the state of a node, and why it has that state.
type NodeState struct {
	Name    string
	State   State
	Reason  string
	Message string
	// Until is when the state changes automatically; zero if that is not known.
	Until time.Time
	// Unavailable is true for a node that uses maintenance.maxUnavailable.
	Unavailable bool
}

// StepNodes are the nodes that belong to a step of the rollout.
type StepNodes struct {
	Name string
	// Soak is how long they must stay Ready before the next step starts.
	Soak time.Duration
	// Nodes are indexes into Plan.Nodes.
	Nodes []int
}

// Action is one of Start, Claim, Record, PatchNode, Evict, Stop, Confirm, FinalizePod, RetainPod, DeleteJob, CleanUpNode and
// RemoveFinalizer.
//
//sumtype:decl
type Action interface{ action() }

// Start creates the pod of an attempt.
type Start struct{ Attempt task.Attempt }

// DrainPodRequest asks for the remaining pods on a node.
type DrainPodRequest struct {
	Node string
	UID  types.UID
	// Drain says which pods are evicted, and which block the drain; nil for the defaults.
	Drain *v1alpha1.DrainSpec
}

// Record writes the outcome of an attempt to its node and then releases the pod if it has ended. The opposite order is wrong: if a pod
// is deleted before its record is written, the attempt is repeated.
type Record struct {
	Node string
	record.Change
	// Pod is the pod of the attempt; without a UID if the run was ended by time and not by a pod.
	Pod Pod
	// Final is true for a failure after which the phase of the attempt is not retried.
	Final bool
	// Quarantine is true if the node was quarantined because of an earlier failure.
	Quarantine bool
	// Was is the answer before the one that the pod was asked for, on a node that is done; the zero value if there is none.
	Was record.Asked
	// Ending is true if the pod has not ended although its outcome is known: a later plan releases it. A deletion before
	// its end would cost the kubelet more requests.
	Ending bool
	// Retain is true if the pod is retained for its logs.
	Retain bool
}

// PatchNode writes something other than the outcome of an attempt to a node.
type PatchNode struct {
	Node string
	record.Change
	// Reason is Cordoned, Uncordoned, Draining, Drained, DrainTimedOut, DrainCancelled, Preparing, Settling,
	// GateClosed, GateOpened, Published or AssumedDone.
	Reason  string
	Message string
	// Before is the attempt that the node is prepared for; nil if there is none. If the API server would refuse the pod of
	// the attempt, the node is not prepared.
	Before *task.Attempt
}

// Evict requests the eviction of pods from a node that is being drained.
type Evict struct {
	Node string
	Pods []DrainPod
	// GracePeriodSeconds is nil for the grace period of each pod.
	GracePeriodSeconds *int64
}

// Stop deletes a running pod. Its outcome is recorded later.
type Stop struct {
	Pod    Pod
	Reason string
}

// Confirm confirms that the node of a pod still responds after its task, so that it does not run the rollback by itself.
type Confirm struct{ Pod Pod }

// FinalizePod removes the finalizer of a pod that needs no record, or has one.
type FinalizePod struct {
	Pod Pod
	// Unrecorded is true for a pod that says that its outcome was recorded, although its node has no record of it.
	Unrecorded bool
	// Awaited is true if the node, or the deletion of the NodeJob, waits for the end of the pod. Otherwise there is no hurry.
	Awaited bool
}

// RetainPod removes the finalizer of a pod whose outcome is on record, and retains the pod for its logs.
type RetainPod struct{ Pod Pod }

// DeleteJob deletes the NodeJob because its ttlSecondsAfterFinished has passed.
type DeleteJob struct{}

// CleanUpNode removes from a node what the NodeJob has set there.
type CleanUpNode struct {
	Node string
	record.Change
}

// RemoveFinalizer removes the finalizer of the NodeJob: nothing of the NodeJob is left in the cluster.
type RemoveFinalizer struct{}

func (Start) action()           {}
func (Record) action()          {}
func (PatchNode) action()       {}
func (Evict) action()           {}
func (Stop) action()            {}
func (Confirm) action()         {}
func (FinalizePod) action()     {}
func (RetainPod) action()       {}
func (DeleteJob) action()       {}
func (CleanUpNode) action()     {}
func (RemoveFinalizer) action() {}

// Next returns the plan for the observed state.
func Next(in Input) Plan { return newPlanner(in).next() }

func (p *planner) next() Plan {
	if !p.in.Job.DeletionTimestamp.IsZero() {
		p.planDeletion()
		return *p.plan
	}

	// 1. Each node separately: what its pods and its record mean, and whether it could start.
	for i := range p.nodes {
		p.assessor.assessNode(&p.nodes[i])
	}
	p.removeOrphanedPods()

	// 2. The rollout: it needs the states of all nodes, and decides which of those that could start may not start yet.
	p.rollout.advance()
	p.rollout.blockStarts()

	// 3. Starts, as far as slots, unavailable nodes and drains allow. The drains count only nodes that still may start.
	p.capacity.countDrains()
	p.startWithinLimit()
	p.askQuestions()
	p.reportHolds()

	// 4. What nodes need besides a run. A node that is written to already waits for the next pass.
	p.quarantiner.quarantine()
	p.reconcileNodeMetadata()

	// 5. The status, which is a fold over the nodes, and what depends on it.
	p.plan.Status = p.newStatus().status()
	p.plan.GateClosedSince = p.gate.closedSince(p.nodes)
	p.expire()
	p.plan.Steps, p.plan.Slots, p.plan.Nodes = p.rollout.stepNodes(), p.capacity.slots, p.states
	p.recheck()
	return *p.plan
}

// recheckInterval is how often a NodeJob is planned at least while nodes wait.
const recheckInterval = 10 * time.Minute

// recheck plans again after some time if nodes wait: the event that they wait for may be one that does not wake the
// NodeJob.
func (p *planner) recheck() {
	for i := range p.nodes {
		if w := &p.nodes[i]; w.State == Waiting || w.rollbackPending || w.progressDeadlineExceeded || w.unasked {
			p.plan.wake(p.in.Now.Add(recheckInterval))
			return
		}
	}
}

// wake stores the earliest time at which the plan changes without an event.
func (p *Plan) wake(at time.Time) {
	if !at.IsZero() && (p.WakeAt.IsZero() || at.Before(p.WakeAt)) {
		p.WakeAt = at
	}
}
