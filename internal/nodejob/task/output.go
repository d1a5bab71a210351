// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package task

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/runner/contract"
)

// messagePolicy makes the kubelet use the last lines of the log if a container writes no message, for example if the
// kernel kills the runner for its memory use. It does not if output must not be stored.
func messagePolicy(output v1alpha1.OutputPolicy) corev1.TerminationMessagePolicy {
	if output == v1alpha1.OutputNone {
		return corev1.TerminationMessageReadFile
	}
	return corev1.TerminationMessageFallbackToLogsOnError
}

// outputEnv tells the runner how much of the scripts' output it may store.
func outputEnv(job *v1alpha1.NodeJob, phase Phase) []corev1.EnvVar {
	var env []corev1.EnvVar
	if job.Spec.Task.Output.Record == v1alpha1.OutputNone {
		env = append(env, corev1.EnvVar{Name: contract.EnvOutput, Value: contract.OutputNone})
	}
	if names := secretNames(job.Spec.Task.Env); len(names) > 0 && phase != Reboot {
		env = append(env, corev1.EnvVar{Name: contract.EnvMask, Value: contract.JSON(names)})
	}
	return env
}

// versionEnv tells the runner which version started it.
func versionEnv(opts Options) []corev1.EnvVar {
	if opts.Version == "" {
		return nil
	}
	return []corev1.EnvVar{{Name: contract.EnvVersion, Value: opts.Version}}
}

// secretNames returns the variables whose values come from Secrets.
func secretNames(env []v1alpha1.EnvVar) []string {
	var names []string
	for i := range env {
		if from := env[i].ValueFrom; from != nil && from.SecretKeyRef != nil {
			names = append(names, env[i].Name)
		}
	}
	return names
}
