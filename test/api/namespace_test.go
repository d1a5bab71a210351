// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
)

// allowNamespace sets the label of the world's namespace, or removes it.
func (w *world) allowNamespace(allowed bool) {
	w.T.Helper()
	value := "null"
	if allowed {
		value = `"` + v1alpha1.EnabledValue + `"`
	}
	must(w.T, admin.Patch(w.Ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace}},
		mergePatch(fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, v1alpha1.EnabledLabel, value))))
}

// updateNamespace updates a namespace as a user, by the resource itself ("") or by a subresource that can also change its metadata.
func (w *world) updateNamespace(user, resource string, namespace *corev1.Namespace) error {
	w.T.Helper()
	config := rest.CopyConfig(env.Config)
	config.Impersonate.UserName = user
	core, err := corev1client.NewForConfig(config)
	must(w.T, err)
	switch resource {
	case "status":
		_, err = core.Namespaces().UpdateStatus(w.Ctx, namespace, metav1.UpdateOptions{})
	case "finalize":
		_, err = core.Namespaces().Finalize(w.Ctx, namespace, metav1.UpdateOptions{})
	case "":
		_, err = core.Namespaces().Update(w.Ctx, namespace, metav1.UpdateOptions{})
	}
	return err
}

// A user with * in a namespace may change the namespace itself, by three resources.
func TestOnlyWhoMayChangeAllNamespacesAllowsOne(t *testing.T) {
	w := newWorld(t)
	w.allowNamespace(false)
	tenant, operator := "tenant-of-"+w.Namespace, "operator-of-"+w.Namespace
	w.bind(tenant, "cluster-admin", false)
	w.allow(operator, true, rule("", []string{"get", "patch", "update"}, "namespaces"))
	change := func(user, resource string, labels map[string]string) error {
		var live corev1.Namespace
		must(t, admin.Get(w.Ctx, client.ObjectKey{Name: w.Namespace}, &live))
		for key, value := range labels {
			live.Labels[key] = value
			if value == "" {
				delete(live.Labels, key)
			}
		}
		return w.updateNamespace(user, resource, &live)
	}
	allowed := map[string]string{v1alpha1.EnabledLabel: v1alpha1.EnabledValue}
	w.Eventually("the tenant may change its namespace", func() error { return change(tenant, "", map[string]string{"a": "b"}) })
	for _, resource := range []string{"", "status", "finalize"} {
		w.Eventually("the tenant must not allow its namespace by "+resource, func() error {
			err := change(tenant, resource, allowed)
			if !apierrors.IsForbidden(err) {
				return fmt.Errorf("the API server says %w", errors.Join(errors.New("it is no refusal"), err))
			}
			wantText(
				t,
				err.Error(),
				"'everynode-namespaces'",
				tenant+" lacks the right to patch namespaces in the whole cluster",
				"kubectl label namespace "+w.Namespace+" everynode.dev/enabled=true",
			)
			return nil
		})
	}
	w.Eventually("an operator may allow it", func() error {
		return w.as(operator).
			Patch(w.Ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace}}, mergePatch(`{"metadata":{"labels":{"everynode.dev/enabled":"true"}}}`))
	})
	must(t, change(tenant, "", map[string]string{"a": "c"})) // of an allowed namespace
	for _, resource := range []string{"", "status", "finalize"} {
		for _, value := range []string{"", "none"} {
			err := change(tenant, resource, map[string]string{v1alpha1.EnabledLabel: value})
			wantRefusal(
				t,
				err,
				"stop, and their gates stay closed, and "+tenant+" lacks the right to patch namespaces in the whole cluster",
			)
			wantText(t, fmt.Sprint(err), "kubectl label namespace "+w.Namespace+" everynode.dev/enabled-")
		}
	}
	must(t, change(operator, "", map[string]string{v1alpha1.EnabledLabel: ""}))
	must(t, change(tenant, "", map[string]string{v1alpha1.EnabledLabel: "none"})) // has no effect
}

func TestANamespaceMustAllowNodeJobs(t *testing.T) {
	w := newWorld(t)
	w.allowNamespace(false)
	startManager(t, interceptor.Funcs{})
	w.node("denied-1")
	w.job("tenant", func(s *v1alpha1.NodeJobSpec) {
		s.Gate = &v1alpha1.GateSpec{Nodes: v1alpha1.GateAll}
		s.Rollout.MaxConcurrent = percent("100%")
		s.Retry.Limit = new(int32(3))
	})
	c := w.Condition("tenant", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonNamespaceNotAllowed)
	wantText(t, c.Message, "kubectl label namespace "+w.Namespace+" everynode.dev/enabled=true")
	w.NoPods()
	w.has("denied-1") // no gate

	w.allowNamespace(true)
	pod := w.podOn("denied-1")
	w.has("denied-1", w.Namespace+".everynode.dev/tenant=everynode:NoSchedule")
	w.node("denied-2")
	w.podOn("denied-2")

	w.allowNamespace(false)
	w.Condition("tenant", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonNamespaceNotAllowed)
	w.end(pod, 0, "")
	w.Done("tenant", "denied-1") // what runs is recorded, and its gate opens
	w.has("denied-1")
	w.node("denied-3")
	w.end(w.podOn("denied-2"), 1, "") // and is not retried
	w.Eventually("the failure is recorded, and its pod is gone", func() error {
		if on := w.On("tenant", "denied-2"); on.Record == nil {
			return errors.New("there is no record")
		}
		if pods := w.Pods(); len(pods) > 0 {
			return fmt.Errorf("there are %d pods", len(pods))
		}
		return nil
	})
	must(t, admin.Delete(w.Ctx, w.live("tenant")))
	w.Eventually("the NodeJob is deleted, and has left nothing", func() error {
		if err := admin.Get(
			w.Ctx,
			client.ObjectKey{Namespace: w.Namespace, Name: "tenant"},
			&v1alpha1.NodeJob{},
		); client.IgnoreNotFound(err) != nil ||
			err == nil {
			return fmt.Errorf("it is there: %w", err)
		}
		if on := w.On("tenant", "denied-1"); on.Present {
			return errors.New("there is a record")
		}
		return nil
	})
	w.has("denied-2")
	w.has("denied-3")
}

func TestANamespaceMustAllowNodeGuards(t *testing.T) {
	g := newGuarded(t, "denied-guard")
	g.allowNamespace(false)
	startGuards(t, interceptor.Funcs{})
	g.guard(nil)
	g.Eventually("the status says so", func() error {
		c := meta.FindStatusCondition(g.live().Status.Conditions, v1alpha1.ConditionStalled)
		if c == nil || c.Status != metav1.ConditionTrue || c.Reason != v1alpha1.ReasonNamespaceNotAllowed {
			return fmt.Errorf("the conditions are %+v", g.live().Status.Conditions)
		}
		wantText(t, c.Message, "kubectl label namespace "+g.Namespace+" everynode.dev/enabled=true")
		return nil
	})
	var budgets policyv1.PodDisruptionBudgetList
	must(t, admin.List(g.Ctx, &budgets, client.InNamespace(g.Namespace)))
	if pod := g.companion("denied-guard"); pod != nil || len(budgets.Items) > 0 {
		t.Errorf("it has made a companion, %v, or %d budgets", pod, len(budgets.Items))
	}
	g.allowNamespace(true)
	g.ready(1)
}

// warned keeps the warnings of an API server.
type warned struct {
	mu   sync.Mutex
	text []string
}

func (w *warned) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = append(w.text, text)
}

// TestTheAPIServerWarnsOfANamespaceThatIsNotAllowed : kubectl apply says what the status says later, and refuses nothing.
func TestTheAPIServerWarnsOfANamespaceThatIsNotAllowed(t *testing.T) {
	w := newWorld(t)
	said := &warned{}
	config := rest.CopyConfig(env.Config)
	config.WarningHandler = said
	c, err := client.New(config, client.Options{Scheme: scheme})
	must(t, err)
	warnings := func(about string, write func() error) []string {
		t.Helper()
		said.mu.Lock()
		said.text = nil
		said.mu.Unlock()
		if err := write(); err != nil {
			t.Errorf("%s: %v", about, err)
		}
		said.mu.Lock()
		defer said.mu.Unlock()
		return said.text
	}
	job := jobFromYAML(t, w.Namespace, "early", `{task: {script: "true"}}`)
	guard := guardFromYAML(t, w.Namespace, "early", `{target: {daemonSet: a}}`)
	want := hold.NamespaceNotAllowed(w.Namespace).Message
	w.allowNamespace(false)
	w.Eventually("the API server knows the namespace", func() error {
		if got := warnings(
			"a dry run",
			func() error { return c.Create(w.Ctx, job.DeepCopy(), client.DryRunAll) },
		); len(got) != 1 ||
			!strings.Contains(got[0], want) {
			return fmt.Errorf("the warnings are %q", got)
		}
		return nil
	})
	if got := warnings(
		"a NodeGuard",
		func() error { return c.Create(w.Ctx, guard, client.DryRunAll) },
	); len(got) != 1 ||
		!strings.Contains(got[0], want) {
		t.Errorf("a NodeGuard: %q", got)
	}
	must(t, c.Create(w.Ctx, job))
	for patch, n := range map[string]int{`{"metadata":{"labels":{"a":"b"}}}`: 0, `{"spec":{"suspend":true}}`: 1} {
		if got := warnings(patch, func() error { return c.Patch(w.Ctx, job, mergePatch(patch)) }); len(got) != n {
			t.Errorf("%s: %q", patch, got)
		}
	}
	w.allowNamespace(true)
	w.Eventually("the API server knows the label", func() error {
		if got := warnings("an allowed namespace", func() error { return c.Create(w.Ctx, guard, client.DryRunAll) }); len(got) != 0 {
			return fmt.Errorf("the warnings are %q", got)
		}
		return nil
	})
	w.remove(w.Ctx, job)
}
