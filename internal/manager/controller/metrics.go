// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/manager/loop"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
)

// Verbs and resources of the writes that are counted.
const (
	verbCreate = "create"
	verbPatch  = "patch"
	verbUpdate = "update"
	verbDelete = "delete"

	resourcePods           = "pods"
	resourceEvictions      = "pods/eviction"
	resourceNodes          = "nodes"
	resourceNodeJobs       = "nodejobs"
	resourceNodeJobsStatus = "nodejobs/status"
)

// Metrics are the metrics of the manager. No label contains the name of a node, so the number of series is limited by
// the number of NodeJobs, regardless of the size of the cluster. docs/reference/metrics.md explains each metric.
type Metrics struct {
	nodeCount   *prometheus.GaugeVec
	stopped     *prometheus.GaugeVec
	reason      *prometheus.GaugeVec
	gate        *prometheus.GaugeVec
	run         *prometheus.HistogramVec
	readyToDone *prometheus.HistogramVec
	attempts    *prometheus.CounterVec
	archives    *prometheus.CounterVec
	releases    prometheus.Gauge
	// notServed are the NodeJobs in namespaces that are not allowed.
	notServed *loop.NotServed
	writes    loop.Writes

	mu sync.Mutex
	// reasons are the reasons that the NodeJobs have series of.
	reasons map[client.ObjectKey]string
}

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	job := []string{"namespace", "nodejob"}
	m := &Metrics{
		reasons: map[client.ObjectKey]string{},
		nodeCount: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "everynode_nodejob_nodes",
			Help: "Matching nodes of a NodeJob by state: done, running, waiting and failed; rolled_back and rollback_failed are parts of failed, non_compliant and check_error of any, and expired of done.",
		}, append(job, "state")),
		stopped: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "everynode_nodejob_stalled",
			Help: "1 while the condition Stalled of a NodeJob is True: it does not continue until a person acts. 0 otherwise.",
		}, job),
		reason: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "everynode_nodejob_status_reason",
			Help: "1 for the reason of the condition Complete of a NodeJob, which says what it does or waits for.",
		}, append(job, "reason")),
		gate: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "everynode_gate_oldest_closed_timestamp_seconds",
			Help: "Time since which the gate that was closed first has been closed, in seconds since 1970; 0 if no gate is closed. For a taint that the admission policy or the kubelet has set, it is the creation of the node.",
		}, job),
		run: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "everynode_attempt_duration_seconds",
			Help:    "Time from the start to the end of the attempt that succeeded, by the node's clock. A reboot is included; image pulls, waits, rollbacks and a drain before the task are not.",
			Buckets: prometheus.ExponentialBuckets(0.5, 2, 12),
		}, job),
		readyToDone: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "everynode_node_ready_to_done_seconds",
			Help:    "Time from a joining node's Ready to the record of its first success, 0 where that came first. Only nodes that are younger than the NodeJob count.",
			Buckets: prometheus.ExponentialBuckets(0.5, 2, 12),
		}, job),
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "everynode_attempts_total",
			Help: "Attempts that are on record, by phase and outcome. A run with a reboot is one attempt. Of a check, yes is Succeeded, no is Needed, and an error is Disrupted; that a task is no longer needed is Expired.",
		}, []string{"phase", "outcome"}),
		archives: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "everynode_archived_outputs_total",
			Help: "Outputs of attempts that were to be archived, by outcome: Stored, Failed.",
		}, []string{"outcome"}),
		releases: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "everynode_pending_pod_releases",
			Help: "Pods whose outcome is on record, and that the manager deletes or retains in the background. If it stays above 0 for minutes, deletions of pods fail.",
		}),
		notServed: loop.NewNotServed("everynode_nodejobs_not_served",
			"NodeJobs for which nothing is done, because their namespaces are not allowed. At most 100 of them have a status that says so."),
		writes: loop.NewWrites("everynode_api_writes_total",
			"Write requests to the API server, events and leases aside, by verb and resource."),
	}
	registry.MustRegister(m.nodeCount, m.stopped, m.reason, m.gate, m.run, m.readyToDone, m.attempts, m.archives, m.releases, m.notServed, m.writes)
	return m
}

// Writes counts the write requests for NodeJobs, also for controllers beside this one.
func (m *Metrics) Writes() loop.Writes { return m.writes }

// status sets the metrics of a plan's status.
func (m *Metrics) status(name client.ObjectKey, p *plan.Plan) {
	n := p.Status.Nodes
	for state, count := range map[string]int32{
		"done": n.Done, "running": n.Running, "waiting": n.Waiting, "failed": n.Failed,
		"rolled_back": n.RolledBack, "rollback_failed": n.RollbackFailed,
		"non_compliant": n.NonCompliant, "check_error": n.CheckErrors, "expired": n.Expired,
	} {
		m.nodeCount.WithLabelValues(name.Namespace, name.Name, state).Set(float64(count))
	}
	var stopped float64
	if meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.ConditionStalled) {
		stopped = 1
	}
	m.stopped.WithLabelValues(name.Namespace, name.Name).Set(stopped)
	if complete := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionComplete); complete != nil {
		m.setReason(name, complete.Reason)
	}
	if p.Status.Gate == nil {
		m.gate.DeleteLabelValues(name.Namespace, name.Name)
		return
	}
	var closed float64
	if !p.GateClosedSince.IsZero() {
		closed = float64(p.GateClosedSince.Unix())
	}
	m.gate.WithLabelValues(name.Namespace, name.Name).Set(closed)
}

// setReason replaces the series of the reason. The new one is set first, so that each scrape finds one.
func (m *Metrics) setReason(name client.ObjectKey, reason string) {
	m.mu.Lock()
	was := m.reasons[name]
	m.reasons[name] = reason
	m.mu.Unlock()
	if was == reason {
		return
	}
	m.reason.WithLabelValues(name.Namespace, name.Name, reason).Set(1)
	m.reason.DeleteLabelValues(name.Namespace, name.Name, was)
}

// forget deletes the series of a NodeJob that no longer exists.
func (m *Metrics) forget(name client.ObjectKey) {
	match := prometheus.Labels{"namespace": name.Namespace, "nodejob": name.Name}
	m.nodeCount.DeletePartialMatch(match)
	m.stopped.DeletePartialMatch(match)
	m.mu.Lock()
	delete(m.reasons, name)
	m.mu.Unlock()
	m.reason.DeletePartialMatch(match)
	m.gate.DeletePartialMatch(match)
	m.run.DeletePartialMatch(match)
	m.readyToDone.DeletePartialMatch(match)
}

func (m *Metrics) attempt(phase task.Phase, outcome record.Outcome) {
	m.attempts.WithLabelValues(string(phase), string(outcome)).Inc()
}

// succeeded observes a success. Only a node that joined after the NodeJob was created, and has no earlier record, shows how long a
// new node is not usable.
func (m *Metrics) succeeded(seen observation, a plan.Record) {
	m.observeReady(seen, a)
	if a.Record.IsAnswer() {
		return // the task has not run
	}
	took := max(a.Record.FinishedAt.Sub(a.Record.StartedAt), 0) // the clock may have been set back
	m.run.WithLabelValues(seen.job.Namespace, seen.job.Name).Observe(took.Seconds())
}

// observeReady observes how long a new node was not usable.
func (m *Metrics) observeReady(seen observation, a plan.Record) {
	joined, ok := seen.joining[a.Node]
	if !ok || joined.created.Before(seen.job.CreationTimestamp.Time) {
		return
	}
	var wait time.Duration
	if !joined.readySince.IsZero() {
		wait = max(seen.input.Now.Sub(joined.readySince), 0)
	}
	m.readyToDone.WithLabelValues(seen.job.Namespace, seen.job.Name).Observe(wait.Seconds())
}
