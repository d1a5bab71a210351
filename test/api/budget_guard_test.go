// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
)

// TestABudgetDecidesBeforeANodeGuard : a NodeGuard and a budget of one node each. The NodeGuard does not release the node that was
// cordoned first, because a drain of another node gets its seat first. Two drains at once end one after the other.
func TestABudgetDecidesBeforeANodeGuard(t *testing.T) {
	b := newBudgeted(t, "n0", "n1", "n2")
	b.startManager()
	b.budget("one", nil)
	b.guardDisks("n0", "n1", "n2")
	b.has("one", 3, 0, 1)
	b.granting(1)

	must(t, b.kubectl("cordon n0"))
	b.disks("NodeGuard disks holds n0", func(g *v1alpha1.NodeGuard) bool {
		return len(g.Status.Waiting) == 1 && g.Status.Waiting[0].Node == "n0" &&
			g.Status.Waiting[0].Reason == v1alpha1.ReasonWaitingForBudget
	})
	must(t, b.kubectl("drain n1 --ignore-daemonsets --timeout=60s"))
	must(t, b.kubectl("uncordon n1"))
	must(t, b.kubectl("uncordon n0"))
	b.has("one", 3, 0, 1)

	must(t, b.kubectl("cordon n0 n1"))
	var group sync.WaitGroup
	errs := make([]error, 2)
	for i, node := range []string{"n0", "n1"} {
		kubectl := b.newKubectl()
		group.Go(func() {
			if errs[i] = kubectl("drain " + node + " --ignore-daemonsets --timeout=120s"); errs[i] == nil {
				errs[i] = kubectl("uncordon " + node)
			}
		})
	}
	group.Wait()
	must(t, errs[0])
	must(t, errs[1])
	b.has("one", 3, 0, 1)
	b.disks("all nodes are guarded again", func(g *v1alpha1.NodeGuard) bool {
		return g.Status.Nodes == v1alpha1.GuardCounts{Total: 3, Ready: 3, Updated: 3}
	})
}

// guardDisks creates DaemonSet disks, its pods, and its NodeGuard, in namespace default.
func (b *budgeted) guardDisks(nodes ...string) {
	b.T.Helper()
	must(b.T, b.kubectl("label namespace default "+v1alpha1.EnabledLabel+"="+v1alpha1.EnabledValue))
	ds, yes := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "disks"}}, true
	ds.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "disks"}}
	ds.Spec.Template.Labels = ds.Spec.Selector.MatchLabels
	ds.Spec.Template.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
	must(b.T, b.admin.Create(b.Ctx, ds))
	for _, node := range nodes {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "disks-" + node, Labels: ds.Spec.Template.Labels,
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "apps/v1", Kind: "DaemonSet", Name: ds.Name, UID: ds.UID, Controller: &yes},
			},
		}, Spec: ds.Spec.Template.Spec}
		pod.Spec.NodeName = node
		must(b.T, b.admin.Create(b.Ctx, pod))
	}
	g := &v1alpha1.NodeGuard{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "disks"}}
	g.Spec.Target.DaemonSet = "disks"
	must(b.T, b.admin.Create(b.Ctx, g))
	b.disks("all companions are ready", func(g *v1alpha1.NodeGuard) bool { return int(g.Status.Nodes.Ready) == len(nodes) })
}

// disks waits for a state of NodeGuard disks.
func (b *budgeted) disks(what string, is func(*v1alpha1.NodeGuard) bool) {
	b.T.Helper()
	b.Within(time.Minute, 50*time.Millisecond, what, func() error {
		var g v1alpha1.NodeGuard
		if err := b.admin.Get(b.Ctx, client.ObjectKey{Namespace: "default", Name: "disks"}, &g); err != nil {
			return err
		}
		if !is(&g) {
			return fmt.Errorf("the status is %+v", g.Status)
		}
		return nil
	})
}
