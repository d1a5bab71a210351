// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Outcomes of notifications.
const (
	// outcomeDelivered : the endpoint has accepted the notification.
	outcomeDelivered = "Delivered"
	// outcomeRejected : the endpoint will never accept the notification.
	outcomeRejected = "Rejected"
	// outcomeExpired : the notification could not be delivered for too long.
	outcomeExpired = "Expired"
	// outcomeOverflowed : too many notifications of one object, or of deleted objects, have waited.
	outcomeOverflowed = "Overflowed"
)

// metrics are the metrics of notifications. docs/reference/metrics.md explains each metric.
type metrics struct {
	outcomes *prometheus.CounterVec
	failures prometheus.Counter
}

// newMetrics registers the metrics. pending is how many notifications wait.
func newMetrics(registry prometheus.Registerer, pending func() int) *metrics {
	m := &metrics{
		outcomes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "everynode_notifications_total",
			Help: "Notifications that are not sent any more, by outcome: Delivered, Rejected by the endpoint, Expired after 24 hours, or Overflowed, as too many have waited.",
		}, []string{"outcome"}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "everynode_notification_failures_total",
			Help: "Attempts to deliver a notification that failed and are repeated.",
		}),
	}
	for _, outcome := range []string{outcomeDelivered, outcomeRejected, outcomeExpired, outcomeOverflowed} {
		m.outcomes.WithLabelValues(outcome)
	}
	registry.MustRegister(m.outcomes, m.failures, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "everynode_notifications_pending",
		Help: "Notifications that are not delivered yet.",
	}, func() float64 { return float64(pending()) }))
	return m
}

func (m *metrics) handled(outcome string, n int) {
	m.outcomes.WithLabelValues(outcome).Add(float64(n))
}
