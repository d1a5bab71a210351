// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guardcontroller

import (
	"context"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodeguard/guard"
)

// maxParallelPeers limits how many other NodeGuards are evaluated concurrently.
const maxParallelPeers = 8

// askPeers gets the decisions of the other NodeGuards on the nodes with a release request, based on the current
// observation: each may have a reason to hold a node. Only NodeGuards that hold something on such a node are asked, so that
// others, however many, do not delay a decision. For a node with the break-glass annotation, none is
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
	companions, err := r.companionsOf(ctx, in.Peers, from)
	if err != nil {
		return err
	}
	var group errgroup.Group
	group.SetLimit(maxParallelPeers)
	for i := range in.Peers {
		peer := &in.Peers[i]
		g := peer.Guard
		hasCompanion := func(node string) bool {
			return companions[companionKey{client.ObjectKeyFromObject(g), guard.NodeID(node)}]
		}
		if !guard.CanGuard(peer, asking, hasCompanion) {
			continue
		}
		group.Go(func() error {
			began := r.Now()
			other, err := r.observeOne(ctx, g, what, from)
			r.turns.asked(g.Namespace, r.Now().Sub(began))
			if err != nil {
				return fmt.Errorf("looking at NodeGuard %s: %w", peer.Name, err)
			}
			peer.Stances = guard.Stances(other.input)
			return nil
		})
	}
	return group.Wait()
}

// companionKey is a NodeGuard, and the ID of a node on which its companion is.
type companionKey struct {
	guard client.ObjectKey
	node  string
}

// companionsOf returns where the companions of other NodeGuards are. One list of a namespace costs less than reads for each NodeGuard in it.
func (r *Reconciler) companionsOf(ctx context.Context, peers []guard.Peer, from origin) (map[companionKey]bool, error) {
	namespaces := map[string]bool{}
	for i := range peers {
		namespaces[peers[i].Guard.Namespace] = true
	}
	found := map[companionKey]bool{}
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(maxParallelPeers)
	for namespace := range namespaces {
		group.Go(func() error {
			var pods corev1.PodList
			role := client.MatchingLabels{v1alpha1.GuardRoleLabel: v1alpha1.GuardRoleCompanion}
			if err := from.made.List(ctx, &pods, client.InNamespace(namespace), role, client.UnsafeDisableDeepCopy); err != nil {
				return fmt.Errorf("listing the companions in namespace %s: %w", namespace, err)
			}
			mu.Lock()
			defer mu.Unlock()
			for i := range pods.Items {
				pod := &pods.Items[i]
				if name := pod.Labels[v1alpha1.NodeGuardLabel]; r.isOurs(pod, name) {
					found[companionKey{client.ObjectKey{Namespace: namespace, Name: name}, pod.Labels[v1alpha1.GuardedNodeLabel]}] = true
				}
			}
			return nil
		})
	}
	return found, group.Wait()
}
