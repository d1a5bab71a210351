// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package task

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/runner/contract"
)

// undoes returns what a rollback gets to know about the attempt that it undoes: how it ended and its results.
func undoes(a Attempt) []corev1.EnvVar {
	why := contract.RollbackForFailure
	switch {
	case a.Deleting:
		why = contract.RollbackForDeletion
	case a.Expiring:
		why = contract.RollbackForExpiry
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

// runResults returns the results of an attempt for the script that undoes or checks it.
func runResults(r *record.Record) []corev1.EnvVar {
	if r == nil {
		return nil
	}
	variables := contract.ResultVariables(r.Results)
	env := make([]corev1.EnvVar, 0, len(variables))
	for _, v := range variables {
		env = append(env, corev1.EnvVar{Name: v.Name, Value: v.Value})
	}
	return env
}
