// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/task"
)

// forger is a user with all permissions for pods in one namespace, and no right on nodes.
type forger struct {
	*world
	client.Client
	job  *v1alpha1.NodeJob
	node *corev1.Node
	// running is the pod of an attempt, and workload one of the user's own.
	running, workload *corev1.Pod
}

func newForger(t *testing.T) *forger {
	w := newWorld(t)
	const user = "forger"
	w.allow(user, false, rule("", all, "pods", "pods/status", "pods/binding", "pods/eviction", "bindings"))
	f := &forger{
		world:  w,
		Client: w.as(user),
		job:    w.job("task", func(s *v1alpha1.NodeJobSpec) { s.Suspend, s.Task.Script = true, "exit 1" }),
		node:   w.node("forged-" + w.Namespace),
	}
	f.running = f.attempt("running")
	must(t, w.as(managerUser).Create(w.Ctx, f.running))
	f.workload = plainPod(w.Namespace, "workload")
	f.workload.OwnerReferences = f.running.OwnerReferences // pods of users may name any owner
	f.Eventually("the user may create pods", func() error { return f.Create(w.Ctx, f.workload) })
	f.Eventually("the policies are in effect", func() error {
		if err := f.Create(w.Ctx, f.attempt("probe"), client.DryRunAll); !apierrors.IsForbidden(err) {
			return fmt.Errorf("the API server says %w", errors.Join(errors.New("no refusal"), err))
		}
		return nil
	})
	return f
}

// attempt is the pod of an attempt, with all that the manager puts on it.
func (f *forger) attempt(name string) *corev1.Pod {
	pod := task.Pod(
		f.job,
		task.Source{Script: "true"},
		task.Attempt{Phase: task.Task, Revision: "r", Number: 1, NodeName: f.node.Name, NodeUID: f.node.UID},
		task.Options{RunnerImage: "registry.test/runner:1"},
	)
	pod.Name, pod.Spec.PriorityClassName = name, ""
	return pod
}

func (f *forger) change(pod *corev1.Pod, patch string) error {
	return f.Patch(f.Ctx, copyOf(pod), mergePatch(patch), client.DryRunAll)
}

func (f *forger) changeStatus(pod *corev1.Pod, patch string) error {
	return f.Status().
		Patch(f.Ctx, copyOf(pod), mergePatch(patch), &client.SubResourcePatchOptions{PatchOptions: client.PatchOptions{DryRun: []string{metav1.DryRunAll}}})
}

// bindTo binds the user's own pod to a node, with labels that the API server copies to the pod.
func (f *forger) bindTo(subresource string) error {
	binding := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: "workload", Labels: map[string]string{v1alpha1.NodeJobLabel: "task"}},
		Target:     corev1.ObjectReference{Kind: "Node", Name: f.node.Name},
	}
	if subresource == "" {
		return f.Create(f.Ctx, binding, client.DryRunAll)
	}
	return f.SubResource(subresource).
		Create(f.Ctx, copyOf(f.workload), binding, &client.SubResourceCreateOptions{CreateOptions: client.CreateOptions{DryRun: []string{metav1.DryRunAll}}})
}

// TestAUserOfANamespaceForgesNoPodOfANodeJob : who may write pods cannot have the manager record a success, under any name.
func TestAUserOfANamespaceForgesNoPodOfANodeJob(t *testing.T) {
	f := newForger(t)
	const creation, change, status = "only Everynode's manager may create these", "Only Everynode's manager may change its spec and owners", "Only the kubelet of its node may write it"
	companion := plainPod(f.Namespace, "companion")
	companion.Labels = map[string]string{v1alpha1.NodeGuardLabel: "guard"}
	for name, tt := range map[string]struct {
		err error
		// refused is part of the message; "" if the request is accepted.
		refused string
	}{
		"creates an attempt":                       {f.Create(f.Ctx, f.attempt("new"), client.DryRunAll), creation},
		"creates a companion":                      {f.Create(f.Ctx, companion, client.DryRunAll), creation},
		"makes a pod an attempt":                   {f.change(f.workload, `{"metadata":{"labels":{"everynode.dev/nodejob":"task"}}}`), change},
		"makes a pod a companion":                  {f.change(f.workload, `{"metadata":{"labels":{"everynode.dev/nodeguard":"guard"}}}`), change},
		"makes a pod an attempt by its status":     {f.changeStatus(f.workload, `{"metadata":{"labels":{"everynode.dev/nodejob":"task"}}}`), status},
		"makes a pod an attempt by a Binding":      {f.bindTo("binding"), creation},
		"makes a pod an attempt by an old Binding": {f.bindTo(""), creation},
		"hides an attempt":                         {f.change(f.running, `{"metadata":{"labels":{"everynode.dev/nodejob":null}}}`), change},
		"changes the revision of an attempt":       {f.change(f.running, `{"metadata":{"labels":{"everynode.dev/revision":"x"}}}`), change},
		"changes the author of an attempt":         {f.change(f.running, `{"metadata":{"annotations":{"everynode.dev/changed-by":"ceo@example.com"}}}`), change},
		"has an attempt reboot the node":           {f.change(f.running, `{"metadata":{"annotations":{"everynode.dev/reboot":"Always"}}}`), change},
		"removes an annotation of an attempt":      {f.change(f.running, `{"metadata":{"annotations":{"everynode.dev/node-uid":null}}}`), change},
		"removes the owner of an attempt":          {f.change(f.running, `{"metadata":{"ownerReferences":null}}`), change},
		"removes the finalizer of an attempt":      {f.change(f.running, `{"metadata":{"finalizers":null}}`), change},
		"has an attempt run another image":         {f.Patch(f.Ctx, copyOf(f.running), client.RawPatch(types.JSONPatchType, []byte(`[{"op":"replace","path":"/spec/containers/0/image","value":"evil"}]`)), client.DryRunAll), change},
		"reports a success":                        {f.changeStatus(f.running, `{"status":{"phase":"Succeeded"}}`), status},
		"reports a condition":                      {f.changeStatus(f.running, `{"status":{"conditions":[{"type":"DisruptionTarget","status":"True"}]}}`), status},
		"removes the finalizer by the status":      {f.changeStatus(f.running, `{"metadata":{"finalizers":null}}`), status},
		"puts another label on an attempt":         {f.change(f.running, `{"metadata":{"labels":{"team":"a"},"annotations":{"a":"b"},"finalizers":["everynode.dev/outcome-tracking","x.test/mine"]}}`), ""},
		"creates a pod":                            {f.Create(f.Ctx, plainPod(f.Namespace, "other"), client.DryRunAll), ""},
		"changes its own pod":                      {f.changeStatus(f.workload, `{"status":{"phase":"Failed"}}`), ""},
		"deletes an attempt":                       {f.Delete(f.Ctx, copyOf(f.running), client.DryRunAll), ""},
		"evicts an attempt": {f.SubResource("eviction").Create(f.Ctx, f.running, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: "running"},
			DeleteOptions: &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}}), ""},
	} {
		t.Run(name, func(t *testing.T) { wantRefusal(t, tt.err, tt.refused) })
	}
}

// wantRefusal checks what the API server says to a request: refused is part of the message, "" if it is accepted.
func wantRefusal(t *testing.T, err error, refused string) {
	t.Helper()
	switch {
	case refused == "" && err != nil:
		t.Errorf("it is refused: %v", err)
	case refused != "" && !apierrors.IsForbidden(err):
		t.Errorf("the API server says %v, and should refuse it", err)
	case refused != "":
		wantText(t, err.Error(), "ValidatingAdmissionPolicy 'everynode-", refused)
	}
}

// TestControllersOfKubernetesStillWritePodsOfNodeJobs : kubelets, and what may write pods in the whole cluster.
func TestControllersOfKubernetesStillWritePodsOfNodeJobs(t *testing.T) {
	f := newForger(t)
	clusterWide := func(user string, rules ...rbacv1.PolicyRule) *forger {
		f.allow(user, true, rules...)
		other := *f
		other.Client = f.as(user)
		return &other
	}
	collector := clusterWide("system:serviceaccount:kube-system:generic-garbage-collector-of-a-test", rule("", []string{"patch"}, "*"))
	podgc := clusterWide("system:serviceaccount:kube-system:pod-garbage-collector-of-a-test", rule("", []string{"patch"}, "pods/status"))
	for name, request := range map[string]func() error{
		"the garbage collector removes an owner": func() error { return collector.change(f.running, `{"metadata":{"ownerReferences":null}}`) },
		"a lost node's pod is marked as failed": func() error {
			return podgc.changeStatus(f.running, `{"status":{"phase":"Failed","conditions":[{"type":"DisruptionTarget","status":"True"}]}}`)
		},
		"an administrator removes the finalizer": func() error {
			return admin.Patch(f.Ctx, copyOf(f.running), mergePatch(`{"metadata":{"finalizers":null}}`), client.DryRunAll)
		},
	} {
		f.Eventually(name, request)
	}
}

// TestAUserOfANamespaceForgesNoStatus : a rollout does not skip its soak, and no node is released, because a user says so.
func TestAUserOfANamespaceForgesNoStatus(t *testing.T) {
	w := newWorld(t)
	const user = "tenant"
	w.bind(user, "cluster-admin", false)
	tenant := w.as(user)
	job := w.job("task", func(s *v1alpha1.NodeJobSpec) { s.Suspend = true })
	guard := guardFromYAML(t, w.Namespace, "guard", `{target: {daemonSet: a}, release: {approval: Required}}`)
	must(t, admin.Create(w.Ctx, guard))
	stableAt := metav1.NewTime(time.Now().Add(-time.Hour))
	for name, request := range map[string]func() error{
		"a soak that is over": func() error {
			forged := w.live(job.Name)
			forged.Status.Rollout = &v1alpha1.RolloutStatus{StableAt: stableAt}
			return tenant.Status().Update(w.Ctx, forged)
		},
		"a released node": func() error {
			return tenant.Status().Patch(w.Ctx, guard.DeepCopyObject().(client.Object), mergePatch(`{"status":{"released":[{"node":"n","uid":"u","since":"2020-01-01T00:00:00Z","reason":"BreakGlass"}]}}`))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w.Eventually("the policies answer", func() error {
				err := request()
				if apierrors.IsForbidden(err) && !strings.Contains(err.Error(), "only Everynode's manager writes the status") {
					return err // RBAC does not know the user yet
				}
				wantRefusal(t, err, "only Everynode's manager writes the status")
				return nil
			})
		})
	}
}
