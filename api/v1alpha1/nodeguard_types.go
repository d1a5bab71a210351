// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// NodeGuard puts a companion pod beside each pod of a target, such as a DaemonSet, and makes drains wait for it:
// a node is released when few enough other nodes are unavailable, and when the condition in spec.release is met.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=nodeguards,singular=nodeguard,shortName=ng,categories=everynode
// +kubebuilder:printcolumn:name="Guarded",type=integer,JSONPath=`.status.nodes.guarded`,description="Nodes that have a pod of the target, or should have"
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.nodes.ready`,description="Companions that are ready"
// +kubebuilder:printcolumn:name="Held",type=integer,JSONPath=`.status.nodes.held`,description="Nodes with a release request that are not released yet"
// +kubebuilder:printcolumn:name="Released",type=integer,JSONPath=`.status.nodes.released`,description="Released nodes that are not available again yet"
// +kubebuilder:printcolumn:name="Unavailable",type=integer,JSONPath=`.status.nodes.unavailable`,description="Nodes that are released, not Ready, or without a ready pod of the target"
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.held[0].message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63",message="metadata.name must have at most 63 characters, because it becomes a label of each companion: choose a shorter name"
type NodeGuard struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata. The name has at most 63 characters.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec says what is guarded, by what, and when a node may go.
	// +required
	Spec NodeGuardSpec `json:"spec,omitzero"`

	// status is the observed state. Its size does not depend on the size of the cluster. The observed generation -1 is that
	// of an object that the manager has not observed yet.
	// +optional
	// +kubebuilder:default:={"observedGeneration":-1}
	Status NodeGuardStatus `json:"status,omitzero"`
}

// NodeGuardList is a list of NodeGuards.
//
// +kubebuilder:object:root=true
type NodeGuardList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`
	// items is the list of NodeGuards.
	Items []NodeGuard `json:"items"`
}

// NodeGuardSpec is what the user wants.
//
// +kubebuilder:validation:XValidation:rule="!has(self.template) || (has(self.template.spec) && has(self.template.spec.containers) && self.template.spec.containers.size() > 0)",message="template.spec.containers is empty: name at least one container with its image, or leave template out for the built-in companion"
// +kubebuilder:validation:XValidation:rule="!has(self.template) || !has(self.template.spec) || (!has(self.template.spec.nodeName) && !has(self.template.spec.nodeSelector) && !has(self.template.spec.affinity))",message="template.spec must not choose nodes (nodeName, nodeSelector, affinity): a companion is where the target's pods are"
// +kubebuilder:validation:XValidation:rule="!has(self.template) || !has(self.template.spec) || !has(self.template.spec.restartPolicy) || self.template.spec.restartPolicy == 'Always'",message="template.spec.restartPolicy must be Always or omitted: a companion is there as long as its node is guarded"
// +kubebuilder:validation:XValidation:rule="!has(self.template) || !has(self.template.metadata) || !has(self.template.metadata.labels) || self.template.metadata.labels.all(k, !k.matches('^([^/]*[.])?everynode[.]dev/'))",message="template.metadata.labels must not have keys of everynode.dev, which only the manager sets on pods: remove them, or use a prefix of your own"
// +kubebuilder:validation:XValidation:rule="!has(self.template) || !has(self.template.metadata) || !has(self.template.metadata.annotations) || self.template.metadata.annotations.all(k, !k.matches('^([^/]*[.])?everynode[.]dev/'))",message="template.metadata.annotations must not have keys of everynode.dev, which only the manager sets on pods: remove them, or use a prefix of your own"
// +kubebuilder:validation:XValidation:rule="!has(self.maxUnavailable) || (type(self.maxUnavailable) == int ? self.maxUnavailable >= 0 : self.maxUnavailable.matches('^(100|[1-9]?[0-9])%$'))",message="maxUnavailable must be a number of nodes, or a percentage from \"0%\" to \"100%\"; with 0, no node is released"
type NodeGuardSpec struct {
	// target is what is guarded, in the NodeGuard's own namespace.
	// +required
	Target GuardTarget `json:"target,omitzero"`

	// template is the companion: one pod on each guarded node. Everynode sets where it runs. Without tolerations
	// and without a priority class it gets those of the target. Omitted: a pod that does nothing but hold.
	// +optional
	Template *corev1.PodTemplateSpec `json:"template,omitempty"`

	// maxUnavailable is how many nodes of the target may be unavailable at once: a number, or a percentage of the guarded
	// nodes, rounded down but, unless it is 0, never below one. with 0, no node is released. 1 when omitted.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=4
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`

	// release says when a node that asks to go may go.
	// +optional
	// +kubebuilder:default={}
	Release ReleaseSpec `json:"release,omitzero"`

	// updateStrategy says how companions are replaced when the template has changed.
	// +optional
	// +kubebuilder:default={}
	UpdateStrategy GuardUpdateStrategy `json:"updateStrategy,omitzero"`
}

// GuardTarget is what is guarded: exactly one of daemonSet and podSelector.
//
// +kubebuilder:validation:XValidation:rule="has(self.daemonSet) != has(self.podSelector)",message="set exactly one of target.daemonSet and target.podSelector"
// +kubebuilder:validation:XValidation:rule="!has(self.podSelector) || (has(self.podSelector.matchLabels) && self.podSelector.matchLabels.size() > 0) || (has(self.podSelector.matchExpressions) && self.podSelector.matchExpressions.size() > 0)",message="target.podSelector is empty, which would select every pod of the namespace: name the labels of the pods to guard"
type GuardTarget struct {
	// daemonSet is the name of a DaemonSet. Each node that has a pod of it, or should have one, is guarded.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	DaemonSet string `json:"daemonSet,omitempty"`

	// podSelector selects pods of DaemonSets, or static ones. Each node that has one is guarded. Drains evict all others
	// themselves, and the status says so.
	// +optional
	PodSelector *metav1.LabelSelector `json:"podSelector,omitempty"`
}

// ReleaseSpec says when a node may go.
//
// +kubebuilder:validation:XValidation:rule="(has(self.when) && self.when == 'Check') == has(self.check)",message="release.check belongs to release.when Check: set both or neither"
// +kubebuilder:validation:XValidation:rule="!has(self.onDeadline) || has(self.deadlineSeconds)",message="release.onDeadline needs release.deadlineSeconds: say after how many seconds, or leave onDeadline out"
type ReleaseSpec struct {
	// when is the condition beyond maxUnavailable: TargetsReady has none, since nodes without a ready pod of the
	// target count as unavailable; Check runs release.check; Approval waits for an annotation of the node.
	// +optional
	// +kubebuilder:default=TargetsReady
	When ReleaseCondition `json:"when,omitempty"`

	// check decides by its exit code whether the node may go.
	// +optional
	Check *ReleaseCheck `json:"check,omitempty"`

	// deadlineSeconds is how long a node that asks to go is held, before onDeadline says what to do: 1 to 604800.
	// Without it there is no deadline.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=604800
	DeadlineSeconds *int32 `json:"deadlineSeconds,omitempty"`

	// onDeadline is Hold, which reports the passed deadline and keeps the node held, or Release, which waits no longer
	// for the condition, nor for nodes that are unavailable without a release; at most maxUnavailable nodes are released
	// at once. Hold when omitted.
	// +optional
	OnDeadline DeadlineAction `json:"onDeadline,omitempty"`
}

// ReleaseCheck is a short pod on the node that asks to go. Exit code 0: it may go.
//
// +kubebuilder:validation:XValidation:rule="has(self.script) != has(self.container)",message="set exactly one of release.check.script and release.check.container"
// +kubebuilder:validation:XValidation:rule="!has(self.script) || self.script.matches('[^[:space:]]')",message="release.check.script is empty: write commands that exit with 0 if the node may be released"
// +kubebuilder:validation:XValidation:rule="!has(self.script) || !self.script.matches('\\r\\n|\\r$')",message="release.check.script has Windows line endings (CRLF), and an interpreter takes the carriage return for a part of a word: convert it to Unix line endings (LF)"
// +kubebuilder:validation:XValidation:rule="!has(self.script) || !self.script.matches('(^|\\n)\\ufeff')",message="release.check.script has a byte order mark (BOM) at the beginning of a line, and an interpreter takes it for a part of a word: save it as UTF-8 without BOM"
// +kubebuilder:validation:XValidation:rule="!has(self.script) || !has(self.serviceAccountName)",message="release.check.serviceAccountName works with release.check.container only: a script has no API access"
type ReleaseCheck struct {
	// script runs on the node, as root, in the host's namespaces, as the script of a NodeJob does: at most 64 KiB.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	Script string `json:"script,omitempty"`

	// container runs once, for a check that brings its own image.
	// +optional
	Container *CheckContainer `json:"container,omitempty"`

	// serviceAccountName is the ServiceAccount of the container's pod. Without it the pod has no token.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// timeoutSeconds bounds one run, image pull included: 1 to 3600, 60 when omitted.
	// +optional
	// +kubebuilder:default=60
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`

	// intervalSeconds is the time from the end of a run that said no to the next, and how long one that said yes
	// counts, but then 30 at least: 5 to 3600, 30 when omitted.
	// +optional
	// +kubebuilder:default=30
	// +kubebuilder:validation:Minimum=5
	// +kubebuilder:validation:Maximum=3600
	IntervalSeconds *int32 `json:"intervalSeconds,omitempty"`
}

// CheckContainer is what a check runs. EVERYNODE_NODE_NAME is in its environment.
type CheckContainer struct {
	// image to run.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Image string `json:"image,omitempty"`

	// command is the entry point, the image's own when omitted.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Command []string `json:"command,omitempty"`

	// args are its arguments.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Args []string `json:"args,omitempty"`

	// env is its environment.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Env []corev1.EnvVar `json:"env,omitempty"`
}

// GuardUpdateStrategy says how companions are replaced.
//
// +kubebuilder:validation:XValidation:rule="!has(self.maxUnavailable) || (type(self.maxUnavailable) == int ? self.maxUnavailable >= 1 : self.maxUnavailable.matches('^(100|[1-9][0-9]?)%$'))",message="updateStrategy.maxUnavailable must be a number of companions of at least 1, or a percentage from \"1%\" to \"100%\""
type GuardUpdateStrategy struct {
	// maxUnavailable is how many companions may be missing or not ready while they are replaced: a number, or a
	// percentage of the guarded nodes, rounded down but never below one. 1 when omitted.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=4
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
}

// ReleaseCondition is what a node that asks to go waits for, besides maxUnavailable.
//
// +kubebuilder:validation:Enum=TargetsReady;Check;Approval
type ReleaseCondition string

const (
	// ReleaseWhenTargetsReady waits for nothing else.
	ReleaseWhenTargetsReady ReleaseCondition = "TargetsReady"
	// ReleaseWhenCheck waits until release.check ends with exit code 0.
	ReleaseWhenCheck ReleaseCondition = "Check"
	// ReleaseWhenApproval waits for the annotation everynode.dev/approve-release of the node.
	ReleaseWhenApproval ReleaseCondition = "Approval"
)

// DeadlineAction is what happens to a node that was held for release.deadlineSeconds.
//
// +kubebuilder:validation:Enum=Hold;Release
type DeadlineAction string

const (
	// OnDeadlineHold keeps the node held.
	OnDeadlineHold DeadlineAction = "Hold"
	// OnDeadlineRelease releases the node as soon as fewer than maxUnavailable other nodes are released.
	OnDeadlineRelease DeadlineAction = "Release"
)

// NodeGuardStatus is what has been seen. Counts are written at most once a second.
type NodeGuardStatus struct {
	// observedGeneration is the metadata.generation that the manager observed last; -1 if it has not observed the object.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// revision is a short hash of the companion as it should be.
	// +optional
	Revision string `json:"revision,omitempty"`

	// writes is a number that grows with each write of the status by the manager: at least the time in milliseconds since 1970. The
	// manager ignores an earlier status that a user restores.
	// +optional
	Writes int64 `json:"writes,omitempty"`

	// nodes counts the guarded nodes by their state.
	// +optional
	Nodes GuardCounts `json:"nodes,omitempty"`

	// released are the released nodes that are not available again yet: at most 100, which limits how many are released at
	// once. It is written before a budget opens, under the resource version, so that two managers cannot release too many.
	// +optional
	// +listType=map
	// +listMapKey=node
	// +kubebuilder:validation:MaxItems=100
	Released []ReleasedNode `json:"released,omitempty"`

	// held are at most 10 nodes that have a release request and are not released yet, in the order of their turns.
	// +optional
	// +listType=map
	// +listMapKey=node
	// +kubebuilder:validation:MaxItems=10
	Held []HeldNode `json:"held,omitempty"`

	// authorization says whether the API server asked for the rights to what the NodeGuard does on nodes when it was written.
	// +optional
	Authorization *Authorization `json:"authorization,omitempty"`

	// seal is a digest of the rest of the status with a key that only the manager has. The manager ignores a status without a
	// valid seal, because it did not write it.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Seal string `json:"seal,omitempty"`

	// notifications are what the manager reports to the URL of its flag --notifications-url; absent without that flag.
	// +optional
	Notifications *NodeGuardNotifications `json:"notifications,omitempty"`

	// conditions are Ready, Reconciling and Stalled.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// GuardCounts counts the guarded nodes.
type GuardCounts struct {
	// guarded nodes have a pod of the target, or should have.
	// +optional
	Guarded int32 `json:"guarded"`
	// ready companions.
	// +optional
	Ready int32 `json:"ready"`
	// updated companions are of the current revision.
	// +optional
	Updated int32 `json:"updated"`
	// held nodes have a release request and are not released yet.
	// +optional
	Held int32 `json:"held"`
	// released nodes are not available again yet.
	// +optional
	Released int32 `json:"released"`
	// unavailable are the nodes that are released, not Ready, or without a ready pod of the target.
	// +optional
	Unavailable int32 `json:"unavailable"`
}

// ReleasedNode is a node that was released and is not available again yet.
type ReleasedNode struct {
	// node is its name.
	// +required
	Node string `json:"node,omitempty"`
	// uid of the Node, to tell it from a later Node of the same name.
	// +required
	UID types.UID `json:"uid,omitempty"`
	// since is when the node was released.
	// +required
	Since metav1.Time `json:"since,omitzero"`
	// requestedAt is when the release was requested.
	// +optional
	RequestedAt metav1.Time `json:"requestedAt,omitzero"`
	// returning is true after the release request has ended. A new request before the node is available again waits like
	// any other.
	// +optional
	Returning bool `json:"returning,omitempty"`
	// reason is ConditionMet, DeadlineReached or BreakGlass.
	// +optional
	Reason string `json:"reason,omitempty"`
	// message is additional text, such as the value of the break-glass annotation.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// HeldNode is a node that has a release request and is not released yet.
type HeldNode struct {
	// node is its name.
	// +required
	Node string `json:"node,omitempty"`
	// requestedAt is when the release request was first observed.
	// +optional
	RequestedAt metav1.Time `json:"requestedAt,omitzero"`
	// requestedBy is the sign of the release request, such as "cordoned".
	// +optional
	RequestedBy string `json:"requestedBy,omitempty"`
	// reason in one word.
	// +optional
	Reason string `json:"reason,omitempty"`
	// message says what holds it.
	// +optional
	Message string `json:"message,omitempty"`
	// releasedWhen says what has to happen before the node is released.
	// +optional
	ReleasedWhen string `json:"releasedWhen,omitempty"`
	// deadline is when release.onDeadline applies; absent without one.
	// +optional
	Deadline metav1.Time `json:"deadline,omitzero"`
	// deadlinePassed is true once it is held past its deadline.
	// +optional
	DeadlinePassed bool `json:"deadlinePassed,omitempty"`
}
