// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"strings"
	"testing"
)

func realExample() *Report {
	r := &Report{Head: Head{
		Command: "make bench-real PAIRS=2", Date: "2026-03-01T12:00:00Z", Commit: "0123456", Nodes: 2, Pairs: 2,
		Machine: Machine{CPU: "A Processor", Cores: 2, Go: "go1.26", Kubernetes: "v1.36.3"},
	}}
	for pair := range 2 {
		later := float64(pair)
		pattern := Run{Subject: DaemonSet, Mode: Real, Pair: pair}
		pattern.Set(Times, Wall, 4+later)
		pattern.SetRequests(ClientCounts{
			"kubelet": {
				"patch pods/status":            6,
				"get nodes":                    4,
				"patch nodes/status":           4,
				"update leases":                2,
				"create serviceaccounts/token": 2,
			},
			"kube-scheduler": {"create pods/binding": 2},
		}, 2)
		// The container ends after the label.
		pattern.SetNodes([]Seconds{{-1, -1, 0.1, 1, 1.6, 1.5, 3}, {-1, -1, 0.1, 1.2, 2.2, 2.1 + later, 4 + later}})
		ours := Run{Subject: Everynode, Mode: Real, Pair: pair}
		ours.Set(Times, Wall, 3+later)
		ours.SetRequests(
			ClientCounts{"kubelet": {"patch pods/status": 4, "get pods": 2}, "everynode": {"create pods": 2, "update leases": 1}},
			2,
		)
		// On one node, the container was never seen running.
		ours.SetNodes([]Seconds{{-1, -1, 0.2, 0.8, 0.9, 1, 2}, {-1, -1, 0.2, 0, 1, 1.1, 2.1}})
		r.Runs = append(r.Runs, pattern, ours)
	}
	return r
}

func TestRealMarkdown(t *testing.T) {
	got := Markdown(realExample())
	for _, want := range []string{
		"## Real nodes\n",
		"| Seconds | daemonset | everynode |",
		"| node done p50 | 1.50 (1.50–1.50) × – / 1.00 | 1.00 (1.00–1.00) × – / 0.67 |",
		"| node done p99 | 2.60 (2.10–3.10) × – / 1.00 | 1.10 (1.10–1.10) × – / 0.42 |",
		"| wall | 4.50 (4.00–5.00) × – / 1.00 | 3.50 (3.00–4.00) × – / 0.78 |",
		"| pod ended to node done p50 | – | 0.100 (0.10–0.10) |",
		"| all | 5.00 (5.00–5.00) × – / 1.00 | 4.00 (4.00–4.00) × – / 0.80 |",
		"| all writes | 5.00 (5.00–5.00) × – / 1.00 | 3.00 (3.00–3.00) × – / 0.60 |",
		"| kubelet patch pods/status | 3.00 (3.00–3.00) × – / 1.00 | 2.00 (2.00–2.00) × – / 0.67 |",
		"| heartbeats: kubelet patch nodes/status | 2.00 (2.00–2.00) × – / 1.00 | – |",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
	if strings.Contains(got, "NaN") || strings.Contains(got, "simulator") {
		t.Errorf("a figure is no number, or is one of simulated nodes, in\n%s", got)
	}
}

func TestHeartbeatsAreNotWork(t *testing.T) {
	tests := map[string]struct {
		client, what string
		want         bool
	}{
		"the lease of a node":             {"kubelet", "update leases", true},
		"the lease of a leader":           {"everynode", "update leases", true},
		"the status of a node":            {"kubelet", "patch nodes/status", true},
		"a read before that":              {"kubelet", "get nodes", true},
		"a record":                        {"everynode", "patch nodes", false},
		"a read of a node by the manager": {"everynode", "get nodes", false},
		"the status of a pod":             {"kubelet", "patch pods/status", false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := Heartbeat(tt.client, tt.what); got != tt.want {
				t.Errorf("got %v", got)
			}
		})
	}
}
