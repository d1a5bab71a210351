package plan

import (
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/record"
)

// standing is what a node's record still means for the revision.
type standing struct {
	done bool
	// failures counted in this run so far.
	failures int32
	// notBefore is when the next attempt may start.
	notBefore time.Time
	// touched is true when the revision has run there, since when at the earliest.
	touched bool
	since   time.Time
	// proof is true when the revision has succeeded there.
	proof bool
}

// standing reads the node's record. The label is the user's handle on it: taking it off a node that
// is done asks for another run, and setting it to the revision by hand skips the node.
func (s *survey) standing(node *Node) standing {
	rec, label := node.On.Record, node.On.Label
	if s.replaced(node) {
		return standing{}
	}
	var was standing
	if rec != nil && rec.Revision == s.in.Revision {
		was.touched, was.since = true, rec.StartedAt
	}
	switch {
	case label != "" && label == s.in.Revision:
		was.done = true
		was.proof = was.touched && rec.Outcome == record.Succeeded
	case label != "" && !valueOr(s.in.Job.Spec.Rerun.OnChange, true):
		was.done = true
	case was.touched && !s.void(rec):
		was.failures, was.notBefore = s.setbacks(rec)
	}
	return was
}

// setbacks are the failures that are on record, and when the next attempt may start after them.
func (s *survey) setbacks(rec *record.Record) (failures int32, notBefore time.Time) {
	switch rec.Outcome {
	case record.Failed:
		return rec.Attempts, s.after(rec.FinishedAt, rec.Attempts)
	case record.Disrupted:
		return rec.Attempts, s.after(rec.FinishedAt, rec.Disruptions)
	case record.Succeeded:
		// Done once, but the label is gone, or says something else than what is on record.
	}
	return 0, time.Time{}
}

// void is true when the user has asked for another try since the attempt on record.
func (s *survey) void(rec *record.Record) bool { return s.retry != "" && rec.Retry != s.retry }

// replaced is true when the record was written by another machine behind the same node name.
func (s *survey) replaced(node *Node) bool {
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
