// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// The nodes of a NodeJob, and what happens to a node besides the task: what is published on it, its gate, its drain and reboot.

// PublishedResult is a result of the task that is published as a label or as an annotation of the node, or whether the node is done, as
// a condition of the node.
//
// +kubebuilder:validation:XValidation:rule="[has(self.annotation), has(self.label), has(self.condition)].exists_one(set, set)",message="set exactly one of annotation, label and condition: what the result is published as"
// +kubebuilder:validation:XValidation:rule="has(self.result) != has(self.condition)",message="set result with annotation or label; a condition has no result, because it says whether the node is done"
// +kubebuilder:validation:XValidation:rule="!has(self.condition) || !has(self.adopt)",message="a condition cannot be adopted: omit adopt"
// +kubebuilder:validation:XValidation:rule="!has(self.condition) || !self.condition.matches('^([^/]*[.])?(kubernetes[.]io|k8s[.]io|everynode[.]dev)/')",message="conditions of kubernetes.io, k8s.io and everynode.dev must not be published: use a domain of your own"
// +kubebuilder:validation:XValidation:rule="!has(self.annotation) || !self.annotation.matches('^([^/]*[.])?(kubernetes[.]io|k8s[.]io|everynode[.]dev)/') || self.annotation.matches('^(node|kubelet)[.]kubernetes[.]io/')",message="annotations of kubernetes.io, k8s.io and everynode.dev must not be published, but for node.kubernetes.io/ and kubelet.kubernetes.io/: use a prefix of your own"
// +kubebuilder:validation:XValidation:rule="!has(self.label) || !self.label.matches('^([^/]*[.])?(kubernetes[.]io|k8s[.]io|everynode[.]dev)/') || self.label.matches('^(node|kubelet)[.]kubernetes[.]io/')",message="labels of kubernetes.io, k8s.io and everynode.dev must not be published, but for node.kubernetes.io/ and kubelet.kubernetes.io/, which a node may say of itself: use a prefix of your own"
// +kubebuilder:validation:XValidation:rule="!has(self.label) || !self.label.startsWith('node.kubernetes.io/exclude-')",message="labels that begin with node.kubernetes.io/exclude- must not be published, because they take nodes out of load balancers or hide their failures: use a prefix of your own"
type PublishedResult struct {
	// result is the key of the result, as the task writes it to $EVERYNODE_RESULTS. It is required with annotation and label.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`
	Result string `json:"result,omitempty"`
	// annotation is the key of the annotation. Its value is the result, which has at most 256 bytes.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`
	Annotation string `json:"annotation,omitempty"`
	// label is the key of the label. The attempt fails if the result is not a valid label value.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`
	Label string `json:"label,omitempty"`
	// condition is the type of the condition, with a domain. Its status is True if the node is done, False if it has failed, and Unknown
	// otherwise. Everynode makes no decision from it, and does not overwrite a condition of another client. The
	// manager needs the flag --node-maintenance-conditions.
	//
	// Example: example.com/KernelReady
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`
	Condition string `json:"condition,omitempty"`
	// adopt defines what happens if the node already has the label or annotation and no NodeJob has published it. Never, the default,
	// fails the attempt with PublishConflict. SameValue adopts the key if its value is the result, and fails otherwise. Always adopts
	// the key and sets its value to the result. An adopted key is managed by this NodeJob: it is restored if another client changes
	// it, and removed when the NodeJob is deleted with the policy Forget or Rollback.
	// +optional
	Adopt AdoptPolicy `json:"adopt,omitempty"`
}

// AdoptPolicy defines which existing labels and annotations a NodeJob adopts when it publishes results.
//
// +kubebuilder:validation:Enum=Never;SameValue;Always
type AdoptPolicy string

const (
	// AdoptNever adopts no key.
	AdoptNever AdoptPolicy = "Never"
	// AdoptSameValue adopts a key whose value is the result.
	AdoptSameValue AdoptPolicy = "SameValue"
	// AdoptAlways adopts a key with any value, and sets its value to the result.
	AdoptAlways AdoptPolicy = "Always"
)

// NodesSpec selects the nodes that run the task, by selector or names.
type NodesSpec struct {
	// selector selects nodes by their labels. If unset, the names decide. An empty selector is rejected, because it may be the
	// result of a misspelled field.
	//
	// Example: {matchLabels: {pool: db}}
	// +optional
	// +kubebuilder:validation:XValidation:rule="(has(self.matchLabels) && self.matchLabels.size() > 0) || (has(self.matchExpressions) && self.matchExpressions.size() > 0)",message="the selector is empty: write nodes.selector.matchLabels.KEY: VALUE, such as kubernetes.io/os: linux for all Linux nodes"
	Selector *metav1.LabelSelector `json:"selector,omitempty"`

	// names limits the NodeJob to the nodes with these names, among those that match selector. Use it for a run on existing nodes
	// only. If unset, the names do not matter.
	//
	// Example: [worker-1, worker-2]
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=20000
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	Names []string `json:"names,omitempty"`

	// tolerations define which taints do not exclude a node. The taints of nodes that are not Ready, unreachable, under pressure,
	// without network or cordoned are always tolerated, as for the pods of a DaemonSet.
	//
	// Example: [{operator: Exists}]
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// assumeDone selects existing nodes that count as done without a run, for example because a DaemonSet that this NodeJob replaces
	// has already configured them.
	// +optional
	AssumeDone *AssumeDoneSpec `json:"assumeDone,omitempty"`
}

// AssumeDoneSpec selects nodes that count as done with the current revision without a run. This applies once to each node: if it has
// no record of this NodeJob and was created before the NodeJob. Afterwards the node has a record, and runs the task for the same
// reasons as any other node, such as a new revision.
type AssumeDoneSpec struct {
	// selector selects the nodes by their labels, such as a label that the DaemonSet has set.
	// +required
	// +kubebuilder:validation:XValidation:rule="(has(self.matchLabels) && self.matchLabels.size() > 0) || (has(self.matchExpressions) && self.matchExpressions.size() > 0)",message="the selector is empty: write nodes.assumeDone.selector.matchLabels.KEY: VALUE, or omit nodes.assumeDone to run the task on all nodes"
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// GateSpec defines a taint that a node has from its creation until the task has succeeded there.
type GateSpec struct {
	// key is the key of the taint. The default is the key of the record, NAMESPACE.everynode.dev/NAME. With another key, such as a
	// startup taint of Karpenter or of the cluster autoscaler, or a taint with which the kubelet registers, the taint is removed
	// regardless of who has set it. If several NodeJobs have the same key, the taint is removed when all of them are done on the node.
	//
	// Example: example.com/not-configured
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="self.contains('/')",message="gate.key must have a prefix, such as example.com/not-set-up: other tools may use a key without a prefix"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^([^/]*[.])?(kubernetes[.]io|k8s[.]io|everynode[.]dev|karpenter[.]sh)/') || self.matches('^((startup|ignore)-taint[.]cluster-autoscaler[.]kubernetes[.]io|readiness[.]k8s[.]io)/')",message="gate.key must not be of kubernetes.io, k8s.io, everynode.dev or karpenter.sh, but for readiness.k8s.io/, startup-taint.cluster-autoscaler.kubernetes.io/ and ignore-taint.cluster-autoscaler.kubernetes.io/: use a prefix of your own, or leave it out"
	Key string `json:"key,omitempty"`

	// effect is the effect of the taint: NoSchedule, which is the default, or NoExecute, which also evicts running pods.
	// +optional
	// +kubebuilder:default=NoSchedule
	Effect GateEffect `json:"effect,omitempty"`

	// nodes is Joining, which is the default, JoiningAndRebooted or All. Joining taints nodes that are created from now on.
	// JoiningAndRebooted also taints a node again after it has rebooted, until the task has run again, and requires rerun.onReboot. The
	// taint is added when the manager observes the new boot, so pods that were on the node before may start earlier. All also taints
	// existing nodes until they are done, and with rerun.onReboot, nodes that have rebooted.
	// +optional
	// +kubebuilder:default=Joining
	Nodes GateNodes `json:"nodes,omitempty"`
}

// GateEffect is the effect of the taint of a gate.
//
// +kubebuilder:validation:Enum=NoSchedule;NoExecute
type GateEffect string

const (
	// GateNoSchedule prevents new pods from being scheduled on the node.
	GateNoSchedule GateEffect = "NoSchedule"
	// GateNoExecute also evicts running pods.
	GateNoExecute GateEffect = "NoExecute"
)

// GateNodes defines which nodes get the taint of a gate.
//
// +kubebuilder:validation:Enum=Joining;JoiningAndRebooted;All
type GateNodes string

const (
	// GateJoining taints nodes that are created while the NodeJob has the gate.
	GateJoining GateNodes = "Joining"
	// GateJoiningAndRebooted also taints nodes that have rebooted and rerun the task therefore.
	GateJoiningAndRebooted GateNodes = "JoiningAndRebooted"
	// GateAll taints every node that is not done.
	GateAll GateNodes = "All"
)

// MaintenanceSpec defines what is done to a node around the task.
//
// +kubebuilder:validation:XValidation:rule="!has(self.maxUnavailable) || (type(self.maxUnavailable) == int ? self.maxUnavailable >= 1 : self.maxUnavailable.matches('^(100|[1-9][0-9]?)%$'))",message="maintenance.maxUnavailable must be a number of nodes of at least 1, or a percentage from \"1%\" to \"100%\""
// +kubebuilder:validation:XValidation:rule="!has(self.prePull) || !self.prePull || (has(self.cordon) && self.cordon) || has(self.drain) || (has(self.reboot) && has(self.reboot.policy) && self.reboot.policy != 'Never')",message="maintenance.prePull pulls images before a node is cordoned, drained or rebooted, and nothing of that is set: set maintenance.cordon, maintenance.drain or maintenance.reboot, or remove prePull"
type MaintenanceSpec struct {
	// cordon marks the node as unschedulable from before the task until the node is done or failed. Nodes with the control plane or
	// etcd are also cordoned for a task that only reboots.
	// +optional
	Cordon bool `json:"cordon,omitempty"`

	// drain cordons the node and evicts its pods before the task. If the drain takes longer than its timeout, the attempt fails.
	// +optional
	Drain *DrainSpec `json:"drain,omitempty"`

	// reboot defines whether the node is rebooted after the task, and when it counts as rebooted.
	//
	// Example: {policy: IfRequested}
	// +optional
	// +kubebuilder:default={}
	Reboot RebootSpec `json:"reboot,omitzero"`

	// prePull pulls the images of the task, those of task.template and task.files included, before a node gets its slot and is cordoned,
	// drained or rebooted. A pod without privileges does that, on all nodes of the step at once. While an image cannot be pulled, the node
	// stays as it is. It needs cordon, drain or reboot. With task.check.before, the pod of the check pulls the same images.
	// It is not part of the revision.
	// +optional
	PrePull bool `json:"prePull,omitempty"`

	// maxUnavailable is the maximum number of matching nodes that are unavailable at the same time if cordon or drain is set, or
	// reboot.policy is not Never: a number, or a percentage of the matching nodes, which is rounded down to at least one node. Nodes that are not Ready and nodes
	// that a user or another tool has cordoned count as unavailable. The default is 1.
	//
	// Example: 1 or "10%"
	// +optional
	// +kubebuilder:validation:XIntOrString
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`

	// ignoreWindowsOn are the names of nodes on which the task may start outside of the windows of NodeDisruptionBudgets. Limits, freezes,
	// exceptDates, paceSeconds and requirements of budgets apply to these nodes too. To create or change a NodeJob with this field, a user
	// needs the right ignore-windows. It is not part of the revision.
	//
	// Example: ["node-7"]
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	IgnoreWindowsOn []string `json:"ignoreWindowsOn,omitempty"`
}

// RebootSpec defines whether a node is rebooted after the task, and when it counts as rebooted.
//
// +kubebuilder:validation:XValidation:rule="!has(self.minReadySeconds) || !has(self.timeoutSeconds) || self.minReadySeconds < self.timeoutSeconds",message="maintenance.reboot.minReadySeconds must be less than maintenance.reboot.timeoutSeconds, or no reboot could ever be in time: raise timeoutSeconds"
type RebootSpec struct {
	// policy is Never, which is the default, Always, or IfRequested, which reboots the node if the task has written reboot=true to
	// $EVERYNODE_RESULTS. The run has succeeded when the node is in a new boot, has been Ready for minReadySeconds, and task.check has passed after that.
	// +optional
	// +kubebuilder:default=Never
	Policy RebootPolicy `json:"policy,omitempty"`

	// timeoutSeconds is the maximum time in seconds from the end of the task until the node has been Ready for minReadySeconds after
	// the reboot: 10 to 86400. The default is 900. After that, the attempt fails.
	// +optional
	// +kubebuilder:default=900
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=86400
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`

	// minReadySeconds is the time in seconds for which the node must be Ready after a reboot: 0 to 3600. The default is 10.
	// +optional
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=3600
	MinReadySeconds *int32 `json:"minReadySeconds,omitempty"`
}

// RebootPolicy defines whether a node is rebooted after the task.
//
// +kubebuilder:validation:Enum=Never;IfRequested;Always
type RebootPolicy string

const (
	// RebootNever does not reboot the node.
	RebootNever RebootPolicy = "Never"
	// RebootIfRequested reboots the node if a result of the task requests it.
	RebootIfRequested RebootPolicy = "IfRequested"
	// RebootAlways reboots the node after each success of the task.
	RebootAlways RebootPolicy = "Always"
)
