// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the expected reports")

// example has round figures, so that the report can be checked by eye.
func example() *Report {
	r := &Report{Head: Head{
		Command: "make bench N=4 PAIRS=2", Date: "2026-03-01T12:00:00Z", Commit: "0123456", Nodes: 4, Pairs: 2,
		Machine: Machine{CPU: "A Processor", Cores: 2, MemoryGiB: 8, Go: "go1.26", Kubernetes: "v1.36.3", OS: "linux/amd64"},
	}}
	plain := Run{Subject: Plain, Mode: Existing}
	plain.Set(Times, Wall, 1.7)
	plain.Set(More, "a figure", 2)
	r.Runs = append(r.Runs, plain)
	for pair := range 2 {
		for _, mode := range []Mode{Existing, Join} {
			for i, s := range []Subject{Floor, Recorded, DaemonSet, Everynode, Gated, Default} {
				if s == Gated && mode == Existing {
					continue
				}
				r.Runs = append(r.Runs, run(s, mode, pair, float64(i+1)))
			}
		}
	}
	counted := run(Everynode, Existing, 2, 3)
	counted.Counted = true
	counted.SetRequests(ClientCounts{
		"everynode": {"create pods": 4, "patch nodes": 4, "patch pods": 4, "delete pods": 4, "update leases": 1, "get leases": 1},
		"kwok":      {"patch pods/status": 8},
		"kubectl":   {"get nodes": 0.1},
	}, 4)
	counted.SetRest(nil, ClientCounts{"everynode": {"update leases": 10, "patch nodes": 1}}, 30)
	counted.Only(Requests, Rest)
	r.Runs = append(r.Runs, counted)
	r.BaseNodes, r.Base = 2, []Run{run(Everynode, Existing, 0, 1)}
	return r
}

func run(s Subject, mode Mode, pair int, cost float64) Run {
	wall := 10*cost + float64(pair)
	r := Run{Subject: s, Mode: mode, Pair: pair}
	r.Set(Times, Wall, wall)
	for name, used := range map[string]float64{"kube-apiserver": 10 * cost, "etcd": cost, ControlPlane: 11 * cost, "kwok": 2, WholeMachine: wall} {
		r.Set(CPU, name, used)
	}
	r.Set(Memory, "etcd", 50*cost)
	if s != DaemonSet {
		r.Set(CPU, Own, cost)
		r.Set(Memory, Own, 20*cost)
	}
	if strings.HasPrefix(string(s), "everynode") {
		r.Set(Times, Complete, wall+1)
	}
	joined := -20.0
	if mode == Join {
		joined = 1
	}
	nodes := rows(joined, wall/4)
	if s == DaemonSet {
		for i := range nodes {
			nodes[i][Ended] = 0 // never seen
		}
	}
	r.SetNodes(nodes)
	if s == Everynode && mode == Existing {
		r.SetRest(map[string]float64{Own: 0.1, "kube-apiserver": 1}, nil, 30)
	}
	return r
}

// rows are four nodes that are done one after the other.
func rows(joined, step float64) []Seconds {
	var all []Seconds
	for i := range 4 {
		at := step * float64(i+1)
		all = append(all, Seconds{joined, joined + 0.5, at - 0.5, at - 0.4, at - 0.1, at, at + 0.1})
	}
	return all
}

func TestReport(t *testing.T) {
	for name, got := range map[string]string{"report.md": Markdown(example())} {
		file := filepath.Join("testdata", name)
		if *update {
			if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(got, "NaN") || strings.Contains(got, "Inf") {
			t.Errorf("%s has a figure that is no number", name)
		}
		if diff := firstDifference(string(want), got); diff != "" {
			t.Errorf("%s differs (go test ./report -update rewrites it): %s", name, diff)
		}
	}
}

func firstDifference(want, got string) string {
	wants, gots := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range max(len(wants), len(gots)) {
		a, b := "", ""
		if i < len(wants) {
			a = wants[i]
		}
		if i < len(gots) {
			b = gots[i]
		}
		if a != b {
			return fmt.Sprintf("line %d\nwant %s\n got %s", i+1, a, b)
		}
	}
	return ""
}

func TestAnEmptyReportIsValid(t *testing.T) {
	empty := &Report{Head: Head{Nodes: 10, Pairs: 1}}
	if text := Markdown(empty); !strings.Contains(text, "10 nodes") || strings.Contains(text, "NaN") {
		t.Errorf("it is\n%s", text)
	}
}

func TestHeartbeatsOfManyNodesAreRarer(t *testing.T) {
	for nodes, want := range map[int]string{
		100: "10s 5m0s", 1000: "10s 5m0s", 3000: "30s 5m0s", 5000: "50s 5m0s", 15000: "2m30s 15m0s",
	} {
		lease, status := Heartbeats(nodes)
		if got := fmt.Sprint(lease, " ", status); got != want {
			t.Errorf("%d nodes: %s, want %s", nodes, got, want)
		}
	}
}

func TestThePercentilesOfNodes(t *testing.T) {
	nodes := []Seconds{{-5, -4, 1, 2, 3, 4, 5}, {2, 3, 4, 5, 0, 7, 8}, {3, 0, 0, 0, 0, 0, 0}, {3, 4, 5, 6, 7, 6.5, 0}}
	tests := map[string]struct {
		subject Subject
		span    string
		want    string
	}{
		"since the creation of a node, or the beginning":    {Floor, "node done", "[4] [5]"},
		"what was before the beginning does not count":      {Floor, "node Ready", "[1] [1]"},
		"nodes are created after the beginning":             {Floor, "node created", "[3] [3]"},
		"between observations that were made, and never <0": {Floor, "pod ended to node done", "[0] [1]"},
		"a container of the DaemonSet ends later":           {DaemonSet, "pod ended to node done", "[] []"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := Run{Subject: tt.subject}
			r.SetNodes(nodes)
			section := Phases
			if tt.span == "node done" {
				section = Times
			}
			if got := fmt.Sprint(
				figures([]Run{r}, section, tt.span+" p50"),
				" ",
				figures([]Run{r}, section, tt.span+" p99"),
			); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}
