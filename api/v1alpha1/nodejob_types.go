package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// NodeJob makes a task have run on every node that it selects, the present and the future ones:
// once per revision, recorded on each node.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=nodejobs,singular=nodejob,shortName=nj,categories=everynode
// +kubebuilder:printcolumn:name="Nodes",type=integer,JSONPath=`.status.nodes.matched`,description="Nodes that it is for"
// +kubebuilder:printcolumn:name="Done",type=integer,JSONPath=`.status.nodes.done`
// +kubebuilder:printcolumn:name="Running",type=integer,JSONPath=`.status.nodes.running`
// +kubebuilder:printcolumn:name="Waiting",type=integer,JSONPath=`.status.nodes.waiting`
// +kubebuilder:printcolumn:name="Failed",type=integer,JSONPath=`.status.nodes.failed`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Complete")].reason`
// +kubebuilder:printcolumn:name="Revision",type=string,JSONPath=`.status.revision`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63",message="metadata.name must have at most 63 characters, because it becomes part of a label on each node: choose a shorter name"
type NodeJob struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata. The name has at most 63 characters.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec says which nodes, what to run there, how fast, and what to do when it goes wrong.
	// +required
	Spec NodeJobSpec `json:"spec,omitzero"`

	// status says how far it is. It is bounded, whatever the size of the cluster.
	// +optional
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

// NodeJobSpec is what the user wants.
//
// +kubebuilder:validation:XValidation:rule="!has(self.verify) || !has(self.task.template)",message="verify works with task.script and task.scriptFrom only: with task.template, check the result in the template's own container and end it with another exit code than 0"
type NodeJobSpec struct {
	// nodeSelector selects nodes by their labels. Omitted or empty: every node.
	// +optional
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`

	// tolerations are the taints in spite of which a node is selected, as for a DaemonSet. Always
	// tolerated are those of a node that is not ready, unreachable, under pressure, without network
	// or cordoned.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// task is what runs on each node.
	// +required
	Task TaskSpec `json:"task,omitzero"`

	// verify runs after the task succeeded, in the same pod and within the same time limit. Another
	// exit code than 0 makes the attempt a failed one.
	// +optional
	Verify *VerifySpec `json:"verify,omitempty"`

	// retry says how often and when a failed attempt is repeated.
	// +optional
	// +kubebuilder:default={}
	Retry RetrySpec `json:"retry,omitzero"`

	// rollout says how many nodes run at once.
	// +optional
	// +kubebuilder:default={}
	Rollout RolloutSpec `json:"rollout,omitzero"`

	// suspend keeps new attempts from starting. Those that run may end, and are recorded.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// rerun says what makes a node that is done run the task again.
	// +optional
	// +kubebuilder:default={}
	Rerun RerunSpec `json:"rerun,omitzero"`

	// deletionPolicy says what becomes of the records on the nodes when the NodeJob is deleted.
	// Forget (the default) takes them away; Retain leaves them, and a NodeJob that is made again under
	// the same name finds its nodes done.
	// +optional
	// +kubebuilder:default=Forget
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`
}

// TaskSpec is what runs on each node: exactly one of script, scriptFrom and template.
//
// +kubebuilder:validation:XValidation:rule="(has(self.script) ? 1 : 0) + (has(self.scriptFrom) ? 1 : 0) + (has(self.template) ? 1 : 0) == 1",message="set exactly one of task.script, task.scriptFrom and task.template"
// +kubebuilder:validation:XValidation:rule="!has(self.script) || self.script.matches('[^[:space:]]')",message="task.script is empty: write the commands to run on each node, or use task.scriptFrom or task.template instead"
// +kubebuilder:validation:XValidation:rule="!has(self.template) || !has(self.interpreter)",message="task.interpreter works with task.script and task.scriptFrom only: with task.template, set command in the template's container"
// +kubebuilder:validation:XValidation:rule="!has(self.template) || !has(self.env)",message="task.env works with task.script and task.scriptFrom only: with task.template, set env in the template's container"
// +kubebuilder:validation:XValidation:rule="!has(self.env) || self.env.all(e, !e.name.startsWith('EVERYNODE_'))",message="names in task.env must not begin with EVERYNODE_, which is kept for Everynode's own: choose another name"
// +kubebuilder:validation:XValidation:rule="!has(self.template) || !has(self.template.spec) || !has(self.template.spec.restartPolicy) || self.template.spec.restartPolicy == 'Never'",message="task.template.spec.restartPolicy must be Never or omitted: use spec.retry to repeat a failed attempt"
// +kubebuilder:validation:XValidation:rule="!has(self.template) || !has(self.template.spec) || (!has(self.template.spec.nodeName) && !has(self.template.spec.nodeSelector) && !has(self.template.spec.affinity))",message="task.template.spec must not choose nodes (nodeName, nodeSelector, affinity): use spec.nodeSelector"
// +kubebuilder:validation:XValidation:rule="!has(self.template) || (has(self.template.spec) && has(self.template.spec.containers) && self.template.spec.containers.size() > 0)",message="task.template.spec.containers is empty: name at least one container with its image"
type TaskSpec struct {
	// script runs on the node as root, in the node's own namespaces, by the node's interpreter.
	// At most 65536 bytes.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	Script string `json:"script,omitempty"`

	// scriptFrom takes the script from a ConfigMap of the same namespace. A change of its content is a
	// new revision.
	// +optional
	ScriptFrom *ScriptSource `json:"scriptFrom,omitempty"`

	// template is a whole pod, for a task that brings its own image. Everynode sets where it runs,
	// its tolerations, its restart policy and its activeDeadlineSeconds; it mounts no service account
	// token unless the template names a service account or asks for the token.
	// +optional
	Template *corev1.PodTemplateSpec `json:"template,omitempty"`

	// interpreter is the command on the node that the script is given to, such as ["/bin/bash", "-eu"].
	// Omitted: the script's own #! line, or else /bin/sh.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=1024
	Interpreter []string `json:"interpreter,omitempty"`

	// env is added to the script's environment. EVERYNODE_NODE_NAME, EVERYNODE_ATTEMPT,
	// EVERYNODE_REVISION and EVERYNODE_RESULTS are always there.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Env []corev1.EnvVar `json:"env,omitempty"`

	// timeoutSeconds is the time limit of one attempt in seconds, image pull included: 1 to 86400,
	// 600 when omitted.
	// +optional
	// +kubebuilder:default=600
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`
}

// VerifySpec is a script that checks the task's result: exactly one of script and scriptFrom.
//
// +kubebuilder:validation:XValidation:rule="(has(self.script) ? 1 : 0) + (has(self.scriptFrom) ? 1 : 0) == 1",message="set exactly one of verify.script and verify.scriptFrom"
// +kubebuilder:validation:XValidation:rule="!has(self.script) || self.script.matches('[^[:space:]]')",message="verify.script is empty: write the commands that check the result, or leave verify out"
type VerifySpec struct {
	// script runs like task.script, with the same environment. At most 65536 bytes.
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
}

// ScriptSource says where a script is found.
type ScriptSource struct {
	// configMapKeyRef is a key of a ConfigMap in the NodeJob's namespace. Where the ConfigMap or the
	// key does not exist, the NodeJob waits for it and says so.
	// +required
	ConfigMapKeyRef ConfigMapKeyRef `json:"configMapKeyRef,omitzero"`
}

// ConfigMapKeyRef is a key of a ConfigMap in the same namespace.
type ConfigMapKeyRef struct {
	// name of the ConfigMap.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// key in the ConfigMap's data.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key,omitempty"`
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

// RolloutSpec says how many nodes run at once.
//
// +kubebuilder:validation:XValidation:rule="!has(self.maxConcurrent) || (type(self.maxConcurrent) == int ? self.maxConcurrent >= 1 : self.maxConcurrent.matches('^(100|[1-9][0-9]?)%$'))",message="rollout.maxConcurrent must be a number of nodes of at least 1, or a percentage from \"1%\" to \"100%\""
type RolloutSpec struct {
	// maxConcurrent is how many nodes run at once: a number, or a percentage of the matching nodes,
	// rounded down but never below one node. 25% when omitted.
	// +optional
	// +kubebuilder:default="25%"
	// +kubebuilder:validation:XIntOrString
	MaxConcurrent *intstr.IntOrString `json:"maxConcurrent,omitempty"`
}

// RerunSpec says what makes a node that is done run the task again. Removing the record's label
// from a node always does.
type RerunSpec struct {
	// onChange: a new revision (a change of task, verify or the content of a referenced ConfigMap)
	// runs on nodes that are done with an earlier one. True when omitted.
	// +optional
	// +kubebuilder:default=true
	OnChange *bool `json:"onChange,omitempty"`

	// onReplace: another machine (by its machine ID) behind the same node runs the task again. True
	// when omitted.
	// +optional
	// +kubebuilder:default=true
	OnReplace *bool `json:"onReplace,omitempty"`
}

// DeletionPolicy says what becomes of the records when a NodeJob is deleted.
//
// +kubebuilder:validation:Enum=Forget;Retain
type DeletionPolicy string

const (
	// DeletionForget takes the records off the nodes.
	DeletionForget DeletionPolicy = "Forget"
	// DeletionRetain leaves the records on the nodes.
	DeletionRetain DeletionPolicy = "Retain"
)

// NodeJobStatus is what has been seen. It is written at most once a second.
type NodeJobStatus struct {
	// observedGeneration is the metadata.generation that this status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// revision is the short hash of what is executed now: task, verify and the content of referenced
	// ConfigMaps. It is the value of the label on nodes that are done.
	// +optional
	Revision string `json:"revision,omitempty"`

	// nodes counts the nodes by their state.
	// +optional
	Nodes NodeCounts `json:"nodes,omitempty"`

	// failures are at most 10 nodes on which the last attempt of this revision failed or was disrupted,
	// those that are not tried again first.
	// +optional
	// +listType=map
	// +listMapKey=node
	// +kubebuilder:validation:MaxItems=10
	Failures []NodeFailure `json:"failures,omitempty"`

	// conditions are Complete, Reconciling and Stalled.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NodeCounts counts the matching nodes. matched = done + running + waiting + failed.
type NodeCounts struct {
	// matched nodes are selected and have no untolerated taint, or have run or run the task in spite of it.
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
	// failed for good: not tried again unless asked.
	// +optional
	Failed int32 `json:"failed"`
}

// NodeFailure is a node on which the last attempt failed or was disrupted.
type NodeFailure struct {
	// node is its name.
	// +required
	Node string `json:"node,omitempty"`
	// retrying is true when another attempt will follow by itself.
	// +optional
	Retrying bool `json:"retrying,omitempty"`
	// attempts of this revision so far that count.
	// +optional
	Attempts int32 `json:"attempts,omitempty"`
	// exitCode of the last attempt; omitted when it never ended by itself.
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
}
