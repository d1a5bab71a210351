// Package plan decides what a NodeJob needs next. It is a pure function of what is seen: no client,
// no context, no logger, no clock (a linter keeps it so). What to do comes back as data, so a rollout
// over hundreds of nodes with failures and a dead manager is a unit test of milliseconds.
//
//	Input ──► survey ──► judge each pod ──► a state for each node ──► steps ──► slots ──► Plan
//	          (join)     (attempt.go)       (rerun, retry, rollback)  (steps,   (rollout)  (summary)
//	                                                                   budget)
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
	// Obstacle keeps pods from being started; nil when nothing does.
	Obstacle *Obstacle
	Nodes    []Node
	Pods     []Pod
	// Drains are the pods that are still to leave the nodes that are being drained, by the node's UID.
	// A node that nobody has looked at yet is not in it.
	Drains map[types.UID][]DrainPod
	// Occupied are nodes on which a pod of an earlier NodeJob of the same name has not ended yet.
	Occupied map[string]bool
	Now      time.Time
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
	Taints          []corev1.Taint
	// Unschedulable is true for a node that is cordoned, by whomever.
	Unschedulable bool
	// CordonedBy are the record keys of the NodeJobs that Everynode has cordoned it for.
	CordonedBy []string
	// Ready is the status of the Ready condition, "" when there is none yet.
	Ready    corev1.ConditionStatus
	Deleting bool
	// BootID and MachineID are what the kubelet reports; "" when it has not yet.
	BootID    string
	MachineID string
	// On is what the node carries for this NodeJob.
	On record.OnNode
}

// lost is true when nothing has been heard from the node's kubelet for long.
func (n *Node) lost() bool { return n.Ready == corev1.ConditionUnknown }

// Pod is what the plan reads of a task's pod.
type Pod struct {
	Name     string
	UID      types.UID
	NodeName string
	NodeUID  types.UID
	// Machine is task.Machine of the node when the pod was made.
	Machine string
	// Runs is the task or the rollback.
	Runs     task.Phase
	Revision string
	Attempt  int32
	// Retry is task.RetryToken of the NodeJob when the pod was made.
	Retry   string
	Created time.Time
	// Finalized is true while our finalizer is on it.
	Finalized bool
	// DeleteRequested is when its deletion was asked for; zero when it was not.
	DeleteRequested time.Time
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
	// Lost is true when nobody knows how it ended.
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
	// Leaving is true once it is being deleted.
	Leaving bool
	// Held is why it must not be evicted at all; "" when it may be.
	Held string
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
	// Failed nodes are not tried again unless somebody asks.
	Failed State = "Failed"
)

// NodeState is why a node is where it is.
type NodeState struct {
	Name    string
	State   State
	Reason  string
	Message string
	// Until is when it changes by itself; zero when that is not known.
	Until time.Time
}

// Action is one of Start, Record, Mark, Evict, Stop, Release, Forget and Finish.
type Action interface{ action() }

// Start makes the pod of an attempt.
type Start struct{ Attempt task.Attempt }

// Record writes the end of an attempt on its node and then releases the pod. Never the other way
// round: a pod that is gone before its record is written would be run again.
type Record struct {
	Node   string
	UID    types.UID
	Record record.Record
	Pod    Pod
	// DropLabel takes the label off the node: it is not done, whatever it was before.
	DropLabel bool
	// Final is true for a failure after which the attempt's phase is not tried again.
	Final bool
	// Cordon is set when the success ends what the node was cordoned for.
	Cordon *record.Cordon
	// ResourceVersion is set when the record is made from the one that is there: the write fails on a node
	// that has changed since.
	ResourceVersion string
}

// Mark writes on a node what becomes of it after a failure.
type Mark struct {
	Node string
	UID  types.UID
	// Reason is Cordoned, Uncordoned, Draining, Drained, DrainTimedOut or DrainCancelled.
	Reason  string
	Message string
	// Record is nil when it stays as it is.
	Record *record.Record
	Cordon *record.Cordon
	// ResourceVersion is that of the node on which this was decided: the write fails on another one.
	ResourceVersion string
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

// Release lets a pod go that needs no record, or has one.
type Release struct{ Pod Pod }

// Forget takes the record off a node, and what else the NodeJob has put there.
type Forget struct {
	Node string
	UID  types.UID
	// Cordon is set when the node was cordoned for the NodeJob.
	Cordon *record.Cordon
}

// Finish takes the finalizer off the NodeJob: nothing of it is left.
type Finish struct{}

func (Start) action()   {}
func (Record) action()  {}
func (Mark) action()    {}
func (Evict) action()   {}
func (Stop) action()    {}
func (Release) action() {}
func (Forget) action()  {}
func (Finish) action()  {}

// Next returns the plan for what is seen.
func Next(in Input) Plan {
	s := newSurvey(in)
	if !in.Job.DeletionTimestamp.IsZero() {
		return s.leave()
	}
	var p Plan
	for i := range in.Nodes {
		s.settle(&in.Nodes[i], &p)
	}
	s.releaseOrphans(&p)
	s.advance(&p)
	s.hold(&p)
	s.startWithinLimit(&p)
	s.setAside(&p)
	p.Status = s.status(&p)
	return p
}

// wake keeps the earliest time at which the plan changes by itself.
func (p *Plan) wake(at time.Time) {
	if !at.IsZero() && (p.WakeAt.IsZero() || at.Before(p.WakeAt)) {
		p.WakeAt = at
	}
}
