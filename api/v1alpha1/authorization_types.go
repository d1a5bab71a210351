// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// States of an Authorization.
const (
	// AuthorizationAuthorized : the admission policies were in force when the object was written.
	AuthorizationAuthorized = "Authorized"
	// AuthorizationUnconfirmed : it may have been written while no admission policy was in force.
	AuthorizationUnconfirmed = "Unconfirmed"
	// AuthorizationNotRequired : the manager runs with --require-policies=false.
	AuthorizationNotRequired = "NotRequired"
)

// Authorization says whether the API server asked for the rights to what the object does on nodes when it was written.
type Authorization struct {
	// state is Authorized, Unconfirmed if the object may have been written while no admission policy was in force, or
	// NotRequired if the manager runs with --require-policies=false.
	// +required
	// +kubebuilder:validation:Enum=Authorized;Unconfirmed;NotRequired
	State string `json:"state,omitempty"`

	// policies identifies the installed admission policies of config/authorization with which this was decided.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Policies string `json:"policies,omitempty"`

	// generation is the metadata.generation for which this was decided.
	// +optional
	Generation int64 `json:"generation,omitempty"`

	// retry is a hash of the annotation everynode.dev/retry for which this was decided.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Retry string `json:"retry,omitempty"`

	// contents is a hash of the scripts from ConfigMaps for which this was decided.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Contents string `json:"contents,omitempty"`
}
