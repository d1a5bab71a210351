// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package browser_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func percent(s string) *intstr.IntOrString {
	value := intstr.Parse(s)
	return &value
}

// removeAll removes the nodes of a test.
func removeAll(t *testing.T) {
	t.Helper()
	if err := admin.DeleteAllOf(context.Background(), &corev1.Node{}, client.GracePeriodSeconds(0)); err != nil {
		t.Error(err)
	}
}

// TestPictures looks at fleets of several sizes, in both themes and on a small screen.
func TestPictures(t *testing.T) {
	dir := *pictures
	if dir == "" {
		dir = t.TempDir()
	}
	for _, n := range []int{4, 60, 5000} {
		if n == 5000 && *pictures == "" {
			continue // they take half a minute
		}
		t.Run(fmt.Sprintf("%d nodes", n), func(t *testing.T) {
			rolling(t, n)
			address := dashboard(t, asAdmin)
			for _, width := range []int{1280, 390} {
				for _, dark := range []bool{false, true} {
					theme := map[bool]string{false: "light", true: "dark"}[dark]
					tab := open(t, address, width, map[int]int{1280: 800, 390: 844}[width], dark)
					see(t, tab, fmt.Sprintf("document.querySelectorAll('[role=option]').length === %d", n))
					see(t, tab, "document.querySelectorAll('#jobs li').length === 4")
					shoot(t, tab, dir, fmt.Sprintf("fleet-%d-%d-%s.png", n, width, theme))
					do(t, tab, "location.hash = '#/job/default/max-map-count'")
					see(t, tab, "document.querySelector('#job-status .rows')")
					shoot(t, tab, dir, fmt.Sprintf("job-%d-%d-%s.png", n, width, theme))
					do(t, tab, fmt.Sprintf("location.hash = '#/job/default/max-map-count/node/node-%d'", n/2))
					see(t, tab, "document.querySelector('#node .card')")
					shoot(t, tab, dir, fmt.Sprintf("node-%d-%d-%s.png", n, width, theme))
					fits(t, tab)
					for _, problem := range tab.Problems() {
						t.Error(problem)
					}
				}
			}
		})
	}
}

func shoot(t *testing.T, tab interface{ Screenshot(string) error }, dir, name string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, name)
	if err := errors.Join(tab.Screenshot(path), shrink(path)); err != nil {
		t.Fatal(err)
	}
}

// shrink reduces a picture to its 128 most frequent colors, which makes its file about four times smaller.
func shrink(path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	picture, err := png.Decode(bytes.NewReader(content))
	if err != nil {
		return err
	}
	bounds, counts := picture.Bounds(), map[color.Color]int{}
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			counts[picture.At(x, y)]++
		}
	}
	colors := slices.Collect(maps.Keys(counts))
	slices.SortFunc(colors, func(a, b color.Color) int { return counts[b] - counts[a] })
	small := image.NewPaletted(bounds, colors[:min(len(colors), 128)])
	draw.Draw(small, bounds, picture, bounds.Min, draw.Src)
	var out bytes.Buffer
	encoder := png.Encoder{CompressionLevel: png.BestCompression}
	if err := encoder.Encode(&out, small); err != nil {
		return err
	}
	return os.WriteFile(path, out.Bytes(), 0o600)
}

// fits checks that nothing is wider than the page.
func fits(t *testing.T, tab interface{ Evaluate(string, any) error }) {
	t.Helper()
	var wide int
	if err := tab.Evaluate("document.documentElement.scrollWidth - innerWidth", &wide); err != nil || wide > 0 {
		t.Errorf("the page is %d pixels too wide: %v", wide, err)
	}
}

// TestFirstPaint measures, with -measure, the time until a tab shows many nodes, and until it shows a change.
func TestFirstPaint(t *testing.T) {
	if !*measure {
		t.Skip("it measures only with -measure")
	}
	for _, size := range []struct{ nodes, jobs int }{{1000, 3}, {5000, 3}, {5000, 100}} {
		t.Run(fmt.Sprintf("%d nodes and %d NodeJobs", size.nodes, size.jobs), func(t *testing.T) {
			f := rollingBeside(t, size.nodes, size.jobs-3)
			address := dashboard(t, asAdmin)
			began := time.Now()
			tab := open(t, address, 1280, 800, false)
			see(t, tab, fmt.Sprintf("%s.length === %d", cells, size.nodes))
			t.Logf("all objects are listed, and a tab shows them, after %.1f s", time.Since(began).Seconds())
			for range 5 {
				tab := open(t, address, 1280, 800, false)
				see(t, tab, fmt.Sprintf("%s.length === %d", cells, size.nodes))
				var shown, nodes float64
				if err := tab.Evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime", &shown); err != nil {
					t.Fatal(err)
				}
				if err := tab.Evaluate("performance.getEntriesByName('nodes')[0].startTime", &nodes); err != nil {
					t.Fatal(err)
				}
				t.Logf("first paint after %.0f ms, all nodes after %.0f ms", shown, nodes)
			}
			for i := size.nodes - 5; i < size.nodes; i++ {
				f.finish(f.jobs[1], i)
				began := time.Now()
				f.finish(f.jobs[2], i)
				see(t, tab, fmt.Sprintf(`document.querySelector('[data-key="node-%d"]').dataset.state === "done"`, i+1))
				t.Logf("a node that is done is shown as done after %.1f s", time.Since(began).Seconds())
			}
		})
	}
}
