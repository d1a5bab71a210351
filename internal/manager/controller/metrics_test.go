// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
)

// measure gives each metric at least one series.
func measure(t *testing.T) (*prometheus.Registry, *Metrics, observation) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	m := NewMetrics(registry)
	seen := observation{
		job:   &v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job", CreationTimestamp: at(0)}},
		input: plan.Input{Now: noon.Add(100 * time.Second)},
		joining: map[string]joiningNode{
			"joined":        {created: noon.Add(time.Second), readySince: noon.Add(90 * time.Second)},
			"not-ready":     {created: noon.Add(time.Second)},
			"ahead-of-time": {created: noon.Add(time.Second), readySince: noon.Add(200 * time.Second)},
			"was-there":     {created: noon.Add(-time.Second), readySince: noon},
		},
	}
	m.status(client.ObjectKey{Namespace: "ns", Name: "job"}, &plan.Plan{
		GateClosedSince: time.Unix(1700000000, 0),
		Status: v1alpha1.NodeJobStatus{
			Nodes: v1alpha1.NodeCounts{
				Total:          10,
				Done:           1,
				Running:        2,
				Waiting:        3,
				Failed:         4,
				RolledBack:     2,
				RollbackFailed: 1,
				NonCompliant:   5,
				Expired:        7,
				CheckErrors:    6,
			},
			Gate: &v1alpha1.GateStatus{},
			Conditions: []metav1.Condition{
				{Type: v1alpha1.ConditionComplete, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonMaxFailuresExceeded},
				{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue},
			},
		},
	})
	success := record.Record{Outcome: record.Succeeded, StartedAt: noon, FinishedAt: noon.Add(4 * time.Second)}
	for _, node := range []string{"joined", "not-ready", "ahead-of-time", "was-there", "had-a-record"} {
		m.attempt(task.Task, success.Outcome)
		m.succeeded(seen, plan.Record{Node: node, Change: record.Change{Record: &success}})
	}
	m.attempt(task.Rollback, record.Failed)
	if err := m.writes.Do(verbCreate, resourcePods, func() error { return errors.New("no") }); err == nil {
		t.Fatal("the error of a write is dropped")
	}
	return registry, m, seen
}

func TestMetricsAreNamedAsPrometheusAsks(t *testing.T) {
	registry, _, _ := measure(t)
	problems, err := testutil.GatherAndLint(registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// The number of series is bounded by the number of NodeJobs, regardless of the size of the cluster.
func TestMetricsNameNoNode(t *testing.T) {
	registry, _, _ := measure(t)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for _, family := range families {
		if !strings.HasPrefix(family.GetName(), "everynode_") {
			t.Errorf("%s does not begin with everynode_", family.GetName())
		}
		for _, metric := range family.GetMetric() {
			var labels []string
			for _, label := range metric.GetLabel() {
				labels = append(labels, label.GetName())
				if strings.Contains(label.GetValue(), "joined") {
					t.Errorf("%s names a node: %s", family.GetName(), label)
				}
			}
			slices.Sort(labels)
			got[family.GetName()] = labels
		}
	}
	want := map[string][]string{
		"everynode_nodejob_nodes":                        {"namespace", "nodejob", "state"},
		"everynode_nodejob_stalled":                      {"namespace", "nodejob"},
		"everynode_nodejob_status_reason":                {"namespace", "nodejob", "reason"},
		"everynode_gate_oldest_closed_timestamp_seconds": {"namespace", "nodejob"},
		"everynode_pending_pod_releases":                 nil,
		"everynode_nodejobs_not_served":                  nil,
		"everynode_attempt_duration_seconds":             {"namespace", "nodejob"},
		"everynode_node_ready_to_done_seconds":           {"namespace", "nodejob"},
		"everynode_attempts_total":                       {"outcome", "phase"},
		"everynode_api_writes_total":                     {"resource", "verb"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
}

func TestMetricsOfNodesAndWrites(t *testing.T) {
	registry, _, _ := measure(t)
	want := `
# HELP everynode_api_writes_total Write requests to the API server, events and leases aside, by verb and resource.
# TYPE everynode_api_writes_total counter
everynode_api_writes_total{resource="pods",verb="create"} 1
# HELP everynode_attempts_total Attempts that are on record, by phase and outcome. A run with a reboot is one attempt. Of a check, yes is Succeeded, no is Needed, and an error is Disrupted; that a task is no longer needed is Expired.
# TYPE everynode_attempts_total counter
everynode_attempts_total{outcome="Failed",phase="rollback"} 1
everynode_attempts_total{outcome="Succeeded",phase="task"} 5
# HELP everynode_nodejob_nodes Matching nodes of a NodeJob by state: done, running, waiting and failed; rolled_back and rollback_failed are parts of failed, non_compliant and check_error of any, and expired of done.
# TYPE everynode_nodejob_nodes gauge
everynode_nodejob_nodes{namespace="ns",nodejob="job",state="check_error"} 6
everynode_nodejob_nodes{namespace="ns",nodejob="job",state="done"} 1
everynode_nodejob_nodes{namespace="ns",nodejob="job",state="non_compliant"} 5
everynode_nodejob_nodes{namespace="ns",nodejob="job",state="expired"} 7
everynode_nodejob_nodes{namespace="ns",nodejob="job",state="failed"} 4
everynode_nodejob_nodes{namespace="ns",nodejob="job",state="rollback_failed"} 1
everynode_nodejob_nodes{namespace="ns",nodejob="job",state="rolled_back"} 2
everynode_nodejob_nodes{namespace="ns",nodejob="job",state="running"} 2
everynode_nodejob_nodes{namespace="ns",nodejob="job",state="waiting"} 3
# HELP everynode_nodejob_stalled 1 while the condition Stalled of a NodeJob is True: it does not continue until a person acts. 0 otherwise.
# TYPE everynode_nodejob_stalled gauge
everynode_nodejob_stalled{namespace="ns",nodejob="job"} 1
`
	if err := testutil.GatherAndCompare(
		registry,
		strings.NewReader(want),
		"everynode_nodejob_nodes",
		"everynode_nodejob_stalled",
		"everynode_attempts_total",
		"everynode_api_writes_total",
	); err != nil {
		t.Error(err)
	}
}

// An alert depends on it: it must be reset when a user has fixed the problem.
func TestRolloutStoppedFollowsTheCondition(t *testing.T) {
	_, m, _ := measure(t)
	m.status(client.ObjectKey{Namespace: "ns", Name: "job"}, &plan.Plan{Status: v1alpha1.NodeJobStatus{
		Conditions: []metav1.Condition{{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionFalse}},
	}})
	if got := testutil.ToFloat64(m.stopped); got != 0 {
		t.Errorf("it is %v when the NodeJob continues", got)
	}
}

func TestMetricsOfReasonAndGateFollowTheStatus(t *testing.T) {
	registry, m, _ := measure(t)
	names := []string{"everynode_nodejob_status_reason", "everynode_gate_oldest_closed_timestamp_seconds"}
	const reason = `
# HELP everynode_nodejob_status_reason 1 for the reason of the condition Complete of a NodeJob, which says what it does or waits for.
# TYPE everynode_nodejob_status_reason gauge
everynode_nodejob_status_reason{namespace="ns",nodejob="job",reason="%s"} 1
`
	const gate = `
# HELP everynode_gate_oldest_closed_timestamp_seconds Time since which the gate that was closed first has been closed, in seconds since 1970; 0 if no gate is closed. For a taint that the admission policy or the kubelet has set, it is the creation of the node.
# TYPE everynode_gate_oldest_closed_timestamp_seconds gauge
everynode_gate_oldest_closed_timestamp_seconds{namespace="ns",nodejob="job"} %s
`
	expect := func(when, want string) {
		t.Helper()
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want), names...); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
	expect("stopped, with a closed gate", fmt.Sprintf(gate, "1.7e+09")+fmt.Sprintf(reason, "MaxFailuresExceeded"))
	continues := &plan.Plan{Status: v1alpha1.NodeJobStatus{
		Gate: &v1alpha1.GateStatus{},
		Conditions: []metav1.Condition{
			{Type: v1alpha1.ConditionComplete, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAllNodesDone},
		},
	}}
	m.status(client.ObjectKey{Namespace: "ns", Name: "job"}, continues)
	expect("complete, with open gates", fmt.Sprintf(gate, "0")+fmt.Sprintf(reason, "AllNodesDone"))
	continues.Status.Gate = nil
	m.status(client.ObjectKey{Namespace: "ns", Name: "job"}, continues)
	expect("without a gate", fmt.Sprintf(reason, "AllNodesDone"))
	m.forget(client.ObjectKey{Namespace: "ns", Name: "job"})
	expect("deleted", "")
}

// Only nodes that joined after the NodeJob was made say how long a new node is not usable: 10 seconds on
// one, and nothing where the task was done before the node was ready.
func TestReadyToDone(t *testing.T) {
	registry, m, seen := measure(t)
	// A node's clock may go back in mid-run.
	m.succeeded(seen, plan.Record{Change: record.Change{Record: &record.Record{StartedAt: noon.Add(time.Hour), FinishedAt: noon}}})
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	type sum struct {
		Count uint64
		Sum   float64
	}
	got := map[string]sum{}
	for _, family := range families {
		if h := family.GetMetric()[0].GetHistogram(); h != nil {
			got[family.GetName()] = sum{h.GetSampleCount(), h.GetSampleSum()}
		}
	}
	want := map[string]sum{"everynode_node_ready_to_done_seconds": {3, 10}, "everynode_attempt_duration_seconds": {6, 5 * 4}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("histograms (-want +got):\n%s", diff)
	}
}

func TestMetricsForgetANodeJob(t *testing.T) {
	registry, m, _ := measure(t)
	other := client.ObjectKey{Namespace: "ns", Name: "other"}
	m.status(other, &plan.Plan{})
	m.forget(client.ObjectKey{Namespace: "ns", Name: "job"})
	for name, want := range map[string]int{"everynode_nodejob_nodes": 9, "everynode_nodejob_stalled": 1, "everynode_attempt_duration_seconds": 0, "everynode_node_ready_to_done_seconds": 0} {
		if got, err := testutil.GatherAndCount(registry, name); err != nil || got != want {
			t.Errorf("%d series of %s (%v), want %d, of the other NodeJob", got, name, err, want)
		}
	}
}
