// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package convert writes the NodeJob that is equivalent to another way of running a task on every node: a DaemonSet that
// runs once, a Job for each node, a Plan of the system-upgrade-controller, or a BroadcastJob of OpenKruise. It is a
// function of the objects in a file, and needs no cluster.
//
//	objects ──► pattern (daemonset.go, job.go, plan.go) ──► draft (draft.go) ──► YAML with a comment
//	                │ step.go, shell.go: what a container runs, which is read once and never changed
//	                ▼
//	            task.go, nodes.go: what all patterns share
//	            fields.go: which fields are not converted
//
// The tables are in fields.yaml and programs.yaml.
package convert
