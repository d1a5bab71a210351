// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kube is what the planners of all kinds read of the objects of Kubernetes: who asks for a node, why a pod does not start, what a
// taint excludes. It decides nothing about NodeJobs, NodeGuards and budgets, and is pure like the planners.
package kube
