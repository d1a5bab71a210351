// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/informers"
	clientgo "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/local/cluster"
	"github.com/everynode/everynode/test/install"
)

// budgeted is a world with nodes of its own that a NodeDisruptionBudget limits to one unavailable node.
type budgeted struct {
	*world
	nodes []string
	zones map[string]string
	// most is how many nodes were cordoned without a seat at the same time, by zone; that of all zones is under "".
	mu   sync.Mutex
	most map[string]int
}

// newBudgeted joins a node for each zone in the list.
func newBudgeted(t *testing.T, zones ...string) *budgeted {
	t.Helper()
	nodes := len(zones)
	b := &budgeted{world: newWorld(t), nodes: make([]string, nodes), zones: map[string]string{}, most: map[string]int{}}
	var group sync.WaitGroup
	for i := range b.nodes {
		group.Go(func() {
			b.nodes[i] = b.join(cluster.NodeOptions{Labels: map[string]string{corev1.LabelTopologyZone: zones[i]}})
		})
	}
	group.Wait()
	for i, node := range b.nodes {
		b.zones[node] = zones[i]
	}
	t.Cleanup(func() {
		b.deleteBudget(b.Namespace)
		b.deleteBudget("freeze-" + b.Namespace)
	})
	b.budget(b.Namespace, 1)
	b.seated(nodes, 1)
	b.watch()
	return b
}

func (b *budgeted) budget(name string, most int32) {
	b.T.Helper()
	limit := intstr.FromInt32(most)
	must(
		b.T,
		admin.Create(
			b.Ctx,
			&v1alpha1.NodeDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.NodeDisruptionBudgetSpec{
				Selector: &metav1.LabelSelector{
					MatchLabels: map[string]string{"world": b.Namespace},
				},
				JoiningNodes: v1alpha1.JoiningNodesIncluded,
				Limits:       []v1alpha1.BudgetLimit{{MaxUnavailable: &limit}},
			}},
		),
	)
}

func (b *budgeted) deleteBudget(name string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	must(b.T, client.IgnoreNotFound(admin.Delete(ctx, &v1alpha1.NodeDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: name}})))
}

// seated waits until so many nodes have a seat, and the API server grants so many evictions of them.
func (b *budgeted) seated(nodes int, granted int32) {
	b.T.Helper()
	b.Eventually(fmt.Sprintf("%d nodes have a seat, and %d evictions are granted", nodes, granted), func() error {
		var ndb v1alpha1.NodeDisruptionBudget
		if err := admin.Get(b.Ctx, client.ObjectKey{Name: b.Namespace}, &ndb); err != nil {
			return err
		}
		seats := b.seats()
		if int(ndb.Status.Nodes.Seats) != nodes || len(seats) != nodes {
			return fmt.Errorf("%d seats are there, and the status is %+v", len(seats), ndb.Status)
		}
		groups := map[string]bool{}
		for _, seat := range seats {
			groups[seat.Labels[v1alpha1.BudgetGroupLabel]] = true
		}
		var list policyv1.PodDisruptionBudgetList
		if err := admin.List(b.Ctx, &list, client.InNamespace(install.Namespace), client.HasLabels{v1alpha1.BudgetGroupLabel}); err != nil {
			return err
		}
		sum := int32(0)
		for i := range list.Items {
			if pdb := &list.Items[i]; groups[pdb.Labels[v1alpha1.BudgetGroupLabel]] && pdb.Status.ObservedGeneration == pdb.Generation {
				sum += pdb.Status.DisruptionsAllowed
			}
		}
		if sum != granted {
			return fmt.Errorf("%d are granted, the PodDisruptionBudgets are %+v", sum, list.Items)
		}
		return nil
	})
}

// seats are the seats of the test by node.
func (b *budgeted) seats() map[string]corev1.Pod {
	var pods corev1.PodList
	if err := admin.List(b.Ctx, &pods, client.InNamespace(install.Namespace), client.HasLabels{v1alpha1.BudgetGroupLabel}); err != nil {
		return nil
	}
	found := map[string]corev1.Pod{}
	for _, pod := range pods.Items {
		for _, node := range b.nodes {
			if pod.Spec.NodeName == node && pod.DeletionTimestamp.IsZero() {
				found[node] = pod
			}
		}
	}
	return found
}

// watch counts the nodes that are cordoned and have no seat, those that a drain has, after each event of nodes and of seats, until the test
// ends. Events of seats are in their order, so a node whose seat returns before that of another one is evicted never counts with it.
func (b *budgeted) watch() {
	b.T.Helper()
	cfg, err := real.RESTConfig()
	must(b.T, err)
	clientset, err := clientgo.NewForConfig(cfg)
	must(b.T, err)
	ctx, cancel := context.WithCancel(b.Ctx)
	cordoned, seated := map[string]bool{}, map[string]string{}
	seats := informers.NewSharedInformerFactoryWithOptions(clientset, 0, informers.WithNamespace(install.Namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = v1alpha1.BudgetGroupLabel }))
	nodes := informers.NewSharedInformerFactory(clientset, 0)
	event := func(object any, deleted bool) {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch o := object.(type) {
		case *corev1.Node:
			cordoned[o.Name] = o.Spec.Unschedulable && !deleted
		case *corev1.Pod:
			if deleted = deleted || o.DeletionTimestamp != nil; !deleted {
				seated[o.Spec.NodeName] = o.Name
			} else if seated[o.Spec.NodeName] == o.Name {
				delete(seated, o.Spec.NodeName)
			}
		}
		b.count(cordoned, seated)
	}
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { event(o, false) },
		UpdateFunc: func(_, o any) { event(o, false) },
		DeleteFunc: func(o any) { event(o, true) },
	}
	for _, informer := range []cache.SharedIndexInformer{seats.Core().V1().Pods().Informer(), nodes.Core().V1().Nodes().Informer()} {
		registered, err := informer.AddEventHandler(handler)
		must(b.T, err)
		go informer.RunWithContext(ctx)
		if !cache.WaitForCacheSync(ctx.Done(), registered.HasSynced) {
			b.T.Fatal("nodes and seats cannot be watched")
		}
	}
	b.T.Cleanup(cancel)
}

// count raises the most nodes that were away at the same time.
func (b *budgeted) count(cordoned map[string]bool, seated map[string]string) {
	away := map[string]int{}
	for _, node := range b.nodes {
		if cordoned[node] && seated[node] == "" {
			away[""]++
			away[b.zones[node]]++
		}
	}
	for zone, n := range away {
		b.most[zone] = max(b.most[zone], n)
	}
}

// drainAndReturn drains a node with kubectl, and uncordons it at once when the drain has ended.
func (b *budgeted) drainAndReturn(node string) <-chan error {
	done := make(chan error, 1)
	drain := b.drain(node, "--timeout=240s")
	go func() {
		err := <-drain
		if err == nil {
			_, err = install.Kubectl(b.Ctx, real, "", "uncordon", node)
		}
		done <- err
	}()
	return done
}

// TestABudgetLetsOneNodeGoAtATime : two drains with kubectl and a NodeJob that drains begin at once, each of another node. The manager is
// killed in each phase of the NodeJob: while it claims its node, while the node is cordoned and drained, while the task runs, and when the
// node should get its seat back.
func TestABudgetLetsOneNodeGoAtATime(t *testing.T) {
	b := newBudgeted(t, "a", "a", "a")
	first, second, ofJob := b.nodes[0], b.nodes[1], b.nodes[2]
	b.stubbornPod(ofJob) // the drain of the NodeJob ends when it is deleted
	drains := []<-chan error{b.drainAndReturn(first), b.drainAndReturn(second)}
	b.job("drained", b.hold(), onNodes(ofJob), func(s *v1alpha1.NodeJobSpec) { s.Maintenance.Drain = &v1alpha1.DrainSpec{} })

	b.Eventually("the NodeJob waits for its claim, or has it", func() error {
		seats, live := b.seats(), b.Get("drained")
		waits := slices.ContainsFunc(
			live.Status.Conditions,
			func(c metav1.Condition) bool { return c.Reason == v1alpha1.ReasonWaitingForBudget },
		)
		if _, seat := seats[ofJob]; waits || seats != nil && !seat {
			return nil
		}
		return fmt.Errorf("the status is %+v", live.Status)
	})
	b.killManager()
	b.Eventually("the NodeJob has cordoned its node", func() error {
		if !b.node(ofJob).Spec.Unschedulable {
			return errNotYet
		}
		return nil
	})
	b.killManager()
	b.wantRan(ofJob, 0)
	must(t, admin.Delete(b.Ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: "stubborn"}}))
	b.began(ofJob)
	b.killManager()
	b.letGo(ofJob)
	b.Done("drained", ofJob)
	b.killManager()

	b.drained(first, drains[0])
	b.drained(second, drains[1])
	b.seated(3, 1)
	b.wantRan(ofJob, 1)
	b.wantMost(map[string]int{"": 1, "a": 1})
}

// TestAFreezeHoldsADrainThatWaits : two drains with kubectl, in which the manager dies; and a freeze in the middle of the second one, with
// the manager killed.
func TestAFreezeHoldsADrainThatWaits(t *testing.T) {
	b := newBudgeted(t, "a", "a")
	first, second := b.nodes[0], b.nodes[1]
	drains := map[string]<-chan error{first: b.drain(first), second: b.drain(second)}
	b.killManager()
	select {
	case err := <-drains[first]:
		must(t, err)
	case err := <-drains[second]:
		must(t, err)
		first, second = second, first
	case <-b.Ctx.Done():
		t.Fatal("no drain ends")
	}
	notEnded(t, "the other drain", drains[second])
	b.killManager()

	// A freeze begins while a drain waits, and holds it when the node that was away is back.
	b.budget("freeze-"+b.Namespace, 0)
	b.Eventually("the freeze is in force", func() error {
		var ndb v1alpha1.NodeDisruptionBudget
		if err := admin.Get(b.Ctx, client.ObjectKey{Name: "freeze-" + b.Namespace}, &ndb); err != nil {
			return err
		}
		if ndb.Status.ObservedGeneration != ndb.Generation {
			return errNotYet
		}
		return nil
	})
	b.killManager()
	b.uncordon(first)
	b.seated(2, 0)
	notEnded(t, "the drain under a freeze", drains[second])
	b.deleteBudget("freeze-" + b.Namespace)
	b.drained(second, drains[second])
	b.uncordon(second)
	b.seated(2, 1)
	b.wantMost(map[string]int{"": 1, "a": 1})
}

func (b *budgeted) wantMost(want map[string]int) {
	b.T.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if !maps.Equal(b.most, want) {
		b.T.Errorf("at most so many nodes were away at the same time, by zone: %v, want %v", b.most, want)
	}
}

// TestZonesAndWindowsOfABudget : four drains at once of nodes in two zones; and a window that closes while a drain and a NodeJob are at work
// and others wait, which continue in the next window.
func TestZonesAndWindowsOfABudget(t *testing.T) {
	t.Parallel()
	b := newBudgeted(t, "a", "a", "b", "b")
	a0, a1, b0, b1 := b.nodes[0], b.nodes[1], b.nodes[2], b.nodes[3]
	b.patchBudget(`{"spec":{"limits":[{"maxUnavailable":2},{"maxUnavailable":1,"topologyKey":%q}]}}`, corev1.LabelTopologyZone)
	b.seated(4, 2)

	drains := map[string]<-chan error{}
	for _, node := range b.nodes {
		drains[node] = b.drain(node)
	}
	for _, zone := range [][]string{{a0, a1}, {b0, b1}} {
		first := b.oneWithoutSeat(zone...)
		second := zone[0]
		if second == first {
			second = zone[1]
		}
		b.drained(first, drains[first])
		notEnded(t, "the drain of another node of the zone", drains[second])
		b.uncordon(first)
		b.drained(second, drains[second])
		b.uncordon(second)
	}
	b.seated(4, 2)

	b.stubbornPod(a0)
	closes, opens := b.twoWindows(100 * time.Second)
	b.job("window", b.hold(), onNodes(b0, b1), func(s *v1alpha1.NodeJobSpec) { // the first has 41 seconds to start
		s.Maintenance.Cordon, s.Task.TimeoutSeconds, s.Retry.Limit = true, new(int32(59)), new(int32(0))
	})
	drains[a0] = b.drain(a0, "--force")
	first := b.oneWithoutSeat(b0, b1)
	second := b0
	if second == first {
		second = b1
	}
	b.began(first)
	b.oneWithoutSeat(a0)
	drains[a1] = b.drain(a1, "--timeout=400s") // until the next window
	b.Eventually("the NodeJob says that another run does not fit into the window", func() error {
		out, err := b.everynode("explain", "window", second).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "and a run can take 59s (task 59s), so it starts in a later window") {
			return fmt.Errorf("%s %w", out, err)
		}
		return nil
	})
	b.letGo(first)
	b.Done("window", first)

	b.Eventually("the window is closed", func() error {
		var ndb v1alpha1.NodeDisruptionBudget
		must(t, admin.Get(b.Ctx, client.ObjectKey{Name: b.Namespace}, &ndb))
		if c := meta.FindStatusCondition(
			ndb.Status.Conditions,
			v1alpha1.ConditionReady,
		); c == nil ||
			c.Reason != v1alpha1.ReasonWindowClosed {
			return fmt.Errorf("the status is %+v", ndb.Status)
		}
		return nil
	})
	notEnded(t, "the drain that has begun", drains[a0])
	must(t, admin.Delete(b.Ctx, &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: "stubborn"}}))
	b.drained(a0, drains[a0])
	b.uncordon(a0)
	b.seated(4, 0)
	notEnded(t, "the drain that has not begun", drains[a1])
	b.wantRan(second, 0)
	if now := time.Now(); now.Before(closes) || now.After(opens) {
		t.Fatalf("it is %s, and all of this should be between the windows, from %s to %s", now, closes, opens)
	}

	b.began(second)
	b.letGo(second)
	b.drained(a1, drains[a1])
	b.uncordon(a1)
	b.Done("window", second)
	b.seated(4, 2)
	b.wantMost(map[string]int{"": 2, "a": 1, "b": 1})
}

// TestANodeJobStartsOutsideOfAWindow : a NodeJob that ignores windows on one node, while a drain of another node waits for the window.
func TestANodeJobStartsOutsideOfAWindow(t *testing.T) {
	t.Parallel()
	b := newBudgeted(t, "a", "a")
	now, later := b.nodes[0], b.nodes[1]
	b.patchBudget(`{"spec":{"windows":[{"schedule":"0 2 1 %d *","durationSeconds":60}]}}`, (time.Now().UTC().Month()+5)%12+1)
	b.seated(2, 0)
	drain := b.drain(later, "--timeout=400s")
	b.job("urgent", b.hold(), onNodes(now), func(s *v1alpha1.NodeJobSpec) { s.Maintenance.Cordon = true })
	b.Eventually("the NodeJob waits for a window that is longer", func() error {
		out, err := b.everynode("explain", "urgent", now).CombinedOutput()
		if err != nil || !strings.Contains(string(out), v1alpha1.ReasonWindowTooShort) {
			return fmt.Errorf("%s %w", out, err)
		}
		return nil
	})
	b.killManager()

	job := &v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: "urgent"}}
	must(t, admin.Patch(b.Ctx, job, mergePatch(`{"spec":{"maintenance":{"ignoreWindowsOn":[%q]}}}`, now)))
	b.began(now)
	b.killManager()
	if seats := b.seats(); len(seats) != 1 {
		t.Errorf("the seats of %v are left", slices.Sorted(maps.Keys(seats)))
	}
	notEnded(t, "the drain of another node", drain)
	b.letGo(now)
	b.Done("urgent", now)
	out, err := b.everynode("explain", "urgent", now).CombinedOutput()
	if text := strings.Join(
		strings.Fields(string(out)),
		" ",
	); err != nil ||
		!strings.Contains(text, "outside of the window of NodeDisruptionBudget "+b.Namespace) {
		t.Errorf("explain says %s %v", out, err)
	}
	b.seated(2, 0)
	notEnded(t, "the drain of another node", drain)
	b.patchBudget(`{"spec":{"windows":null}}`)
	b.drained(later, drain)
	b.uncordon(later)
	b.seated(2, 1)
	b.wantMost(map[string]int{"": 1, "a": 1})
}

func (b *budgeted) patchBudget(format string, args ...any) {
	b.T.Helper()
	must(
		b.T,
		admin.Patch(b.Ctx, &v1alpha1.NodeDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: b.Namespace}}, mergePatch(format, args...)),
	)
}

// twoWindows sets a window that is open and closes after some time, and one that opens at the first minute that begins 15 seconds after that
// or later.
func (b *budgeted) twoWindows(after time.Duration) (closes, opens time.Time) {
	b.T.Helper()
	now := time.Now().UTC().Truncate(time.Second)
	since := now.Truncate(time.Minute)
	closes = now.Add(max(after, time.Minute-now.Sub(since))) // a window has at least a minute
	opens = closes.Add(135*time.Second - 1).Truncate(time.Minute)
	b.patchBudget(`{"spec":{"windows":[{"schedule":"%d %d * * *","durationSeconds":%d},{"schedule":"%d %d * * *","durationSeconds":900}]}}`,
		since.Minute(), since.Hour(), int(closes.Sub(since).Seconds()), opens.Minute(), opens.Hour())
	return closes, opens
}

// oneWithoutSeat waits until a node of these has no seat.
func (b *budgeted) oneWithoutSeat(nodes ...string) (found string) {
	b.T.Helper()
	b.Eventually(fmt.Sprintf("one of %v has no seat", nodes), func() error {
		seats := b.seats()
		for _, node := range nodes {
			if _, seat := seats[node]; !seat && seats != nil {
				found = node
				return nil
			}
		}
		return errNotYet
	})
	return found
}

// stubbornPod runs a pod on a node that cannot be evicted until PodDisruptionBudget stubborn is deleted. A pod that is still Pending can
// be evicted.
func (b *budgeted) stubbornPod(node string) {
	b.T.Helper()
	named := metav1.ObjectMeta{Namespace: b.Namespace, Name: "stubborn", Labels: map[string]string{"app": "stubborn"}}
	one := intstr.FromInt32(1)
	must(b.T, admin.Create(b.Ctx, &corev1.Pod{ObjectMeta: named, Spec: corev1.PodSpec{
		NodeName: node, TerminationGracePeriodSeconds: new(int64(1)), Containers: []corev1.Container{{Name: "pause", Image: pauseImage}},
	}}))
	pdb := &policyv1.PodDisruptionBudget{ObjectMeta: named, Spec: policyv1.PodDisruptionBudgetSpec{
		MinAvailable: &one, Selector: &metav1.LabelSelector{MatchLabels: named.Labels},
	}}
	must(b.T, admin.Create(b.Ctx, pdb))
	b.Eventually("the pod that cannot be evicted is ready", func() error {
		if err := admin.Get(b.Ctx, client.ObjectKeyFromObject(pdb), pdb); err != nil || pdb.Status.CurrentHealthy != 1 {
			return fmt.Errorf("the status is %+v, %w", pdb.Status, err)
		}
		return nil
	})
}
