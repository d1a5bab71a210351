// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import "time"

// startingDeadline is when spec.startingDeadlineSeconds has passed; zero if it never passes.
func (p *policy) startingDeadline() time.Time {
	within := p.in.Job.Spec.StartingDeadlineSeconds
	if within == nil {
		return time.Time{}
	}
	return p.in.Job.CreationTimestamp.Add(time.Duration(*within) * time.Second)
}

// suspendedReason is why nothing may start any more; "" if it may.
func (p *policy) suspendedReason() string {
	at := p.startingDeadline()
	switch {
	case p.in.Job.Spec.Suspend:
		return "spec.suspend is true"
	case at.IsZero() || p.in.Now.Before(at):
		return ""
	}
	return "spec.startingDeadlineSeconds has passed"
}
