// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package report converts measurements to JSON, Markdown and a plot. All of it is pure.
package report

import (
	"fmt"
	"math"
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
	// CommandLine is a run of kubectl everynode, and Many are many NodeJobs.
	CommandLine Subject = "command-line"
	Many        Subject = "many"
	// Plain are pods that are created in a plain loop, to show how fast the simulator of nodes is.
	Plain Subject = "simulator"
)

// Subjects returns all of them, in the order of the report.
func Subjects() []Subject {
	return []Subject{Floor, Recorded, DaemonSet, Everynode, Gated, Default, Unchecked, CommandLine, Many, Plain}
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
	// More are figures that only this subject has.
	More []Figure `json:"more,omitempty"`
	// Percentiles are those of the nodes, in seconds, as Report.Columns says.
	Percentiles map[string][]float64 `json:"percentiles,omitempty"`
}

// Figure is a figure of a run. Several may have the same name.
type Figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
}

// Observations of a node.
const (
	Joined = iota
	Ready
	Created
	Running
	Ended
	Done
	Gone
	// Observations is their number.
	Observations
)

// Seconds are the times since the beginning of a run; 0 for what was not observed.
type Seconds [Observations]float64

// spans are the times of which there are percentiles. What is since the creation of the node is since the beginning for an
// existing node.
var spans = []struct {
	name     string
	from, to int
}{
	{"node created", Joined, Joined}, // since the beginning
	{"node Ready", Joined, Ready},
	{"pod created", Joined, Created},
	{"pod Running", Joined, Running},
	{"pod ended", Joined, Ended},
	{"node done", Joined, Done},
	{"pod gone", Joined, Gone},
	{"pod created to Running", Created, Running},
	{"Running to ended", Running, Ended},
	{"pod ended to node done", Ended, Done},
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

// SetNodes sets the percentiles of all nodes. The container of a pod of the DaemonSet ends after the node is done.
func (r *Run) SetNodes(nodes []Seconds) {
	r.Percentiles = map[string][]float64{}
	for _, span := range spans {
		var all []float64
		for _, node := range nodes {
			begin := max(node[span.from], 0)
			switch {
			case node[span.to] <= 0, span.from != Joined && begin == 0, span.from == Ended && r.Subject == DaemonSet:
			case span.from == span.to:
				all = append(all, node[span.to])
			default:
				all = append(all, max(node[span.to]-begin, 0)) // nodes and pods are observed by two watches
			}
		}
		for _, p := range []float64{50, 90, 99, 100} {
			if len(all) > 0 {
				r.Percentiles[span.name] = append(r.Percentiles[span.name], math.Round(1000*Percentile(all, p))/1000)
			}
		}
	}
}

// Percentile returns one of "p50", "p90", "p99" and "p100" of a span by its index; NaN if it was not observed.
func (r *Run) Percentile(span string, i int) float64 {
	if all := r.Percentiles[span]; i < len(all) {
		return all[i]
	}
	return math.NaN()
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
