// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package term

import (
	"fmt"
	"io"
	"strings"

	"github.com/everynode/everynode/internal/cli/text"
)

// Screen is a view at the end of a terminal that is drawn again in place. What was there before stays, as what a
// shell printed does. Every frame is one write of only the lines that have changed, within a synchronised update, so a
// slow link shows no half of a frame and nothing flickers.
type Screen struct {
	out      io.Writer
	terminal Terminal
	// shown are the lines of the last frame, as they were rendered for a width.
	shown   []string
	columns int
}

// NewScreen returns a screen, on which nothing is drawn yet.
func NewScreen(out io.Writer, terminal Terminal) *Screen {
	return &Screen{out: out, terminal: terminal}
}

// Sequences: a terminal that does not know one ignores it.
const (
	beginUpdate = "\x1b[?2026h" // synchronised update, as most terminals know it
	endUpdate   = "\x1b[?2026l"
	hideCursor  = "\x1b[?25l"
	showCursor  = "\x1b[?25h"
	noWrap      = "\x1b[?7l" // a line whose width the terminal sees otherwise must not become two
	wrap        = "\x1b[?7h"
	clearLine   = "\x1b[K"
	clearBelow  = "\x1b[J"
)

// Draw shows a frame in place of the last one. above are lines that come before it and stay. A frame that is higher
// than the terminal loses its end.
func (s *Screen) Draw(frame []text.Line, above ...text.Line) error {
	columns, rows := s.terminal.Size()
	o := text.Options{Width: columns, Colour: s.terminal.Colour}
	next := text.Render(fitRows(frame, rows), o)
	if columns != s.columns && len(s.shown) > 0 {
		// Lines of another width may have been wrapped by now, and nobody knows how many there are: the old frame is
		// left where it is, which is untidy for once and never wrong.
		s.shown = nil
	}
	s.columns = columns
	change := redraw(s.shown, append(text.Render(above, o), next...)) // what stays takes the place of the frame's first lines
	s.shown = next
	if change == "" {
		return nil
	}
	_, err := io.WriteString(s.out, beginUpdate+hideCursor+noWrap+change+wrap+showCursor+endUpdate)
	return err
}

// Keep leaves the last frame on the terminal: what is drawn next comes below.
func (s *Screen) Keep() { s.shown = nil }

// fitRows cuts a frame to the terminal's height: lines that have left it could not be reached any more.
func fitRows(frame []text.Line, rows int) []text.Line {
	room := rows - 1 // for the cursor
	if room < 2 || len(frame) <= room {
		return frame
	}
	cut := append([]text.Line(nil), frame[:room-1]...)
	return append(cut, text.Toned(text.Dim, fmt.Sprintf("… %d more lines: the terminal is too low", len(frame)-room+1)))
}

// redraw is what a terminal has to be told to show the next lines in place of those shown. The cursor is at the
// beginning of the line after the last, before and after; "" when nothing has changed.
func redraw(shown, next []string) string {
	var b strings.Builder
	first := 0
	for first < len(shown) && first < len(next) && shown[first] == next[first] {
		first++
	}
	if first == len(shown) && first == len(next) {
		return ""
	}
	if up := len(shown) - first; up > 0 {
		fmt.Fprintf(&b, "\x1b[%dA\r", up)
	}
	for i := first; i < len(next); i++ {
		if i >= len(shown) || shown[i] != next[i] {
			b.WriteString(next[i] + clearLine)
		}
		b.WriteString("\r\n")
	}
	if len(next) < len(shown) {
		b.WriteString(clearBelow)
	}
	return b.String()
}
