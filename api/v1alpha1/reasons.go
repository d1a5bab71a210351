package v1alpha1

// Condition types of a NodeJob. kstatus (Flux, kpt) reads Reconciling and Stalled. At
// most one of the three is True.
const (
	// ConditionComplete is True when every matching node is done with the current revision.
	ConditionComplete = "Complete"
	// ConditionReconciling is True while nodes run the task or wait for their turn.
	ConditionReconciling = "Reconciling"
	// ConditionStalled is True when it cannot go on without somebody's help.
	ConditionStalled = "Stalled"
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
	// ReasonNotStalled : nothing needs help.
	ReasonNotStalled = "NotStalled"

	// ReasonInvalidSelector : spec.nodeSelector cannot be used.
	ReasonInvalidSelector = "InvalidSelector"
	// ReasonConfigMapNotFound : a referenced ConfigMap or its key does not exist.
	ReasonConfigMapNotFound = "ConfigMapNotFound"
	// ReasonInvalidScript : a script is empty or too long.
	ReasonInvalidScript = "InvalidScript"
	// ReasonPodForbidden : the API server forbids the task's pod (Pod Security, quota, a policy).
	ReasonPodForbidden = "PodForbidden"
	// ReasonPodInvalid : the API server finds the task's pod invalid.
	ReasonPodInvalid = "PodInvalid"
	// ReasonPodNotCreated : the API server cannot create the task's pod, as when a webhook is away.
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
	// ReasonBackingOff : the last attempt failed or was disrupted; the next waits.
	ReasonBackingOff = "BackingOff"
	// ReasonNotReported : the node has not reported a Ready condition yet.
	ReasonNotReported = "NotReported"
	// ReasonNodeLost : the node's Ready condition is Unknown.
	ReasonNodeLost = "NodeLost"
	// ReasonNodeDeleting : the Node is being deleted.
	ReasonNodeDeleting = "NodeDeleting"
	// ReasonPodLeaving : a pod of an earlier attempt or revision has not left the node yet.
	ReasonPodLeaving = "PodLeaving"
	// ReasonUntoleratedTaint : the node has a taint that the NodeJob does not tolerate.
	ReasonUntoleratedTaint = "UntoleratedTaint"
	// ReasonNotSelected : spec.nodeSelector does not match the node.
	ReasonNotSelected = "NotSelected"

	// ReasonAttemptFailed : an attempt failed; its record says why.
	ReasonAttemptFailed = "AttemptFailed"
	// ReasonDeadlineExceeded : the attempt took longer than task.timeoutSeconds.
	ReasonDeadlineExceeded = "DeadlineExceeded"
	// ReasonDisrupted : the attempt was ended by something else than itself; it does not count. As the
	// reason of Stalled: all that is left to do was disrupted many times in a row.
	ReasonDisrupted = "Disrupted"
	// ReasonRetriesExhausted : retry.limit is reached; the node has failed.
	ReasonRetriesExhausted = "RetriesExhausted"
	// ReasonWriteFailed : a write to the API server failed, and is tried again.
	ReasonWriteFailed = "WriteFailed"
	// ReasonRevisionStarted : a new revision begins to roll out.
	ReasonRevisionStarted = "RevisionStarted"
)
