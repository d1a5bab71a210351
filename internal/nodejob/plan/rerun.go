// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
)

// recordReader reads what the record of a node means.
type recordReader struct{ *job }

// recordState is what the record of a node means for the revision.
type recordState struct {
	done bool
	// rerunReason says why a node that was done reruns the task; "" if it does not.
	rerunReason string
	// due is when a node that is done reruns the task automatically; zero if it does not.
	due time.Time
	// rebooting is true if the task has succeeded, and the run continues, or is still to be left for another revision.
	rebooting bool
	// expired is true if the node is done because the task is no longer needed there.
	expired bool
	// needed is true if the check before the task has answered no for this run.
	needed bool
	// drifted is true if the task runs again because the node has drifted.
	drifted bool
	// failures is the number of failures in this run so far.
	failures int32
	// notBefore is when the next attempt may start.
	notBefore time.Time
	// ranRevision is true if the revision has run there, and since is its earliest start.
	ranRevision bool
	since       time.Time
	// succeeded is true if the revision has succeeded there.
	succeeded bool
}

// readRecord reads the record of the node. Users control it with the label: to remove it from a node that is done
// requests another run, and to set it to the revision skips the node.
func (r *recordReader) readRecord(node *Node) recordState {
	rec := node.On.Record
	if r.replaced(node) {
		// A run with a reboot must know that the node did not come back.
		return recordState{rebooting: r.isRebooting(rec)}
	}
	was := r.touch(rec)
	switch {
	case r.isRebooting(rec), r.leavesRun(rec):
		was.rebooting = true
	case node.On.DoneWith(r.in.Revision, r.anyRevision()):
		was.done = true
		was.succeeded = was.ranRevision && rec.Outcome.Done()
		was.expired = rec != nil && rec.IsExpired()
		r.readRerun(node, &was)
	case rec != nil && rec.Revision == r.in.Revision && !rec.IsAssumed() && !r.void(rec):
		was.failures, was.notBefore = r.setbacks(rec)
		was.needed = rec.CheckBefore == record.AnswerNo
	}
	return was
}

// isRebooting reports whether this is the record of a run of the revision that continues with a reboot.
func (p *policy) isRebooting(rec *record.Record) bool {
	return rec != nil && rec.Outcome == record.Rebooting && rec.Revision == p.in.Revision
}

// touch notes whether the revision has run there.
func (r *recordReader) touch(rec *record.Record) recordState {
	if rec == nil || !rec.HasRun(r.in.Revision) {
		return recordState{}
	}
	return recordState{ranRevision: true, since: rec.BeganAt()}
}

// anyRevision reports whether a node that is done with another revision is done.
func (p *policy) anyRevision() bool { return !valueOr(p.in.Job.Spec.Rerun.OnRevisionChange, true) }

// readRerun determines why and when a node that is done reruns the task without a change of the task.
func (r *recordReader) readRerun(node *Node, was *recordState) {
	rec, rerun := node.On.Record, &r.in.Job.Spec.Rerun
	if !node.On.HasLabelOfSuccess() {
		return // a user has set the label, and it is not known when and where the task ran
	}
	due := r.nextDue(node, r.past(rec.EndedAt()))
	was.rerunReason = r.changedSince(node, was)
	switch {
	case was.rerunReason != "":
	case !due.IsZero() && !r.in.Now.Before(due):
		was.rerunReason = fmt.Sprintf("it runs every %d s (rerun.periodSeconds)", rerun.PeriodSeconds)
	case rerun.OnNodeFieldChange && inputsChanged(r.in.Job, node, rec) && rec.Revision == r.in.Revision:
		was.rerunReason, was.notBefore = inputsReason, r.afterInputPause(rec, due)
	default:
		was.due = due
	}
	was.done = was.rerunReason == ""
}

// changedSince says what has changed on a node since it was done, so that it reruns the task; "" if nothing has.
func (r *recordReader) changedSince(node *Node, was *recordState) string {
	rec, key := node.On.Record, r.relabelled(node)
	switch {
	case r.in.Job.Spec.Rerun.OnReboot && differ(rec.BootID, node.BootID):
		return "the node has rebooted since it was done"
	case key != "":
		return "the label " + key + ", which the last success removed, was set again"
	case r.repairs(rec):
		was.drifted = true
		return driftText(rec) + " (task.check.onDrift)"
	}
	return ""
}

// nextDue is when a node that finished at that time reruns the task because of rerun.periodSeconds; zero if it does not.
func (r *recordReader) nextDue(node *Node, finished time.Time) time.Time {
	return dueAfter(finished, r.in.Job.Spec.Rerun.PeriodSeconds, r.key, node.UID)
}

// dueAfter is when a node reruns a task periodically that finished there at that time; zero if there is no period. The next run
// is at the first fixed time of the node that is at least half an interval after the end.
func dueAfter(finished time.Time, period int32, key string, node types.UID) time.Time {
	if period <= 0 {
		return time.Time{}
	}
	return slotAfter(finished.Add(time.Duration((int64(period)+1)/2)*time.Second), period, key, node)
}

// slotAfter is the first fixed time of a node that is not before a time. Each node has its own one within the interval, so that the
// nodes do not all run at the same time. The period is in seconds, and at least 1.
func slotAfter(at time.Time, period int32, key string, node types.UID) time.Time {
	seconds := int64(period)
	sum := sha256.Sum256([]byte(key + "/" + string(node)))
	offset := int64(binary.BigEndian.Uint32(sum[:4])) % seconds
	n := (at.Unix() - offset + seconds - 1) / seconds
	return time.Unix(n*seconds+offset, 0).UTC()
}

// isRerun reports whether this is a run on a node that was done with the revision before and still has the label. With
// rerun.onRevisionChange false, the label may be of any revision.
func (j *job) isRerun(node *Node, revision string) bool {
	rec := node.On.Record
	return node.On.HasLabelOf(revision, j.anyRevision()) && !j.replaced(node) && rec != nil && !rec.LabelRemoved &&
		(rec.Rerun || node.On.HasLabelOfSuccess())
}

// rerunsSuccess reports whether a run on a node is a rerun, and the revision has succeeded there before.
func (j *job) rerunsSuccess(node *Node) bool {
	return j.isRerun(node, j.in.Revision) && !node.On.Record.Assumed
}

// setbacks are the failures that are on record, and when the next attempt may start after them.
func (r *recordReader) setbacks(rec *record.Record) (failures int32, notBefore time.Time) {
	switch rec.Outcome {
	case record.Failed:
		if rec.Reverted { // another attempt would cut the node off again
			return max(rec.Attempts, r.retryLimit()+1), r.after(rec.EndedAt(), rec.Attempts)
		}
		return rec.Attempts, r.after(rec.EndedAt(), rec.Attempts)
	case record.Disrupted:
		return rec.Attempts, r.after(rec.EndedAt(), rec.Disruptions)
	case record.Needed:
		return rec.Attempts, time.Time{}
	case record.Rebooting:
	case record.Succeeded, record.Expired:
		// The node was done, but the label is missing, or differs from the record.
	}
	return 0, time.Time{}
}

// void reports whether a user has requested a retry since the attempt on record, on this node or on all.
func (j *job) void(rec *record.Record) bool {
	return rec.RetryRequested || (j.retry != "" && rec.Retry != j.retry)
}

// replaced reports whether the record was written for another machine with the same node name.
func (j *job) replaced(node *Node) bool {
	rec := node.On.Record
	return onMachineChange(j.in.Job) && rec != nil && differ(rec.MachineID, node.MachineID)
}

func onMachineChange(job *v1alpha1.NodeJob) bool {
	return valueOr(job.Spec.Rerun.OnMachineChange, true)
}

// differ reports whether both machines are known and different.
func differ(machineID, other string) bool {
	return machineID != "" && other != "" && machineID != other
}

func valueOr[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}
