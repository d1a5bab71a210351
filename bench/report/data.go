// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package report turns what was measured into JSON, Markdown and a plot. All of it is pure.
package report

import (
	"github.com/everynode/everynode/bench/measure"
)

// Report is all that was measured, as raw.json has it.
type Report struct {
	Command string  `json:"command"`
	Date    string  `json:"date"`
	Commit  string  `json:"commit"`
	Machine Machine `json:"machine"`
	Nodes   int     `json:"nodes"`
	Pairs   int     `json:"pairs"`
	// Columns name the values of Run.Nodes.
	Columns []string `json:"columns"`
	Runs    []Run    `json:"runs"`
	// Simulator is the check that the simulator of nodes is not what is measured; nil when it was not made.
	Simulator *Run `json:"simulator,omitempty"`
}

// Machine is what it was measured on, and with.
type Machine struct {
	CPU        string  `json:"cpu"`
	Cores      int     `json:"cores"`
	MemoryGiB  float64 `json:"memoryGiB"`
	Go         string  `json:"go"`
	Kubernetes string  `json:"kubernetes"`
	OS         string  `json:"os"`
}

// Mode says what is there first.
type Mode string

const (
	// Existing nodes are Ready when the object is created.
	Existing Mode = "existing nodes"
	// Join storm: the object is there when all nodes are created at once.
	Join Mode = "join storm"
)

// Subject is what is measured.
type Subject string

// The subjects, in the order of the report.
const (
	Floor     Subject = "floor"
	Recorded  Subject = "floor-recorded"
	DaemonSet Subject = "daemonset"
	Everynode Subject = "everynode"
	Gated     Subject = "everynode-gate"
	Default   Subject = "everynode-default"
)

// Run is one subject in one mode, on a control plane of its own.
type Run struct {
	Subject Subject `json:"subject"`
	Mode    Mode    `json:"mode"`
	Pair    int     `json:"pair"`
	// Counted is true for a run with the API server's audit log on, which costs it CPU: only its requests by client
	// are of use.
	Counted bool `json:"counted,omitempty"`
	// SetUp is how long the control plane and what was there first took; Wall from the beginning until all nodes
	// are done and no pod is left; Complete until the object says so, 0 where it says nothing. In seconds.
	SetUp    float64 `json:"setUpSeconds"`
	Wall     float64 `json:"wallSeconds"`
	Complete float64 `json:"completeSeconds,omitempty"`
	// Cost is from the beginning to Tail seconds after the end.
	Cost Cost `json:"cost"`
	// PeakMiB is by process, from its start.
	PeakMiB map[string]float64 `json:"peakMiB"`
	// Clients are the requests of the same time by client, in counted runs.
	Clients measure.ClientCounts `json:"clients,omitempty"`
	// PodsCreated is more than the nodes when something ran twice.
	PodsCreated int   `json:"podsCreated"`
	Idle        *Idle `json:"idle,omitempty"`
	// Nodes has for each node the seconds since the beginning at which each of Columns was seen; 0 when it was not.
	Nodes [][]float64 `json:"nodes"`
}

// Columns of Run.Nodes.
const (
	Joined = iota
	Ready
	Created
	Running
	Ended
	Done
	columns
)

// ColumnNames are those of the columns.
func ColumnNames() []string {
	return []string{"node created", "node Ready", "pod created", "pod Running", "pod ended", "node done"}
}

// NewNode is the row of a node of which nothing was seen yet.
func NewNode() []float64 { return make([]float64, columns) }

// Tail is how long after the end costs are counted, so that whoever leaves something to be done later pays for it.
const Tail = 2.0

// Cost is what a stretch of time has cost.
type Cost struct {
	Seconds float64 `json:"seconds"`
	// CPU seconds by process.
	CPU map[string]float64 `json:"cpuSeconds"`
	// MachineCPU is that of all processes of the machine, also of those that have nothing to do with it.
	MachineCPU float64 `json:"machineCPUSeconds"`
	// Requests by verb and resource, as the API server counts them.
	Requests measure.Counts `json:"requests"`
}

// Idle is what it costs when all is done and nothing happens but heartbeats.
type Idle struct {
	Cost
	// Clients are the requests by client, in counted runs.
	Clients measure.ClientCounts `json:"clients,omitempty"`
}

// Names of processes in the maps.
const (
	// Own is the subject's own process.
	Own       = "own"
	Labeler   = "labeler"
	Harness   = "harness"
	Simulator = "kwok"
)

// ControlPlane are the processes that a cluster has anyhow.
func ControlPlane() []string {
	return []string{"kube-apiserver", "etcd", "kube-controller-manager", "kube-scheduler"}
}

// sum adds up what the processes have used.
func sum(by map[string]float64, names ...string) float64 {
	total := 0.0
	for _, name := range names {
		total += by[name]
	}
	return total
}

// agents are the clients that are the subject's own, by the names they have in ClientCounts.
func (s Subject) agents() []string {
	switch s {
	case Floor, Recorded:
		return []string{"everynode-bench-floor"}
	case DaemonSet:
		return []string{"kube-controller-manager: daemon-set-controller"}
	case Everynode, Gated, Default:
		return []string{"everynode"}
	}
	return nil
}

// Delays are the times of a column since the node was there: since its creation, or, for one that was there before,
// since the beginning.
func (r *Run) Delays(column int) []float64 {
	var delays []float64
	for _, node := range r.Nodes {
		if node[column] > 0 {
			delays = append(delays, node[column]-max(node[Joined], 0))
		}
	}
	return delays
}

// Between are the times from one column to another.
func (r *Run) Between(from, to int) []float64 {
	var between []float64
	for _, node := range r.Nodes {
		if node[from] > 0 && node[to] > 0 {
			between = append(between, node[to]-node[from])
		}
	}
	return between
}
