// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package task

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/runner/contract"
)

// MaxUploadTime is the longest time that the upload of an output can have. A pod with an archive may live that much
// longer: a script that uses all of its time has an archive too, and a slow upload does not fail the attempt.
const MaxUploadTime = contract.MaxUploadSeconds * time.Second

// Archive is where the whole output of an attempt is stored.
type Archive struct {
	// URL takes the output in a PUT request. It may contain a signature, which allows writing this object for some time.
	URL string
	// Location is where the output is found, without a signature.
	Location string
	// CA are certificates in PEM format that sign the one of the server; "" for those that Mozilla trusts.
	CA string
	// MaxBytes limits what is stored of an output.
	MaxBytes int64
	// UploadTime limits the upload.
	UploadTime time.Duration
}

// Archives reports whether the output of a phase is stored in the archive. The pod that reboots a node has none: it runs
// no script, and a reboot that works ends it. Nor has one that only pulls images, or asks a question of a node that is done, or that of
// spec.expires, which is not part of a run.
func Archives(job *v1alpha1.NodeJob, phase Phase) bool {
	switch {
	case phase == Reboot, phase == CheckExpires, phase.AsksDone(), phase == CheckBefore && OnlyPulls(job):
		return false
	}
	return job.Spec.Task.Output.Archive == v1alpha1.ArchiveAlways
}

// PodTimeout returns how long the pod of an attempt may exist: its timeout, and the time for what follows its scripts.
func PodTimeout(job *v1alpha1.NodeJob, phase Phase) time.Duration {
	timeout := Timeout(job, phase) + confirmTimeout(job, phase)
	if Archives(job, phase) {
		timeout += MaxUploadTime
	}
	return timeout
}

// archiveEnv tells the runner where to store the output of an attempt.
func archiveEnv(archive *Archive) []corev1.EnvVar {
	if archive == nil {
		return nil
	}
	return []corev1.EnvVar{{Name: contract.EnvArchive, Value: contract.JSON(contract.Archive{
		URL: archive.URL, CA: archive.CA, MaxBytes: archive.MaxBytes, Seconds: int64(archive.UploadTime / time.Second),
	})}}
}
