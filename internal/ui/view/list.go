// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"strconv"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/text"
)

// List is a list of NodeJobs.
type List struct {
	Jobs []v1alpha1.NodeJob
	// Namespaces reports whether they may be in several namespaces.
	Namespaces bool
	// Wide reports whether additional columns are shown.
	Wide bool
	Now  time.Time
}

// listBar is the number of columns of the progress in a list.
const listBar = 12

// Lines draws the list.
func (l List) Lines() []text.Line {
	header := text.Cells("NAME", "STATUS", "DONE", "RUNNING", "FAILED", "STEP", "AGE", "PROGRESS")
	if l.Wide {
		header = append(header, text.Cells("REVISION", "PROMOTE TO", "MESSAGE")...)
	}
	if l.Namespaces {
		header = append(text.Cells("NAMESPACE"), header...)
	}
	rows := [][]text.Line{header}
	for i := range l.Jobs {
		rows = append(rows, l.row(&l.Jobs[i]))
	}
	return text.Table(rows)
}

func (l List) row(job *v1alpha1.NodeJob) []text.Line {
	n, step := job.Status.Nodes, ""
	if job.Status.Rollout != nil {
		step = job.Status.Rollout.Step
	}
	tone, reason, message, _ := situationAt(job, l.Now)
	failed := text.Of(number(n.Failed))
	if n.Failed > 0 {
		failed = text.Toned(text.Bad, number(n.Failed))
	}
	judged, _ := Judged(job)
	row := []text.Line{
		text.Of(job.Name), found(text.Toned(tone, reason), job), text.Of(number(n.Done) + "/" + number(n.Total)), text.Of(number(n.Running)), failed,
		text.Of(step), text.Of(ago(l.Now, job.CreationTimestamp.Time)), progressBar(listBar, judged.Done+judged.Expired, judged.Running, judged.Waiting, judged.Failed+drifted(job)),
	}
	if l.Wide {
		row = append(row, text.Cells(job.Status.Revision, job.Spec.Rollout.PromoteTo, message)...)
	}
	if l.Namespaces {
		row = append(text.Cells(job.Namespace), row...)
	}
	return row
}

// found adds to the reason of a NodeJob what its checks have found on nodes, which the reason does not say.
func found(reason text.Line, job *v1alpha1.NodeJob) text.Line {
	switch n := &job.Status.Nodes; {
	case n.NonCompliant == 0:
	case task.IsAudit(job):
		reason = reason.Tone(text.Bad, ", "+judgment(job))
	default:
		reason = reason.Tone(text.Warn, ", "+number(n.NonCompliant)+" drifted")
	}
	if n := &job.Status.Nodes; n.Expired > 0 {
		reason = reason.With(", " + number(n.Expired) + " expired")
	}
	return reason
}

// progressBar has a different character for each state, so that it does not depend on colour.
func progressBar(columns int, done, running, waiting, failed int32) text.Line {
	return text.Bar(columns,
		text.Part{Count: int(done), Mark: '=', Tone: text.Good},
		text.Part{Count: int(running), Mark: '>', Tone: text.Active},
		text.Part{Count: int(waiting), Mark: '.', Tone: text.Dim},
		text.Part{Count: int(failed), Mark: '!', Tone: text.Bad})
}

func number(n int32) string { return strconv.Itoa(int(n)) }
