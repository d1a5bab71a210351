// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"time"
)

// Intervals of kubelets, and the numbers of nodes up to which simulated nodes use them.
const (
	leaseEvery, leaseNodes   = 10 * time.Second, 1000
	statusEvery, statusNodes = 5 * time.Minute, 5000
)

// Heartbeats returns the intervals at which simulated nodes renew their leases and report their status. They are those of
// kubelets. With more nodes, the intervals grow, so that all heartbeats together cost the same: those of 15,000 nodes would
// need nine cores, and the machine would do nothing else.
func Heartbeats(nodes int) (lease, status time.Duration) {
	return leaseEvery * time.Duration(max(nodes, leaseNodes)) / leaseNodes, statusEvery * time.Duration(max(nodes, statusNodes)) / statusNodes
}

// HeartbeatsOf says what Heartbeats returns.
func HeartbeatsOf(nodes int) string {
	lease, status := Heartbeats(nodes)
	return fmt.Sprintf("a lease every %.0f s and a status every %.0f min from each node", lease.Seconds(), status.Minutes())
}
