// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Sizes of the plot, in pixels.
const (
	panelWidth, panelHeight = 420, 260
	marginLeft, marginTop   = 60, 50
	gap, foot               = 70, 90
	bottom                  = marginTop + panelHeight
)

// colors are distinguishable for color-blind readers (Okabe and Ito's palette).
var colors = map[Subject]string{
	Floor: "#000000", Recorded: "#999999", DaemonSet: "#E69F00", Everynode: "#0072B2", Gated: "#009E73", Default: "#CC79A7", Unchecked: "#D55E00",
}

// Plot shows in SVG what part of the nodes is done after how many seconds, in the run of each subject whose wall time is
// the median; one panel for each mode.
func Plot(r *Report) string {
	w := &writer{Report: r}
	width, height := marginLeft+2*panelWidth+gap+20, bottom+foot
	w.line(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`, width, height, width, height)
	w.line(`<rect width="%d" height="%d" fill="white"/>`, width, height)
	w.panel(Existing, marginLeft)
	w.panel(Join, marginLeft+panelWidth+gap)
	x := marginLeft
	for _, s := range Subjects() {
		if s == Unchecked && !slices.ContainsFunc(r.Runs, func(run Run) bool { return run.Subject == s }) {
			continue // it is measured only on request
		}
		w.line(`<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="%s" stroke-width="3"/><text x="%d" y="%d">%s</text>`,
			x, height-20, x+24, height-20, colors[s], x+30, height-16, s)
		x += 152
	}
	w.line("</svg>")
	return w.String()
}

// panel draws one mode with its left edge at x.
func (w *writer) panel(mode Mode, x int) {
	runs := map[Subject]*Run{}
	longest := 1.0
	for _, s := range Subjects() {
		if run := typical(w.of(s, mode, false)); run != nil {
			runs[s] = run
			longest = max(longest, run.Wall)
		}
	}
	step := tick(longest)
	longest = math.Ceil(longest/step) * step
	w.line(`<text x="%d" y="%d" font-size="15">%s: %d</text>`, x, marginTop-15, mode, w.Nodes)
	for share := 0; share <= 100; share += 25 {
		y := bottom - panelHeight*share/100
		w.line(`<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="#ddd"/><text x="%d" y="%d" text-anchor="end">%d %%</text>`,
			x, y, x+panelWidth, y, x-6, y+4, share)
	}
	for second := 0.0; second <= longest; second += step {
		at := float64(x) + panelWidth*second/longest
		w.line(`<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#ddd"/><text x="%.1f" y="%d" text-anchor="middle">%g s</text>`,
			at, marginTop, at, bottom, at, bottom+18, second)
	}
	w.line(`<text x="%d" y="%d">nodes done, by the time since the beginning</text>`, x, bottom+38)
	for _, s := range Subjects() {
		if runs[s] != nil {
			w.line(`<polyline fill="none" stroke="%s" stroke-width="2" points="%s"/>`, colors[s], curve(runs[s], x, longest))
		}
	}
}

// typical is the run whose wall time is the median, or the lower one of two in the middle; nil without runs.
func typical(runs []Run) *Run {
	if len(runs) == 0 {
		return nil
	}
	slices.SortFunc(runs, func(a, b Run) int { return cmp.Compare(a.Wall, b.Wall) })
	return &runs[(len(runs)-1)/2]
}

// tick is the distance of two lines, so that there are at most ten.
func tick(longest float64) float64 {
	for _, step := range []float64{1, 2, 5, 10, 20, 50, 100, 200, 500} {
		if longest/step <= 10 {
			return step
		}
	}
	return 1000
}

func curve(r *Run, x int, longest float64) string {
	const points = 100
	var done []float64
	for _, node := range r.Nodes {
		if node[Done] > 0 {
			done = append(done, node[Done])
		}
	}
	if len(done) == 0 {
		return ""
	}
	var at []string
	for i := range points + 1 {
		share := float64(i) / points
		at = append(at, fmt.Sprintf("%.1f,%.1f", float64(x)+panelWidth*Percentile(done, 100*share)/longest, marginTop+panelHeight*(1-share)))
	}
	return strings.Join(at, " ")
}
