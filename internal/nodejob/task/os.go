// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package task

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
)

// OS returns the operating system of the nodes that a NodeJob matches, as in the label kubernetes.io/os; "" for any.
// Scripts and commands run on Linux. A template runs on the system in its spec.os, or on any if that is not set. A
// template with a rollback or a reboot requires Linux as well, because these run in pods of the runner.
func OS(spec *v1alpha1.NodeJobSpec) corev1.OSName {
	switch t := spec.Task.Template; {
	case t == nil:
		return corev1.Linux
	case t.Spec.OS != nil:
		return t.Spec.OS.Name
	case spec.Rollback != nil || (spec.Maintenance.Reboot.Policy != "" && spec.Maintenance.Reboot.Policy != v1alpha1.RebootNever):
		return corev1.Linux
	}
	return ""
}

// FitsOS reports whether a node with these labels has the operating system os. A node without the label
// kubernetes.io/os matches any.
func FitsOS(os corev1.OSName, labels map[string]string) bool {
	if os == "" {
		return true
	}
	is, labelled := labels[corev1.LabelOSStable]
	return !labelled || is == string(os)
}

// AllNodes returns the selector of all nodes on which the task can run.
func AllNodes(spec *v1alpha1.NodeJobSpec) *metav1.LabelSelector {
	if os := OS(spec); os != "" {
		return &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelOSStable: string(os)}}
	}
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: corev1.LabelOSStable, Operator: metav1.LabelSelectorOpExists}}}
}
