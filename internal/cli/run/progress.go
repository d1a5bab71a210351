// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"fmt"
	"strings"

	"github.com/everynode/everynode/internal/cli/cmdutil"
	"github.com/everynode/everynode/internal/cli/view"
	"github.com/everynode/everynode/internal/plural"
	"github.com/everynode/everynode/internal/text"
)

func (r *running) tellBegin() {
	if r.screen == nil {
		r.Tell(text.Of(fmt.Sprintf("NodeJob %s/%s runs %s on %s", r.job.Namespace, r.job.Name, r.what(), plural.Count(r.count(view.RunWaiting), "node"))))
	}
}

// note returns additional information that does not belong to a single node.
func (r *running) note() string {
	waited := r.Now().Sub(r.view.Began)
	switch {
	case r.disconnected != "":
		return r.disconnected
	case r.stops > 0:
		return r.stopping()
	case r.saved != nil && r.saved.err != nil:
		return "not everything can be saved: " + r.saved.err.Error()
	case !r.seen && waited > observeTimeout:
		return r.unobserved()
	case r.excludeErr != nil:
		return "the name of a deleted node could not be removed from the NodeJob, so a machine that registers with it runs the command; retrying: " + r.excludeErr.Error()
	}
	return r.noteOfTheRun()
}

// noteOfTheRun returns what lasts longer, or is less urgent.
func (r *running) noteOfTheRun() string {
	if r.logsForbidden != nil {
		return r.logsForbidden.Error() + "; what is shown of output is what is on record, at most the last 1024 bytes"
	}
	if stalled := cmdutil.Stalled(r.job); stalled != nil && !r.finished() {
		return stalled.Message
	}
	return ""
}

// printLine adds a line of a node to the lines that will be written.
func (r *running) printLine(i int, line string) {
	terminal := r.Terminal()
	prefix := text.Toned(text.Active, r.view.Nodes[i].Name).With(": ")
	o := text.Options{Colour: terminal.Colour}
	r.printed.WriteString(strings.TrimSuffix(prefix.With("x").Render(o), "x") + shown(line) + "\n")
}

// draw writes the lines that were printed, and the progress.
func (r *running) draw() {
	r.view.Now, r.view.Note = r.Now(), r.note()
	r.reportEnded(false)
	if r.screen == nil {
		r.writePrinted()
		r.say()
		return
	}
	if r.printed.Len() > 0 && r.Terminal().Interactive {
		_ = r.screen.Draw(nil) // clear the screen first; data is never cut to the width of the terminal
	}
	r.writePrinted()
	r.view.Width, _ = r.Terminal().Size()
	_ = r.screen.Draw(r.view.Frame())
}

func (r *running) writePrinted() {
	if r.printed.Len() == 0 || r.broken {
		return
	}
	if _, err := r.Out.Write([]byte(r.printed.String())); err != nil {
		r.broken, r.writeErr = true, err
	}
	r.printed.Reset()
}

// say prints one line when something has changed, at a limited rate.
func (r *running) say() {
	now := r.Now()
	line := r.view.Summary()
	said := text.Print([]text.Line{line}, text.Options{})
	if said == r.said || now.Sub(r.saidAt) < messageInterval {
		return
	}
	r.said, r.saidAt = said, now
	r.Tell(append(view.Stamp(now), line...))
}
