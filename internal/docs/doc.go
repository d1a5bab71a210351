// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package docs tests the examples in the documentation: what a page shows is what the code prints. The clusters of the
// examples are simulated with the real planner, and the commands read them from a stand-in for an API server.
package docs
