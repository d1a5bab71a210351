// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cmdutil

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/kube"
	"github.com/everynode/everynode/internal/nodebudget/budget"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/ui/view"
	"github.com/everynode/everynode/internal/uninstall"
)

// ListBudgets reads all NodeDisruptionBudgets.
func ListBudgets(ctx context.Context, c client.Reader) ([]v1alpha1.NodeDisruptionBudget, error) {
	var all []v1alpha1.NodeDisruptionBudget
	var page v1alpha1.NodeDisruptionBudgetList
	err := EachPage(ctx, c, &page, func() {
		all = append(all, page.Items...)
		page.Items = nil // the next page must not be decoded into these items
	})
	return all, err
}

// GetBudget reads a NodeDisruptionBudget; nil if it does not exist.
func GetBudget(ctx context.Context, c client.Reader, name string) (*v1alpha1.NodeDisruptionBudget, error) {
	var found v1alpha1.NodeDisruptionBudget
	err := c.Get(ctx, client.ObjectKey{Name: name}, &found)
	switch {
	case apierrors.IsNotFound(err) && !NotInstalled(err):
		return nil, nil
	case err != nil:
		return nil, Explain(err)
	}
	return &found, nil
}

// BudgetNames returns the names of the NodeDisruptionBudgets, as far as the user may list them.
func BudgetNames(ctx context.Context, c client.Client) []string {
	return namesIn(ctx, c, v1alpha1.GroupVersion.WithKind("NodeDisruptionBudgetList"))
}

// IsExpired reports whether a NodeDisruptionBudget has no effect because of its end.
func IsExpired(b *v1alpha1.NodeDisruptionBudget, now time.Time) bool {
	return b.Spec.ExpiresAt != nil && !now.Before(b.Spec.ExpiresAt.Time)
}

// IsActiveFreeze reports whether a NodeDisruptionBudget is a freeze that holds something at this time.
func IsActiveFreeze(b *v1alpha1.NodeDisruptionBudget, now time.Time) bool {
	return budget.IsFreeze(&b.Spec) && b.Spec.Enforcement != v1alpha1.BudgetReport && b.DeletionTimestamp.IsZero() && !IsExpired(b, now)
}

// mistakeIn returns why a budget allows nothing until it is corrected, according to its manager; "" if it does not.
func mistakeIn(b *v1alpha1.NodeDisruptionBudget, now time.Time) string {
	c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionStalled)
	if c == nil || c.Status != metav1.ConditionTrue || c.Reason == v1alpha1.ReasonSeatRefused || b.Spec.Enforcement == v1alpha1.BudgetReport || !b.DeletionTimestamp.IsZero() || IsExpired(b, now) {
		return ""
	}
	return c.Message
}

// Mistakes returns the budgets that allow nothing until they are corrected.
func Mistakes(budgets []v1alpha1.NodeDisruptionBudget, now time.Time) []view.Freeze {
	var found []view.Freeze
	for i := range budgets {
		if mistake := mistakeIn(&budgets[i], now); mistake != "" {
			found = append(found, view.Freeze{Budget: &budgets[i], Mistake: mistake})
		}
	}
	return found
}

// FreezesOn returns the freezes that select some of the nodes, and the budgets that allow nothing until they are corrected.
func FreezesOn(budgets []*v1alpha1.NodeDisruptionBudget, nodes []plan.Node, now time.Time) []view.Freeze {
	var freezes []view.Freeze
	for _, b := range budgets {
		mistake := mistakeIn(b, now)
		if !IsActiveFreeze(b, now) && mistake == "" {
			continue
		}
		n := newCounter(b, now)
		for i := range nodes {
			n.count(nodes[i].Labels, nodes[i].Created)
		}
		if n.selected > 0 {
			freezes = append(freezes, view.Freeze{Budget: b, Nodes: n.selected, Mistake: mistake})
		}
	}
	return freezes
}

// counter counts the nodes to which a budget applies.
type counter struct {
	effects  *budget.Effects
	selected int
}

func newCounter(b *v1alpha1.NodeDisruptionBudget, now time.Time) *counter {
	return &counter{effects: budget.EffectsOf([]*v1alpha1.NodeDisruptionBudget{b}, nil, 0, now)}
}

func (n *counter) count(labels map[string]string, created time.Time) {
	if n.effects.On(&budget.Node{Node: kube.Node{Labels: labels}, Created: created}, false).Limited {
		n.selected++
	}
}

// BudgetsOn returns what budgets mean for a node, without its seat.
func BudgetsOn(budgets []*v1alpha1.NodeDisruptionBudget, node *plan.Node, now time.Time) view.NodeBudgets {
	on := &budget.Node{Node: kube.Node{Labels: node.Labels}, Created: node.Created}
	return view.NodeBudgets{Node: node, Selecting: budget.SelectingNode(budgets, on, now), SeatUnknown: true, SeatNamespace: seatNamespace, Now: now}
}

// ExemptOf returns which of the nodes on which a NodeJob runs are exempt, for each NodeDisruptionBudget for which it would otherwise wait.
func ExemptOf(budgets []*v1alpha1.NodeDisruptionBudget, in *plan.Input, states []plan.NodeState) []budget.Exempt {
	var limiting []*v1alpha1.NodeDisruptionBudget
	for _, b := range budgets {
		if plan.Disrupts(in.Job) || b.Spec.AppliesTo == v1alpha1.AppliesToAllTasks {
			limiting = append(limiting, b)
		}
	}
	var nodes []budget.Node
	for i := range states {
		if n := &in.Nodes[i]; states[i].State != plan.Excluded {
			nodes = append(nodes, budget.Node{Node: kube.Node{Labels: n.Labels}, Created: n.Created})
		}
	}
	return budget.ExemptNodes(limiting, nodes, in.Now)
}

// seatNamespace is the namespace of the manager, in which it runs seats.
const seatNamespace = uninstall.Namespace

// ReadSeat adds the seat of the node. A user who may not list the pods of the namespace of the manager gets no error, and no seat. The
// command line does not know the key of the installation, so a pod counts as the seat if it looks like one.
func ReadSeat(ctx context.Context, c client.Reader, b *view.NodeBudgets) error {
	var page corev1.PodList
	err := EachPage(ctx, c, &page, func() {
		for i := range page.Items {
			seat := budget.ViewSeat(&page.Items[i])
			if !seat.Terminating && seat.Node == b.Node.UID {
				b.Seat = &seat
			}
		}
	}, client.InNamespace(seatNamespace), client.HasLabels{v1alpha1.BudgetGroupLabel}, client.MatchingFields{"spec.nodeName": b.Node.Name})
	b.SeatUnknown = err != nil
	if CodeOf(err) == ExitForbidden {
		return nil
	}
	return err
}

// Freezes returns the freezes that select nodes, and the budgets that allow nothing until they are corrected, for a command that reads no nodes. now returns the time of the API server. A user who
// may not list NodeDisruptionBudgets, and a cluster without them, have none.
func Freezes(ctx context.Context, c client.Reader, now func() time.Time) ([]view.Freeze, error) {
	budgets, err := readableBudgets(ctx, c)
	if err != nil {
		return nil, err
	}
	var freezes []view.Freeze
	for i := range budgets {
		b := &budgets[i]
		mistake := mistakeIn(b, now())
		if !IsActiveFreeze(b, now()) && mistake == "" {
			continue
		}
		selected, err := SelectedNodes(ctx, c, b, now())
		switch {
		case CodeOf(err) == ExitForbidden:
			freezes = append(freezes, view.Freeze{Budget: b, Mistake: mistake})
		case err != nil:
			return freezes, err
		case selected > 0:
			freezes = append(freezes, view.Freeze{Budget: b, Nodes: selected, Mistake: mistake})
		}
	}
	return freezes, nil
}

// readableBudgets reads all NodeDisruptionBudgets; none if the user may not list them, or the cluster does not know them.
func readableBudgets(ctx context.Context, c client.Reader) ([]v1alpha1.NodeDisruptionBudget, error) {
	budgets, err := ListBudgets(ctx, c)
	if IsUnreadable(err) {
		return nil, nil
	}
	return budgets, err
}

// IsUnreadable reports whether a user cannot know the objects of a kind: for lack of a permission, or because the cluster does not know
// the kind.
func IsUnreadable(err error) bool {
	code := CodeOf(err)
	return code == ExitForbidden || code == ExitNotInstalled || code == ExitNotFound
}

// BudgetsFor returns the NodeDisruptionBudgets for FreezesOn.
func BudgetsFor(ctx context.Context, c client.Reader) ([]*v1alpha1.NodeDisruptionBudget, error) {
	budgets, err := readableBudgets(ctx, c)
	all := make([]*v1alpha1.NodeDisruptionBudget, 0, len(budgets))
	for i := range budgets {
		all = append(all, &budgets[i])
	}
	return all, err
}

// SelectedNodes returns the number of nodes to which a budget applies: from its status if the manager has observed it, since reading all
// nodes takes longer.
func SelectedNodes(ctx context.Context, c client.Reader, b *v1alpha1.NodeDisruptionBudget, now time.Time) (int, error) {
	if n := b.Status.Nodes; b.Generation > 0 && b.Status.ObservedGeneration == b.Generation && n.Total > n.Exempt {
		return int(n.Total - n.Exempt), nil
	}
	n := newCounter(b, now)
	err := EachNode(ctx, c, func(node *metav1.PartialObjectMetadata) { n.count(node.Labels, node.CreationTimestamp.Time) })
	return n.selected, err
}
