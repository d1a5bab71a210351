// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/kube"
	"github.com/everynode/everynode/internal/nodebudget/window"
	"github.com/everynode/everynode/internal/plural"
)

// Selecting is a budget that selects a node and has not expired.
type Selecting struct {
	Budget *v1alpha1.NodeDisruptionBudget
	// Unlimited is true if the budget does not limit the node although it selects it: it only reports, no seat can run there, or the
	// node joins. ExemptUntil is when the budget begins to limit a node that joins; zero for other nodes.
	Unlimited   bool
	ExemptUntil time.Time
	// Closed is why the spec allows no disruption now; nil if it allows one. The pace is not included, because it depends on seats.
	Closed *hold.Why
}

// SelectingNode returns the budgets that select a node, in the order of the input.
func SelectingNode(budgets []*v1alpha1.NodeDisruptionBudget, node *Node, now time.Time) []Selecting {
	var all []Selecting
	answers := ToldAnswers(budgets, now)
	for _, b := range budgets {
		r := readRule(b, answers[b.Name], now)
		if r.expired || !r.selects(node) {
			continue
		}
		s := Selecting{Budget: b, Unlimited: !r.enforced() || !canHaveSeat(node), Closed: r.closed}
		if !s.Unlimited && r.exempts(node, JoiningFor, now) {
			s.Unlimited, s.ExemptUntil = true, node.Created.Add(JoiningFor)
		}
		all = append(all, s)
	}
	return all
}

// OpenTogether returns the first time, not before from, at which the windows and excepted dates of all budgets that limit the node allow a
// disruption; zero if there is none within a year. A budget with an end is not considered.
func OpenTogether(selecting []Selecting, from time.Time) time.Time {
	var schedules []*window.Schedule
	for _, s := range selecting {
		schedule, err := window.Parse(&s.Budget.Spec)
		if err == nil && !s.Unlimited && s.Budget.Spec.ExpiresAt == nil {
			schedules = append(schedules, schedule)
		}
	}
	return window.Common(schedules, from)
}

// Exempt are the nodes that a budget does not limit yet because they join.
type Exempt struct {
	Budget string
	Nodes  int
	// Until is when the budget limits the last of them, and For how long a node is exempt after its creation.
	Until time.Time
	For   time.Duration
}

// add counts a node.
func (e *Exempt) add(node *Node) {
	e.Nodes++
	if at := node.Created.Add(e.For); at.After(e.Until) {
		e.Until = at
	}
}

// Text says how many nodes are exempt, until when, why, and how to limit them. until is e.Until as the caller writes times.
func (e *Exempt) Text(until string) string {
	return plural.CountAre(e.Nodes, "node") + " exempt until " + until + e.Why()
}

// Why says why the nodes are exempt, and how to limit them.
func (e *Exempt) Why() string {
	created, them := "it was", "it"
	if e.Nodes != 1 {
		created, them = "they were", "them"
	}
	return fmt.Sprintf(", because less than %d minutes have passed since %s created: set joiningNodes: Included to limit %s now", int(e.For.Minutes()), created, them)
}

// ExemptNodes returns which of the nodes are exempt, for each budget that would otherwise limit some of them, in the order of the input.
func ExemptNodes(budgets []*v1alpha1.NodeDisruptionBudget, nodes []Node, now time.Time) []Exempt {
	var all []Exempt
	for _, b := range budgets {
		r, e := readRule(b, Answers{}, now), Exempt{Budget: b.Name, For: JoiningFor}
		for i := range nodes {
			if node := &nodes[i]; r.enforced() && r.selects(node) && canHaveSeat(node) && r.exempts(node, JoiningFor, now) {
				e.add(node)
			}
		}
		if e.Nodes > 0 {
			all = append(all, e)
		}
	}
	return all
}

// Room returns how many of the nodes with these labels a budget allows to be unavailable at the same time; -1 if it has no limits. selects
// is true if it has an effect on any of them.
func Room(b *v1alpha1.NodeDisruptionBudget, nodes []map[string]string, now time.Time) (room int, selects bool) {
	r := readRule(b, Answers{}, now)
	var selected []map[string]string
	for _, node := range nodes {
		if r.enforced() && r.selector.Matches(labels.Set(node)) {
			selected = append(selected, node)
		}
	}
	room = -1
	for i := range b.Spec.Limits {
		l, counts, sum := &b.Spec.Limits[i], map[string]int{}, 0
		for _, node := range selected {
			counts[node[l.TopologyKey]]++ // "" without a key
		}
		for _, n := range counts {
			sum += kube.MaxUnavailable(l.MaxUnavailable, n)
		}
		if room < 0 || sum < room {
			room = sum
		}
	}
	return room, len(selected) > 0
}
