// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package steer

import (
	"fmt"
	"strconv"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/plural"
)

// RetryAll requests a retry on every failed node.
func RetryAll(job *v1alpha1.NodeJob, now time.Time) Decision {
	status := &job.Status
	unrecorded := status.Rollout != nil && len(status.Rollout.UnrecordedFailures) > 0
	if status.Nodes.Failed == 0 && len(status.Failures) == 0 && !unrecorded {
		return nothing("no node has failed")
	}
	value := strconv.FormatInt(now.Unix(), 10)
	changed := job.DeepCopy()
	if changed.Annotations == nil {
		changed.Annotations = map[string]string{}
	}
	changed.Annotations[v1alpha1.RetryAnnotation] = value
	return Decision{
		Job:    changed,
		Did:    fmt.Sprintf("retry requested on %s: annotation %s=%s", plural.Count(Failed(job), "node"), v1alpha1.RetryAnnotation, value),
		Then:   UntilResumed(job),
		Commit: "metadata.annotations: {" + v1alpha1.RetryAnnotation + ": " + strconv.Quote(value) + "}; any new value requests a retry",
	}
}

// Failed returns the number of nodes on which RetryAll requests a retry.
func Failed(job *v1alpha1.NodeJob) int {
	return max(int(job.Status.Nodes.Failed), len(job.Status.Failures))
}

// Retry requests a retry on a node on which the task has failed. With alone, other nodes wait for its end.
func Retry(job *v1alpha1.NodeJob, node Node, alone bool) NodeDecision {
	rec := node.Record
	switch {
	case node.Altered && node.Label == "":
		return leave("its record was changed by something other than the manager and is ignored: the task runs there automatically")
	case rec == nil && node.Label == "":
		return leave("no attempt has ended there")
	case node.isDone(job):
		return leave("it is done there; to run it again, use rerun")
	case node.isOld(job):
		return leave("it has not run there with revision " + revision(job) + " yet, and does so automatically")
	case rec.Outcome != record.Failed && rec.Outcome != record.Disrupted:
		return leave("it has not failed there: the record says " + string(rec.Outcome))
	}
	next := *rec
	next.RetryRequested, next.RunsAlone = true, alone
	encoded := record.Encode(next)
	seal, did := record.Seal(encoded), "retry requested"
	if alone && OthersWait(job) {
		did += "; other nodes wait until the run there has ended (--with-others: they do not wait)"
	}
	key := recordKey(job)
	return NodeDecision{Annotations: map[string]*string{key: &encoded}, Labels: map[string]*string{record.SealKey(key): &seal}, Did: did}
}

// OthersWait reports whether a retry on a node that runs alone makes other nodes wait: during a rollout.
func OthersWait(job *v1alpha1.NodeJob) bool {
	return job.Status.Rollout == nil || job.Status.Rollout.StableAt.IsZero()
}
