// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodeJobNotifications are what the manager reports to the URL of its flag --notifications-url. They are written together with
// the change that they report, so that a manager that is killed loses none.
type NodeJobNotifications struct {
	// revision is the revision that the following fields are about.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Revision string `json:"revision,omitempty"`
	// completedSteps is how many steps of the revision are reported as completed.
	// +optional
	CompletedSteps int32 `json:"completedSteps,omitempty"`
	// last is the last reported state of the rollout. The manager does not report the same state twice in a row.
	// +optional
	Last *NotifiedState `json:"last,omitempty"`
	// pending are at most 32 notifications that are not delivered yet, the oldest first. They stay here for up to 10 seconds
	// after the delivery.
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
	// step is the current step of the rollout.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Step string `json:"step,omitempty"`
	// reason is the reason of the condition.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Reason string `json:"reason,omitempty"`
	// failed is how many nodes had failed.
	// +optional
	Failed int32 `json:"failed,omitempty"`
	// generation is the metadata.generation of the NodeJob.
	// +optional
	Generation int64 `json:"generation,omitempty"`
}

// NodeGuardNotifications are what the manager reports to the URL of its flag --notifications-url.
type NodeGuardNotifications struct {
	// held are the names of the nodes in status.held that are reported as held for too long.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=10
	Held []string `json:"held,omitempty"`
	// pending are at most 32 notifications that are not delivered yet, the oldest first. They stay here for up to 10 seconds
	// after the delivery.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Pending []Notification `json:"pending,omitempty"`
}

// NotificationType says what a notification reports.
//
// +kubebuilder:validation:Enum=Started;StepCompleted;AwaitingPromotion;Stopped;RollbackFailed;Complete;DrainHeld
type NotificationType string

const (
	// NotificationStarted : a revision begins.
	NotificationStarted NotificationType = "Started"
	// NotificationStepCompleted : a step of the rollout has passed.
	NotificationStepCompleted NotificationType = "StepCompleted"
	// NotificationAwaitingPromotion : the rollout waits for rollout.promoteTo.
	NotificationAwaitingPromotion NotificationType = "AwaitingPromotion"
	// NotificationStopped : the condition Stalled is True.
	NotificationStopped NotificationType = "Stopped"
	// NotificationRollbackFailed : the condition RollbackFailed is True.
	NotificationRollbackFailed NotificationType = "RollbackFailed"
	// NotificationComplete : the condition Complete is True.
	NotificationComplete NotificationType = "Complete"
	// NotificationDrainHeld : a NodeGuard has held a node for too long.
	NotificationDrainHeld NotificationType = "DrainHeld"
)

// Notification is one notification.
type Notification struct {
	// type says what it reports.
	// +required
	Type NotificationType `json:"type,omitempty"`
	// time is when the manager noticed it.
	// +required
	Time metav1.Time `json:"time,omitzero"`
	// generation is the metadata.generation of the object.
	// +optional
	Generation int64 `json:"generation,omitempty"`
	// revision of the NodeJob.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Revision string `json:"revision,omitempty"`
	// step of the rollout.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Step string `json:"step,omitempty"`
	// node is the held node.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node,omitempty"`
	// reason in one word.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Reason string `json:"reason,omitempty"`
	// message is what the condition or the event says, in at most 1000 bytes.
	// +optional
	// +kubebuilder:validation:MaxLength=1000
	Message string `json:"message,omitempty"`
	// nodes counts the nodes of the NodeJob.
	// +optional
	Nodes *NodeCounts `json:"nodes,omitempty"`
	// changedBy is the user who last changed the spec, if it is known.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ChangedBy string `json:"changedBy,omitempty"`
}
