// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"strings"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/nodejob/task"
)

// Revision returns the revision of work, and its digest. It is the short one, unless the status or a record has other
// work with the same short revision. An author of scripts can search for a collision in its 40 bits, and the new work
// must not count as done where the other work ran.
func Revision(job *v1alpha1.NodeJob, src task.Source, nodes []plan.Node) (revision, digest string) {
	digest = task.Digest(&job.Spec, src)
	if status := &job.Status; status.RevisionDigest == digest && status.Revision != "" && strings.HasPrefix(digest, status.Revision) {
		return status.Revision, digest
	}
	revision = task.Revision(&job.Spec, src)
	taken := func(by, other string) bool { return by == revision && other != "" && other != digest }
	if taken(job.Status.Revision, job.Status.RevisionDigest) {
		return task.LongRevision(digest), digest
	}
	for i := range nodes {
		if rec := nodes[i].On.Record; rec != nil && taken(rec.Revision, rec.Digest) {
			return task.LongRevision(digest), digest
		}
	}
	return revision, digest
}
