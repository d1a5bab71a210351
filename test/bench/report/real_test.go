// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"strings"
	"testing"
)

func realExample() *Report {
	r := New(Head{
		Command: "make bench-real PAIRS=2", Date: "2026-03-01T12:00:00Z", Commit: "0123456", Nodes: 2, Pairs: 2,
		Machine: Machine{CPU: "A Processor", Cores: 2, Go: "go1.26", Kubernetes: "v1.36.3"},
	})
	for pair := range 2 {
		later := float64(pair)
		pattern := Run{
			Subject: DaemonSet, Mode: Real, Pair: pair, Wall: 4 + later,
			Clients: ClientCounts{
				"kubelet":        {"patch pods/status": 6, "get nodes": 4, "patch nodes/status": 4, "update leases": 2, "create serviceaccounts/token": 2},
				"kube-scheduler": {"create pods/binding": 2},
			},
		}
		// The container ends after the label.
		pattern.SetNodes([]Seconds{{-1, -1, 0.1, 1, 1.6, 1.5, 3}, {-1, -1, 0.1, 1.2, 2.2, 2.1 + later, 4 + later}})
		ours := Run{
			Subject: Everynode, Mode: Real, Pair: pair, Wall: 3 + later,
			Clients: ClientCounts{"kubelet": {"patch pods/status": 4, "get pods": 2}, "everynode": {"create pods": 2, "update leases": 1}},
		}
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
		"| daemonset | 1.50 (1.50–1.50) × – / 1.00 | 2.60 (2.10–3.10) × – / 1.00 | 4.50 (4.00–5.00) × – / 1.00 | 0.0 (0.0–0.0) × – / – | – | – | – | 0.00 (0.00–0.00) | 0.00 (0.00–0.00) | 5.00 (5.00–5.00) | 5.00 (5.00–5.00) |",
		"| everynode | 1.00 (1.00–1.00) × – / 0.67 | 1.10 (1.10–1.10) × – / 0.42 | 3.50 (3.00–4.00) × – / 0.78 |",
		" | 4.00 (4.00–4.00) | 3.00 (3.00–3.00) |\n",
		"| everynode | 0.200 / 0.200 / 0.200 | 0.800 / 0.800 / 0.800 | 1.000 / 1.100 / 1.100 | 2.000 / 2.100 / 2.100 | 0.100 / 0.100 / 0.100 |",
		"| daemonset | kubelet | **4.00**: patch pods/status 3.00, create serviceaccounts/token 1.00 |",
		"| daemonset | heartbeats | **5.00**: kubelet get nodes 2.00, kubelet patch nodes/status 2.00, kubelet update leases 1.00 |",
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
