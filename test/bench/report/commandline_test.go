// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import "testing"

func TestCommandLineMarkdown(t *testing.T) {
	got := CommandLineMarkdown(1000, []CommandLine{
		{FirstPod: 0.456, Done: 31.25, End: 52, PeakMiB: 91.6, Status: []float64{0.1, 0.257, 0.2}}, {FirstPod: 1},
	})
	const want = "| `run` on 1000 nodes | Goal | Run 1 | Run 2 |\n|---|---|---|---|\n" +
		"| first pod | 2 s | 0.46 s | 1.00 s |\n" +
		"| all nodes done |  | 31.2 s | 0.0 s |\n" +
		"| end of the command |  | 52.0 s | 0.0 s |\n" +
		"| memory at most | 150 MiB | 92 MiB | 0 MiB |\n" +
		"| `status` meanwhile, at most | 1 s | 0.26 s (of 3) | 0.00 s (of 0) |\n"
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}
