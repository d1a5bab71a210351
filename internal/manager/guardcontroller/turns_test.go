// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guardcontroller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodeguard/guard"
)

// inTenant returns NodeGuards of a namespace in which no pod can be created, for a DaemonSet that selects all nodes.
func inTenant(number int) []client.Object {
	ds := daemonSet("all")
	ds.Namespace = "tenant"
	objects := []client.Object{ds}
	for i := range number {
		g := nodeGuard(fmt.Sprint("g", i), "all")
		g.Namespace, g.UID = "tenant", types.UID(fmt.Sprint("tenant-", i))
		g.CreationTimestamp = metav1.NewTime(noon.Add(time.Duration(i) * time.Second))
		objects = append(objects, g)
	}
	return objects
}

// TestNodeGuardsWithoutPodsCostNoReads : a decision does not ask NodeGuards that hold nothing, however many there are.
func TestNodeGuardsWithoutPodsCostNoReads(t *testing.T) {
	reads := func(tenants int) (n int32) {
		var count atomic.Int32
		g := nodeGuard("disks", "disks")
		objects := append(inTenant(tenants), g, daemonSet("disks"), readyNode("n1", true), readyNode("n2", false),
			targetPod("disks", "n1", "True"), targetPod("disks", "n2", "True"))
		r := newReconciler(t, interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				count.Add(1)
				return c.List(ctx, list, opts...)
			},
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				count.Add(1)
				return c.Get(ctx, key, o, opts...)
			},
		}, objects...)
		seen, err := r.observe(t.Context(), g, r.live())
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range seen.input.Peers {
			if p.Stances != nil {
				t.Errorf("NodeGuard %s is asked, and holds nothing", p.Name)
			}
		}
		return count.Load()
	}
	none := reads(0)
	for _, tenants := range []int{1, guard.MaxServed, 300} {
		if with := reads(tenants); with > none+2 { // the namespace of the tenant is read once
			t.Errorf("with %d NodeGuards of a tenant, a decision makes %d reads instead of %d", tenants, with, none)
		}
	}
}

// TestNodeGuardsBeyondTheMaximum : the oldest NodeGuards of a namespace are served, and the others say why not.
func TestNodeGuardsBeyondTheMaximum(t *testing.T) {
	r := newReconciler(t, interceptor.Funcs{}, inTenant(guard.MaxServed+1)...)
	r.targets = newTargets(nil, nil, &r.wake)
	g := &v1alpha1.NodeGuard{}
	name := client.ObjectKey{Namespace: "tenant", Name: fmt.Sprint("g", guard.MaxServed)}
	if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: name}); err != nil {
		t.Fatal(err)
	}
	if err := r.Client.Get(t.Context(), name, g); err != nil {
		t.Fatal(err)
	}
	stalled := meta.FindStatusCondition(g.Status.Conditions, v1alpha1.ConditionStalled)
	if stalled == nil || stalled.Reason != v1alpha1.ReasonTooManyNodeGuards || !strings.Contains(stalled.Message, "at most 64") {
		t.Errorf("the condition is %+v", stalled)
	}
	name.Name = "g0"
	if err := r.Client.Get(t.Context(), name, g); err != nil {
		t.Fatal(err)
	}
	if _, o, err := r.obstacle(t.Context(), g); o != nil || err != nil {
		t.Errorf("the oldest is not served: %+v, %v", o, err)
	}
}

// TestNamespacesTakeTurns : while one NodeGuard of a namespace decides, its others do not wait, and those of other namespaces do.
func TestNamespacesTakeTurns(t *testing.T) {
	var turns turns
	of := func(namespace, name string) client.ObjectKey {
		return client.ObjectKey{Namespace: namespace, Name: name}
	}
	var woken []client.ObjectKey
	wake := func(name client.ObjectKey) { woken = append(woken, name) }
	end := turns.take(of("tenant", "a"), wake)
	for range 2 {
		if turns.take(of("tenant", "b"), wake) != nil {
			t.Fatal("another NodeGuard of the namespace waits")
		}
	}
	decided := make(chan bool)
	go func() {
		turns.take(of("storage", "a"), wake)()
		close(decided)
	}()
	select {
	case <-decided:
		t.Error("two NodeGuards decide at the same time")
	default:
	}
	end()
	<-decided
	if len(woken) != 1 || woken[0] != of("tenant", "b") {
		t.Errorf("woken are %v", woken)
	}
	again := turns.take(of("tenant", "b"), wake)
	if again == nil {
		t.Fatal("a namespace has one turn only")
	}
	again()
}

// syncedCache is a cache that has listed everything.
type syncedCache struct {
	cache.Cache

	from client.Reader
}

func (syncedCache) WaitForCacheSync(context.Context) bool { return true }

func (c syncedCache) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return c.from.List(ctx, list, opts...)
}

// TestWhichPodsWakeNodeGuards : pods of a namespace are in one cache, whatever the selectors are.
func TestWhichPodsWakeNodeGuards(t *testing.T) {
	var w waker
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
	defer queue.ShutDown()
	if err := w.begin(t.Context(), queue); err != nil {
		t.Fatal(err)
	}
	targets := newTargets(nil, nil, &w)
	targets.ctx = t.Context()
	targets.caches["ns"] = &targetCache{cancel: func() {}, guards: map[client.ObjectKey]labels.Selector{}}
	for _, app := range []string{"a", "b"} {
		if _, err := targets.cacheOf(
			client.ObjectKey{Namespace: "ns", Name: app},
			labels.SelectorFromSet(labels.Set{"app": app}),
		); err != nil {
			t.Fatal(err)
		}
	}
	if len(targets.caches) != 1 {
		t.Errorf("%d caches for a namespace", len(targets.caches))
	}
	targets.changed(targetPod("c", "n1", "True"))
	targets.changed(targetPod("c", "n1", "True"), targetPod("b", "n1", "True"))
	if got, _ := queue.Get(); got.Name != "b" {
		t.Errorf("NodeGuard %s is planned", got.Name)
	}
	if queue.Len() > 0 {
		t.Error("another NodeGuard is planned")
	}
}

// TestADecisionThatIsTooSlow names the namespace that needs the time.
func TestADecisionThatIsTooSlow(t *testing.T) {
	g := nodeGuard("disks", "disks")
	slow := false
	objects := []client.Object{
		g,
		daemonSet("disks"),
		readyNode("n1", false),
		readyNode("n2", false),
		targetPod("disks", "n1", "True"),
		targetPod("disks", "n2", "True"),
		companionPod(g, "n1"),
		companionPod(g, "n2"),
	}
	r := newReconciler(t, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if _, decides := ctx.Deadline(); decides && slow {
				return fmt.Errorf("getting: %w", context.DeadlineExceeded)
			}
			return c.Get(ctx, key, o, opts...)
		},
	}, objects...)
	now := noon
	r.Now = func() time.Time { return now }
	pass := func() (*metav1.Condition, error) {
		now = now.Add(time.Minute)
		_, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(g)})
		if getErr := r.Client.Get(t.Context(), client.ObjectKeyFromObject(g), g); getErr != nil {
			t.Fatal(getErr)
		}
		return meta.FindStatusCondition(g.Status.Conditions, v1alpha1.ConditionStalled), err
	}
	r.targets = newTargets(nil, nil, &r.wake)
	r.targets.ctx = t.Context()
	r.targets.caches["ns"] = &targetCache{
		Cache:  syncedCache{from: r.Client},
		cancel: func() {},
		guards: map[client.ObjectKey]labels.Selector{},
	}
	for range 3 {
		if _, err := pass(); err != nil {
			t.Fatal(err)
		}
	}
	node := &corev1.Node{}
	if err := r.Client.Get(t.Context(), client.ObjectKey{Name: "n1"}, node); err != nil {
		t.Fatal(err)
	}
	node.Spec.Unschedulable = true
	if err := r.Client.Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	r.turns.take(client.ObjectKeyFromObject(g), r.wake.guard)()
	r.turns.asked("storage", time.Second)
	r.turns.asked("tenant", 8*time.Second)
	slow = true
	stalled, err := pass()
	if !errors.Is(err, context.DeadlineExceeded) || stalled.Reason != v1alpha1.ReasonDecisionsTooSlow ||
		!strings.Contains(stalled.Message, "namespace tenant") {
		t.Errorf("the condition is %+v, and the error %v", stalled, err)
	}
	slow = false
	if stalled, err = pass(); err != nil || stalled.Reason == v1alpha1.ReasonDecisionsTooSlow {
		t.Errorf("later, the condition is %+v, and the error %v", stalled, err)
	}
}
