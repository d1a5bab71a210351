// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Cordoner is what remains in the cache of the managed fields of a node: the name of the field manager that cordoned it.
func Cordoner(node *corev1.Node) []metav1.ManagedFieldsEntry {
	if with := CordonedWith(node); with != "" {
		return []metav1.ManagedFieldsEntry{{Manager: with, FieldsV1: metav1.NewFieldsV1(ownsCordon)}}
	}
	return nil
}

// CordonedWith is the field manager that cordoned a node; "" if the node is not cordoned, or this is not known.
func CordonedWith(node *corev1.Node) string {
	if !node.Spec.Unschedulable {
		return ""
	}
	for _, e := range node.ManagedFields {
		if e.FieldsV1 != nil && strings.Contains(e.FieldsV1.GetRawString(), ownsCordon) {
			return e.Manager
		}
	}
	return ""
}

// ownsCordon is in the fields of who owns spec.unschedulable: https://kubernetes.io/docs/reference/using-api/server-side-apply/#managed-fields
const ownsCordon = `"f:unschedulable"`
