// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package term

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/everynode/everynode/internal/text"
)

// glass emulates the part of a terminal that a screen uses: it shows what a user would see.
type glass struct {
	t      *testing.T
	lines  []string
	row    int
	writes int
}

func (g *glass) Write(p []byte) (int, error) {
	g.writes++
	s := string(p)
	if !strings.HasPrefix(s, beginUpdate) || !strings.HasSuffix(s, endUpdate) {
		g.t.Errorf("a frame is not a single write: %q", s)
	}
	for _, ignored := range []string{beginUpdate, endUpdate, hideCursor, showCursor, noWrap, wrap} {
		s = strings.ReplaceAll(s, ignored, "")
	}
	for s != "" {
		s = g.take(s)
	}
	return len(p), nil
}

// take executes the first control sequence or text of s.
func (g *glass) take(s string) string {
	var up int
	switch {
	case strings.HasPrefix(s, clearLine):
		return s[len(clearLine):]
	case strings.HasPrefix(s, clearBelow):
		g.lines = g.lines[:g.row]
		return s[len(clearBelow):]
	case strings.HasPrefix(s, "\r\n"):
		if g.row++; g.row > len(g.lines) {
			g.lines = append(g.lines, "")
		}
		return s[2:]
	case s[0] == '\r':
		return s[1:]
	}
	if n, _ := fmt.Sscanf(s, "\x1b[%dA", &up); n == 1 {
		g.row -= up
		return s[strings.IndexByte(s, 'A')+1:]
	}
	end := strings.IndexAny(s, "\x1b\r")
	if end < 1 {
		g.t.Fatalf("unknown sequence %q", s)
	}
	if g.row == len(g.lines) {
		g.lines = append(g.lines, "")
	}
	if !strings.HasPrefix(s[end:], clearLine) {
		g.t.Errorf("%q does not clear the end of the old line", s[:end])
	}
	g.lines[g.row] = s[:end]
	return s[end:]
}

func lines(texts ...string) []text.Line {
	var l []text.Line
	for _, t := range texts {
		l = append(l, text.Of(t))
	}
	return l
}

func TestAScreenShowsTheLastFrameAndTheLinesAbove(t *testing.T) {
	g := &glass{t: t}
	columns, rows := 20, 6
	s := NewScreen(g, Terminal{Interactive: true, Size: func() (int, int) { return columns, rows }})
	steps := []struct {
		name   string
		above  []text.Line
		frame  []text.Line
		want   []string
		writes int
	}{
		{"the first frame", nil, lines("a", "b", "c"), []string{"a", "b", "c"}, 1},
		{"the same again writes nothing", nil, lines("a", "b", "c"), []string{"a", "b", "c"}, 1},
		{"a line changes", nil, lines("a", "B", "c"), []string{"a", "B", "c"}, 2},
		{"a shorter frame", nil, lines("a"), []string{"a"}, 3},
		{"a line that stays", lines("node-1 ok"), lines("a", "b"), []string{"node-1 ok", "a", "b"}, 4},
		{"two more", lines("node-2 ok", "node-3 \x1b[2Jno"), lines("x"), []string{"node-1 ok", "node-2 ok", `node-3 \x1b[2Jno`, "x"}, 5},
		{
			"too wide",
			nil,
			lines(strings.Repeat("w", 30)),
			[]string{"node-1 ok", "node-2 ok", `node-3 \x1b[2Jno`, strings.Repeat("w", 19) + "…"},
			6,
		},
		{
			"too high",
			nil,
			lines("1", "2", "3", "4", "5", "6"),
			[]string{"node-1 ok", "node-2 ok", `node-3 \x1b[2Jno`, "1", "2", "3", "4", "… 2 more lines: the…"},
			7,
		},
	}
	for _, step := range steps {
		if err := s.Draw(step.frame, step.above...); err != nil {
			t.Fatal(err)
		}
		shown := g.lines
		if n := len(shown); n > 0 && shown[n-1] == "" {
			shown = shown[:n-1] // where the cursor is
		}
		if diff := cmp.Diff(step.want, shown); diff != "" {
			t.Errorf("%s: -want +got\n%s", step.name, diff)
		}
		if g.writes != step.writes {
			t.Errorf("%s: %d writes, not %d", step.name, g.writes, step.writes)
		}
	}
}

func TestALineThatDoesNotChangeIsNotWrittenAgain(t *testing.T) {
	var b bytes.Buffer
	s := NewScreen(&b, Terminal{Size: func() (int, int) { return 80, 24 }})
	if err := s.Draw(lines("stays-first", "12s", "stays-last")); err != nil {
		t.Fatal(err)
	}
	b.Reset()
	if err := s.Draw(lines("stays-first", "13s", "stays-last")); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String(), "stays") || !strings.Contains(b.String(), "13s") {
		t.Errorf("%q", b.String())
	}
}

func TestAFileIsNotATerminal(t *testing.T) {
	terminal := Of(&bytes.Buffer{}, func(string) string { return "" })
	if columns, rows := terminal.Size(); terminal.Interactive || terminal.Colour || columns != 0 || rows != 0 {
		t.Errorf("%+v, %d columns and %d rows", terminal, columns, rows)
	}
}
