// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plantest simulates a small cluster in which the planner of NodeJobs works, and writes down what happens. Tests
// use it for the stories in internal/nodejob/plan/testdata/stories and for the examples in the documentation. The same script
// always results in the same text.
package plantest
