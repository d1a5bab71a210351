// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package task

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
)

// OS is the operating system of the nodes that a NodeJob is for, as the label kubernetes.io/os names it; "" for any.
// Scripts and commands run on Linux. A template runs where its spec.os says, or anywhere without one; but where a
// rollback or a reboot belongs to it, which are pods of the runner, it is for Linux as well.
func OS(spec *v1alpha1.NodeJobSpec) corev1.OSName {
	switch t := spec.Task.Template; {
	case t == nil:
		return corev1.Linux
	case t.Spec.OS != nil:
		return t.Spec.OS.Name
	case spec.Rollback != nil || (spec.Maintenance.Reboot != "" && spec.Maintenance.Reboot != v1alpha1.RebootNever):
		return corev1.Linux
	}
	return ""
}

// FitsOS reports whether a node with these labels has the operating system os. A node without the label
// kubernetes.io/os fits every one.
func FitsOS(os corev1.OSName, labels map[string]string) bool {
	is, labelled := labels[corev1.LabelOSStable]
	return os == "" || !labelled || is == string(os)
}
