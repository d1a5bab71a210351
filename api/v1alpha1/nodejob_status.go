// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// What the manager says about a NodeJob.

// NodeJobStatus is the most recently observed state of a NodeJob. It is written at most once per second.
type NodeJobStatus struct {
	// conditions are Complete, Reconciling, Stalled, RollbackFailed and GateEnforced.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the metadata.generation that the manager observed last; -1 if it has not observed the object.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// revision is a short hash of what is executed: the task and the content of its inputs and of referenced scripts. Nodes that are done have it
	// as the value of the record's label.
	// +optional
	Revision string `json:"revision,omitempty"`

	// revisionDigest is the SHA-256 hash of which revision is the beginning.
	// +optional
	RevisionDigest string `json:"revisionDigest,omitempty"`

	// unattributedGeneration is the metadata.generation at which the revision changed without a change of the spec, for example
	// because a ConfigMap changed. Until the spec changes, no user is shown as the author of the revision. It is absent otherwise.
	// +optional
	UnattributedGeneration int64 `json:"unattributedGeneration,omitempty"`

	// nodes is the number of nodes in each state.
	// +optional
	Nodes NodeCounts `json:"nodes,omitempty"`

	// excluded are the selected nodes on which the task does not run, grouped by reason: at most 5 groups, those with the most nodes
	// first. nodes.excluded counts all of them.
	// +optional
	// +listType=map
	// +listMapKey=message
	// +kubebuilder:validation:MaxItems=5
	Excluded []ExcludedNodes `json:"excluded,omitempty"`

	// rollout is the progress of the current revision.
	// +optional
	Rollout *RolloutStatus `json:"rollout,omitempty"`

	// gate is the gate that joining nodes have. It is absent without spec.gate.
	// +optional
	Gate *GateStatus `json:"gate,omitempty"`

	// drains are at most 10 nodes that are being drained, with the pods that block each drain.
	// +optional
	// +listType=map
	// +listMapKey=node
	// +kubebuilder:validation:MaxItems=10
	Drains []NodeDrain `json:"drains,omitempty"`

	// failures are at most 10 nodes on which the last attempt of the current revision failed or was disrupted. Nodes that are not
	// retried are first.
	// +optional
	// +listType=map
	// +listMapKey=node
	// +kubebuilder:validation:MaxItems=10
	Failures []NodeFailure `json:"failures,omitempty"`

	// nodeProblems are at most 10 nodes, in the order of their names, with which the manager cannot continue for a reason that no
	// other object shows. The manager retries. If the API server rejects all pods of the NodeJob, the conditions say so instead.
	// +optional
	// +listType=map
	// +listMapKey=node
	// +kubebuilder:validation:MaxItems=10
	NodeProblems []NodeProblem `json:"nodeProblems,omitempty"`

	// controllerState is the memory of the manager. It is not for users, and may change in any version.
	// +optional
	ControllerState NodeJobControllerState `json:"controllerState,omitzero"`
}

// NodeCounts is the number of matching nodes in each state: total = done + running + waiting + failed.
type NodeCounts struct {
	// total is the number of matching nodes: those that are selected and have no untolerated taint, or that have run the task before they
	// got one.
	// +optional
	Total int32 `json:"total"`
	// done is the number of nodes that are done with the current revision. With rerun.onRevisionChange false, any revision counts.
	// +optional
	Done int32 `json:"done"`
	// running is the number of nodes with an attempt.
	// +optional
	Running int32 `json:"running"`
	// waiting is the number of nodes that wait, for example for a slot, for the end of a backoff, or until they are Ready.
	// +optional
	Waiting int32 `json:"waiting"`
	// failed is the number of failed nodes. They are not retried unless a user requests it.
	// +optional
	Failed int32 `json:"failed"`
	// rollbackPending is the number of failed nodes on which the rollback runs or will start automatically.
	// +optional
	RollbackPending int32 `json:"rollbackPending"`
	// rolledBack is the number of failed nodes on which the rollback has succeeded.
	// +optional
	RolledBack int32 `json:"rolledBack"`
	// rollbackFailed is the number of failed nodes on which all attempts of the rollback have failed.
	// +optional
	RollbackFailed int32 `json:"rollbackFailed"`
	// expired is the number of done nodes on which the task is no longer needed, and rolled back if it had run.
	// +optional
	Expired int32 `json:"expired,omitempty"`
	// excluded is the number of selected nodes that do not match because of an untolerated taint or another operating system.
	// +optional
	Excluded int32 `json:"excluded"`
	// nonCompliant is the number of nodes on which task.check answers no: nodes that have drifted since they were done, and in an audit all
	// nodes that have answered no. They are part of done, or of waiting if the task runs again there.
	// +optional
	NonCompliant int32 `json:"nonCompliant"`
	// checkErrors is the number of nodes on which task.check itself fails, so that its answer is not known.
	// +optional
	CheckErrors int32 `json:"checkErrors"`
}

// ExcludedNodes are selected nodes on which the task does not run, all for the same reason.
type ExcludedNodes struct {
	// message describes why the nodes are excluded, such as which taint they have.
	// +required
	Message string `json:"message,omitempty"`
	// reason is UntoleratedTaint, NodeNotAllowed or UnsupportedOS.
	// +optional
	Reason string `json:"reason,omitempty"`
	// nodes is the number of nodes.
	// +optional
	Nodes int32 `json:"nodes,omitempty"`
	// names are the names of the first 3 nodes, in alphabetical order.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=3
	Names []string `json:"names,omitempty"`
}

// RolloutStatus is the progress of a revision. It is reset when the revision changes.
type RolloutStatus struct {
	// step is the name of the current step. Nodes of later steps wait.
	// +optional
	Step string `json:"step,omitempty"`
	// stepStartedAt is the time at which the current step started. The step does not wait for nodes that have joined since.
	// +optional
	StepStartedAt metav1.Time `json:"stepStartedAt,omitzero"`
	// soakingSince is the time at which the soak of the current step started. It is absent if the step does not soak.
	// +optional
	SoakingSince metav1.Time `json:"soakingSince,omitzero"`
	// soakedAt is the time at which the soak of the current step ended. It is absent before. A node that turns NotReady after that
	// time does not fail its soak.
	// +optional
	SoakedAt metav1.Time `json:"soakedAt,omitzero"`
	// stableAt is the time at which the last step passed. Nodes that are created later run the task without steps.
	// +optional
	StableAt metav1.Time `json:"stableAt,omitzero"`
	// steps are the numbers of nodes in each step.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Steps []StepStatus `json:"steps,omitempty"`
	// unrecordedFailures are at most 32 nodes that count as failed although no record says so: they turned NotReady in a soak, or were
	// deleted while they were failed or not Ready. With 32 of them, the NodeJob is Stalled regardless of maxFailures.
	// +optional
	// +listType=map
	// +listMapKey=uid
	// +kubebuilder:validation:MaxItems=32
	UnrecordedFailures []UnrecordedFailure `json:"unrecordedFailures,omitempty"`
}

// NodeJobControllerState is what the manager must remember of a NodeJob.
type NodeJobControllerState struct {
	// authorization shows whether the API server checked the rights of the user when the NodeJob was written.
	// +optional
	Authorization *Authorization `json:"authorization,omitempty"`

	// rollout is about the current revision.
	// +optional
	Rollout RolloutMemory `json:"rollout,omitzero"`

	// notifications is the state of the notifications to the URL of the manager's flag --notifications-url. It is absent without that
	// flag.
	// +optional
	Notifications *NodeJobNotifications `json:"notifications,omitempty"`

	// seal is a digest of the other fields of the status, with a key that only the manager has. The manager ignores a status without a
	// valid seal, because another client has written it.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Seal string `json:"seal,omitempty"`
}

// RolloutMemory is what the manager must remember of the rollout of a revision. It is reset when the revision changes.
type RolloutMemory struct {
	// soakedNodes are the UIDs of at most 32 nodes of the step that soak or have soaked, and are still done. If none is left, the step
	// soaks again.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	SoakedNodes []types.UID `json:"soakedNodes,omitempty"`
	// atRisk are at most 32 nodes on which the revision has run and that are failed or not Ready now. They become unrecorded failures
	// if they are deleted.
	// +optional
	// +listType=map
	// +listMapKey=uid
	// +kubebuilder:validation:MaxItems=32
	AtRisk []NodeAtRisk `json:"atRisk,omitempty"`
	// notReadyBefore are the UIDs of at most 100 nodes on which the revision has run and that are not Ready for another reason: they
	// were not Ready when it started there, or their removal had begun. They do not count as failed.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=100
	NotReadyBefore []types.UID `json:"notReadyBefore,omitempty"`
	// waitingForDependencySince is the time since which the current step has waited only for NodeJobs of dependsOn.
	// +optional
	WaitingForDependencySince metav1.Time `json:"waitingForDependencySince,omitzero"`
	// waitingForReadySince is the time since which the soak of the current step has waited for nodes to become Ready.
	// +optional
	WaitingForReadySince metav1.Time `json:"waitingForReadySince,omitzero"`
	// retry is a hash of the annotation everynode.dev/retry at the time from which unrecorded failures count.
	// +optional
	Retry string `json:"retry,omitempty"`
}

// GateStatus is the gate that joining nodes have.
type GateStatus struct {
	// key is the key of the taint.
	// +required
	Key string `json:"key,omitempty"`
	// effect is the effect of the taint.
	// +required
	Effect GateEffect `json:"effect,omitempty"`
	// since is the time at which the manager first observed the gate. Nodes that were created before do not count as joining.
	// +optional
	Since metav1.Time `json:"since,omitzero"`
	// closed is the number of selected nodes that have the taint.
	// +optional
	Closed int32 `json:"closed,omitempty"`
	// registeredAt is the creation time of the latest joining node that registered with the taint itself. Taints that Everynode has
	// set do not count.
	// +optional
	RegisteredAt metav1.Time `json:"registeredAt,omitzero"`
	// addedLateAt is the creation time of the latest joining node that was created without the taint, so that the manager added it
	// later.
	// +optional
	AddedLateAt metav1.Time `json:"addedLateAt,omitzero"`
}

// StepStatus is the number of nodes of a step in each state.
type StepStatus struct {
	// name is the name of the step.
	// +required
	Name string `json:"name,omitempty"`
	// nodes is the number of nodes in the step.
	// +optional
	Nodes int32 `json:"nodes"`
	// done is the number of nodes that are done with the current revision.
	// +optional
	Done int32 `json:"done"`
	// failed is the number of failed nodes.
	// +optional
	Failed int32 `json:"failed"`
}

// UnrecordedFailure is a node that counts as failed although no record says so.
type UnrecordedFailure struct {
	// node is the name of the node.
	// +required
	Node string `json:"node,omitempty"`
	// uid is the UID of the Node.
	// +required
	UID types.UID `json:"uid,omitempty"`
	// reason is NotReadyInSoak, ProgressDeadlineExceeded, FailedNodeDeleted or NotReadyNodeDeleted.
	// +optional
	Reason string `json:"reason,omitempty"`
	// at is the time at which the manager observed the failure.
	// +optional
	At metav1.Time `json:"at,omitzero"`
}

// NodeAtRisk is a node on which the revision has run and that is failed or not Ready.
type NodeAtRisk struct {
	// node is the name of the node.
	// +required
	Node string `json:"node,omitempty"`
	// uid is the UID of the Node.
	// +required
	UID types.UID `json:"uid,omitempty"`
	// machineID is the ID of the machine. A repair may replace the machine of a Node.
	// +optional
	MachineID string `json:"machineID,omitempty"`
	// failed is true if the node has failed, and false if it is not Ready.
	// +optional
	Failed bool `json:"failed,omitempty"`
}

// NodeDrain is a node that is being drained.
type NodeDrain struct {
	// node is the name of the node.
	// +required
	Node string `json:"node,omitempty"`
	// since is the time at which the drain started.
	// +optional
	Since metav1.Time `json:"since,omitzero"`
	// deadline is the time at which the drain times out.
	// +optional
	Deadline metav1.Time `json:"deadline,omitzero"`
	// blockedSince is the time since which the drain is blocked: a pod cannot be evicted at all, or could not be evicted for 30
	// seconds. It is absent while the drain is not blocked.
	// +optional
	BlockedSince metav1.Time `json:"blockedSince,omitzero"`
	// pods is the number of pods that are not evicted yet.
	// +optional
	Pods int32 `json:"pods,omitempty"`
	// blocked are at most 3 pods that cannot be evicted now.
	// +optional
	// +listType=map
	// +listMapKey=pod
	// +kubebuilder:validation:MaxItems=3
	Blocked []BlockedPod `json:"blocked,omitempty"`
}

// BlockedPod is a pod that cannot be evicted.
type BlockedPod struct {
	// pod is the namespace and name of the pod.
	// +required
	Pod string `json:"pod,omitempty"`
	// since is the time since which the pod is blocked.
	// +optional
	Since metav1.Time `json:"since,omitzero"`
	// message describes what blocks the eviction, such as a PodDisruptionBudget.
	// +optional
	Message string `json:"message,omitempty"`
}

// NodeProblem is a problem that prevents the manager from continuing with a node.
type NodeProblem struct {
	// node is the name of the node.
	// +required
	Node string `json:"node,omitempty"`
	// reason is PodNameTaken, PodForceDeleted, RecordRejected or RecordRemoved, or the reason for which the API server rejects the
	// pods on this node, such as PodForbidden.
	// +optional
	Reason string `json:"reason,omitempty"`
	// message describes the problem and its remedy in at most 512 bytes.
	// +optional
	Message string `json:"message,omitempty"`
	// since is the time at which the manager first had a problem with the node, without a success since.
	// rollout.progressDeadlineSeconds counts from it. It is reset when the manager restarts.
	// +optional
	Since metav1.Time `json:"since,omitzero"`
}

// NodeFailure is a node on which the last attempt failed or was disrupted.
type NodeFailure struct {
	// node is the name of the node.
	// +required
	Node string `json:"node,omitempty"`
	// retrying is true if another attempt follows automatically.
	// +optional
	Retrying bool `json:"retrying,omitempty"`
	// attempts is the number of attempts of the current revision that count.
	// +optional
	Attempts int32 `json:"attempts,omitempty"`
	// exitCode is the exit code of the last attempt. It is absent if the container did not exit by itself.
	// +optional
	ExitCode *int32 `json:"exitCode,omitempty"`
	// reason is the reason of the failure in CamelCase, such as TaskFailed or DeadlineExceeded.
	// +optional
	Reason string `json:"reason,omitempty"`
	// message is the end of the output of the last attempt.
	// +optional
	Message string `json:"message,omitempty"`
	// finishedAt is the time at which the last attempt ended.
	// +optional
	FinishedAt metav1.Time `json:"finishedAt,omitzero"`
	// rollback is RollbackPending, RollingBack, RolledBack or RollbackFailed. It is absent if no rollback applies.
	// +optional
	Rollback string `json:"rollback,omitempty"`
	// rollbackMessage describes why the last attempt of the rollback failed.
	// +optional
	RollbackMessage string `json:"rollbackMessage,omitempty"`
	// quarantine is Cordoned, Draining, Drained or DrainTimedOut. It is absent if the node is not quarantined.
	// +optional
	Quarantine string `json:"quarantine,omitempty"`
}
