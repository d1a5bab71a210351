// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import "time"

// startingDeadline is when spec.startingDeadlineSeconds has passed; zero if it never passes.
func (j *job) startingDeadline() time.Time {
	within := j.in.Job.Spec.StartingDeadlineSeconds
	if within == nil {
		return time.Time{}
	}
	return j.in.Job.CreationTimestamp.Add(time.Duration(*within) * time.Second)
}

// suspendedReason is why nothing may start any more; "" if it may.
func (j *job) suspendedReason() string {
	at := j.startingDeadline()
	switch {
	case j.in.Job.Spec.Suspend:
		return "spec.suspend is true"
	case at.IsZero() || j.in.Now.Before(at):
		return ""
	}
	return "spec.startingDeadlineSeconds has passed"
}
