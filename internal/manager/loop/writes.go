// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package loop

import "github.com/prometheus/client_golang/prometheus"

// Writes counts a controller's write requests to the API server, by verb and resource.
type Writes struct{ *prometheus.CounterVec }

// NewWrites returns Writes with a metric of that name.
func NewWrites(name, help string) Writes {
	return Writes{prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"verb", "resource"})}
}

// Do counts a write and executes it.
func (w Writes) Do(verb, resource string, do func() error) error {
	w.WithLabelValues(verb, resource).Inc()
	return do()
}
