// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package task

import "github.com/everynode/everynode/api/v1alpha1"

// Disrupts reports whether the task of a NodeJob affects other workloads on a node.
func Disrupts(job *v1alpha1.NodeJob) bool {
	d := &job.Spec.Maintenance
	return d.Cordon || d.Drain != nil || RebootPolicy(job) != v1alpha1.RebootNever
}

// ChecksFirst reports whether a pod of its own runs before the maintenance of a node: that of the check, which has the images of the task as
// well, or one that only pulls them.
func ChecksFirst(job *v1alpha1.NodeJob) bool {
	return Disrupts(job) && (checksBefore(job) || job.Spec.Maintenance.PrePull)
}

// OnlyPulls reports whether the pod before the maintenance of a node only pulls the images of the task.
func OnlyPulls(job *v1alpha1.NodeJob) bool { return ChecksFirst(job) && !checksBefore(job) }

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
