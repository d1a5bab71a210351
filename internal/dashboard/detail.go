// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/text"
	"github.com/everynode/everynode/internal/ui/cmdutil"
	"github.com/everynode/everynode/internal/ui/view"
)

// span is a piece of text with its tone.
type span struct {
	Text string `json:"text"`
	Tone string `json:"tone"`
}

// row is a line of what explain or status prints: a label, and spans.
type row struct {
	Label string `json:"label,omitempty"`
	// Output is true for a line that a task printed.
	Output bool   `json:"output,omitempty"`
	Spans  []span `json:"spans"`
}

// labelColumns is the width of the labels that the package view draws.
const labelColumns = 10

// rowsOf converts lines to rows. The text of each span is made safe, as for a terminal.
func rowsOf(lines []text.Line) []row {
	rows := make([]row, 0, len(lines))
	for _, line := range lines {
		r := row{Spans: []span{}}
		for i, s := range line {
			said := s.Text
			if i == 0 && s.Tone == text.Dim && len(said) >= labelColumns {
				r.Label, said = strings.TrimSpace(said[:labelColumns]), said[labelColumns:]
			}
			if s.Tone == text.Dim && !r.Output && len(r.Spans) == 0 && strings.TrimSpace(said) == "|" {
				r.Output = true
				continue
			}
			if said = text.Safe(said); said != "" {
				r.Spans = append(r.Spans, span{said, tones[s.Tone]})
			}
		}
		rows = append(rows, r)
	}
	return rows
}

// jobView is what the page shows of a NodeJob.
type jobView struct {
	Rows  []row      `json:"rows"`
	Steps []stepView `json:"steps"`
	// Ends are attempts of the current revision that have ended, the oldest first.
	Ends []end `json:"ends"`
	Now  int64 `json:"now"`
	// Need is why it needs a user; nil if it does not.
	Need *need `json:"need,omitempty"`
	// Offers are the changes that are possible.
	Offers []Offer `json:"offers"`
}

// stepView is a step of the rollout.
type stepView struct {
	Name    string `json:"name"`
	Counts  string `json:"counts"`
	State   string `json:"state"`
	Tone    string `json:"tone"`
	Nodes   int32  `json:"nodes"`
	Done    int32  `json:"done"`
	Running int32  `json:"running"`
	Waiting int32  `json:"waiting"`
	Failed  int32  `json:"failed"`
}

// end is the end of an attempt.
type end struct {
	At      int64  `json:"at"`
	Node    string `json:"node"`
	Outcome string `json:"outcome"`
}

// maxEnds limits the attempts in the timeline.
const maxEnds = 10_000

// job returns the view of a NodeJob.
func (o *observed) job(job *v1alpha1.NodeJob, podsUnknown string) jobView {
	s := view.Status{Job: job, Now: o.Now, Running: cmdutil.Attempts(job, o.pods[client.ObjectKeyFromObject(job)]), RunningUnknown: podsUnknown}
	if !cmdutil.NotObserved(job) {
		_, p := o.planOf(job)
		s.NotSelected = view.NotSelected(p.Nodes)
	}
	v := jobView{
		Rows: rowsOf(s.Details()), Steps: []stepView{}, Ends: o.ends(job), Now: seconds(o.Now), Need: o.need(job),
		Offers: offersOfJob(job, o.flag, o.Now),
	}
	for _, step := range s.Steps() {
		v.Steps = append(v.Steps, stepView{
			Name: step.Name, Counts: step.Counts, State: view.Spelled(step.State), Tone: tones[step.Tone],
			Nodes: step.Nodes, Done: step.Done, Running: step.Running, Waiting: step.Waiting, Failed: step.Failed,
		})
	}
	return v
}

// ends returns the attempts of the current revision that nodes have on record.
func (o *observed) ends(job *v1alpha1.NodeJob) []end {
	ends := []end{}
	add := func(node string, outcome record.Outcome, at time.Time) {
		if !at.IsZero() {
			ends = append(ends, end{seconds(at), node, string(outcome)})
		}
	}
	key := v1alpha1.RecordKey(job.Namespace, job.Name)
	for i := range o.Nodes {
		rec := record.Read(o.Nodes[i].Labels, o.Nodes[i].Annotations, key).Record
		if rec == nil || rec.Revision != job.Status.Revision {
			continue
		}
		for k := range rec.Earlier {
			if a := &rec.Earlier[k]; a.Revision == rec.Revision {
				add(o.Nodes[i].Name, a.Outcome, a.FinishedAt)
			}
		}
		if rec.Outcome != record.Rebooting {
			add(o.Nodes[i].Name, rec.Outcome, rec.EndedAt())
		}
	}
	slices.SortFunc(ends, func(a, b end) int { return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Node, b.Node)) })
	return ends[max(len(ends)-maxEnds, 0):]
}

// nodeView is what the page shows of a node.
type nodeView struct {
	Jobs   []nodeJobView `json:"jobs"`
	Guards []row         `json:"guards"`
	// Budgets is what NodeDisruptionBudgets mean for the node; empty in a cluster without them.
	Budgets []row `json:"budgets"`
}

// nodeJobView is the explanation of a NodeJob for a node.
type nodeJobView struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Run       bool   `json:"run,omitempty"`
	State     string `json:"state"`
	Reason    string `json:"reason,omitempty"`
	Sentence  string `json:"sentence"`
	Rows      []row  `json:"rows"`
	// Pods are the pods of attempts on the node whose log can be read, the newest first.
	Pods []string `json:"pods"`
	// Offers are the changes that are possible.
	Offers []Offer `json:"offers"`
}

// drains adds what a drain waits for to a plan.
type drains func(plan.Input, plan.Plan) (plan.Input, plan.Plan)

// node returns the view of the i-th node: NodeJobs that need a user to act first, those that are not for the node
// later, those of the command run last.
func (o *observed) node(i int, withDrains drains) nodeView {
	v := nodeView{Jobs: []nodeJobView{}, Guards: []row{}, Budgets: []row{}}
	for _, job := range o.Jobs {
		v.Jobs = append(v.Jobs, o.nodeJob(job, i, withDrains))
	}
	slices.SortFunc(v.Jobs, func(a, b nodeJobView) int {
		if a.Run != b.Run {
			return map[bool]int{true: 1, false: -1}[a.Run]
		}
		return cmp.Or(cmp.Compare(view.Urgency(plan.State(a.State)), view.Urgency(plan.State(b.State))), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	guards := make([]v1alpha1.NodeGuard, 0, len(o.guards))
	for _, g := range o.guards {
		guards = append(guards, *g)
	}
	v.Guards = append(v.Guards, rowsOf(view.Guards(guards, &o.Nodes[i], o.Now, 0))...)
	if len(o.Budgets) > 0 {
		v.Budgets = rowsOf(cmdutil.BudgetsOn(o.Budgets, &o.Nodes[i], o.Now).Lines(0))
	}
	return v
}

func (o *observed) nodeJob(job *v1alpha1.NodeJob, i int, withDrains drains) nodeJobView {
	v := nodeJobView{Namespace: job.Namespace, Name: job.Name, Rows: []row{}, Run: cmdutil.IsRun(job), Pods: []string{}, Offers: []Offer{}}
	if cmdutil.NotObserved(job) {
		v.Sentence = job.Namespace + "/" + job.Name + ": " + cmdutil.ErrNotObserved.Error()
		return v
	}
	in, p := withDrains(o.planOf(job))
	e := view.ExplainNode(in, p, i, 0)
	v.State, v.Reason, v.Sentence = string(e.State.State), e.State.Reason, text.Safe(e.Sentence())
	v.Offers = offersOfNode(job, o.flag, &o.Nodes[i], e.State.State)
	if lines := e.Lines(); len(lines) > 2 { // the sentence and an empty line come first
		v.Rows = rowsOf(lines[2:])
		v.Rows[len(v.Rows)-1].Spans = o.spansOf(e.Next()) // with commands to copy
	}
	slices.SortFunc(e.Pods, func(a, b plan.Pod) int { return b.Created.Compare(a.Created) })
	for k := range e.Pods {
		if !e.Pods[k].Started.IsZero() || e.Pods[k].Exit != nil {
			v.Pods = append(v.Pods, e.Pods[k].Name)
		}
	}
	return v
}
