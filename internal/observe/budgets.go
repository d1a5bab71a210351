// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/kube"
	"github.com/everynode/everynode/internal/nodebudget/budget"
	"github.com/everynode/everynode/internal/nodejob/plan"
)

// Stances are what the manager knows of the budgets beside their specs.
type Stances struct {
	// Of are the stances by the UID of the node. Known is false before the first plan of the budgets.
	Of    map[types.UID]hold.Stance
	Known bool
	// Claimed are the nodes that the NodeJob has claimed.
	Claimed map[types.UID]bool
}

// Budgets adds to the input of a plan what budgets mean for its nodes.
func Budgets(in *plan.Input, effects *budget.Effects, stances Stances) {
	in.BudgetsChangeAt = effects.ChangesAt()
	for i := range in.Nodes {
		node := &in.Nodes[i]
		effect := effects.On(budgetNode(node), IgnoresWindows(in.Job, node.Name))
		if !effect.Limited && effect.Closed == nil {
			continue
		}
		if in.Budgets == nil {
			in.Budgets = map[types.UID]plan.NodeBudget{}
		}
		stance, known := stances.Of[node.UID]
		in.Budgets[node.UID] = plan.NodeBudget{
			Effect: effect, Stance: stance,
			// A node without a stance has been selected since the budgets were planned last.
			Unknown: effect.Limited && (!stances.Known || !known),
			Claimed: stances.Claimed[node.UID], UsedUpByJob: stance.HeldBy != "" && stance.HeldBy == ReporterOf(in.Job),
		}
	}
}

// IgnoresWindows reports whether a NodeJob ignores the windows of budgets on a node.
func IgnoresWindows(job *v1alpha1.NodeJob, node string) bool {
	return slices.Contains(job.Spec.Maintenance.IgnoreWindowsOn, node)
}

// ReporterOf is the name with which a NodeJob reports to budgets which nodes it holds.
func ReporterOf(job *v1alpha1.NodeJob) string { return "NodeJob " + job.Namespace + "/" + job.Name }

// budgetNode returns what decides whether a budget applies to a node.
func budgetNode(node *plan.Node) *budget.Node {
	n := &budget.Node{Created: node.Created}
	n.Name, n.UID, n.Labels = node.Name, node.UID, node.Labels
	return n
}

// ToldStances returns what the statuses of budgets say about the nodes that they select, for a client that does not see seats.
func ToldStances(budgets []*v1alpha1.NodeDisruptionBudget, nodes []plan.Node) Stances {
	stances := Stances{Of: map[types.UID]hold.Stance{}, Known: true}
	waiting, cordoned := map[string]string{}, map[string]bool{}
	for _, b := range budgets {
		for i := range b.Status.Unavailable {
			u := &b.Status.Unavailable[i]
			cordoned[u.Node] = cordoned[u.Node] || u.By == kube.ByCordon
		}
		for i := range b.Status.Waiting {
			if w := &b.Status.Waiting[i]; w.Reason != v1alpha1.ReasonBudgetOpen { // a status has no other sign that a disruption may begin
				waiting[w.Node] = w.Message
			}
		}
	}
	for i := range nodes {
		message := waiting[nodes[i].Name]
		stances.Of[nodes[i].UID] = hold.Stance{
			Allowed: message == "", Message: message, Drained: cordoned[nodes[i].Name] && nodes[i].Ready == corev1.ConditionTrue,
		}
	}
	return stances
}
