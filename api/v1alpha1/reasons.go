// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Condition types of a NodeJob. kstatus (Flux, kpt) reads Reconciling and Stalled. At
// most one of the first three is True.
const (
	// ConditionComplete is True when every matching node is done with the current revision.
	ConditionComplete = "Complete"
	// ConditionReconciling is True while nodes run the task or wait for their turn.
	ConditionReconciling = "Reconciling"
	// ConditionStalled is True when the NodeJob does not continue until a person acts.
	ConditionStalled = "Stalled"
	// ConditionRollbackFailed is True while there are nodes on which every attempt of the rollback failed
	// as well: they may be in an inconsistent state. It is independent of the other three.
	ConditionRollbackFailed = "RollbackFailed"
	// ConditionGateEnforced is True when a node has the gate's taint from its creation: because the API server adds it in
	// the request that creates the node, or because the node registers with it. False: the manager adds it a moment later,
	// and a pod may be scheduled in between.
	ConditionGateEnforced = "GateEnforced"
)

// Reasons. Each is used alike in conditions, events, metrics, logs and the plan's node states.
const (
	// ReasonAllNodesDone : every matching node is done.
	ReasonAllNodesDone = "AllNodesDone"
	// ReasonInProgress : nodes run or wait.
	ReasonInProgress = "InProgress"
	// ReasonNoMatchingNodes : no node matches; the task runs as soon as one does.
	ReasonNoMatchingNodes = "NoMatchingNodes"
	// ReasonSuspended : spec.suspend keeps new attempts from starting.
	ReasonSuspended = "Suspended"
	// ReasonNodesFailed : on some nodes every attempt failed.
	ReasonNodesFailed = "NodesFailed"
	// ReasonMaxFailuresExceeded : more nodes failed than rollout.maxFailures; nothing new starts.
	ReasonMaxFailuresExceeded = "MaxFailuresExceeded"
	// ReasonAwaitingPromotion : rollout.promoteTo is reached, and there are later steps.
	ReasonAwaitingPromotion = "AwaitingPromotion"
	// ReasonStepWithoutNodes : no node is in the current step, so nothing proves the revision.
	ReasonStepWithoutNodes = "StepWithoutNodes"
	// ReasonSoaking : the current step is done, and its nodes must stay Ready for rollout.steps[].soakSeconds.
	ReasonSoaking = "Soaking"
	// ReasonRollingBack : the rollback runs, or waits to be repeated.
	ReasonRollingBack = "RollingBack"
	// ReasonRollbackPending : the rollback waits for a slot, or for the node.
	ReasonRollbackPending = "RollbackPending"
	// ReasonRolledBack : the task failed and the rollback succeeded.
	ReasonRolledBack = "RolledBack"
	// ReasonRollbackFailed : every attempt of the rollback failed as well.
	ReasonRollbackFailed = "RollbackFailed"
	// ReasonNoRollbackFailed : no rollback has failed for good.
	ReasonNoRollbackFailed = "NoRollbackFailed"
	// ReasonNotStalled : nothing needs help.
	ReasonNotStalled = "NotStalled"

	// ReasonInvalidSelector : spec.nodeSelector cannot be used.
	ReasonInvalidSelector = "InvalidSelector"
	// ReasonConfigMapNotFound : a referenced ConfigMap or its key does not exist.
	ReasonConfigMapNotFound = "ConfigMapNotFound"
	// ReasonConfigMapNotLabeled : a ConfigMap does not have the label that lets NodeJobs run its scripts.
	ReasonConfigMapNotLabeled = "ConfigMapNotLabeled"
	// ReasonInvalidScript : a script is empty or too long, an interpreter would misread it, or task.env is too large.
	ReasonInvalidScript = "InvalidScript"
	// ReasonPodForbidden : the API server forbids the task's pod (Pod Security, quota, a policy).
	ReasonPodForbidden = "PodForbidden"
	// ReasonServiceAccountNotFound : the ServiceAccount of the task's pod does not exist.
	ReasonServiceAccountNotFound = "ServiceAccountNotFound"
	// ReasonPodInvalid : the API server finds the task's pod invalid.
	ReasonPodInvalid = "PodInvalid"
	// ReasonPodNotCreated : the API server cannot create the task's pod, for example because a webhook does not respond.
	ReasonPodNotCreated = "PodNotCreated"
	// ReasonPodNotStarting : a pod waits for its image or another thing that it cannot start without.
	ReasonPodNotStarting = "PodNotStarting"

	// ReasonDone : the node is done.
	ReasonDone = "Done"
	// ReasonRunning : an attempt runs on the node.
	ReasonRunning = "Running"
	// ReasonStarting : an attempt is being started.
	ReasonStarting = "Starting"
	// ReasonWaitingForSlot : rollout.maxConcurrent nodes run already.
	ReasonWaitingForSlot = "WaitingForSlot"
	// ReasonWaitingForControlPlane : another control plane node is not available, and the task would disrupt this one.
	ReasonWaitingForControlPlane = "WaitingForControlPlane"
	// ReasonWaitingForRetry : a user has requested a retry on another node before other nodes start.
	ReasonWaitingForRetry = "WaitingForRetry"
	// ReasonWaitingForStep : the node belongs to a later step of the rollout.
	ReasonWaitingForStep = "WaitingForStep"
	// ReasonBackingOff : the last attempt failed or was disrupted; the next waits.
	ReasonBackingOff = "BackingOff"
	// ReasonNotReported : the node has not reported a Ready condition yet.
	ReasonNotReported = "NotReported"
	// ReasonNodeUnreachable : the node's Ready condition is Unknown.
	ReasonNodeUnreachable = "NodeUnreachable"
	// ReasonNodeTerminating : the Node is being deleted.
	ReasonNodeTerminating = "NodeTerminating"
	// ReasonPodTerminating : a pod of an earlier attempt or revision has not left the node yet.
	ReasonPodTerminating = "PodTerminating"
	// ReasonUntoleratedTaint : the node has a taint that the NodeJob does not tolerate.
	ReasonUntoleratedTaint = "UntoleratedTaint"
	// ReasonNothingToRollBack : the NodeJob is being deleted, and the rollback does not run on this node.
	ReasonNothingToRollBack = "NothingToRollBack"
	// ReasonNotSelected : spec.nodeSelector does not match the node.
	ReasonNotSelected = "NotSelected"
	// ReasonUnsupportedOS : the task does not run on the operating system of the node (label kubernetes.io/os).
	ReasonUnsupportedOS = "UnsupportedOS"
	// ReasonWaitingForDependency : a NodeJob of spec.dependsOn is not done on the node yet.
	ReasonWaitingForDependency = "WaitingForDependency"
	// ReasonMaxUnavailableReached : maintenance.maxUnavailable nodes are already unavailable.
	ReasonMaxUnavailableReached = "MaxUnavailableReached"
	// ReasonManagerNodeLast : the manager itself runs on the node, whose turn is when no other can go on.
	ReasonManagerNodeLast = "ManagerNodeLast"
	// ReasonPreparing : the node is cordoned or drained before the task.
	ReasonPreparing = "Preparing"
	// ReasonDrainBlocked : the node is drained before the task, and a pod cannot be evicted.
	ReasonDrainBlocked = "DrainBlocked"
	// ReasonRebooting : the task has succeeded, and the node is being rebooted.
	ReasonRebooting = "Rebooting"
	// ReasonSettling : the node is back from its reboot, and must stay Ready before the run counts.
	ReasonSettling = "Settling"
	// ReasonVerifying : spec.verify runs after the reboot.
	ReasonVerifying = "Verifying"

	// ReasonRebootFailed : the node could not be rebooted.
	ReasonRebootFailed = "RebootFailed"
	// ReasonRebootTimedOut : the node was not back in a new boot, and Ready, in time.
	ReasonRebootTimedOut = "RebootTimedOut"
	// ReasonInvalidResult : a result cannot be published, such as one that is no valid label value.
	ReasonInvalidResult = "InvalidResult"
	// ReasonPublishConflict : a key to publish belongs to a user or another tool on the node.
	ReasonPublishConflict = "PublishConflict"
	// ReasonDependencyNotFound : spec.dependsOn names a NodeJob that does not exist.
	ReasonDependencyNotFound = "DependencyNotFound"
	// ReasonDependencyCycle : NodeJobs depend on each other in a circle.
	ReasonDependencyCycle = "DependencyCycle"
	// ReasonSecretNotFound : rerun.onChangeOf names a Secret that does not exist.
	ReasonSecretNotFound = "SecretNotFound"
	// ReasonSecretForbidden : the manager may not read a Secret of rerun.onChangeOf.
	ReasonSecretForbidden = "SecretForbidden"
	// ReasonArchiveNotConfigured : task.outputArchive is Always, and the manager has no archive, or cannot use its settings.
	ReasonArchiveNotConfigured = "ArchiveNotConfigured"
	// ReasonGateClosed : the gate's taint was put on a node, by the manager.
	ReasonGateClosed = "GateClosed"
	// ReasonAssumedDone : the node matches spec.assumeDone, and counts as done without a run.
	ReasonAssumedDone = "AssumedDone"
	// ReasonGateOpened : the gate's taint was taken off a node without a run.
	ReasonGateOpened = "GateOpened"
	// ReasonPublished : facts on a node were brought up to date without a run.
	ReasonPublished = "Published"
	// ReasonAdmissionPolicy : the admission policy is there, and bound to the namespace.
	ReasonAdmissionPolicy = "AdmissionPolicy"
	// ReasonRegisteredTaint : the latest node that joined had the taint when it registered.
	ReasonRegisteredTaint = "RegisteredTaint"
	// ReasonNoAdmissionPolicy : nothing taints nodes in the request that creates them.
	ReasonNoAdmissionPolicy = "NoAdmissionPolicy"

	// ReasonProgressDeadlineExceeded : the node has kept a slot, a step or a soak waiting for rollout.progressDeadlineSeconds.
	ReasonProgressDeadlineExceeded = "ProgressDeadlineExceeded"
	// ReasonPodNameTaken : a pod that is not the NodeJob's has the name of the next attempt's pod.
	ReasonPodNameTaken = "PodNameTaken"
	// ReasonPodForceDeleted : the attempt's pod was removed by force before its end was recorded.
	ReasonPodForceDeleted = "PodForceDeleted"
	// ReasonRecordRejected : the API server refuses a write to the Node, as when its annotations are full.
	ReasonRecordRejected = "RecordRejected"
	// ReasonRecordRemoved : the node's record was removed several times in a row right after it was written.
	ReasonRecordRemoved = "RecordRemoved"
	// ReasonNotReadyInSoak : the node turned NotReady in the soak of its step, and counts as failed.
	ReasonNotReadyInSoak = "NotReadyInSoak"
	// ReasonFailedNodeDeleted : the node was deleted after it had failed, and still counts.
	ReasonFailedNodeDeleted = "FailedNodeDeleted"
	// ReasonNotReadyNodeDeleted : the node was deleted while it was not Ready, after the task had run there.
	ReasonNotReadyNodeDeleted = "NotReadyNodeDeleted"
	// ReasonCordoned : the node was cordoned since it has failed.
	ReasonCordoned = "Cordoned"
	// ReasonUncordoned : the node was uncordoned, because the cordon is no longer needed.
	ReasonUncordoned = "Uncordoned"
	// ReasonDraining : the pods of the node are being evicted.
	ReasonDraining = "Draining"
	// ReasonDrained : all pods that the drain evicts have ended.
	ReasonDrained = "Drained"
	// ReasonDrainCancelled : the drain of the node was cancelled, because the node was uncordoned or onFailure.node has changed.
	ReasonDrainCancelled = "DrainCancelled"
	// ReasonDrainTimedOut : not all pods were evicted in time.
	ReasonDrainTimedOut = "DrainTimedOut"
	// ReasonNamespaceTerminating : the namespace is being deleted, and no pod can be made in it.
	ReasonNamespaceTerminating = "NamespaceTerminating"
	// ReasonNamespaceNotAllowed : the namespace does not have the label with which the manager serves it.
	ReasonNamespaceNotAllowed = "NamespaceNotAllowed"
	// ReasonPoliciesMissing : an admission policy that the manager requires is not installed, or differs from its version.
	ReasonPoliciesMissing = "PoliciesMissing"
	// ReasonNotAuthorized : the object may have been written while no admission policy was in force.
	ReasonNotAuthorized = "NotAuthorized"
	// ReasonInstallationTerminating : Everynode is being uninstalled.
	ReasonInstallationTerminating = "InstallationTerminating"

	// ReasonAttemptFailed : an attempt failed; its record says why.
	ReasonAttemptFailed = "AttemptFailed"
	// ReasonDeadlineExceeded : the attempt took longer than task.timeoutSeconds.
	ReasonDeadlineExceeded = "DeadlineExceeded"
	// ReasonDisrupted : the attempt was ended by something else than itself; it does not count. As the
	// reason of Stalled: all that is left to do was disrupted many times in a row.
	ReasonDisrupted = "Disrupted"
	// ReasonRetriesExhausted : retry.limit is reached; the node has failed.
	ReasonRetriesExhausted = "RetriesExhausted"
	// ReasonWriteFailed : a write to the API server failed, and is retried.
	ReasonWriteFailed = "WriteFailed"
	// ReasonRevisionStarted : a new revision begins to roll out.
	ReasonRevisionStarted = "RevisionStarted"
	// ReasonStepStarted : a step of the rollout begins, since the one before has passed.
	ReasonStepStarted = "StepStarted"
	// ReasonStepCompleted : a step of the rollout has passed.
	ReasonStepCompleted = "StepCompleted"
)
