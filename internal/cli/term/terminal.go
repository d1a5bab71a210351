// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package term is what a command needs of a terminal: whether there is one, how wide it is, whether it may be in
// colour, and a view on it that is drawn again and again.
package term

import (
	"io"
	"os"

	"golang.org/x/term"

	"github.com/everynode/everynode/internal/cli/text"
)

// Terminal is where a command's output goes.
type Terminal struct {
	// Interactive is true where lines can be drawn over: a terminal, and not a dumb one.
	Interactive bool
	// Colour is true where tones may be shown.
	Colour bool
	// Size returns columns and rows; 0 and 0 where there are none, as in a file. It may change at any time.
	Size func() (columns, rows int)
}

// Of looks at where output goes. NO_COLOR (no-color.org) with any value takes the colours away.
func Of(out io.Writer, getenv func(string) string) Terminal {
	file, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return Terminal{Size: func() (int, int) { return 0, 0 }}
	}
	dumb := getenv("TERM") == "dumb"
	return Terminal{
		Interactive: !dumb,
		Colour:      !dumb && getenv("NO_COLOR") == "",
		Size: func() (int, int) {
			columns, rows, err := term.GetSize(int(file.Fd()))
			if err != nil || columns <= 0 || rows <= 0 {
				return 80, 24 // a serial console does not say
			}
			return columns, rows
		},
	}
}

// Options are how lines are rendered there now.
func (t Terminal) Options() text.Options {
	columns, _ := t.Size()
	return text.Options{Width: columns, Colour: t.Colour}
}
