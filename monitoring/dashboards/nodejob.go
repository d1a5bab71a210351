// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// ofJob returns the selector of the NodeJob.
func ofJob(metric, selector string) string {
	return fmt.Sprintf(`%s{namespace="$namespace", nodejob="$nodejob"%s}`, metric, selector)
}

func nodeJob() board {
	return board{
		name:        nodeJobName,
		description: "What one NodeJob does or waits for, and how long it takes.",
		variables: []variable{
			{name: "namespace", label: "Namespace", query: "label_values(everynode_nodejob_stalled, namespace)"},
			{name: "nodejob", label: "NodeJob", query: `label_values(everynode_nodejob_stalled{namespace="$namespace"}, nodejob)`},
		},
		panels: append(jobNumbers(), jobCharts()...),
	}
}

func jobNumbers() []cog.Builder[dashboard.Panel] {
	return []cog.Builder[dashboard.Panel]{
		number(panel{
			title: "Reason", unit: count, width: 6, base: active,
			description: "What the NodeJob does or waits for. docs/status.md#conditions explains each reason. For nodes: kubectl everynode explain NAME NODE -n NAMESPACE.",
			queries:     []query{{"max by (reason) (" + ofJob("everynode_nodejob_status_reason", "") + ")", "{{reason}}"}},
		}).TextMode(common.BigValueTextModeName),
		number(panel{
			title: "Stalled", unit: count, width: 3, alert: "EverynodeNodeJobStalled", thresholds: []dashboard.Threshold{from(1, warning)},
			description: "Whether the NodeJob cannot continue without help. The message of its condition Stalled says what to do.",
			queries:     []query{{"max(" + ofJob("everynode_nodejob_stalled", "") + ")", "stalled"}},
		}).Mappings([]dashboard.ValueMapping{{ValueMap: &dashboard.ValueMap{
			Type:    dashboard.MappingTypeValueToText,
			Options: map[string]dashboard.ValueMappingResult{"0": {Text: new("no")}, "1": {Text: new("yes")}},
		}}}),
		number(panel{
			title: "Done", unit: percent, width: 3, base: active, thresholds: []dashboard.Threshold{from(1, good)},
			description: "The share of the selected nodes that are done. If it does not rise, see the reason.",
			queries: []query{{
				"sum(" + ofJob("everynode_nodejob_nodes", `, state="done"`) + ")\n/ (sum(" + ofJob("everynode_nodejob_nodes", `, state=~"`+matched+`"`) + ") > 0)", "done",
			}},
		}).NoValue("no nodes"),
		number(panel{
			title: "Failed nodes", unit: count, width: 4, alert: "EverynodeNodesFailed", thresholds: []dashboard.Threshold{from(1, warning)},
			description: "Nodes on which all attempts have failed. status.failures has the reasons. Fix the task, or run: kubectl everynode retry NAME -n NAMESPACE.",
			queries:     []query{{"max(" + ofJob("everynode_nodejob_nodes", `, state="failed"`) + ")", "nodes"}},
		}),
		number(panel{
			title: "Failed rollbacks", unit: count, width: 4, alert: "EverynodeRollbackFailed", thresholds: []dashboard.Threshold{from(1, critical)},
			description: "Nodes on which the rollback has failed as well. They are in an undefined state: consider a cordon. The condition RollbackFailed names them.",
			queries:     []query{{"max(" + ofJob("everynode_nodejob_nodes", `, state="rollback_failed"`) + ")", "nodes"}},
		}),
		number(panel{
			title: "Oldest closed gate", unit: seconds, width: 4, alert: "EverynodeGateClosed", thresholds: []dashboard.Threshold{from(gateClosed, warning)},
			description: "How long the gate has kept workloads off a node. 0: no gate is closed, or the NodeJob has none.",
			queries:     []query{{"max(time() - (" + ofJob("everynode_gate_oldest_closed_timestamp_seconds", "") + " > 0)) or vector(0)", "gate"}},
		}),
	}
}

func jobCharts() []cog.Builder[dashboard.Panel] {
	return []cog.Builder[dashboard.Panel]{
		areas(panel{
			title: "Nodes by state", unit: count, width: 24, colors: colorsOfNodes,
			description: "A level line is a soak, a wait for promotion, or a wait for nodes: see the reasons below.",
			queries:     []query{{"max by (state) (" + ofJob("everynode_nodejob_nodes", `, state=~"`+matched+`"`) + ")", "{{state}}"}},
		}),
		timeline(panel{
			title: "Reasons", unit: count, width: 24, height: 7,
			description: "When a step soaked (Soaking), when the rollout waited for promotion (AwaitingPromotion), and when it could not continue.",
			queries:     []query{{"max by (reason) (" + ofJob("everynode_nodejob_status_reason", "") + ")", "{{reason}}"}},
		}, map[string]color{"1": {" ", active}}),
		areas(panel{
			title: "Successful attempts", unit: count, width: 8,
			description: "Nodes on which the task has succeeded. None while nodes run: see the log with kubectl everynode logs NAME NODE -n NAMESPACE.",
			queries:     []query{{"sum(increase(" + ofJob("everynode_attempt_duration_seconds_count", "") + "[$__rate_interval]))", "successes"}},
		}),
		lines(panel{
			title: "Duration of successful attempts", unit: seconds, width: 8,
			description: "From start to end of the attempt, during the last hour. If the highest values approach task.timeoutSeconds, raise it.",
			queries:     quantiles("everynode_attempt_duration_seconds_bucket"),
		}),
		lines(panel{
			title: "New nodes: from Ready to done", unit: seconds, width: 8,
			description: "How long nodes that joined during the last hour were Ready before they were done. With a gate, they had no workloads during this time.",
			queries:     quantiles("everynode_node_ready_to_done_seconds_bucket"),
		}),
	}
}

// quantiles returns the median, and what 95 of 100 observations of the last hour do not exceed.
func quantiles(buckets string) []query {
	of := func(q float64) string {
		return fmt.Sprintf("histogram_quantile(%v, sum by (le) (increase(%s[1h])))", q, ofJob(buckets, ""))
	}
	return []query{{of(0.5), "median"}, {of(0.95), "95%"}}
}
