// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package charts has the Helm chart of Everynode, and its tests: its objects are those of config/default, apart from what
// its values change.
package charts
