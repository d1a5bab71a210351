// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodeJob runs a task once on every selected node, including nodes that join later, and records the outcome on each node. A change of
// the task is a new revision, which rolls out to the nodes step by step.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=nodejobs,singular=nodejob,shortName=nj,categories=everynode
// +kubebuilder:printcolumn:name="Nodes",type=integer,JSONPath=`.status.nodes.total`,description="Matching nodes"
// +kubebuilder:printcolumn:name="Done",type=integer,JSONPath=`.status.nodes.done`
// +kubebuilder:printcolumn:name="Running",type=integer,JSONPath=`.status.nodes.running`
// +kubebuilder:printcolumn:name="Failed",type=integer,JSONPath=`.status.nodes.failed`
// +kubebuilder:printcolumn:name="Non-Compliant",type=integer,JSONPath=`.status.nodes.nonCompliant`,description="Nodes on which task.check answers no"
// +kubebuilder:printcolumn:name="Step",type=string,JSONPath=`.status.rollout.step`,description="The step that the rollout has reached"
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Complete")].reason`
// +kubebuilder:printcolumn:name="Excluded",type=integer,JSONPath=`.status.nodes.excluded`,priority=1,description="Selected nodes on which the task does not run; status.excluded says why"
// +kubebuilder:printcolumn:name="Waiting",type=integer,JSONPath=`.status.nodes.waiting`,priority=1
// +kubebuilder:printcolumn:name="Revision",type=string,JSONPath=`.status.revision`,priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Complete")].message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="!has(self.spec.dependsOn) || !(self.metadata.name in self.spec.dependsOn)",message="spec.dependsOn names the NodeJob itself: remove it"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63",message="metadata.name must have at most 63 characters, because it becomes part of a label on each node: choose a shorter name"
type NodeJob struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata. The name has at most 63 characters, because it is part of a label key on each node.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec defines which nodes run the task, what the task is, how it rolls out, and what happens if it fails.
	// +required
	Spec NodeJobSpec `json:"spec,omitzero"`

	// status is the most recently observed state of the NodeJob. Its size does not depend on the number of nodes. An
	// observedGeneration of -1 means that the manager has not observed the NodeJob yet.
	// +optional
	// +kubebuilder:default:={"observedGeneration":-1}
	Status NodeJobStatus `json:"status,omitzero"`
}

// NodeJobList is a list of NodeJobs.
//
// +kubebuilder:object:root=true
type NodeJobList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`
	// items is the list of NodeJobs.
	Items []NodeJob `json:"items"`
}

// NodeJobSpec defines the desired state of a NodeJob.
//
// +kubebuilder:validation:XValidation:rule="has(self.nodes) && (has(self.nodes.selector) || has(self.nodes.names))",message="nodes has no selector and no names: write nodes.selector.matchLabels.KEY: VALUE, such as kubernetes.io/os: linux for all Linux nodes"
// +kubebuilder:validation:XValidation:rule="!has(self.gate) || !has(self.nodes) || !has(self.nodes.names)",message="gate applies to nodes that join, and nodes.names to existing nodes: use nodes.selector with a gate"
// +kubebuilder:validation:XValidation:rule="!has(self.gate) || !has(self.gate.nodes) || self.gate.nodes != 'JoiningAndRebooted' || (has(self.rerun) && has(self.rerun.onReboot) && self.rerun.onReboot)",message="gate.nodes JoiningAndRebooted closes the gate until the task has run again, which needs rerun.onReboot: set it to true, or leave gate.nodes out"
// +kubebuilder:validation:XValidation:rule="!has(self.rerun) || !has(self.rerun.onNodeFieldChange) || !self.rerun.onNodeFieldChange || (has(self.task.env) && self.task.env.exists(e, has(e.valueFrom) && has(e.valueFrom.nodeFieldRef)))",message="rerun.onNodeFieldChange compares the values that task.env takes from the Node, and it takes none: add a variable with valueFrom.nodeFieldRef, or leave onNodeFieldChange out"
// +kubebuilder:validation:XValidation:rule="!has(self.rerun) || !has(self.rerun.onNodeFieldChange) || !self.rerun.onNodeFieldChange || !has(self.task.env) || !has(self.publish) || self.task.env.all(e, !has(e.valueFrom) || !has(e.valueFrom.nodeFieldRef) || self.publish.all(p, (!has(p.label) || e.valueFrom.nodeFieldRef.fieldPath != \"metadata.labels['\" + p.label + \"']\") && (!has(p.annotation) || e.valueFrom.nodeFieldRef.fieldPath != \"metadata.annotations['\" + p.annotation + \"']\")))",message="with rerun.onNodeFieldChange, task.env must not read a label or an annotation that publish writes, because each run could request the next one: publish under another key"
// +kubebuilder:validation:XValidation:rule="!has(self.ttlSecondsAfterFinished) || !has(self.rerun) || !has(self.rerun.periodSeconds) || self.rerun.periodSeconds == 0",message="with ttlSecondsAfterFinished the NodeJob is gone after its first run: leave it out, or rerun.periodSeconds"
// +kubebuilder:validation:XValidation:rule="!has(self.ttlSecondsAfterFinished) || !has(self.task) || !has(self.task.check) || !has(self.task.check.periodSeconds) || self.task.check.periodSeconds == 0",message="with ttlSecondsAfterFinished the NodeJob is gone before it asks whether nodes have drifted: leave it out, or task.check.periodSeconds"
// +kubebuilder:validation:XValidation:rule="!has(self.ttlSecondsAfterFinished) || !has(self.expires)",message="with ttlSecondsAfterFinished the NodeJob is gone before its task expires, and the task stays on the nodes: leave it out, or expires"
// +kubebuilder:validation:XValidation:rule="!has(self.publish) || !has(self.removeLabels) || !self.publish.exists(p, has(p.label) && p.label in self.removeLabels)",message="a label in removeLabels is published as well: remove it from one of the two"
// +kubebuilder:validation:XValidation:rule="!has(self.task.template) || !has(self.task.template.spec) || !has(self.task.template.spec.os) || self.task.template.spec.os.name == 'linux' || (!has(self.rollback) && (!has(self.maintenance) || !has(self.maintenance.reboot) || !has(self.maintenance.reboot.policy) || self.maintenance.reboot.policy == 'Never'))",message="rollback and maintenance.reboot work on Linux nodes only: with another task.template.spec.os, leave them out"
// +kubebuilder:validation:XValidation:rule="!has(self.expires) || has(self.rollback)",message="expires needs spec.rollback: write the script that undoes the task, or leave expires out"
// +kubebuilder:validation:XValidation:rule="!has(self.expires) || !has(self.ttlSecondsAfterFinished)",message="with ttlSecondsAfterFinished the NodeJob is gone before it can undo its task: leave it out, or expires"
// +kubebuilder:validation:XValidation:rule="!has(self.expires) || !has(self.startingDeadlineSeconds)",message="after startingDeadlineSeconds no rollback starts, so nothing could expire: leave it out, or expires"
// +kubebuilder:validation:XValidation:rule="!has(self.deletionPolicy) || self.deletionPolicy != 'Rollback' || has(self.rollback)",message="deletionPolicy Rollback needs spec.rollback: write the script that undoes the task, or use Forget or Retain"
// +kubebuilder:validation:XValidation:rule="!has(self.confirm) || has(self.rollback)",message="confirm runs the rollback on a node that does not respond any more, and there is none: write spec.rollback, the script that undoes the task, or leave confirm out"
// +kubebuilder:validation:XValidation:rule="!has(self.confirm) || !has(self.task.template)",message="confirm needs the runner of Everynode, which a task.template does not have: use task.script or task.command, or leave confirm out"
// +kubebuilder:validation:XValidation:rule="!has(self.confirm) || !has(self.maintenance) || !has(self.maintenance.reboot) || !has(self.maintenance.reboot.policy) || self.maintenance.reboot.policy == 'Never'",message="confirm ends before the reboot of maintenance.reboot, so a node that does not come back would not be reverted: reboot with another NodeJob that depends on this one (dependsOn), or leave confirm out"
// +kubebuilder:validation:XValidation:rule="!has(self.confirm) || !has(self.confirm.timeoutSeconds) || !has(self.task.timeoutSeconds) || self.confirm.timeoutSeconds <= self.task.timeoutSeconds",message="confirm.timeoutSeconds is longer than task.timeoutSeconds: choose a shorter time for the confirmation, or a longer one for the task"
// +kubebuilder:validation:XValidation:rule="has(self.task.script) || has(self.task.scriptFrom) || has(self.task.command) || has(self.task.template) || (!has(self.rollback) && !has(self.gate) && !has(self.publish) && !has(self.removeLabels) && (!has(self.maintenance) || ((!has(self.maintenance.cordon) || !self.maintenance.cordon) && !has(self.maintenance.drain) && (!has(self.maintenance.reboot) || !has(self.maintenance.reboot.policy) || self.maintenance.reboot.policy == 'Never'))))",message="an audit (task.check without a task) never changes a node: remove rollback, gate, publish, removeLabels and maintenance, or add task.script"
// +kubebuilder:validation:XValidation:rule="has(self.task.script) || has(self.task.scriptFrom) || has(self.task.command) || has(self.task.template) || !has(self.rerun) || ((!has(self.rerun.periodSeconds) || self.rerun.periodSeconds == 0) && (!has(self.rerun.onReboot) || !self.rerun.onReboot))",message="an audit (task.check without a task) has no task to rerun: use task.check.periodSeconds instead of rerun.periodSeconds and rerun.onReboot"
type NodeJobSpec struct {
	// nodes selects the nodes that run the task: those that match the selector and the names, and whose taints are tolerated. One of
	// selector and names is required, so that a misspelled field never selects all nodes.
	//
	// Example: {selector: {matchLabels: {kubernetes.io/os: linux}}, tolerations: [{operator: Exists}]}
	// +optional
	Nodes NodesSpec `json:"nodes,omitzero"`

	// task defines what runs on each node. A change of the task is a new revision, except for timeoutSeconds, resources and output.
	//
	// Example: {script: "sysctl -w vm.max_map_count=262144", check: {script: "grep -qx 262144 /proc/sys/vm/max_map_count"}, timeoutSeconds: 60}
	// +required
	Task TaskSpec `json:"task,omitzero"`

	// rollback undoes the task, in a separate pod, on each node on which all attempts have failed. With deletionPolicy Rollback, it
	// also runs when the NodeJob is deleted, on every node on which the task has run, and with expires, on each node on which the task
	// is no longer needed. It is not part of the revision. Its environment describes why it runs (EVERYNODE_ROLLBACK_FOR), how the last
	// attempt ended (EVERYNODE_FAILED_EXIT_CODE, EVERYNODE_FAILED_REASON) and its results (EVERYNODE_RUN_RESULTS, and
	// EVERYNODE_RESULT_KEY for each).
	//
	// Example: {script: "sysctl -w vm.max_map_count=65530"}
	// +optional
	Rollback *RollbackSpec `json:"rollback,omitempty"`

	// confirm reverts a node that the task has cut off: unless the manager confirms in time that the kubelet of the node still
	// responds, the node runs the rollback by itself. It needs rollback, and works neither with task.template nor with
	// maintenance.reboot. It is not part of the revision.
	//
	// Example: {timeoutSeconds: 60}
	// +optional
	Confirm *ConfirmSpec `json:"confirm,omitempty"`

	// retry defines how many times, and after which delay, a failed attempt is retried.
	//
	// Example: {limit: 4, backoffSeconds: 30, maxBackoffSeconds: 600}
	// +optional
	// +kubebuilder:default={}
	Retry RetrySpec `json:"retry,omitzero"`

	// onFailure defines what happens to a node on which all attempts have failed.
	//
	// Example: {action: Drain}
	// +optional
	// +kubebuilder:default={}
	OnFailure OnFailureSpec `json:"onFailure,omitzero"`

	// rollout defines the steps in which a revision reaches the nodes, how many nodes run it at the same time, and how many nodes may
	// fail.
	//
	// Example: {maxConcurrent: "10%", maxFailures: 1, steps: [{name: canary, nodes: 1, soakSeconds: 600}, {name: all}], promoteTo: canary}
	// +optional
	// +kubebuilder:default={}
	Rollout RolloutSpec `json:"rollout,omitzero"`

	// publish sets results of the task as labels or annotations of the node, in the same write that records the success. A key is
	// removed from the node when it is removed from this list, or when the task no longer reports the result. It also sets conditions
	// of the node that say whether it is done.
	//
	// Example: [{result: kernel, label: example.com/kernel}]
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:XValidation:rule="self.all(p, (!has(p.label) || self.exists_one(q, has(q.label) && q.label == p.label)) && (!has(p.annotation) || self.exists_one(q, has(q.annotation) && q.annotation == p.annotation)) && (!has(p.condition) || self.exists_one(q, has(q.condition) && q.condition == p.condition)))",message="two results are published under the same key: give each a key of its own"
	Publish []PublishedResult `json:"publish,omitempty"`

	// removeLabels are labels that are removed from a node when the task succeeds there, such as a label with which a node template
	// requests the task: at most 8. The node remains selected. If the label is set again, the task runs again.
	//
	// Example: [example.com/needs-setup]
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.matches('^([^/]*[.])?(kubernetes[.]io|k8s[.]io|everynode[.]dev)/') || k.matches('^(node|kubelet)[.]kubernetes[.]io/'))",message="removeLabels must not name labels of kubernetes.io, k8s.io or everynode.dev, but for node.kubernetes.io/ and kubelet.kubernetes.io/: use a label with a prefix of your own"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('node.kubernetes.io/exclude-'))",message="removeLabels must not name labels that begin with node.kubernetes.io/exclude-, which keep nodes out of load balancers: remove them with kubectl label node"
	RemoveLabels []string `json:"removeLabels,omitempty"`

	// gate is a taint that prevents workloads from being scheduled on a joining node until the task has succeeded there.
	//
	// Example: {key: example.com/not-ready}
	// +optional
	Gate *GateSpec `json:"gate,omitempty"`

	// maintenance defines whether nodes are cordoned and drained before the task, and rebooted after it.
	//
	// Example: {drain: {timeoutSeconds: 1200}, reboot: {policy: IfRequested}, maxUnavailable: 1}
	// +optional
	// +kubebuilder:default={}
	Maintenance MaintenanceSpec `json:"maintenance,omitzero"`

	// dependsOn are the names of other NodeJobs of the namespace: at most 16. The task starts on a node after each of them that
	// selects the node is done there.
	//
	// Example: [install-driver]
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	DependsOn []string `json:"dependsOn,omitempty"`

	// suspend prevents new attempts, rollbacks and evictions from starting. Running attempts complete and are recorded. A deletion of
	// the NodeJob continues.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// startingDeadlineSeconds is the time after the creation of the NodeJob in which attempts may start, in seconds: 1 to 31536000.
	// After that, the NodeJob behaves as if suspend were true: a node that becomes reachable later does not run the task. If unset,
	// there is no deadline.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=31536000
	StartingDeadlineSeconds *int32 `json:"startingDeadlineSeconds,omitempty"`

	// ttlSecondsAfterFinished is the time after which a finished NodeJob is deleted, in seconds: 0 to 31536000. deletionPolicy
	// applies. A NodeJob is finished while its condition Reconciling is False, that is, while nothing continues automatically: also if
	// it is suspended, paused or Stalled. If unset, the NodeJob is not deleted.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=31536000
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`

	// retainPodsSeconds is the time for which the pod of the last attempt on each node is retained after its end, so that its logs can
	// be read, in seconds: 0, which is the default, to 86400. A retained pod uses no CPU and no memory. It is deleted earlier if the
	// node runs the task again.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	RetainPodsSeconds int32 `json:"retainPodsSeconds,omitempty"`

	// rerun defines when a node that is done runs the task again. A change of a ConfigMap or
	// Secret reruns the task if task.inputs names the object or a scriptFrom references it.
	//
	// Example: {onReboot: true, periodSeconds: 86400}
	// +optional
	// +kubebuilder:default={}
	Rerun RerunSpec `json:"rerun,omitzero"`

	// expires defines when the task is no longer needed, on each node or on all of them, such as a mitigation that is needed until a
	// fixed kernel runs. Then the rollback runs where the task has run, and the node is done (Expired): the task does not run there
	// again with this revision. It requires rollback, and is not part of the revision.
	//
	// Example: {check: {script: "test -e /run/fixed || exit 1", periodSeconds: 86400}, at: "2027-01-31T00:00:00Z"}
	// +optional
	Expires *ExpiresSpec `json:"expires,omitempty"`

	// deletionPolicy defines what happens to the nodes when the NodeJob is deleted. Forget, the default, removes the records from the
	// nodes. Retain retains the records: if the NodeJob is created again with the same name, its nodes are done. Rollback runs the
	// rollback on every node on which the task has run, within rollout.maxConcurrent, and then removes the records.
	// +optional
	// +kubebuilder:default=Forget
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`
}

// DeletionPolicy defines what happens to the nodes when a NodeJob is deleted.
//
// +kubebuilder:validation:Enum=Forget;Retain;Rollback
type DeletionPolicy string

const (
	// DeletionForget removes the records from the nodes.
	DeletionForget DeletionPolicy = "Forget"
	// DeletionRetain retains the records on the nodes.
	DeletionRetain DeletionPolicy = "Retain"
	// DeletionRollback runs the rollback on the nodes, and then removes the records.
	DeletionRollback DeletionPolicy = "Rollback"
)
