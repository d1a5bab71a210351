// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func realExample() *Report {
	r := New(Head{
		Command: "make bench-real PAIRS=2", Date: "2026-03-01T12:00:00Z", Commit: "0123456", Nodes: 2, Pairs: 2,
		Machine: Machine{CPU: "A Processor", Cores: 2, Go: "go1.26", Kubernetes: "v1.36.3"},
	})
	for pair := range 2 {
		later := float64(pair)
		r.Runs = append(r.Runs, Run{
			Subject: DaemonSet, Mode: Real, Pair: pair, Wall: 4 + later,
			// The container ends after the label.
			Nodes: [][]float64{{-1, -1, 0.1, 1, 1.6, 1.5, 3}, {-1, -1, 0.1, 1.2, 2.2, 2.1 + later, 4 + later}},
			Clients: ClientCounts{
				"kubelet":        {"patch pods/status": 6, "get nodes": 4, "patch nodes/status": 4, "update leases": 2, "create serviceaccounts/token": 2},
				"kube-scheduler": {"create pods/binding": 2},
			},
		}, Run{
			Subject: Everynode, Mode: Real, Pair: pair, Wall: 3 + later,
			// On one node, the container was never seen running.
			Nodes:   [][]float64{{-1, -1, 0.2, 0.8, 0.9, 1, 2}, {-1, -1, 0.2, 0, 1, 1.1, 2.1}},
			Clients: ClientCounts{"kubelet": {"patch pods/status": 4, "get pods": 2}, "everynode": {"create pods": 2, "update leases": 1}},
		})
	}
	return r
}

func TestRealMarkdown(t *testing.T) {
	got := RealMarkdown(realExample())
	for _, want := range []string{
		"| daemonset | 1.50 (1.50–1.50) | 2.60 (2.10–3.10) | 4.50 (4.00–5.00) | – | 5.0 (5.0–5.0) | 5.0 (5.0–5.0) |",
		"| everynode | 1.00 (1.00–1.00) | 1.10 (1.10–1.10) | 3.50 (3.00–4.00) | 100 (100–100) | 4.0 (4.0–4.0) | 3.0 (3.0–3.0) |",
		"| × the DaemonSet | 0.67 | 0.42 | 0.78 | – | 0.80 | 0.60 |",
		"| daemonset | 100 | 900 | – | 500 | 1500 |",
		"| everynode | 200 | 600 (2 of 4) | 100 | 100 | 1000 |",
		"| daemonset | kubelet | **4.00**: patch pods/status 3.00, create serviceaccounts/token 1.00 |",
		"| daemonset | heartbeats | **5.00**: kubelet get nodes 2.00, kubelet patch nodes/status 2.00, kubelet update leases 1.00 |",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
	if strings.Contains(got, "NaN") {
		t.Errorf("a figure is no number in\n%s", got)
	}
}

func TestAPhaseCountsFromTheLastOneThatWasSeen(t *testing.T) {
	turn := Run{Subject: Everynode, Nodes: [][]float64{{-1, -1, 1, 0, 3, 3.5, 5}}}
	for column, want := range map[int]float64{Created: 1, Ended: 2, Done: 0.5, Gone: 1.5} {
		if got := turn.since(column); len(got) != 1 || got[0] != want {
			t.Errorf("%s: %v, want %v", columnNames()[column], got, want)
		}
	}
	if got := turn.since(Running); got != nil {
		t.Errorf("a phase that was not seen took %v", got)
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

func TestSinceIsNeverNegative(t *testing.T) {
	node := make([]float64, Columns)
	node[Created], node[Running], node[Done] = 1, 3, 2 // the label is seen before the container runs
	turn := Run{Subject: DaemonSet, Nodes: [][]float64{node}}
	if diff := cmp.Diff([]float64{1}, turn.since(Done)); diff != "" {
		t.Errorf("since the creation of the pod (-want +got):\n%s", diff)
	}
}
