// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodebudget/budget"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/plural"
	"github.com/everynode/everynode/internal/text"
)

// Explain is the explanation of a NodeJob for one node.
type Explain struct {
	Job   *v1alpha1.NodeJob
	Node  *plan.Node
	State plan.NodeState
	// Step is the step of the node; "" for none.
	Step string
	// Drain is the drain of the node; nil if there is none.
	Drain *v1alpha1.NodeDrain
	// Pods are the pods on the node, including retained ones that have ended.
	Pods []plan.Pod
	// Budget lists the nodes that use maintenance.maxUnavailable, if the node waits for it.
	Budget []BudgetUser
	// Exempt are the NodeDisruptionBudgets that do not limit the node yet because it joins.
	Exempt []budget.Exempt
	Now    time.Time
	// Width is the number of columns; 0 for no limit.
	Width int
}

// ExplainNode returns the explanation of a plan for its i-th node.
func ExplainNode(in plan.Input, p plan.Plan, i, width int) Explain {
	job, node := in.Job, &in.Nodes[i]
	e := Explain{Job: job, Node: node, Now: in.Now, Width: width, State: StateOf(job, p, i)}
	if e.State.Reason == v1alpha1.ReasonMaxUnavailableReached {
		e.Budget = BudgetUsers(job, in.Nodes, p.Nodes)
	}
	for _, step := range p.Steps {
		if slices.Contains(step.Nodes, i) {
			e.Step = step.Name
		}
	}
	for k := range p.Status.Drains {
		if p.Status.Drains[k].Node == node.Name {
			e.Drain = &p.Status.Drains[k]
		}
	}
	for k := range in.Pods {
		if in.Pods[k].NodeName == node.Name {
			e.Pods = append(e.Pods, in.Pods[k])
		}
	}
	return e
}

// StateOf returns the state of the i-th node. The plan of a NodeJob that is being deleted has none.
func StateOf(job *v1alpha1.NodeJob, p plan.Plan, i int) plan.NodeState {
	if i < len(p.Nodes) {
		return p.Nodes[i]
	}
	_, _, message, _ := Situation(job)
	return plan.NodeState{State: plan.Waiting, Reason: reasonDeleting, Message: message}
}

// Lines draws the explanation: a sentence with the reason, then the history, what was published, and what would start a
// run.
func (e Explain) Lines() []text.Line {
	lines := text.Wrap(nil, text.Plain, e.Sentence(), e.Width)
	lines = append(lines, nil)
	state := string(e.State.State)
	if e.State.Reason != state {
		state += ", " + e.State.Reason
	}
	if e.Step != "" {
		state += ", step " + e.Step
	}
	if e.deleting() {
		state = e.State.Reason
	}
	lines = append(lines, label("State").Tone(nodeTone(&e.State), state))
	lines = append(lines, e.budget()...)
	lines = append(lines, exemptLines(e.Exempt, e.Now, e.Width)...)
	if e.Drain != nil {
		lines = append(lines, drain(label("Draining"), label(""), e.Drain, e.Now, e.Width)...)
	}
	if e.Node.On.Altered {
		lines = append(lines, text.Wrap(label("Altered"), text.Warn, "the record on the node was changed by something other than the manager, and is ignored: "+
			"annotation "+v1alpha1.RecordKey(e.Job.Namespace, e.Job.Name), e.Width)...)
	}
	for _, s := range e.history() {
		lines = append(lines, s...)
	}
	lines = append(lines, e.changed()...)
	if published := e.published(); len(published) > 0 {
		lines = append(lines, text.Wrap(label("Published"), text.Plain, strings.Join(published, ", "), e.Width)...)
	}
	if missing := e.unreported(); len(missing) > 0 {
		lines = append(lines, text.Wrap(label("Missing"), text.Warn, "the task has not reported what spec.publish names: "+strings.Join(missing, ", "), e.Width)...)
	}
	return append(lines, text.Wrap(label("Next"), text.Plain, e.Next().String(), e.Width)...)
}

// unreported lists the results that a success should have published and that the task did not report. This may be
// intended, so it is not a failure.
func (e Explain) unreported() []string {
	rec := e.Node.On.Record
	if rec == nil || rec.Outcome != record.Succeeded || rec.IsAssumed() || rec.Revision != e.Job.Status.Revision {
		return nil
	}
	var missing []string
	for i := range e.Job.Spec.Publish {
		result := e.Job.Spec.Publish[i].Result
		if _, reported := rec.Results[result]; !reported && result != "" {
			missing = append(missing, result)
		}
	}
	return missing
}

func stateTone(s plan.State) text.Tone {
	switch s {
	case plan.Done:
		return text.Good
	case plan.Failed:
		return text.Bad
	case plan.Running:
		return text.Active
	case plan.Excluded, plan.Waiting:
	}
	return text.Plain
}

// Sentence explains why the task has run, has not run, or has not run yet on the node.
func (e Explain) Sentence() string {
	job, node := e.Job.Namespace+"/"+e.Job.Name, e.Node.Name
	if e.deleting() {
		return e.goes() + "."
	}
	why := e.why()
	switch e.State.State {
	case plan.Excluded:
		return fmt.Sprintf("%s is not for %s: %s.", job, node, why)
	case plan.Done:
		return fmt.Sprintf("%s %s.", job, e.isDone())
	case plan.Running:
		verb := "runs"
		switch {
		case e.State.Reason == v1alpha1.ReasonStarting:
			verb = "starts"
		case e.State.Reason == v1alpha1.ReasonPreparing, e.State.Reason == v1alpha1.ReasonDrainBlocked:
			verb = "prepares to run"
		case nextStep{e}.cannotStart():
			verb = "cannot start"
		}
		return fmt.Sprintf("%s %s on %s now: %s%s.", job, verb, node, why, e.atMost())
	case plan.Failed:
		return fmt.Sprintf("%s has failed on %s%s: %s%s.", job, node, e.after(), why, e.quarantined())
	case plan.Waiting:
	}
	return fmt.Sprintf("%s %s: %s%s%s.", job, e.waits(), why, e.holders(), e.until())
}

// quarantined says that the node is cordoned because of its failure, and how its drain has ended; "" if it is not.
func (e Explain) quarantined() string {
	rec := e.record()
	switch {
	case rec == nil || !rec.Cordoned || !e.Node.Unschedulable:
		return ""
	case rec.Drain == nil:
		return "; the node is cordoned for that"
	case rec.Drain.Outcome == "":
		return "; the node is cordoned for that, and is being drained"
	}
	return "; the node is cordoned for that, and its drain has ended with " + rec.Drain.Outcome
}

// deleting reports whether the NodeJob is being deleted.
func (e Explain) deleting() bool { return !e.Job.DeletionTimestamp.IsZero() }

// goes explains what the deletion of the NodeJob means for the node, if the task is rolled back first.
func (e Explain) goes() string {
	job := e.Job.Namespace + "/" + e.Job.Name
	if e.State.Reason == reasonDeleting {
		return job + " " + strings.TrimPrefix(e.State.Message, "it ")
	}
	return fmt.Sprintf("%s is being deleted (deletionPolicy %s); on %s: %s%s", job, e.Job.Spec.DeletionPolicy, e.Node.Name, e.why(), e.until())
}

// waits explains what has happened so far on a node that waits.
func (e Explain) waits() string {
	node, rec := e.Node.Name, e.record()
	switch {
	case rec == nil && e.Node.On.Record != nil:
		return "has not run on " + node + " yet with its current revision"
	case e.Node.On.Altered:
		return "has no valid record on " + node + ", since the one there was changed by something other than the manager and is ignored"
	case rec == nil:
		return "has not run on " + node + " yet"
	case rec.CheckBefore != "" && rec.Outcome != record.Succeeded:
		return "has not run on " + node + " yet: " + checkSentence(e.Now, rec)
	case rec.Outcome == record.Needed, rec.IsExpired():
		_, said, _ := strings.Cut(expirySentence(e.Now, rec.Expiry), ": ") // without the answer to "needed?"
		return "has not run on " + node + " yet: " + said
	case rec.HasExpired():
		return "is no longer needed on " + node + ", and waits there to be rolled back"
	case rec.Outcome == record.Failed:
		return "has not succeeded on " + node + " yet" + e.after()
	case rec.Outcome == record.Disrupted:
		return fmt.Sprintf("was disrupted on %s %s ago", node, ago(e.Now, rec.FinishedAt))
	}
	return fmt.Sprintf("waits to run again on %s, where it succeeded %s ago", node, ago(e.Now, rec.FinishedAt))
}

// why returns a description of the reason.
func (e Explain) why() string {
	rec := e.record()
	switch {
	case e.State.State == plan.Failed && rec != nil && rec.Outcome == record.Failed && !slices.Contains(ownMessage, e.State.Reason):
		return failure(rec.Reason, rec.ExitCode, rec.Message) + e.undone(rec)
	case e.State.Message != "" && !e.hasEnded():
		return e.State.Message + e.blockedSoFar()
	case e.State.Reason == v1alpha1.ReasonStarting:
		return "its pod is about to be created"
	case e.State.State == plan.Running && len(e.Pods) > 0:
		return e.holder()
	}
	return words(e.State.Reason)
}

// blockedSoFar says which pod blocks a drain that does not count as blocked yet; "" if none does.
func (e Explain) blockedSoFar() string {
	if e.State.Reason != v1alpha1.ReasonPreparing || e.Drain == nil || len(e.Drain.Blocked) == 0 {
		return ""
	}
	return "; " + e.Drain.Blocked[0].Pod + ": " + e.Drain.Blocked[0].Message
}

// holder describes the progress of the attempt that has the slot of the node.
func (e Explain) holder() string {
	said := e.podSentence(e.running())
	if e.hasEnded() {
		said += ", and the manager is about to record that"
	}
	return said
}

// ownMessage are the reasons of a failed node whose message says more than how its last attempt failed.
var ownMessage = []string{v1alpha1.ReasonNodeUnreachable, v1alpha1.ReasonProgressDeadlineExceeded}

// undone describes the result of the rollback after a failure.
func (e Explain) undone(rec *record.Record) string {
	switch e.State.Reason {
	case v1alpha1.ReasonRolledBack:
		return "; it was rolled back"
	case v1alpha1.ReasonRollingBack:
		return "; its rollback runs now"
	case v1alpha1.ReasonRollbackPending:
		return "; its rollback is pending: " + e.State.Message
	case v1alpha1.ReasonRollbackFailed:
		said := "; its rollback failed as well"
		if b := rec.Rollback; b != nil {
			said += exited(b.ExitCode, b.Reason)
		}
		return said
	}
	return ""
}

// hasEnded reports whether the attempt on the node has ended, and only its record is missing.
func (e Explain) hasEnded() bool {
	if e.State.State != plan.Running || len(e.Pods) == 0 {
		return false
	}
	exit := e.running().Exit
	return exit != nil && (e.State.Message == "" || e.State.Message == exit.Message)
}

// running returns the pod that runs. If all have ended, it returns the last one.
func (e Explain) running() *plan.Pod {
	last := &e.Pods[len(e.Pods)-1]
	for i := range e.Pods {
		if pod := &e.Pods[i]; pod.Exit == nil {
			last = pod
		}
	}
	return last
}

// record returns the record of the current revision; nil if there is none.
func (e Explain) record() *record.Record {
	if rec := e.Node.On.Record; rec != nil && rec.Revision == e.Job.Status.Revision {
		return rec
	}
	return nil
}

// after describes how many attempts there were, and when the last one ended.
func (e Explain) after() string {
	rec := e.record()
	if rec == nil {
		return ""
	}
	return fmt.Sprintf(" after %s, the last %s ago", plural.Count(max(rec.Attempts, 1), "attempt"), ago(e.Now, rec.FinishedAt))
}

// isDone describes why the node is done: because of a recorded success, or only because of its label.
func (e Explain) isDone() string {
	on, done := e.Node.On, "is done on "+e.Node.Name
	switch rec := on.Record; {
	case on.Altered:
		return done + " by its label alone: the record there was changed by something other than the manager, and is ignored"
	case rec == nil:
		return done + " by its label alone: the label was set by hand, as skip does, or the record was removed"
	case rec.IsExpired():
		return fmt.Sprintf("%s: it is no longer needed there (spec.expires)%s", done, e.rolledBackSince(rec))
	case on.HasLabelOfSuccess():
		since := fmt.Sprintf("has been done on %s since %s (%s ago)", e.Node.Name, clock(e.Now, rec.FinishedAt), ago(e.Now, rec.FinishedAt))
		switch {
		case rec.IsAnswer() && len(rec.Asked) > 0: // in an audit
		case rec.IsAlreadyDone():
			since += ", without the task, because task.check answered yes before it"
		case rec.IsAssumed():
			since += ", without a run, because it matched spec.nodes.assumeDone"
		}
		since += e.askedSince(rec)
		if rec.Revision != e.Job.Status.Revision {
			since += ", with the earlier revision " + rec.Revision + ", which counts since spec.rerun.onRevisionChange is false"
		}
		return since
	}
	return done + " by its label alone, without a success on record: the label was set by hand, as skip does"
}

// rolledBackSince says what became of what a task did that has expired.
func (e Explain) rolledBackSince(rec *record.Record) string {
	if rec.Rollback == nil {
		return ", and has not run there"
	}
	return fmt.Sprintf(", and was rolled back %s ago", ago(e.Now, rec.Rollback.EndedAt()))
}

// atMost describes the timeout of the current attempt.
func (e Explain) atMost() string {
	until := e.until()
	if until == "" {
		return ""
	}
	if e.State.Reason == v1alpha1.ReasonRunning && task.Confirms(e.Job, task.Task) {
		switch {
		case e.State.Message == "":
			return until + " at most; if the task cuts the node off, it reverts by itself by then"
		case e.Node.Ready == corev1.ConditionUnknown: // the message contains the time
			return ""
		}
	}
	return until + " at most"
}

// until describes when the state changes automatically. The message of a soak already contains the time. A joining node may
// turn out not to be selected at that time.
func (e Explain) until() string {
	if e.State.Until.IsZero() || e.hasEnded() || e.State.Reason == v1alpha1.ReasonSoaking || e.State.Reason == v1alpha1.ReasonWaitingForDependency {
		return ""
	}
	return ", " + until(e.Now, e.State.Until)
}

// history lists the attempts that the record and the existing pods contain.
func (e Explain) history() [][]text.Line {
	rec := e.Node.On.Record
	told := e.pods(rec)
	if rec == nil {
		return told
	}
	told = append(told, e.before(rec)...)
	if said := expirySentence(e.Now, rec.Expiry); said != "" {
		told = append(told, e.attempt("Needed", said, rec.Expiry.Message))
	}
	if !rec.IsExpired() && (rec.Outcome != record.Needed || rec.CheckBefore != "") {
		told = append(told, e.attempt("Last", attemptSentence(e.Now, rec)+e.ofRevision(rec.Revision), rec.Message))
	}
	if b := rec.Rollback; b != nil {
		told = append(told, e.attempt("Rollback", fmt.Sprintf("%s after %s, %s ago%s",
			strings.ToLower(string(b.Outcome)), plural.Count(b.Attempts, "attempt"), ago(e.Now, b.FinishedAt), exited(b.ExitCode, b.Reason)), b.Message))
	}
	told = append(told, e.archives(rec)...)
	if images := pairs(rec.Images); len(images) > 0 {
		told = append(told, text.Wrap(label("Images"), text.Plain, strings.Join(images, ", "), e.Width))
	}
	if results := pairs(rec.Results); len(results) > 0 {
		told = append(told, text.Wrap(label("Results"), text.Plain, strings.Join(results, ", "), e.Width))
	}
	if p := rec.Previous; p != nil && len(p.Results) > 0 {
		told = append(told, text.Wrap(label("Previous"), text.Plain, fmt.Sprintf("%s, of the earlier revision %s", strings.Join(pairs(p.Results), ", "), p.Revision), e.Width))
	}
	return told
}

// ofRevision names the revision of an attempt if it is not the current one.
func (e Explain) ofRevision(revision string) string {
	if revision == e.Job.Status.Revision {
		return ""
	}
	return ", of the earlier revision " + revision
}

// attempt is a sentence about an attempt, and its output.
func (e Explain) attempt(name, sentence, message string) []text.Line {
	lines := text.Wrap(label(name), text.Plain, sentence, e.Width)
	for _, line := range text.Lines(message) {
		lines = append(lines, label("").Tone(text.Dim, "| ").With(line))
	}
	return lines
}

// pods returns the pods about which the record does not say more.
func (e Explain) pods(rec *record.Record) [][]text.Line {
	var told [][]text.Line
	for i := range e.Pods {
		pod := &e.Pods[i]
		if !rec.HasEndOf(pod.UID) {
			told = append(told, e.attempt("Pod", e.podSentence(pod), saidBy(pod)))
		}
	}
	return told
}

func (e Explain) podSentence(pod *plan.Pod) string {
	what := fmt.Sprintf("attempt %d", pod.Attempt)
	if pod.Runs != task.Task {
		what += " of " + string(pod.Runs)
	}
	switch {
	case pod.Exit != nil:
		return fmt.Sprintf("%s (%s) ended with exit code %d", what, pod.Name, pod.Exit.Code)
	case pod.Waiting != "":
		return fmt.Sprintf("%s (%s) has not started for %s: %s", what, pod.Name, ago(e.Now, pod.Created), pod.Waiting)
	case pod.Started.IsZero():
		return fmt.Sprintf("%s (%s) was made %s ago and has not started yet", what, pod.Name, ago(e.Now, pod.Created))
	}
	return fmt.Sprintf("%s (%s) runs since %s (%s)", what, pod.Name, clock(e.Now, pod.Started), ago(e.Now, pod.Started))
}

// askedSince says what task.check has answered since the node was done; "" if it was not asked.
func (e Explain) askedSince(rec *record.Record) string {
	if len(rec.Asked) == 0 {
		return ""
	}
	is := rec.Compliance()
	at := func(t time.Time) string { return fmt.Sprintf("%s (%s ago)", clock(e.Now, t), ago(e.Now, t)) }
	said := "; task.check last answered yes at " + at(is.AskedAt)
	switch is.Answer {
	case record.AnswerYes:
		return said
	case record.AnswerNo:
		said = "; the node has drifted"
		if task.IsAudit(e.Job) {
			said = "; the node is not compliant"
		}
	case record.AnswerError:
		said = "; task.check itself failed at " + at(is.AskedAt) + exited(is.ExitCode, "")
	case record.AnswerNone:
		said = "; task.check was disrupted at " + at(is.AskedAt)
	}
	if !is.DriftedSince.IsZero() {
		said += ": task.check has answered no since " + at(is.DriftedSince)
	}
	if is.Answer == record.AnswerNo {
		said += ", last at " + at(is.AskedAt)
		if line := lastLine(is.Message); line != "" {
			said += ": " + line
		}
	}
	return said
}

// checkSentence says what the check before the task answered last, or whether the images could be pulled before its maintenance.
func checkSentence(now time.Time, rec *record.Record) string {
	at := fmt.Sprintf("at %s (%s ago)", clock(now, rec.FinishedAt), ago(now, rec.FinishedAt))
	switch rec.Reason {
	case v1alpha1.ReasonImagesPulled:
		return "its images were pulled " + at
	case v1alpha1.ReasonImagesNotPulled:
		return fmt.Sprintf("its images could not be pulled %s, which counts as no failure; %s in a row", at, plural.Count(rec.Disruptions, "time"))
	}
	switch rec.CheckBefore {
	case record.AnswerYes:
		return "task.check answered yes " + at + ", so the task was not needed"
	case record.AnswerNo:
		return "task.check answered no " + at + ", so the task is needed"
	case record.AnswerError:
		return fmt.Sprintf("task.check itself failed %s%s, which counts as no failure; %s in a row", at, exited(rec.ExitCode, ""), plural.Count(rec.Disruptions, "time"))
	case record.AnswerNone:
	}
	return fmt.Sprintf("the pod before it was disrupted %s; %s in a row", at, plural.Count(rec.Disruptions, "disruption"))
}

// expirySentence says what the check of spec.expires answered last; "" if it has not run.
func expirySentence(now time.Time, e *record.Expiry) string {
	if e == nil {
		return ""
	}
	at := fmt.Sprintf("at %s (%s ago)", clock(now, e.At), ago(now, e.At))
	switch e.Answer {
	case record.AnswerYes:
		return "no: spec.expires.check answered yes " + at
	case record.AnswerNo:
		return "yes: spec.expires.check answered no " + at
	case record.AnswerError:
		return fmt.Sprintf("unknown: spec.expires.check itself failed %s%s, which ends nothing; %s in a row", at, exited(e.ExitCode, ""), plural.Count(e.Unanswered, "time"))
	case record.AnswerNone:
	}
	return fmt.Sprintf("unknown: spec.expires.check was disrupted %s; %s in a row", at, plural.Count(e.Unanswered, "disruption"))
}

func attemptSentence(now time.Time, rec *record.Record) string {
	if rec.CheckBefore != "" {
		return "none: " + checkSentence(now, rec)
	}
	if rec.IsAssumed() {
		return fmt.Sprintf("none: assumed to be done at %s (%s ago), because it matched spec.nodes.assumeDone", clock(now, rec.FinishedAt), ago(now, rec.FinishedAt))
	}
	s := fmt.Sprintf("attempt %d %s at %s (%s ago)", max(rec.Attempts, 1), strings.ToLower(string(rec.Outcome)), clock(now, rec.FinishedAt), ago(now, rec.FinishedAt))
	if rec.Outcome == record.Disrupted {
		return fmt.Sprintf("an attempt was disrupted at %s (%s ago), which counts as none; %s in a row", clock(now, rec.FinishedAt), ago(now, rec.FinishedAt), plural.Count(rec.Disruptions, "disruption"))
	}
	if !rec.StartedAt.IsZero() && !rec.FinishedAt.IsZero() {
		s += " after " + rec.FinishedAt.Sub(rec.StartedAt).Round(time.Second).String()
	}
	return s + exited(rec.ExitCode, rec.Reason)
}

func exited(code *int32, reason string) string {
	s := ""
	if code != nil {
		s = fmt.Sprintf(", exit code %d", *code)
	}
	if reason != "" {
		s += " (" + reason + ")"
	}
	return s
}

func pairs(m map[string]string) []string {
	var all []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		all = append(all, k+"="+m[k])
	}
	return all
}

// published lists the labels and annotations that the NodeJob has set on the node.
func (e Explain) published() []string {
	key := v1alpha1.RecordKey(e.Job.Namespace, e.Job.Name)
	var published []string
	for _, kind := range []struct {
		by, has map[string]string
		what    string
	}{{e.Node.Published.Labels, e.Node.Labels, "label"}, {e.Node.Published.Annotations, e.Node.Annotations, "annotation"}} {
		for _, k := range slices.Sorted(maps.Keys(kind.by)) {
			if kind.by[k] == key {
				published = append(published, fmt.Sprintf("%s %s=%s", kind.what, k, kind.has[k]))
			}
		}
	}
	return published
}

// maxWhy limits what Why returns, in characters.
const maxWhy = 200

// Why describes the reason of the state in at most 200 characters, as one line without control characters.
func (e Explain) Why() string { return cutText(e.why(), maxWhy) }
