// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodeguard/guard"
)

// mirrorPod is what a kubelet makes of a static pod: any name, any labels, in any namespace, on its own node.
func mirrorPod(namespace, name, node string, uid types.UID, labels map[string]string) *corev1.Pod {
	yes := true
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, Labels: labels, Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "x"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node, UID: uid, Controller: &yes}},
		},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
}

func (g *guarded) mirrorPod(name, node string, labels map[string]string) *corev1.Pod {
	g.T.Helper()
	pod := mirrorPod(g.Namespace, name, node, "uid-of-"+types.UID(node), labels)
	must(g.T, admin.Create(g.Ctx, pod))
	return pod
}

// TestAKubeletMakesPodsWithAnyLabels : that is what NodeRestriction lets it do, and no more.
func TestAKubeletMakesPodsWithAnyLabels(t *testing.T) {
	f := startFresh(t)
	must(t, f.kubectl("apply -k ../../config/crd"))
	f.Eventually("the kinds are served", func() error { return f.kubectl("get nodeguards -A") })
	must(t, f.admin.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "default"}}))
	user, err := f.env.AddUser(envtest.User{Name: "system:node:kubelet-1", Groups: []string{"system:nodes"}}, nil)
	must(t, err)
	kubelet, err := client.New(user.Config(), client.Options{Scheme: scheme})
	must(t, err)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "kubelet-1"}}
	must(t, kubelet.Create(t.Context(), node))

	stranger := mirrorPod("default", "any-name", node.Name, node.UID, guard.MatchLabels("disks", "another-node"))
	must(t, kubelet.Create(t.Context(), stranger))

	forged := mirrorPod("default", "forged", node.Name, node.UID, guard.MatchLabels("disks", "another-node"))
	forged.OwnerReferences[0] = metav1.OwnerReference{
		APIVersion: v1alpha1.GroupVersion.String(),
		Kind:       "NodeGuard",
		Name:       "disks",
		UID:        "u",
		Controller: new(true),
	}
	if err := kubelet.Create(t.Context(), forged); !apierrors.IsForbidden(err) {
		t.Errorf("a kubelet makes a companion: %v", err)
	}
	if err := kubelet.List(t.Context(), &v1alpha1.NodeGuardList{}); !apierrors.IsForbidden(err) {
		t.Errorf("a kubelet reads NodeGuards: %v", err)
	}
	if err := kubelet.List(t.Context(), &corev1.PodList{}); !apierrors.IsForbidden(err) {
		t.Errorf("a kubelet reads the names of pods on other nodes: %v", err)
	}
}

// TestForeignPodsReleaseNoNode covers budgets that count all pods with their labels, regardless of who created them.
func TestForeignPodsReleaseNoNode(t *testing.T) {
	g := newGuarded(t, "foreign-1", "foreign-2", "foreign-3")
	g.unprotected()
	startGuards(t, noFaults)
	g.guard(nil)
	g.ready(3)
	stays := func(node string, healthy int32) {
		t.Helper()
		g.Eventually("the budget counts the foreign pod and is locked", func() error {
			var b policyv1.PodDisruptionBudget
			must(t, admin.Get(g.Ctx, client.ObjectKey{Namespace: g.Namespace, Name: guard.BudgetName("storage")}, &b))
			if guard.ReadBudget(&b).MinAvailable != guard.Locked || b.Status.ObservedGeneration != b.Generation ||
				b.Status.CurrentHealthy < healthy {
				return fmt.Errorf("it is %+v %+v", b.Spec, b.Status)
			}
			return nil
		})
		if err := g.evict(node); !apierrors.IsTooManyRequests(err) {
			t.Errorf("the companion of %s can be evicted: %v", node, err)
		}
	}
	stranger := g.mirrorPod("static-foreign-1", "foreign-1", guard.MatchLabels("storage", "foreign-2"))
	wantText(
		t,
		g.stalled(v1alpha1.ReasonForeignCompanion).Message,
		"static-foreign-1 on node foreign-1",
		"kubectl -n "+g.Namespace+" delete pod static-foreign-1",
	)
	stays("foreign-2", 4)

	// If the pod is created while the node is held, it finds the budget locked.
	g.cordon("foreign-1", true)
	g.goes("foreign-1")
	g.cordon("foreign-3", true)
	g.held("foreign-3", v1alpha1.ReasonMaxUnavailableReached)
	second := g.mirrorPod("static-2-foreign-1", "foreign-1", guard.MatchLabels("storage", "foreign-3"))
	stays("foreign-3", 4)

	must(t, admin.Delete(g.Ctx, stranger, client.GracePeriodSeconds(0)))
	must(t, admin.Delete(g.Ctx, second, client.GracePeriodSeconds(0)))
	g.cordon("foreign-1", false)
	g.goes("foreign-3")
	g.cordon("foreign-3", false)
	g.ready(3)
	g.Eventually("foreign pods are no longer reported", func() error {
		if c := meta.FindStatusCondition(
			g.live().Status.Conditions,
			v1alpha1.ConditionReady,
		); c == nil ||
			c.Status != metav1.ConditionTrue {
			return fmt.Errorf("the conditions are %+v", g.live().Status.Conditions)
		}
		return nil
	})
}

// TestATakenNameStopsNothing checks that a companion and a check get other names, and that the status names the pod
// with the first name.
func TestATakenNameStopsNothing(t *testing.T) {
	g := newGuarded(t, "taken-1", "taken-2")
	var mu sync.Mutex
	names := map[string]string{}
	takeFirst := func(pod *corev1.Pod) error {
		mu.Lock()
		defer mu.Unlock()
		role := pod.Labels[v1alpha1.GuardRoleLabel]
		if pod.Spec.NodeName != "taken-1" || names[role] != "" {
			return nil
		}
		names[role] = pod.Name
		return admin.Create(g.Ctx, mirrorPod(g.Namespace, pod.Name, "taken-2", "uid", nil))
	}
	startGuards(
		t,
		interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if pod, is := o.(*corev1.Pod); is {
				if err := takeFirst(pod); err != nil {
					return err
				}
			}
			return c.Create(ctx, o, opts...)
		}},
	)
	g.guard(func(s *v1alpha1.NodeGuardSpec) {
		s.Release.Check = &v1alpha1.ReleaseCheck{Script: "true"}
	})
	g.ready(2)
	wantText(
		t,
		g.stalled(v1alpha1.ReasonNameTaken).Message,
		names[v1alpha1.GuardRoleCompanion]+" on node taken-2",
		"for a pod of node taken-1",
		"kubectl -n "+g.Namespace+" delete pod",
	)

	g.cordon("taken-1", true)
	g.Eventually("a check with another name succeeds", func() error {
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
		if len(pods.Items) != 1 || pods.Items[0].Name == names[v1alpha1.GuardRoleCheck] {
			return fmt.Errorf("%d checks, status %+v", len(pods.Items), g.live().Status.Waiting)
		}
		pods.Items[0].Status.Phase = corev1.PodSucceeded
		pods.Items[0].Status.StartTime = new(metav1.Now())
		pods.Items[0].Status.ContainerStatuses = []corev1.ContainerStatus{
			{Name: "guard", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.Now()}}},
		}
		return admin.Status().Update(g.Ctx, &pods.Items[0])
	})
	g.goes("taken-1")
	g.cordon("taken-1", false)
	g.ready(2)
}

// TestACompanionThatIsRefusedKeepsNoOtherAway : a policy always refuses pods on one node, and another node joins.
func TestACompanionThatIsRefusedKeepsNoOtherAway(t *testing.T) {
	g := newGuarded(t, "refused-1", "refused-2")
	startGuards(
		t,
		interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if pod, is := o.(*corev1.Pod); is && pod.Spec.NodeName == "refused-1" {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, o.GetName(), errors.New("not on refused-1"))
			}
			return c.Create(ctx, o, opts...)
		}},
	)
	g.guard(nil)
	readyAre := func(n int32) {
		t.Helper()
		g.Eventually(fmt.Sprintf("%d companions are ready", n), func() error {
			if s := g.live().Status; s.Nodes.Ready != n {
				return fmt.Errorf("the status is %+v", s)
			}
			return nil
		})
	}
	readyAre(1)
	wantText(t, g.stalled(v1alpha1.ReasonPodForbidden).Message, "not on refused-1")
	g.node("refused-3")
	g.target("refused-3")
	readyAre(2)
}

// TestADeletionThatAFinalizerKeepsIsTold checks that no node is held any more, and that the status names the finalizer.
func TestADeletionThatAFinalizerKeepsIsTold(t *testing.T) {
	g := newGuarded(t, "kept-1")
	startGuards(t, noFaults)
	g.guard(nil)
	g.ready(1)
	finalizers := func(list string) {
		must(t, admin.Patch(g.Ctx, g.live(), mergePatch(`{"metadata":{"finalizers":`+list+`}}`)))
	}
	finalizers(`["example.com/theirs"]`)
	must(t, admin.Delete(g.Ctx, g.live()))
	g.Eventually("the status names the finalizer", func() error {
		c := meta.FindStatusCondition(g.live().Status.Conditions, v1alpha1.ConditionReconciling)
		if c == nil || c.Reason != v1alpha1.ReasonTerminating || c.Status != metav1.ConditionTrue {
			return fmt.Errorf("the condition is %+v", c)
		}
		wantText(t, c.Message, "example.com/theirs")
		return nil
	})
	g.Eventually("nothing is left", func() error {
		var budgets policyv1.PodDisruptionBudgetList
		must(t, admin.List(g.Ctx, &budgets, client.InNamespace(g.Namespace)))
		if g.companion("kept-1") != nil || len(budgets.Items) > 0 {
			return fmt.Errorf("a companion (%v) or %d budgets", g.companion("kept-1"), len(budgets.Items))
		}
		return nil
	})
	finalizers(`[]`)
}

// TestADecisionAmongManyNodeGuards : sixty others, some of which guard the same node, and most of which do not.
func TestADecisionAmongManyNodeGuards(t *testing.T) {
	const others, sharing = 60, 10
	g := newGuarded(t, "among-1", "among-2")
	elsewhere := make([]string, 20)
	for i := range elsewhere {
		elsewhere[i] = fmt.Sprintf("among-other-%d", i)
		g.node(elsewhere[i])
		must(
			t,
			admin.Patch(
				g.Ctx,
				&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: elsewhere[i]}},
				mergePatch(fmt.Sprintf(`{"metadata":{"labels":{"world":null,"pool":"%s-%d"}}}`, g.Namespace, i)),
			),
		)
	}
	for i := range others {
		ds := g.daemonSetFor(fmt.Sprintf("among-%d", i), func(s *corev1.PodSpec) {
			if i >= sharing {
				s.NodeSelector = map[string]string{"pool": fmt.Sprintf("%s-%d", g.Namespace, i%len(elsewhere))}
			}
		})
		nodes := []string{"among-1", "among-2"}
		if i >= sharing {
			nodes = []string{elsewhere[i%len(elsewhere)]}
		}
		for _, node := range nodes {
			g.targetOf(ds, node)
		}
		other := &v1alpha1.NodeGuard{ObjectMeta: metav1.ObjectMeta{Namespace: g.Namespace, Name: ds.Name}}
		other.Spec.Target.DaemonSet = ds.Name
		must(t, admin.Create(g.Ctx, other))
	}
	c := &counted{}
	startGuards(t, c.funcs())
	g.guard(nil)
	g.Within(4*time.Minute, 100*time.Millisecond, "all NodeGuards guard their nodes", func() error {
		var all v1alpha1.NodeGuardList
		must(t, admin.List(g.Ctx, &all, client.InNamespace(g.Namespace)))
		i := slices.IndexFunc(all.Items, func(o v1alpha1.NodeGuard) bool {
			return o.Status.Nodes.Total == 0 || o.Status.Nodes.Ready != o.Status.Nodes.Total
		})
		if i >= 0 {
			return fmt.Errorf("%s has %+v", all.Items[i].Name, all.Items[i].Status.Nodes)
		}
		return nil
	})
	g.ready(2)
	before := c.total.Load()
	began := time.Now()
	g.cordon("among-1", true)
	g.Eventually("a NodeGuard of the node has released it", func() error {
		var all v1alpha1.NodeGuardList
		must(t, admin.List(g.Ctx, &all, client.InNamespace(g.Namespace)))
		if !slices.ContainsFunc(all.Items, func(o v1alpha1.NodeGuard) bool { return len(o.Status.Released) > 0 }) {
			return errors.New("none is")
		}
		return nil
	})
	t.Logf(
		"from the cordon to the first decision, with %d NodeGuards of which %d guard the node: %s",
		others+1,
		sharing+1,
		time.Since(began).Round(time.Millisecond),
	)
	g.Eventually("all NodeGuards of the node have released it", func() error {
		var all v1alpha1.NodeGuardList
		must(t, admin.List(g.Ctx, &all, client.InNamespace(g.Namespace)))
		n := 0
		for i := range all.Items {
			n += len(all.Items[i].Status.Released)
		}
		if n != sharing+1 {
			return fmt.Errorf("%d have", n)
		}
		return nil
	})
	writes := c.total.Load() - before
	t.Logf("until all %d have: %s, with %d writes: %v", sharing+1, time.Since(began).Round(time.Millisecond), writes, c)
	// Each writes its status, deletes its companion and lowers its budget; when these are counted, its status may change again.
	if most := int32(4 * (sharing + 1)); writes > most {
		t.Errorf("the decisions of %d NodeGuards cost %d writes, want %d at most: the others must not write", sharing+1, writes, most)
	}
}
