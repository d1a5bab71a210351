// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// ofManager returns the selector of the selected pods. The metrics of controller-runtime and of Go have the same names in other
// programs.
func ofManager(metric, selector string) string {
	return fmt.Sprintf(`%s{instance=~"$instance"%s}`, metric, selector)
}

// slowest returns what 95 of 100 observations do not exceed, by a label.
func slowest(by, buckets string) string {
	return fmt.Sprintf("histogram_quantile(0.95, sum by (%s, le) (rate(%s[$__rate_interval])))", by, ofManager(buckets, ""))
}

var leader = ofManager("leader_election_master_status", `, name="everynode-manager"`)

func manager() board {
	return board{
		name:        managerName,
		description: "Whether the manager works, how fast, and what it costs.",
		variables: []variable{
			{name: "instance", label: "Pod", query: "label_values(everynode_pending_pod_releases, instance)", all: true},
		},
		panels: append(append(managerNumbers(), managerWork()...), managerCost()...),
	}
}

func managerNumbers() []cog.Builder[dashboard.Panel] {
	return []cog.Builder[dashboard.Panel]{
		number(panel{
			title: "Leaders", unit: count, width: 5, base: critical, alert: "EverynodeManagerDown", thresholds: []dashboard.Threshold{from(1, good), from(2, warning)},
			description: "Managers that lead: 1. With 0, no task starts, no gate opens, and no node is released: run kubectl everynode version.",
			queries:     []query{{"sum(" + leader + ") or vector(0)", "leaders"}},
		}),
		number(panel{
			title: "Managers", unit: count, width: 5, base: active,
			description: "Managers whose metrics Prometheus reads, including those that stand by. Fewer than replicas: see the pods in everynode-system.",
			queries:     []query{{"count(" + ofManager("everynode_pending_pod_releases", "") + ") or vector(0)", "managers"}},
		}),
		number(panel{
			title: "Uptime", unit: seconds, width: 5, base: active,
			description: "The time since the newest manager started. If it starts again and again, see its log and its memory. Counters begin with its start.",
			queries:     []query{{"min(time() - " + ofManager("process_start_time_seconds", "") + ")", "manager"}},
		}),
		number(panel{
			title: "Pods to delete", unit: count, width: 5, alert: "EverynodeReleasesPending", thresholds: []dashboard.Threshold{from(1, warning)},
			description: "Pods whose outcome is on record. A number above 0 is normal during a rollout. Otherwise requests to delete them fail: see the log of the manager.",
			queries:     []query{{"max(" + ofManager("everynode_pending_pod_releases", "") + ")", "pods"}},
		}),
		number(panel{
			title: "Notifications to send", unit: count, width: 4, alert: "EverynodeNotificationsUndelivered", thresholds: []dashboard.Threshold{from(1, warning)},
			description: "They wait, and rollouts continue. If the number does not fall, the endpoint does not accept them: see the log of the manager.",
			queries:     []query{{"max(" + ofManager("everynode_notifications_pending", "") + ") or vector(0)", "notifications"}},
		}),
	}
}

func managerWork() []cog.Builder[dashboard.Panel] {
	return []cog.Builder[dashboard.Panel]{
		timeline(panel{
			title: "Leader", unit: count, width: 24, height: 5, alert: "EverynodeManagerDown",
			description: "Which pod leads. Frequent changes: the leader cannot renew its lease in time, because of its CPU or the API server.",
			queries:     []query{{"max by (instance) (" + leader + ")", "{{instance}}"}},
		}, map[string]color{"0": {"stands by", idle}, "1": {"leads", good}}),
		areas(panel{
			title: "Reconciliations", unit: perSec, width: 8,
			description: "Reconciliations by controller. Close to 0 if nothing changes.",
			queries:     []query{{"sum by (controller) (rate(" + ofManager("controller_runtime_reconcile_total", "") + "[$__rate_interval]))", "{{controller}}"}},
		}),
		lines(panel{
			title: "Failed reconciliations", unit: perSec, width: 8, thresholds: []dashboard.Threshold{from(0.1, warning)},
			description: "They are retried. If they fail all the time, the log of the manager says why.",
			queries:     []query{{"sum by (controller) (rate(" + ofManager("controller_runtime_reconcile_errors_total", "") + "[$__rate_interval]))", "{{controller}}"}},
		}),
		lines(panel{
			title: "Duration of reconciliations", unit: seconds, width: 8,
			description: "95 of 100 reconciliations take no longer. If it rises, see the requests to the API server and the CPU.",
			queries:     []query{{slowest("controller", "controller_runtime_reconcile_time_seconds_bucket"), "{{controller}}"}},
		}),
		lines(panel{
			title: "Queue", unit: count, width: 8,
			description: "Objects that wait for a reconciliation. A number that does not fall: the manager has not enough CPU, or its requests are slow.",
			queries:     []query{{"sum by (name) (" + ofManager("workqueue_depth", "") + ")", "{{name}}"}},
		}),
		lines(panel{
			title: "Time in the queue", unit: seconds, width: 8,
			description: "How long objects wait for a reconciliation: 95 of 100 not longer. All decisions are late by this time.",
			queries:     []query{{slowest("name", "workqueue_queue_duration_seconds_bucket"), "{{name}}"}},
		}),
		lines(panel{
			title: "Pods to delete", unit: count, width: 8, alert: "EverynodeReleasesPending",
			description: "Pods whose outcome is on record and that wait to be deleted. A number that stays above 0: requests to delete them fail.",
			queries:     []query{{"max by (instance) (" + ofManager("everynode_pending_pod_releases", "") + ")", "{{instance}}"}},
		}),
	}
}

func managerCost() []cog.Builder[dashboard.Panel] {
	writes := func(metric string) query {
		return query{"sum by (verb, resource) (rate(" + ofManager(metric, "") + "[$__rate_interval]))", "{{verb}} {{resource}}"}
	}
	return []cog.Builder[dashboard.Panel]{
		areas(panel{
			title: "Requests to the API server by code", unit: requests, width: 12,
			description: "All requests by the code of the response. Many 409: normal conflicts. 403: a permission is missing. 429 or 5xx: the API server is overloaded.",
			queries:     []query{{"sum by (code) (rate(" + ofManager("rest_client_requests_total", "") + "[$__rate_interval]))", "{{code}}"}},
		}),
		areas(panel{
			title: "Writes to the API server", unit: requests, width: 12,
			description: "A successful attempt costs about 4 writes. Many more: writes fail and are repeated, pods are refused, or published results change.",
			queries:     []query{writes("everynode_api_writes_total"), writes("everynode_guard_api_writes_total")},
		}),
		lines(panel{
			title: "Memory", unit: inBytes, width: 12, colors: []color{{"soft limit of Go", warning}},
			description: "Resident memory of each pod, and the soft limit of Go. If it stays at the limit, raise manager.goMemoryLimit and the memory limit of the pod.",
			queries: []query{
				{"max by (instance) (" + ofManager("process_resident_memory_bytes", "") + ")", "{{instance}}"},
				{"min(" + ofManager("go_gc_gomemlimit_bytes", "") + ")", "soft limit of Go"},
			},
		}),
		lines(panel{
			title: "CPU", unit: count, width: 12,
			description: "Cores that each pod uses. If it stays at the limit of the pod, raise the limit.",
			queries:     []query{{"sum by (instance) (rate(" + ofManager("process_cpu_seconds_total", "") + "[$__rate_interval]))", "{{instance}}"}},
		}),
	}
}
