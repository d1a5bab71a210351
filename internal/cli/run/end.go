// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli/term"
	"github.com/everynode/everynode/internal/text"
	"github.com/everynode/everynode/internal/ui/cmdutil"
	"github.com/everynode/everynode/internal/ui/view"
)

// end prints the result, and cleans up.
func (r *running) end(ctx context.Context, how ending) error {
	if how != endDetached && how != endTimedOut {
		r.finishOpenNodes(ctx, how)
	}
	for _, n := range r.nodes {
		r.fillIn(n)
	}
	r.saveIndex(true)
	err := r.show()
	r.Tell(r.notes...)
	if r.display.writeErr != nil && !r.display.closed() {
		err, r.display.broken = fmt.Errorf("writing what the nodes printed: %w", r.display.writeErr), false // a full disk is an error
	}
	after := r.cleanUp(ctx, how)
	r.tellEnd(after)
	switch code := r.exitCode(how); {
	case code != cmdutil.ExitOK:
		r.tellLost(err)
		return cmdutil.Exit(code)
	case err != nil && !r.display.broken:
		return err
	case r.saved != nil && r.saved.err != nil:
		return cmdutil.Exit(cmdutil.ExitError)
	}
	return nil
}

// tellLost prints that output was lost, beside an exit code with another meaning. A reader that has closed the pipe does not
// want more.
func (r *running) tellLost(err error) {
	if err != nil && !r.display.broken {
		r.Tell(text.Toned(text.Bad, "error: ").With(err.Error()))
	}
}

// finishOpenNodes determines the final state of the nodes that are still open when nothing more is expected.
func (r *running) finishOpenNodes(ctx context.Context, how ending) {
	if how == endRest {
		r.readRecords(ctx)
	}
	why := "the run has ended before it started there"
	switch {
	case how == endGone:
		why = "the NodeJob was deleted"
	case r.stops > 0:
		why = "the run was stopped before it started there"
	default:
		if stalled := cmdutil.Stalled(r.job); stalled != nil {
			why = stalled.Reason
		}
	}
	for _, n := range r.nodes {
		if !n.State.Final() {
			n.State, n.Said = view.RunNotRun, why
		}
	}
}

// readRecords reads the current records of the nodes, because the watch of nodes may be behind that of the NodeJob.
func (r *running) readRecords(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, r.patience)
	defer cancel()
	list := cmdutil.NewNodeMetadataList()
	if err := r.client.List(ctx, list); err == nil {
		r.observeNodes(changeOf(list))
	}
}

// fillIn uses the record of a node if its log could not be read.
func (r *running) fillIn(n *node) {
	o := n.output
	if o.filled {
		return
	}
	o.filled = true
	r.display.printLines(n.Name, o.flush())
	if rec := n.record; rec != nil && !n.readWhole() && n.State.Final() {
		// Without an exit code, the message is not output, but the reason.
		o.recordedWhole = rec.ExitCode != nil && !o.any && !strings.HasPrefix(rec.Message, "…")
		if rec.Message != "" {
			r.fillInMessage(n, rec.Message)
		}
	}
}

// fillInMessage takes the end of an output from the record, and notes what may be missing.
func (r *running) fillInMessage(n *node, message string) {
	o := n.output
	switch why := because(cmp.Or(o.err, r.logsForbidden)); {
	case o.any:
		o.note = "the end of the log could not be read" + why + "; on record are the last lines of it"
	case strings.HasPrefix(message, "…"):
		o.note = "the log could not be read" + why + "; on record is its end, of at most 1024 bytes"
	}
	end := []byte(strings.TrimRight(message, "\n") + "\n")
	r.saved.add(n.Name, end)
	r.display.printLines(n.Name, append(o.add(end), o.flush()...))
	if o.note != "" && o.room == 0 {
		r.notes = append(r.notes, text.Toned(text.Warn, n.Name+": "+o.note))
	}
}

func because(err error) string {
	switch {
	case err == nil:
		return ""
	case apierrors.IsNotFound(err):
		return ", since its pod is gone"
	}
	return " (" + strings.TrimSuffix(cmdutil.Explain(err).Error(), ".") + ")"
}

// cleanUp deletes the NodeJob if requested, or if nothing was run and there is nothing to inspect; otherwise it suspends the
// NodeJob. It returns messages about what remains.
func (r *running) cleanUp(ctx context.Context, how ending) string {
	idle := how == endRest && r.isIdle()
	switch {
	case how == endGone:
		return ""
	case r.remove || idle:
	case how == endDetached && !r.started() && r.withdraw(ctx):
		return "Nothing had started, and NodeJob " + r.job.Name + " is deleted."
	default:
		return r.leave(ctx, how)
	}
	if err := r.deleteJob(ctx); err != nil {
		return r.notDeleted(ctx, err)
	}
	if idle {
		return "Nothing was run, and NodeJob " + r.job.Name + " is deleted."
	}
	return ""
}

// notDeleted suspends a NodeJob that could not be deleted, and says what remains.
func (r *running) notDeleted(ctx context.Context, err error) string {
	deletion := fmt.Sprintf("NodeJob %s could not be deleted: %s. Delete it with: kubectl delete nodejob %s", r.job.Name, cmdutil.Explain(err), r.where())
	if err := r.endRun(ctx); err != nil {
		deletion += ". " + r.notSuspended(err)
	}
	return deletion
}

// isIdle reports whether nothing was run, and there is nothing to inspect.
func (r *running) isIdle() bool {
	return r.view.Count(view.RunSucceeded)+r.view.Count(view.RunFailed) == 0 && (r.stops == 0 || !r.seen)
}

// leave suspends the NodeJob, unless the run continues without the command.
func (r *running) leave(ctx context.Context, how ending) string {
	if how == endDetached || how == endTimedOut {
		r.excludeGone(ctx)
	} else if err := r.endRun(ctx); err != nil {
		return r.notSuspended(err) + ". " + r.remainingMessage(how)
	}
	return r.remainingMessage(how)
}

// remainingMessage returns how to check the run later, and how to continue.
func (r *running) remainingMessage(how ending) string {
	where := r.where()
	check := fmt.Sprintf("To check it later: kubectl everynode status %s --watch; kubectl everynode logs %s.", where, where)
	remove := "To delete it: kubectl delete nodejob " + where
	switch {
	case how == endDetached && r.suspended:
		return fmt.Sprintf("No new attempts start, and running attempts continue without this command. %s To let the rest run: kubectl everynode resume %s. To end running attempts: kubectl everynode abort %s. %s", check, where, where, remove)
	case how == endDetached, how == endTimedOut:
		return fmt.Sprintf("The run continues without this command. %s To stop it: kubectl everynode abort %s. %s", check, where, remove)
	case r.view.Count(view.RunNotRun) > 0 && r.suspended:
		return fmt.Sprintf("NodeJob %s is kept for %s. To let the rest run: kubectl everynode resume %s. %s", r.job.Name, r.ttl, where, remove)
	}
	return fmt.Sprintf("NodeJob %s is kept for %s: kubectl everynode status %s", r.job.Name, r.ttl, where)
}

// tellEnd writes the result, and with --save also into a file.
func (r *running) tellEnd(after string) {
	r.view.Now = r.Now()
	if r.saved != nil {
		r.saved.replace(summaryFile, []byte(text.Print(r.endLines(after, 0), text.Options{})))
	}
	r.Tell(r.endLines(after, term.Of(r.ErrOut, r.Getenv).Options().Width)...)
}

// endLines returns the result, and what a user may do with it.
func (r *running) endLines(after string, width int) []text.Line {
	r.view.Width = width
	lines := r.view.End()
	add := func(head text.Line, message string) {
		lines = append(lines, text.Wrap(head, text.Plain, message, width)...)
	}
	if c := cmdutil.Stalled(r.job); c != nil && r.view.Count(view.RunNotRun) > 0 && c.Reason != v1alpha1.ReasonMaxFailuresExceeded {
		add(text.Toned(text.Bad, c.Reason+": "), c.Message)
	}
	switch {
	case r.saved == nil:
	case r.saved.err != nil:
		add(text.Toned(text.Bad, "not everything is saved: "), r.saved.err.Error())
	case r.view.Count(view.RunSucceeded) < len(r.view.Nodes):
		add(nil, fmt.Sprintf("The output is saved in %s. To repeat the command on the nodes on which it did not succeed: --limit @%s", r.saved.dir, r.saved.dir))
	default:
		add(nil, "The output is saved in "+r.saved.dir+".")
	}
	if after != "" {
		add(nil, after)
	}
	return lines
}

// exitCode returns the exit code for the result of the run.
func (r *running) exitCode(how ending) int {
	switch {
	case how == endGone:
		return cmdutil.ExitGone
	case how == endTimedOut:
		return cmdutil.ExitTimedOut
	case r.stops > 0, how == endDetached:
		return cmdutil.ExitDetached
	case r.view.Count(view.RunSucceeded) < len(r.view.Nodes):
		return cmdutil.ExitNodesFailed
	}
	return cmdutil.ExitOK
}
