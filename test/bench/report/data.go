// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package report converts measurements to JSON, Markdown and a plot. All of it is pure.
package report

import (
	"github.com/everynode/everynode/test/bench/measure"
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
	// BaseNodes is the smaller number of nodes on which the subjects were also measured, as Base; 0 if they were not.
	BaseNodes int   `json:"baseNodes,omitempty"`
	Base      []Run `json:"base,omitempty"`
	// Simulator is the check that the simulator of nodes is not the bottleneck; nil if it was not executed.
	Simulator *Run `json:"simulator,omitempty"`
}

// Machine is the environment of the measurement.
type Machine struct {
	CPU        string  `json:"cpu"`
	Cores      int     `json:"cores"`
	MemoryGiB  float64 `json:"memoryGiB"`
	Go         string  `json:"go"`
	Kubernetes string  `json:"kubernetes"`
	OS         string  `json:"os"`
}

// Mode defines what exists first.
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
	Unchecked Subject = "everynode-without-policies"
)

// Run is the measurement of one subject in one mode, on its own control plane.
type Run struct {
	Subject Subject `json:"subject"`
	Mode    Mode    `json:"mode"`
	Pair    int     `json:"pair"`
	// Counted reports whether the audit log of the API server was on. The log costs CPU, so only the requests by client of
	// such a run are used.
	Counted bool `json:"counted,omitempty"`
	// SetUp is the duration of the set-up. Wall is the time from the beginning until all nodes are done and all pods are
	// deleted. Complete is the time until the object reports completion; 0 if it never does. In seconds.
	SetUp    float64 `json:"setUpSeconds"`
	Wall     float64 `json:"wallSeconds"`
	Complete float64 `json:"completeSeconds,omitempty"`
	// Cost is the cost from the beginning to Tail seconds after the end.
	Cost Cost `json:"cost"`
	// PeakMiB is by process, from its start.
	PeakMiB map[string]float64 `json:"peakMiB"`
	// Clients are the requests of the same time by client, in counted runs.
	Clients measure.ClientCounts `json:"clients,omitempty"`
	// PodsCreated is larger than the number of nodes if a task ran twice.
	PodsCreated int   `json:"podsCreated"`
	Idle        *Idle `json:"idle,omitempty"`
	// Nodes contains for each node the seconds since the beginning at which each of Columns was observed; 0 if it was not.
	Nodes [][]float64 `json:"nodes,omitempty"`
	// Percentiles replace Nodes in a compact report: the delays of each column, as PercentileNames says.
	Percentiles map[string][]float64 `json:"percentiles,omitempty"`
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

// NewNode returns the row of a node without observations.
func NewNode() []float64 { return make([]float64, columns) }

// Tail is how long after the end costs are counted, so that deferred work is included.
const Tail = 2.0

// Cost is the cost of a period.
type Cost struct {
	Seconds float64 `json:"seconds"`
	// CPU seconds by process.
	CPU map[string]float64 `json:"cpuSeconds"`
	// MachineCPU is the CPU time of all processes of the machine, including unrelated ones.
	MachineCPU float64 `json:"machineCPUSeconds"`
	// Requests by verb and resource, as the API server counts them.
	Requests measure.Counts `json:"requests,omitempty"`
}

// Idle is the cost after all work is done, with heartbeats only.
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

// ControlPlane are the processes that every cluster has.
func ControlPlane() []string {
	return []string{"kube-apiserver", "etcd", "kube-controller-manager", "kube-scheduler"}
}

// sum returns the total usage of the processes.
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
	case Everynode, Gated, Default, Unchecked:
		return []string{"everynode"}
	}
	return nil
}

// Done returns a percentile of the delays until nodes are done.
func (r *Run) Done(p float64) float64 { return measure.Percentile(r.Delays(Done), p) }

// ControlCPU is the CPU time of the control plane, in seconds.
func (r *Run) ControlCPU() float64 { return sum(r.Cost.CPU, ControlPlane()...) }

// Delays returns the times of a column since the creation of the node, or since the beginning for an existing node.
func (r *Run) Delays(column int) []float64 {
	var delays []float64
	for _, node := range r.Nodes {
		if node[column] > 0 {
			delays = append(delays, node[column]-max(node[Joined], 0))
		}
	}
	return delays
}

// Between returns the times from one column to another.
func (r *Run) Between(from, to int) []float64 {
	var between []float64
	for _, node := range r.Nodes {
		if node[from] > 0 && node[to] > 0 {
			between = append(between, node[to]-node[from])
		}
	}
	return between
}
