// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/kube"
	"github.com/everynode/everynode/internal/nodejob/task"
)

const teamLabel = "node-restriction.kubernetes.io/team"

// limit limits the world's namespace to nodes, or no longer if the value is "".
func (w *world) limit(value string) {
	w.T.Helper()
	annotation := "null"
	if value != "" {
		annotation = `"` + value + `"`
	}
	must(w.T, admin.Patch(w.Ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace}},
		mergePatch(fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, v1alpha1.NodesAnnotation, annotation))))
}

// A tenant with * in its namespace writes neither the annotation nor the label, whether or not the other one is there.
func TestOnlyWhoMayChangeAllNamespacesLimitsOne(t *testing.T) {
	w := newWorld(t)
	tenant, operator := "tenant-of-"+w.Namespace, "operator-of-"+w.Namespace
	w.bind(tenant, "cluster-admin", false)
	w.allow(operator, true, rule("", []string{"get", "patch", "update", "create"}, "namespaces"))
	creator := "creator-of-" + w.Namespace
	w.allow(creator, true, rule("", []string{"create"}, "namespaces"))
	change := func(user, resource, value string) error {
		var live corev1.Namespace
		must(t, admin.Get(w.Ctx, client.ObjectKey{Name: w.Namespace}, &live))
		if live.Annotations == nil {
			live.Annotations = map[string]string{}
		}
		live.Annotations["test/other"] = value
		if live.Annotations[v1alpha1.NodesAnnotation] = value; value == "" {
			delete(live.Annotations, v1alpha1.NodesAnnotation)
		}
		return w.updateNamespace(user, resource, &live)
	}
	w.Eventually("the tenant may change its namespace", func() error { return change(tenant, "", "") })
	refused := func(when string) {
		t.Helper()
		for _, resource := range []string{"", "status", "finalize"} {
			for _, value := range []string{"", teamLabel + "=b"} {
				var live corev1.Namespace
				must(t, admin.Get(w.Ctx, client.ObjectKey{Name: w.Namespace}, &live))
				if _, limited := live.Annotations[v1alpha1.NodesAnnotation]; value == "" && !limited {
					continue
				}
				w.Eventually(fmt.Sprintf("the tenant must not write %q by namespaces/%s, %s", value, resource, when), func() error {
					err := change(tenant, resource, value)
					if !apierrors.IsForbidden(err) {
						return fmt.Errorf("the API server says %w", errors.Join(errors.New("it is no refusal"), err))
					}
					wantText(
						t,
						err.Error(),
						"'everynode-namespaces'",
						"everynode.dev/nodes decides on which nodes",
						tenant+" lacks the right to patch namespaces in the whole cluster",
						"kubectl annotate namespace "+w.Namespace+" everynode.dev/nodes=",
					)
					return nil
				})
			}
		}
	}
	refused("in an allowed namespace")
	w.Eventually("an operator may", func() error { return change(operator, "", teamLabel+"=a") })
	refused("in a limited namespace")
	must(t, change(tenant, "", teamLabel+"=a")) // another annotation
	w.allowNamespace(false)
	refused("in a limited namespace that is not allowed")
	w.limit("")
	refused("in a namespace that is not allowed")

	for _, wrong := range []string{
		"team=a", "everynode.dev/team=a", teamLabel, teamLabel + "=", teamLabel + "!=a", teamLabel + " in (a)", teamLabel + "=a,pool=a",
		"my-node-restriction.kubernetes.io/team=a", teamLabel + "=a,", teamLabel + "=a\n", strings.Repeat(teamLabel+"=a,", 30) + teamLabel + "=a",
	} {
		err := change("", "", wrong)
		if !apierrors.IsInvalid(err) {
			t.Errorf("%q: %v", wrong, err)
		}
		wantText(t, fmt.Sprint(err), "such as node-restriction.kubernetes.io/team=a")
	}
	must(t, change("", "", teamLabel+"=a,x.example.node-restriction.kubernetes.io/b=c.d_e"))

	created := func(user string) error {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			GenerateName: "t-", Annotations: map[string]string{v1alpha1.NodesAnnotation: teamLabel + "=a"},
		}}
		return w.as(user).Create(w.Ctx, ns, client.DryRunAll)
	}
	w.Eventually("a user who may only create namespaces creates none with the annotation", func() error {
		if err := created(creator); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "everynode.dev/nodes decides") {
			return fmt.Errorf("the API server says %w", errors.Join(errors.New("it is no such refusal"), err))
		}
		return nil
	})
	must(t, created(operator))
}

// TestTwoTeamsRunOnTheirOwnNodes has the NodeJobs of two namespaces select all nodes. Each of them runs, asks and rolls back only where
// its namespace may.
func TestTwoTeamsRunOnTheirOwnNodes(t *testing.T) {
	worlds := map[string]*world{"a": newWorld(t), "b": newWorld(t)}
	startManager(t, interceptor.Funcs{})
	for team, w := range worlds {
		w.limit(teamLabel + "=" + team)
		w.comes("limited-"+team, map[string]string{"x.test/for": "limited", teamLabel: team})
	}
	worlds["a"].comes("limited-none", map[string]string{"x.test/for": "limited"})
	only := func(w *world, node string) {
		t.Helper()
		for _, pod := range w.Pods() {
			if pod.Spec.NodeName != node {
				t.Errorf("pod %s is on %s", pod.Name, pod.Spec.NodeName)
			}
		}
	}
	for team, w := range worlds {
		node := "limited-" + team
		w.job("team", func(s *v1alpha1.NodeJobSpec) {
			s.Nodes.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"x.test/for": "limited"}}
			s.Rollout.MaxConcurrent = percent("100%")
			s.Task.Check = &v1alpha1.CheckSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "check"}, PeriodSeconds: 10}
			s.Gate = &v1alpha1.GateSpec{Nodes: v1alpha1.GateAll}
			s.Rollback, s.DeletionPolicy = &v1alpha1.RollbackSpec{
				ScriptBlock: v1alpha1.ScriptBlock{Script: "undo"},
			}, v1alpha1.DeletionRollback
		})
		pod := w.podOf(node, task.Task)
		w.has("limited-none")
		only(w, node)
		w.end(pod, 0, `{"exitCode":0}`)
		w.Done("team", node)
		w.Condition("team", v1alpha1.ConditionComplete, metav1.ConditionTrue, v1alpha1.ReasonAllNodesDone)
		excluded := w.live("team").Status.Excluded
		if len(excluded) != 1 || excluded[0].Reason != v1alpha1.ReasonNodeNotAllowed || excluded[0].Nodes != 2 {
			t.Errorf("the status excludes %+v", excluded)
		}
		w.end(w.podOf(node, task.CheckDrift), 0, `{"exitCode":0}`)
		only(w, node)
	}

	w := worlds["a"]
	w.limit("") // wakes the NodeJob
	pod := w.podOf("limited-b", task.Task)
	w.podOf("limited-none", task.Task)
	w.limit(teamLabel + "=b")
	w.end(pod, 0, `{"exitCode":0}`) // what runs ends as usual
	w.Done("team", "limited-b")
	job := w.live("team")
	must(t, admin.Delete(w.Ctx, job))
	w.end(w.podOf("limited-b", task.Rollback), 0, `{"exitCode":0}`)
	w.end(w.podOf("limited-none", task.Task), 0, `{"exitCode":0}`)
	c := w.Condition("team", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonRollbackFailed)
	wantText(
		t,
		c.Message,
		"limited-a: ",
		"limited-none: ",
		"annotation everynode.dev/nodes of namespace "+w.Namespace,
		`{"spec":{"deletionPolicy":"Forget"}}`,
	)
	for _, pod := range w.Pods() { // a periodic check may have begun before the node was no longer allowed
		if pod.Labels[v1alpha1.PhaseLabel] == string(task.CheckDrift) && pod.Status.Phase == corev1.PodPending {
			w.end(&pod, 0, `{"exitCode":0}`)
		}
	}
	w.Eventually("no pod runs", func() error {
		for _, pod := range w.Pods() {
			switch {
			case !kube.PodEnded(pod.Status.Phase): // that of the periodic check may be kept for its log
				return fmt.Errorf("pod %s does, on %s", pod.Name, pod.Spec.NodeName)
			case !pod.DeletionTimestamp.IsZero(): // it was deleted before it had ended, and there is no kubelet
				err := admin.Delete(w.Ctx, &pod, client.GracePeriodSeconds(0))
				return errors.Join(fmt.Errorf("pod %s terminates", pod.Name), client.IgnoreNotFound(err))
			}
		}
		return nil
	})
	w.limit(teamLabel + "=a")
	w.end(w.podOf("limited-a", task.Rollback), 0, `{"exitCode":0}`)
	w.change(job, `{"deletionPolicy":"Forget"}`)
	w.gone(job)
	w.has("limited-none")
}

// TestANodeGuardGuardsOnlyTheNodesOfItsNamespace : a companion and a check are pods, and a check is root on its node.
func TestANodeGuardGuardsOnlyTheNodesOfItsNamespace(t *testing.T) {
	g := newGuarded(t, "limited-guard")
	g.limit(teamLabel + "=a")
	startGuards(t, interceptor.Funcs{})
	g.guard(nil)
	g.Eventually("the status says that no node is guarded", func() error {
		for _, c := range g.live().Status.Conditions {
			if c.Type == v1alpha1.ConditionReady && c.Status == metav1.ConditionTrue &&
				strings.Contains(c.Message, v1alpha1.NodesAnnotation) {
				return nil
			}
		}
		return fmt.Errorf("the conditions are %+v", g.live().Status.Conditions)
	})
	if pod := g.companion("limited-guard"); pod != nil {
		t.Errorf("it has made the companion %s", pod.Name)
	}
	must(t, admin.Patch(g.Ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "limited-guard"}},
		mergePatch(fmt.Sprintf(`{"metadata":{"labels":{%q:"a"}}}`, teamLabel))))
	g.ready(1)
	g.limit(teamLabel + "=b")
	g.Eventually("its companion goes", func() error {
		if pod := g.companion("limited-guard"); pod != nil && pod.DeletionTimestamp.IsZero() {
			return errors.New("it is there")
		}
		return nil
	})
}
