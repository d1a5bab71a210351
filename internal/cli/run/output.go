// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"math"
	"strings"

	"github.com/everynode/everynode/internal/outcome"
)

const (
	// maxOutputBytes limits the output that is retained for each node if it is shown at the end. maxOutputsBytes limits
	// the total.
	maxOutputBytes  = 64 << 10
	minOutputBytes  = 4 << 10
	maxOutputsBytes = 48 << 20
	// maxLineBytes limits the length of a line that is shown immediately.
	maxLineBytes = 16 << 10
)

// nodeOutput is the output of a node.
type nodeOutput struct {
	// room is how many bytes of the end are retained; 0 if lines are shown immediately.
	room int
	kept []byte
	cut  int64
	sum  hash.Hash
	// rest is a line without its end.
	rest []byte
	// read reports whether the whole log of the last pod was read. err is the reason if it was not.
	read bool
	err  error
	any  bool
	note string
	// filled reports whether the record was used for what the log lacks, and reported whether the output was printed as a
	// line of JSON.
	filled, reported bool
	// recordedWhole reports whether the log was not read, but the record has the whole output.
	recordedWhole bool
}

func newNodeOutput(room int) *nodeOutput { return &nodeOutput{room: room, sum: sha256.New()} }

// roomFor returns how many bytes are retained for each of n nodes.
func roomFor(nodes int) int {
	return max(minOutputBytes, min(maxOutputBytes, maxOutputsBytes/max(nodes, 1)))
}

// add adds a piece, and returns the lines that it completes, unless they are retained.
func (o *nodeOutput) add(data []byte) []string {
	o.any = o.any || len(data) > 0
	if o.room > 0 {
		o.keep(data)
		return nil
	}
	o.rest = append(o.rest, data...)
	var lines []string
	for {
		i := bytes.IndexByte(o.rest, '\n')
		switch {
		case i >= 0:
			lines = append(lines, string(o.rest[:i]))
			o.rest = o.rest[i+1:]
		case len(o.rest) > maxLineBytes:
			lines = append(lines, string(o.rest))
			o.rest = nil
		default:
			o.rest = bytes.Clone(o.rest)
			return lines
		}
	}
}

// keep retains the end of the output, and a hash of the whole output.
func (o *nodeOutput) keep(data []byte) {
	_, _ = o.sum.Write(data) // a hash never returns an error
	o.kept = append(o.kept, data...)
	if over := len(o.kept) - 2*o.room; over > 0 {
		o.trim()
	}
}

// trim cuts the retained output to its limit, at the end of a line if there is one near.
func (o *nodeOutput) trim() {
	over := len(o.kept) - o.room
	if over <= 0 {
		return
	}
	if i := bytes.IndexByte(o.kept[over:], '\n'); i >= 0 && i < o.room/2 {
		over += i + 1
	}
	o.cut += int64(over)
	o.kept = bytes.Clone(o.kept[over:])
}

// flush returns the last line if it has no newline.
func (o *nodeOutput) flush() []string {
	if len(o.rest) == 0 {
		return nil
	}
	line := string(o.rest)
	o.rest = nil
	return []string{line}
}

// text returns the retained output.
func (o *nodeOutput) text() (end string, cut int64, sum string) {
	o.trim()
	return string(o.kept), o.cut, hex.EncodeToString(o.sum.Sum(nil))
}

// shown returns a line of untrusted text in a form that is safe to print. All characters are visible, except tabs,
// which only move the cursor to the right.
func shown(line string) string {
	return outcome.Clean(strings.TrimSuffix(line, "\r"), math.MaxInt)
}
