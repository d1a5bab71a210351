// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodeJobNotifications is the state of the notifications of a NodeJob. It is written together with the change that a notification
// reports, so that none is lost if the manager is killed.
type NodeJobNotifications struct {
	// revision is the revision to which the following fields refer.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Revision string `json:"revision,omitempty"`
	// completedSteps is the number of steps of the revision for which StepCompleted was reported.
	// +optional
	CompletedSteps int32 `json:"completedSteps,omitempty"`
	// last is the last reported state of the rollout. The manager does not report the same state twice in a row.
	// +optional
	Last *NotifiedState `json:"last,omitempty"`
	// pending are at most 32 notifications that are not delivered yet, the oldest first. A delivered notification remains in the list
	// for up to 10 seconds.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Pending []Notification `json:"pending,omitempty"`
}

// NotifiedState is a reported state of a rollout.
type NotifiedState struct {
	// type is AwaitingPromotion, Stopped or Complete.
	// +required
	Type NotificationType `json:"type,omitempty"`
	// step is the step of the rollout at that time.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Step string `json:"step,omitempty"`
	// reason is the reason of the condition.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Reason string `json:"reason,omitempty"`
	// failed is the number of failed nodes at that time.
	// +optional
	Failed int32 `json:"failed,omitempty"`
	// generation is the metadata.generation of the NodeJob.
	// +optional
	Generation int64 `json:"generation,omitempty"`
}

// NodeGuardNotifications is the state of the notifications of a NodeGuard.
type NodeGuardNotifications struct {
	// held are the names of the nodes in status.waiting for which DrainHeld was reported.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=10
	Held []string `json:"held,omitempty"`
	// pending are at most 32 notifications that are not delivered yet, the oldest first. A delivered notification remains in the list
	// for up to 10 seconds.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Pending []Notification `json:"pending,omitempty"`
}

// NodeDisruptionBudgetNotifications is the state of the notifications of a NodeDisruptionBudget.
type NodeDisruptionBudgetNotifications struct {
	// reported are the states that were reported and have not ended: Frozen, Exceeded and Stalled.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=3
	Reported []NotificationType `json:"reported,omitempty"`
	// pending are at most 32 notifications that are not delivered yet, the oldest first. A delivered notification remains in the list
	// for up to 10 seconds.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Pending []Notification `json:"pending,omitempty"`
}

// NotificationType is the kind of change that a notification reports.
//
// +kubebuilder:validation:Enum=Started;StepCompleted;AwaitingPromotion;Stopped;RollbackFailed;Complete;DrainHeld;Frozen;Thawed;Exceeded;Stalled
type NotificationType string

const (
	// NotificationStarted means that a revision has started.
	NotificationStarted NotificationType = "Started"
	// NotificationStepCompleted means that a step of the rollout has passed.
	NotificationStepCompleted NotificationType = "StepCompleted"
	// NotificationAwaitingPromotion means that the rollout is paused at rollout.promoteTo.
	NotificationAwaitingPromotion NotificationType = "AwaitingPromotion"
	// NotificationStopped means that the condition Stalled is True.
	NotificationStopped NotificationType = "Stopped"
	// NotificationRollbackFailed means that the condition RollbackFailed is True.
	NotificationRollbackFailed NotificationType = "RollbackFailed"
	// NotificationComplete means that the condition Complete is True.
	NotificationComplete NotificationType = "Complete"
	// NotificationDrainHeld means that a NodeGuard has held a node for too long.
	NotificationDrainHeld NotificationType = "DrainHeld"
	// NotificationFrozen means that a freeze has begun.
	NotificationFrozen NotificationType = "Frozen"
	// NotificationThawed means that a freeze has ended.
	NotificationThawed NotificationType = "Thawed"
	// NotificationExceeded means that more nodes are unavailable than a NodeDisruptionBudget allows.
	NotificationExceeded NotificationType = "Exceeded"
	// NotificationStalled means that the condition Stalled of a NodeDisruptionBudget is True.
	NotificationStalled NotificationType = "Stalled"
)

// Notification is one notification.
type Notification struct {
	// type is the kind of change that the notification reports.
	// +required
	Type NotificationType `json:"type,omitempty"`
	// time is the time at which the manager observed the change.
	// +required
	Time metav1.Time `json:"time,omitzero"`
	// generation is the metadata.generation of the object.
	// +optional
	Generation int64 `json:"generation,omitempty"`
	// revision is the revision of the NodeJob.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Revision string `json:"revision,omitempty"`
	// step is the step of the rollout.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Step string `json:"step,omitempty"`
	// node is the name of the held node.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node,omitempty"`
	// reason is the reason in CamelCase.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Reason string `json:"reason,omitempty"`
	// message is the message of the condition or of the event, in at most 1000 bytes.
	// +optional
	// +kubebuilder:validation:MaxLength=1000
	Message string `json:"message,omitempty"`
	// nodes is the number of nodes of the NodeJob in each state.
	// +optional
	Nodes *NodeCounts `json:"nodes,omitempty"`
	// changedBy is the name of the user who last changed the spec. It is absent if that is not known.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ChangedBy string `json:"changedBy,omitempty"`
}
