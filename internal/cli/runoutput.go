// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

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
	// maxOutputBytes is what is kept of a node's output where it is shown at the end, if all of them together do not
	// take more than maxOutputsBytes.
	maxOutputBytes  = 64 << 10
	minOutputBytes  = 4 << 10
	maxOutputsBytes = 48 << 20
	// maxLineBytes is how long a line may be that is shown as it comes.
	maxLineBytes = 16 << 10
)

// nodeOutput is what a node has printed.
type nodeOutput struct {
	// room is how many bytes of the end are kept; 0 where lines are shown as they come.
	room int
	kept []byte
	cut  int64
	sum  hash.Hash
	// rest is a line that has not ended.
	rest []byte
	// read is true once all of the last pod's log was read; err is why it was not.
	read bool
	err  error
	any  bool
	note string
}

func newNodeOutput(room int) *nodeOutput { return &nodeOutput{room: room, sum: sha256.New()} }

// roomFor is how many bytes are kept of each of so many nodes.
func roomFor(nodes int) int {
	return max(minOutputBytes, min(maxOutputBytes, maxOutputsBytes/max(nodes, 1)))
}

// add takes a piece, and returns the lines that have ended with it, unless they are kept.
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

// keep keeps the end, and what tells the whole from others.
func (o *nodeOutput) keep(data []byte) {
	_, _ = o.sum.Write(data) // a hash never fails
	o.kept = append(o.kept, data...)
	if over := len(o.kept) - 2*o.room; over > 0 {
		o.trim()
	}
}

// trim cuts what is kept to its room, at the end of a line where there is one near.
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

// flush returns a last line that has no end.
func (o *nodeOutput) flush() []string {
	if len(o.rest) == 0 {
		return nil
	}
	line := string(o.rest)
	o.rest = nil
	return []string{line}
}

// text is what was kept.
func (o *nodeOutput) text() (end string, cut int64, sum string) {
	o.trim()
	return string(o.kept), o.cut, hex.EncodeToString(o.sum.Sum(nil))
}

// shown is a line of somebody else's as it may be shown anywhere: every character shows, but tabs, which move nothing
// but to the right.
func shown(line string) string {
	return outcome.Clean(strings.TrimSuffix(line, "\r"), math.MaxInt)
}
