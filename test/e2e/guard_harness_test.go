// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/local/cluster"
	"github.com/everynode/everynode/test/install"
)

// guarded is a world with nodes of its own that have a pod of DaemonSet storage, and NodeGuard storage.
type guarded struct {
	*world
	nodes []string
	log   *companionLog
}

// newGuarded joins nodes and guards them.
func newGuarded(t *testing.T, nodes int, change func(*v1alpha1.NodeGuardSpec)) *guarded {
	t.Helper()
	g := &guarded{world: newWorld(t)}
	t.Cleanup(g.removeGuards)
	var group sync.WaitGroup
	names := make([]string, nodes)
	for i := range names {
		group.Go(func() { names[i] = g.join(cluster.NodeOptions{}) })
	}
	group.Wait()
	slices.Sort(names)
	g.nodes = names
	g.daemonSet(map[string]string{"world": g.Namespace})
	g.log = g.watchCompanions()
	spec := v1alpha1.NodeGuardSpec{Target: v1alpha1.GuardTarget{DaemonSet: "storage"}}
	if change != nil {
		change(&spec)
	}
	must(t, admin.Create(g.Ctx, &v1alpha1.NodeGuard{ObjectMeta: metav1.ObjectMeta{Namespace: g.Namespace, Name: "storage"}, Spec: spec}))
	g.ready(names...)
	return g
}

// removeGuards waits until all objects of the NodeGuards are deleted. Otherwise a budget could hold a node forever.
func (g *guarded) removeGuards() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	g.Ctx = ctx
	if g.T.Failed() {
		for _, args := range [][]string{
			{"get", "nodes"}, {"-n", g.Namespace, "get", "nodeguards,pods,pdb", "-o", "wide"}, {"-n", g.Namespace, "get", "nodeguards", "-o", "yaml"},
			{"-n", install.Namespace, "logs", "deployment/" + install.Deployment, "--tail=20"},
		} {
			out, _ := install.Kubectl(ctx, real, "", args...)
			g.T.Logf("%v\n%s", args, out)
		}
	}
	must(g.T, admin.DeleteAllOf(ctx, &v1alpha1.NodeGuard{}, client.InNamespace(g.Namespace)))
}

func (g *guarded) daemonSet(selector map[string]string) {
	g.T.Helper()
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: g.Namespace, Name: "storage"}}
	ds.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "storage"}}
	ds.Spec.Template.Labels = map[string]string{"app": "storage"}
	ds.Spec.Template.Spec = corev1.PodSpec{
		NodeSelector: selector, TerminationGracePeriodSeconds: new(int64(1)),
		PriorityClassName: "system-node-critical",
		Tolerations:       []corev1.Toleration{{Key: "storage-only", Operator: corev1.TolerationOpExists}},
		Containers:        []corev1.Container{{Name: "pause", Image: pauseImage}},
	}
	must(g.T, admin.Create(g.Ctx, ds))
}

func (g *guarded) guard() v1alpha1.NodeGuard {
	g.T.Helper()
	var live v1alpha1.NodeGuard
	g.Eventually("the NodeGuard can be read", func() error {
		return admin.Get(g.Ctx, client.ObjectKey{Namespace: g.Namespace, Name: "storage"}, &live)
	})
	return live
}

// companions returns the companions by node, including terminating ones.
func (g *guarded) companions() map[string]corev1.Pod {
	g.T.Helper()
	var pods corev1.PodList
	g.Eventually("companions can be listed", func() error {
		return admin.List(
			g.Ctx,
			&pods,
			client.InNamespace(g.Namespace),
			client.MatchingLabels{v1alpha1.GuardRoleLabel: v1alpha1.GuardRoleCompanion},
		)
	})
	found := map[string]corev1.Pod{}
	for _, pod := range pods.Items {
		found[pod.Spec.NodeName] = pod
	}
	return found
}

// ready waits until exactly these nodes have a companion, all companions are ready, and no node is unavailable.
func (g *guarded) ready(nodes ...string) {
	g.T.Helper()
	g.Eventually(fmt.Sprintf("the companions on %v are ready", nodes), func() error {
		found := g.companions()
		live := g.guard()
		if len(found) != len(nodes) || int(live.Status.Nodes.Ready) != len(nodes) || int(live.Status.Nodes.Updated) != len(nodes) ||
			live.Status.Nodes.Unavailable != 0 ||
			live.Status.ObservedGeneration != live.Generation {
			return fmt.Errorf("%d are there, the status is %+v", len(found), live.Status)
		}
		for _, node := range nodes {
			if pod, there := found[node]; !there || !pod.DeletionTimestamp.IsZero() {
				return fmt.Errorf("%s has none", node)
			}
		}
		return nil
	})
}

// held waits until a node is held for a reason, and returns the message.
func (g *guarded) held(node, reason string) v1alpha1.WaitingNode {
	g.T.Helper()
	var found v1alpha1.WaitingNode
	g.Eventually(fmt.Sprintf("%s is held: %s", node, reason), func() error {
		live := g.guard()
		for _, h := range live.Status.Waiting {
			if h.Node == node && h.Reason == reason {
				found = h
				return nil
			}
		}
		return fmt.Errorf("the status is %+v", live.Status)
	})
	if !strings.Contains(found.Message, "; released when: ") || found.By == "" || found.Since.IsZero() {
		g.T.Errorf("too little is said of %s: %+v", node, found)
	}
	return found
}

// drain drains a node with kubectl, and reports the end.
func (w *world) drain(node string, flags ...string) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := install.Kubectl(w.Ctx, real, "", append([]string{"drain", node, "--ignore-daemonsets", "--timeout=180s"}, flags...)...)
		done <- err
	}()
	return done
}

func (w *world) uncordon(node string) {
	w.T.Helper()
	w.kubectl("uncordon", node)
}

// drained waits for the end of a drain.
func (w *world) drained(node string, done <-chan error) {
	w.T.Helper()
	select {
	case err := <-done:
		if err != nil {
			w.T.Fatalf("draining %s: %v", node, err)
		}
	case <-w.Ctx.Done():
		w.T.Fatalf("the drain of %s does not end", node)
	}
}

func (g *guarded) annotate(node, key, value string) {
	g.T.Helper()
	must(
		g.T,
		admin.Patch(
			g.Ctx,
			&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}},
			mergePatch(`{"metadata":{"annotations":{%q:%q}}}`, key, value),
		),
	)
}

// spec changes the NodeGuard.
func (g *guarded) spec(format string, args ...any) {
	g.T.Helper()
	must(
		g.T,
		admin.Patch(
			g.Ctx,
			&v1alpha1.NodeGuard{ObjectMeta: metav1.ObjectMeta{Namespace: g.Namespace, Name: "storage"}},
			mergePatch(format, args...),
		),
	)
}

// companionLog is what a watch has told of the companions: looking now and then would miss some.
type companionLog struct {
	mu   sync.Mutex
	on   map[string]map[string]bool // by node, the UIDs of those that are there
	gone map[string]time.Duration   // by UID, how long a pod was terminating
	// left is the time at which each began to terminate.
	left  map[string]time.Time
	wrong []string
	// most is how many nodes had none at the same time, of those that once had one.
	most int
}

func (g *guarded) watchCompanions() *companionLog {
	g.T.Helper()
	config, err := real.RESTConfig()
	must(g.T, err)
	watcher, err := client.NewWithWatch(config, client.Options{Scheme: admin.Scheme()})
	must(g.T, err)
	l := &companionLog{on: map[string]map[string]bool{}, gone: map[string]time.Duration{}, left: map[string]time.Time{}}
	ctx, cancel := context.WithCancel(g.Ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil { // a watch ends with the API server
			events, err := watcher.Watch(
				ctx,
				&corev1.PodList{},
				client.InNamespace(g.Namespace),
				client.MatchingLabels{v1alpha1.GuardRoleLabel: v1alpha1.GuardRoleCompanion},
			)
			if err != nil {
				time.Sleep(200 * time.Millisecond)
				continue
			}
			for event := range events.ResultChan() {
				if pod, ok := event.Object.(*corev1.Pod); ok {
					l.see(event.Type, pod)
				}
			}
		}
	}()
	g.T.Cleanup(func() { cancel(); <-ended })
	return l
}

func (l *companionLog) see(kind watch.EventType, pod *corev1.Pod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	node, uid := pod.Spec.NodeName, string(pod.UID)
	if l.on[node] == nil {
		l.on[node] = map[string]bool{}
	}
	if node == "" {
		l.wrong = append(l.wrong, pod.Name+" is on no node")
	}
	if !pod.DeletionTimestamp.IsZero() && l.left[uid].IsZero() {
		l.left[uid] = time.Now()
	}
	if kind == watch.Deleted {
		delete(l.on[node], uid)
		without := 0
		for _, pods := range l.on {
			if len(pods) == 0 {
				without++
			}
		}
		l.most = max(l.most, without)
		if !l.left[uid].IsZero() {
			l.gone[uid] = time.Since(l.left[uid])
		}
		return
	}
	l.on[node][uid] = true
	if len(l.on[node]) > 1 {
		l.wrong = append(l.wrong, fmt.Sprintf("%d companions are on %s", len(l.on[node]), node))
	}
}

// neverTwo checks that there were never two companions on a node, nor one on none.
func (g *guarded) neverTwo() {
	g.T.Helper()
	g.log.mu.Lock()
	defer g.log.mu.Unlock()
	if len(g.log.wrong) > 0 {
		g.T.Errorf("%v", g.log.wrong)
	}
}

// notEnded fails when something has ended already.
func notEnded(t *testing.T, what string, done <-chan error) {
	t.Helper()
	select {
	case err := <-done:
		t.Fatalf("%s has ended: %v", what, err)
	default:
	}
}

var errNotYet = errors.New("not yet")
