// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package term provides what a command needs to know about a terminal: whether there is one, how wide it is and whether
// it may be in colour. It also provides a view on the terminal that is redrawn in place.
package term

import (
	"cmp"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/everynode/everynode/internal/text"
)

// Terminal is the output of a command.
type Terminal struct {
	// Interactive reports whether lines can be redrawn: the output is a terminal, and not a dumb one.
	Interactive bool
	// Colour reports whether tones may be shown as colours.
	Colour bool
	// Unicode reports whether the locale has more characters than ASCII.
	Unicode bool
	// Size returns columns and rows; 0 and 0 if there are none, as in a file. The size may change at any time.
	Size func() (columns, rows int)
}

// Of returns the terminal of an output. NO_COLOR (no-color.org) with any value disables colours.
func Of(out io.Writer, getenv func(string) string) Terminal {
	file, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return Terminal{Unicode: isUnicode(getenv), Size: func() (int, int) { return 0, 0 }}
	}
	dumb := getenv("TERM") == "dumb"
	return Terminal{
		Interactive: !dumb,
		Unicode:     isUnicode(getenv),
		Colour:      !dumb && getenv("NO_COLOR") == "",
		Size: func() (int, int) {
			columns, rows, err := term.GetSize(int(file.Fd()))
			if err != nil || columns <= 0 || rows <= 0 {
				return 80, 24 // a serial console does not report its size
			}
			return columns, rows
		},
	}
}

// isUnicode reports whether the locale, the first of the variables that is set, uses UTF-8.
func isUnicode(getenv func(string) string) bool {
	locale := strings.ToUpper(cmp.Or(getenv("LC_ALL"), getenv("LC_CTYPE"), getenv("LANG")))
	return strings.HasSuffix(locale, "UTF-8") || strings.HasSuffix(locale, "UTF8")
}

// Options returns the current options to render lines.
func (t Terminal) Options() text.Options {
	columns, _ := t.Size()
	return text.Options{Width: columns, Colour: t.Colour}
}
