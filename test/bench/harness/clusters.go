// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/everynode/everynode/local/cluster"
	"github.com/everynode/everynode/test/bench/measure"
)

// clusterPrefix is the prefix of the names of the benchmark's clusters. The suffix is the process ID of the harness.
const clusterPrefix = "bench-"

// ClusterName is the name of the only cluster that this process has at a time.
func ClusterName() string { return fmt.Sprintf("%s%d", clusterPrefix, os.Getpid()) }

// ClearAway removes what a killed benchmark has left behind.
func ClearAway(ctx context.Context, progress io.Writer) error {
	clusters, err := cluster.List()
	if err != nil {
		return err
	}
	for _, c := range clusters {
		id, found := strings.CutPrefix(c.Name(), clusterPrefix)
		pid, err := strconv.Atoi(id)
		if !found || err != nil || syscall.Kill(pid, 0) == nil {
			continue
		}
		fmt.Fprintf(progress, "taking down cluster %s, which an earlier run has left\n", c.Name())
		if err := c.Down(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Clients counts the requests of a period in the audit log of a cluster, which is written with a delay.
func Clients(ctx context.Context, c *cluster.Cluster, from, to time.Time) (measure.ClientCounts, error) {
	if err := pause(ctx, 3*time.Second); err != nil {
		return nil, err
	}
	log, err := os.Open(c.AuditLog())
	if err != nil {
		return nil, fmt.Errorf("reading the audit log: %w", err)
	}
	defer log.Close()
	return measure.AuditCounts(log, from, to)
}
