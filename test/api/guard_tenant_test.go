// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodeguard/guard"
)

// forgeRelease writes into the status of a NodeGuard that it has released a node by break-glass.
func (w *world) forgeRelease(name client.ObjectKey, node string) {
	w.T.Helper()
	n := &corev1.Node{}
	must(w.T, admin.Get(w.Ctx, client.ObjectKey{Name: node}, n))
	must(w.T, retry.RetryOnConflict(retry.DefaultRetry, func() error {
		ng := &v1alpha1.NodeGuard{}
		if err := admin.Get(w.Ctx, name, ng); err != nil {
			return err
		}
		ng.Status.Released = []v1alpha1.ReleasedNode{{
			Node: node, UID: n.UID, Since: metav1.Now(), RequestedAt: metav1.Now(), Reason: v1alpha1.ReasonBreakGlass, Message: "let me",
		}}
		return w.as(managerUser).Status().Update(w.Ctx, ng) // without a seal; no other user may write it
	}))
}

// TestATenantDoesNotDecideForOthers : in a namespace that is not allowed, a user creates many NodeGuards for the nodes of
// another one, and writes into their status, and into that of the other one, that a node is released. That releases nothing,
// holds nothing, and costs no watch.
func TestATenantDoesNotDecideForOthers(t *testing.T) {
	const many = 20
	g := newGuarded(t, "tenant-1", "tenant-2")
	closed := newWorld(t)
	closed.allowNamespace(false)
	theirs := &guarded{world: closed}
	theirs.daemonSetFor("all", func(pod *corev1.PodSpec) { pod.NodeSelector = map[string]string{"world": g.Namespace} })
	startGuards(t, noFaults)
	g.guard(func(s *v1alpha1.NodeGuardSpec) { s.Release.Approval = v1alpha1.ApprovalRequired })
	g.ready(2)

	named := func(i int) client.ObjectKey {
		return client.ObjectKey{Namespace: closed.Namespace, Name: fmt.Sprint("all-", i)}
	}
	for i := range many {
		ng := &v1alpha1.NodeGuard{ObjectMeta: metav1.ObjectMeta{Namespace: closed.Namespace, Name: named(i).Name}}
		ng.Spec.Target.DaemonSet, ng.Spec.Release.Approval = "all", v1alpha1.ApprovalRequired
		must(t, admin.Create(g.Ctx, ng))
		t.Cleanup(func() { _ = admin.Delete(t.Context(), ng) })
	}
	g.Eventually("each says that its namespace is not allowed", func() error {
		for i := range many {
			ng := &v1alpha1.NodeGuard{}
			must(t, admin.Get(g.Ctx, named(i), ng))
			if c := meta.FindStatusCondition(
				ng.Status.Conditions,
				v1alpha1.ConditionStalled,
			); c == nil ||
				c.Reason != v1alpha1.ReasonNamespaceNotAllowed {
				return fmt.Errorf("%s: %+v", ng.Name, ng.Status)
			}
		}
		return nil
	})
	for i := range many {
		closed.forgeRelease(named(i), "tenant-1")
	}
	g.forgeRelease(client.ObjectKey{Namespace: g.Namespace, Name: "storage"}, "tenant-1")

	g.cordon("tenant-1", true)
	g.held("tenant-1", v1alpha1.ReasonAwaitingApproval)
	if err := g.evict("tenant-1"); !apierrors.IsTooManyRequests(err) {
		t.Errorf("the companion can be evicted without an approval: %v", err)
	}
	g.Eventually("the manager restores its status", func() error {
		if released := g.live().Status.Released; len(released) > 0 {
			return fmt.Errorf("released are %+v", released)
		}
		return nil
	})
	must(t, admin.Patch(g.Ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "tenant-1"}},
		mergePatch(fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.ApproveReleaseAnnotation, g.Namespace+"/storage"))))
	g.goes("tenant-1") // the NodeGuards of the tenant, without an approval, hold nothing
	g.cordon("tenant-1", false)
	g.ready(2)
	for path, n := range used.watches() {
		if strings.Contains(path, "/namespaces/"+closed.Namespace+"/") {
			t.Errorf("%d watches of %s", n, path)
		}
	}
}

// TestPodsThatAUserCreatesAreNoChecks : a user who may create pods in the namespace of a NodeGuard creates one with all labels,
// annotations and the owner of a check that succeeds.
func TestPodsThatAUserCreatesAreNoChecks(t *testing.T) {
	g := newGuarded(t, "forged-1")
	startGuards(t, noFaults)
	g.guard(func(s *v1alpha1.NodeGuardSpec) {
		s.Release.Check = &v1alpha1.ReleaseCheck{Script: "false"}
	})
	g.ready(1)
	g.cordon("forged-1", true)
	checks := func() []corev1.Pod {
		var pods corev1.PodList
		must(
			t,
			admin.List(
				g.Ctx,
				&pods,
				client.InNamespace(g.Namespace),
				client.MatchingLabels{v1alpha1.GuardRoleLabel: v1alpha1.GuardRoleCheck},
			),
		)
		return pods.Items
	}
	g.Eventually("a check runs", func() error {
		if n := len(checks()); n != 1 {
			return fmt.Errorf("there are %d", n)
		}
		return nil
	})
	g.unprotected()
	check := checks()[0]
	forged := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace:       g.Namespace,
		Name:            "forged",
		Labels:          check.Labels,
		Annotations:     check.Annotations,
		OwnerReferences: check.OwnerReferences,
	}, Spec: corev1.PodSpec{NodeName: "forged-1", Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	must(t, admin.Create(g.Ctx, forged))
	must(t, admin.Delete(g.Ctx, &check, client.GracePeriodSeconds(0)))
	must(t, retry.RetryOnConflict(retry.DefaultRetry, func() error {
		must(t, admin.Get(g.Ctx, client.ObjectKeyFromObject(forged), forged))
		forged.Status.Phase, forged.Status.StartTime = corev1.PodSucceeded, new(metav1.Now())
		forged.Status.ContainerStatuses = []corev1.ContainerStatus{
			{Name: "c", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.Now()}}},
		}
		return admin.Status().Update(g.Ctx, forged)
	}))
	g.Eventually("the check is started again", func() error {
		for _, pod := range checks() {
			if pod.Name == check.Name && pod.UID != check.UID {
				return nil
			}
		}
		return fmt.Errorf("there are %d checks", len(checks()))
	})
	if err := g.evict("forged-1"); !apierrors.IsTooManyRequests(err) {
		t.Errorf("the companion can be evicted: %v", err)
	}
	if name := guard.PodName("storage", "", v1alpha1.GuardRoleCheck, "forged-1", 0); check.Name == name {
		t.Errorf("%s can be computed without the key", name)
	}
}
