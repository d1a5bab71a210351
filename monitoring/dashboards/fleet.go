// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// Thresholds are the times of the alerts, in seconds.
const (
	gateClosed = 1800
	drainHeld  = 3600
)

// colorsOfNodes are the colors of the states of nodes.
var colorsOfNodes = []color{{"done", good}, {"running", active}, {"waiting", idle}, {"failed", critical}}

// inNamespaces returns the highest value of each NodeJob in the selected namespaces. During a change of the leader, two managers have
// the metric.
func inNamespaces(metric, selector string) string {
	return fmt.Sprintf(`max by (namespace, nodejob) (%s{namespace=~"$namespace"%s})`, metric, selector)
}

const (
	nodesByState = `max by (namespace, nodejob, state) (everynode_nodejob_nodes{namespace=~"$namespace", state=~"%s"})`
	matched      = "done|running|waiting|failed"
)

// problem returns the NodeJobs for which an expression is positive, with the name of the problem as a label.
func problem(name, expression string) string {
	return fmt.Sprintf("label_replace(clamp_max(%s, 1) > 0, \"problem\", %q, \"\", \"\")", expression, name)
}

// attention returns the problems of NodeJobs, with the number of nodes that are not done.
func attention() string {
	return fmt.Sprintf("(\n  %s\n  or\n  %s\n  or\n  %s\n  or\n  %s\n  or\n  %s\n)\n* on (namespace, nodejob) group_left ()\nsum by (namespace, nodejob) (%s)",
		problem("stalled", inNamespaces("everynode_nodejob_stalled", "")),
		problem("rollback failed", inNamespaces("everynode_nodejob_nodes", `, state="rollback_failed"`)),
		problem("nodes failed", inNamespaces("everynode_nodejob_nodes", `, state="failed"`)),
		problem("waits for promotion", inNamespaces("everynode_nodejob_status_reason", `, reason="AwaitingPromotion"`)),
		problem("gate closed", fmt.Sprintf(`(%s > %d)`, closedFor, gateClosed)),
		fmt.Sprintf(nodesByState, "running|waiting|failed"))
}

// closedFor and heldFor are times since the oldest gate was closed, and since the oldest node was held.
const (
	closedFor = `max by (namespace, nodejob) (time() - (everynode_gate_oldest_closed_timestamp_seconds{namespace=~"$namespace"} > 0))`
	heldFor   = `max by (namespace, nodeguard) (time() - (everynode_guard_oldest_hold_timestamp_seconds{namespace=~"$namespace"} > 0))`
)

func fleet() board {
	return board{
		name:        fleetName,
		description: "Which rollouts need attention, and how far all of them are.",
		variables: []variable{
			{"namespace", "Namespace", "label_values(everynode_nodejob_stalled, namespace)", true, ".+"},
		},
		panels: append(fleetNumbers(), fleetCharts()...),
	}
}

func fleetNumbers() []cog.Builder[dashboard.Panel] {
	return []cog.Builder[dashboard.Panel]{
		number(panel{
			title: "NodeJobs", unit: count, width: 4, base: active,
			description: "NodeJobs that the manager serves. 0 although NodeJobs exist: see the dashboard of the manager.",
			queries:     []query{{"count(" + inNamespaces("everynode_nodejob_stalled", "") + ") or vector(0)", "NodeJobs"}},
		}),
		number(panel{
			title: "Stalled", unit: count, width: 4, alert: "EverynodeNodeJobStalled", thresholds: []dashboard.Threshold{from(1, warning)},
			description: "NodeJobs that cannot continue without help. The table below names them. The message of their condition Stalled says what to do.",
			queries:     []query{{"sum(" + inNamespaces("everynode_nodejob_stalled", "") + ") or vector(0)", "NodeJobs"}},
		}),
		number(panel{
			title: "Failed nodes", unit: count, width: 4, alert: "EverynodeNodesFailed", thresholds: []dashboard.Threshold{from(1, warning)},
			description: "Nodes on which all attempts of a NodeJob have failed. They are not retried without help: repair, retry, skip or delete them.",
			queries:     []query{{"sum(" + inNamespaces("everynode_nodejob_nodes", `, state="failed"`) + ") or vector(0)", "nodes"}},
		}),
		number(panel{
			title: "Failed rollbacks", unit: count, width: 4, alert: "EverynodeRollbackFailed", thresholds: []dashboard.Threshold{from(1, critical)},
			description: "Nodes on which the rollback has failed as well. They are in an undefined state. The condition RollbackFailed of the NodeJob names them.",
			queries:     []query{{"sum(" + inNamespaces("everynode_nodejob_nodes", `, state="rollback_failed"`) + ") or vector(0)", "nodes"}},
		}),
		number(panel{
			title: "Oldest closed gate", unit: seconds, width: 4, alert: "EverynodeGateClosed", thresholds: []dashboard.Threshold{from(gateClosed, warning)},
			description: "How long the taint of a gate has kept workloads off a node. Find out why the task has not succeeded there. 0: no gate is closed.",
			queries:     []query{{"max(" + closedFor + ") or vector(0)", "gate"}},
		}),
		number(panel{
			title: "Oldest held drain", unit: seconds, width: 4, alert: "EverynodeDrainHeld", thresholds: []dashboard.Threshold{from(drainHeld, warning)},
			description: "How long a NodeGuard has held a node whose drain waits. Its status says what would release the node. 0: no node is held.",
			queries:     []query{{"max(" + heldFor + ") or vector(0)", "drain"}},
		}),
	}
}

func fleetCharts() []cog.Builder[dashboard.Panel] {
	return []cog.Builder[dashboard.Panel]{
		rows(panel{
			title: "NodeJobs that need attention", unit: count, width: 12, height: 8,
			description: "A row for each problem. Open the NodeJob, or run: kubectl everynode status NAME -n NAMESPACE. Empty: no action is needed.",
			queries:     []query{{expr: attention()}},
		}, "nodes not done", []string{"problem", "namespace", "nodejob"}, "nodejob",
			"/d/"+nodeJobName.uid+"?${datasource:queryparam}&var-namespace=${__data.fields.namespace}&var-nodejob=${__data.fields.nodejob}&${__url_time_range}").
			NoValue("No NodeJob needs attention"),
		bars(panel{
			title: "Progress", unit: percent, width: 12, height: 8, base: active,
			description: "The share of nodes that are done, of the 15 NodeJobs that are least complete. Empty: all NodeJobs are complete.",
			queries: []query{{
				"bottomk(15,\n  sum by (namespace, nodejob) (" + fmt.Sprintf(nodesByState, "done") + ")\n  / (sum by (namespace, nodejob) (" + fmt.Sprintf(nodesByState, matched) + ") > 0)\n  < 1)",
				"{{namespace}}/{{nodejob}}",
			}},
		}).NoValue("All NodeJobs are complete"),
		areas(panel{
			title: "Nodes by state", unit: count, width: 12, colors: colorsOfNodes,
			description: "A node counts once for each NodeJob that selects it. If waiting nodes do not become fewer, see the reasons on the right.",
			queries:     []query{{"sum by (state) (" + fmt.Sprintf(nodesByState, matched) + ")", "{{state}}"}},
		}),
		areas(panel{
			title: "NodeJobs by reason", unit: count, width: 12,
			description: "What NodeJobs do or wait for: the reasons of their condition Complete. docs/status.md#conditions explains each reason.",
			queries: []query{{
				`count by (reason) (max by (namespace, nodejob, reason) (everynode_nodejob_status_reason{namespace=~"$namespace"}))`, "{{reason}}",
			}},
		}),
		areas(panel{
			title: "Attempts", unit: count, width: 8,
			description: "Recorded attempts by phase and outcome, in all namespaces. Many disruptions without a success: nodes reject the pod, or a script reboots its node.",
			queries:     []query{{"sum by (phase, outcome) (increase(everynode_attempts_total[$__rate_interval]))", "{{phase}} {{outcome}}"}},
		}),
		lines(panel{
			title: "Closed gates", unit: seconds, width: 8, alert: "EverynodeGateClosed", thresholds: []dashboard.Threshold{from(gateClosed, warning)},
			description: "How long the oldest gate of each NodeJob has been closed. A line that does not end: the task does not succeed on that node.",
			queries:     []query{{closedFor, "{{namespace}}/{{nodejob}}"}},
		}),
		areas(panel{
			title: "Held nodes", unit: count, width: 8, alert: "EverynodeDrainHeld",
			description: "Nodes whose drains wait, by NodeGuard. Drains wait for each other, so a number that does not fall needs help.",
			queries: []query{{
				`max by (namespace, nodeguard) (everynode_guard_nodes{namespace=~"$namespace", state="held"})`, "{{namespace}}/{{nodeguard}}",
			}},
		}),
	}
}
