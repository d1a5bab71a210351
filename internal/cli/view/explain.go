package view

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli/text"
	"github.com/everynode/everynode/internal/plan"
	"github.com/everynode/everynode/internal/record"
	"github.com/everynode/everynode/internal/task"
)

// Explain is what there is to say of a NodeJob on one node.
type Explain struct {
	Job   *v1alpha1.NodeJob
	Node  *plan.Node
	State plan.NodeState
	// Step that the node belongs to; "" for none.
	Step string
	// Pods are those on the node, also ones that have ended and are kept.
	Pods []plan.Pod
	// Events are what the cluster keeps of attempts there, the oldest first; EventsUnknown is why they cannot be read.
	Events        []Event
	EventsUnknown string
	Now           time.Time
	// Width is how many columns there are; 0 for as many as it takes.
	Width int
}

// Lines draws it: a sentence why, then what has been, what was published, and what would make it run.
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
	lines = append(lines, label("State").Tone(stateTone(e.State.State), state))
	for _, s := range e.history() {
		lines = append(lines, s...)
	}
	if e.EventsUnknown != "" {
		lines = append(lines, text.Wrap(label("Events"), text.Warn, "not known: "+e.EventsUnknown, e.Width)...)
	}
	if facts := e.published(); len(facts) > 0 {
		lines = append(lines, text.Wrap(label("Published"), text.Plain, strings.Join(facts, ", "), e.Width)...)
	}
	return append(lines, text.Wrap(label("Next"), text.Plain, e.Next(), e.Width)...)
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

// Sentence says why the task has, has not, or not yet run on the node.
func (e Explain) Sentence() string {
	job, node := e.Job.Namespace+"/"+e.Job.Name, e.Node.Name
	why := e.why()
	switch e.State.State {
	case plan.Excluded:
		return fmt.Sprintf("%s is not for %s: %s.", job, node, why)
	case plan.Done:
		return fmt.Sprintf("%s is done on %s%s.", job, node, e.when())
	case plan.Running:
		return fmt.Sprintf("%s runs on %s now: %s%s.", job, node, why, e.until())
	case plan.Failed:
		return fmt.Sprintf("%s has failed on %s%s: %s.", job, node, e.when(), why)
	case plan.Waiting:
	}
	if e.record() != nil {
		return fmt.Sprintf("%s waits on %s%s: %s%s.", job, node, e.when(), why, e.until())
	}
	return fmt.Sprintf("%s has not run on %s yet: %s%s.", job, node, why, e.until())
}

// why is the reason in words.
func (e Explain) why() string {
	rec := e.record()
	switch {
	case e.State.State == plan.Failed && rec != nil && rec.Outcome == record.Failed:
		return failureSentence(rec)
	case e.State.Message != "":
		return e.State.Message
	case e.State.Reason == v1alpha1.ReasonStarting:
		return "its pod is about to be made"
	case e.State.State == plan.Running && len(e.Pods) > 0:
		return e.podSentence(e.running())
	}
	return words(e.State.Reason)
}

// running is the pod that runs; where all have ended, the last.
func (e Explain) running() *plan.Pod {
	last := &e.Pods[len(e.Pods)-1]
	for i := range e.Pods {
		if pod := &e.Pods[i]; pod.Exit == nil {
			last = pod
		}
	}
	return last
}

// failureSentence is how the last attempt failed, with the last line that it printed.
func failureSentence(rec *record.Record) string {
	s := rec.Reason
	if rec.ExitCode != nil {
		s += fmt.Sprintf(", exit code %d", *rec.ExitCode)
	}
	if said := text.Lines(rec.Message); len(said) > 0 {
		s += ": " + said[len(said)-1]
	}
	return s
}

// record is that of the current revision; nil when there is none.
func (e Explain) record() *record.Record {
	if rec := e.Node.On.Record; rec != nil && rec.Revision == e.Job.Status.Revision {
		return rec
	}
	return nil
}

// when says when the last attempt of the revision ended.
func (e Explain) when() string {
	rec := e.record()
	switch {
	case rec != nil && e.State.State == plan.Done:
		return fmt.Sprintf(" since %s (%s ago)", clock(e.Now, rec.FinishedAt), ago(e.Now, rec.FinishedAt))
	case rec != nil:
		return fmt.Sprintf(" after %s, the last %s ago", plural(max(rec.Attempts, 1), "attempt"), ago(e.Now, rec.FinishedAt))
	case e.State.State == plan.Done:
		return " by its label alone: somebody has set it, or the record was taken off"
	}
	return ""
}

func (e Explain) until() string {
	if e.State.Until.IsZero() || e.State.State == plan.Done {
		return ""
	}
	return ", " + until(e.Now, e.State.Until) + " at most"
}

// history is what has been, attempt by attempt: the node keeps the last, and events and pods that are there tell the
// rest.
func (e Explain) history() [][]text.Line {
	rec := e.Node.On.Record
	told := append(e.pods(rec), e.before(rec)...)
	if rec == nil {
		return told
	}
	earlier := ""
	if rec.Revision != e.Job.Status.Revision {
		earlier = ", of the earlier revision " + rec.Revision
	}
	told = append(told, e.attempt("Last", attemptSentence(e.Now, rec)+earlier, rec.Message))
	if b := rec.Rollback; b != nil {
		told = append(told, e.attempt("Rollback", fmt.Sprintf("%s after %s, %s ago%s",
			strings.ToLower(string(b.Outcome)), plural(b.Attempts, "attempt"), ago(e.Now, b.FinishedAt), exited(b.ExitCode, b.Reason)), b.Message))
	}
	if results := pairs(rec.Results); len(results) > 0 {
		told = append(told, text.Wrap(label("Results"), text.Plain, strings.Join(results, ", "), e.Width))
	}
	return told
}

// attempt is a sentence, and what was printed.
func (e Explain) attempt(name, sentence, message string) []text.Line {
	lines := text.Wrap(label(name), text.Plain, sentence, e.Width)
	for _, line := range text.Lines(message) {
		lines = append(lines, label("").Tone(text.Dim, "| ").With(line))
	}
	return lines
}

// pods are those of which the record does not say it better.
func (e Explain) pods(rec *record.Record) [][]text.Line {
	var told [][]text.Line
	for i := range e.Pods {
		pod := &e.Pods[i]
		if rec == nil || (rec.PodUID != pod.UID && (rec.Rollback == nil || rec.Rollback.PodUID != pod.UID)) {
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
		return fmt.Sprintf("%s (%s) has ended with exit code %d", what, pod.Name, pod.Exit.Code)
	case pod.Waiting != "":
		return fmt.Sprintf("%s (%s) has not started for %s: %s", what, pod.Name, ago(e.Now, pod.Created), pod.Waiting)
	case pod.Started.IsZero():
		return fmt.Sprintf("%s (%s) was made %s ago and has not started yet", what, pod.Name, ago(e.Now, pod.Created))
	}
	return fmt.Sprintf("%s (%s) runs since %s (%s)", what, pod.Name, clock(e.Now, pod.Started), ago(e.Now, pod.Started))
}

func attemptSentence(now time.Time, rec *record.Record) string {
	s := fmt.Sprintf("attempt %d %s at %s (%s ago)", max(rec.Attempts, 1), strings.ToLower(string(rec.Outcome)), clock(now, rec.FinishedAt), ago(now, rec.FinishedAt))
	if rec.Outcome == record.Disrupted {
		return fmt.Sprintf("an attempt was disrupted at %s (%s ago), which counts as none; %s in a row", clock(now, rec.FinishedAt), ago(now, rec.FinishedAt), plural(rec.Disruptions, "disruption"))
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

// published are the labels and annotations that the NodeJob has put on the node.
func (e Explain) published() []string {
	key := v1alpha1.RecordKey(e.Job.Namespace, e.Job.Name)
	var facts []string
	for _, kind := range []struct {
		by, has map[string]string
		what    string
	}{{e.Node.Published.Labels, e.Node.Labels, "label"}, {e.Node.Published.Annotations, e.Node.Annotations, "annotation"}} {
		for _, k := range slices.Sorted(maps.Keys(kind.by)) {
			if kind.by[k] == key {
				facts = append(facts, fmt.Sprintf("%s %s=%s", kind.what, k, kind.has[k]))
			}
		}
	}
	return facts
}

// Next says what would make the task run there.
func (e Explain) Next() string {
	verb := func(v string) string {
		return fmt.Sprintf("kubectl everynode -n %s %s %s", e.Job.Namespace, v, e.Job.Name)
	}
	on := " " + e.Node.Name
	switch e.State.State {
	case plan.Done:
		return e.again(verb("rerun") + on)
	case plan.Failed:
		return "have it tried again with: " + verb("retry") + on + "; or leave it out with: " + verb("skip") + on
	case plan.Running:
		return "nothing is to be done: it ends by itself, or at its time limit"
	case plan.Excluded:
		return e.include()
	case plan.Waiting:
	}
	return e.turn(verb, on)
}

// turn says what a node waits for that is to run.
func (e Explain) turn(verb func(string) string, on string) string {
	switch e.State.Reason {
	case v1alpha1.ReasonAwaitingPromotion:
		return "it runs after: " + verb("promote")
	case v1alpha1.ReasonSuspended:
		return "it runs after: " + verb("resume")
	case v1alpha1.ReasonMaxFailuresExceeded:
		return "correct the task, or have it tried again on the nodes that failed with: " + verb("retry") + " --failed; or raise spec.rollout.maxFailures"
	case v1alpha1.ReasonBackingOff:
		return "it runs by itself then; at once with: " + verb("retry") + on
	case v1alpha1.ReasonNodeLost, v1alpha1.ReasonNotReported:
		return "it runs by itself when the node's kubelet reports again"
	case v1alpha1.ReasonNodeDeleting:
		return "nothing: a node that is made anew under this name runs it"
	}
	if slices.Contains(ownTurn, e.State.Reason) {
		return "nothing is to be done: its turn comes by itself"
	}
	return "it runs by itself when that is mended"
}

// ownTurn are the reasons that pass by themselves.
var ownTurn = []string{
	v1alpha1.ReasonWaitingForSlot, v1alpha1.ReasonWaitingForStep, v1alpha1.ReasonPodLeaving, v1alpha1.ReasonWaitingForDependency,
	v1alpha1.ReasonWaitingForBudget, v1alpha1.ReasonManagerNodeLast,
}

// again is what makes a node that is done run it once more.
func (e Explain) again(rerun string) string {
	var ways []string
	r := e.Job.Spec.Rerun
	if r.OnChange == nil || *r.OnChange {
		ways = append(ways, "a change of the task")
	}
	if r.OnReboot {
		ways = append(ways, "a reboot")
	}
	if !e.State.Until.IsZero() {
		ways = append(ways, "its schedule at "+clock(e.Now, e.State.Until))
	}
	ways = append(ways, rerun)
	return "it runs again after " + strings.Join(ways, ", or ")
}

// include is what makes the NodeJob be for the node.
func (e Explain) include() string {
	if e.State.Reason == v1alpha1.ReasonUntoleratedTaint {
		return "it would run with a toleration for it in spec.tolerations, or without the taint"
	}
	if selector := e.Job.Spec.NodeSelector; selector != nil {
		return "it would run if the node's labels matched spec.nodeSelector: " + metav1.FormatLabelSelector(selector)
	}
	return "it would run if spec.nodeNames named it"
}

// words makes words of a reason in one.
func words(reason string) string {
	var b strings.Builder
	for i, r := range reason {
		if i > 0 && 'A' <= r && r <= 'Z' {
			b.WriteByte(' ')
		}
		b.WriteRune(r)
	}
	return strings.ToLower(b.String())
}

// NodeRow is a node in the table of all.
type NodeRow struct {
	State plan.NodeState
	Step  string
	On    record.OnNode
}

// NodeTable draws the nodes that a NodeJob is for, those that need somebody first.
func NodeTable(now time.Time, rows []NodeRow) []text.Line {
	table := [][]text.Line{text.Cells("NODE", "STATE", "STEP", "REASON", "ATTEMPTS", "EXIT", "ENDED", "MESSAGE")}
	order := []plan.State{plan.Failed, plan.Running, plan.Waiting, plan.Done, plan.Excluded}
	slices.SortStableFunc(rows, func(a, b NodeRow) int {
		return slices.Index(order, a.State.State) - slices.Index(order, b.State.State)
	})
	for _, r := range rows {
		attempts, exit, ended, message := "", "", "", r.State.Message
		if rec := r.On.Record; rec != nil {
			attempts, ended = fmt.Sprint(rec.Attempts), ago(now, rec.FinishedAt)
			if rec.ExitCode != nil {
				exit = fmt.Sprint(*rec.ExitCode)
			}
			if said := text.Lines(rec.Message); len(said) > 0 && (message == "" || r.State.State == plan.Failed) {
				message = said[len(said)-1]
			}
		}
		table = append(table, []text.Line{
			text.Of(r.State.Name), text.Toned(stateTone(r.State.State), string(r.State.State)), text.Of(r.Step), text.Of(r.State.Reason),
			text.Of(attempts), text.Of(exit), text.Of(ended), text.Of(message),
		})
	}
	return text.Table(table)
}
