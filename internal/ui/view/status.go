// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package view converts data to lines. It does not read the clock, the terminal or the cluster (a linter ensures this),
// so tests can compare whole outputs. The output for users is bounded, regardless of the size of the cluster.
package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodebudget/budget"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/plural"
	"github.com/everynode/everynode/internal/text"
	"github.com/everynode/everynode/internal/ui/eta"
)

// Status is the status of a NodeJob.
type Status struct {
	Job *v1alpha1.NodeJob
	// Running are the running attempts, in the order in which they are shown.
	Running []Attempt
	// RunningUnknown is the reason for which the running attempts are not known; "" if they are known.
	RunningUnknown string
	// Rows are the nodes with their steps, as NodeRows returns them; nil if they are not known.
	Rows []NodeRow
	// Unicode reports whether signs may be other characters than those of ASCII.
	Unicode bool
	// NotSelected is the number of nodes that the NodeJob does not select; 0 if it is not known.
	NotSelected int
	// Estimate is when the rollout ends; nil if that cannot be estimated.
	Estimate *eta.Estimate
	// NoManager says that no manager is available, and why; "" if one is, or if this is not known.
	NoManager string
	// Freezes are the freezes that select nodes of the cluster.
	Freezes []Freeze
	// Exempt are the matching nodes that NodeDisruptionBudgets do not limit yet because they join.
	Exempt []budget.Exempt
	Now    time.Time
	// Width is the number of columns; 0 for no limit.
	Width int
	// All reports whether nothing is left out.
	All bool
}

// Attempt is a pod that has not ended.
type Attempt struct {
	Node string
	// Phase is task, rollback, reboot or check.
	Phase  string
	Number int32
	// Created is when the pod was created. Started is when its container started; zero if it has not.
	Created, Started time.Time
	// Waiting is the reason why it has not started, as reported by the kubelet.
	Waiting string
}

// Limits of what is shown unless all is requested.
const (
	maxRunning  = 10
	maxSaid     = 3 // lines from the end of an output
	labelColumn = 10
	barColumns  = 24
	narrowBar   = 14 // for a terminal with 80 columns
	wideEnough  = 100
)

// Lines draws the status.
func (s Status) Lines() []text.Line {
	t := s.tree()
	steps := t.lines()
	return joined(Warning(s.NoManager, s.Width), Freezes(s.Freezes, s.Now, s.Width), append(s.head(), exemptLines(s.Exempt, s.Now, s.Width)...), steps,
		s.excluded(), s.without(t.shown).nodes())
}

// nodes draws the nodes of which the status says something.
func (s Status) nodes() []text.Line {
	return joined(s.problems(), s.drains(), s.running(), s.failures())
}

// without returns the status without what it says of nodes that are shown elsewhere.
func (s Status) without(shown map[string]bool) Status {
	s.Running = others(s.Running, func(a Attempt) bool { return shown[a.Node] })
	job := *s.Job
	status := &job.Status
	status.NodeProblems = others(status.NodeProblems, func(p v1alpha1.NodeProblem) bool { return shown[p.Node] })
	status.Drains = others(status.Drains, func(d v1alpha1.NodeDrain) bool { return shown[d.Node] })
	status.Failures = others(status.Failures, func(f v1alpha1.NodeFailure) bool { return shown[f.Node] })
	if job.Status.Rollout != nil {
		rollout := *job.Status.Rollout
		rollout.UnrecordedFailures = others(rollout.UnrecordedFailures, func(f v1alpha1.UnrecordedFailure) bool { return shown[f.Node] })
		job.Status.Rollout = &rollout
	}
	s.Job = &job
	return s
}

// others returns what is not shown elsewhere. The list does not change.
func others[T any](list []T, isShown func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(list), isShown)
}

// Details draws the status without the name and the state of the NodeJob, what helps, and the steps of the rollout.
func (s Status) Details() []text.Line {
	revision := s.created(label("Revision").With(cmp.Or(s.Job.Status.Revision, "none yet")))
	return joined(slices.Concat([]text.Line{revision}, s.changed(), s.facts()), s.excluded(), s.nodes())
}

// created adds when the NodeJob was created.
func (s Status) created(line text.Line) text.Line {
	return line.Tone(text.Dim, "  created ").With(ago(s.Now, s.Job.CreationTimestamp.Time) + " ago")
}

// joined returns sections with an empty line between them.
func joined(sections ...[]text.Line) []text.Line {
	var lines []text.Line
	for _, section := range sections {
		if len(section) == 0 {
			continue
		}
		if len(lines) > 0 {
			lines = append(lines, nil)
		}
		lines = append(lines, section...)
	}
	return lines
}

// label returns the beginning of a line of the head.
func label(name string) text.Line {
	return text.Toned(text.Dim, fmt.Sprintf("%-*s", labelColumn, name))
}

// section returns lines below a label; nothing without lines.
func section(name string, lines []text.Line) []text.Line {
	if len(lines) == 0 {
		return nil
	}
	return append([]text.Line{label(name)}, lines...)
}

func (s Status) wrapped(name string, tone text.Tone, message string) []text.Line {
	return text.Wrap(label(name), tone, message, s.Width)
}

// head describes the NodeJob and its state.
func (s Status) head() []text.Line {
	job := s.Job
	name := label("NodeJob").Tone(text.Strong, job.Namespace+"/"+job.Name)
	if job.Status.Revision != "" {
		name = name.Tone(text.Dim, "  revision ").With(job.Status.Revision)
	}
	return slices.Concat([]text.Line{s.created(name)}, s.changed(), s.situation(), s.facts())
}

// situation describes the state of the NodeJob, and what helps.
func (s Status) situation() []text.Line {
	tone, reason, message, remedies := situationAt(s.Job, s.Now)
	if unobserved := unobservedMessage(s.Job, s.Now); unobserved != "" {
		message = unobserved
	}
	lines := append([]text.Line{label("Status").Tone(tone, reason)}, s.wrapped("", text.Plain, message)...)
	if reason == v1alpha1.ReasonNonCompliant {
		lines = append(lines, s.wrapped("", text.Plain, "Which nodes, and why: "+reportCommand(s.Job))...)
	}
	return append(lines, s.remedies(remedies)...)
}

// facts are what the state does not say.
func (s Status) facts() []text.Line {
	job := s.Job
	var lines []text.Line
	if failed := meta.FindStatusCondition(job.Status.Conditions, v1alpha1.ConditionRollbackFailed); failed != nil && failed.Status == metav1.ConditionTrue && job.DeletionTimestamp.IsZero() {
		lines = append(lines, s.wrapped("ROLLBACK", text.Bad, failed.Message)...)
	}
	if job.Status.Nodes.Total > 0 {
		lines = append(lines, s.wrapped("Nodes", text.Plain, counts(job))...)
	}
	if s.Estimate != nil {
		lines = append(lines, s.wrapped("Estimate", text.Plain, estimated(s.Estimate, job))...)
	}
	if gate := job.Status.Gate; gate != nil {
		lines = append(lines, label("Gate").With(fmt.Sprintf("%s:%s, closed on %s", gate.Key, gate.Effect, plural.Count(gate.Closed, "node"))))
		if c := meta.FindStatusCondition(job.Status.Conditions, v1alpha1.ConditionGateEnforced); c != nil && c.Status != metav1.ConditionTrue {
			lines = append(lines, s.wrapped("", text.Warn, c.Message)...)
		}
	}
	return lines
}

// command returns a remedy as a command of this program.
func command(job *v1alpha1.NodeJob, r plan.Remedy) string {
	if r.Verb == plan.VerbForget { // there is no such command
		return r.Kubectl(job, job.Status.Revision)
	}
	return "kubectl everynode " + strings.Join(r.Arguments(job.Name), " ") + " -n " + job.Namespace
}

// remedies lists what a user can do, one command per line.
func (s Status) remedies(r plan.Remedies) []text.Line {
	if len(r.All) == 0 {
		return nil
	}
	lines := s.wrapped("Remedy", text.Plain, lowered(r.Before))
	if r.Before == plan.FixCause {
		lines = nil
	}
	for _, remedy := range r.All {
		name := ""
		if r.Before == plan.FixCause && remedy.Verb != plan.VerbForget {
			name = "Remedy"
		}
		lines = append(lines, s.wrapped(name, text.Plain, purpose(r, remedy)+":")...)
		lines = append(lines, text.Wrap(label("").With("  "), text.Plain, command(s.Job, remedy), s.Width)...)
	}
	return lines
}

// purpose says what a remedy is for.
func purpose(r plan.Remedies, remedy plan.Remedy) string {
	switch {
	case remedy.Verb == plan.VerbPromote:
		return "continue with step " + remedy.Step
	case remedy.Verb == plan.VerbForget:
		return "or delete the NodeJob without a rollback"
	case remedy.Verb == plan.VerbSkip:
		return "skip a node"
	case remedy.Node != "":
		return "retry one node"
	case r.Before == plan.FixCause:
		return "fix the cause, then retry"
	}
	return "retry all failed nodes"
}

// lowered returns a text that begins in lower case.
func lowered(s string) string { return strings.ToLower(s[:1]) + s[1:] }

// Situation describes the state of a NodeJob in a word and in a sentence, without the remedies that follow it in the condition: status
// shows them as commands of its own. A promotion stays in the message.
func Situation(job *v1alpha1.NodeJob) (tone text.Tone, reason, message string, remedies plan.Remedies) {
	tone, reason, message, remedies = situation(job)
	for _, r := range remedies.All {
		if r.Verb == plan.VerbPromote {
			next := plan.Remedy{Verb: plan.VerbPromote} // to the next step
			return tone, reason, message + " To continue with step " + r.Step + ": " + command(job, next), plan.Remedies{}
		}
	}
	return tone, reason, message, remedies
}

// situation is Situation with the promotion among the remedies.
func situation(job *v1alpha1.NodeJob) (tone text.Tone, reason, message string, remedies plan.Remedies) {
	tone, reason, message = standing(job)
	message, remedies = plan.CutRemedies(job, message)
	return tone, reason, message, remedies
}

// standing is Situation with the whole message of the condition.
func standing(job *v1alpha1.NodeJob) (tone text.Tone, reason, message string) {
	find := func(kind string) *metav1.Condition { return meta.FindStatusCondition(job.Status.Conditions, kind) }
	complete := find(v1alpha1.ConditionComplete)
	switch {
	case !job.DeletionTimestamp.IsZero():
		return deleting(job)
	case complete == nil:
		return text.Warn, reasonNotObserved, "the manager has not observed it yet; check that it is running: " + CheckManager
	case job.Status.ObservedGeneration != job.Generation:
		return text.Warn, reasonNotObserved, "the manager has not observed the last change of its spec yet; check that it is running: " + CheckManager + "; the following is older"
	}
	tones := map[string]text.Tone{v1alpha1.ConditionComplete: text.Good, v1alpha1.ConditionStalled: text.Bad, v1alpha1.ConditionReconciling: text.Active}
	for kind, tone := range tones { // at most one of them is True
		if c := find(kind); c != nil && c.Status == metav1.ConditionTrue {
			if c.Reason == v1alpha1.ReasonNonCompliant {
				tone = text.Bad
			}
			return tone, c.Reason, c.Message
		}
	}
	return text.Warn, complete.Reason, complete.Message
}

// situationAt is Situation without an alarm while a manager may be about to observe a change.
func situationAt(job *v1alpha1.NodeJob, now time.Time) (tone text.Tone, reason, message string, remedies plan.Remedies) {
	tone, reason, message, remedies = Situation(job)
	if reason == reasonNotObserved && aboutToBeObserved(job, now) {
		tone, message = text.Active, "the manager has not observed it yet"
		if meta.FindStatusCondition(job.Status.Conditions, v1alpha1.ConditionComplete) != nil {
			message = "the manager has not observed the last change of its spec yet; the following is older"
		}
	}
	return tone, reason, message, remedies
}

const (
	// reasonDeleting is the reason shown for a NodeJob that is being deleted.
	reasonDeleting = "Deleting"
	// reasonNotObserved is the reason shown for a NodeJob whose last change the manager has not observed.
	reasonNotObserved = "NotObserved"
)

// deleting is standing for a NodeJob that is being deleted. It ignores conditions from before the deletion.
func deleting(job *v1alpha1.NodeJob) (tone text.Tone, reason, message string) {
	message = "it is being deleted (deletionPolicy " + string(job.Spec.DeletionPolicy) + ")"
	if job.Status.ObservedGeneration != job.Generation {
		return text.Warn, reasonDeleting, message
	}
	tones := map[string]text.Tone{v1alpha1.ConditionStalled: text.Bad, v1alpha1.ConditionReconciling: text.Warn}
	for kind, tone := range tones { // at most one of them is True
		c := meta.FindStatusCondition(job.Status.Conditions, kind)
		if c == nil || c.Status != metav1.ConditionTrue {
			continue
		}
		said, known := strings.CutPrefix(c.Message, plan.BeingDeleted)
		if !known {
			said = ": " + c.Message
		}
		return tone, c.Reason, message + said
	}
	return text.Warn, reasonDeleting, message
}

// isRolledBack reports whether the status is that of a NodeJob that is rolled back and deleted. It counts the nodes that are still
// to be rolled back.
func isRolledBack(job *v1alpha1.NodeJob) bool {
	return !job.DeletionTimestamp.IsZero() && job.Status.ObservedGeneration == job.Generation && job.Spec.DeletionPolicy == v1alpha1.DeletionRollback
}

// counts counts the nodes. During a deletion, they are those that are still to be rolled back.
func counts(job *v1alpha1.NodeJob) string {
	n, done := Judged(job)
	parts, of, failed := []string{fmt.Sprintf("%d %s", n.Done, done)}, ", of which ", "failed"
	if task.IsAudit(job) {
		failed = "not compliant"
	}
	if isRolledBack(job) {
		parts, of = nil, " to be rolled back: "
	}
	for _, p := range []struct {
		n    int32
		what string
	}{{n.Running, "running"}, {n.Waiting, "waiting"}, {n.Failed, failed}, {drifted(job), "drifted"}, {n.Expired, "expired"}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	line := fmt.Sprint(n.Total) + of + strings.Join(parts, ", ")
	var undone []string
	if n.RollbackPending > 0 {
		undone = append(undone, fmt.Sprintf("%d to be rolled back", n.RollbackPending))
	}
	if n.RolledBack > 0 {
		undone = append(undone, fmt.Sprintf("%d rolled back", n.RolledBack))
	}
	if n.RollbackFailed > 0 {
		undone = append(undone, fmt.Sprintf("on %d the rollback failed as well", n.RollbackFailed))
	}
	if len(undone) > 0 {
		line += " (" + strings.Join(undone, ", ") + ")"
	}
	return line
}

// drains lists the nodes that are being drained, and what blocks the drains.
func (s Status) drains() []text.Line {
	var lines []text.Line
	for i := range s.Job.Status.Drains {
		d := &s.Job.Status.Drains[i]
		lines = append(lines, drain(label("Draining").With(d.Node+"  "), label(""), d, s.Now, s.Width)...)
	}
	return lines
}

// drain describes a drain after a head, and what blocks it after an indentation.
func drain(head, indent text.Line, d *v1alpha1.NodeDrain, now time.Time, width int) []text.Line {
	lines := text.Wrap(head, text.Dim,
		fmt.Sprintf("since %s, %s not evicted yet, %s", ago(now, d.Since.Time), plural.CountAre(d.Pods, "pod"), until(now, d.Deadline.Time)), width)
	for _, b := range d.Blocked {
		lines = append(lines, text.Wrap(indent.Tone(text.Warn, b.Pod+": "), text.Plain, b.Message, width)...)
	}
	return lines
}

// problems lists nodes with which the manager cannot continue.
func (s Status) problems() []text.Line {
	var lines []text.Line
	for i := range s.Job.Status.NodeProblems {
		problem := &s.Job.Status.NodeProblems[i]
		lines = append(lines, text.Of("  ").Tone(text.Bad, problem.Node).With("  "+problem.Reason).Tone(text.Dim, ", since "+ago(s.Now, problem.Since.Time)))
		lines = append(lines, text.Wrap(text.Of("    "), text.Plain, problem.Message, s.Width)...)
	}
	return section("Problems", lines)
}

// running lists the running attempts.
func (s Status) running() []text.Line {
	if s.RunningUnknown != "" {
		return s.wrapped("Running", text.Warn, s.RunningUnknown)
	}
	if len(s.Running) == 0 {
		return nil
	}
	shown := s.Running
	if !s.All {
		shown = shown[:min(len(shown), maxRunning)]
	}
	rows := [][]text.Line{{label("Running"), text.Toned(text.Dim, "ATTEMPT"), text.Toned(text.Dim, "FOR"), text.Toned(text.Dim, "")}}
	for _, a := range shown {
		rows = append(rows, []text.Line{text.Toned(text.Active, "  "+a.Node), text.Of(a.name()), text.Of(ago(s.Now, a.Created)), a.note(s.Now)})
	}
	lines := text.Table(rows)
	if left := len(s.Running) - len(shown); left > 0 {
		lines = append(lines, text.Toned(text.Dim, fmt.Sprintf("  and %d more: -o wide shows all", left)))
	}
	return lines
}

// name returns the number of an attempt, and its phase unless it is the task.
func (a Attempt) name() string {
	if a.Phase == "" || a.Phase == "task" {
		return fmt.Sprint(a.Number)
	}
	return fmt.Sprintf("%d (%s)", a.Number, a.Phase)
}

func (a Attempt) note(now time.Time) text.Line {
	switch {
	case a.Waiting != "":
		return text.Toned(text.Warn, a.Waiting)
	case a.Started.IsZero() && now.Sub(a.Created) > 30*time.Second:
		return text.Toned(text.Warn, "its container has not started yet")
	case a.Started.IsZero():
		return text.Toned(text.Dim, "starting")
	}
	return nil
}

// failures lists the nodes on which the last attempt failed, those that are not retried first.
func (s Status) failures() []text.Line {
	var lines []text.Line
	final := int32(0)
	for i := range s.Job.Status.Failures {
		f := &s.Job.Status.Failures[i]
		if !f.Retrying {
			final++
		}
		lines = append(lines, s.failure(f)...)
	}
	if more := s.Job.Status.Nodes.Failed - final; more > 0 && final > 0 && s.Rows == nil { // the tree counts them
		lines = append(lines, text.Toned(text.Dim, fmt.Sprintf("  and %d more: -o wide shows all", more)))
	}
	unrecorded := s.unrecordedFailures()
	lines = append(lines, unrecorded...)
	if final == 0 && len(unrecorded) == 0 {
		return section("Retries", lines)
	}
	return section("Failed", lines)
}

func (s Status) failure(f *v1alpha1.NodeFailure) []text.Line {
	tone := text.Bad
	if f.Retrying {
		tone = text.Warn
	}
	lines := []text.Line{text.Of("  ").Tone(tone, f.Node)}
	lines = append(lines, text.Wrap(text.Of("    "), text.Plain, s.failureWords(f), s.Width)...)
	return append(lines, s.output(f)...)
}

// failureWords describes the last attempt on a node on which it failed, and what happens next.
func (s Status) failureWords(f *v1alpha1.NodeFailure) string {
	next := "not retried"
	switch {
	case f.Retrying && s.Job.Spec.Suspend:
		next = "retried when the NodeJob is resumed"
	case f.Retrying:
		next = "will be retried"
	}
	var said []string
	if f.Reason != "" {
		said = append(said, f.Reason)
	}
	if f.ExitCode != nil {
		said = append(said, fmt.Sprintf("exit code %d", *f.ExitCode))
	}
	said = append(said, plural.Count(f.Attempts, "attempt"), ago(s.Now, f.FinishedAt.Time)+" ago", next)
	for _, more := range []string{f.Rollback, f.Quarantine} {
		if more != "" {
			said = append(said, more)
		}
	}
	return strings.Join(said, ", ")
}

// output returns the end of the output of the task and of its rollback.
func (s Status) output(f *v1alpha1.NodeFailure) []text.Line {
	lines := s.said(f.Message)
	if f.RollbackMessage != "" {
		lines = append(lines, text.Toned(text.Bad, "    rollback:"))
		lines = append(lines, s.said(f.RollbackMessage)...)
	}
	return lines
}

// said returns the last lines that a task printed.
func (s Status) said(message string) []text.Line {
	said := text.Lines(message)
	if !s.All && len(said) > maxSaid {
		said = said[len(said)-maxSaid:]
	}
	lines := make([]text.Line, 0, len(said))
	for _, line := range said {
		lines = append(lines, text.Toned(text.Dim, "    | ").Hanging(text.Of(line)))
	}
	return lines
}

// unrecordedFailures lists nodes that count as failed although no record says so.
func (s Status) unrecordedFailures() []text.Line {
	if s.Job.Status.Rollout == nil {
		return nil
	}
	var lines []text.Line
	for _, c := range s.Job.Status.Rollout.UnrecordedFailures {
		lines = append(lines, text.Of("  ").Tone(text.Bad, c.Node).With(fmt.Sprintf("  counts as failed: %s, %s ago", c.Reason, ago(s.Now, c.At.Time))))
	}
	return lines
}
