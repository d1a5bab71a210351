// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"strings"
	"testing"
)

func TestManyMarkdown(t *testing.T) {
	m := &Many{
		Head: Head{
			Command: "make bench-many", Date: "2026-11-22", Commit: "abc", Nodes: 1000, Machine: Machine{CPU: "AMD", Cores: 2, Go: "go1", Kubernetes: "v1"},
		},
		NodeJobs: 100, Seeded: 89, AtOnce: 5, MemoryLimit: "350MiB", Runs: 10000,
		Running: Cost{Seconds: 300, CPU: map[string]float64{Own: 57, "etcd": 100, "kube-apiserver": 200}},
		Idle:    Cost{Seconds: 60, CPU: map[string]float64{Own: 0.6}},
		PeakMiB: 300.4, PeakRunningMiB: 299.6, IdleMiB: 200, NotReady: []float64{0.1, 0.3, 0.2},
	}
	got := m.Markdown()
	for _, want := range []string{
		"| Kubernetes | v1, GOMEMLIMIT of the manager 350MiB |",
		"89 others found the same records on the nodes; the remaining 10 ran their tasks, 5 at once.",
		"| most memory of the manager | 350 MiB | 300 MiB (300 MiB until all tasks had run) |",
		"| runs |  | 10000 in 300 s |",
		"| CPU of the manager for each run |  | 5.70 ms |",
		"| CPU of the control plane for each run |  | 30.0 ms |",
		"| CPU of the manager at rest, with heartbeats | 2 % of a core | 1.00 % of a core (0.60 s in 60 s) |",
		"| CPU of the manager when a node turns NotReady and back | 300 ms | 200 ms (100–300) |",
		"| CPU of the manager when a node is cordoned and uncordoned |  | – |",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
}

func TestCommandLineMarkdown(t *testing.T) {
	got := CommandLineMarkdown(1000, []CommandLine{
		{FirstPod: 0.456, Done: 31.25, End: 52, PeakMiB: 91.6, Status: []float64{0.1, 0.257, 0.2}}, {FirstPod: 1},
	})
	const want = "| `run` on 1000 nodes | Goal | Run 1 | Run 2 |\n|---|---|---|---|\n" +
		"| first pod | 2 s | 0.46 s | 1.00 s |\n" +
		"| all nodes done |  | 31.2 s | 0.0 s |\n" +
		"| end of the command |  | 52.0 s | 0.0 s |\n" +
		"| memory at most | 150 MiB | 92 MiB | 0 MiB |\n" +
		"| `status` meanwhile, at most | 1 s | 0.26 s (of 3) | – (of 0) |\n\n"
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}
