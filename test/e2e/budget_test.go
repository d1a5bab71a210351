// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/local/cluster"
	"github.com/everynode/everynode/test/install"
)

// budgeted is a world with nodes of its own that a NodeDisruptionBudget limits to one unavailable node.
type budgeted struct {
	*world
	nodes []string
	// most is how many nodes were cordoned without a seat at the same time.
	mu   sync.Mutex
	most int
}

func newBudgeted(t *testing.T, nodes int) *budgeted {
	t.Helper()
	b := &budgeted{world: newWorld(t), nodes: make([]string, nodes)}
	var group sync.WaitGroup
	for i := range b.nodes {
		group.Go(func() { b.nodes[i] = b.join(cluster.NodeOptions{}) })
	}
	group.Wait()
	t.Cleanup(func() {
		b.deleteBudget(b.namespace)
		b.deleteBudget("freeze-" + b.namespace)
	})
	b.budget(b.namespace, 1)
	b.seated(nodes, 1)
	ctx, cancel := context.WithCancel(b.ctx)
	var watcher sync.WaitGroup
	watcher.Go(func() { b.watchNodes(ctx) })
	t.Cleanup(func() { cancel(); watcher.Wait() })
	return b
}

func (b *budgeted) budget(name string, most int32) {
	b.t.Helper()
	limit := intstr.FromInt32(most)
	must(
		b.t,
		admin.Create(
			b.ctx,
			&v1alpha1.NodeDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.NodeDisruptionBudgetSpec{
				Selector: &metav1.LabelSelector{
					MatchLabels: map[string]string{"world": b.namespace},
				},
				JoiningNodes: v1alpha1.JoiningNodesIncluded,
				Limits:       []v1alpha1.BudgetLimit{{MaxUnavailable: &limit}},
			}},
		),
	)
}

func (b *budgeted) deleteBudget(name string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	must(b.t, client.IgnoreNotFound(admin.Delete(ctx, &v1alpha1.NodeDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: name}})))
}

// seated waits until so many nodes have a seat, and the API server grants so many evictions of them.
func (b *budgeted) seated(nodes int, granted int32) {
	b.t.Helper()
	b.eventually(fmt.Sprintf("%d nodes have a seat, and %d evictions are granted", nodes, granted), func() error {
		var ndb v1alpha1.NodeDisruptionBudget
		if err := admin.Get(b.ctx, client.ObjectKey{Name: b.namespace}, &ndb); err != nil {
			return err
		}
		seats := b.seats()
		if int(ndb.Status.Nodes.Seats) != nodes || len(seats) != nodes {
			return fmt.Errorf("%d seats are there, and the status is %+v", len(seats), ndb.Status)
		}
		var list policyv1.PodDisruptionBudgetList
		if err := admin.List(
			b.ctx,
			&list,
			client.InNamespace(install.Namespace),
			client.MatchingLabels{v1alpha1.BudgetGroupLabel: seats[b.nodes[0]].Labels[v1alpha1.BudgetGroupLabel]},
		); err != nil {
			return err
		}
		if len(list.Items) != 1 || list.Items[0].Status.DisruptionsAllowed != granted {
			return fmt.Errorf("the PodDisruptionBudgets are %+v", list.Items)
		}
		return nil
	})
}

// seats are the seats of the test by node.
func (b *budgeted) seats() map[string]corev1.Pod {
	var pods corev1.PodList
	if err := admin.List(b.ctx, &pods, client.InNamespace(install.Namespace), client.HasLabels{v1alpha1.BudgetGroupLabel}); err != nil {
		return nil
	}
	found := map[string]corev1.Pod{}
	for _, pod := range pods.Items {
		for _, node := range b.nodes {
			if pod.Spec.NodeName == node && pod.DeletionTimestamp.IsZero() {
				found[node] = pod
			}
		}
	}
	return found
}

// watchNodes counts the nodes that are cordoned and have no seat: those that a drain has.
func (b *budgeted) watchNodes(ctx context.Context) {
	for ctx.Err() == nil {
		var nodes corev1.NodeList
		if err := admin.List(ctx, &nodes, client.MatchingLabels{"world": b.namespace}); err == nil {
			seats, away := b.seats(), 0
			for i := range nodes.Items {
				if _, seat := seats[nodes.Items[i].Name]; !seat && nodes.Items[i].Spec.Unschedulable && seats != nil {
					away++
				}
			}
			b.mu.Lock()
			b.most = max(b.most, away)
			b.mu.Unlock()
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// TestABudgetLetsOneNodeGoAtATime : two drains with kubectl, in which the manager dies; a freeze in the middle of a drain, with the manager
// killed; and a NodeJob that drains nodes and could take all of them.
func TestABudgetLetsOneNodeGoAtATime(t *testing.T) {
	b := newBudgeted(t, 2)
	first, second := b.nodes[0], b.nodes[1]
	drains := map[string]<-chan error{first: b.drain(first), second: b.drain(second)}
	b.killManager()
	select {
	case err := <-drains[first]:
		must(t, err)
	case err := <-drains[second]:
		must(t, err)
		first, second = second, first
	case <-b.ctx.Done():
		t.Fatal("no drain ends")
	}
	notEnded(t, "the other drain", drains[second])
	b.killManager()

	// A freeze begins while a drain waits, and holds it when the node that was away is back.
	b.budget("freeze-"+b.namespace, 0)
	b.eventually("the freeze is in force", func() error {
		var ndb v1alpha1.NodeDisruptionBudget
		if err := admin.Get(b.ctx, client.ObjectKey{Name: "freeze-" + b.namespace}, &ndb); err != nil {
			return err
		}
		if ndb.Status.ObservedGeneration != ndb.Generation {
			return errNotYet
		}
		return nil
	})
	b.killManager()
	b.uncordon(first)
	b.seated(2, 0)
	notEnded(t, "the drain under a freeze", drains[second])
	b.deleteBudget("freeze-" + b.namespace)
	b.drained(second, drains[second])
	b.uncordon(second)
	b.seated(2, 1)

	b.job("drained", "true", func(s *v1alpha1.NodeJobSpec) { s.Maintenance.Drain = &v1alpha1.DrainSpec{} })
	for _, node := range b.nodes {
		b.done("drained", node)
	}
	b.seated(2, 1)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.most != 1 {
		t.Errorf("at most %d nodes were away at the same time, want 1", b.most)
	}
}
