// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/plural"
	"github.com/everynode/everynode/internal/text"
)

// Plan is what a NodeJob would do in the current cluster.
type Plan struct {
	Job *v1alpha1.NodeJob
	// Exists reports whether a NodeJob of that name exists; its revision is Was.
	Exists   bool
	Was      string
	Revision string
	// Notes are what could not be determined, and what the reader should know about it.
	Notes []string
	// Obstacle is the reason why nothing would run; nil if there is none.
	Obstacle *hold.Why
	Plan     plan.Plan
	// Drained are the nodes that would be drained and whose pods were read. NotLooked is the number of the other nodes.
	Drained   []DrainData
	NotLooked int
	// Assumed are the names of the nodes with a record that says that they were assumed to be done.
	Assumed map[string]bool
	// Conflicts are labels and annotations of nodes that could not be published.
	Conflicts []ConflictData
	// Compliance is what task.check says on the nodes; nil if it was not asked.
	Compliance *Compliance
	Now        time.Time
	Width      int
	All        bool
}

// maxNames limits the number of names that are shown of a group.
const maxNames = 8

// Lines draws the plan.
func (p Plan) Lines() []text.Line {
	lines := []text.Line{label("NodeJob").Tone(text.Strong, p.Job.Namespace+"/"+p.Job.Name).With("  " + p.revision())}
	did := "a dry run: nothing has been changed"
	if p.Compliance != nil {
		did = "a dry run: only task.check has run on the nodes"
	}
	lines = append(lines, label("").Tone(text.Dim, did))
	for _, note := range p.Notes {
		lines = append(lines, text.Wrap(label("Note"), text.Warn, note, p.Width)...)
	}
	if stalled := p.stalled(); stalled != nil {
		lines = append(lines, text.Wrap(label("Stalled"), text.Bad, stalled.Reason+": "+stalled.Message, p.Width)...)
	}
	switch {
	case !p.Job.DeletionTimestamp.IsZero():
		lines = append(lines, text.Wrap(label("Deleting"), text.Warn, "the NodeJob of this name is being deleted: apply the file again when it is gone", p.Width)...)
	case p.Job.Spec.Suspend:
		lines = append(lines, text.Wrap(label("Suspended"), text.Warn, "spec.suspend is true, so nothing starts until it is false", p.Width)...)
	}
	lines = append(lines, text.Wrap(label("Nodes"), text.Plain, p.summary(), p.Width)...)
	return joined(lines, p.steps(), p.excluded(), p.conflicts(), p.disruption(), p.nowhere(), p.compliance())
}

// compliance returns what task.check says on the nodes: the task is needed where it says no.
func (p Plan) compliance() []text.Line {
	if p.Compliance == nil {
		return nil
	}
	return append([]text.Line{text.Toned(text.Strong, "task.check")}, p.Compliance.Lines("", p.Now, p.All)...)
}

// nowhere returns a warning if no node matches: the plan is that of a selector with a mistake, or of nodes that will join.
func (p Plan) nowhere() []text.Line {
	c := meta.FindStatusCondition(p.Plan.Status.Conditions, v1alpha1.ConditionComplete)
	if c == nil || c.Reason != v1alpha1.ReasonNoMatchingNodes || p.stalled() != nil {
		return nil
	}
	return text.Wrap(label("Warning"), text.Warn, "the task would not run on any node now: "+c.Message, p.Width)
}

// stalled returns what prevents the NodeJob from running anywhere; nil if nothing does.
func (p Plan) stalled() *StalledData {
	if o := p.Obstacle; o != nil {
		return &StalledData{o.Reason, o.Message}
	}
	if c := meta.FindStatusCondition(p.Plan.Status.Conditions, v1alpha1.ConditionStalled); c != nil && c.Status == metav1.ConditionTrue {
		return &StalledData{c.Reason, c.Message}
	}
	return nil
}

func (p Plan) revision() string {
	switch {
	case p.Revision == "":
		return "revision not known"
	case !p.Exists:
		return "revision " + p.Revision + ", new"
	case p.Was == p.Revision && p.count(func(s *plan.NodeState) bool { return s.State == plan.Done }) == 0:
		return "revision " + p.Revision + ", unchanged: no node is done yet"
	case p.Was == p.Revision:
		return "revision " + p.Revision + ", unchanged: nodes that are done stay done"
	}
	return "revision " + p.Revision + ", replaces " + p.Was
}

func (p Plan) count(is func(*plan.NodeState) bool) int {
	n := 0
	for i := range p.Plan.Nodes {
		if is(&p.Plan.Nodes[i]) {
			n++
		}
	}
	return n
}

func (p Plan) summary() string {
	matched := p.count(func(s *plan.NodeState) bool { return s.State != plan.Excluded })
	done := p.count(func(s *plan.NodeState) bool { return s.State == plan.Done && !p.isAssumed(s) })
	failed := p.count(func(s *plan.NodeState) bool { return s.State == plan.Failed })
	line := fmt.Sprintf("%s of %d match", plural.Count(matched, "node"), len(p.Plan.Nodes))
	if done > 0 {
		line += fmt.Sprintf(", of which %d already done", done)
	}
	if assumed := p.count(p.isAssumed); assumed > 0 {
		line += fmt.Sprintf(", %d assumed to be done (spec.nodes.assumeDone)", assumed)
	}
	if failed > 0 {
		line += fmt.Sprintf(", %d failed before", failed)
	}
	if matched == 0 {
		return line
	}
	return line + fmt.Sprintf("; at most %d at once", max(p.Plan.Slots, 1))
}

// isAssumed reports whether a node counts as done without a run.
func (p Plan) isAssumed(s *plan.NodeState) bool {
	return s.Reason == v1alpha1.ReasonAssumedDone || s.State == plan.Done && p.Assumed[s.Name]
}

// steps returns the nodes of each step, in order.
func (p Plan) steps() []text.Line {
	if p.Revision == "" {
		return []text.Line{label("Steps").Tone(text.Dim, "unknown until the revision is known")}
	}
	lines := []text.Line{label("Steps")}
	ceiling := p.ceiling()
	for k, step := range p.Plan.Steps {
		head := fmt.Sprintf("  %d %s", k+1, step.Name)
		lines = append(lines, text.Of("").Tone(text.Strong, head).With("  "+p.stepSize(step)).Tone(text.Dim, "  "+p.stepWords(k, ceiling)))
		names := make([]string, 0, len(step.Nodes))
		for _, i := range step.Nodes {
			names = append(names, p.nodeWord(&p.Plan.Nodes[i]))
		}
		lines = append(lines, p.names(names)...)
	}
	return lines
}

// stepSize returns how many nodes a step has, and on how many of them the task does not run because they count as done.
func (p Plan) stepSize(step plan.StepNodes) string {
	assumed := 0
	for _, i := range step.Nodes {
		if p.isAssumed(&p.Plan.Nodes[i]) {
			assumed++
		}
	}
	size := plural.Count(len(step.Nodes), "node")
	switch assumed {
	case 0:
		return size
	case len(step.Nodes):
		return size + ", all assumed done"
	}
	return size + fmt.Sprintf(", %d assumed done", assumed)
}

// nodeWord returns the name of a node, with its special properties.
func (p Plan) nodeWord(s *plan.NodeState) string {
	if p.isAssumed(s) {
		return s.Name + " (assumed done)"
	}
	switch s.State {
	case plan.Done, plan.Failed:
		return s.Name + " (" + strings.ToLower(string(s.State)) + ")"
	case plan.Running:
		if s.Reason == v1alpha1.ReasonRunning {
			return s.Name + " (running)"
		}
		return s.Name + " (starts first)"
	case plan.Waiting, plan.Excluded:
	}
	switch s.Reason {
	case v1alpha1.ReasonNodeUnreachable, v1alpha1.ReasonNotReported, v1alpha1.ReasonNodeTerminating, v1alpha1.ReasonWaitingForDependency, v1alpha1.ReasonBackingOff,
		v1alpha1.ReasonNodeFieldNotFound, v1alpha1.ReasonNodeFieldInvalid, v1alpha1.ReasonRerunDelayed:
		return s.Name + " (" + words(s.Reason) + ")"
	}
	return s.Name
}

func (p Plan) names(names []string) []text.Line {
	if len(names) == 0 {
		return nil
	}
	shown := names
	if !p.All {
		shown = names[:min(len(names), maxNames)]
	}
	line := strings.Join(shown, ", ")
	if left := len(names) - len(shown); left > 0 {
		line += fmt.Sprintf(" and %d more (-o wide)", left)
	}
	return text.Wrap(text.Of("      "), text.Plain, line, p.Width)
}

func (p Plan) ceiling() int {
	for k, step := range p.Plan.Steps {
		if step.Name == p.Job.Spec.Rollout.PromoteTo {
			return k
		}
	}
	return len(p.Plan.Steps) - 1
}

// stepWords describes when a step begins and what follows it.
func (p Plan) stepWords(k, ceiling int) string {
	said := "first"
	switch {
	case k > ceiling:
		said = "after promotion (promoteTo: " + p.Job.Spec.Rollout.PromoteTo + ")"
	case k > 0:
		said = "after " + p.Plan.Steps[k-1].Name
	}
	if soak := p.Plan.Steps[k].Soak; soak > 0 {
		said += ", then soaks for " + duration.HumanDuration(soak)
	}
	return said
}

// excluded returns the nodes that do not match, by reason.
func (p Plan) excluded() []text.Line {
	byReason := map[string]*excludedGroup{}
	var groups []*excludedGroup
	for i := range p.Plan.Nodes {
		s := &p.Plan.Nodes[i]
		if s.State != plan.Excluded {
			continue
		}
		g := byReason[s.Message]
		if g == nil {
			g = &excludedGroup{why: s.Message}
			byReason[s.Message] = g
			groups = append(groups, g)
		}
		g.nodes++
		g.names = append(g.names, s.Name)
	}
	slices.SortStableFunc(groups, func(a, b *excludedGroup) int { return b.nodes - a.nodes })
	var lines []text.Line
	for _, g := range groups {
		lines = append(lines, g.head(p.Width)...)
		lines = append(lines, p.names(g.names)...)
	}
	return section("Excluded", lines)
}

// disruption describes the maintenance of the nodes.
func (p Plan) disruption() []text.Line {
	spec := p.Job.Spec
	var lines []text.Line
	for _, sentence := range []struct {
		holds bool
		words string
	}{
		{task.OnlyPulls(p.Job), "the images of the task are pulled first on each node, which changes nothing else there"},
		{task.ChecksFirst(p.Job) && !task.OnlyPulls(p.Job), "task.check is asked first on each node: if it answers yes, the node stays as it is"},
		{spec.Maintenance.Drain != nil, "each node is cordoned and drained before the task"},
		{spec.Maintenance.Drain == nil && spec.Maintenance.Cordon, "each node is cordoned before the task, and uncordoned after it"},
		{spec.Maintenance.Reboot.Policy == v1alpha1.RebootAlways, "each node is rebooted after the task"},
		{spec.Maintenance.Reboot.Policy == v1alpha1.RebootIfRequested, "a node is rebooted after the task if that asks for it"},
		{spec.OnFailure.Action == v1alpha1.FailureActionCordon, "a node on which every attempt failed is cordoned"},
		{spec.OnFailure.Action == v1alpha1.FailureActionDrain, "a node on which every attempt failed is cordoned and drained"},
		{task.Confirms(p.Job, task.Task), confirmation(p.Job)},
		{spec.Rollback != nil, "a node on which every attempt failed is rolled back"},
		{spec.Gate != nil, p.gate()},
		{len(spec.Publish) > 0, "a node on which the task has succeeded gets: " + strings.Join(published(spec.Publish), ", ")},
		{len(spec.RemoveLabels) > 0, "a node on which the task has succeeded loses the labels: " + strings.Join(spec.RemoveLabels, ", ")},
	} {
		if sentence.holds {
			lines = append(lines, text.Wrap(text.Of("  "), text.Plain, sentence.words, p.Width)...)
		}
	}
	if len(lines) == 0 {
		return nil
	}
	lines = append([]text.Line{label("Actions")}, lines...)
	for _, d := range p.Drained {
		lines = append(lines, p.drained(d)...)
	}
	if p.NotLooked > 0 {
		lines = append(lines, text.Toned(text.Dim, fmt.Sprintf("  and %s more, whose pods were not read (-o wide)", plural.Count(p.NotLooked, "node"))))
	}
	return lines
}

// confirmation describes spec.confirm of a NodeJob; "" without it.
func confirmation(job *v1alpha1.NodeJob) string {
	if job.Spec.Confirm == nil {
		return ""
	}
	said := fmt.Sprintf("after the task, each node waits up to %s until the manager confirms that it responds", task.ConfirmWindow(job))
	if n := len(job.Spec.Confirm.Probes); n > 0 {
		said += fmt.Sprintf(" and %s", plural.Count(int32(n), "probe")) + " succeeded"
	}
	return fmt.Sprintf("%s; otherwise it runs the rollback by itself, within %s", said, task.Timeout(job, task.Rollback))
}

// gate describes the taint of the gate, and which nodes get it.
func (p Plan) gate() string {
	gate := p.Job.Spec.Gate
	if gate == nil {
		return ""
	}
	which := "each node that joins"
	switch gate.Nodes {
	case v1alpha1.GateAll:
		which = "each node that is not done"
	case v1alpha1.GateJoiningAndRebooted:
		which = "each node that joins or has rebooted"
	case v1alpha1.GateJoining:
	}
	return fmt.Sprintf("%s has the taint %s=%s:%s until the task has succeeded there", which, v1alpha1.GateKey(p.Job), v1alpha1.GateValue, v1alpha1.GateEffectOf(p.Job))
}

// published describes the labels and annotations that a success publishes.
func published(entries []v1alpha1.PublishedResult) []string {
	parts := make([]string, 0, len(entries))
	for _, entry := range entries {
		if entry.Condition != "" {
			parts = append(parts, "condition "+entry.Condition+" (True)")
			continue
		}
		target := "label " + entry.Label
		if entry.Label == "" {
			target = "annotation " + entry.Annotation
		}
		parts = append(parts, fmt.Sprintf("%s (result %s)", target, entry.Result))
	}
	return parts
}

func (p Plan) drained(d DrainData) []text.Line {
	head := text.Of("  ").Tone(text.Strong, d.Node)
	if len(d.PodsToEvict)+len(d.Blocked) == 0 {
		return []text.Line{head.Tone(text.Dim, "  nothing to evict")}
	}
	lines := []text.Line{head}
	if len(d.PodsToEvict) > 0 {
		lines = append(lines, text.Wrap(text.Of("    evicts "), text.Plain, strings.Join(d.PodsToEvict, ", "), p.Width)...)
	}
	for _, b := range d.Blocked {
		lines = append(lines, text.Wrap(text.Of("    blocked by ").Tone(text.Warn, b.Pod+": "), text.Plain, b.Message, p.Width)...)
	}
	return lines
}
