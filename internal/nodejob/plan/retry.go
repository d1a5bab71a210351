// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import "time"

// Defaults of spec.retry, as in the CRD.
const (
	defaultRetryLimit        = 3
	defaultBackoffSeconds    = 10
	defaultMaxBackoffSeconds = 300
)

// retryLimit is the number of failures that another attempt may follow.
func (p *policy) retryLimit() int32 {
	return valueOr(p.in.Job.Spec.Retry.Limit, defaultRetryLimit)
}

// backoff is the wait after the n-th failure or disruption in a row, without jitter: nodes fail at different times, and
// a plan that cannot be predicted cannot be tested.
func (p *policy) backoff(n int32) time.Duration {
	retry := p.in.Job.Spec.Retry
	longest := time.Duration(valueOr(retry.MaxBackoffSeconds, defaultMaxBackoffSeconds)) * time.Second
	wait := time.Duration(valueOr(retry.BackoffSeconds, defaultBackoffSeconds)) * time.Second
	for ; n > 1 && wait < longest; n-- {
		wait *= 2
	}
	return min(wait, longest)
}

// after is when the next attempt may start after the n-th failure or disruption in a row.
func (p *policy) after(ended time.Time, n int32) time.Time {
	return p.past(ended).Add(p.backoff(n))
}
