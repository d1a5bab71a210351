// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"slices"
	"strings"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/text"
	"github.com/everynode/everynode/internal/ui/cmdutil"
	"github.com/everynode/everynode/internal/ui/view"
)

// maxNeeds limits the NodeJobs and NodeDisruptionBudgets that the first page lists.
const maxNeeds = 20

// needsState is what the first page says about what needs a user. It does not count NodeJobs of the command run.
type needsState struct {
	// Jobs and Budgets count the NodeJobs and the NodeDisruptionBudgets.
	Jobs    int `json:"jobs"`
	Budgets int `json:"budgets"`
	// List are at most maxNeeds of them, the most urgent first.
	List []need `json:"list"`
}

// need is why a NodeJob, or a NodeDisruptionBudget without a namespace, needs a user.
type need struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Tone      string `json:"tone"`
	// Headline is what the reason means, in words.
	Headline string       `json:"headline"`
	Reason   string       `json:"reason"`
	Cause    string       `json:"cause"`
	Node     string       `json:"node,omitempty"`
	More     int32        `json:"more,omitempty"`
	Since    int64        `json:"since,omitempty"`
	Remedies []remedyView `json:"remedies"`
}

// remedyView is a command, and what it does.
type remedyView struct {
	Purpose string `json:"purpose"`
	Command string `json:"command"`
}

// needs returns what needs a user.
func (o *observed) needs() needsState {
	s := needsState{List: []need{}}
	for _, job := range o.Jobs {
		if n := o.need(job); n != nil && !cmdutil.IsRun(job) {
			s.List, s.Jobs = append(s.List, *n), s.Jobs+1
		}
	}
	for _, b := range o.Budgets {
		if r := (view.Budget{Budget: b, Now: o.Now}).Row(); r.Tone == text.Bad {
			s.Budgets++
			s.List = append(s.List, need{
				Name: b.Name, Tone: tones[r.Tone], Headline: view.Spelled(text.Safe(r.State)), Reason: text.Safe(r.State), Cause: text.Safe(r.Message),
				Remedies: []remedyView{{"see the details", o.inContext("kubectl everynode budgets " + b.Name)}},
			})
		}
	}
	slices.SortStableFunc(s.List, func(a, b need) int { return cmp.Compare(a.Tone, b.Tone) }) // bad before warn
	s.List = s.List[:min(len(s.List), maxNeeds)]
	return s
}

// need returns why a NodeJob needs a user; nil if it does not.
func (o *observed) need(job *v1alpha1.NodeJob) *need {
	n := view.NeedOf(job, o.Now)
	if n == nil {
		return nil
	}
	v := &need{
		Namespace: job.Namespace, Name: job.Name, Tone: tones[n.Tone], Headline: view.Headline(job, text.Safe(n.Reason)), Reason: text.Safe(n.Reason), Cause: text.Safe(n.Cause),
		Node: text.Safe(n.Node), More: n.More, Since: seconds(n.Since), Remedies: make([]remedyView, 0, len(n.Remedies)),
	}
	for _, r := range n.Remedies {
		v.Remedies = append(v.Remedies, remedyView{text.Safe(r.Purpose), text.Safe(o.inContext(r.Command))})
	}
	return v
}

// inContext adds the context of the kubeconfig to a command, unless that is the current one.
func (o *observed) inContext(command string) string {
	if o.flag == "" {
		return command
	}
	return command + " " + cmdutil.ShellQuoted([]string{"--context", o.flag})
}

// commandTone is the tone of a span that is a command to copy.
const commandTone = "command"

// spansOf converts prose with commands. What separates the commands in a sentence is not shown.
func (o *observed) spansOf(parts view.Said) []span {
	spans := make([]span, 0, len(parts))
	for _, p := range parts {
		if p.IsCommand {
			spans = append(spans, span{text.Safe(o.inContext(p.Text)), commandTone})
		} else {
			spans = append(spans, span{text.Safe(strings.TrimLeft(p.Text, ";,. ")), tones[text.Plain]})
		}
	}
	return spans
}
