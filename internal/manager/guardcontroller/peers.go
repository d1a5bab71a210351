// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guardcontroller

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodeguard/guard"
)

// maxParallelPeers limits how many other NodeGuards are evaluated concurrently.
const maxParallelPeers = 8

// askPeers gets the decisions of the other NodeGuards on the nodes with a release request, based on the current
// observation: each may have a reason to hold a node. Only NodeGuards that can guard such a node are asked, so that
// NodeGuards of other nodes, however many, do not delay a decision. For a node with the break-glass annotation, none is
// asked.
func (r *Reconciler) askPeers(ctx context.Context, seen *observation, what *around, from origin) error {
	in := &seen.input
	if len(in.Peers) == 0 {
		return nil
	}
	asking, breaksGlass := guard.RequestingNodes(*in)
	if len(asking) == 0 {
		return nil
	}
	if breaksGlass {
		in.PeersUnknown = true
		return nil
	}
	daemonSets, err := daemonSets(ctx, from)
	if err != nil {
		return err
	}
	budgets, err := budgetsOf(ctx, from, asking)
	if err != nil {
		return err
	}
	var group errgroup.Group
	group.SetLimit(maxParallelPeers)
	for i := range in.Peers {
		peer := &in.Peers[i]
		g := peer.Guard
		key := client.ObjectKey{Namespace: g.Namespace}
		hasBudget := func(name string) bool { key.Name = name; return budgets[key] }
		if !guard.CanGuard(peer, daemonSets[client.ObjectKey{Namespace: g.Namespace, Name: g.Spec.Target.DaemonSet}], asking, hasBudget) {
			continue
		}
		group.Go(func() error {
			other, err := r.observeOne(ctx, g, what, from)
			if err != nil {
				return fmt.Errorf("looking at NodeGuard %s: %w", peer.Name, err)
			}
			peer.Stances = guard.Stances(other.input)
			return nil
		})
	}
	return group.Wait()
}

// daemonSets returns the pod templates of all DaemonSets. One list costs less than a read for each NodeGuard.
func daemonSets(ctx context.Context, from origin) (map[client.ObjectKey]*corev1.PodSpec, error) {
	var list appsv1.DaemonSetList
	if err := from.made.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing DaemonSets: %w", err)
	}
	templates := make(map[client.ObjectKey]*corev1.PodSpec, len(list.Items))
	for i := range list.Items {
		templates[client.ObjectKeyFromObject(&list.Items[i])] = &list.Items[i].Spec.Template.Spec
	}
	return templates, nil
}

// maxAsking limits how many nodes one request names.
const maxAsking = 100

// budgetsOf returns the budgets of the given nodes, of any NodeGuard, by namespace and name.
func budgetsOf(ctx context.Context, from origin, nodes []*guard.Node) (map[client.ObjectKey]bool, error) {
	var ids []string
	for _, n := range nodes {
		ids = append(ids, guard.NodeID(n.Name))
	}
	selector := labels.NewSelector()
	if len(ids) <= maxAsking {
		among, err := labels.NewRequirement(v1alpha1.GuardedNodeLabel, selection.In, ids)
		if err != nil {
			return nil, fmt.Errorf("selecting budgets: %w", err)
		}
		selector = selector.Add(*among)
	}
	var list policyv1.PodDisruptionBudgetList
	if err := from.made.List(ctx, &list, client.MatchingLabelsSelector{Selector: selector}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing the PodDisruptionBudgets of nodes: %w", err)
	}
	budgets := make(map[client.ObjectKey]bool, len(list.Items))
	for i := range list.Items {
		budgets[client.ObjectKeyFromObject(&list.Items[i])] = true
	}
	return budgets, nil
}
