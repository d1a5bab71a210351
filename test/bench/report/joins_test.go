// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"strings"
	"testing"
)

func TestJoinsMarkdown(t *testing.T) {
	j := Joins{Kubernetes: "v1.34.4", Nodes: 3, Variants: []JoinVariant{
		{Description: "the manager adds it", Joins: 3, Open: 1, Tolerant: 2, ClosedAfter: []float64{0.1, 0.2, 0.3}},
		{Description: "no gate", Joins: 3, Open: 3, Plain: 3, Tolerant: 3},
	}}
	got := j.Markdown()
	for _, want := range []string{
		"Kubernetes v1.34.4, 3 simulated nodes",
		"| the manager adds it | 1 | 0 | 2 | 0.20 / 0.30 |\n",
		"| no gate | 3 | 3 | 3 | – / – |\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the report lacks %q:\n%s", want, got)
		}
	}
}
