// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"encoding/json"

	"github.com/everynode/everynode/internal/cli/console"
)

// outputJSONLines prints an object for each node as soon as the node has ended, one per line. -o json prints one
// document at the end, as kubectl does.
const outputJSONLines = "jsonl"

// reportEnded adds a line for each node that has ended since the last call, or for all nodes that have no line yet.
func (r *running) reportEnded(all bool) {
	if r.output != outputJSONLines {
		return
	}
	for _, n := range r.nodes {
		if n.output.reported || !(all || n.State.Final() && r.logRead(n)) {
			continue
		}
		r.fillIn(n)
		line, err := json.Marshal(n.result())
		if err != nil {
			r.display.writeErr = err
			return
		}
		r.display.printed.WriteString(console.EscapeJSON(string(line)) + "\n")
		n.output.reported, n.output.kept = true, nil
	}
}
