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
	"github.com/everynode/everynode/internal/cli/term"
	"github.com/everynode/everynode/internal/cli/text"
	"github.com/everynode/everynode/internal/cli/view"
)

func (r *running) tellBegin() {
	if r.screen == nil {
		r.Tell(text.Of(fmt.Sprintf("NodeJob %s/%s runs %s on %s", r.job.Namespace, r.job.Name, r.what(), countNodes(len(r.view.Nodes)))))
	}
}

// note is what there is to say beside the nodes.
func (r *running) note() string {
	waited := r.Now().Sub(r.view.Began)
	switch {
	case r.away != "":
		return r.away
	case r.stops > 0:
		return r.stopping()
	case !r.seen && waited > pickUp:
		return "no manager has picked the NodeJob up yet. Does one run? kubectl -n " + managerName.Namespace + " get deployment " + managerName.Name
	case r.logsForbidden != nil:
		return r.logsForbidden.Error() + "; what is shown of output is what is on record, at most the last 1024 bytes"
	}
	if c := meta.FindStatusCondition(r.job.Status.Conditions, v1alpha1.ConditionStalled); c != nil && c.Status == metav1.ConditionTrue && !r.finished() {
		return c.Message
	}
	return ""
}

// stopping says what came of the first Ctrl-C, and what a second would do.
func (r *running) stopping() string {
	switch {
	case !r.suspended && r.stopErr != nil:
		return "nothing could be stopped, and it is tried again: " + r.stopErr.Error()
	case r.remove:
		return "stopping: nothing new starts, and what runs may end. Ctrl-C again ends that too, and deletes the NodeJob"
	}
	return "stopping: nothing new starts, and what runs may end. Ctrl-C again leaves it running, and says how to look again"
}

// printLine adds a line of a node to what is to be written.
func (r *running) printLine(i int, line string) {
	terminal := r.Terminal()
	prefix := text.Toned(text.Active, r.view.Nodes[i].Name).With(": ")
	o := text.Options{Colour: terminal.Colour}
	r.printed.WriteString(strings.TrimSuffix(prefix.With("x").Render(o), "x") + shown(line) + "\n")
}

// draw writes what was printed, and how far it is.
func (r *running) draw() {
	r.view.Now, r.view.Note = r.Now(), r.note()
	if r.screen == nil {
		r.writePrinted()
		r.say()
		return
	}
	if r.printed.Len() > 0 && r.Terminal().Interactive {
		_ = r.screen.Draw(nil) // out of the way; data is never cut to the terminal's width
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

// say prints one line when something has changed, but not too often.
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

// end says how it came out, and cleans up.
func (r *running) end(ctx context.Context, how ending) error {
	if how != endDetached && how != endTimedOut {
		r.settle(ctx, how)
	}
	r.fillIn()
	err := r.show()
	if r.writeErr != nil && !errors.Is(r.writeErr, syscall.EPIPE) {
		err, r.broken = fmt.Errorf("writing what the nodes printed: %w", r.writeErr), false // a full disk must not look like a success
	}
	after := r.cleanUp(ctx, how)
	r.tellEnd(after)
	switch code := r.exitCode(how); {
	case code != ExitOK:
		return Exit(code)
	case err != nil && !r.broken:
		return err
	}
	return nil
}

// settle decides about the nodes that are still open when nothing more is to come.
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

// lookAtNodes takes in what nodes have on record now: their watch may be behind that of the NodeJob.
func (r *running) lookAtNodes(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, r.patience)
	defer cancel()
	list := newNodeMetadataList()
	if err := r.client.List(ctx, list); err == nil {
		c := change{fresh: true}
		_ = meta.EachListItem(list, func(o runtime.Object) error { c.all = append(c.all, o.(client.Object)); return nil })
		r.seeNodes(c)
	}
}

// fillIn takes what is on record where a log could not be read.
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

// fillInNode takes the end of an output from its record, and says what may be missing.
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
	return " (" + strings.TrimSuffix(Explain(err).Error(), ".") + ")"
}

// runResult is what a run came to, for programs.
type runResult struct {
	Namespace string `json:"namespace"`
	NodeJob   string `json:"nodeJob"`
	// Succeeded is true when it has succeeded on every node.
	Succeeded bool            `json:"succeeded"`
	Nodes     []runNodeResult `json:"nodes"`
}

type runNodeResult struct {
	Node string `json:"node"`
	// Outcome is Succeeded, Failed, Unreachable, Deleted, NotRun, or Running and Waiting for a run that goes on.
	Outcome    string     `json:"outcome"`
	ExitCode   *int32     `json:"exitCode,omitempty"`
	Reason     string     `json:"reason,omitempty"`
	Message    string     `json:"message,omitempty"`
	StartedAt  *time.Time `json:"startedAt,omitempty"`
	FinishedAt *time.Time `json:"finishedAt,omitempty"`
	Output     string     `json:"output"`
	// OutputCut is how many bytes before that are left out.
	OutputCut int64 `json:"outputCut,omitempty"`
	// OutputNote says what may be missing.
	OutputNote string `json:"outputNote,omitempty"`
}

var runOutcomes = map[view.RunState]string{
	view.RunWaiting: "Waiting", view.RunRunning: "Running", view.RunSucceeded: "Succeeded", view.RunFailed: "Failed",
	view.RunUnreachable: "Unreachable", view.RunDeleted: "Deleted", view.RunNotRun: "NotRun",
}

// show writes what is shown at the end only.
func (r *running) show() error {
	if r.screen != nil {
		_ = r.screen.Draw(nil)
	}
	r.writePrinted()
	switch {
	case r.broken:
		return nil
	case r.output == outputJSON:
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
	return r.write(outputJSON, append(b, '\n'))
}

func timeOf(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// cleanUp deletes the NodeJob where that is wanted, or where nothing was run and nothing can be looked at; it returns
// what there is to say about what is left.
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
		return fmt.Sprintf("NodeJob %s could not be deleted: %s. Delete it with: kubectl delete nodejob %s", r.job.Name, Explain(err), r.where())
	case idle:
		return "Nothing was run, and NodeJob " + r.job.Name + " is deleted."
	}
	return ""
}

// where is the NodeJob as a command takes it.
func (r *running) where() string { return r.job.Name + " -n " + r.job.Namespace }

// whatIsLeft says how to look again, and how to go on.
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

// tellLong writes a text that may take several lines.
func (r *running) tellLong(head text.Line, message string) {
	columns := term.Of(r.ErrOut, r.Getenv).Options().Width
	r.Tell(text.Wrap(head, text.Plain, message, columns)...)
}

// exitCode is what the run came to.
func (r *running) exitCode(how ending) int {
	switch {
	case how == endGone:
		return ExitGone
	case how == endTimedOut:
		return ExitTimedOut
	case r.stops > 0, how == endDetached:
		return ExitDetached
	case r.count(view.RunSucceeded) < len(r.view.Nodes):
		return ExitNodesFailed
	}
	return ExitOK
}
