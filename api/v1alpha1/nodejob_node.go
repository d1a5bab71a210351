// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// What the task does to its node besides: what is published on it, its gate, its drain and reboot.

// Fact is a result of the task that is put on the node, as an annotation or as a label.
//
// +kubebuilder:validation:XValidation:rule="has(self.annotation) != has(self.label)",message="set exactly one of annotation and label: the key that the result is published under"
// +kubebuilder:validation:XValidation:rule="!has(self.annotation) || !self.annotation.matches('^([^/]*[.])?(kubernetes[.]io|k8s[.]io|everynode[.]dev)/') || self.annotation.matches('^(node|kubelet)[.]kubernetes[.]io/')",message="annotations of kubernetes.io, k8s.io and everynode.dev must not be published, but for node.kubernetes.io/ and kubelet.kubernetes.io/: use a prefix of your own"
// +kubebuilder:validation:XValidation:rule="!has(self.label) || !self.label.matches('^([^/]*[.])?(kubernetes[.]io|k8s[.]io|everynode[.]dev)/') || self.label.matches('^(node|kubelet)[.]kubernetes[.]io/')",message="labels of kubernetes.io, k8s.io and everynode.dev must not be published, but for node.kubernetes.io/ and kubelet.kubernetes.io/, which a node may say of itself: use a prefix of your own"
// +kubebuilder:validation:XValidation:rule="!has(self.label) || !self.label.startsWith('node.kubernetes.io/exclude-')",message="labels that begin with node.kubernetes.io/exclude- must not be published, because they take nodes out of load balancers or hide their failures: use a prefix of your own"
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
	// adopt says what happens if the node already has the label or annotation, and no NodeJob has published it. Never:
	// the attempt fails with PublishConflict. SameValue: it becomes managed by this NodeJob if its value is the result;
	// any other value is a conflict. Always: it becomes managed, and gets the result as its value. What is managed is
	// restored if others change it, and removed when the NodeJob is deleted with the policy Forget or RollBack.
	// The default is Never.
	// +optional
	Adopt AdoptPolicy `json:"adopt,omitempty"`
}

// AdoptPolicy says which existing labels and annotations become managed by a NodeJob that publishes them.
// +kubebuilder:validation:Enum=Never;SameValue;Always
type AdoptPolicy string

const (
	// AdoptNever adopts nothing.
	AdoptNever AdoptPolicy = "Never"
	// AdoptSameValue adopts what has the value of the result.
	AdoptSameValue AdoptPolicy = "SameValue"
	// AdoptAlways adopts any value, and replaces it with the result.
	AdoptAlways AdoptPolicy = "Always"
)

// AssumeDoneSpec selects nodes that count as done with the current revision without a run. A node is assumed to be done
// once: while it has no record of this NodeJob, if it joined before the NodeJob was created. From then on it has a
// record, and runs the task again for the same reasons as any other node, such as a new revision.
type AssumeDoneSpec struct {
	// nodeSelector selects the nodes by their labels, such as the label that the DaemonSet has set.
	// +required
	// +kubebuilder:validation:XValidation:rule="(has(self.matchLabels) && self.matchLabels.size() > 0) || (has(self.matchExpressions) && self.matchExpressions.size() > 0)",message="the selector is empty: write assumeDone.nodeSelector.matchLabels.KEY: VALUE, or omit assumeDone to run the task on all nodes"
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`
}

// GateSpec is a taint that a node has from its creation until the task has succeeded there.
type GateSpec struct {
	// key of the taint. Omitted: the key of the record, NAMESPACE.everynode.dev/NAME. With a key of your own,
	// such as a startup taint of Karpenter or of the cluster autoscaler, or one that the kubelet registers
	// with, the taint is removed regardless of who set it; NodeJobs with the same key open the node together.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="self.contains('/')",message="gate.key must have a prefix, such as example.com/not-set-up: other tools may use a key without a prefix"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^([^/]*[.])?(kubernetes[.]io|k8s[.]io|everynode[.]dev|karpenter[.]sh)/') || self.matches('^((startup|ignore)-taint[.]cluster-autoscaler[.]kubernetes[.]io|readiness[.]k8s[.]io)/')",message="gate.key must not be of kubernetes.io, k8s.io, everynode.dev or karpenter.sh, but for readiness.k8s.io/, startup-taint.cluster-autoscaler.kubernetes.io/ and ignore-taint.cluster-autoscaler.kubernetes.io/: use a prefix of your own, or leave it out"
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

// MaintenanceSpec says what is done to a node around the task.
//
// +kubebuilder:validation:XValidation:rule="!has(self.maxUnavailable) || (type(self.maxUnavailable) == int ? self.maxUnavailable >= 1 : self.maxUnavailable.matches('^(100|[1-9][0-9]?)%$'))",message="maintenance.maxUnavailable must be a number of nodes of at least 1, or a percentage from \"1%\" to \"100%\""
// +kubebuilder:validation:XValidation:rule="!has(self.minReadySeconds) || !has(self.rebootTimeoutSeconds) || self.minReadySeconds < self.rebootTimeoutSeconds",message="maintenance.minReadySeconds must be less than maintenance.rebootTimeoutSeconds, or no reboot could ever be in time: raise rebootTimeoutSeconds"
type MaintenanceSpec struct {
	// cordon keeps new pods off the node from before the task until it has succeeded or failed for good.
	// Nodes with the control plane or etcd are also cordoned for a task that only reboots.
	// +optional
	Cordon bool `json:"cordon,omitempty"`

	// drain evicts the pods of the node before the task, and cordons it. A drain that takes longer than its
	// timeout fails the attempt.
	// +optional
	Drain *DrainSpec `json:"drain,omitempty"`

	// reboot the node after the task: Never (the default), Always, or IfRequested: when the task has written
	// reboot=true to $EVERYNODE_RESULTS. The run has succeeded when the node is back in a new boot, has been
	// Ready for minReadySeconds, and verify, if there is one, passes after that.
	// +optional
	// +kubebuilder:default=Never
	Reboot RebootPolicy `json:"reboot,omitempty"`

	// rebootTimeoutSeconds is how long a reboot may take from the end of the task until the node has been Ready
	// for minReadySeconds: 10 to 86400, 900 when omitted. After it the attempt has failed.
	// +optional
	// +kubebuilder:default=900
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=86400
	RebootTimeoutSeconds *int32 `json:"rebootTimeoutSeconds,omitempty"`

	// minReadySeconds is how long a node must be Ready after its reboot: 0 to 3600, 10 when omitted.
	// +optional
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=3600
	MinReadySeconds *int32 `json:"minReadySeconds,omitempty"`

	// maxUnavailable limits how many nodes are unavailable at once when cordon, drain or reboot is set: a number,
	// or a percentage of the matching nodes, rounded down but never below one. Nodes that are not Ready
	// or that a user or another tool has cordoned count. rollout.maxConcurrent when omitted.
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
