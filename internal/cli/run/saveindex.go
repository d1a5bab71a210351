// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/everynode/everynode/internal/cli/console"
	"github.com/everynode/everynode/internal/ui/view"
)

// The files of --save beside those of the nodes.
const (
	indexFile   = "index.json"
	summaryFile = "summary.txt"
	outputExt   = ".txt"
	// maxNodeFile is the longest name of a node that is used as the name of a file. File systems allow 255 bytes, also
	// for the temporary name.
	maxNodeFile = 200
)

// savedRun is the index of a saved run.
type savedRun struct {
	// Namespace and NodeJob name the NodeJob of the run.
	Namespace string `json:"namespace"`
	NodeJob   string `json:"nodeJob"`
	// Command, or Script and its hash, is what ran.
	Command      []string `json:"command,omitempty"`
	Script       string   `json:"script,omitempty"`
	ScriptSHA256 string   `json:"scriptSHA256,omitempty"`
	// Selection is how the nodes were selected, as on the command line.
	Selection string `json:"selection"`
	// StartedAt is when the command started.
	StartedAt time.Time `json:"startedAt"`
	// FinishedAt is when the command ended; absent while it runs.
	FinishedAt *time.Time `json:"finishedAt,omitempty"`
	// Succeeded reports whether the command succeeded on every node.
	Succeeded bool `json:"succeeded"`
	// Nodes has an entry for each node.
	Nodes []savedNode `json:"nodes"`
}

// savedNode is the entry of a node.
type savedNode struct {
	nodeOutcome
	// File has the output; absent if nothing has run on the node. A name that is too long for a file, or is not a valid name of a Node, is
	// replaced by _ and a hash.
	File string `json:"file,omitempty"`
	// Truncated reports whether output is missing in the file. OutputNote states what may be missing.
	Truncated  bool   `json:"truncated"`
	OutputNote string `json:"outputNote,omitempty"`
}

// fileName returns the name of the file for the output of a node. No two nodes have the same one. Other names than
// those that a Node can have, and those of other files, become a hash; they start with a character that no Node has.
func fileName(node string) string {
	if len(validation.IsDNS1123Subdomain(node)) > 0 || len(node) > maxNodeFile || node+outputExt == summaryFile {
		sum := sha256.Sum256([]byte(node))
		return "_" + hex.EncodeToString(sum[:]) + outputExt
	}
	return node + outputExt
}

// savedRun returns the index. over reports whether the command ends.
func (r *running) savedRun(over bool) savedRun {
	saved := savedRun{
		Namespace: r.job.Namespace, NodeJob: r.job.Name, Command: r.command, Script: r.file, ScriptSHA256: r.scriptSum(),
		Selection: r.selection(), StartedAt: r.view.Began.UTC(), Succeeded: r.view.Count(view.RunSucceeded) == len(r.view.Nodes),
		Nodes: make([]savedNode, 0, len(r.nodes)),
	}
	if over {
		saved.FinishedAt = new(r.Now().UTC())
	}
	for _, n := range r.nodes {
		node := savedNode{nodeOutcome: n.outcome(), OutputNote: n.output.note}
		node.File = r.saved.files[node.Node]
		node.Truncated = n.incomplete() || r.saved.broken[node.Node]
		if r.saved.broken[node.Node] {
			node.OutputNote = "the output could not be written to the file completely"
		}
		saved.Nodes = append(saved.Nodes, node)
	}
	return saved
}

// scriptSum returns the hash of the script; "" for a command.
func (o *options) scriptSum() string {
	if o.file == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(o.script))
	return hex.EncodeToString(sum[:])
}

// encode returns the content of the index. It contains no characters that move the cursor of a terminal.
func (s savedRun) encode() ([]byte, error) {
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", indexFile, err)
	}
	return []byte(console.EscapeJSON(string(b)) + "\n"), nil
}
