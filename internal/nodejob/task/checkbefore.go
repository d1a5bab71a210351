// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package task

import "github.com/everynode/everynode/api/v1alpha1"

// Disrupts reports whether the task of a NodeJob affects other workloads on a node.
func Disrupts(job *v1alpha1.NodeJob) bool {
	d := &job.Spec.Maintenance
	return d.Cordon || d.Drain != nil || RebootPolicy(job) != v1alpha1.RebootNever
}

// ChecksFirst reports whether the check runs in a pod of its own before the maintenance of a node.
func ChecksFirst(job *v1alpha1.NodeJob) bool { return checksBefore(job) && Disrupts(job) }

// checksInPod reports whether the pod of a phase is that of the task, and runs the check before it.
func checksInPod(job *v1alpha1.NodeJob, phase Phase) bool {
	return phase == Task && checksBefore(job) && !Disrupts(job)
}

func checksBefore(job *v1alpha1.NodeJob) bool {
	check := job.Spec.Task.Check
	return check != nil && check.Before
}

// IsAudit reports whether a NodeJob only asks its check, and never changes a node.
func IsAudit(job *v1alpha1.NodeJob) bool {
	t := &job.Spec.Task
	return t.Check != nil && t.Script == "" && t.ScriptFrom == nil && len(t.Command) == 0 && t.Template == nil
}

// DriftPeriod is how often task.check is asked on a node that is done, in seconds; 0 for never.
func DriftPeriod(job *v1alpha1.NodeJob) int32 {
	check := job.Spec.Task.Check
	if check == nil {
		return 0
	}
	return check.PeriodSeconds
}
