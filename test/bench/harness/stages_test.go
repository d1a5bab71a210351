// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"strings"
	"testing"
)

func TestNodesReportTheirStatusAsOftenAsTheReportSays(t *testing.T) {
	for nodes, want := range map[int]string{
		1000: "\n    jitterDurationMilliseconds: 599000\n", 15000: "\n    jitterDurationMilliseconds: 1799000\n",
	} {
		if got := string(stagesFor(nodes)); !strings.Contains(got, want) {
			t.Errorf("%d nodes: %q is missing in\n%s", nodes, want, got)
		}
	}
}
