// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strings"
)

// Confirm is how long an attempt waits for a confirmation after its task, and what happens without one.
type Confirm struct {
	// SHA256 is the digest of the confirmation, in hexadecimal. Only the manager knows the confirmation until the pod gets it.
	SHA256 string `json:"sha256"`
	// Seconds limit the wait. They are at least MinConfirmSeconds and at most MaxConfirmSeconds.
	Seconds int64 `json:"seconds"`
	// RollbackSeconds limit the rollback that runs without a confirmation: at least 1.
	RollbackSeconds int64 `json:"rollbackSeconds"`
	// Probes must succeed before the task, and again after it.
	Probes []Probe `json:"probes,omitempty"`
}

// Probe is a script that tests whether something on the node works.
type Probe struct {
	Name   string `json:"name"`
	Script string `json:"script"`
	// Seconds limit each execution: at least 1.
	Seconds int64 `json:"seconds"`
}

// Limits of a Confirm.
const (
	MinConfirmSeconds = 1
	MaxConfirmSeconds = 3600
)

// Paths in the container of a pod with a confirmation.
const (
	// RunnerPath is where the image of the runner has it. The readiness probe of a pod with a confirmation executes it.
	RunnerPath = "/everynode-runner"
	// ConfirmDir is where the kubelet mounts the confirmation, in the file ConfirmFile.
	ConfirmDir  = "/run/everynode-confirm"
	ConfirmFile = "confirmed"
)

// ConfirmDigest returns Confirm.SHA256 of a confirmation.
func ConfirmDigest(confirmation string) string {
	sum := sha256.Sum256([]byte(confirmation))
	return hex.EncodeToString(sum[:])
}

// Values of EnvRollbackFor.
const (
	RollbackForFailure  = "Failure"
	RollbackForDeletion = "Deletion"
	RollbackForExpiry   = "Expiry"
)

// Variable is a variable of an environment.
type Variable struct{ Name, Value string }

// ResultVariables returns the results of an attempt as JSON and, for shells without a JSON tool, one variable for each.
func ResultVariables(results map[string]string) []Variable {
	if results == nil {
		results = map[string]string{}
	}
	variables := []Variable{{EnvRunResults, JSON(results)}}
	named := map[string]bool{}
	for _, key := range slices.Sorted(maps.Keys(results)) {
		// If keys differ only in case or punctuation, the first one gets the variable.
		if name := resultVariable(key); !named[name] {
			named[name] = true
			variables = append(variables, Variable{name, results[key]})
		}
	}
	return variables
}

// resultVariable returns the name of the variable for a result: "disk.size-gb" is EVERYNODE_RESULT_DISK_SIZE_GB.
func resultVariable(key string) string {
	return EnvResultPrefix + strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, key)
}
