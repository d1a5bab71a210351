// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"errors"
	"strings"
	"syscall"
	"time"

	"github.com/everynode/everynode/internal/cli/console"
	"github.com/everynode/everynode/internal/cli/term"
	"github.com/everynode/everynode/internal/text"
	"github.com/everynode/everynode/internal/ui/view"
)

// display writes the output of the nodes, and the progress.
type display struct {
	*console.Factory
	// screen is nil if the output cannot be redrawn.
	screen *term.Screen
	// printed are lines that will be written to the data output.
	printed strings.Builder
	said    string
	saidAt  time.Time
	// broken reports whether the output cannot be written. writeErr is the error of the write.
	broken   bool
	writeErr error
}

// closed reports whether the reader of the output has closed it.
func (d *display) closed() bool { return errors.Is(d.writeErr, syscall.EPIPE) }

// printLines adds lines of a node to those that will be written.
func (d *display) printLines(node string, lines []string) {
	prefix := text.Toned(text.Active, node).With(": ")
	for _, line := range lines {
		o := text.Options{Colour: d.Terminal().Colour}
		d.printed.WriteString(strings.TrimSuffix(prefix.With("x").Render(o), "x") + shown(line) + "\n")
	}
}

func (d *display) writePrinted() {
	if d.printed.Len() == 0 || d.broken {
		return
	}
	if _, err := d.Out.Write([]byte(d.printed.String())); err != nil {
		d.broken, d.writeErr = true, err
	}
	d.printed.Reset()
}

// say prints one line when something has changed, at a limited rate.
func (d *display) say(now time.Time, line text.Line) {
	said := text.Print([]text.Line{line}, text.Options{})
	if said == d.said || now.Sub(d.saidAt) < messageInterval {
		return
	}
	d.said, d.saidAt = said, now
	d.Tell(append(view.Stamp(now), line...))
}
