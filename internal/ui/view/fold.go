// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/everynode/everynode/internal/plural"
	"github.com/everynode/everynode/internal/text"
)

// Output is the output of a node.
type Output struct {
	Node  string
	State RunState
	// ExitCode of a command that failed; nil if the command did not end by itself.
	ExitCode *int32
	// Why is the reason why it did not succeed, if there is no exit code.
	Why string
	// Text is the end of the output. Cut is the number of bytes before it that are not included.
	Text string
	Cut  int64
	// Sum distinguishes outputs with the same end.
	Sum string
	// Note states what may be missing; "" if nothing is.
	Note string
}

// group are nodes with the same output.
type group struct {
	first *Output
	nodes []string
}

// maxFolded limits the number of names in the head of a group. Nodes that did not succeed are all named.
const (
	maxFolded = 8
	maxOutput = 3000
)

// Fold draws the output of nodes, once for all nodes with the same output and result. The largest group comes first,
// and nodes that did not succeed come last, at the end of the terminal.
func Fold(outputs []Output) []text.Line {
	groups := grouped(outputs)
	var lines []text.Line
	for i, g := range groups {
		if i > 0 {
			lines = append(lines, nil)
		}
		lines = append(lines, g.head())
		lines = append(lines, g.body()...)
	}
	return lines
}

func grouped(outputs []Output) []*group {
	index := map[string]*group{}
	var groups []*group
	for i := range outputs {
		o := &outputs[i]
		code := "none"
		if o.ExitCode != nil {
			code = fmt.Sprint(*o.ExitCode)
		}
		key := fmt.Sprintf("%d %s %d %q %q %q %s", o.State, code, o.Cut, o.Why, o.Note, o.Text, o.Sum)
		g := index[key]
		if g == nil {
			g = &group{first: o}
			index[key] = g
			groups = append(groups, g)
		}
		g.nodes = append(g.nodes, o.Node)
	}
	slices.SortStableFunc(groups, func(a, b *group) int {
		return cmp.Or(cmp.Compare(a.first.State, b.first.State), cmp.Compare(len(b.nodes), len(a.nodes)), cmp.Compare(a.nodes[0], b.nodes[0]))
	})
	return groups
}

func (g *group) head() text.Line {
	line := text.Toned(text.Strong, plural.Count(len(g.nodes), "node"))
	most := maxFolded
	if o := g.first; o.State != RunSucceeded {
		n := RunNode{ExitCode: o.ExitCode, Said: o.Why}
		for _, s := range runStates {
			if s.state == o.State {
				line = line.Tone(s.tone, " "+s.word+n.why())
			}
		}
		most = maxOutput
	}
	names := g.nodes
	more := ""
	if len(names) > most {
		names, more = names[:most-1], fmt.Sprintf(" and %d more", len(g.nodes)-most+1)
	}
	return line.With(": "+strings.Join(names, ", ")).Tone(text.Dim, more)
}

func (g *group) body() []text.Line {
	o := g.first
	var lines []text.Line
	if o.Cut > 0 {
		lines = append(lines, text.Toned(text.Warn, fmt.Sprintf("  (the first %d bytes are left out)", o.Cut)))
	}
	for _, line := range text.Lines(o.Text) {
		lines = append(lines, text.Of("  "+line))
	}
	if len(lines) == 0 && o.State <= RunFailed {
		lines = append(lines, text.Toned(text.Dim, "  (no output)"))
	}
	if o.Note != "" {
		lines = append(lines, text.Toned(text.Warn, "  ("+o.Note+")"))
	}
	return lines
}
