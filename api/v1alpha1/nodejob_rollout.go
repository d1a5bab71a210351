// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// In which order nodes get the task, and what happens when it fails.

// RolloutSpec says in which steps a revision reaches the nodes, how many run at once, and how many
// may fail.
//
// +kubebuilder:validation:XValidation:rule="!has(self.maxConcurrent) || (type(self.maxConcurrent) == int ? self.maxConcurrent >= 1 : self.maxConcurrent.matches('^(100|[1-9][0-9]?)%$'))",message="rollout.maxConcurrent must be a number of nodes of at least 1, or a percentage from \"1%\" to \"100%\""
// +kubebuilder:validation:XValidation:rule="!has(self.maxFailures) || (type(self.maxFailures) == int ? self.maxFailures >= 0 : self.maxFailures.matches('^(100|[1-9]?[0-9])%$'))",message="rollout.maxFailures must be a number of nodes of at least 0, or a percentage from \"0%\" to \"100%\""
// +kubebuilder:validation:XValidation:rule="!has(self.steps) || self.steps.filter(s, !has(s.nodes) && !has(s.nodeSelector)).size() == 1",message="exactly one of rollout.steps, the last, must have neither nodes nor nodeSelector: it is for all nodes that the steps before leave. Add {name: all} as the last step, or give the others nodes or nodeSelector"
// +kubebuilder:validation:XValidation:rule="!has(self.steps) || (!has(self.steps[self.steps.size()-1].nodes) && !has(self.steps[self.steps.size()-1].nodeSelector))",message="the last of rollout.steps must have neither nodes nor nodeSelector, since it is for all nodes that the steps before leave: add {name: all} as the last step; to hold the rollout before it, set rollout.promoteTo"
// +kubebuilder:validation:XValidation:rule="!has(self.promoteTo) || !has(self.steps) || self.steps.exists(s, s.name == self.promoteTo)",message="rollout.promoteTo must be the name of one of rollout.steps: without steps of your own these are canary and all"
type RolloutSpec struct {
	// maxConcurrent is how many nodes run at once: a number, or a percentage of the matching nodes,
	// rounded down but never below one node. 25% when omitted. Nodes that join once the revision is
	// stable (status.rollout.stableAt) do not count.
	// +optional
	// +kubebuilder:default="25%"
	// +kubebuilder:validation:XIntOrString
	MaxConcurrent *intstr.IntOrString `json:"maxConcurrent,omitempty"`

	// maxFailures is how many nodes may fail: a number, or a percentage of the matching nodes, rounded
	// down. 0 when omitted. With more, nothing new starts, not on nodes that join either; what runs may end.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:XIntOrString
	MaxFailures *intstr.IntOrString `json:"maxFailures,omitempty"`

	// progressDeadlineSeconds is how long a node may keep a slot, a step or a soak waiting without progress: 60 to
	// 604800, or 0 for no limit; 3600 when omitted. After that the node counts as failed, with the reason ProgressDeadlineExceeded, until it
	// continues. An attempt within its own time limits is progress, and so is a failure that counts; a disruption is not.
	// +optional
	// +kubebuilder:default=3600
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=604800
	// +kubebuilder:validation:XValidation:rule="self == 0 || self >= 60",message="rollout.progressDeadlineSeconds must be at least 60, or 0 for no limit"
	ProgressDeadlineSeconds *int32 `json:"progressDeadlineSeconds,omitempty"`

	// steps are the order in which a new revision reaches the nodes: at most 16. One node, then all, when
	// omitted. A node belongs to the first step that takes it. The next step begins when all nodes of
	// a step are done or have failed, one at least is done, and its soak is over.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:default={{name: "canary", nodes: 1}, {name: "all"}}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Steps []RolloutStep `json:"steps,omitempty"`

	// promoteTo is the name of the last step that the rollout may reach: the last of all when omitted. It is
	// an upper limit only: each revision begins with the first step.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	PromoteTo string `json:"promoteTo,omitempty"`
}

// RolloutStep is a group of nodes that a revision reaches together. A step with neither nodes nor
// nodeSelector, which must be the last, is for all that the steps before leave.
//
// +kubebuilder:validation:XValidation:rule="!has(self.nodes) || (type(self.nodes) == int ? self.nodes >= 1 : self.nodes.matches('^(100|[1-9][0-9]?)%$'))",message="nodes of a step must be a number of at least 1, or a percentage from \"1%\" to \"100%\": for all that are left, leave it out"
type RolloutStep struct {
	// name of the step, as promoteTo and the status name it: lower case letters, digits and dashes.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name,omitempty"`

	// nodes is how many nodes must have succeeded: a number, or a percentage of the matching nodes (of
	// those that the step's nodeSelector matches, if it has one), rounded up. All that are left, when
	// there are fewer. The oldest nodes are taken first, spread over the zones.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=4
	Nodes *intstr.IntOrString `json:"nodes,omitempty"`

	// nodeSelector selects the nodes of the step, among those that spec.nodeSelector selects. It must not be empty.
	// +optional
	// +kubebuilder:validation:XValidation:rule="(has(self.matchLabels) && self.matchLabels.size() > 0) || (has(self.matchExpressions) && self.matchExpressions.size() > 0)",message="the selector is empty: write nodeSelector.matchLabels.KEY: VALUE, or omit nodeSelector for all remaining nodes"
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`

	// soakSeconds is how long the nodes of the step must stay Ready after all have succeeded, before
	// the next step begins: 0 to 604800, 0 when omitted. A node that turns NotReady counts as failed.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=604800
	SoakSeconds int32 `json:"soakSeconds,omitempty"`
}

// RetrySpec says how often and when a failed attempt is repeated on its node. The wait before the
// n-th retry is backoffSeconds * 2^(n-1), at most maxBackoffSeconds. An attempt that was ended by
// something else (eviction, preemption, node shutdown) is not counted, but backs off alike.
//
// +kubebuilder:validation:XValidation:rule="!has(self.backoffSeconds) || !has(self.maxBackoffSeconds) || self.backoffSeconds <= self.maxBackoffSeconds",message="retry.backoffSeconds must not exceed retry.maxBackoffSeconds: raise maxBackoffSeconds or lower backoffSeconds"
type RetrySpec struct {
	// limit is how many retries follow the first failed attempt: 0 to 100, 3 when omitted.
	// +optional
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Limit *int32 `json:"limit,omitempty"`

	// backoffSeconds is the wait before the first retry: 1 to 86400, 10 when omitted.
	// +optional
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	BackoffSeconds *int32 `json:"backoffSeconds,omitempty"`

	// maxBackoffSeconds is the longest wait before a retry: 1 to 86400, 300 when omitted.
	// +optional
	// +kubebuilder:default=300
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	MaxBackoffSeconds *int32 `json:"maxBackoffSeconds,omitempty"`
}

// RollbackSpec is a script that undoes the task: exactly one of script and scriptFrom. It runs like
// task.script, with task.env, and is repeated as spec.retry says when it fails.
//
// +kubebuilder:validation:XValidation:rule="(has(self.script) ? 1 : 0) + (has(self.scriptFrom) ? 1 : 0) == 1",message="set exactly one of rollback.script and rollback.scriptFrom"
// +kubebuilder:validation:XValidation:rule="!has(self.script) || self.script.matches('[^[:space:]]')",message="rollback.script is empty: write the commands that undo the task, or leave rollback out"
// +kubebuilder:validation:XValidation:rule="!has(self.script) || !self.script.matches('\\r\\n|\\r$')",message="rollback.script has Windows line endings (CRLF), and an interpreter takes the carriage return for a part of a word: convert it to Unix line endings (LF)"
// +kubebuilder:validation:XValidation:rule="!has(self.script) || !self.script.matches('(^|\\n)\\ufeff')",message="rollback.script has a byte order mark (BOM) at the beginning of a line, and an interpreter takes it for a part of a word: save it as UTF-8 without BOM"
type RollbackSpec struct {
	// script runs like task.script, and finds in its environment why it runs (EVERYNODE_ROLLBACK_FOR), how
	// the last attempt ended (EVERYNODE_FAILED_EXIT_CODE, EVERYNODE_FAILED_REASON) and its results
	// (EVERYNODE_RUN_RESULTS, and EVERYNODE_RESULT_KEY for each). At most 65536 bytes.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	Script string `json:"script,omitempty"`

	// scriptFrom takes the script from a ConfigMap of the same namespace.
	// +optional
	ScriptFrom *ScriptSource `json:"scriptFrom,omitempty"`

	// interpreter is the command on the node that the script is given to, as for the task.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=1024
	Interpreter []string `json:"interpreter,omitempty"`

	// timeoutSeconds is the time limit of one attempt in seconds, image pull included: 1 to 86400,
	// 600 when omitted.
	// +optional
	// +kubebuilder:default=600
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`
}

// OnFailureSpec says what becomes of a node on which every attempt failed.
//
// +kubebuilder:validation:XValidation:rule="!has(self.drain) || (has(self.node) && self.node == 'Drain')",message="onFailure.drain works with onFailure.node Drain only: set node to Drain, or leave drain out"
type OnFailureSpec struct {
	// node is None (the default), Cordon, which keeps new pods off it, or Drain, which also evicts
	// the pods that are there once the rollback has ended. A node that was cordoned for this is
	// uncordoned when the task succeeds there, and when the NodeJob is not for it any more.
	// +optional
	// +kubebuilder:default=None
	Node FailedNodePolicy `json:"node,omitempty"`

	// drain says how pods are evicted.
	// +optional
	Drain *DrainSpec `json:"drain,omitempty"`
}

// FailedNodePolicy says what becomes of a failed node.
//
// +kubebuilder:validation:Enum=None;Cordon;Drain
type FailedNodePolicy string

const (
	// FailedNodeNone leaves the node as it is.
	FailedNodeNone FailedNodePolicy = "None"
	// FailedNodeCordon keeps new pods off the node.
	FailedNodeCordon FailedNodePolicy = "Cordon"
	// FailedNodeDrain keeps new pods off the node and evicts those that are there.
	FailedNodeDrain FailedNodePolicy = "Drain"
)

// DrainSpec says how the pods of a node are evicted, as kubectl drain does it: through the Eviction
// API, which heeds PodDisruptionBudgets. Pods of DaemonSets and static pods stay. Pods that nothing would
// make again hold the drain up, as do those with emptyDir volumes unless deleteEmptyDirData is true.
type DrainSpec struct {
	// timeoutSeconds is how long the drain may take, in seconds: 1 to 604800, 600 when omitted. After
	// it nothing more is evicted; the node stays cordoned.
	// +optional
	// +kubebuilder:default=600
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=604800
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`

	// gracePeriodSeconds is what an evicted pod has to end: 1 to 86400. The pod's own when omitted.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	GracePeriodSeconds *int32 `json:"gracePeriodSeconds,omitempty"`

	// deleteEmptyDirData also evicts pods with emptyDir volumes, whose content is lost.
	// +optional
	DeleteEmptyDirData bool `json:"deleteEmptyDirData,omitempty"`

	// podSelector selects the pods that are evicted, by their labels; the others stay. Omitted: all. It must not be empty.
	// +optional
	// +kubebuilder:validation:XValidation:rule="(has(self.matchLabels) && self.matchLabels.size() > 0) || (has(self.matchExpressions) && self.matchExpressions.size() > 0)",message="the selector is empty: write podSelector.matchLabels.KEY: VALUE, or omit podSelector for all pods"
	PodSelector *metav1.LabelSelector `json:"podSelector,omitempty"`
}
