// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// In which order nodes get the task, and what happens when it fails.

// RolloutSpec defines the steps in which a revision reaches the nodes, how many nodes run it at the same time, and how many may fail.
//
// +kubebuilder:validation:XValidation:rule="!has(self.maxConcurrent) || (type(self.maxConcurrent) == int ? self.maxConcurrent >= 1 : self.maxConcurrent.matches('^(100|[1-9][0-9]?)%$'))",message="rollout.maxConcurrent must be a number of nodes of at least 1, or a percentage from \"1%\" to \"100%\""
// +kubebuilder:validation:XValidation:rule="!has(self.maxFailures) || (type(self.maxFailures) == int ? self.maxFailures >= 0 : self.maxFailures.matches('^(100|[1-9]?[0-9])%$'))",message="rollout.maxFailures must be a number of nodes of at least 0, or a percentage from \"0%\" to \"100%\""
// +kubebuilder:validation:XValidation:rule="!has(self.steps) || self.steps.filter(s, !has(s.nodes) && !has(s.selector)).size() == 1",message="exactly one of rollout.steps, the last, must have neither nodes nor selector: it includes all nodes that are in no earlier step. Add {name: all} as the last step, or give the others nodes or selector"
// +kubebuilder:validation:XValidation:rule="!has(self.steps) || (!has(self.steps[self.steps.size()-1].nodes) && !has(self.steps[self.steps.size()-1].selector))",message="the last of rollout.steps must have neither nodes nor selector, since it includes all nodes that are in no earlier step: add {name: all} as the last step; to hold the rollout before it, set rollout.promoteTo"
// +kubebuilder:validation:XValidation:rule="!has(self.promoteTo) || !has(self.steps) || self.steps.exists(s, s.name == self.promoteTo)",message="rollout.promoteTo must be the name of one of rollout.steps: without steps of your own these are canary and all"
type RolloutSpec struct {
	// maxConcurrent is the maximum number of nodes that run the task at the same time: a number of at least 1, or a percentage of the
	// matching nodes, which is rounded down to at least one node. The default is 25%. Nodes that join after the revision has become
	// stable (status.rollout.stableAt) do not count.
	//
	// Example: 5 or "10%"
	// +optional
	// +kubebuilder:default="25%"
	// +kubebuilder:validation:XIntOrString
	MaxConcurrent *intstr.IntOrString `json:"maxConcurrent,omitempty"`

	// maxFailures is the failure budget: the number of nodes that may fail, or a percentage of the matching nodes, rounded down. The
	// default is 0. If more nodes fail, no new attempt starts on any node, including nodes that join. Running attempts complete.
	//
	// Example: 2 or "5%"
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:XIntOrString
	MaxFailures *intstr.IntOrString `json:"maxFailures,omitempty"`

	// progressDeadlineSeconds is the maximum time in seconds for which a node may delay others without progress, by its slot, its step
	// or its soak: 60 to 604800, or 0 for no limit. The default is 3600. After that, the node counts as failed with the reason
	// ProgressDeadlineExceeded until it makes progress. An attempt within its own time limits is progress, and so is a failed attempt.
	// A disruption is not.
	// +optional
	// +kubebuilder:default=3600
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=604800
	// +kubebuilder:validation:XValidation:rule="self == 0 || self >= 60",message="rollout.progressDeadlineSeconds must be at least 60, or 0 for no limit"
	ProgressDeadlineSeconds *int32 `json:"progressDeadlineSeconds,omitempty"`

	// steps are the groups of nodes that a new revision reaches one after the other: at most 16. The default is one node, then all
	// nodes. A node belongs to the first step that includes it. The next step starts when all nodes of the current step are done or
	// failed, at least one of them is done, and the soak is over.
	//
	// Example: [{name: canary, nodes: 1, soakSeconds: 600}, {name: all}]
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:default={{name: "canary", nodes: 1}, {name: "all"}}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Steps []RolloutStep `json:"steps,omitempty"`

	// promoteTo is the name of the last step that the rollout may reach. It is an upper limit: each revision starts with the first
	// step. The default is the last step.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	PromoteTo string `json:"promoteTo,omitempty"`
}

// RolloutStep is a group of nodes that a revision reaches together. A step without nodes and selector includes all nodes that are
// in no earlier step. It must be the last step.
//
// +kubebuilder:validation:XValidation:rule="!has(self.nodes) || (type(self.nodes) == int ? self.nodes >= 1 : self.nodes.matches('^(100|[1-9][0-9]?)%$'))",message="nodes of a step must be a number of at least 1, or a percentage from \"1%\" to \"100%\": for all that are left, leave it out"
type RolloutStep struct {
	// name identifies the step in promoteTo and in the status. It consists of lower case letters, digits and dashes.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name,omitempty"`

	// nodes is the number of nodes on which the task must succeed: a number, or a percentage of the matching nodes, rounded up. With
	// selector, it refers to the nodes that the selector matches. If there are fewer nodes, the step includes all of them. The
	// oldest nodes are selected first, spread over the zones.
	//
	// Example: 1 or "10%"
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=4
	Nodes *intstr.IntOrString `json:"nodes,omitempty"`

	// selector selects the nodes of the step among the matching nodes. It must not be empty.
	//
	// Example: {matchLabels: {stage: staging}}
	// +optional
	// +kubebuilder:validation:XValidation:rule="(has(self.matchLabels) && self.matchLabels.size() > 0) || (has(self.matchExpressions) && self.matchExpressions.size() > 0)",message="the selector is empty: write selector.matchLabels.KEY: VALUE, or omit selector for all remaining nodes"
	Selector *metav1.LabelSelector `json:"selector,omitempty"`

	// soakSeconds is the time in seconds for which the nodes of the step must stay Ready after the task has succeeded on them, before
	// the next step starts: 0, which is the default, to 604800. A node that turns NotReady in this time counts as failed.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=604800
	SoakSeconds int32 `json:"soakSeconds,omitempty"`
}

// RetrySpec defines how many times, and after which delay, a failed attempt is retried on its node. The delay before the n-th retry is
// backoffSeconds * 2^(n-1), and at most maxBackoffSeconds. A disrupted attempt (eviction, preemption, node shutdown) does not count
// against the limit and is retried with the same backoff.
//
// +kubebuilder:validation:XValidation:rule="!has(self.backoffSeconds) || !has(self.maxBackoffSeconds) || self.backoffSeconds <= self.maxBackoffSeconds",message="retry.backoffSeconds must not exceed retry.maxBackoffSeconds: raise maxBackoffSeconds or lower backoffSeconds"
type RetrySpec struct {
	// limit is the maximum number of retries after the first failed attempt: 0 to 100. The default is 3.
	// +optional
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Limit *int32 `json:"limit,omitempty"`

	// backoffSeconds is the delay before the first retry in seconds: 1 to 86400. The default is 10.
	// +optional
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	BackoffSeconds *int32 `json:"backoffSeconds,omitempty"`

	// maxBackoffSeconds is the maximum delay before a retry in seconds: 1 to 86400. The default is 300.
	// +optional
	// +kubebuilder:default=300
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	MaxBackoffSeconds *int32 `json:"maxBackoffSeconds,omitempty"`
}

// RollbackSpec is a script that undoes the task on a node. Exactly one of script and scriptFrom must be set.
//
// +kubebuilder:validation:XValidation:rule="(has(self.script) ? 1 : 0) + (has(self.scriptFrom) ? 1 : 0) == 1",message="set exactly one of rollback.script and rollback.scriptFrom"
type RollbackSpec struct {
	ScriptBlock `json:",inline"`

	// timeoutSeconds is the time limit of one attempt in seconds, including the image pull: 1 to 86400. The default is 600.
	// +optional
	// +kubebuilder:default=600
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`
}

// ConfirmSpec defines how long a node waits for the confirmation of the manager.
type ConfirmSpec struct {
	// timeoutSeconds is how long the node waits for the confirmation after the task and its check have ended, in seconds: 60 to 3600,
	// and not longer than task.timeoutSeconds. The default is 180. While no manager runs, no node is confirmed, so it must be longer than a
	// restart of the manager takes in the cluster. The manager confirms when the kubelet has reported the end of the
	// task and the node is Ready. Without a confirmation, the rollback runs on the node, within rollback.timeoutSeconds.
	// +optional
	// +kubebuilder:default=180
	// +kubebuilder:validation:Minimum=60
	// +kubebuilder:validation:Maximum=3600
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`

	// probes are scripts that test on the node what the task must not break. All must succeed before the task, or it does not start.
	// After it, they are repeated every second until each has succeeded once. The node is only confirmed if that is within
	// timeoutSeconds.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	Probes []ConfirmProbe `json:"probes,omitempty"`
}

// ConfirmProbe is a script that tests whether something on the node works.
type ConfirmProbe struct {
	// name is used in messages: lowercase letters, digits and hyphens, at most 63 characters.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`
	Name string `json:"name,omitempty"`

	// script succeeds with exit code 0. It runs as the script of the task does, must change nothing, and is part of no result. It has
	// at most 4096 characters. Its first line with #! names the interpreter; without such a line it is /bin/sh.
	//
	// Example: "curl -fsS --max-time 5 https://registry.example.com/healthz"
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Script string `json:"script,omitempty"`

	// timeoutSeconds is the time limit of one execution, in seconds: 1 to 300. The default is 10.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=300
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`
}

// ExpiresSpec defines when the task is no longer needed. At least one of its fields must be set.
//
// +kubebuilder:validation:XValidation:rule="has(self.check) || has(self.at)",message="set expires.check, expires.at, or both: a script that says where the task is no longer needed, or a time after which it is needed on no node"
type ExpiresSpec struct {
	// check is a script that says whether the task is no longer needed on a node, with the environment and the time limit of the task. It
	// runs in a pod of its own, which needs no slot: before the task and before task.check, after each reboot of the node, and each
	// periodSeconds. Exit code 0 means that the task is no longer needed on the node, and 1 that it still is. With any other exit code, a
	// signal or a timeout, the check itself has failed (CheckError): it is repeated with the backoff of retry, does not count as a
	// failure, and ends nothing.
	// +optional
	Check *ExpiresCheckSpec `json:"check,omitempty"`

	// at is the time after which the task is no longer needed on any node, by the clock of the API server. The check is then not run.
	// Rollbacks run within rollout.maxConcurrent, and within maintenance.maxUnavailable if the task disrupts nodes.
	//
	// Example: "2027-01-31T00:00:00Z"
	// +optional
	At *metav1.Time `json:"at,omitempty"`
}

// ExpiresCheckSpec is a script that says whether the task is no longer needed on a node. Exactly one of script and scriptFrom must be
// set.
//
// +kubebuilder:validation:XValidation:rule="(has(self.script) ? 1 : 0) + (has(self.scriptFrom) ? 1 : 0) == 1",message="set exactly one of expires.check.script and expires.check.scriptFrom"
type ExpiresCheckSpec struct {
	ScriptBlock `json:",inline"`

	// periodSeconds is the time after which the check runs again on a node that has not rebooted, in seconds: 60 to 31536000. The
	// checks of the nodes are spread over the period. With 0, which is the default, it runs before the task and after reboots only.
	//
	// Example: 86400
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=31536000
	// +kubebuilder:validation:XValidation:rule="self == 0 || self >= 60",message="expires.check.periodSeconds must be 0, for never, or at least 60"
	PeriodSeconds int32 `json:"periodSeconds,omitempty"`
}

// OnFailureSpec defines what happens to a node on which all attempts have failed.
//
// +kubebuilder:validation:XValidation:rule="!has(self.drain) || (has(self.action) && self.action == 'Drain')",message="onFailure.drain works with onFailure.action Drain only: set action to Drain, or leave drain out"
type OnFailureSpec struct {
	// action is None, which is the default, Cordon, or Drain. Cordon marks the node as unschedulable. Drain also evicts its pods after
	// the rollback has ended. The node is uncordoned when the task succeeds there, or when the NodeJob no longer selects it.
	// +optional
	// +kubebuilder:default=None
	Action FailureAction `json:"action,omitempty"`

	// drain defines how the pods of a failed node are evicted. It requires action Drain.
	// +optional
	Drain *DrainSpec `json:"drain,omitempty"`
}

// FailureAction defines what happens to a failed node.
//
// +kubebuilder:validation:Enum=None;Cordon;Drain
type FailureAction string

const (
	// FailureActionNone does not change the node.
	FailureActionNone FailureAction = "None"
	// FailureActionCordon marks the node as unschedulable.
	FailureActionCordon FailureAction = "Cordon"
	// FailureActionDrain marks the node as unschedulable and evicts its pods.
	FailureActionDrain FailureAction = "Drain"
)

// DrainSpec defines how the pods of a node are evicted. As with kubectl drain, the Eviction API is used, which respects
// PodDisruptionBudgets. Pods of DaemonSets and static pods are not evicted. Pods without a controller block the drain, and so do pods
// with emptyDir volumes unless deleteEmptyDirData is true.
type DrainSpec struct {
	// timeoutSeconds is the time limit of the drain in seconds: 1 to 604800. The default is 600. After that, no further pod is
	// evicted, and the node stays cordoned.
	// +optional
	// +kubebuilder:default=600
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=604800
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`

	// gracePeriodSeconds is the time in seconds that an evicted pod has to terminate: 1 to 86400. If unset, the grace period of the
	// pod applies.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	GracePeriodSeconds *int32 `json:"gracePeriodSeconds,omitempty"`

	// deleteEmptyDirData also evicts pods with emptyDir volumes. The data of these volumes is deleted.
	// +optional
	DeleteEmptyDirData bool `json:"deleteEmptyDirData,omitempty"`

	// podSelector selects the pods that are evicted by their labels. Other pods are not evicted. It must not be empty. If unset, all
	// pods are evicted.
	// +optional
	// +kubebuilder:validation:XValidation:rule="(has(self.matchLabels) && self.matchLabels.size() > 0) || (has(self.matchExpressions) && self.matchExpressions.size() > 0)",message="the selector is empty: write podSelector.matchLabels.KEY: VALUE, or omit podSelector for all pods"
	PodSelector *metav1.LabelSelector `json:"podSelector,omitempty"`
}
