// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package task

import "time"

// Obstacle is why no pod of an object can be created.
type Obstacle struct {
	// Reason and Message say what is wrong and what to do, as the Stalled condition shows it.
	Reason  string
	Message string
	// RetryAt is when the creation of one pod may be retried, although no event shows that the cause is fixed. Zero: not
	// before the obstacle is known to be removed.
	RetryAt time.Time
}
