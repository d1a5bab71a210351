// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import "time"

// startingDeadline is when spec.startingDeadlineSeconds has passed; zero if it never passes.
func (s *job) startingDeadline() time.Time {
	within := s.in.Job.Spec.StartingDeadlineSeconds
	if within == nil {
		return time.Time{}
	}
	return s.in.Job.CreationTimestamp.Add(time.Duration(*within) * time.Second)
}

// suspendedReason is why nothing may start any more; "" if it may.
func (s *job) suspendedReason() string {
	at := s.startingDeadline()
	switch {
	case s.in.Job.Spec.Suspend:
		return "spec.suspend is true"
	case at.IsZero() || s.in.Now.Before(at):
		return ""
	}
	return "spec.startingDeadlineSeconds has passed"
}
