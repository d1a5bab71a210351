// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// What the manager says about a NodeJob.

// NodeJobStatus is what has been seen. It is written at most once a second.
type NodeJobStatus struct {
	// observedGeneration is the metadata.generation that the manager observed last; -1 if it has not observed the object.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// revision is the short hash of what is executed now: task, verify and the content of referenced
	// ConfigMaps. It is the value of the label on nodes that are done.
	// +optional
	Revision string `json:"revision,omitempty"`

	// revisionDigest is the whole SHA-256 that the revision abbreviates.
	// +optional
	RevisionDigest string `json:"revisionDigest,omitempty"`

	// unattributedGeneration is the metadata.generation with which the revision began although the spec had not changed, such as after
	// a change of a ConfigMap. Until the spec changes, no user is named as its author. Absent otherwise.
	// +optional
	UnattributedGeneration int64 `json:"unattributedGeneration,omitempty"`

	// nodes counts the nodes by their state.
	// +optional
	Nodes NodeCounts `json:"nodes,omitempty"`

	// excluded are nodes that are selected and that the task does not run on, by the reason: at most 5 reasons, those with the most
	// nodes first. nodes.excluded counts all of them.
	// +optional
	// +listType=map
	// +listMapKey=message
	// +kubebuilder:validation:MaxItems=5
	Excluded []ExcludedNodes `json:"excluded,omitempty"`

	// rollout is how far the revision has come.
	// +optional
	Rollout *RolloutStatus `json:"rollout,omitempty"`

	// gate is the gate that joining nodes have now; absent without one.
	// +optional
	Gate *GateStatus `json:"gate,omitempty"`

	// drains are at most 10 nodes that are being drained, and what holds them up.
	// +optional
	// +listType=map
	// +listMapKey=node
	// +kubebuilder:validation:MaxItems=10
	Drains []NodeDrain `json:"drains,omitempty"`

	// failures are at most 10 nodes on which the last attempt of this revision failed or was disrupted,
	// those that are not retried first.
	// +optional
	// +listType=map
	// +listMapKey=node
	// +kubebuilder:validation:MaxItems=10
	Failures []NodeFailure `json:"failures,omitempty"`

	// nodeProblems are at most 10 nodes with which the manager cannot continue now for a reason that no other object
	// shows, by name. The manager retries. A problem that the API server has with all pods is in the conditions instead.
	// +optional
	// +listType=map
	// +listMapKey=node
	// +kubebuilder:validation:MaxItems=10
	NodeProblems []NodeProblem `json:"nodeProblems,omitempty"`

	// authorization says whether the API server asked for the rights to what the NodeJob does on nodes when it was written.
	// +optional
	Authorization *Authorization `json:"authorization,omitempty"`

	// seal is a digest of the rest of the status with a key that only the manager has. The manager ignores a status without a
	// valid seal, because it did not write it.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Seal string `json:"seal,omitempty"`

	// notifications are what the manager reports to the URL of its flag --notifications-url; absent without that flag.
	// +optional
	Notifications *NodeJobNotifications `json:"notifications,omitempty"`

	// conditions are Complete, Reconciling, Stalled, RollbackFailed and GateEnforced.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NodeCounts counts the matching nodes. matched = done + running + waiting + failed.
type NodeCounts struct {
	// matched nodes are selected and have no untolerated taint, or have run or run the task although they have one.
	// +optional
	Matched int32 `json:"matched"`
	// done with the current revision; with rerun.onChange false, with any.
	// +optional
	Done int32 `json:"done"`
	// running an attempt.
	// +optional
	Running int32 `json:"running"`
	// waiting for a slot, a backoff, or for the node itself.
	// +optional
	Waiting int32 `json:"waiting"`
	// failed for good: not retried unless requested; or not Ready in the soak of their step.
	// +optional
	Failed int32 `json:"failed"`
	// rollbackPending are those of the failed on which the rollback runs, or will start without help.
	// +optional
	RollbackPending int32 `json:"rollbackPending"`
	// rolledBack are those of the failed on which the rollback has succeeded.
	// +optional
	RolledBack int32 `json:"rolledBack"`
	// rollbackFailed are those of the failed on which every attempt of the rollback failed as well.
	// +optional
	RollbackFailed int32 `json:"rollbackFailed"`
	// excluded nodes are selected and do not count as matched: they have an untolerated taint or another operating system.
	// +optional
	Excluded int32 `json:"excluded,omitempty"`
}

// ExcludedNodes are nodes that are selected and that the task does not run on, all for the same reason.
type ExcludedNodes struct {
	// message says why, such as which taint they have.
	// +required
	Message string `json:"message,omitempty"`
	// reason is UntoleratedTaint or UnsupportedOS.
	// +optional
	Reason string `json:"reason,omitempty"`
	// nodes is how many there are.
	// +optional
	Nodes int32 `json:"nodes,omitempty"`
	// names are the first 3 of them, by name.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=3
	Names []string `json:"names,omitempty"`
}

// RolloutStatus is the progress of a revision. It restarts with each revision.
type RolloutStatus struct {
	// step is the name of the current step: nodes of later ones wait.
	// +optional
	Step string `json:"step,omitempty"`
	// stepStartedAt is when the current step began. Nodes that joined later do not hold it up.
	// +optional
	StepStartedAt metav1.Time `json:"stepStartedAt,omitzero"`
	// soakingSince is when the soak of the current step began; absent when it has not.
	// +optional
	SoakingSince metav1.Time `json:"soakingSince,omitzero"`
	// soakedAt is when the soak of the current step was over; absent while it is not, or there is none.
	// A node that turns NotReady after that is no failure of it.
	// +optional
	SoakedAt metav1.Time `json:"soakedAt,omitzero"`
	// soakedNodes are the UIDs of at most 32 Nodes of the step that have soaked and are still done. When none
	// is left, the step soaks again.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	SoakedNodes []types.UID `json:"soakedNodes,omitempty"`
	// stableAt is when the last step was passed. Nodes that are created later run the task at once.
	// +optional
	StableAt metav1.Time `json:"stableAt,omitzero"`
	// steps are the nodes of each step.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Steps []StepStatus `json:"steps,omitempty"`
	// unrecordedFailures are at most 32 nodes that count as failed although no record says so: they turned
	// NotReady in a soak, or were deleted while failed or NotReady. At 32 the rollout stops, regardless of
	// maxFailures.
	// +optional
	// +listType=map
	// +listMapKey=uid
	// +kubebuilder:validation:MaxItems=32
	UnrecordedFailures []UnrecordedFailure `json:"unrecordedFailures,omitempty"`
	// atRisk are at most 32 nodes that have run this revision and are failed or not Ready now: deleted,
	// they become unrecorded failures.
	// +optional
	// +listType=map
	// +listMapKey=uid
	// +kubebuilder:validation:MaxItems=32
	AtRisk []NodeAtRisk `json:"atRisk,omitempty"`
	// notReadyBefore are the UIDs of at most 100 Nodes that have run this revision and are not Ready for another
	// reason: they were not Ready when it started there, or their removal had begun. They do not count as failed.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=100
	NotReadyBefore []types.UID `json:"notReadyBefore,omitempty"`
	// waitingForDependencySince is since when the current step waits only for NodeJobs of dependsOn.
	// +optional
	WaitingForDependencySince metav1.Time `json:"waitingForDependencySince,omitzero"`
	// waitingForReadySince is since when the soak of the step waits for a node to become Ready.
	// +optional
	WaitingForReadySince metav1.Time `json:"waitingForReadySince,omitzero"`
	// retry is a hash of the annotation everynode.dev/retry that the unrecorded failures are counted since.
	// +optional
	Retry string `json:"retry,omitempty"`
}

// GateStatus is the gate that joining nodes have.
type GateStatus struct {
	// key of the taint.
	// +required
	Key string `json:"key,omitempty"`
	// effect of the taint.
	// +required
	Effect GateEffect `json:"effect,omitempty"`
	// since is when the gate was first seen. Nodes that were created before are existing ones.
	// +optional
	Since metav1.Time `json:"since,omitzero"`
	// closed is how many nodes have the taint now, of those that the NodeJob is for.
	// +optional
	Closed int32 `json:"closed,omitempty"`
	// registeredAt is the creation time of the latest joining node that has registered with the taint. Taints with the
	// value of Everynode do not count.
	// +optional
	RegisteredAt metav1.Time `json:"registeredAt,omitzero"`
	// addedLateAt is the creation time of the latest joining node without the taint, to which the manager has added it.
	// +optional
	AddedLateAt metav1.Time `json:"addedLateAt,omitzero"`
}

// StepStatus counts the nodes of a step.
type StepStatus struct {
	// name of the step.
	// +required
	Name string `json:"name,omitempty"`
	// nodes that belong to it.
	// +optional
	Nodes int32 `json:"nodes"`
	// done with the current revision.
	// +optional
	Done int32 `json:"done"`
	// failed for good.
	// +optional
	Failed int32 `json:"failed"`
}

// UnrecordedFailure is a node that counts as failed although no record says so.
type UnrecordedFailure struct {
	// node is its name.
	// +required
	Node string `json:"node,omitempty"`
	// uid of the Node.
	// +required
	UID types.UID `json:"uid,omitempty"`
	// reason is NotReadyInSoak, ProgressDeadlineExceeded, FailedNodeDeleted or NotReadyNodeDeleted.
	// +optional
	Reason string `json:"reason,omitempty"`
	// at is when it was seen.
	// +optional
	At metav1.Time `json:"at,omitzero"`
}

// NodeAtRisk is a node that has run the revision and is failed or not Ready.
type NodeAtRisk struct {
	// node is its name.
	// +required
	Node string `json:"node,omitempty"`
	// uid of the Node.
	// +required
	UID types.UID `json:"uid,omitempty"`
	// machineID of the machine behind it: a repair may put another one there.
	// +optional
	MachineID string `json:"machineID,omitempty"`
	// failed is true for a node that has failed, false for one that is not Ready.
	// +optional
	Failed bool `json:"failed,omitempty"`
}

// NodeDrain is a node that is being drained.
type NodeDrain struct {
	// node is its name.
	// +required
	Node string `json:"node,omitempty"`
	// since is when the drain began.
	// +optional
	Since metav1.Time `json:"since,omitzero"`
	// deadline is when it is given up.
	// +optional
	Deadline metav1.Time `json:"deadline,omitzero"`
	// blockedSince is since when the drain is blocked: one of its pods must not be evicted at all, or could not be evicted for
	// 30 seconds. Absent while it is not blocked.
	// +optional
	BlockedSince metav1.Time `json:"blockedSince,omitzero"`
	// pods that are not evicted yet.
	// +optional
	Pods int32 `json:"pods,omitempty"`
	// blocked are at most 3 of the pods that cannot be evicted now.
	// +optional
	// +listType=map
	// +listMapKey=pod
	// +kubebuilder:validation:MaxItems=3
	Blocked []BlockedPod `json:"blocked,omitempty"`
}

// BlockedPod is a pod that cannot be evicted.
type BlockedPod struct {
	// pod is its namespace and name.
	// +required
	Pod string `json:"pod,omitempty"`
	// since is when it was first found blocked.
	// +optional
	Since metav1.Time `json:"since,omitzero"`
	// message says by what, such as a PodDisruptionBudget.
	// +optional
	Message string `json:"message,omitempty"`
}

// NodeProblem is why the manager cannot continue with a node.
type NodeProblem struct {
	// node is its name.
	// +required
	Node string `json:"node,omitempty"`
	// reason is PodNameTaken, PodForceDeleted, RecordRejected or RecordRemoved, or why the API server rejects the
	// pods on this node, such as PodForbidden.
	// +optional
	Reason string `json:"reason,omitempty"`
	// message says what is wrong and what to do, in at most 512 bytes.
	// +optional
	Message string `json:"message,omitempty"`
	// since is when the manager first met a problem on the node, without a success after it.
	// rollout.progressDeadlineSeconds counts from it. A manager that starts counts from its first attempt.
	// +optional
	Since metav1.Time `json:"since,omitzero"`
}

// NodeFailure is a node on which the last attempt failed or was disrupted.
type NodeFailure struct {
	// node is its name.
	// +required
	Node string `json:"node,omitempty"`
	// retrying is true if another attempt follows automatically.
	// +optional
	Retrying bool `json:"retrying,omitempty"`
	// attempts of this revision so far that count.
	// +optional
	Attempts int32 `json:"attempts,omitempty"`
	// exitCode of the last attempt; omitted if the container did not end on its own.
	// +optional
	ExitCode *int32 `json:"exitCode,omitempty"`
	// reason in one word.
	// +optional
	Reason string `json:"reason,omitempty"`
	// message is the end of what the last attempt printed.
	// +optional
	Message string `json:"message,omitempty"`
	// finishedAt is when the last attempt ended.
	// +optional
	FinishedAt metav1.Time `json:"finishedAt,omitzero"`
	// rollback is RollbackPending, RollingBack, RolledBack or RollbackFailed; absent when there is none to
	// run.
	// +optional
	Rollback string `json:"rollback,omitempty"`
	// rollbackMessage is why the last attempt of the rollback failed.
	// +optional
	RollbackMessage string `json:"rollbackMessage,omitempty"`
	// quarantine is Cordoned, Draining, Drained or DrainTimedOut; absent when the node is left as it is.
	// +optional
	Quarantine string `json:"quarantine,omitempty"`
}
