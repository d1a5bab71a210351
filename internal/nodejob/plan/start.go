// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/nodejob/task"
)

// startRequest is an attempt that may start on a node.
type startRequest struct {
	phase task.Phase
	node  *Node
	// terminating is true while a pod of Everynode is terminating on the node.
	terminating bool
	// notBefore is the end of the backoff, or of the pause before a rerun; zero if there is none.
	notBefore time.Time
	// rerunReason says why the task is rerun; "" if it is not.
	rerunReason string
}

// startChecks are what may prevent a single node from starting an attempt, in the order in which the status reports it:
// first what concerns the node itself, then what concerns the NodeJob, then what passes with time. What depends on all
// nodes is checked afterwards: the rollout (rollout.startBlock), then the slots and the unavailable nodes
// (capacity.startBlock).
var startChecks = []func(*job, startRequest) block{
	nodeNotAllowed,
	nodeCannotRun,
	nodeValueMissing,
	podIsTerminating,
	suspended,
	obstructed,
	nodeHasProblem,
	backingOff,
	dependencyNotDone,
}

// startBlock is what prevents a node from starting an attempt now, if anything.
func (j *job) startBlock(r startRequest) block {
	for _, check := range startChecks {
		if b := check(j, r); b.blocks() {
			return b
		}
	}
	return block{}
}

// nodeNotAllowed blocks a node that is not among those that the namespace is limited to.
func nodeNotAllowed(j *job, r startRequest) block {
	if j.allowsNode(r.node) {
		return block{}
	}
	return block{cause: causeNode, Why: hold.Why{Reason: v1alpha1.ReasonNodeNotAllowed, Message: j.nodeNotAllowed()}}
}

// nodeNotAllowed says why nothing starts on a node for which allowsNode is false.
func (p *policy) nodeNotAllowed() string {
	return hold.NodeNotAllowed(p.in.Job.Namespace, p.in.AllowedNodes)
}

// nodeCannotRun blocks a node that cannot run anything now.
func nodeCannotRun(_ *job, r startRequest) block {
	if reason, message := cannotRunReason(r.node); reason != "" {
		return block{cause: causeNode, Why: hold.Why{Reason: reason, Message: message}}
	}
	return block{}
}

// cannotRunReason is why a node cannot run anything now; "" if it can.
func cannotRunReason(node *Node) (reason, message string) {
	switch {
	case node.Deleting:
		return v1alpha1.ReasonNodeTerminating, "the node is being deleted"
	case node.Ready == "":
		return v1alpha1.ReasonNotReported, "the node has not reported its state yet"
	case node.unreachable():
		return v1alpha1.ReasonNodeUnreachable, "the node is unreachable (Ready=Unknown)"
	}
	return "", ""
}

// podIsTerminating blocks a node while a pod is terminating on it: the name of the pod may still be in use, and the
// attempt before may still have an effect.
func podIsTerminating(_ *job, r startRequest) block {
	if !r.terminating {
		return block{}
	}
	return block{cause: causeTerminatingPod, Why: hold.Why{Reason: v1alpha1.ReasonPodTerminating, Message: "the pod of an earlier attempt is still terminating"}}
}

// suspended blocks each node while spec.suspend is true, or after spec.startingDeadlineSeconds.
func suspended(j *job, _ startRequest) block {
	why := j.suspendedReason()
	if why == "" || !j.in.Job.DeletionTimestamp.IsZero() {
		return block{}
	}
	return block{cause: causeSuspended, Why: hold.Why{Reason: v1alpha1.ReasonSuspended, Message: why}}
}

// obstructed blocks each node while no pod of the NodeJob can be created.
func obstructed(j *job, r startRequest) block {
	o := j.obstacleFor(r.phase)
	if o == nil || (!o.Until.IsZero() && !j.in.Now.Before(o.Until)) {
		return block{}
	}
	return block{cause: causeObstacle, Why: *o, obstacle: o}
}

// nodeHasProblem blocks a node with a node problem until its retry.
func nodeHasProblem(j *job, r startRequest) block {
	t := j.hindrance(r.node)
	if t == nil {
		return block{}
	}
	return block{cause: causeNodeProblem, Why: t.Why, problem: t}
}

// backingOff blocks a node until the backoff of spec.retry, or the pause before a rerun, has passed.
func backingOff(j *job, r startRequest) block {
	if !j.in.Now.Before(r.notBefore) {
		return block{}
	}
	b := block{cause: causeBackoff, Why: hold.Why{Reason: v1alpha1.ReasonBackingOff, Message: "the next attempt waits after one that failed or was disrupted", Until: r.notBefore}}
	if r.rerunReason != "" {
		b.Reason, b.Message = v1alpha1.ReasonRerunDelayed, r.rerunReason
	}
	return b
}

// dependencyNotDone blocks a node until the NodeJobs of spec.dependsOn are done on it.
func dependencyNotDone(j *job, r startRequest) block {
	if r.phase != task.Task && r.phase != task.CheckBefore {
		return block{}
	}
	before := j.unmetDependency(r.node)
	if before == nil {
		return block{}
	}
	b := block{cause: causeDependency, Why: hold.Why{Reason: v1alpha1.ReasonWaitingForDependency, Message: "NodeJob " + before.Name + " (spec.dependsOn) must be done on it before"}}
	if before.holdsAll {
		b.Message = "NodeJob " + before.Name + " (spec.dependsOn) is suspended, and has never run. Resume it, or remove it from spec.dependsOn"
		return b
	}
	if j.isNewNode(r.node) {
		b.Until = r.node.Created.Add(joiningFor) // the node may not match after all
	}
	return b
}
