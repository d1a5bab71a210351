// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package report converts measurements to JSON, Markdown and a plot. All of it is pure.
package report

import (
	"fmt"
	"time"
)

// Head says where a report is from.
type Head struct {
	Command string  `json:"command"`
	Date    string  `json:"date"`
	Commit  string  `json:"commit"`
	Machine Machine `json:"machine"`
	Nodes   int     `json:"nodes"`
	// Pairs is the number of measurements of each subject in each mode.
	Pairs int `json:"pairs"`
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

// Report is what was measured, as figures.json has it.
type Report struct {
	Head
	// Columns name the values of Run.Percentiles.
	Columns []string `json:"columns"`
	Runs    []Run    `json:"runs"`
	// BaseNodes is the smaller number of nodes on which the subjects were also measured, as Base; 0 if they were not.
	BaseNodes int   `json:"baseNodes,omitempty"`
	Base      []Run `json:"base,omitempty"`
	// Simulator is the check that the simulator of nodes is not the bottleneck; nil if it was not executed.
	Simulator *Run `json:"simulator,omitempty"`
}

// New returns a report without runs.
func New(head Head) *Report {
	return &Report{Head: head, Columns: []string{"p50", "p90", "p99", "p100"}}
}

// Mode defines what exists first.
type Mode string

const (
	// Existing nodes are Ready when the object is created.
	Existing Mode = "existing nodes"
	// Join storm: the object is there when all nodes are created at once.
	Join Mode = "join storm"
	// Real nodes exist, and run containers.
	Real Mode = "real nodes"
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
	// Plain is not compared: pods that are created in a plain loop show how fast the simulator of nodes is.
	Plain Subject = "simulator"
)

// Subjects returns those that are compared, in the order of the report.
func Subjects() []Subject {
	return []Subject{Floor, Recorded, DaemonSet, Everynode, Gated, Default, Unchecked}
}

// Run is the measurement of one subject in one mode. Simulated nodes get a control plane for each run.
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
	// Clients are the requests of the same time by client, if they were counted.
	Clients ClientCounts `json:"clients,omitempty"`
	// PodsCreated is larger than the number of nodes if a task ran twice.
	PodsCreated int   `json:"podsCreated"`
	Idle        *Idle `json:"idle,omitempty"`
	// Nodes contains for each node the seconds since the beginning at which each column was observed; 0 if it was not.
	Nodes [][]float64 `json:"-"`
	// Percentiles are those of the delays of each column, as Report.Columns says.
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
	Gone
	// Columns is their number.
	Columns
)

func columnNames() []string {
	return []string{"node created", "node Ready", "pod created", "pod Running", "pod ended", "node done", "pod gone"}
}

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
	Requests Counts `json:"requests,omitempty"`
}

// Idle is the cost after all work is done, with heartbeats only.
type Idle struct {
	Cost
	// Clients are the requests by client, in counted runs.
	Clients ClientCounts `json:"clients,omitempty"`
}

// Names of processes in the maps.
const (
	// Own is the subject's own process.
	Own       = "own"
	Labeler   = "labeler"
	Harness   = "harness"
	Simulator = "kwok"
)

// ControlCPU is the CPU time of the control plane, in seconds.
func (c *Cost) ControlCPU() float64 {
	return c.CPU["kube-apiserver"] + c.CPU["etcd"] + c.CPU["kube-controller-manager"] + c.CPU["kube-scheduler"]
}

// own returns the requests of the clients that are the subject's own.
func (s Subject) own(clients ClientCounts) Counts {
	switch s {
	case Floor, Recorded:
		return clients["everynode-bench-floor"]
	case DaemonSet:
		return clients["kube-controller-manager: daemon-set-controller"]
	default:
		return clients["everynode"]
	}
}

// SetNodes sets the observations of all nodes, and their percentiles.
func (r *Run) SetNodes(rows [][]float64) {
	r.Nodes, r.Percentiles = rows, map[string][]float64{}
	for column, name := range columnNames() {
		delays := r.Delays(column)
		if column == Joined || len(delays) == 0 {
			continue
		}
		for _, p := range []float64{50, 90, 99, 100} {
			r.Percentiles[name] = append(r.Percentiles[name], Rounded(Percentile(delays, p)))
		}
	}
}

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

// Intervals of kubelets, and the numbers of nodes up to which simulated nodes use them.
const (
	leaseEvery, leaseNodes   = 10 * time.Second, 1000
	statusEvery, statusNodes = 5 * time.Minute, 5000
)

// Heartbeats returns the intervals at which simulated nodes renew their leases and report their status. They are those of
// kubelets. With more nodes, the intervals grow, so that all heartbeats together cost the same: those of 15,000 nodes would
// need nine cores, and the machine would do nothing else.
func Heartbeats(nodes int) (lease, status time.Duration) {
	return leaseEvery * time.Duration(max(nodes, leaseNodes)) / leaseNodes, statusEvery * time.Duration(max(nodes, statusNodes)) / statusNodes
}

// heartbeatsOf says what Heartbeats returns.
func heartbeatsOf(nodes int) string {
	lease, status := Heartbeats(nodes)
	return fmt.Sprintf("a lease every %.0f s and a status every %.0f min from each node", lease.Seconds(), status.Minutes())
}
