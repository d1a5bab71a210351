// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package loop contains what the reconcile loop of each kind needs: it remembers what was written until the cache shows
// it, how often a status is written, and what the API server rejects. It counts writes, sends events about nodes,
// restarts watches soon after an API server is available again, and has the limits of a pass.
//
// Nothing in it must survive a restart: a new leader finds all of it out again.
package loop
