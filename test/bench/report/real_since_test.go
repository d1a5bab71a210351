// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSinceIsNeverNegative(t *testing.T) {
	node := make([]float64, RealColumns)
	node[RealCreated], node[RealRunning], node[RealDone] = 1, 3, 2 // the label is seen before the container runs
	turn := RealTurn{Subject: DaemonSet, Nodes: [][]float64{node}}
	if diff := cmp.Diff([]float64{1}, turn.since(RealDone)); diff != "" {
		t.Errorf("since the creation of the pod (-want +got):\n%s", diff)
	}
}
