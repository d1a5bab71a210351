// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Condition types of a NodeJob. kstatus (Flux, kpt) reads Reconciling and Stalled. At
// most one of the first three is True.
const (
	// ConditionComplete is True when every matching node is done with the current revision, False while the NodeJob is
	// Stalled, and Unknown otherwise: "Intermediate states may be indicated by setting the status of the condition to
	// Unknown" (Kubernetes API conventions, typical status properties). Tools that wait for a result read it alone.
	ConditionComplete = "Complete"
	// ConditionReconciling is True while nodes run the task or continue automatically.
	ConditionReconciling = "Reconciling"
	// ConditionStalled is True while the NodeJob does not make progress until a user acts.
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
	// ReasonAllNodesDone means that every matching node is done.
	ReasonAllNodesDone = "AllNodesDone"
	// ReasonInProgress means that nodes run or wait.
	ReasonInProgress = "InProgress"
	// ReasonNoMatchingNodes means that no node matches; the task runs as soon as one does.
	ReasonNoMatchingNodes = "NoMatchingNodes"
	// ReasonSuspended means that spec.suspend, or spec.startingDeadlineSeconds that have passed, prevents new attempts from starting.
	ReasonSuspended = "Suspended"
	// ReasonNodesFailed means that on some nodes every attempt failed, not on more than rollout.maxFailures, and no other node continues
	// without help.
	ReasonNodesFailed = "NodesFailed"
	// ReasonMaxFailuresExceeded means that more nodes failed than rollout.maxFailures; nothing new starts. It is shown immediately, also
	// while attempts and rollbacks still run.
	ReasonMaxFailuresExceeded = "MaxFailuresExceeded"
	// ReasonAwaitingPromotion means that rollout.promoteTo is reached, and there are later steps.
	ReasonAwaitingPromotion = "AwaitingPromotion"
	// ReasonStepWithoutNodes means that no node is in the current step, so the rollout cannot continue.
	ReasonStepWithoutNodes = "StepWithoutNodes"
	// ReasonSoaking means that the current step is done, and its nodes must stay Ready for rollout.steps[].soakSeconds.
	ReasonSoaking = "Soaking"
	// ReasonRollingBack means that the rollback runs, or waits to be repeated.
	ReasonRollingBack = "RollingBack"
	// ReasonRollbackPending means that the rollback waits for a slot, or for the node.
	ReasonRollbackPending = "RollbackPending"
	// ReasonRolledBack means that the rollback has succeeded.
	ReasonRolledBack = "RolledBack"
	// ReasonRollbackFailed means that every attempt of the rollback failed as well.
	ReasonRollbackFailed = "RollbackFailed"
	// ReasonNoRollbackFailed means that no node has a failed rollback.
	ReasonNoRollbackFailed = "NoRollbackFailed"
	// ReasonNotStalled means that the NodeJob is not Stalled.
	ReasonNotStalled = "NotStalled"

	// ReasonInvalidSelector means that a selector of the spec cannot be used, or that spec.nodes.selector reads a label of
	// spec.publish.
	ReasonInvalidSelector = "InvalidSelector"
	// ReasonConfigMapNotFound means that a referenced ConfigMap or its key does not exist.
	ReasonConfigMapNotFound = "ConfigMapNotFound"
	// ReasonConfigMapNotLabeled means that a ConfigMap does not have the label that lets NodeJobs run its scripts and files.
	ReasonConfigMapNotLabeled = "ConfigMapNotLabeled"
	// ReasonInvalidScript means that a script or command is empty, too long or has a zero byte, that a script has Windows line endings or a
	// byte order mark, or that a value in task.env is too large.
	ReasonInvalidScript = "InvalidScript"
	// ReasonPodForbidden means that the API server forbids the task's pod (Pod Security, quota, a policy).
	ReasonPodForbidden = "PodForbidden"
	// ReasonServiceAccountNotFound means that the ServiceAccount of the task's pod does not exist.
	ReasonServiceAccountNotFound = "ServiceAccountNotFound"
	// ReasonPodInvalid means that the API server finds the task's pod invalid.
	ReasonPodInvalid = "PodInvalid"
	// ReasonPodNotCreated means that the API server cannot create the task's pod, for example because a webhook does not respond.
	ReasonPodNotCreated = "PodNotCreated"
	// ReasonImageVolumesNotSupported means that task.files or a volume of task.template names an image, and the API server does not support
	// image volumes.
	ReasonImageVolumesNotSupported = "ImageVolumesNotSupported"
	// ReasonPodNotStarting means that a pod waits for its image or its configuration, or has not started for 30 seconds.
	ReasonPodNotStarting = "PodNotStarting"

	// ReasonDone means that the node is done.
	ReasonDone = "Done"
	// ReasonRunning means that an attempt runs on the node.
	ReasonRunning = "Running"
	// ReasonStarting means that an attempt is being started.
	ReasonStarting = "Starting"
	// ReasonWaitingForSlot means that rollout.maxConcurrent nodes run already.
	ReasonWaitingForSlot = "WaitingForSlot"
	// ReasonWaitingForControlPlane means that another control plane node is not available, and the task would disrupt this one.
	ReasonWaitingForControlPlane = "WaitingForControlPlane"
	// ReasonWaitingForRetry means that a user has requested a retry on another node before other nodes start.
	ReasonWaitingForRetry = "WaitingForRetry"
	// ReasonWaitingForStep means that the node belongs to a later step of the rollout.
	ReasonWaitingForStep = "WaitingForStep"
	// ReasonBackingOff means that the last attempt failed or was disrupted; the next waits.
	ReasonBackingOff = "BackingOff"
	// ReasonRerunDelayed means that values of the Node have changed (rerun.onNodeFieldChange), and the rerun waits for a minute after
	// the last run.
	ReasonRerunDelayed = "RerunDelayed"
	// ReasonNotReported means that the node has not reported a Ready condition yet.
	ReasonNotReported = "NotReported"
	// ReasonNodeUnreachable means that the node's Ready condition is Unknown. In a record, the node did not recover before the time limit.
	ReasonNodeUnreachable = "NodeUnreachable"
	// ReasonNodeFieldNotFound means that task.env takes a value from the Node that the Node does not have.
	ReasonNodeFieldNotFound = "NodeFieldNotFound"
	// ReasonNodeFieldInvalid means that task.env takes a value from the Node that is too long or has a zero byte.
	ReasonNodeFieldInvalid = "NodeFieldInvalid"
	// ReasonNodeTerminating means that the Node is being deleted.
	ReasonNodeTerminating = "NodeTerminating"
	// ReasonPodTerminating means that a pod of an earlier attempt or revision is still terminating on the node.
	ReasonPodTerminating = "PodTerminating"
	// ReasonUntoleratedTaint means that the node has a taint that the NodeJob does not tolerate.
	ReasonUntoleratedTaint = "UntoleratedTaint"
	// ReasonNothingToRollback means that the NodeJob is being deleted, and the rollback does not run on this node.
	ReasonNothingToRollback = "NothingToRollback"
	// ReasonNotSelected means that spec.nodes.selector or spec.nodes.names does not select the node.
	ReasonNotSelected = "NotSelected"
	// ReasonNodeNotAllowed means that the namespace is limited to other nodes (annotation everynode.dev/nodes).
	ReasonNodeNotAllowed = "NodeNotAllowed"
	// ReasonUnsupportedOS means that the task does not run on the operating system of the node (label kubernetes.io/os).
	ReasonUnsupportedOS = "UnsupportedOS"
	// ReasonWaitingForDependency means that a NodeJob of spec.dependsOn is not done on the node yet.
	ReasonWaitingForDependency = "WaitingForDependency"
	// ReasonMaxUnavailableReached means that as many nodes are already unavailable as maintenance.maxUnavailable of a NodeJob, or a limit of
	// a NodeGuard or NodeDisruptionBudget, allows. A NodeJob is Stalled with it if nodes that are still cordoned after an earlier failure
	// use up this limit.
	ReasonMaxUnavailableReached = "MaxUnavailableReached"
	// ReasonManagerNodeLast means that the manager itself runs on the node, which is therefore the last.
	ReasonManagerNodeLast = "ManagerNodeLast"
	// ReasonNodeInUse means that another tool or a user has drained the node and not uncordoned it yet, so the NodeJob must not disrupt it.
	ReasonNodeInUse = "NodeInUse"
	// ReasonPreparing means that the node is cordoned or drained before the task.
	ReasonPreparing = "Preparing"
	// ReasonDrainBlocked means that the node is drained, and a pod cannot be evicted. The event names a pod and its PodDisruptionBudget.
	ReasonDrainBlocked = "DrainBlocked"
	// ReasonRebooting means that the task has succeeded, and the node is being rebooted.
	ReasonRebooting = "Rebooting"
	// ReasonSettling means that the node is back from its reboot, and must stay Ready before the run counts.
	ReasonSettling = "Settling"
	// ReasonChecking means that spec.task.check runs after the reboot.
	ReasonChecking = "Checking"
	// ReasonCheckingBefore means that spec.task.check runs before the node is cordoned, drained or rebooted for the task, or will.
	ReasonCheckingBefore = "CheckingBefore"
	// ReasonPullingImages means that the images of the task are pulled before the node is cordoned, drained or rebooted for it, or will be.
	ReasonPullingImages = "PullingImages"
	// ReasonImagesPulled means that the images of the task are on the node, so it can be cordoned, drained or rebooted for the task.
	ReasonImagesPulled = "ImagesPulled"
	// ReasonImagesNotPulled means that the images of the task could not be pulled. It is repeated, and does not count as a failure.
	ReasonImagesNotPulled = "ImagesNotPulled"
	// ReasonAlreadyDone means that spec.task.check answered yes before the task, so the node is done without it.
	ReasonAlreadyDone = "AlreadyDone"
	// ReasonCheckError means that spec.task.check or spec.expires.check itself failed. It is repeated, and does not count as a failure. On a
	// node that is done, the event is sent once until the check answers.
	ReasonCheckError = "CheckError"
	// ReasonNonCompliant means that spec.task.check of an audit answered no: on a node, or on at least one when all have answered.
	ReasonNonCompliant = "NonCompliant"
	// ReasonDrifted means that spec.task.check answered no on a node that was done or compliant.
	ReasonDrifted = "Drifted"
	// ReasonDriftEnded means that spec.task.check answered yes on a node that had drifted, without another run of the task.
	ReasonDriftEnded = "DriftEnded"

	// ReasonConfirming means that the task has ended, and the node waits for the confirmation that it still responds (spec.confirm).
	ReasonConfirming = "Confirming"
	// ReasonProbeFailed means that a probe of spec.confirm failed before the task, so the task was not started.
	ReasonProbeFailed = "ProbeFailed"
	// ReasonReverted means that the node was not confirmed in time (spec.confirm), and has run the rollback by itself.
	ReasonReverted = "Reverted"
	// ReasonRevertFailed means that the node was not confirmed in time, and the rollback that it ran by itself failed.
	ReasonRevertFailed = "RevertFailed"

	// ReasonRebootFailed means that the node was told to reboot, and did not go down.
	ReasonRebootFailed = "RebootFailed"
	// ReasonRebootTimedOut means that the node was not back in a new boot, and Ready, in time.
	ReasonRebootTimedOut = "RebootTimedOut"
	// ReasonInvalidResult means that a result cannot be published, such as one that is no valid label value.
	ReasonInvalidResult = "InvalidResult"
	// ReasonPublishConflict means that a key to publish belongs to a user or another tool on the node.
	ReasonPublishConflict = "PublishConflict"
	// ReasonDependencyNotFound means that spec.dependsOn names a NodeJob that does not exist.
	ReasonDependencyNotFound = "DependencyNotFound"
	// ReasonDependencyCycle means that NodeJobs depend on each other in a circle.
	ReasonDependencyCycle = "DependencyCycle"
	// ReasonSecretNotFound means that task.inputs or task.files names a Secret that does not exist, or a key that it does not have.
	ReasonSecretNotFound = "SecretNotFound"
	// ReasonSecretForbidden means that the manager may not read a Secret of task.inputs or task.files.
	ReasonSecretForbidden = "SecretForbidden"
	// ReasonArchiveNotConfigured means that task.output.archive is Always, and the manager has no archive, or cannot use its settings.
	ReasonArchiveNotConfigured = "ArchiveNotConfigured"
	// ReasonNodeConditionsDisabled means that publish has a condition, and the manager does not write node conditions.
	ReasonNodeConditionsDisabled = "NodeConditionsDisabled"
	// ReasonGateClosed means that the gate's taint was put on a node, by the manager.
	ReasonGateClosed = "GateClosed"
	// ReasonAssumedDone means that the node matches spec.nodes.assumeDone, and counts as done without a run.
	ReasonAssumedDone = "AssumedDone"
	// ReasonGateOpened means that the taint of the gate was removed from a node without a run.
	ReasonGateOpened = "GateOpened"
	// ReasonPublished means that published results on a node were brought up to date without a run.
	ReasonPublished = "Published"
	// ReasonAdmissionPolicy means that the admission policy is there, and bound to the namespace.
	ReasonAdmissionPolicy = "AdmissionPolicy"
	// ReasonRegisteredTaint means that the latest node that joined had the taint when it registered.
	ReasonRegisteredTaint = "RegisteredTaint"
	// ReasonNoAdmissionPolicy means that nothing taints nodes in the request that creates them.
	ReasonNoAdmissionPolicy = "NoAdmissionPolicy"

	// ReasonProgressDeadlineExceeded means that the node has delayed a slot, a step or a soak for rollout.progressDeadlineSeconds.
	ReasonProgressDeadlineExceeded = "ProgressDeadlineExceeded"
	// ReasonPodNameTaken means that a pod that is not the NodeJob's has the name of the next attempt's pod.
	ReasonPodNameTaken = "PodNameTaken"
	// ReasonPodForceDeleted means that the attempt's pod was removed by force before its end was recorded.
	ReasonPodForceDeleted = "PodForceDeleted"
	// ReasonRecordRejected means that the API server refuses a write to the Node, as when its annotations are full.
	ReasonRecordRejected = "RecordRejected"
	// ReasonRecordRemoved means that the node's record was removed several times in a row right after it was written.
	ReasonRecordRemoved = "RecordRemoved"
	// ReasonNotReadyInSoak means that the node turned NotReady in the soak of its step, and counts as failed.
	ReasonNotReadyInSoak = "NotReadyInSoak"
	// ReasonFailedNodeDeleted means that the node was deleted, or became another machine, after it had failed, and still counts.
	ReasonFailedNodeDeleted = "FailedNodeDeleted"
	// ReasonNotReadyNodeDeleted means that the node was deleted, or became another machine, while it was not Ready, after the task had run
	// there.
	ReasonNotReadyNodeDeleted = "NotReadyNodeDeleted"
	// ReasonCordoned means that the node was cordoned because it has failed.
	ReasonCordoned = "Cordoned"
	// ReasonUncordoned means that the node was uncordoned, because the cordon is no longer needed.
	ReasonUncordoned = "Uncordoned"
	// ReasonDraining means that the pods of the node are being evicted. If the node is cordoned in the same write, there is no Cordoned.
	ReasonDraining = "Draining"
	// ReasonDrained means that all pods that the drain evicts have ended.
	ReasonDrained = "Drained"
	// ReasonDrainCancelled means that the drain of the node was cancelled, because onFailure.action has changed. If a user has uncordoned
	// the node, the event is Uncordoned.
	ReasonDrainCancelled = "DrainCancelled"
	// ReasonDrainTimedOut means that not all pods were evicted in time. The event names the pods that blocked the drain.
	ReasonDrainTimedOut = "DrainTimedOut"
	// ReasonNamespaceTerminating means that the namespace is being deleted, and no pod can be made in it.
	ReasonNamespaceTerminating = "NamespaceTerminating"
	// ReasonNamespaceFull means that nothing of a NodeJob starts, because the specs of the NodeJobs of its namespace have more than 4 MiB
	// together.
	ReasonNamespaceFull = "NamespaceFull"
	// ReasonTooManyNodeGuards means that a NodeGuard is not served, because its namespace has older ones and a maximum.
	ReasonTooManyNodeGuards = "TooManyNodeGuards"
	// ReasonDecisionsTooSlow means that the decisions of a NodeGuard take too long, so that it releases no node.
	ReasonDecisionsTooSlow = "DecisionsTooSlow"
	// ReasonNamespaceNotAllowed means that the namespace does not have the label with which the manager serves it.
	ReasonNamespaceNotAllowed = "NamespaceNotAllowed"
	// ReasonInvalidNamespaceNodes means that the annotation everynode.dev/nodes of the namespace cannot be used.
	ReasonInvalidNamespaceNodes = "InvalidNamespaceNodes"
	// ReasonPoliciesMissing means that an admission policy that the manager requires is not installed, or differs from its version.
	ReasonPoliciesMissing = "PoliciesMissing"
	// ReasonNotAuthorized means that the object may have been written while no admission policy was in force.
	ReasonNotAuthorized = "NotAuthorized"
	// ReasonInstallationTerminating means that Everynode is being uninstalled.
	ReasonInstallationTerminating = "InstallationTerminating"

	// ReasonAttemptFailed means that an attempt of the task or of the rollback failed and is retried; its record says why.
	ReasonAttemptFailed = "AttemptFailed"
	// ReasonDeadlineExceeded means that the attempt took longer than task.timeoutSeconds, or that its pod never started.
	ReasonDeadlineExceeded = "DeadlineExceeded"
	// ReasonEvicted means that another client has evicted the pod of the attempt with the Eviction API; it does not count.
	ReasonEvicted = "Evicted"
	// ReasonDisrupted means that the attempt ended for an external reason; it does not count, and the message says which. A NodeJob is
	// Stalled with it if all nodes that are left were disrupted 5 times in a row or more; the attempts continue.
	ReasonDisrupted = "Disrupted"
	// ReasonRetriesExhausted means that an attempt failed and is not retried, because retry.limit is reached; the node has failed.
	ReasonRetriesExhausted = "RetriesExhausted"
	// ReasonWriteFailed means that a write to the API server failed, for example because a webhook denied it, and is retried.
	ReasonWriteFailed = "WriteFailed"
	// ReasonRevisionStarted means that a new revision begins to roll out. The event says who has last changed the spec, if that is known.
	ReasonRevisionStarted = "RevisionStarted"
	// ReasonStepStarted means that a step of the rollout begins, since the one before has passed.
	ReasonStepStarted = "StepStarted"
	// ReasonStepCompleted means that a step of the rollout has passed.
	ReasonStepCompleted = "StepCompleted"
)
