// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/plural"
	"github.com/everynode/everynode/internal/text"
	"github.com/everynode/everynode/internal/ui/cmdutil"
	"github.com/everynode/everynode/internal/ui/view"
)

func (r *running) tellBegin() {
	if r.display.screen == nil {
		r.Tell(text.Of(fmt.Sprintf("NodeJob %s/%s runs %s on %s", r.job.Namespace, r.job.Name, r.what(), plural.Count(r.view.Count(view.RunWaiting), "node"))))
	}
}

// note returns additional information that does not belong to a single node.
func (r *running) note() string {
	waited := r.Now().Sub(r.view.Began)
	switch {
	case r.disconnected != "":
		return r.disconnected
	case r.stops > 0:
		return r.stopping()
	case r.saved != nil && r.saved.err != nil:
		return "not everything can be saved: " + r.saved.err.Error()
	case !r.seen && waited > observeTimeout:
		return r.unobserved()
	case r.excludeErr != nil:
		return "the name of a deleted node could not be removed from the NodeJob, so a machine that registers with it runs the command; retrying: " + r.excludeErr.Error()
	}
	return r.noteOfTheRun()
}

// noteOfTheRun returns what lasts longer, or is less urgent.
func (r *running) noteOfTheRun() string {
	if r.logsForbidden != nil {
		return r.logsForbidden.Error() + "; what is shown of output is what is on record, at most the last 1024 bytes"
	}
	if stalled := cmdutil.Stalled(r.job); stalled != nil && !r.finished() {
		return stalled.Message
	}
	if c := meta.FindStatusCondition(r.job.Status.Conditions, v1alpha1.ConditionReconciling); c != nil && c.Reason == v1alpha1.ReasonBudgetClosed && !r.finished() {
		return c.Message
	}
	return ""
}

// draw writes the lines that were printed, and the progress.
func (r *running) draw() {
	now := r.Now()
	r.view.Now, r.view.Note = now, r.note()
	r.reportEnded(false)
	if r.display.screen == nil {
		r.display.writePrinted()
		r.display.say(now, r.view.Summary())
		return
	}
	if r.display.printed.Len() > 0 && r.Terminal().Interactive {
		_ = r.display.screen.Draw(nil) // clear the screen first; data is never cut to the width of the terminal
	}
	r.display.writePrinted()
	r.view.Width, _ = r.Terminal().Size()
	_ = r.display.screen.Draw(r.view.Frame())
}
