// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package config has the manifests with the admission policies that the manager requires, as they are installed.
package config

import "embed"

// Authorization are the files of config/authorization, Confinement those of config/confinement, and NodeConditions the policy of
// config/node-conditions.
var (
	//go:embed authorization/*.yaml
	Authorization embed.FS
	//go:embed confinement/*.yaml
	Confinement embed.FS
	//go:embed node-conditions/policy.yaml
	NodeConditions embed.FS
)
