// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package monitoring tests the alerts and dashboards in config/monitoring with Prometheus.
package monitoring
