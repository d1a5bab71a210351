// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/record"
)

// recordState is what a node's record still means for the revision.
type recordState struct {
	done bool
	// rerunReason says why a node that was done is to run again; "" when it is not.
	rerunReason string
	// due is when a node that is done runs again by itself; zero when it does not.
	due time.Time
	// rebooting is true when the task has succeeded, and the run goes on.
	rebooting bool
	// failures counted in this run so far.
	failures int32
	// notBefore is when the next attempt may start.
	notBefore time.Time
	// ranRevision is true when the revision has run there, since when at the earliest.
	ranRevision bool
	since       time.Time
	// succeeded is true when the revision has succeeded there.
	succeeded bool
}

// readRecord reads the node's record. The label is the user's handle on it: taking it off a node that
// is done asks for another run, and setting it to the revision by hand skips the node.
func (s *planner) readRecord(node *Node) recordState {
	rec, label := node.On.Record, node.On.Label
	if s.replaced(node) {
		// A run with a reboot must know that it did not come back.
		return recordState{rebooting: s.isRebooting(rec)}
	}
	was := s.touch(rec)
	switch {
	case s.isRebooting(rec):
		was.rebooting = true
	case s.doneBy(label, s.in.Revision) && !(was.ranRevision && rerunContinues(rec)), was.ranRevision && s.doneBesideSkip(node):
		was.done = true
		was.succeeded = was.ranRevision && rec.Outcome == record.Succeeded
		s.readRerun(node, &was)
	case was.ranRevision && !s.void(rec):
		was.failures, was.notBefore = s.setbacks(rec)
	}
	return was
}

// isRebooting is true for the record of a run of the revision that goes on with a reboot.
func (s *planner) isRebooting(rec *record.Record) bool {
	return rec != nil && rec.Outcome == record.Rebooting && rec.Revision == s.in.Revision
}

// touch notes whether the revision has run there.
func (s *planner) touch(rec *record.Record) recordState {
	if rec == nil || rec.Revision != s.in.Revision {
		return recordState{}
	}
	return recordState{ranRevision: true, since: rec.BeganAt()}
}

// doneBy is true for a label that says that the node is done with the revision.
func (s *planner) doneBy(label, revision string) bool {
	return label != "" && (label == revision || !valueOr(s.in.Job.Spec.Rerun.OnChange, true))
}

// doneBesideSkip reports whether the revision of the record has succeeded while a label that skips another revision was on the
// node, and stayed there.
func (s *planner) doneBesideSkip(node *Node) bool {
	rec := node.On.Record
	return rec.Outcome == record.Succeeded && node.On.Label != "" && rec.Label != rec.Revision
}

// rerunContinues is true for a further run that has not ended: the label is that of the run before. A failure takes the
// label off, so a label that is there afterwards was set by a user to skip the node.
func rerunContinues(rec *record.Record) bool { return rec.Rerun && rec.Outcome != record.Failed }

// readRerun says why and when a node that is done runs the task again without a change of it.
func (s *planner) readRerun(node *Node, was *recordState) {
	rec, rerun := node.On.Record, &s.in.Job.Spec.Rerun
	if rec == nil || rec.Outcome != record.Succeeded || rec.Revision != node.On.Label {
		return // a user has set the label, and it is not known when and where the task ran
	}
	due := s.nextDue(node, s.past(rec.EndedAt()))
	key := s.relabelled(node)
	switch {
	case rerun.OnReboot && differ(rec.BootID, node.BootID):
		was.rerunReason = "the node has rebooted since it was done"
	case key != "":
		was.rerunReason = "the label " + key + ", which the last success removed, was set again"
	case due.IsZero():
	case s.in.Now.Before(due):
		was.due = due
	default:
		was.rerunReason = fmt.Sprintf("it runs every %d s (rerun.everySeconds)", rerun.EverySeconds)
	}
	was.done = was.rerunReason == ""
}

// nextDue is when a node that finished then runs again by rerun.everySeconds; zero when it does not. Each node has
// a time of its own within the interval, so that they do not all run at once, and it is the same for ever: the
// first that comes at least half an interval after the end.
func (s *planner) nextDue(node *Node, finished time.Time) time.Time {
	seconds := int64(s.in.Job.Spec.Rerun.EverySeconds)
	if seconds <= 0 {
		return time.Time{}
	}
	sum := sha256.Sum256([]byte(s.key + "/" + string(node.UID)))
	offset := int64(binary.BigEndian.Uint32(sum[:4])) % seconds
	earliest := finished.Unix() + (seconds+1)/2
	n := (earliest - offset + seconds - 1) / seconds
	return time.Unix(n*seconds+offset, 0).UTC()
}

// isRerun is true for a run on a node that was done with the revision before, and has the label since; with
// rerun.onChange false, with any.
func (s *planner) isRerun(node *Node, revision string) bool {
	rec := node.On.Record
	return s.doneBy(node.On.Label, revision) && !s.replaced(node) && rec != nil && (rec.Rerun || (rec.Outcome == record.Succeeded && rec.Revision == node.On.Label))
}

// setbacks are the failures that are on record, and when the next attempt may start after them.
func (s *planner) setbacks(rec *record.Record) (failures int32, notBefore time.Time) {
	switch rec.Outcome {
	case record.Failed:
		return rec.Attempts, s.after(rec.EndedAt(), rec.Attempts)
	case record.Disrupted:
		return rec.Attempts, s.after(rec.EndedAt(), rec.Disruptions)
	case record.Rebooting:
	case record.Succeeded:
		// Done once, but the label is gone, or says something else than what is on record.
	}
	return 0, time.Time{}
}

// void is true when the user has asked for another try since the attempt on record.
func (s *planner) void(rec *record.Record) bool { return s.retry != "" && rec.Retry != s.retry }

// replaced is true when the record was written by another machine behind the same node name.
func (s *planner) replaced(node *Node) bool {
	rec := node.On.Record
	return onReplace(s.in.Job) && rec != nil && differ(rec.MachineID, node.MachineID)
}

func onReplace(job *v1alpha1.NodeJob) bool { return valueOr(job.Spec.Rerun.OnReplace, true) }

// differ is true for two machines, both of which are known.
func differ(machineID, other string) bool {
	return machineID != "" && other != "" && machineID != other
}

func valueOr[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}
