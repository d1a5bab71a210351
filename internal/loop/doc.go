// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package loop has what the reconcile loop of each kind needs besides its own work: it remembers what was written until
// the cache shows it, how often a status is written, and what the API server refuses; it counts writes, tells of nodes, and
// watches again soon when an API server is back.
//
// Nothing in it outlives the process, and nothing has to: a new leader finds all of it out again.
package loop
