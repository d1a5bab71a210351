// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/text"
)

// BudgetUser is a node that uses maintenance.maxUnavailable.
type BudgetUser struct {
	Node string
	// Why is the reason why the node is unavailable.
	Why string
	// Remedy is a command that helps; "" if the node becomes available without one. When says when it does; "" for now.
	Remedy string
	When   string
}

// Limits for the nodes that are named as users of maxUnavailable.
const (
	maxBudgetUsers    = 10
	maxBudgetSentence = 3
	maxBudgetRemedies = 3
)

// BudgetUsers returns the nodes that use maintenance.maxUnavailable in a plan for a NodeJob. Nodes that need a user to
// act come first.
func BudgetUsers(job *v1alpha1.NodeJob, nodes []plan.Node, states []plan.NodeState) []BudgetUser {
	var users []BudgetUser
	for i := range states {
		if states[i].Unavailable {
			users = append(users, budgetUser(job, &nodes[i], &states[i]))
		}
	}
	slices.SortStableFunc(users, func(a, b BudgetUser) int { return min(len(b.Remedy), 1) - min(len(a.Remedy), 1) })
	return users
}

func budgetUser(job *v1alpha1.NodeJob, node *plan.Node, state *plan.NodeState) BudgetUser {
	u := BudgetUser{Node: node.Name}
	describe := "kubectl describe node " + node.Name
	switch {
	case state.State == plan.Running:
		u.Why = "this NodeJob runs there"
	case node.Ready == "":
		u.Why, u.Remedy = "it has not reported its state yet", describe
	case node.Ready == corev1.ConditionUnknown:
		u.Why, u.Remedy = "its kubelet does not report (Ready=Unknown)", describe
	case node.Ready != corev1.ConditionTrue:
		u.Why, u.Remedy = "it is not Ready", describe
	case !node.Unschedulable:
		u.Why = "this NodeJob is at work there: " + words(state.Reason)
	case len(node.CordonedBy) == 0:
		u.Why, u.Remedy, u.When = "it is cordoned, and not by Everynode", uncordon(node), whenOver
	default:
		u.Why, u.Remedy, u.When = cordonedFor(job, node, state)
	}
	return u
}

// cordonedFor returns the NodeJob for which Everynode has cordoned a node.
func cordonedFor(job *v1alpha1.NodeJob, node *plan.Node, state *plan.NodeState) (why, remedy, when string) {
	if !slices.Contains(node.CordonedBy, v1alpha1.RecordKey(job.Namespace, job.Name)) {
		namespace, name, ok := jobOf(node.CordonedBy[0])
		if !ok {
			return "it is cordoned, and its annotation " + v1alpha1.CordonedAnnotation + " names no NodeJob", uncordon(node), whenOver
		}
		return "it is cordoned for NodeJob " + namespace + "/" + name, explainCommand(namespace, name, node.Name), ""
	}
	switch {
	case state.State == plan.Failed:
		return "it is cordoned since this NodeJob failed there", Explain{Job: job, Node: node}.onNode(plan.VerbRetry), ""
	case state.Reason == v1alpha1.ReasonBackingOff || state.Reason == v1alpha1.ReasonPodTerminating:
		return "it stays cordoned until this NodeJob's next attempt there", "", ""
	}
	return "it is cordoned since this NodeJob failed there earlier", uncordon(node), ""
}

// whenOver is when a node that something else has cordoned may be uncordoned.
const whenOver = "when its maintenance is over"

func uncordon(node *plan.Node) string { return "kubectl uncordon " + node.Name }

// jobOf returns the NodeJob of a record key. ok is false if the key is not valid. A node may have any text as a key,
// and the result becomes part of a command that users copy.
func jobOf(key string) (namespace, name string, ok bool) {
	prefix, name, _ := strings.Cut(key, "/")
	namespace, ours := strings.CutSuffix(prefix, "."+v1alpha1.Group)
	return namespace, name, ours && objectName.MatchString(namespace) && objectName.MatchString(name)
}

// objectName matches what the API server accepts as the name of an object, except for the length.
var objectName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`)

// holders names the nodes that use maxUnavailable, for a sentence.
func (e Explain) holders() string {
	if len(e.Budget) == 0 {
		return ""
	}
	var named []string
	for _, u := range e.Budget[:min(len(e.Budget), maxBudgetSentence)] {
		named = append(named, u.Node+" ("+u.Why+")")
	}
	said := ": " + strings.Join(named, ", ")
	if more := len(e.Budget) - len(named); more > 0 {
		said += fmt.Sprintf(" and %d more", more)
	}
	return said
}

// budget lists the nodes that use maxUnavailable.
func (e Explain) budget() []text.Line {
	var lines []text.Line
	head := "Budget"
	for _, u := range e.Budget[:min(len(e.Budget), maxBudgetUsers)] {
		lines = append(lines, text.Wrap(label(head).Tone(text.Strong, u.Node+": "), text.Plain, u.Why, e.Width)...)
		head = ""
	}
	if more := len(e.Budget) - maxBudgetUsers; more > 0 {
		lines = append(lines, label("").Tone(text.Dim, fmt.Sprintf("and %d more", more)))
	}
	return lines
}

// makeRoom describes how the nodes that use maxUnavailable become available.
func (e Explain) makeRoom() Said {
	said := prose("it starts automatically when fewer nodes are unavailable")
	remedies := 0
	for _, u := range e.Budget {
		if u.Remedy == "" || remedies == maxBudgetRemedies {
			continue
		}
		said = said.prose([]string{". What may help: ", "; "}[min(remedies, 1)]).command(u.Remedy)
		if u.When != "" {
			said = said.prose(", " + u.When)
		}
		remedies++
	}
	if remedies == 0 {
		return prose("no action needed: it starts automatically when fewer nodes are unavailable")
	}
	return said.prose("; a higher spec.maintenance.maxUnavailable")
}
