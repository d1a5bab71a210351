// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// NodeGuard makes drains of the nodes of a DaemonSet wait for each other. On each node with a pod of the target, it runs a companion
// pod with a PodDisruptionBudget that blocks drains until the node is released: when few enough other nodes are unavailable and the
// condition in spec.release is met.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=nodeguards,singular=nodeguard,shortName=ng,categories=everynode
// +kubebuilder:printcolumn:name="Nodes",type=integer,JSONPath=`.status.nodes.total`,description="Nodes that have a pod of the target, or should have"
// +kubebuilder:printcolumn:name="Unavailable",type=integer,JSONPath=`.status.nodes.unavailable`,description="Nodes that are released, not Ready, or without a ready pod of the target"
// +kubebuilder:printcolumn:name="Waiting",type=integer,JSONPath=`.status.nodes.waiting`,description="Nodes with a release request that are not released yet"
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.nodes.ready`,priority=1,description="Companions that are ready"
// +kubebuilder:printcolumn:name="Released",type=integer,JSONPath=`.status.nodes.released`,priority=1,description="Released nodes that are not available again yet"
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63",message="metadata.name must have at most 63 characters, because it becomes a label of each companion: choose a shorter name"
type NodeGuard struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata. The name has at most 63 characters, because it is a label of each companion.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec defines what is guarded, the companion, and when a node is released.
	// +required
	Spec NodeGuardSpec `json:"spec,omitzero"`

	// status is the most recently observed state of the NodeGuard. Its size does not depend on the number of nodes. An
	// observedGeneration of -1 means that the manager has not observed the NodeGuard yet.
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

// NodeGuardSpec defines the desired state of a NodeGuard.
//
// +kubebuilder:validation:XValidation:rule="!has(self.template) || (has(self.template.spec) && has(self.template.spec.containers) && self.template.spec.containers.size() > 0)",message="template.spec.containers is empty: name at least one container with its image, or leave template out for the built-in companion"
// +kubebuilder:validation:XValidation:rule="!has(self.template) || !has(self.template.spec) || (!has(self.template.spec.nodeName) && !has(self.template.spec.nodeSelector) && !has(self.template.spec.affinity))",message="template.spec must not choose nodes (nodeName, nodeSelector, affinity): a companion is where the target's pods are"
// +kubebuilder:validation:XValidation:rule="!has(self.template) || !has(self.template.spec) || !has(self.template.spec.restartPolicy) || self.template.spec.restartPolicy == 'Always'",message="template.spec.restartPolicy must be Always or omitted: a companion is there as long as its node is guarded"
// +kubebuilder:validation:XValidation:rule="!has(self.template) || !has(self.template.metadata) || !has(self.template.metadata.labels) || self.template.metadata.labels.all(k, !k.matches('^([^/]*[.])?everynode[.]dev/'))",message="template.metadata.labels must not have keys of everynode.dev, which only the manager sets on pods: remove them, or use a prefix of your own"
// +kubebuilder:validation:XValidation:rule="!has(self.template) || !has(self.template.metadata) || !has(self.template.metadata.annotations) || self.template.metadata.annotations.all(k, !k.matches('^([^/]*[.])?everynode[.]dev/'))",message="template.metadata.annotations must not have keys of everynode.dev, which only the manager sets on pods: remove them, or use a prefix of your own"
// +kubebuilder:validation:XValidation:rule="!has(self.maxUnavailable) || (type(self.maxUnavailable) == int ? self.maxUnavailable >= 0 : self.maxUnavailable.matches('^(100|[1-9]?[0-9])%$'))",message="maxUnavailable must be a number of nodes, or a percentage from \"0%\" to \"100%\"; with 0, no node is released"
type NodeGuardSpec struct {
	// target selects the pods whose nodes are guarded, in the namespace of the NodeGuard.
	//
	// Example: {daemonSet: ceph-osd}
	// +required
	Target GuardTarget `json:"target,omitzero"`

	// template is the pod template of the companion. Everynode sets the node. Without tolerations and without a priority class, the
	// companion gets those of the target. If unset, the companion is a pod that only waits.
	// +optional
	Template *corev1.PodTemplateSpec `json:"template,omitempty"`

	// maxUnavailable is the maximum number of guarded nodes that are unavailable at the same time: a number, or a percentage of the
	// guarded nodes, which is rounded down to at least one node unless it is 0%. With 0, no node is released. The default is 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=4
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`

	// release defines when a node with a release request is released.
	// +optional
	Release ReleaseSpec `json:"release,omitzero"`
}

// GuardTarget selects the pods whose nodes are guarded. Exactly one of daemonSet and podSelector must be set.
//
// +kubebuilder:validation:XValidation:rule="has(self.daemonSet) != has(self.podSelector)",message="set exactly one of target.daemonSet and target.podSelector"
// +kubebuilder:validation:XValidation:rule="!has(self.podSelector) || (has(self.podSelector.matchLabels) && self.podSelector.matchLabels.size() > 0) || (has(self.podSelector.matchExpressions) && self.podSelector.matchExpressions.size() > 0)",message="target.podSelector is empty, which would select every pod of the namespace: name the labels of the pods to guard"
type GuardTarget struct {
	// daemonSet is the name of a DaemonSet. Each node on which one of its pods runs or should run is guarded.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	DaemonSet string `json:"daemonSet,omitempty"`

	// podSelector selects pods of DaemonSets, or static pods, by their labels. Each node with such a pod is guarded. Pods of other
	// owners are not supported, because a drain evicts them directly. The status reports them.
	// +optional
	PodSelector *metav1.LabelSelector `json:"podSelector,omitempty"`
}

// ReleaseSpec defines when a node with a release request is released. Without approval and check, maxUnavailable alone decides. With
// both, the node must be approved, and its check must have succeeded.
//
// +kubebuilder:validation:XValidation:rule="!has(self.onDeadline) || has(self.deadlineSeconds)",message="release.onDeadline needs release.deadlineSeconds: say after how many seconds, or leave onDeadline out"
type ReleaseSpec struct {
	// approval is Required if a release must be approved with the annotation everynode.dev/approve-release of the node. If unset, no
	// approval is needed.
	// +optional
	Approval ReleaseApproval `json:"approval,omitempty"`

	// check is a pod whose exit code decides whether the node is released. If unset, nothing is checked.
	// +optional
	Check *ReleaseCheck `json:"check,omitempty"`

	// deadlineSeconds is the time in seconds after the release request at which onDeadline applies: 1 to 604800. If unset, there is no
	// deadline.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=604800
	DeadlineSeconds *int32 `json:"deadlineSeconds,omitempty"`

	// onDeadline is Hold, which is the default, or Release. Hold reports the passed deadline, and the node stays held. Release
	// releases the node without the condition, and without waiting for nodes that are unavailable but not released. In both cases, at
	// most maxUnavailable nodes are released at the same time.
	// +optional
	OnDeadline DeadlineAction `json:"onDeadline,omitempty"`
}

// ReleaseCheck is a pod that runs on the node with the release request. The node is released if the exit code is 0. Exactly one of
// script and container must be set.
//
// +kubebuilder:validation:XValidation:rule="has(self.script) != has(self.container)",message="set exactly one of release.check.script and release.check.container"
// +kubebuilder:validation:XValidation:rule="!has(self.script) || self.script.matches('[^[:space:]]')",message="release.check.script is empty: write commands that exit with 0 if the node may be released"
// +kubebuilder:validation:XValidation:rule="!has(self.script) || !self.script.matches('\\r\\n|\\r$')",message="release.check.script has Windows line endings (CRLF), and an interpreter takes the carriage return for a part of a word: convert it to Unix line endings (LF)"
// +kubebuilder:validation:XValidation:rule="!has(self.script) || !self.script.matches('(^|\\n)\\ufeff')",message="release.check.script has a byte order mark (BOM) at the beginning of a line, and an interpreter takes it for a part of a word: save it as UTF-8 without BOM"
// +kubebuilder:validation:XValidation:rule="!has(self.script) || !has(self.serviceAccountName)",message="release.check.serviceAccountName works with release.check.container only: a script has no API access"
type ReleaseCheck struct {
	// script is run on the node as root and in the namespaces of the host, as the script of a NodeJob: at most 65536 bytes.
	//
	// Example: "ceph osd ok-to-stop osd.$(cat /var/lib/ceph/osd/whoami)"
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	Script string `json:"script,omitempty"`

	// container is a container, for a check with its own image.
	// +optional
	Container *CheckContainer `json:"container,omitempty"`

	// serviceAccountName is the ServiceAccount of the pod with the container. If unset, the pod has no service account token.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// timeoutSeconds is the time limit of one check in seconds, including the image pull: 1 to 3600. The default is 60.
	// +optional
	// +kubebuilder:default=60
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`

	// periodSeconds is the time in seconds between the end of a failed check and the start of the next: 5 to 3600. The default is
	// 30. A successful check is valid for this time, and for at least 30 seconds.
	// +optional
	// +kubebuilder:default=30
	// +kubebuilder:validation:Minimum=5
	// +kubebuilder:validation:Maximum=3600
	PeriodSeconds *int32 `json:"periodSeconds,omitempty"`
}

// CheckContainer is the container of a check. The variable EVERYNODE_NODE_NAME is set in its environment.
type CheckContainer struct {
	// image is the image of the container.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Image string `json:"image,omitempty"`

	// command is the entrypoint of the container. If unset, the entrypoint of the image is used.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=32768
	Command []string `json:"command,omitempty"`

	// args are the arguments of the entrypoint.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=32768
	Args []string `json:"args,omitempty"`

	// env is the environment of the container.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Env []corev1.EnvVar `json:"env,omitempty"`
}

// ReleaseApproval defines whether the release of a node must be approved.
//
// +kubebuilder:validation:Enum=Required
type ReleaseApproval string

const (
	// ApprovalRequired releases a node only when it has the annotation everynode.dev/approve-release.
	ApprovalRequired ReleaseApproval = "Required"
)

// DeadlineAction defines what happens to a node that has been held for release.deadlineSeconds.
//
// +kubebuilder:validation:Enum=Hold;Release
type DeadlineAction string

const (
	// OnDeadlineHold does not release the node.
	OnDeadlineHold DeadlineAction = "Hold"
	// OnDeadlineRelease releases the node as soon as fewer than maxUnavailable other nodes are released.
	OnDeadlineRelease DeadlineAction = "Release"
)

// NodeGuardStatus is the most recently observed state of a NodeGuard. Counts are written at most once per second.
type NodeGuardStatus struct {
	// conditions are Ready, Reconciling and Stalled.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the metadata.generation that the manager observed last; -1 if it has not observed the object.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// revision is a short hash of the desired companion.
	// +optional
	Revision string `json:"revision,omitempty"`

	// nodes is the number of guarded nodes in each state.
	// +optional
	Nodes GuardCounts `json:"nodes,omitempty"`

	// released are the released nodes that are not available again yet: at most 100, which is also the maximum number of nodes that
	// are released at the same time. The list is written before a PodDisruptionBudget is opened, so that two managers cannot release
	// too many nodes.
	// +optional
	// +listType=map
	// +listMapKey=node
	// +kubebuilder:validation:MaxItems=100
	Released []ReleasedNode `json:"released,omitempty"`

	// waiting are at most 10 nodes that have a release request and are not released yet, in the order in which they are released. Their
	// until is the time at which release.onDeadline applies. It is absent after that time, and without a deadline.
	// +optional
	// +listType=map
	// +listMapKey=node
	// +kubebuilder:validation:MaxItems=10
	Waiting []WaitingNode `json:"waiting,omitempty"`

	// controllerState is the memory of the manager. It is not for users, and may change in any version.
	// +optional
	ControllerState NodeGuardControllerState `json:"controllerState,omitzero"`
}

// NodeGuardControllerState is what the manager must remember of a NodeGuard.
type NodeGuardControllerState struct {
	// authorization shows whether the API server checked the rights of the user when the NodeGuard was written.
	// +optional
	Authorization *Authorization `json:"authorization,omitempty"`

	// writes is a number that increases with each write of the status by the manager: at least the time in milliseconds since 1970.
	// The manager ignores an earlier status that another client restores.
	// +optional
	Writes int64 `json:"writes,omitempty"`

	// failedChecks are the last results of the checks of nodes in status.waiting whose reason is CheckFailed. They are shown while the
	// next check runs.
	// +optional
	// +listType=map
	// +listMapKey=node
	// +kubebuilder:validation:MaxItems=10
	FailedChecks []FailedCheck `json:"failedChecks,omitempty"`

	// notifications is the state of the notifications to the URL of the manager's flag --notifications-url. It is absent without that
	// flag.
	// +optional
	Notifications *NodeGuardNotifications `json:"notifications,omitempty"`

	// seal is a digest of the other fields of the status, with a key that only the manager has. The manager ignores a status without a
	// valid seal, because another client has written it.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Seal string `json:"seal,omitempty"`
}

// FailedCheck is a check of a release that has failed.
type FailedCheck struct {
	// node is the name of the node.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node,omitempty"`
	// requestedAt is the time of the release request that was checked.
	// +required
	RequestedAt metav1.Time `json:"requestedAt,omitzero"`
	// message says how the check has failed.
	// +required
	// +kubebuilder:validation:MaxLength=4096
	Message string `json:"message,omitempty"`
}

// GuardCounts is the number of guarded nodes in each state.
type GuardCounts struct {
	// total is the number of guarded nodes: those on which a pod of the target runs or should run.
	// +optional
	Total int32 `json:"total"`
	// ready is the number of companions that are ready.
	// +optional
	Ready int32 `json:"ready"`
	// updated is the number of companions with the current revision.
	// +optional
	Updated int32 `json:"updated"`
	// waiting is the number of nodes that have a release request and are not released yet.
	// +optional
	Waiting int32 `json:"waiting"`
	// released is the number of released nodes that are not available again yet.
	// +optional
	Released int32 `json:"released"`
	// unavailable is the number of nodes that are released, not Ready, or without a ready pod of the target.
	// +optional
	Unavailable int32 `json:"unavailable"`
}

// ReleasedNode is a node that was released and is not available again yet.
type ReleasedNode struct {
	// node is the name of the node.
	// +required
	Node string `json:"node,omitempty"`
	// uid is the UID of the Node, which distinguishes it from a later Node with the same name.
	// +required
	UID types.UID `json:"uid,omitempty"`
	// since is the time at which the node was released.
	// +required
	Since metav1.Time `json:"since,omitzero"`
	// companionUID is the UID of the companion that was on the node when it was released, and that the manager deletes; empty if there was none.
	// +optional
	CompanionUID types.UID `json:"companionUID,omitempty"`
	// requestedAt is the time of the release request.
	// +optional
	RequestedAt metav1.Time `json:"requestedAt,omitzero"`
	// returning is true after the release request has ended. A new request that is made before the node is available again waits like
	// any other.
	// +optional
	Returning bool `json:"returning,omitempty"`
	// reason is ConditionMet, DeadlineReached or BreakGlass.
	// +optional
	Reason string `json:"reason,omitempty"`
	// message is additional information, such as the value of the break-glass annotation.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}
