// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package text renders lines for a terminal from untrusted data. A line consists of spans, and every span is made safe
// when the line is rendered, so that no caller can forget to do so. Text from a node, a task or another user cannot
// move the cursor, change colours or begin a line of its own. The package is pure.
//
// Nothing is shortened: Print and Fit break lines between words, and the last cell of a table is wrapped in its column. A word
// that is wider than the terminal, such as an identifier, is left to the terminal, so that it can be copied. Only a view that is
// redrawn in place must cut such a word, and its command prints the last view in full.
package text

import (
	"slices"
	"strings"

	"github.com/rivo/uniseg"

	"github.com/everynode/everynode/internal/outcome"
)

// Tone is the meaning of a span, which a terminal shows as a colour. The colour alone must not carry information.
type Tone uint8

// Tones.
const (
	Plain Tone = iota
	// Good marks a success.
	Good
	// Bad marks what needs a user to act.
	Bad
	// Warn marks what may need a user to act.
	Warn
	// Active marks what is in progress.
	Active
	// Dim marks secondary information.
	Dim
	// Strong marks the main information of the line.
	Strong
)

// codes are the eight standard colours, which every terminal supports and its user can configure.
var codes = [...]string{Plain: "", Good: "32", Bad: "31", Warn: "33", Active: "36", Dim: "2", Strong: "1"}

// Span is a piece of a line. Its text is untrusted.
type Span struct {
	Text string
	Tone Tone
	// Hang marks where the second and later lines begin if the line is wrapped.
	Hang bool
}

// Line is one line.
type Line []Span

// Of returns a line with one plain span.
func Of(text string) Line { return Line{{Text: text}} }

// Toned returns a line with one span.
func Toned(tone Tone, text string) Line { return Line{{Text: text, Tone: tone}} }

// With returns the line with an additional plain span.
func (l Line) With(text string) Line { return l.Tone(Plain, text) }

// Tone returns the line with an additional span, which is merged with the last one if both have the same tone.
func (l Line) Tone(tone Tone, text string) Line {
	if n := len(l); n > 0 && l[n-1].Tone == tone {
		last := l[n-1]
		last.Text += text
		return append(l[:n-1:n-1], last)
	}
	return append(slices.Clip(l), Span{Text: text, Tone: tone})
}

// Hanging returns the line with an additional part, to which the second and later lines are indented if the line is wrapped.
func (l Line) Hanging(part Line) Line {
	if len(part) == 0 {
		return l
	}
	n := len(l)
	l = append(slices.Clip(l), part...)
	l[n].Hang = true
	return l
}

// Indent returns the line with an indentation.
func (l Line) Indent(columns int) Line {
	return append(Of(strings.Repeat(" ", columns)), l...)
}

// Width returns how many columns the line needs.
func (l Line) Width() int {
	width := 0
	for _, s := range l {
		width += Width(s.Text)
	}
	return width
}

// Width returns how many columns a text needs after it is made safe.
func Width(s string) int { return uniseg.StringWidth(Safe(s)) }

// Safe returns the text as one line in which every character is visible: a newline as \n, an escape as \x1b.
func Safe(s string) string { return outcome.CleanLine(s) }

// Options are the options to render lines.
type Options struct {
	// Width is the number of columns; 0 for no limit, as in a file.
	Width int
	// Colour reports whether tones are shown as colours.
	Colour bool
}

// Render makes the line safe, cuts it to the width and adds colours.
func (l Line) Render(o Options) string {
	var b strings.Builder
	left, cut := o.Width, o.Width > 0 && l.Width() > o.Width
	if cut {
		left-- // for the mark of a cut line
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

// Print returns the text of lines for the output, wrapped to the width. Each ends with a newline.
func Print(lines []Line, o Options) string {
	var b strings.Builder
	for _, l := range Fit(lines, o.Width) {
		b.WriteString(l.Render(Options{Colour: o.Colour}))
		b.WriteByte('\n')
	}
	return b.String()
}

// fit returns the longest prefix of a safe text that needs at most this number of columns.
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
