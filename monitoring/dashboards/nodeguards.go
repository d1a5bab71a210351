// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// ofGuards returns the selector of the selected NodeGuards.
func ofGuards(metric, selector string) string {
	return fmt.Sprintf(`%s{namespace=~"$namespace", nodeguard=~"$nodeguard"%s}`, metric, selector)
}

// guardNodes returns the number of nodes in a state for each NodeGuard.
func guardNodes(state string) string {
	return "max by (namespace, nodeguard) (" + ofGuards("everynode_guard_nodes", `, state="`+state+`"`) + ")"
}

var guardsHeldFor = "max by (namespace, nodeguard) (time() - (" + ofGuards("everynode_guard_oldest_hold_timestamp_seconds", "") + " > 0))"

func nodeGuards() board {
	const name = "{{namespace}}/{{nodeguard}}"
	return board{
		name:        nodeGuardsName,
		description: "Which drains wait, for how long, and why nodes were released.",
		variables: []variable{
			{"namespace", "Namespace", "label_values(everynode_guard_nodes, namespace)", true, ".+"},
			{"nodeguard", "NodeGuard", `label_values(everynode_guard_nodes{namespace=~"$namespace"}, nodeguard)`, true, ".+"},
		},
		panels: append(guardNumbers(),
			lines(panel{
				title: "Oldest held node", unit: seconds, width: 12, alert: "EverynodeDrainHeld", thresholds: []dashboard.Threshold{from(drainHeld, warning)},
				description: "How long each NodeGuard has held its oldest node. kubectl get nodeguards -A -o wide says what would release it.",
				queries:     []query{{guardsHeldFor, name}},
			}),
			areas(panel{
				title: "Held nodes", unit: count, width: 12, alert: "EverynodeDrainHeld",
				description: "Nodes whose drains wait. Drains wait for each other: only a number that does not fall needs help.",
				queries:     []query{{guardNodes("held"), name}},
			}),
			lines(panel{
				title: "Unavailable nodes", unit: count, width: 8,
				description: "Guarded nodes that are unavailable. While they are, a NodeGuard holds other nodes: repair them first.",
				queries:     []query{{guardNodes("unavailable"), name}},
			}),
			lines(panel{
				title: "Time until release", unit: seconds, width: 8,
				description: "How long nodes were held that were released during the last hour: 95 of 100 not longer. It bounds how fast nodes can be replaced.",
				queries: []query{{
					"histogram_quantile(0.95, sum by (namespace, nodeguard, le) (increase(" + ofGuards("everynode_guard_held_seconds_bucket", "") + "[1h])))", name,
				}},
			}),
			areas(panel{
				title: "Releases by reason", unit: count, width: 8,
				description: "DeadlineReached: the condition was not met in time. BreakGlass: a user has released the node in an emergency. Find out why.",
				colors:      []color{{"ConditionMet", good}, {"DeadlineReached", warning}, {"BreakGlass", critical}},
				queries:     []query{{"sum by (reason) (increase(" + ofGuards("everynode_guard_held_seconds_count", "") + "[$__rate_interval]))", "{{reason}}"}},
			}),
		),
	}
}

func guardNumbers() []cog.Builder[dashboard.Panel] {
	return []cog.Builder[dashboard.Panel]{
		number(panel{
			title: "Guarded nodes", unit: count, width: 6, base: active,
			description: "Nodes whose drains a NodeGuard controls. 0 although NodeGuards exist: see the dashboard of the manager.",
			queries:     []query{{"sum(" + guardNodes("guarded") + ") or vector(0)", "nodes"}},
		}),
		number(panel{
			title: "Held nodes", unit: count, width: 6, base: active,
			description: "Nodes whose drains wait now. No action is needed as long as the oldest one is not held for too long.",
			queries:     []query{{"sum(" + guardNodes("held") + ") or vector(0)", "nodes"}},
		}),
		number(panel{
			title: "Oldest held node", unit: seconds, width: 6, alert: "EverynodeDrainHeld", thresholds: []dashboard.Threshold{from(drainHeld, warning)},
			description: "How long a NodeGuard has held a node. Repair unavailable nodes, approve the release, or end the drain. 0: no node is held.",
			queries:     []query{{"max(" + guardsHeldFor + ") or vector(0)", "node"}},
		}),
		number(panel{
			title: "Unavailable nodes", unit: count, width: 6, base: active,
			description: "Guarded nodes that are unavailable. If nodes are held as well, they may wait for these.",
			queries:     []query{{"sum(" + guardNodes("unavailable") + ") or vector(0)", "nodes"}},
		}),
	}
}
