// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli/term"
	"github.com/everynode/everynode/internal/text"
	"github.com/everynode/everynode/internal/ui/cmdutil"
	"github.com/everynode/everynode/internal/ui/view"
)

// frameInterval is the interval at which a live view is redrawn when only time has changed.
const frameInterval = time.Second

// managerInterval is how often the manager is looked for while the NodeJob does not change: a manager that is away changes nothing.
const managerInterval = 10 * time.Second

// watching is a status that is followed.
type watching struct {
	*statusOptions
	screen *term.Screen
	last   view.Status
	// managerAt is when the manager was looked for last, other than with a view.
	managerAt time.Time
	// stale is true if the nodes of the tree were not read with the last view.
	stale bool
	// expectsDeletion reports whether the NodeJob was being deleted when the command began.
	expectsDeletion bool
	// said is the last line that was printed if the output cannot be redrawn.
	said string
	// disconnectedAt is the time since which the API server does not respond, and why is the error. disconnectedAt is
	// zero if the API server responds.
	disconnectedAt time.Time
	why            error
}

func (o *statusOptions) watching(job *v1alpha1.NodeJob) *watching {
	return &watching{statusOptions: o, expectsDeletion: !job.DeletionTimestamp.IsZero()}
}

// follow shows the NodeJob until it is complete, does not continue without help, or is deleted.
func (o *statusOptions) follow(ctx context.Context, job *v1alpha1.NodeJob) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w := o.watching(job)
	if terminal := o.Terminal(); terminal.Interactive && !o.forPrograms() {
		w.screen = term.NewScreen(o.Out, terminal)
	}
	var deadline <-chan time.Time
	if o.timeout > 0 {
		deadline = o.After(o.timeout)
	}
	observations := cmdutil.Follow(ctx, o.client, o.After, job)
	for {
		end, err := false, error(nil)
		select {
		case observation := <-observations:
			end, err = w.see(ctx, observation)
		case <-w.tick():
			w.refresh(ctx, nil, false)
			w.lookForManager(ctx)
			err = w.draw()
		case <-deadline:
			err = cmdutil.Failf(cmdutil.ExitTimedOut, "NodeJob %s is not complete after %s. This command ends; the NodeJob does not", o.key, o.timeout)
		case <-ctx.Done():
			err = ctx.Err()
		}
		if end || err != nil {
			return err
		}
	}
}

// tick returns a channel that fires when it is time to look at what changes without the NodeJob; nil if that is not shown.
func (w *watching) tick() <-chan time.Time {
	switch {
	case w.forPrograms():
		return nil
	case w.screen == nil:
		return w.After(managerInterval)
	}
	return w.After(frameInterval)
}

// lookForManager reads whether a manager is available, at most every managerInterval.
func (w *watching) lookForManager(ctx context.Context) {
	if w.last.Job == nil || !w.disconnectedAt.IsZero() || w.Now().Sub(w.managerAt) < managerInterval {
		return
	}
	w.managerAt, w.last.NoManager = w.Now(), managerAway(ctx, w.client)
}

// see shows an observation, and reports whether it is the last one.
func (w *watching) see(ctx context.Context, observation cmdutil.Observation) (end bool, err error) {
	switch {
	case observation.Gone && w.expectsDeletion:
		w.Tell(text.Of(fmt.Sprintf("NodeJob %s is deleted", w.key)))
		return true, nil
	case observation.Gone:
		return true, cmdutil.Failf(cmdutil.ExitGone, "NodeJob %s was deleted", w.key)
	case observation.Err != nil:
		return false, w.disconnected(observation.Err)
	}
	w.disconnectedAt, w.why = time.Time{}, nil
	code := verdict(observation.Job)
	if w.forPrograms() {
		err = w.PrintObject(w.output, observation.Job)
	} else {
		w.refresh(ctx, observation.Job, code != inProgress)
		err = w.draw()
	}
	if err != nil || code == inProgress {
		return false, err
	}
	if err := w.finish(); err != nil {
		return true, err
	}
	return true, cmdutil.Exit(code)
}

// refresh reads what is shown of a NodeJob that has changed, or that is nil. The nodes of the tree are read if they may have changed, and
// this does not take more than a tenth of the time, or this is the end.
func (w *watching) refresh(ctx context.Context, job *v1alpha1.NodeJob, end bool) {
	tree := w.screen != nil && (end || w.Now().Sub(w.readAt) >= max(frameInterval, 10*w.readFor))
	if job == nil {
		if !w.stale || !tree {
			return
		}
		job = w.last.Job
	}
	var err error
	w.last, err = w.view(ctx, job, tree)
	w.stale = !tree || err != nil && cmdutil.CodeOf(err) != cmdutil.ExitForbidden
}

// finish replaces the live view with the complete last view. The live view may have been cut to the height of the
// terminal.
func (w *watching) finish() error {
	if w.screen == nil {
		return nil
	}
	if err := w.screen.Draw(nil); err != nil {
		return err
	}
	return w.Say(w.last.Lines()...)
}

// disconnected handles an interruption of the connection. An interruption that ends at once, such as the normal end of
// a watch, is not shown.
func (w *watching) disconnected(err error) error {
	if w.disconnectedAt.IsZero() {
		w.disconnectedAt = w.Now()
		return nil
	}
	w.why = err
	return w.draw()
}

// inProgress is the verdict on a NodeJob on which the manager continues.
const inProgress = -1

// verdict returns the exit code for the current state of a NodeJob. A NodeJob that has stopped is in progress until the
// rollbacks on its failed nodes have ended, and one that is being deleted until it is gone or its deletion is blocked.
func verdict(job *v1alpha1.NodeJob) int {
	switch {
	case job.Status.ObservedGeneration != job.Generation:
		return inProgress
	case !job.DeletionTimestamp.IsZero():
		if meta.IsStatusConditionTrue(job.Status.Conditions, v1alpha1.ConditionStalled) {
			return cmdutil.ExitNodesFailed
		}
		return inProgress
	case meta.IsStatusConditionTrue(job.Status.Conditions, v1alpha1.ConditionComplete):
		if meta.FindStatusCondition(job.Status.Conditions, v1alpha1.ConditionComplete).Reason == v1alpha1.ReasonNonCompliant {
			return cmdutil.ExitNonCompliant
		}
		return cmdutil.ExitOK
	case job.Status.Nodes.RollbackPending > 0 && !job.Spec.Suspend:
		return inProgress
	case meta.IsStatusConditionTrue(job.Status.Conditions, v1alpha1.ConditionStalled):
		return cmdutil.ExitNodesFailed
	case meta.IsStatusConditionFalse(job.Status.Conditions, v1alpha1.ConditionReconciling):
		return cmdutil.ExitWaits
	}
	return inProgress
}

// draw shows the last view with the current time.
func (w *watching) draw() error {
	if w.forPrograms() {
		return nil
	}
	w.last.Now = w.Now()
	if w.screen == nil {
		return w.say()
	}
	columns, _ := w.Terminal().Size()
	w.last.Width = columns
	var lines []text.Line
	if w.last.Job != nil {
		lines = w.last.Lines()
	}
	if w.why != nil {
		lines = append(lines, nil, view.Disconnected(w.last.Now, w.disconnectedAt, w.why.Error()))
	}
	return w.screen.Draw(lines)
}

// say prints one line when something has changed.
func (w *watching) say() error {
	var line text.Line
	switch {
	case w.why != nil:
		line = text.Of("the API server does not answer; what was seen last may be old")
	case w.last.Job == nil:
		return nil
	default:
		line = w.last.Summary()
	}
	said := text.Print([]text.Line{line}, text.Options{})
	if said == w.said {
		return nil
	}
	w.said = said
	return w.Say(append(view.Stamp(w.last.Now), line...))
}
