// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package measure reads the cost of a run: times, processes and requests. Its computations are pure.
package measure

import (
	"math"
	"slices"
)

// Percentile is the smallest value that at least p percent of the values do not exceed (nearest rank); NaN
// without values. p is from 0 to 100.
func Percentile(values []float64, p float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// Median is the middle value, or the mean of the two in the middle; NaN without values.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}
