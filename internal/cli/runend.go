// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli/cmdutil"
	"github.com/everynode/everynode/internal/cli/term"
	"github.com/everynode/everynode/internal/cli/text"
	"github.com/everynode/everynode/internal/cli/view"
)

func (r *running) tellBegin() {
	if r.screen == nil {
		r.Tell(text.Of(fmt.Sprintf("NodeJob %s/%s runs %s on %s", r.job.Namespace, r.job.Name, r.what(), cmdutil.CountNodes(len(r.view.Nodes)))))
	}
}

// note returns additional information that does not belong to a single node.
func (r *running) note() string {
	waited := r.Now().Sub(r.view.Began)
	switch {
	case r.away != "":
		return r.away
	case r.stops > 0:
		return r.stopping()
	case !r.seen && waited > pickUp:
		return "no manager has picked the NodeJob up yet. Does one run? kubectl -n " + cmdutil.Manager.Namespace + " get deployment " + cmdutil.Manager.Name
	case r.logsForbidden != nil:
		return r.logsForbidden.Error() + "; what is shown of output is what is on record, at most the last 1024 bytes"
	}
	if c := meta.FindStatusCondition(r.job.Status.Conditions, v1alpha1.ConditionStalled); c != nil && c.Status == metav1.ConditionTrue && !r.finished() {
		return c.Message
	}
	return ""
}

// stopping returns the effect of the first Ctrl-C, and what a second one would do.
func (r *running) stopping() string {
	switch {
	case !r.suspended && r.stopErr != nil:
		return "nothing could be stopped, and it is tried again: " + r.stopErr.Error()
	case r.remove:
		return "stopping: nothing new starts, and what runs may end. Ctrl-C again ends that too, and deletes the NodeJob"
	}
	return "stopping: nothing new starts, and what runs may end. Ctrl-C again leaves it running, and says how to look again"
}

// printLine adds a line of a node to the lines that will be written.
func (r *running) printLine(i int, line string) {
	terminal := r.Terminal()
	prefix := text.Toned(text.Active, r.view.Nodes[i].Name).With(": ")
	o := text.Options{Colour: terminal.Colour}
	r.printed.WriteString(strings.TrimSuffix(prefix.With("x").Render(o), "x") + shown(line) + "\n")
}

// draw writes the lines that were printed, and the progress.
func (r *running) draw() {
	r.view.Now, r.view.Note = r.Now(), r.note()
	if r.screen == nil {
		r.writePrinted()
		r.say()
		return
	}
	if r.printed.Len() > 0 && r.Terminal().Interactive {
		_ = r.screen.Draw(nil) // clear the screen first; data is never cut to the width of the terminal
	}
	r.writePrinted()
	r.view.Width, _ = r.Terminal().Size()
	_ = r.screen.Draw(r.view.Frame())
}

func (r *running) writePrinted() {
	if r.printed.Len() == 0 || r.broken {
		return
	}
	if _, err := r.Out.Write([]byte(r.printed.String())); err != nil {
		r.broken, r.writeErr = true, err
	}
	r.printed.Reset()
}

// say prints one line when something has changed, at a limited rate.
func (r *running) say() {
	now := r.Now()
	line := r.view.Summary()
	said := text.Print([]text.Line{line}, text.Options{})
	if said == r.said || now.Sub(r.saidAt) < runSay {
		return
	}
	r.said, r.saidAt = said, now
	r.Tell(append(view.Stamp(now), line...))
}

// end prints the result, and cleans up.
func (r *running) end(ctx context.Context, how ending) error {
	if how != endDetached && how != endTimedOut {
		r.settle(ctx, how)
	}
	r.fillIn()
	err := r.show()
	if r.writeErr != nil && !errors.Is(r.writeErr, syscall.EPIPE) {
		err, r.broken = fmt.Errorf("writing what the nodes printed: %w", r.writeErr), false // a full disk is an error
	}
	after := r.cleanUp(ctx, how)
	r.tellEnd(after)
	switch code := r.exitCode(how); {
	case code != cmdutil.ExitOK:
		return cmdutil.Exit(code)
	case err != nil && !r.broken:
		return err
	}
	return nil
}

// settle determines the final state of the nodes that are still open when nothing more is expected.
func (r *running) settle(ctx context.Context, how ending) {
	if how == endRest {
		r.lookAtNodes(ctx)
	}
	why := "the run has ended before its turn"
	switch {
	case how == endGone:
		why = "the NodeJob was deleted"
	case r.stops > 0:
		why = "the run was stopped before its turn"
	default:
		if c := meta.FindStatusCondition(r.job.Status.Conditions, v1alpha1.ConditionStalled); c != nil && c.Status == metav1.ConditionTrue {
			why = c.Reason
		}
	}
	for i := range r.view.Nodes {
		if n := &r.view.Nodes[i]; !n.State.Final() {
			n.State, n.Said = view.RunNotRun, why
		}
	}
}

// lookAtNodes reads the current records of the nodes, because the watch of nodes may be behind that of the NodeJob.
func (r *running) lookAtNodes(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, r.patience)
	defer cancel()
	list := cmdutil.NewNodeMetadataList()
	if err := r.client.List(ctx, list); err == nil {
		c := change{fresh: true}
		_ = meta.EachListItem(list, func(o runtime.Object) error { c.all = append(c.all, o.(client.Object)); return nil })
		r.seeNodes(c)
	}
}

// fillIn uses the records for nodes whose logs could not be read.
func (r *running) fillIn() {
	for i, o := range r.outputs {
		for _, line := range o.flush() {
			r.printLine(i, line)
		}
		if rec := r.records[i]; rec != nil && rec.Message != "" && (!o.read || o.err != nil) && r.view.Nodes[i].State.Final() {
			r.fillInNode(i, rec.Message)
		}
	}
}

// fillInNode takes the end of an output from the record, and notes what may be missing.
func (r *running) fillInNode(i int, message string) {
	o := r.outputs[i]
	switch why := because(firstErr(o.err, r.logsForbidden)); {
	case o.any:
		o.note = "the end of the log could not be read" + why + "; on record are the last lines of it"
	case strings.HasPrefix(message, "…"):
		o.note = "the log could not be read" + why + "; on record is its end, of at most 1024 bytes"
	}
	for _, line := range append(o.add([]byte(strings.TrimRight(message, "\n")+"\n")), o.flush()...) {
		r.printLine(i, line)
	}
	if o.note != "" && o.room == 0 {
		r.Tell(text.Toned(text.Warn, r.view.Nodes[i].Name+": "+o.note))
	}
}

func firstErr(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
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

// runResult is the result of a run, for programs.
type runResult struct {
	Namespace string `json:"namespace"`
	NodeJob   string `json:"nodeJob"`
	// Succeeded reports whether the command succeeded on every node.
	Succeeded bool            `json:"succeeded"`
	Nodes     []runNodeResult `json:"nodes"`
}

type runNodeResult struct {
	Node string `json:"node"`
	// Outcome is Succeeded, Failed, Unreachable, Deleted or NotRun; or Running or Waiting for a run that continues.
	Outcome    string     `json:"outcome"`
	ExitCode   *int32     `json:"exitCode,omitempty"`
	Reason     string     `json:"reason,omitempty"`
	Message    string     `json:"message,omitempty"`
	StartedAt  *time.Time `json:"startedAt,omitempty"`
	FinishedAt *time.Time `json:"finishedAt,omitempty"`
	Output     string     `json:"output"`
	// OutputCut is the number of bytes that were dropped from the beginning of the output.
	OutputCut int64 `json:"outputCut,omitempty"`
	// OutputNote states what may be missing.
	OutputNote string `json:"outputNote,omitempty"`
}

var runOutcomes = map[view.RunState]string{
	view.RunWaiting: "Waiting", view.RunRunning: "Running", view.RunSucceeded: "Succeeded", view.RunFailed: "Failed",
	view.RunUnreachable: "Unreachable", view.RunDeleted: "Deleted", view.RunNotRun: "NotRun",
}

// show writes the output that is only shown at the end.
func (r *running) show() error {
	if r.screen != nil {
		_ = r.screen.Draw(nil)
	}
	r.writePrinted()
	switch {
	case r.broken:
		return nil
	case r.output == cmdutil.OutputJSON:
		return r.showJSON()
	case r.fold:
		_, err := r.Out.Write([]byte(text.Print(view.Fold(r.foldable()), text.Options{Colour: r.Terminal().Colour})))
		return err
	}
	return nil
}

func (r *running) foldable() []view.Output {
	outputs := make([]view.Output, 0, len(r.outputs))
	for i, o := range r.outputs {
		n := &r.view.Nodes[i]
		out := view.Output{Node: n.Name, State: n.State, ExitCode: n.ExitCode, Note: o.note}
		if n.ExitCode == nil && n.State != view.RunSucceeded {
			out.Why = strings.TrimPrefix(n.Reason+": "+n.Said, ": ")
		}
		out.Text, out.Cut, out.Sum = o.text()
		outputs = append(outputs, out)
	}
	return outputs
}

func (r *running) showJSON() error {
	result := runResult{Namespace: r.job.Namespace, NodeJob: r.job.Name, Succeeded: r.count(view.RunSucceeded) == len(r.view.Nodes)}
	for i, o := range r.outputs {
		n := &r.view.Nodes[i]
		node := runNodeResult{Node: n.Name, Outcome: runOutcomes[n.State], ExitCode: n.ExitCode, Reason: n.Reason, OutputNote: o.note}
		if n.State != view.RunSucceeded {
			node.Message = n.Said
		}
		node.Output, node.OutputCut, _ = o.text()
		if rec := r.records[i]; rec != nil && n.State.Final() {
			if node.ExitCode = rec.ExitCode; node.ExitCode == nil && n.State == view.RunSucceeded {
				node.ExitCode = new(int32(0))
			}
			node.StartedAt, node.FinishedAt = timeOf(rec.StartedAt), timeOf(rec.FinishedAt)
		}
		result.Nodes = append(result.Nodes, node)
	}
	b, err := json.MarshalIndent(result, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the result: %w", err)
	}
	return r.WriteFormatted(cmdutil.OutputJSON, append(b, '\n'))
}

func timeOf(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// cleanUp deletes the NodeJob if requested, or if nothing was run and there is nothing to inspect. It returns messages
// about what remains.
func (r *running) cleanUp(ctx context.Context, how ending) string {
	idle := how == endRest && r.count(view.RunSucceeded)+r.count(view.RunFailed) == 0 && r.stops == 0
	switch {
	case how == endGone:
		return ""
	case !r.remove && !idle:
		return r.whatIsLeft(how)
	}
	err := r.deleteJob(ctx)
	switch {
	case err != nil:
		return fmt.Sprintf("NodeJob %s could not be deleted: %s. Delete it with: kubectl delete nodejob %s", r.job.Name, cmdutil.Explain(err), r.where())
	case idle:
		return "Nothing was run, and NodeJob " + r.job.Name + " is deleted."
	}
	return ""
}

// where returns the NodeJob as command line arguments.
func (r *running) where() string { return r.job.Name + " -n " + r.job.Namespace }

// whatIsLeft returns how to check the run later, and how to continue.
func (r *running) whatIsLeft(how ending) string {
	where := r.where()
	look := fmt.Sprintf("To look again: kubectl everynode status %s --watch; kubectl everynode logs %s.", where, where)
	remove := "To delete it: kubectl delete nodejob " + where
	switch {
	case how == endDetached && r.stops > 1 && r.suspended:
		return fmt.Sprintf("Nothing new starts, and what runs goes on without this command. %s To let the rest run: kubectl everynode resume %s. To end what runs: kubectl everynode abort %s. %s", look, where, where, remove)
	case how == endDetached, how == endTimedOut:
		return fmt.Sprintf("The run goes on without this command. %s To stop it: kubectl everynode abort %s. %s", look, where, remove)
	case r.count(view.RunNotRun) > 0 && r.suspended:
		return fmt.Sprintf("NodeJob %s is kept for %s. To let the rest run: kubectl everynode resume %s. %s", r.job.Name, r.ttl, where, remove)
	}
	return fmt.Sprintf("NodeJob %s is kept for %s: kubectl everynode status %s", r.job.Name, r.ttl, where)
}

func (r *running) tellEnd(after string) {
	r.view.Now = r.Now()
	r.Tell(r.view.End()...)
	if c := meta.FindStatusCondition(r.job.Status.Conditions, v1alpha1.ConditionStalled); c != nil && c.Status == metav1.ConditionTrue &&
		r.count(view.RunNotRun) > 0 && c.Reason != v1alpha1.ReasonMaxFailuresExceeded {
		r.tellLong(text.Toned(text.Bad, c.Reason+": "), c.Message)
	}
	if after != "" {
		r.tellLong(nil, after)
	}
}

// tellLong writes a text that may need several lines.
func (r *running) tellLong(head text.Line, message string) {
	columns := term.Of(r.ErrOut, r.Getenv).Options().Width
	r.Tell(text.Wrap(head, text.Plain, message, columns)...)
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
	case r.count(view.RunSucceeded) < len(r.view.Nodes):
		return cmdutil.ExitNodesFailed
	}
	return cmdutil.ExitOK
}
