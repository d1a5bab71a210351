// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"flag"
	"strings"
	"testing"
	"time"

	"github.com/everynode/everynode/internal/text"
)

var update = flag.Bool("update", false, "write what is drawn to testdata")

// now is the time of all golden outputs.
var now = time.Date(2026, 7, 1, 12, 30, 0, 0, time.UTC)

func before(d time.Duration) time.Time { return now.Add(-d) }

// drawn compares whole outputs: with 80 and 200 columns, in a file, and in color.
func drawn(t *testing.T, name string, draw func(width int) []text.Line) {
	t.Helper()
	for suffix, o := range map[string]text.Options{
		"80": {Width: 80}, "200": {Width: 200}, "file": {}, "80-colour": {Width: 80, Colour: true},
	} {
		got := text.Print(draw(o.Width), o)
		for line := range strings.Lines(got) {
			if width := text.Width(strip(strings.TrimSuffix(line, "\n"))); o.Width > 0 && width > o.Width {
				t.Errorf("%s at %s: %d columns: %s", name, suffix, width, line)
			}
		}
		golden(t, name+"."+suffix, got)
	}
}

// strip removes the colors.
func strip(s string) string {
	for {
		before, after, found := strings.Cut(s, "\x1b[")
		if !found {
			return s
		}
		_, after, _ = strings.Cut(after, "m")
		s = before + after
	}
}
