package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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
// +kubebuilder:printcolumn:name="Step",type=string,JSONPath=`.status.rollout.step`,description="The step that the rollout has reached"
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Complete")].reason`
// +kubebuilder:printcolumn:name="Revision",type=string,JSONPath=`.status.revision`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="!has(self.spec.dependsOn) || !(self.metadata.name in self.spec.dependsOn)",message="spec.dependsOn names the NodeJob itself: take it out"
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
// +kubebuilder:validation:XValidation:rule="!has(self.gate) || !has(self.gate.onReboot) || !self.gate.onReboot || (has(self.rerun) && has(self.rerun.onReboot) && self.rerun.onReboot)",message="gate.onReboot closes the gate until the task has run again, which needs rerun.onReboot: set it to true, or leave gate.onReboot out"
// +kubebuilder:validation:XValidation:rule="!has(self.publish) || !has(self.removeLabels) || !self.publish.exists(p, has(p.label) && p.label in self.removeLabels)",message="a label in removeLabels is published as well: take it out of one of the two"
// +kubebuilder:validation:XValidation:rule="!has(self.verify) || !has(self.task.template)",message="verify works with task.script and task.scriptFrom only: with task.template, check the result in the template's own container and end it with another exit code than 0"
// +kubebuilder:validation:XValidation:rule="!has(self.deletionPolicy) || self.deletionPolicy != 'RollBack' || has(self.rollback)",message="deletionPolicy RollBack needs spec.rollback: write the script that undoes the task, or use Forget or Retain"
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

	// rollback undoes the task on a node where every attempt failed, in a pod of its own; and, with
	// deletionPolicy RollBack, on every node when the NodeJob is deleted. It is no part of the revision.
	// +optional
	Rollback *RollbackSpec `json:"rollback,omitempty"`

	// retry says how often and when a failed attempt is repeated.
	// +optional
	// +kubebuilder:default={}
	Retry RetrySpec `json:"retry,omitzero"`

	// onFailure says what becomes of a node on which every attempt failed.
	// +optional
	// +kubebuilder:default={}
	OnFailure OnFailureSpec `json:"onFailure,omitzero"`

	// rollout says in which steps, how many nodes at once, and how many may fail.
	// +optional
	// +kubebuilder:default={}
	Rollout RolloutSpec `json:"rollout,omitzero"`

	// publish puts results of the task on the node, in the same write that records the success. What is
	// no longer listed, or no longer reported, is taken off again.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:XValidation:rule="self.all(p, (!has(p.label) || self.exists_one(q, has(q.label) && q.label == p.label)) && (!has(p.annotation) || self.exists_one(q, has(q.annotation) && q.annotation == p.annotation)))",message="two results are published under the same key: give each a key of its own"
	Publish []Fact `json:"publish,omitempty"`

	// removeLabels are labels that a success takes off the node, such as one with which a node template
	// asks for the task: at most 8. The node stays one of the NodeJob's. Setting such a label again asks for another run.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.matches('^([^/]*[.])?(kubernetes[.]io|k8s[.]io|everynode[.]dev)/') || k.matches('^(node|kubelet)[.]kubernetes[.]io/'))",message="removeLabels must not name labels of kubernetes.io, k8s.io or everynode.dev, but for node.kubernetes.io/ and kubelet.kubernetes.io/: use a label with a prefix of your own"
	RemoveLabels []string `json:"removeLabels,omitempty"`

	// gate is a taint that keeps workloads off a node that joins until the task has succeeded there.
	// +optional
	Gate *GateSpec `json:"gate,omitempty"`

	// disruption says what is done to the node around the task: cordon, drain, reboot.
	// +optional
	// +kubebuilder:default={}
	Disruption DisruptionSpec `json:"disruption,omitzero"`

	// dependsOn are other NodeJobs of the namespace, at most 16. On a node that one of them is for, the task
	// starts when that one is done there.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	DependsOn []string `json:"dependsOn,omitempty"`

	// suspend keeps new attempts from starting, of rollbacks too, and pods from being evicted. What runs may
	// end, and is recorded. A deletion does not mind it.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// rerun says what makes a node that is done run the task again.
	// +optional
	// +kubebuilder:default={}
	Rerun RerunSpec `json:"rerun,omitzero"`

	// deletionPolicy says what becomes of the nodes when the NodeJob is deleted. Forget (the default)
	// takes the records off them; Retain leaves the records, and a NodeJob that is made again under the
	// same name finds its nodes done; RollBack runs the rollback on every node that the task has run on,
	// within rollout.maxConcurrent, and then takes the records away.
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

// RollbackSpec is a script that undoes the task: exactly one of script and scriptFrom. It runs like
// task.script, with task.env, and is repeated as spec.retry says when it fails.
//
// +kubebuilder:validation:XValidation:rule="(has(self.script) ? 1 : 0) + (has(self.scriptFrom) ? 1 : 0) == 1",message="set exactly one of rollback.script and rollback.scriptFrom"
// +kubebuilder:validation:XValidation:rule="!has(self.script) || self.script.matches('[^[:space:]]')",message="rollback.script is empty: write the commands that undo the task, or leave rollback out"
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
	// node is Leave (the default), Cordon, which keeps new pods off it, or Drain, which also evicts
	// the pods that are there once the rollback has ended. A node that was cordoned for this is
	// uncordoned when the task succeeds there, and when the NodeJob is not for it any more.
	// +optional
	// +kubebuilder:default=Leave
	Node FailedNodePolicy `json:"node,omitempty"`

	// drain says how pods are evicted.
	// +optional
	Drain *DrainSpec `json:"drain,omitempty"`
}

// FailedNodePolicy says what becomes of a failed node.
//
// +kubebuilder:validation:Enum=Leave;Cordon;Drain
type FailedNodePolicy string

const (
	// FailedNodeLeave leaves the node as it is.
	FailedNodeLeave FailedNodePolicy = "Leave"
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

	// podSelector selects the pods that are evicted, by their labels; the others stay. Omitted: all.
	// +optional
	PodSelector *metav1.LabelSelector `json:"podSelector,omitempty"`
}

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
	// proven (status.rollout.provenAt) do not count.
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

	// promoteTo is the name of the furthest step that the rollout may reach: the last when omitted. It is
	// a ceiling only: each revision begins with the first step.
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

	// nodeSelector selects the nodes of the step, among those that spec.nodeSelector selects.
	// +optional
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`

	// soakSeconds is how long the nodes of the step must stay Ready after all have succeeded, before
	// the next step begins: 0 to 604800, 0 when omitted. A node that turns NotReady counts as failed.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=604800
	SoakSeconds int32 `json:"soakSeconds,omitempty"`
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

	// onReboot: a node that has rebooted (by its boot ID) since the task succeeded runs it again.
	// +optional
	OnReboot bool `json:"onReboot,omitempty"`

	// everySeconds: a node that is done runs the task again at this interval: 10 to 31536000, or 0, the
	// default, for never. The nodes are spread over the interval, each at a time of its own, and the first
	// time comes half an interval after the success at the earliest.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=31536000
	// +kubebuilder:validation:XValidation:rule="self == 0 || self >= 10",message="rerun.everySeconds must be 0, for never, or at least 10"
	EverySeconds int32 `json:"everySeconds,omitempty"`

	// onChangeOf are ConfigMaps and Secrets of the namespace whose content counts as part of the revision, such
	// as those that task.template mounts. Of a Secret the manager must be allowed to get it: docs/reruns.md.
	// +optional
	// +listType=map
	// +listMapKey=kind
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	OnChangeOf []ContentRef `json:"onChangeOf,omitempty"`
}

// ContentRef names an object of the NodeJob's namespace whose content counts.
type ContentRef struct {
	// kind is ConfigMap or Secret.
	// +required
	Kind ContentKind `json:"kind,omitempty"`
	// name of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
}

// ContentKind is the kind of an object whose content counts.
//
// +kubebuilder:validation:Enum=ConfigMap;Secret
type ContentKind string

const (
	// ContentConfigMap is a ConfigMap.
	ContentConfigMap ContentKind = "ConfigMap"
	// ContentSecret is a Secret.
	ContentSecret ContentKind = "Secret"
)

// Fact is a result of the task that is put on the node, as an annotation or as a label.
//
// +kubebuilder:validation:XValidation:rule="has(self.annotation) != has(self.label)",message="set exactly one of annotation and label: the key that the result is published under"
// +kubebuilder:validation:XValidation:rule="!has(self.annotation) || !self.annotation.matches('^([^/]*[.])?(kubernetes[.]io|k8s[.]io|everynode[.]dev)/') || self.annotation.matches('^(node|kubelet)[.]kubernetes[.]io/')",message="annotations of kubernetes.io, k8s.io and everynode.dev must not be published, but for node.kubernetes.io/ and kubelet.kubernetes.io/: use a prefix of your own"
// +kubebuilder:validation:XValidation:rule="!has(self.label) || !self.label.matches('^([^/]*[.])?(kubernetes[.]io|k8s[.]io|everynode[.]dev)/') || self.label.matches('^(node|kubelet)[.]kubernetes[.]io/')",message="labels of kubernetes.io, k8s.io and everynode.dev must not be published, but for node.kubernetes.io/ and kubelet.kubernetes.io/, which a node may say of itself: use a prefix of your own"
type Fact struct {
	// result is the key that the task writes to $EVERYNODE_RESULTS.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`
	Result string `json:"result,omitempty"`
	// annotation is the annotation that takes the result, of up to 256 bytes.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`
	Annotation string `json:"annotation,omitempty"`
	// label is the label that takes the result. A result that is no valid label value fails the attempt.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`
	Label string `json:"label,omitempty"`
}

// GateSpec is a taint that a node has from its creation until the task has succeeded there.
type GateSpec struct {
	// key of the taint. Omitted: the key of the record, NAMESPACE.everynode.dev/NAME. With a key of your own,
	// such as a startup taint of Karpenter or of the cluster autoscaler, or one that the kubelet registers
	// with, the taint is taken off whoever has put it there; NodeJobs with the same key open the node together.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="self.contains('/')",message="gate.key must have a prefix, such as example.com/not-set-up: a taint without one may mean something else to somebody else"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^([^/]*[.])?(kubernetes[.]io|k8s[.]io|everynode[.]dev|karpenter[.]sh)/') || self.matches('^(startup|ignore)-taint[.]cluster-autoscaler[.]kubernetes[.]io/')",message="gate.key must not be of kubernetes.io, k8s.io, everynode.dev or karpenter.sh, but for startup-taint.cluster-autoscaler.kubernetes.io/ and ignore-taint.cluster-autoscaler.kubernetes.io/: use a prefix of your own, or leave it out"
	Key string `json:"key,omitempty"`

	// effect of the taint: NoSchedule (the default), or NoExecute, which also ends what runs there.
	// +optional
	// +kubebuilder:default=NoSchedule
	Effect GateEffect `json:"effect,omitempty"`

	// scope is Joining (the default), for nodes that are created from now on, or All: nodes that are there
	// already are tainted, too, until they are done.
	// +optional
	// +kubebuilder:default=Joining
	Scope GateScope `json:"scope,omitempty"`

	// onReboot closes the gate again on a node that has rebooted, until the task has run again. It is closed
	// when the manager sees the new boot, so pods that were there before may have started.
	// +optional
	OnReboot bool `json:"onReboot,omitempty"`
}

// GateEffect is the effect of a gate's taint.
//
// +kubebuilder:validation:Enum=NoSchedule;NoExecute
type GateEffect string

const (
	// GateNoSchedule keeps new pods off the node.
	GateNoSchedule GateEffect = "NoSchedule"
	// GateNoExecute also evicts the pods that are there.
	GateNoExecute GateEffect = "NoExecute"
)

// GateScope says which nodes get the gate's taint.
//
// +kubebuilder:validation:Enum=Joining;All
type GateScope string

const (
	// GateJoining is for nodes that are created while the gate is there.
	GateJoining GateScope = "Joining"
	// GateAll is for every node that is not done.
	GateAll GateScope = "All"
)

// DisruptionSpec says what is done to a node around the task.
//
// +kubebuilder:validation:XValidation:rule="!has(self.maxUnavailable) || (type(self.maxUnavailable) == int ? self.maxUnavailable >= 1 : self.maxUnavailable.matches('^(100|[1-9][0-9]?)%$'))",message="disruption.maxUnavailable must be a number of nodes of at least 1, or a percentage from \"1%\" to \"100%\""
// +kubebuilder:validation:XValidation:rule="!has(self.readySeconds) || !has(self.rebootTimeoutSeconds) || self.readySeconds < self.rebootTimeoutSeconds",message="disruption.readySeconds must be less than disruption.rebootTimeoutSeconds, or no reboot could ever be in time: raise rebootTimeoutSeconds"
type DisruptionSpec struct {
	// cordon keeps new pods off the node from before the task until it has succeeded or failed for good.
	// +optional
	Cordon bool `json:"cordon,omitempty"`

	// drain evicts the pods of the node before the task, and cordons it. A drain that takes longer than its
	// timeout fails the attempt.
	// +optional
	Drain *DrainSpec `json:"drain,omitempty"`

	// reboot the node after the task: Never (the default), Always, or IfRequested: when the task has written
	// reboot=true to $EVERYNODE_RESULTS. The run has succeeded when the node is back in a new boot, has been
	// Ready for readySeconds, and verify, if there is one, passes after that.
	// +optional
	// +kubebuilder:default=Never
	Reboot RebootPolicy `json:"reboot,omitempty"`

	// rebootTimeoutSeconds is how long a reboot may take from the end of the task until the node has been Ready
	// for readySeconds: 10 to 86400, 900 when omitted. After it the attempt has failed.
	// +optional
	// +kubebuilder:default=900
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=86400
	RebootTimeoutSeconds *int32 `json:"rebootTimeoutSeconds,omitempty"`

	// readySeconds is how long a node must be Ready after its reboot: 0 to 3600, 10 when omitted.
	// +optional
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=3600
	ReadySeconds *int32 `json:"readySeconds,omitempty"`

	// maxUnavailable bounds the nodes that are away at once when cordon, drain or reboot is asked for: a number,
	// or a percentage of the matching nodes, rounded down but never below one. Nodes that are not Ready
	// or that somebody else has cordoned count. rollout.maxConcurrent when omitted.
	// +optional
	// +kubebuilder:validation:XIntOrString
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
}

// RebootPolicy says whether a node is rebooted after the task.
//
// +kubebuilder:validation:Enum=Never;IfRequested;Always
type RebootPolicy string

const (
	// RebootNever leaves the node running.
	RebootNever RebootPolicy = "Never"
	// RebootIfRequested reboots when the task's results say so.
	RebootIfRequested RebootPolicy = "IfRequested"
	// RebootAlways reboots after every success of the task.
	RebootAlways RebootPolicy = "Always"
)

// DeletionPolicy says what becomes of the records when a NodeJob is deleted.
//
// +kubebuilder:validation:Enum=Forget;Retain;RollBack
type DeletionPolicy string

const (
	// DeletionForget takes the records off the nodes.
	DeletionForget DeletionPolicy = "Forget"
	// DeletionRetain leaves the records on the nodes.
	DeletionRetain DeletionPolicy = "Retain"
	// DeletionRollBack undoes the task on the nodes, and takes the records off them.
	DeletionRollBack DeletionPolicy = "RollBack"
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
	// those that are not tried again first.
	// +optional
	// +listType=map
	// +listMapKey=node
	// +kubebuilder:validation:MaxItems=10
	Failures []NodeFailure `json:"failures,omitempty"`

	// conditions are Complete, Reconciling, Stalled, RollbackFailed and GateEnforced.
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
	// failed for good: not tried again unless asked; or not Ready in the soak of their step.
	// +optional
	Failed int32 `json:"failed"`
	// rolledBack are those of the failed on which the rollback has succeeded.
	// +optional
	RolledBack int32 `json:"rolledBack"`
	// rollbackFailed are those of the failed on which every attempt of the rollback failed as well.
	// +optional
	RollbackFailed int32 `json:"rollbackFailed"`
}

// RolloutStatus is how far a revision has come. It begins anew with each revision.
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
	// What becomes of its nodes after that is no failure of it.
	// +optional
	SoakedAt metav1.Time `json:"soakedAt,omitzero"`
	// provenAt is when the last step was passed. Nodes that are created later run the task at once.
	// +optional
	ProvenAt metav1.Time `json:"provenAt,omitzero"`
	// steps are the nodes of each step.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Steps []StepStatus `json:"steps,omitempty"`
	// casualties are at most 32 nodes that count as failed although no record says so: they turned
	// NotReady in a soak, or were deleted while failed or NotReady. At 32 the rollout stops, whatever
	// maxFailures says.
	// +optional
	// +listType=map
	// +listMapKey=uid
	// +kubebuilder:validation:MaxItems=32
	Casualties []Casualty `json:"casualties,omitempty"`
	// atRisk are at most 32 nodes that have run this revision and are failed or not Ready now: deleted,
	// they become casualties.
	// +optional
	// +listType=map
	// +listMapKey=uid
	// +kubebuilder:validation:MaxItems=32
	AtRisk []NodeAtRisk `json:"atRisk,omitempty"`
	// retry is a hash of the annotation everynode.dev/retry that the casualties are counted since.
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

// Casualty is a node that counts as failed although no record says so.
type Casualty struct {
	// node is its name.
	// +required
	Node string `json:"node,omitempty"`
	// uid of the Node.
	// +required
	UID types.UID `json:"uid,omitempty"`
	// reason is NotReadyInSoak, DeletedFailed or DeletedNotReady.
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
	// pods that are still to leave.
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
	// rollback is RollbackPending, RollingBack, RolledBack or RollbackFailed; absent when there is none to
	// run.
	// +optional
	Rollback string `json:"rollback,omitempty"`
	// rollbackMessage is why the last attempt of the rollback failed.
	// +optional
	RollbackMessage string `json:"rollbackMessage,omitempty"`
	// setAside is Cordoned, Draining, Drained or DrainTimedOut; absent when the node is left as it is.
	// +optional
	SetAside string `json:"setAside,omitempty"`
}
