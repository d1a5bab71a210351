// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/manager/archive"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/nodejob/task"
)

// observeArchive opens the archive for the outputs of a NodeJob, or says what is missing.
func (r observer) observeArchive(seen *observation) {
	store, missing := r.openArchive(seen.job)
	seen.store, seen.archiveMissing = store, missing != nil
	if missing != nil {
		seen.input.Obstacle = missing
	}
}

// openArchive returns the archive for the outputs of a NodeJob; nil if they are not archived. A NodeJob that has them
// archived does not run without an archive. Only what must follow a run does: rollbacks, and checks after a reboot.
func (r observer) openArchive(job *v1alpha1.NodeJob) (*archive.Store, *hold.Why) {
	if job.Spec.Task.Output.Archive != v1alpha1.ArchiveAlways {
		return nil, nil
	}
	store, err := r.Archive.Open()
	if err == nil && r.Options.ArchiveRunnerImage == "" {
		err = errors.New("no image can upload: set --archive-runner-image of the manager")
	}
	if err != nil && !job.DeletionTimestamp.IsZero() {
		return nil, nil // only rollbacks run
	}
	switch {
	case errors.Is(err, archive.ErrNone):
		return nil, &hold.Why{Reason: v1alpha1.ReasonArchiveNotConfigured, Message: "spec.task.output.archive is Always, and the installation has no archive: " +
			"nothing starts. Configure one (archive.enabled of the Helm chart, or --archive-dir of the manager), or remove spec.task.output.archive"}
	case err != nil:
		return nil, &hold.Why{Reason: v1alpha1.ReasonArchiveNotConfigured, Message: "spec.task.output.archive is Always, and the manager cannot use the archive of the installation: " +
			err.Error() + ". Correct the Secret that is mounted for --archive-dir, by default everynode-archive in the namespace of the manager; the NodeJob continues within two minutes"}
	}
	return store, nil
}

// podOf returns the pod of an attempt, with the place where its output is stored.
func (r starter) podOf(ctx context.Context, seen observation, attempt task.Attempt) (*corev1.Pod, error) {
	if seen.store != nil && task.Archives(seen.job, attempt.Phase) {
		place, err := seen.store.Attempt(ctx, seen.job, &attempt, r.Now())
		if err != nil {
			return nil, err
		}
		attempt.Archive = place
	}
	return task.Pod(seen.job, seen.source, attempt, r.Options), nil
}

// archived counts the archive of the pod whose end was recorded.
func (m *Metrics) archived(a plan.Record) {
	if a.Pod.Archive == "" {
		return
	}
	for i := range a.Record.Archives {
		if archive := &a.Record.Archives[i]; archive.Phase == string(a.Pod.Runs) {
			outcome := "Failed"
			if archive.Stored {
				outcome = "Stored"
			}
			m.archives.WithLabelValues(outcome).Inc()
		}
	}
}
