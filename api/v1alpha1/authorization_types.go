// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// States of an Authorization.
const (
	// AuthorizationAuthorized means that the admission policies were in force when the object was written.
	AuthorizationAuthorized = "Authorized"
	// AuthorizationUnconfirmed means that the object may have been written while no admission policy was in force.
	AuthorizationUnconfirmed = "Unconfirmed"
	// AuthorizationNotRequired means that the manager runs with --require-policies=false.
	AuthorizationNotRequired = "NotRequired"
)

// Authorization shows whether the API server checked the rights of the user when the object was written.
type Authorization struct {
	// state is Authorized, Unconfirmed if the object may have been written while no admission policy was in force, or NotRequired if
	// the manager runs with --require-policies=false.
	// +required
	// +kubebuilder:validation:Enum=Authorized;Unconfirmed;NotRequired
	State string `json:"state,omitempty"`

	// policies identifies the admission policies (config/authorization) that were installed at that time.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Policies string `json:"policies,omitempty"`

	// generation is the metadata.generation to which the state refers.
	// +optional
	Generation int64 `json:"generation,omitempty"`

	// retry is a hash of the annotations everynode.dev/retry and everynode.dev/take-over to which the state refers.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Retry string `json:"retry,omitempty"`

	// contents is a hash of the scripts in ConfigMaps to which the state refers.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Contents string `json:"contents,omitempty"`
}
