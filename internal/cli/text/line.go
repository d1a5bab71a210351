// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package text makes lines for a terminal of data that nobody trusts. A line is made of spans, and every span is
// made safe when the line is rendered, so that no writer can forget to: whatever a node, a task or another user has
// written, it cannot move the cursor, change colours or begin a line of its own. The package is pure.
package text

import (
	"slices"
	"strings"

	"github.com/rivo/uniseg"

	"github.com/everynode/everynode/internal/outcome"
)

// Tone is what a span means; a terminal shows it as a colour. Nothing may be told by it alone.
type Tone uint8

// Tones.
const (
	Plain Tone = iota
	// Good went well.
	Good
	// Bad needs somebody.
	Bad
	// Warn may need somebody.
	Warn
	// Active is under way.
	Active
	// Dim is beside the point.
	Dim
	// Strong is what the line is about.
	Strong
)

// codes are the eight colours that every terminal has, and that its user has chosen.
var codes = [...]string{Plain: "", Good: "32", Bad: "31", Warn: "33", Active: "36", Dim: "2", Strong: "1"}

// Span is a piece of a line. Its text may come from anybody.
type Span struct {
	Text string
	Tone Tone
}

// Line is one line.
type Line []Span

// Of is a line of one plain span.
func Of(text string) Line { return Line{{Text: text}} }

// Toned is a line of one span.
func Toned(tone Tone, text string) Line { return Line{{text, tone}} }

// With returns the line with a plain span more.
func (l Line) With(text string) Line { return l.Tone(Plain, text) }

// Tone returns the line with a span more, which becomes one with the last if that has the same tone.
func (l Line) Tone(tone Tone, text string) Line {
	if n := len(l); n > 0 && l[n-1].Tone == tone {
		return append(l[:n-1:n-1], Span{l[n-1].Text + text, tone})
	}
	return append(slices.Clip(l), Span{text, tone})
}

// Indent returns the line moved to the right.
func (l Line) Indent(columns int) Line {
	return append(Of(strings.Repeat(" ", columns)), l...)
}

// Width is how many columns the line takes.
func (l Line) Width() int {
	width := 0
	for _, s := range l {
		width += Width(s.Text)
	}
	return width
}

// Width is how many columns a text takes once it is safe.
func Width(s string) int { return uniseg.StringWidth(Safe(s)) }

// Safe is the text as one line in which every character shows: a newline as \n, an escape as \x1b.
func Safe(s string) string { return outcome.CleanLine(s) }

// Options say how lines are rendered.
type Options struct {
	// Width is how many columns there are; 0 when lines are not cut, as in a file.
	Width int
	// Colour is true where tones are shown.
	Colour bool
}

// Render makes the line safe, cuts it to the width and colours it.
func (l Line) Render(o Options) string {
	var b strings.Builder
	left, cut := o.Width, o.Width > 0 && l.Width() > o.Width
	if cut {
		left-- // for the mark
	}
	for _, s := range l {
		text := Safe(s.Text)
		if cut {
			text = fit(text, left)
			left -= uniseg.StringWidth(text)
		}
		b.WriteString(paint(text, s.Tone, o.Colour))
		if cut && text != Safe(s.Text) {
			break
		}
	}
	if cut {
		b.WriteString("…")
	}
	return strings.TrimRight(b.String(), " ")
}

// Render renders lines.
func Render(lines []Line, o Options) []string {
	rendered := make([]string, 0, len(lines))
	for _, l := range lines {
		rendered = append(rendered, l.Render(o))
	}
	return rendered
}

// Print is what a program writes for lines: each ends with a newline.
func Print(lines []Line, o Options) string {
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(l.Render(o))
		b.WriteByte('\n')
	}
	return b.String()
}

// fit is the longest beginning of a safe text that takes at most so many columns.
func fit(s string, columns int) string {
	end, state := 0, -1
	for rest := s; rest != ""; {
		var cluster string
		var width int
		cluster, rest, width, state = uniseg.FirstGraphemeClusterInString(rest, state)
		if columns -= width; columns < 0 {
			break
		}
		end += len(cluster)
	}
	return s[:end]
}

func paint(s string, tone Tone, colour bool) string {
	if !colour || codes[tone] == "" || s == "" {
		return s
	}
	return "\x1b[" + codes[tone] + "m" + s + "\x1b[0m"
}
