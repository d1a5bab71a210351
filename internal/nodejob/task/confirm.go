// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package task

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/runner/contract"
	"github.com/everynode/everynode/internal/seal"
)

const (
	// MinConfirmSeconds is the least confirm.timeoutSeconds. A manager that is replaced confirms within it: the lease of the last one expires
	// after 30 seconds, and then the next one must read the cluster, and the kubelet must show the confirmation to the node.
	MinConfirmSeconds = 60
	// DefaultConfirmSeconds is confirm.timeoutSeconds when omitted. It leaves time for a new pod of the manager, which may have to be scheduled,
	// and whose image may have to be pulled.
	DefaultConfirmSeconds = 180
	// DefaultProbeSeconds is timeoutSeconds of a probe of confirm when omitted.
	DefaultProbeSeconds = 10

	// reportTime is how long after a rollback on the node its kubelet may take to report it. The connections of a kubelet to the
	// API server need up to half a minute to recover.
	reportTime = 60 * time.Second

	confirmVolume = "everynode-confirm"
)

// Confirms reports whether the pod of a phase waits for a confirmation after its task.
func Confirms(job *v1alpha1.NodeJob, phase Phase) bool {
	return phase == Task && job.Spec.Confirm != nil && job.Spec.Rollback != nil && job.Spec.Task.Template == nil
}

// Confirmation is what the manager writes into the annotation of a pod to confirm its node. Without the key, it cannot be predicted.
func Confirmation(key seal.Key, pod string) string { return key.Digest("confirm", pod) }

// confirmDigest returns the digest of the confirmation of an attempt; "" if its pod waits for none.
func confirmDigest(job *v1alpha1.NodeJob, a Attempt, opts Options) string {
	if !Confirms(job, a.Phase) {
		return ""
	}
	return contract.ConfirmDigest(Confirmation(opts.Key, PodName(opts.Key, job, a)))
}

// confirmTimeout returns how long the pod of a phase may exist after its task has ended, until its kubelet has reported how.
func confirmTimeout(job *v1alpha1.NodeJob, phase Phase) time.Duration {
	if !Confirms(job, phase) {
		return 0
	}
	return ConfirmWindow(job) + Timeout(job, Rollback) + reportTime
}

// ConfirmWindow returns how long a node waits for the confirmation after the task of a NodeJob with spec.confirm: 60 seconds to an hour.
func ConfirmWindow(job *v1alpha1.NodeJob) time.Duration {
	seconds := int32(DefaultConfirmSeconds)
	if s := job.Spec.Confirm.TimeoutSeconds; s != nil {
		seconds = *s
	}
	return time.Duration(seconds) * time.Second
}

// confirmEnv tells the runner what to wait for after the task, and what to do without it.
func confirmEnv(job *v1alpha1.NodeJob, src Source, a Attempt, opts Options) []corev1.EnvVar {
	if !Confirms(job, a.Phase) {
		return nil
	}
	env := []corev1.EnvVar{{Name: contract.EnvConfirm, Value: contract.JSON(contract.Confirm{
		SHA256:  confirmDigest(job, a, opts),
		Seconds: int64(ConfirmWindow(job) / time.Second), RollbackSeconds: int64(Timeout(job, Rollback) / time.Second),
		Probes: confirmProbes(job.Spec.Confirm.Probes),
	})}}
	return append(env, scriptIn(contract.EnvRollback, src.Rollback, contract.EnvRollbackInterpreter, job.Spec.Rollback.Interpreter)...)
}

func confirmProbes(probes []v1alpha1.ConfirmProbe) []contract.Probe {
	var all []contract.Probe
	for _, p := range probes {
		seconds := int64(DefaultProbeSeconds)
		if p.TimeoutSeconds != nil {
			seconds = int64(*p.TimeoutSeconds)
		}
		all = append(all, contract.Probe{Name: p.Name, Script: p.Script, Seconds: seconds})
	}
	return all
}

// confirmSpec adds to the pod of a task how its kubelet reports that the task has ended, and where it writes the confirmation. A
// readiness probe that never returns before costs nothing while the task runs. A downward API volume does not keep kubectl drain from
// evicting a pod. The pod has the time for its rollback when it is deleted.
func confirmSpec(spec *corev1.PodSpec, rollback time.Duration) {
	grace := int64(rollback/time.Second) + graceSeconds
	spec.TerminationGracePeriodSeconds = &grace
	spec.Volumes = append(spec.Volumes, corev1.Volume{Name: confirmVolume, VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
		Items: []corev1.DownwardAPIVolumeFile{{
			Path:     contract.ConfirmFile,
			FieldRef: &corev1.ObjectFieldSelector{FieldPath: fmt.Sprintf("metadata.annotations['%s']", v1alpha1.ConfirmedAnnotation)},
		}},
	}}})
	container := &spec.Containers[0]
	container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: confirmVolume, MountPath: contract.ConfirmDir, ReadOnly: true})
	container.ReadinessProbe = &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{
			Command: []string{contract.RunnerPath, "--" + contract.FlagConfirming, "--" + contract.FlagRunDir + "=" + runDir},
		}},
		PeriodSeconds:  1,
		TimeoutSeconds: probeSeconds,
	}
}

// probeSeconds is longer than any task may run.
const probeSeconds = 7 * 24 * 60 * 60
