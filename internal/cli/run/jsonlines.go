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
	for i, o := range r.outputs {
		if o.reported || !(all || r.view.Nodes[i].State.Final() && r.logRead(i)) {
			continue
		}
		r.fillIn(i)
		line, err := json.Marshal(r.nodeResult(i))
		if err != nil {
			r.writeErr = err
			return
		}
		r.printed.WriteString(console.EscapeJSON(string(line)) + "\n")
		o.reported, o.kept = true, nil
	}
}
