// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package record

// HasLabelOf reports whether the label says that the node is done with a revision. anyRevision is true if the label of any
// revision says so, as with rerun.onRevisionChange false.
func (on NodeRecord) HasLabelOf(revision string, anyRevision bool) bool {
	return on.Label != "" && (anyRevision || on.Label == revision)
}

// DoneWith reports whether the node is done with a revision: its label says so, and no run continues there. It is the one answer
// to this question. What it does not know is whether the record is of another machine, and whether something other than a user
// or another revision requests a rerun, such as a reboot.
func (on NodeRecord) DoneWith(revision string, anyRevision bool) bool {
	rec := on.Record
	if rec == nil || rec.Revision != revision {
		return on.HasLabelOf(revision, anyRevision)
	}
	switch rec.Outcome {
	case Rebooting:
		return false
	case Succeeded:
		if on.Label != "" && rec.Label != rec.Revision {
			return true // a label that skips another revision was on the node, and remained there
		}
	case Failed, Disrupted, Needed, Expired:
	}
	return on.HasLabelOf(revision, anyRevision) && !rec.rerunContinues()
}

// HasLabelOfSuccess reports whether the label is that of the success on record. Otherwise, a user has set or removed the label or the
// record, or a run has failed since.
func (on NodeRecord) HasLabelOfSuccess() bool {
	return on.Record != nil && on.Record.Outcome == Succeeded && on.Record.Revision == on.Label
}

// WasDone reports whether the node has been done with any revision.
func (on NodeRecord) WasDone() bool {
	return on.Label != "" || (on.Record != nil && on.Record.Outcome.Done())
}

// HasRun reports whether the record is of an attempt with a revision.
func (r *Record) HasRun(revision string) bool {
	return r.Revision == revision && !r.IsAssumed() && !r.onlyChecked()
}

// MayHaveStarted reports whether the run on record may have started the task. A question, and a drain before the task, have not.
func (r *Record) MayHaveStarted() bool {
	return !r.NeverStarted && !r.NotStarted && r.CheckBefore == ""
}

// rerunContinues reports whether a rerun has not ended. Then the label is from the earlier run. A failure removes the label, so if
// the label exists afterwards, a user has set it to skip the node. So it is after a user has removed it.
func (r *Record) rerunContinues() bool {
	return r.Rerun && r.Outcome != Failed && !r.LabelRemoved
}
