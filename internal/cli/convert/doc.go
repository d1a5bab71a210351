// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package convert writes the NodeJob that is equivalent to another way of running a task on every node: a DaemonSet that
// runs once, a Job for each node, a Plan of the system-upgrade-controller, or a BroadcastJob of OpenKruise. It is a
// function of the objects in a file, and needs no cluster.
//
//	objects ──► pattern (daemonset.go, job.go, plan.go, broadcastjob.go) ──► draft ──► YAML with comments
//	                                    │ script.go, shell.go: what a container runs
//	                                    ▼
//	                         nodes.go, terms.go, task.go, template.go: what all patterns share
//	                         fields.go, fieldrules.go, dropped.go: which fields are not converted
package convert
