// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/kube"
	"github.com/everynode/everynode/internal/manager/controller"
	"github.com/everynode/everynode/internal/manager/guardcontroller"
	"github.com/everynode/everynode/internal/manager/loop"
	"github.com/everynode/everynode/internal/manager/notify"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/seal"
)

// startGuards runs a manager of NodeGuards until stop is called or the test ends. stop is a sudden end.
func startGuards(t *testing.T, faults interceptor.Funcs) (stop func()) {
	t.Helper()
	return startNotifyingGuards(t, faults, notify.Config{})
}

// startNotifyingGuards is startGuards with notifications.
func startNotifyingGuards(t *testing.T, faults interceptor.Funcs, to notify.Config) (stop func()) {
	t.Helper()
	skip := true
	cacheOptions, err := controller.CacheOptions(seal.Key{})
	must(t, err)
	trimmed(t, &cacheOptions)
	unthrottled := rest.CopyConfig(asManager)
	unthrottled.QPS = -1 // as cmd/everynode has it
	mgr, err := ctrl.NewManager(unthrottled, ctrl.Options{
		Scheme: scheme, Cache: cacheOptions, Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: &skip},
		NewClient: func(cfg *rest.Config, opts client.Options) (client.Client, error) {
			c, err := loop.NewWithWatch(cfg, opts)
			if err != nil {
				return nil, err
			}
			return interceptor.NewClient(c, faults), nil
		},
	})
	must(t, err)
	r, err := guardcontroller.Setup(
		mgr,
		guardcontroller.NewMetrics(prometheus.NewRegistry()),
		task.Options{RunnerImage: "registry.test/runner:1"},
	)
	must(t, err)
	r.RequireNamespaceLabel = true
	required, err := requirePolicies(mgr, r.Now)
	must(t, err)
	r.Require(required)
	if notifier := notify.New(to, prometheus.NewRegistry()); notifier != nil {
		r.Notify(notifier)
		must(t, mgr.Add(manager.RunnableFunc(notifier.Start)))
	}
	ctx, cancel := context.WithCancel(context.Background())
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

// guarded is a world with a DaemonSet whose pods and companions are simulated.
type guarded struct {
	*world
	ds *appsv1.DaemonSet
	// counts has a value while the disruption controller has something to count.
	counts chan struct{}
}

// newGuarded has nodes with a ready pod of DaemonSet storage each. It plays the kubelets, and the disruption controller.
func newGuarded(t *testing.T, nodes ...string) *guarded {
	t.Helper()
	g := &guarded{world: newWorld(t), counts: make(chan struct{}, 1)}
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Minute) // for a thousand nodes
	t.Cleanup(cancel)
	g.Ctx = ctx
	g.ds = g.daemonSet("storage")
	g.play()
	for _, node := range nodes {
		g.node(node)
		g.target(node)
	}
	t.Cleanup(func() {
		must(t, admin.DeleteAllOf(context.Background(), &v1alpha1.NodeGuard{}, client.InNamespace(g.Namespace)))
		must(t, admin.DeleteAllOf(context.Background(), &policyv1.PodDisruptionBudget{}, client.InNamespace(g.Namespace)))
	})
	return g
}

// daemonSet makes a DaemonSet for all nodes of the test.
func (g *guarded) daemonSet(name string) *appsv1.DaemonSet {
	g.T.Helper()
	return g.daemonSetFor(name, func(*corev1.PodSpec) {})
}

func (g *guarded) daemonSetFor(name string, change func(*corev1.PodSpec)) *appsv1.DaemonSet {
	g.T.Helper()
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: g.Namespace, Name: name}}
	ds.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
	ds.Spec.Template.Labels = ds.Spec.Selector.MatchLabels
	ds.Spec.Template.Spec = corev1.PodSpec{
		NodeSelector: map[string]string{"world": g.Namespace},
		Containers:   []corev1.Container{{Name: "c", Image: "i"}},
	}
	change(&ds.Spec.Template.Spec)
	must(g.T, admin.Create(g.Ctx, ds))
	return ds
}

// target makes the DaemonSet's pod on a node.
func (g *guarded) target(node string) { g.targetOf(g.ds, node) }

func (g *guarded) targetOf(ds *appsv1.DaemonSet, node string) {
	g.T.Helper()
	yes := true
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: g.Namespace, Name: ds.Name + "-" + node, Labels: map[string]string{"app": ds.Name},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: ds.Name, UID: ds.UID, Controller: &yes}},
	}, Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	must(g.T, admin.Create(g.Ctx, pod))
}

// play starts and ends pods, and updates budgets, triggered by watches.
func (g *guarded) play() {
	ctx, cancel := context.WithCancel(g.Ctx)
	var group sync.WaitGroup
	group.Go(func() { g.disrupt(ctx) })
	for _, list := range []client.ObjectList{&corev1.PodList{}, &policyv1.PodDisruptionBudgetList{}} {
		// The API server ends a watch if its client does not read the events in time.
		queue := make(chan watch.Event, 20000)
		group.Go(func() {
			defer close(queue)
			for ctx.Err() == nil { // a watch that has ended starts again with the full list
				events, err := admin.Watch(ctx, list, client.InNamespace(g.Namespace))
				if err != nil {
					time.Sleep(20 * time.Millisecond)
					continue
				}
				for event := range events.ResultChan() {
					queue <- event
				}
			}
		})
		for range 8 {
			group.Go(func() {
				for event := range queue {
					if ctx.Err() == nil {
						g.changed(event)
					}
				}
			})
		}
	}
	g.T.Cleanup(func() { cancel(); group.Wait() })
}

func (g *guarded) changed(event watch.Event) {
	gone := event.Type == watch.Deleted
	switch o := event.Object.(type) {
	case *corev1.Pod:
		if !gone {
			g.kubelet(o)
		}
		if o.Labels[v1alpha1.GuardRoleLabel] != "" {
			g.recount()
		}
	case *policyv1.PodDisruptionBudget:
		g.recount()
	}
}

// recount has the disruption controller count soon.
func (g *guarded) recount() {
	select {
	case g.counts <- struct{}{}:
	default: // it will
	}
}

// disrupt plays the disruption controller until ctx ends.
func (g *guarded) disrupt(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.counts:
			g.count()
		}
	}
}

// count brings the status of all budgets up to date.
func (g *guarded) count() {
	var pods corev1.PodList
	var budgets policyv1.PodDisruptionBudgetList
	if err := errors.Join(
		admin.List(g.Ctx, &budgets, client.InNamespace(g.Namespace)),
		admin.List(g.Ctx, &pods, client.InNamespace(g.Namespace)),
	); err != nil {
		g.recount()
		return
	}
	for i := range budgets.Items {
		b := &budgets.Items[i]
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		must(g.T, err)
		is := policyv1.PodDisruptionBudgetStatus{ObservedGeneration: b.Generation, DesiredHealthy: b.Spec.MinAvailable.IntVal}
		for _, pod := range pods.Items {
			if !selector.Matches(labels.Set(pod.Labels)) {
				continue
			}
			if is.ExpectedPods++; pod.DeletionTimestamp.IsZero() && kube.PodReady(&pod) {
				is.CurrentHealthy++
			}
		}
		is.DisruptionsAllowed = max(0, is.CurrentHealthy-is.DesiredHealthy)
		if was := b.Status; was.ObservedGeneration == is.ObservedGeneration && was.ExpectedPods == is.ExpectedPods &&
			was.CurrentHealthy == is.CurrentHealthy {
			continue
		}
		b.Status = is
		_ = admin.Status().Update(g.Ctx, b) // a conflict is followed by another event
	}
}

func isForeign(pod *corev1.Pod) bool {
	ref := metav1.GetControllerOf(pod)
	return ref == nil || ref.Kind != "NodeGuard"
}

func (g *guarded) kubelet(pod *corev1.Pod) {
	if !pod.DeletionTimestamp.IsZero() {
		_ = admin.Delete(g.Ctx, pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID}) // it may be gone
		return
	}
	if pod.Status.Phase == corev1.PodPending && pod.Spec.NodeName != "" {
		pod.Status.Phase = corev1.PodRunning
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		_ = admin.Status().Update(g.Ctx, pod) // a conflict is followed by another event
	}
}

func (g *guarded) guard(change func(*v1alpha1.NodeGuardSpec)) {
	g.T.Helper()
	ng := &v1alpha1.NodeGuard{ObjectMeta: metav1.ObjectMeta{Namespace: g.Namespace, Name: "storage"}}
	ng.Spec.Target.DaemonSet = "storage"
	if change != nil {
		change(&ng.Spec)
	}
	must(g.T, admin.Create(g.Ctx, ng))
}

func (g *guarded) live() *v1alpha1.NodeGuard {
	g.T.Helper()
	ng := &v1alpha1.NodeGuard{}
	must(g.T, admin.Get(g.Ctx, client.ObjectKey{Namespace: g.Namespace, Name: "storage"}, ng))
	return ng
}

// ready waits until that many nodes are guarded, each with a ready companion.
func (g *guarded) ready(n int32) {
	g.T.Helper()
	g.Eventually(fmt.Sprintf("%d nodes are guarded", n), func() error {
		if nodes := g.live().Status.Nodes; nodes.Total != n || nodes.Ready != n || nodes.Unavailable != 0 || nodes.Released != 0 {
			return fmt.Errorf("the status is %+v", g.live().Status)
		}
		return nil
	})
}

func (g *guarded) cordon(node string, cordoned bool) {
	g.T.Helper()
	must(
		g.T,
		admin.Patch(
			g.Ctx,
			&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}},
			mergePatch(fmt.Sprintf(`{"spec":{"unschedulable":%v}}`, cordoned)),
		),
	)
}

func (g *guarded) companion(node string) *corev1.Pod {
	var pods corev1.PodList
	must(
		g.T,
		admin.List(
			g.Ctx,
			&pods,
			client.InNamespace(g.Namespace),
			client.MatchingLabels{v1alpha1.GuardRoleLabel: v1alpha1.GuardRoleCompanion},
		),
	)
	for i := range pods.Items {
		if pods.Items[i].Spec.NodeName == node && !isForeign(&pods.Items[i]) {
			return &pods.Items[i]
		}
	}
	return nil
}

// evict requests one eviction, as a drain does every few seconds.
func (g *guarded) evict(node string) error {
	pod := g.companion(node)
	if pod == nil {
		return errors.New("there is no companion")
	}
	return admin.SubResource("eviction").
		Create(g.Ctx, pod, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}})
}

// goes waits until a drain of the node continues, because its companion was deleted.
func (g *guarded) goes(node string) {
	g.T.Helper()
	g.Eventually("the companion on "+node+" is deleted", func() error { return g.drain(node) })
}

// drain returns why a drain of the node waits. The API server evicts the companion only if it terminates, because the node is released.
func (g *guarded) drain(node string) error {
	g.T.Helper()
	pod := g.companion(node)
	if pod == nil || !pod.DeletionTimestamp.IsZero() {
		return nil
	}
	err := g.evict(node)
	released := func(r v1alpha1.ReleasedNode) bool { return r.Node == node }
	if err == nil && !slices.ContainsFunc(g.live().Status.Released, released) {
		g.T.Errorf("the API server evicts the companion on %s, which is not released", node)
	}
	return client.IgnoreNotFound(err)
}

func (g *guarded) held(node, reason string) v1alpha1.WaitingNode {
	g.T.Helper()
	var found v1alpha1.WaitingNode
	g.Eventually(node+" is held: "+reason, func() error {
		status := g.live().Status
		for _, h := range status.Waiting {
			if h.Node == node && h.Reason == reason {
				found = h
				return nil
			}
		}
		return fmt.Errorf("the status is %+v", status)
	})
	return found
}

// counted are interceptors that count writes by what they are, and have one of them cut.
type counted struct {
	mu     sync.Mutex
	writes map[string]int
	total  atomic.Int32
	// cut is which write, from 1, is the last: after it, or instead of it, nothing is written any more.
	cut    int32
	before bool
}

var errCut = errors.New("the manager is dead")

func (c *counted) write(what string, do func() error) error {
	n := c.total.Add(1)
	if c.cut > 0 && (n > c.cut || (n == c.cut && c.before)) {
		return errCut
	}
	c.mu.Lock()
	if c.writes == nil {
		c.writes = map[string]int{}
	}
	c.writes[what]++
	c.mu.Unlock()
	return do()
}

// String returns how often each write was made. The manager may be writing.
func (c *counted) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprint(c.writes)
}

func (c *counted) funcs() interceptor.Funcs {
	return interceptor.Funcs{
		Create: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return c.write(fmt.Sprintf("create %T", o), func() error { return w.Create(ctx, o, opts...) })
		},
		Update: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return c.write(fmt.Sprintf("update %T", o), func() error { return w.Update(ctx, o, opts...) })
		},
		Delete: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return c.write(fmt.Sprintf("delete %T", o), func() error { return w.Delete(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, w client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return c.write(fmt.Sprintf("patch %T", o), func() error { return w.Patch(ctx, o, p, opts...) })
		},
		SubResourceUpdate: func(ctx context.Context, w client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			return c.write("update "+sub, func() error { return w.SubResource(sub).Update(ctx, o, opts...) })
		},
	}
}
