// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/uninstall"
	"github.com/everynode/everynode/test/install"
)

// The tests of this file remove the installation that all tests share, so they do not run beside others.

// inUse is an installation with all kinds of work: a running task, a closed gate, a cordon, a NodeGuard
// with a companion, a NodeDisruptionBudget with seats, and a node that an administrator has cordoned.
func inUse(t *testing.T) *guarded {
	t.Helper()
	g := newGuarded(t, 2, nil)
	t.Cleanup(func() { // before what is deleted through the API
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
		defer cancel()
		must(t, installHere(ctx))
	})
	failed, theirs := g.nodes[0], g.nodes[1]
	g.kubectl("cordon", theirs)
	g.seated("node-1", "node-2")
	g.job("fails", "exit 3", onNodes(failed), func(s *v1alpha1.NodeJobSpec) {
		s.Retry.Limit = new(int32(0))
		s.OnFailure.Action = v1alpha1.FailureActionCordon
	})
	g.job("runs", g.hold(), onNode2, func(s *v1alpha1.NodeJobSpec) { s.Gate = &v1alpha1.GateSpec{Nodes: v1alpha1.GateAll} })
	g.began("node-2")
	g.Eventually("a node is cordoned, and a gate is closed", func() error {
		cordoned, gated := g.node(failed), g.node("node-2")
		if cordoned.Annotations[v1alpha1.CordonedAnnotation] == "" || !slices.ContainsFunc(gated.Spec.Taints, isGate) {
			return fmt.Errorf("the annotations are %v, the taints %v", cordoned.Annotations, gated.Spec.Taints)
		}
		return nil
	})
	return g
}

// seated limits nodes, and waits until they have seats.
func (g *guarded) seated(nodes ...string) {
	g.T.Helper()
	one := intstr.FromInt32(1)
	budget := &v1alpha1.NodeDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: g.Namespace}, Spec: v1alpha1.NodeDisruptionBudgetSpec{
		Selector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: corev1.LabelHostname, Operator: metav1.LabelSelectorOpIn, Values: nodes},
		}},
		JoiningNodes: v1alpha1.JoiningNodesIncluded, Limits: []v1alpha1.BudgetLimit{{MaxUnavailable: &one}},
	}}
	must(g.T, admin.Create(g.Ctx, budget))
	g.Eventually("the nodes have seats", func() error {
		err := admin.Get(g.Ctx, client.ObjectKeyFromObject(budget), budget)
		if err != nil || int(budget.Status.Nodes.Seats) != len(nodes) {
			return fmt.Errorf("the status is %+v, %w", budget.Status, err)
		}
		return nil
	})
}

func isGate(t corev1.Taint) bool { return t.Value == v1alpha1.GateValue }

// wantRemoved checks that nothing of Everynode is in the cluster, that what others did is, and that pods are scheduled.
func (g *guarded) wantRemoved() {
	g.T.Helper()
	for _, name := range []string{"node-1", "node-2", g.nodes[0], g.nodes[1]} {
		node := g.node(name)
		if node.Spec.Unschedulable != (name == g.nodes[1]) || slices.ContainsFunc(node.Spec.Taints, isGate) {
			g.T.Errorf("%s: unschedulable %v, taints %v", name, node.Spec.Unschedulable, node.Spec.Taints)
		}
		for _, keys := range []map[string]string{node.Labels, node.Annotations} {
			for key := range keys {
				if strings.Contains(key, "everynode") {
					g.T.Errorf("%s has %s", name, key)
				}
			}
		}
	}
	g.Eventually("no pod or budget of Everynode is left", func() error {
		var pods corev1.PodList
		if err := admin.List(g.Ctx, &pods); err != nil {
			return err
		}
		for _, pod := range pods.Items {
			if pod.Labels[v1alpha1.NodeJobLabel] != "" || pod.Labels[v1alpha1.NodeGuardLabel] != "" ||
				pod.Labels[v1alpha1.BudgetGroupLabel] != "" || slices.Contains(pod.Finalizers, v1alpha1.PodFinalizer) {
				return fmt.Errorf("pod %s/%s is there, finalizers %v", pod.Namespace, pod.Name, pod.Finalizers)
			}
		}
		var budgets policyv1.PodDisruptionBudgetList
		if err := admin.List(g.Ctx, &budgets); err != nil {
			return err
		}
		for _, b := range budgets.Items {
			if b.Namespace == g.Namespace || b.Labels[v1alpha1.BudgetGroupLabel] != "" {
				return fmt.Errorf("PodDisruptionBudget %s/%s is there", b.Namespace, b.Name)
			}
		}
		return nil
	})
	for _, o := range []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: install.Deployment}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: install.Deployment}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: install.Namespace}},
	} {
		if err := admin.Get(g.Ctx, client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
			g.T.Errorf("%T %s is left: %v, finalizers %v", o, o.GetName(), err, o.GetFinalizers())
		}
	}
	for _, crd := range []string{"nodejobs.everynode.dev", "nodeguards.everynode.dev", "nodedisruptionbudgets.everynode.dev"} {
		if out, err := install.Kubectl(g.Ctx, real, "", "get", "crd", crd); err == nil || !strings.Contains(err.Error(), "NotFound") {
			g.T.Errorf("CRD %s is left: %s %v", crd, out, err)
		}
	}
	workload := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: g.Namespace, Name: "workload"},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{"kubernetes.io/hostname": "node-2"}, TerminationGracePeriodSeconds: new(int64(1)),
			Containers: []corev1.Container{{Name: "pause", Image: pauseImage}},
		},
	}
	must(g.T, admin.Create(g.Ctx, workload))
	g.Eventually("a workload runs on the node whose gate was closed", func() error {
		if err := admin.Get(
			g.Ctx,
			client.ObjectKeyFromObject(workload),
			workload,
		); err != nil ||
			workload.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("%v %w", workload.Status, err)
		}
		return nil
	})
}

func (g *guarded) wantNothingToRemove() {
	g.T.Helper()
	out, err := g.everynode("uninstall", "--yes").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "nothing to remove") {
		g.T.Errorf("%v\n%s", err, out)
	}
}

func TestUninstallRemovesEverythingWhileTasksRun(t *testing.T) {
	g := inUse(t)
	began := time.Now()
	out, err := g.everynode("uninstall", "--yes").CombinedOutput()
	t.Logf("after %.1f s\n%s", time.Since(began).Seconds(), out)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(out), "this command cleans up") {
		t.Error("the manager has not cleaned up")
	}
	g.wantRemoved()
	g.wantNothingToRemove()
}

// TestUninstallByDeletingConfigDefault deletes the manager together with what it has to clean up.
func TestUninstallByDeletingConfigDefault(t *testing.T) {
	g := inUse(t)
	root, err := install.Root()
	must(t, err)
	began := time.Now()
	out, err := install.Kubectl(g.Ctx, real, "", "delete", "-k", root+"/config/local", "--ignore-not-found", "--timeout=300s")
	t.Logf("after %.1f s\n%s", time.Since(began).Seconds(), out)
	if err != nil {
		t.Error(err)
		for _, args := range [][]string{
			{"get", "crd,nodejobs,nodeguards,clusterroles,clusterrolebindings", "-A", "-o", "custom-columns=K:.kind,N:.metadata.name,D:.metadata.deletionTimestamp,F:.metadata.finalizers"},
			{"-n", install.Namespace, "get", "all,sa,role,rolebinding"}, {"-n", install.Namespace, "logs", "--tail=30", "-l", "app.kubernetes.io/name=everynode"},
		} {
			out, err := install.Kubectl(g.Ctx, real, "", args...)
			t.Logf("%v %v\n%s", args, err, out)
		}
		out, err := g.everynode("uninstall", "--yes").CombinedOutput()
		t.Logf("uninstall repairs it: %v\n%s", err, out)
	}
	g.wantRemoved()
	g.wantNothingToRemove()
}

// TestUninstallAfterADeletionWithoutAManager covers a manager that cannot finish, because its node is unreachable.
func TestUninstallAfterADeletionWithoutAManager(t *testing.T) {
	g := inUse(t)
	g.kubectl("-n", install.Namespace, "scale", "deployment", install.Deployment, "--replicas=0")
	g.Eventually("no manager runs", func() error {
		var pods corev1.PodList
		labels := client.MatchingLabels{uninstall.NameLabel: uninstall.NameValue, uninstall.ComponentLabel: uninstall.ManagerComponent}
		if err := admin.List(g.Ctx, &pods, client.InNamespace(install.Namespace), labels); err != nil {
			return err
		}
		if len(pods.Items) > 0 {
			return fmt.Errorf("%d pods are there", len(pods.Items))
		}
		return nil
	})
	root, err := install.Root()
	must(t, err)
	_, err = install.Kubectl(g.Ctx, real, "", "delete", "-k", root+"/config/local", "--ignore-not-found", "--wait=false")
	must(t, err)
	out, err := g.everynode("uninstall", "--yes").CombinedOutput()
	t.Logf("%s", out)
	must(t, err)
	g.wantRemoved()
	g.wantNothingToRemove()
}
