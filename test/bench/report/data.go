// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package report converts measurements to JSON, Markdown and a plot. All of it is pure.
package report

import (
	"maps"
	"math"
	"slices"
	"strings"
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
	Runs []Run `json:"runs"`
	// BaseNodes is the smaller number of nodes on which the subjects were also measured, as Base; 0 if they were not.
	BaseNodes int   `json:"baseNodes,omitempty"`
	Base      []Run `json:"base,omitempty"`
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
	// Confirmed waits for a confirmation, and Reverted does not get one, because its task cuts the node off.
	Confirmed Subject = "everynode-confirm"
	Reverted  Subject = "everynode-revert"
	// CommandLine is a run of kubectl everynode, Many are many NodeJobs, Budget is a NodeDisruptionBudget, and Checks are checks
	// before the task.
	CommandLine Subject = "command-line"
	Many        Subject = "many"
	Budget      Subject = "budget"
	Checks      Subject = "checks"
	// Plain are pods that are created in a plain loop, to show how fast the simulator of nodes is.
	Plain Subject = "simulator"
)

// Subjects returns all of them, in the order of the report.
func Subjects() []Subject {
	return []Subject{Floor, Recorded, DaemonSet, Everynode, Gated, Default, Confirmed, Reverted, CommandLine, Many, Budget, Checks, Plain}
}

// Section is a kind of figures.
type Section string

// The sections, in the order of the report.
const (
	// Times are what a user waits for, since the creation of the object, or in a join storm of the node.
	Times Section = "Seconds"
	// Phases are all other times of nodes and pods.
	Phases Section = "Phases, in seconds"
	// CPU is by process, from the beginning to Tail seconds after the end.
	CPU Section = "CPU seconds"
	// Memory is the maximum by process, from its start.
	Memory Section = "Peak memory in MiB"
	// Requests are by client, verb and resource, from the audit log.
	Requests Section = "Requests per node"
	// Rest is when all work is done.
	Rest Section = "At rest, per minute"
	// More are figures that only some subjects have.
	More Section = "More"
	// Served are the requests by verb and resource, as the API server counts them. They are only in figures.json.
	Served Section = "Served requests"
)

// Tail is how many seconds after the end costs are counted, so that deferred work is included.
const Tail = 2

// Names of figures.
const (
	// Own is the subject's own process, and its own requests.
	Own          = "own"
	ControlPlane = "control plane"
	// WholeMachine are all processes of the machine, including unrelated ones.
	WholeMachine = "machine"
	// Wall is the time from the beginning until all nodes are done and all pods are deleted, and Complete the time until the
	// object reports completion.
	Wall     = "wall"
	Complete = "Complete"
)

// Run is the measurement of one subject in one mode. Simulated nodes get a control plane for each run.
type Run struct {
	Subject Subject `json:"subject"`
	Mode    Mode    `json:"mode"`
	Pair    int     `json:"pair"`
	// Counted reports whether the run was made to count requests by client. The audit log costs CPU, so the run has no other
	// figures.
	Counted bool `json:"counted,omitempty"`
	// Figures are by section and name.
	Figures map[Section]map[string]float64 `json:"figures"`
}

// Set sets a figure.
func (r *Run) Set(section Section, name string, value float64) {
	if r.Figures == nil {
		r.Figures = map[Section]map[string]float64{}
	}
	if r.Figures[section] == nil {
		r.Figures[section] = map[string]float64{}
	}
	r.Figures[section][name] = math.Round(1000*value) / 1000
}

// Only removes the figures of other sections.
func (r *Run) Only(sections ...Section) {
	maps.DeleteFunc(r.Figures, func(section Section, _ map[string]float64) bool { return !slices.Contains(sections, section) })
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

// SetNodes sets the percentiles of the times of all nodes. The container of a pod of the DaemonSet ends after the node is done.
func (r *Run) SetNodes(nodes []Seconds) {
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
		section := Phases
		if span.from == Joined && span.to == Done {
			section = Times
		}
		if len(all) > 0 {
			r.Set(section, span.name+" p50", Percentile(all, 50))
			r.Set(section, span.name+" p99", Percentile(all, 99))
		}
	}
}

// Heartbeat reports whether a request is made regularly, without any work: a lease, or the status of a node.
func Heartbeat(client, what string) bool {
	return strings.HasSuffix(what, " leases") || client == "kubelet" && (what == "get nodes" || what == "patch nodes/status")
}

// SetRequests sets the requests per node: those of each client, their sums without heartbeats, and those of the subject itself.
func (r *Run) SetRequests(clients ClientCounts, nodes int) {
	work := Counts{}
	for client, counts := range clients {
		for what, n := range counts {
			name := client + " " + what
			if Heartbeat(client, what) {
				name = "heartbeats: " + name
			} else {
				work[what] += n
			}
			r.Set(Requests, name, n/float64(nodes))
		}
	}
	own := r.Subject.own(clients)
	for name, n := range map[string]float64{
		"all": work.Sum(), "all writes": work.Writes(), Own: own.Sum(), "own writes": own.Writes(),
	} {
		r.Set(Requests, name, n/float64(nodes))
	}
}

// SetRest sets the cost of a time at rest.
func (r *Run) SetRest(cpu map[string]float64, clients ClientCounts, seconds float64) {
	for process, used := range cpu {
		r.Set(Rest, "CPU seconds, "+process, used/seconds*60)
	}
	if clients != nil {
		r.Set(Rest, "own writes, a leader's lease aside", r.Subject.own(clients).Writes()/seconds*60)
	}
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
