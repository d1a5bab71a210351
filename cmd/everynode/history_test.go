// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"math/rand"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/clock"
	"github.com/everynode/everynode/internal/manager/loop"
	"github.com/everynode/everynode/internal/seal"
	"github.com/everynode/everynode/internal/testing/fakeapi"
	"github.com/everynode/everynode/internal/testing/historytest"
	"github.com/everynode/everynode/internal/uninstall"
)

// TestHistoriesOfTheManager plays seeded histories of a small cluster with the whole manager: NodeJobs that disrupt nodes, depend on each
// other and have gates, NodeGuards, NodeDisruptionBudgets with windows and freezes, and tools that drain nodes. The manager crashes, and
// starts again with another clock. Neither a budget nor a NodeGuard is ever exceeded. When the faults end, all drains and all NodeJobs end,
// and when all objects are deleted, nothing is left.
//
// To see one: go test ./cmd/everynode -run TestHistoriesOfTheManager -seed N -v. The seed does not fix the order of goroutines, so the
// same seed may need several attempts (-count) to break again.
func TestHistoriesOfTheManager(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	historytest.RunLong(t, 150, func(seed int64, _ bool) (broken, story string) {
		h := play(t, seed)
		return h.broken, strings.Join(h.lines, "\n")
	})
}

// history is a cluster, its manager, and all that takes nodes away.
type history struct {
	*rand.Rand
	t        *testing.T
	api      *fakeapi.Server
	kubelets *fakeapi.Kubelets
	// stop ends the manager, if one runs. starts counts those that have started.
	stop   func()
	starts int
	// calm is true when the faults have ended.
	calm  bool
	nodes int

	mu     sync.Mutex
	lines  []string
	broken string
	// over is true when the history has ended.
	over bool
	// drains are the drains that have not ended, by the UID of their node.
	drains map[types.UID]string
	oracle
}

func (h *history) say(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

func (h *history) breaks(format string, args ...any) {
	h.say("BROKEN "+format, args...)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.broken == "" {
		h.broken = fmt.Sprintf(format, args...)
	}
}

func (h *history) isBroken() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.broken != ""
}

func (h *history) do(err error) {
	if err != nil {
		h.t.Error(err)
	}
}

func (h *history) one(of int) bool { return h.Intn(of) == 0 }

const namespace = "ns"

func play(t *testing.T, seed int64) (h *history) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h = &history{
			Rand: rand.New(rand.NewSource(seed)), t: t,
			drains: map[types.UID]string{}, oracle: newOracle(),
		}
		h.api = fakeapi.New(t, seed, h.one(3))
		h.kubelets = &fakeapi.Kubelets{
			Server:    h.api,
			Succeeded: func(*corev1.Node, *corev1.Pod) {},
			Fails:     func(pod *corev1.Pod) bool { return !h.calm && h.api.Roll(6, pod.UID) == 0 },
		}
		h.listen()
		h.begin()
		defer h.end()
		for range 12 + h.Intn(12) {
			h.event()
			time.Sleep(time.Duration(h.Int63n(int64([]time.Duration{time.Second, 30 * time.Second, 4 * time.Minute}[h.Intn(3)]))))
			if h.isBroken() {
				return
			}
		}
		if h.settle(); !h.isBroken() {
			h.deleteAll()
		}
	})
	return h
}

// listen has the history follow what happens.
func (h *history) listen() {
	h.api.Stored, h.api.Evicting = h.stored, h.evicting
	h.api.Told = func(reason, regarding, note string) { h.say("  %s %s: %s", reason, regarding, note) }
}

// prepare creates what is there before the nodes.
func (h *history) prepare() {
	for _, name := range []string{namespace, uninstall.Namespace} {
		h.do(h.api.Create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	}
	h.do(h.api.Create(uninstall.SealSecret()))
	h.do(h.api.Create(h.daemonSet()))
}

func (h *history) begin() {
	h.prepare()
	for range 3 + h.Intn(3) {
		h.join(h.anyZone())
	}
	h.createBudget("all")
	if h.one(2) {
		h.createBudget("zones")
	}
	if h.one(2) {
		h.do(h.api.Create(h.newGuard()))
	}
	h.start()
	time.Sleep(2 * time.Minute) // all nodes get their seats
	h.api.SetFaults(true)
	h.createJobs()
}

// start starts a manager, whose machine has a clock of its own.
func (h *history) start() {
	h.starts++
	skew := h.api.Between(-2*time.Hour, 2*time.Hour, "skew", h.starts)
	h.say("a manager starts on a machine whose clock is ahead by %v", skew)
	server := clock.New(func() time.Time { return time.Now().Add(skew) })
	config := h.api.Config()
	config.Wrap(server.Wrap)
	f, err := parse([]string{
		"--runner-image=registry.example/runner", "--metrics-bind-address=0", "--health-probe-bind-address=0", "--leader-elect=false",
		"--require-namespace-label=false", "--require-policies=false", "--budget-joining-time=3m",
	})
	if err != nil {
		h.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(h.t.Context())
	namespaces := loop.NewTrimmer()
	mgr, err := newManager(ctx, config, h.api.Scheme, &f, seal.Key{}, namespaces)
	if err != nil {
		h.t.Fatal(err)
	}
	secret := fakeapi.Get[*corev1.Secret](h.api, uninstall.Namespace, uninstall.SealSecret().Name)
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Secret", Name: secret.Name, UID: secret.UID, Controller: new(true)}
	if _, err := setUp(ctx, mgr, &f, sealSecret{owner: owner}, namespaces, server.Now, prometheus.NewRegistry()); err != nil {
		h.t.Fatal(err)
	}
	h.mu.Lock()
	h.started = time.Now()
	h.mu.Unlock()
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	time.Sleep(time.Second) // a manager that ends while it starts does not return
	h.stop = func() {
		cancel()
		if err := <-done; err != nil {
			h.t.Error(err)
		}
	}
}

// crash ends the manager.
func (h *history) crash() {
	if h.stop != nil {
		h.say("the manager ends")
		h.stop()
		h.stop = nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.started = time.Time{}
}

// end ends everything that runs.
func (h *history) end() {
	h.crash()
	h.mu.Lock()
	h.over = true
	h.mu.Unlock()
	for h.waitsForDrain() != "" {
		time.Sleep(time.Second)
	}
}

// settle ends all faults. Then all that waits goes ahead.
func (h *history) settle() {
	h.api.SetFaults(false)
	h.calm = true
	h.say("all faults end")
	if h.stop == nil {
		h.start()
	}
	if b := fakeapi.Get[*v1alpha1.NodeDisruptionBudget](h.api, "", "freeze"); b != nil {
		h.do(h.api.Remove(b))
	}
	for _, node := range fakeapi.All[*corev1.Node](h.api) {
		h.kubelets.SetReady(node, corev1.ConditionTrue)
	}
	for until := time.Now().Add(6 * time.Hour); !h.isBroken(); time.Sleep(20 * time.Minute) {
		h.createJobs() // of which an earlier one may have been deleted slowly
		why := h.waitsFor()
		if why == "" {
			return
		}
		if time.Now().After(until) {
			h.breaks("all faults have ended, and %s", why)
		}
		for _, job := range fakeapi.All[*v1alpha1.NodeJob](h.api) {
			if meta.IsStatusConditionTrue(job.Status.Conditions, v1alpha1.ConditionStalled) {
				h.retry(job) // its tasks have failed before, or a drain has timed out because many wait for each other
			}
		}
	}
}

// waitsFor returns what has not ended; "" if everything has.
func (h *history) waitsFor() string {
	for _, job := range fakeapi.All[*v1alpha1.NodeJob](h.api) {
		if job.Status.ObservedGeneration != job.Generation ||
			!meta.IsStatusConditionTrue(job.Status.Conditions, v1alpha1.ConditionComplete) {
			return fmt.Sprintf("NodeJob %s is not complete: %+v", job.Name, job.Status.Conditions)
		}
	}
	return h.waitsForDrain()
}

func (h *history) waitsForDrain() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, what := range h.drains {
		return what + " does not end"
	}
	return ""
}

// deleteAll deletes everything. Then nothing is left on nodes, and nothing protects them.
func (h *history) deleteAll() {
	h.say("everything is deleted")
	for _, o := range objects(h.api) {
		h.do(h.api.Remove(o))
	}
	if h.one(2) {
		h.crash()
		h.start()
	}
	for until := time.Now().Add(2 * time.Hour); ; time.Sleep(time.Minute) {
		why := h.left()
		if why == "" {
			return
		}
		if time.Now().After(until) {
			h.breaks("everything was deleted, and %s", why)
			return
		}
	}
}

// objects are those of users.
func objects(api *fakeapi.Server) (all []client.Object) {
	for _, o := range fakeapi.All[*v1alpha1.NodeJob](api) {
		all = append(all, o)
	}
	for _, o := range fakeapi.All[*v1alpha1.NodeGuard](api) {
		all = append(all, o)
	}
	for _, o := range fakeapi.All[*v1alpha1.NodeDisruptionBudget](api) {
		all = append(all, o)
	}
	return all
}

// left returns what is left of Everynode; "" if nothing is.
func (h *history) left() string {
	for _, o := range objects(h.api) {
		return fmt.Sprintf("%s %s is left", fakeapi.KindOf(o), o.GetName())
	}
	for _, b := range fakeapi.All[*policyv1.PodDisruptionBudget](h.api) {
		return fmt.Sprintf("PodDisruptionBudget %s is left", b.Name)
	}
	for _, pod := range fakeapi.All[*corev1.Pod](h.api) {
		if pod.Namespace == uninstall.Namespace || len(pod.Finalizers) > 0 || pod.Labels[v1alpha1.NodeGuardLabel] != "" {
			return fmt.Sprintf("pod %s/%s is left", pod.Namespace, pod.Name)
		}
	}
	for _, node := range fakeapi.All[*corev1.Node](h.api) {
		if node.Spec.Unschedulable || len(node.Spec.Taints) > 0 {
			return fmt.Sprintf("node %s is unschedulable: %v, taints %v", node.Name, node.Spec.Unschedulable, node.Spec.Taints)
		}
		for _, keys := range []map[string]string{node.Labels, node.Annotations} {
			for key := range keys {
				if strings.Contains(key, v1alpha1.Group) {
					return fmt.Sprintf("node %s has %s", node.Name, key)
				}
			}
		}
	}
	return ""
}
