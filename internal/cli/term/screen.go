// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package term

import (
	"fmt"
	"io"
	"strings"

	"github.com/everynode/everynode/internal/text"
)

// Screen is a view at the end of a terminal that is redrawn in place. Earlier lines of the terminal stay. Every frame
// is a single write of the changed lines, within a synchronized update, so that nothing flickers even on a slow
// connection.
type Screen struct {
	out      io.Writer
	terminal Terminal
	// shown are the lines of the last frame, as rendered for a width.
	shown   []string
	columns int
}

// NewScreen returns an empty screen.
func NewScreen(out io.Writer, terminal Terminal) *Screen {
	return &Screen{out: out, terminal: terminal}
}

// Escape sequences. A terminal ignores those that it does not support.
const (
	beginUpdate = "\x1b[?2026h" // synchronized update, which most terminals support
	endUpdate   = "\x1b[?2026l"
	hideCursor  = "\x1b[?25l"
	showCursor  = "\x1b[?25h"
	noWrap      = "\x1b[?7l" // prevents a line break if the terminal computes a different width
	wrap        = "\x1b[?7h"
	clearLine   = "\x1b[K"
	clearBelow  = "\x1b[J"
)

// Draw replaces the last frame. above are lines that are printed before the frame and stay. If a frame is higher than
// the terminal, its end is cut.
func (s *Screen) Draw(frame []text.Line, above ...text.Line) error {
	columns, rows := s.terminal.Size()
	o := text.Options{Width: columns, Colour: s.terminal.Colour}
	next := text.Render(fitRows(text.Fit(frame, columns), rows), o)
	if columns != s.columns && len(s.shown) > 0 {
		// If the width has changed, old lines may have been wrapped, and their number is unknown. So the old frame stays
		// where it is.
		s.shown = nil
	}
	s.columns = columns
	change := redraw(s.shown, append(text.Render(text.Fit(above, columns), o), next...)) // the lines above replace the first lines of the frame
	s.shown = next
	if change == "" {
		return nil
	}
	_, err := io.WriteString(s.out, beginUpdate+hideCursor+noWrap+change+wrap+showCursor+endUpdate)
	return err
}

// fitRows cuts a frame to the height of the terminal, because lines that have scrolled off cannot be redrawn.
func fitRows(frame []text.Line, rows int) []text.Line {
	room := rows - 1 // for the cursor
	if room < 2 || len(frame) <= room {
		return frame
	}
	cut := append([]text.Line(nil), frame[:room-1]...)
	return append(cut, text.Toned(text.Dim, fmt.Sprintf("… %d more lines: the terminal is too low", len(frame)-room+1)))
}

// redraw returns the output that replaces the shown lines with the next ones; "" if nothing has changed. Before and
// after it, the cursor is at the beginning of the line after the last one.
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
