// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Keys that Everynode writes.
const (
	// PodFinalizer retains the pod of an attempt until its outcome is recorded on the node, so that neither pod garbage collection
	// nor a user removes it before.
	PodFinalizer = Group + "/outcome-tracking"

	// NodeJobFinalizer retains a NodeJob until deletionPolicy has been applied to its nodes.
	NodeJobFinalizer = Group + "/node-records"

	// NodeJobLabel, on a task's pod, names its NodeJob. The manager's pod cache selects on it.
	NodeJobLabel = Group + "/nodejob"

	// EnabledLabel, on a namespace, with the value EnabledValue, has the manager serve the NodeJobs and NodeGuards of the
	// namespace. Who may label namespaces decides where NodeJobs run.
	EnabledLabel = Group + "/enabled"

	// EnabledValue is the value of EnabledLabel.
	EnabledValue = "true"

	// NodesAnnotation, on a namespace, limits its NodeJobs and NodeGuards to the nodes with these labels, such as
	// "node-restriction.kubernetes.io/team=a". Several are separated by commas, and a node must have all of them. Without the
	// annotation, the namespace is not limited. Who may patch all namespaces may write it.
	NodesAnnotation = Group + "/nodes"

	// RevisionLabel, on a task's pod, is the revision that the pod runs.
	RevisionLabel = Group + "/revision"

	// PhaseLabel, on a task's pod, is "task", "rollback", "reboot", "check", "check-before", "check-drift" or "check-expires".
	PhaseLabel = Group + "/phase"

	// RetryAnnotation, on a NodeJob: any new value retries the task on every node
	// on which it failed. On a task's pod, it is a hash of the value at the creation of the pod.
	RetryAnnotation = Group + "/retry"

	// TakeOverAnnotation, on a NodeJob, names nodes, separated by commas, that the NodeJob may disrupt although another tool or a user has
	// drained them and not uncordoned them yet. To set it needs the rights of a change of the NodeJob, such as disrupt.
	TakeOverAnnotation = Group + "/take-over"

	// ChangedByAnnotation, on a NodeJob or NodeGuard, is the name of the user who last created it or changed its spec. Only
	// the API server sets it (config/attribution). It is absent where that is not known. On a task's pod, it is that of the
	// NodeJob when the pod was made.
	ChangedByAnnotation = Group + "/changed-by"

	// RequestedByAnnotation, on a NodeJob or NodeGuard, is the name of the user who last changed RetryAnnotation. Only the API
	// server sets it (config/attribution). It is absent where that is not known.
	RequestedByAnnotation = Group + "/requested-by"

	// CordonedAnnotation, on a node, names by their record keys the NodeJobs that the node is cordoned
	// for, separated by commas. A node that a user or another tool has cordoned does not have it.
	CordonedAnnotation = Group + "/cordoned-by"

	// PublishedAnnotation, on a node, says which NodeJob has published which of its labels and annotations.
	// Labels and annotations that are not in it belong to users or other tools.
	PublishedAnnotation = Group + "/published"

	// RebootAnnotation, on a task's pod, is spec.maintenance.reboot.policy when the pod was made.
	RebootAnnotation = Group + "/reboot"

	// DisruptsAnnotation with the value "true", on a task's pod, means that spec.maintenance disrupted nodes when the pod was made, so its
	// run disrupts the node.
	DisruptsAnnotation = Group + "/disrupts"

	// CheckBeforeAnnotation with the value "true", on a task's pod, means that the pod runs spec.task.check before the task.
	CheckBeforeAnnotation = Group + "/check-before"

	// OutsideWindowAnnotation, on a task's pod, names the NodeDisruptionBudget outside of whose window the attempt started, because
	// spec.maintenance.ignoreWindowsOn names the node.
	OutsideWindowAnnotation = Group + "/outside-window"

	// AttemptAnnotation, on a task's pod, is the number of the attempt, from 1.
	AttemptAnnotation = Group + "/attempt"

	// ContainersAnnotation, on a pod that the manager has created, names its containers, separated by commas. An admission webhook
	// or policy has added the others.
	ContainersAnnotation = Group + "/containers"

	// RecordedAnnotation, on a task's pod, means that its outcome is recorded, and that it is retained only for its logs.
	RecordedAnnotation = Group + "/recorded"

	// NodeUIDAnnotation, on a task's pod, is the UID of the Node that it was made for. A node that
	// is deleted and recreated with the same name has another UID.
	NodeUIDAnnotation = Group + "/node-uid"

	// ArchiveAnnotation, on a task's pod, is where its whole output is stored when it ends.
	ArchiveAnnotation = Group + "/archive"

	// ConfirmAnnotation, on a task's pod, means that the pod waits for a confirmation after the task (spec.confirm). It is the SHA-256
	// of the confirmation.
	ConfirmAnnotation = Group + "/confirm"

	// ConfirmedAnnotation, on a task's pod, is the confirmation of the manager.
	ConfirmedAnnotation = Group + "/confirmed"

	// SealAnnotation, on a pod that the manager has created, is a digest of the pod's other labels and annotations of Everynode,
	// with a key that only the manager has. A pod without a valid seal is not the manager's.
	SealAnnotation = Group + "/seal"

	// InputsAnnotation, on a task's pod, is a hash of the values that it has from the Node (task.env).
	InputsAnnotation = Group + "/inputs"

	// MachineAnnotation, on a task's pod, is "<machine ID>/<boot ID>" of the node when the pod was made.
	MachineAnnotation = Group + "/machine"
)

// ScriptLabel with the value ScriptLabelValue, on a ConfigMap, lets NodeJobs run its scripts. The admission policies in
// config/authorization allow only users who may run scripts as root to write such a ConfigMap.
const (
	ScriptLabel      = Group + "/script"
	ScriptLabelValue = "true"
)

// GateValue is the value of the gate taints that Everynode has put on a node, by the admission policy or by
// the manager. A taint with the key of a gate and another value was set by a user or another tool.
const GateValue = "everynode"

// GateKey is the key of the gate's taint of a NodeJob.
func GateKey(job *NodeJob) string {
	if job.Spec.Gate != nil && job.Spec.Gate.Key != "" {
		return job.Spec.Gate.Key
	}
	return RecordKey(job.Namespace, job.Name)
}

// GateEffectOf returns the effect of the gate's taint of a NodeJob: spec.gate.effect, or NoSchedule if omitted.
func GateEffectOf(job *NodeJob) GateEffect {
	if job.Spec.Gate != nil && job.Spec.Gate.Effect != "" {
		return job.Spec.Gate.Effect
	}
	return GateNoSchedule
}

// RecordKey is the key of the label and of the annotation that a node carries for a NodeJob. Its
// length is bounded by those of a namespace (63 characters) and of a NodeJob's name (63, by a rule
// of the API), so it is always a valid label key.
func RecordKey(namespace, name string) string {
	return namespace + "." + Group + "/" + name
}
