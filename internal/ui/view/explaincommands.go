// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"strings"

	"github.com/everynode/everynode/internal/nodejob/plan"
)

// Part is a piece of a text: prose, or a command.
type Part struct {
	Text      string
	IsCommand bool
}

// NextParts returns Next with its commands apart, in the form of those of a NodeJob. Only commands that this program has made are
// commands: names and messages in the text stay prose.
func (e Explain) NextParts() []Part {
	var parts []Part
	for rest := e.Next(); rest != ""; {
		at, found, shown := len(rest), "", ""
		for _, r := range e.commands() {
			if i := strings.Index(rest, r[0]); i >= 0 && (i < at || i == at && len(r[0]) > len(found)) {
				at, found, shown = i, r[0], r[1]
			}
		}
		if at > 0 {
			parts = append(parts, Part{Text: rest[:at]})
		}
		if found != "" {
			parts = append(parts, Part{shown, true})
		}
		rest = rest[at+len(found):]
	}
	return parts
}

// commands are the commands that Next may contain, as they are there, and as they are shown apart.
func (e Explain) commands() [][2]string {
	var list [][2]string
	add := func(suffix string, remedies ...plan.Remedy) {
		for _, r := range remedies {
			list = append(list, [2]string{e.command(r) + suffix, command(e.Job, r) + suffix})
		}
	}
	node := e.Node.Name
	add("", plan.Remedy{Verb: plan.VerbRetry, Node: node}, plan.Remedy{Verb: plan.VerbSkip, Node: node},
		plan.Remedy{Verb: plan.VerbRerun, Node: node}, plan.Remedy{Verb: plan.VerbPromote, Step: e.Step}, plan.Remedy{Verb: plan.VerbResume}, plan.Remedy{Verb: "status"})
	add(" --failed", plan.Remedy{Verb: plan.VerbRetry})
	add(" --watch", plan.Remedy{Verb: "status"})
	others := []string{e.describe(), "kubectl get nodes -l node-role.kubernetes.io/control-plane", "kubectl everynode explain " + node, "kubectl everynode budgets"}
	if len(e.Pods) > 0 {
		others = append(others, nextStep{e}.describePod())
	}
	for _, other := range e.Job.Spec.DependsOn {
		others = append(others, explainCommand(e.Job.Namespace, other, node))
	}
	for _, u := range e.Budget {
		if c, _, _ := strings.Cut(u.Remedy, ","); c != "" { // without when it helps
			others = append(others, c)
		}
	}
	for _, same := range others {
		list = append(list, [2]string{same, same})
	}
	return list
}

// maxWhy limits what Why returns, in characters.
const maxWhy = 200

// Why describes the reason of the state in at most 200 characters, as one line without control characters.
func (e Explain) Why() string { return cutText(e.why(), maxWhy) }
