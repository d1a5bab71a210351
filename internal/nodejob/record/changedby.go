// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/outcome"
)

// MaxChangedBy limits Record.ChangedBy, in bytes.
const MaxChangedBy = 256

// ChangedBy returns the user that the annotations of a NodeJob, a NodeGuard or a pod name as the one who last changed the spec;
// "" if they name none. A client may have written any text.
func ChangedBy(annotations map[string]string) string {
	return boundUser(annotations[v1alpha1.ChangedByAnnotation])
}

// RequestedBy returns the user that the annotations of a NodeJob name as the one who last requested a retry; "" if they name none.
func RequestedBy(annotations map[string]string) string {
	return boundUser(annotations[v1alpha1.RequestedByAnnotation])
}

// boundUser returns the name of a user as one visible line.
func boundUser(name string) string {
	return outcome.CleanHead(outcome.CleanLine(name), MaxChangedBy)
}
