// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package task

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/runner/contract"
)

// Why a rollback runs. Its script gets the value in EVERYNODE_ROLLBACK_FOR.
const (
	rollbackForFailure  = "Failure"
	rollbackForDeletion = "Deletion"
)

// undoes returns what a rollback gets to know about the attempt that it undoes: how it ended and its results.
func undoes(a Attempt) []corev1.EnvVar {
	why := rollbackForFailure
	if a.Deleting {
		why = rollbackForDeletion
	}
	env := []corev1.EnvVar{{Name: contract.EnvRollbackFor, Value: why}}
	if a.Undoes == nil {
		return env
	}
	if code := a.Undoes.ExitCode; code != nil && *code != 0 {
		env = append(env, corev1.EnvVar{Name: contract.EnvFailedExitCode, Value: strconv.Itoa(int(*code))})
	}
	if reason := a.Undoes.Reason; reason != "" {
		env = append(env, corev1.EnvVar{Name: contract.EnvFailedReason, Value: reason})
	}
	return append(env, runResults(a.Undoes)...)
}

// runResults returns the results of an attempt as JSON and, for shells without a JSON tool, one variable for each.
func runResults(r *record.Record) []corev1.EnvVar {
	if r == nil {
		return nil
	}
	results := r.Results
	if results == nil {
		results = map[string]string{}
	}
	b, _ := json.Marshal(results) // strings always marshal
	env := []corev1.EnvVar{{Name: contract.EnvRunResults, Value: string(b)}}
	named := map[string]bool{}
	for _, key := range slices.Sorted(maps.Keys(results)) {
		// If keys differ only in case or punctuation, the first one gets the variable.
		if name := resultVariable(key); !named[name] {
			named[name] = true
			env = append(env, corev1.EnvVar{Name: name, Value: results[key]})
		}
	}
	return env
}

// resultVariable returns the name of the variable for a result: "disk.size-gb" is EVERYNODE_RESULT_DISK_SIZE_GB.
func resultVariable(key string) string {
	return contract.EnvResultPrefix + strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, key)
}
