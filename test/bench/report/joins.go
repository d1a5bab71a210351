// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"strings"

	"github.com/everynode/everynode/test/bench/measure"
)

// Joins counts the pods that start on joining nodes before the task has succeeded there.
type Joins struct {
	Kubernetes string        `json:"kubernetes"`
	Nodes      int           `json:"nodes"`
	Real       bool          `json:"real"`
	Variants   []JoinVariant `json:"variants"`
}

// JoinVariant is one way in which a node can get the taint of the gate.
type JoinVariant struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	// Joins is the number of nodes.
	Joins int `json:"joins"`
	// Open is the number of nodes that had no taint at all before they were done, so that any pod could start there.
	Open int `json:"open"`
	// Plain and Tolerant are the numbers of nodes on which a waiting pod was bound before they were done: a pod without
	// tolerations, and one that tolerates that the node is not ready.
	Plain    int `json:"plain"`
	Tolerant int `json:"tolerant"`
	// ClosedAfter are the seconds from the first observation of a node to that of the taint of the gate, sorted, of the nodes
	// that had it.
	ClosedAfter []float64 `json:"closedAfter"`
}

// Summary is the result in one line.
func (v *JoinVariant) Summary() string {
	return fmt.Sprintf("of %d nodes, %d had no taint before they were done, %d got a plain pod, %d one that tolerates not-ready; closed after %s s (p99)",
		v.Joins, v.Open, v.Plain, v.Tolerant, v.percentile(99))
}

func (v *JoinVariant) percentile(p float64) string {
	if len(v.ClosedAfter) == 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f", measure.Percentile(v.ClosedAfter, p))
}

// Markdown is a table of the variants.
func (j *Joins) Markdown() string {
	var b strings.Builder
	kind := "simulated"
	if j.Real {
		kind = "real"
	}
	fmt.Fprintf(&b, "Kubernetes %s, %d %s nodes in each row:\n\n", j.Kubernetes, j.Nodes, kind)
	b.WriteString("| How the node gets the taint | no taint before the node was done | plain pod bound before | pod that tolerates not-ready bound before | taint seen after, p50 / p99 s |\n|---|---|---|---|---|\n")
	for i := range j.Variants {
		v := &j.Variants[i]
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %s / %s |\n", v.Description, v.Open, v.Plain, v.Tolerant, v.percentile(50), v.percentile(99))
	}
	return b.String()
}
