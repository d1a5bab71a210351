// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/manager/claims"
	"github.com/everynode/everynode/internal/manager/conditioncontroller"
	"github.com/everynode/everynode/internal/manager/controller"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/seal"
	"github.com/everynode/everynode/internal/uninstall"
)

// withNodeConditions installs config/node-conditions until the test ends, and returns a client with the manager's permissions.
func (w *world) withNodeConditions() client.Client {
	w.T.Helper()
	name := metav1.ObjectMeta{Name: w.Namespace + "-node-conditions"}
	content, err := os.ReadFile("../../config/node-conditions/policy.yaml")
	must(w.T, err)
	objects := []client.Object{
		&rbacv1.ClusterRole{
			ObjectMeta: name,
			Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes/status"}, Verbs: []string{"patch"}}},
		},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: name, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name.Name},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: uninstall.Namespace, Name: uninstall.Manager}},
		},
	}
	for document := range strings.SplitSeq(string(content), "\n---\n") {
		o := &unstructured.Unstructured{}
		must(w.T, yaml.Unmarshal([]byte(document), &o.Object))
		objects = append(objects, o)
	}
	for _, o := range objects {
		must(w.T, admin.Create(w.Ctx, o))
		w.T.Cleanup(func() { w.remove(context.Background(), o) })
	}
	manager, err := client.New(asManager, client.Options{Scheme: scheme})
	must(w.T, err)
	return manager
}

// startConditionsManager runs the controllers of NodeJobs and of node conditions until stop is called.
func startConditionsManager(t *testing.T, enabled bool) (stop func()) {
	t.Helper()
	skip := true
	cacheOptions, err := controller.CacheOptions(seal.Key{})
	must(t, err)
	mgr, err := ctrl.NewManager(asManager, ctrl.Options{
		Scheme: scheme, Cache: cacheOptions, Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: &skip},
	})
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	r := controller.New(mgr.GetClient(), mgr.GetAPIReader(), mgr.GetEventRecorder("everynode"),
		controller.NewMetrics(prometheus.NewRegistry()), task.Options{RunnerImage: "registry.test/runner:1"})
	r.RequireNamespaceLabel, r.Claims, r.NodeConditions = true, claims.New(), enabled
	must(t, r.SetupWithManager(ctx, mgr))
	_, err = conditioncontroller.Setup(mgr, r.Claims, r.Metrics.Writes(), enabled)
	must(t, err)
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("running the manager: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// conditioned waits until a node has these conditions besides Ready, as TYPE=STATUS REASON.
func (w *world) conditioned(node string, want ...string) {
	w.T.Helper()
	slices.Sort(want)
	w.Eventually(fmt.Sprintf("%s has %q", node, want), func() error {
		var got []string
		for _, c := range w.liveNode(node).Status.Conditions {
			if c.Type != corev1.NodeReady {
				got = append(got, fmt.Sprintf("%s=%s %s %s", c.Type, c.Status, c.Reason, c.Message))
			}
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("(-want +got):\n%s", diff)
		}
		return nil
	})
}

// stays evicts a workload whose end only the test decides.
func (w *world) stays(name, node string) (end func()) {
	w.T.Helper()
	const hold = "test.example/hold"
	pod := w.workload(name, node)
	must(w.T, admin.Patch(w.Ctx, pod, mergePatch(`{"metadata":{"finalizers":["`+hold+`"]}}`)))
	return sync.OnceFunc(func() {
		must(w.T, client.IgnoreNotFound(admin.Patch(context.Background(), pod, mergePatch(`{"metadata":{"finalizers":null}}`))))
	})
}

// TestConditionsSayHowFarADisruptionIs : in order, across a restart of the manager, beside a condition of another tool, and without the flag.
func TestConditionsSayHowFarADisruptionIs(t *testing.T) {
	w := newWorld(t)
	manager := w.withNodeConditions()
	node := w.node("told-1")
	foreign := corev1.NodeCondition{
		Type:    corev1.NodeMaintenancePlanned,
		Status:  corev1.ConditionFalse,
		Reason:  "AdminRequested",
		Message: "by hand",
	}
	node.Status.Conditions = append(node.Status.Conditions, foreign)
	must(t, admin.Status().Update(w.Ctx, node))
	end := w.stays("web", "told-1")
	t.Cleanup(end)
	stop := startConditionsManager(t, true)
	job := w.job("kernel", func(s *v1alpha1.NodeJobSpec) { s.Maintenance.Drain = &v1alpha1.DrainSpec{} })
	const theirs = "MaintenancePlanned=False AdminRequested by hand"
	ours := func(kind corev1.NodeConditionType) string {
		return fmt.Sprintf("%s=True NodeJob %s/kernel", kind, w.Namespace)
	}

	w.conditioned("told-1", theirs, ours(corev1.NodeDrainInProgress))
	stop()
	stop = startConditionsManager(t, true)
	end()
	pod := w.podOf("told-1", task.Task)
	w.conditioned("told-1", theirs, ours(corev1.NodeDrained), ours(corev1.NodeMaintenanceInProgress))
	stop()
	w.patchConditions(
		"told-1",
		`[{"$patch":"delete","type":"Drained"},{"type":"MaintenanceInProgress","lastTransitionTime":"2020-01-01T00:00:00Z"}]`,
	)
	stop = startConditionsManager(t, true)
	w.conditioned("told-1", theirs, ours(corev1.NodeDrained), ours(corev1.NodeMaintenanceInProgress))
	for _, c := range w.liveNode("told-1").Status.Conditions {
		if c.Type == corev1.NodeMaintenanceInProgress && c.LastTransitionTime.Year() != 2020 {
			t.Errorf("a manager that starts has written %v again", c)
		}
	}
	w.end(pod, 0, "")
	w.Done("kernel", "told-1")
	w.conditioned("told-1", theirs)

	must(t, admin.Patch(w.Ctx, job, mergePatch(`{"spec":{"task":{"script":"false"}}}`)))
	w.podOf("told-1", task.Task)
	w.conditioned("told-1", theirs, ours(corev1.NodeDrained), ours(corev1.NodeMaintenanceInProgress))
	w.patchConditions("told-1", `[{"type":"example.com/Theirs","status":"True","reason":"Checked","message":"fine"}]`)
	w.confinedStatus(manager, "told-1")
	w.patchConditions("told-1", `[{"$patch":"delete","type":"example.com/Theirs"}]`)
	stop()
	startConditionsManager(t, false)
	w.conditioned("told-1", theirs)
}

// TestANodeJobPublishesACondition : its states, a change of spec.publish, the deletion, and a manager that may not write conditions.
func TestANodeJobPublishesACondition(t *testing.T) {
	page, err := os.ReadFile("../../docs/publish.md")
	must(t, err)
	wantText(t, string(page), "\n  - condition: example.com/KernelReady\n", `- {type: example.com/KernelReady, requiredStatus: "True"}`)
	w := newWorld(t)
	w.withNodeConditions()
	w.node("published-1")
	stop := startConditionsManager(t, true)
	job := w.job("kernel", func(s *v1alpha1.NodeJobSpec) {
		s.Publish = []v1alpha1.PublishedResult{{Condition: "example.com/KernelReady"}}
		s.Retry.Limit = new(int32(0))
	})
	says := func(kind, status string) string {
		return fmt.Sprintf("%s=%s NodeJob %s/kernel", kind, status, w.Namespace)
	}

	pod := w.podOf("published-1", task.Task)
	w.conditioned("published-1", says("example.com/KernelReady", "Unknown"))
	w.end(pod, 0, "")
	w.conditioned("published-1", says("example.com/KernelReady", "True"))
	must(t, admin.Patch(w.Ctx, job, mergePatch(`{"spec":{"publish":[{"condition":"example.com/Linux"}]}}`)))
	w.conditioned("published-1", says("example.com/Linux", "True"))
	must(t, admin.Patch(w.Ctx, job, mergePatch(`{"spec":{"task":{"script":"false"}}}`)))
	pod = w.podOf("published-1", task.Task)
	w.conditioned("published-1", says("example.com/Linux", "Unknown"))
	w.end(pod, 1, "")
	w.conditioned("published-1", says("example.com/Linux", "False"))

	stop()
	stop = startConditionsManager(t, false)
	w.conditioned("published-1")
	must(t, admin.Patch(w.Ctx, job, mergePatch(`{"spec":{"task":{"script":"true"}}}`)))
	w.Eventually("kernel is Stalled", func() error {
		live := &v1alpha1.NodeJob{}
		must(t, admin.Get(w.Ctx, client.ObjectKeyFromObject(job), live))
		c := meta.FindStatusCondition(live.Status.Conditions, v1alpha1.ConditionStalled)
		if c == nil || c.Status != metav1.ConditionTrue || c.Reason != v1alpha1.ReasonNodeConditionsDisabled ||
			!strings.Contains(c.Message, "config/node-conditions") {
			return fmt.Errorf("Stalled is %+v", c)
		}
		return nil
	})
	stop()
	startConditionsManager(t, true)
	pod = w.podOf("published-1", task.Task)
	w.conditioned("published-1", says("example.com/Linux", "Unknown"))
	w.end(pod, 0, "")
	w.conditioned("published-1", says("example.com/Linux", "True"))
	must(t, admin.Delete(w.Ctx, job))
	w.conditioned("published-1")
}

func (w *world) patchConditions(node, conditions string) {
	w.T.Helper()
	must(w.T, admin.Status().Patch(w.Ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}},
		client.RawPatch(types.StrategicMergePatchType, []byte(`{"status":{"conditions":`+conditions+`}}`))))
}

// confinedStatus checks what the manager must not write to the status of a node.
func (w *world) confinedStatus(manager client.Client, name string) {
	w.T.Helper()
	for what, patch := range map[string]string{
		"a condition of the kubelet":    `{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`,
		"a condition with its reason":   `{"status":{"conditions":[{"type":"Ready","status":"False","reason":"NodeJob","message":"ns/a"}]}}`,
		"another reason":                `{"status":{"conditions":[{"type":"Drained","status":"True","reason":"AdminRequested","message":"ns/a"}]}}`,
		"a condition of another tool":   `{"status":{"conditions":[{"type":"MaintenancePlanned","status":"True","reason":"NodeJob","message":"ns/a"}]}}`,
		"a published one of Kubernetes": `{"status":{"conditions":[{"type":"node.kubernetes.io/X","status":"True","reason":"NodeJob","message":"ns/a"}]}}`,
		"a published one of another":    `{"status":{"conditions":[{"type":"example.com/Theirs","status":"True","reason":"NodeJob","message":"ns/a"}]}}`,
		"the end of that one":           `{"status":{"conditions":[{"$patch":"delete","type":"example.com/Theirs"}]}}`,
		"another message":               `{"status":{"conditions":[{"type":"DrainInProgress","status":"True","reason":"NodeJob","message":"a drain"}]}}`,
		"the end of such a condition":   `{"status":{"conditions":[{"$patch":"delete","type":"MaintenancePlanned"}]}}`,
		"the end of Ready":              `{"status":{"conditions":[{"$patch":"delete","type":"Ready"}]}}`,
		"another field":                 `{"status":{"capacity":{"example.com/gpu":"1"}}}`,
		"a label in the same request":   `{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}`,
		"an annotation in the same":     `{"metadata":{"annotations":{"a":"b"}}}`,
		"an address":                    `{"status":{"addresses":[{"type":"InternalIP","address":"192.0.2.1"}]}}`,
		"a finalizer":                   `{"metadata":{"finalizers":["example.com/x"]}}`,
		"attached volumes":              `{"status":{"volumesAttached":[{"name":"a","devicePath":"b"}]}}`,
		"features that it declares":     `{"status":{"declaredFeatures":["A"]}}`,
		"a condition of its reason too": `{"status":{"conditions":[{"type":"NetworkUnavailable","status":"False","reason":"NodeJob","message":"ns/a"}]}}`,
	} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		err := manager.Status().Patch(w.Ctx, node, client.RawPatch(types.StrategicMergePatchType, []byte(patch)), client.DryRunAll)
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "everynode-confine-node-status") {
			w.T.Errorf("%s: %v", what, err)
		}
	}
}
