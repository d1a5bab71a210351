// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package recipes holds the recipes, for "kubectl everynode create", which fills them in.
package recipes

import "embed"

// Files are the recipes, by their names.
//
//go:embed *.yaml
var Files embed.FS
