// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package text

import (
	"strings"
)

// gap separates the columns of a table.
const gap = 2

// Table aligns cells in columns. The last cell of a row is wrapped in its column. An empty row is an empty line.
func Table(rows [][]Line) []Line {
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], cell.Width())
		}
	}
	lines := make([]Line, 0, len(rows))
	for _, row := range rows {
		var line Line
		for i, cell := range row {
			if i == len(row)-1 {
				line = line.Hanging(cell)
				continue
			}
			line = append(append(line, cell...), Span{Text: strings.Repeat(" ", widths[i]-cell.Width()+gap)})
		}
		lines = append(lines, line)
	}
	return lines
}

// Cells returns a table row of plain texts.
func Cells(texts ...string) []Line {
	row := make([]Line, 0, len(texts))
	for _, t := range texts {
		row = append(row, Of(t))
	}
	return row
}

// Wrap breaks the text after a head between words, so that no line is wider than the options allow. A word that is wider than a
// line is broken too. The second and later lines are indented to the text, not to the head. Without a width, the result is one line.
func Wrap(head Line, tone Tone, s string, width int) []Line {
	indent := head.Width()
	room := width - indent
	if width <= 0 || room < minRoom {
		return []Line{head.Tone(tone, s)}
	}
	var lines []Line
	line, used := head, 0
	for word := range strings.FieldsSeq(Safe(s)) {
		size := Width(word)
		if used > 0 && used+1+size > room {
			lines = append(lines, line)
			line, used = Of(strings.Repeat(" ", indent)), 0
		}
		for size > room { // a view is cut to the width, so such a word must be broken
			part := fit(word, room)
			lines = append(lines, line.Tone(tone, part))
			line, word = Of(strings.Repeat(" ", indent)), word[len(part):]
			size = Width(word)
		}
		if used > 0 {
			word, size = " "+word, size+1
		}
		line, used = line.Tone(tone, word), used+size
	}
	return append(lines, line)
}

// minRoom is the minimum width for wrapped text, below which it is unreadable.
const minRoom = 20

// hanging is the indentation of the second and later lines of a sentence, relative to the first one.
const hanging = 2

// Fit breaks lines that are wider than the width between words. Without a width, the result is the lines.
func Fit(lines []Line, width int) []Line {
	if width <= 0 {
		return lines
	}
	var fitted []Line
	for _, line := range lines {
		fitted = append(fitted, WrapLine(line, width)...)
	}
	return fitted
}

// WrapLine breaks a line between words if it is wider than the width, and keeps the tones. Further lines are indented to the part
// that hangs, if there is room. A word that is wider than a line is left to the terminal. Without a width, the result is the line.
func WrapLine(l Line, width int) []Line {
	words := wordsOf(l)
	if width <= 0 || len(words) == 0 || l.Width() <= width {
		return []Line{l}
	}
	indent := words[0].gap + hanging
	if at := hangsAt(l); at > 0 && width-at >= minRoom {
		indent = at
	}
	if width-indent < minRoom {
		return []Line{l}
	}
	var lines []Line
	line := append(Of(strings.Repeat(" ", words[0].gap)), words[0].spans...)
	for _, word := range words[1:] {
		if line.Width()+word.gap+word.spans.Width() > width {
			lines = append(lines, line)
			line = append(Of(strings.Repeat(" ", indent)), word.spans...)
			continue
		}
		line = line.Tone(line[len(line)-1].Tone, strings.Repeat(" ", word.gap))
		for _, span := range word.spans {
			line = line.Tone(span.Tone, span.Text)
		}
	}
	return append(lines, line)
}

// hangsAt returns the column of the part that hangs; 0 if there is none.
func hangsAt(l Line) int {
	for i := range l {
		if l[i].Hang {
			return l[:i].Width()
		}
	}
	return 0
}

// word is a part of a line without spaces, and the number of spaces before it. It may have several tones.
type word struct {
	gap   int
	spans Line
}

// wordsOf splits a line into its words.
func wordsOf(l Line) []word {
	var words []word
	gap, open := 0, false
	for _, span := range l {
		for i, part := range strings.Split(Safe(span.Text), " ") {
			if i > 0 {
				gap, open = gap+1, false
			}
			switch {
			case part == "":
			case open:
				last := &words[len(words)-1]
				last.spans = last.spans.Tone(span.Tone, part)
			default:
				words = append(words, word{gap, Toned(span.Tone, part)})
				gap, open = 0, true
			}
		}
	}
	return words
}

// Lines returns the lines of an untrusted text, such as the end of an output.
func Lines(s string) []string {
	s = strings.ReplaceAll(strings.TrimRight(s, "\r\n"), "\r\n", "\n")
	if s == "" {
		return nil
	}
	return strings.Split(strings.ReplaceAll(s, "\t", "    "), "\n")
}

// Part is a part of a bar.
type Part struct {
	Count int
	Mark  byte
	Tone  Tone
}

// Bar draws the share of parts in their total. Every part that is not zero is visible: one failed node of 3,000 must
// not be rounded to nothing.
func Bar(columns int, parts ...Part) Line {
	total := 0
	for _, p := range parts {
		total += p.Count
	}
	line := Toned(Dim, "[")
	if total == 0 {
		return line.With(strings.Repeat(" ", columns)).Tone(Dim, "]")
	}
	for i, n := range share(columns, total, parts) {
		if n > 0 {
			line = line.Tone(parts[i].Tone, strings.Repeat(string(parts[i].Mark), n))
		}
	}
	return line.Tone(Dim, "]")
}

// share gives each part that is not zero one column, and distributes the rest in proportion. The rounding error goes to
// the largest part, where it is least visible.
func share(columns, total int, parts []Part) []int {
	left := columns
	for _, p := range parts {
		left -= min(p.Count, 1)
	}
	widths, rest, largest := make([]int, len(parts)), left, 0
	for i, p := range parts {
		extra := p.Count * max(left, 0) / total
		widths[i] = min(p.Count, 1) + extra
		if rest -= extra; p.Count > parts[largest].Count {
			largest = i
		}
	}
	widths[largest] += max(rest, 0)
	return widths
}
