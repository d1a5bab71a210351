// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"flag"
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/manager/loop"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/seal"
	"github.com/everynode/everynode/internal/testing/fakeapi"
)

var (
	histories = flag.Int("histories", 40, "how many random histories to play")
	seed      = flag.Int64("seed", 0, "play only the history of this seed, and print its story")
	from      = flag.Int64("from", 1, "the first of them, to play many in pieces")
	list      = flag.Bool("list", false, "list all broken histories, and do not stop at the first")
)

// keptHistories are histories that once broke a rule, because of mistakes in the controller. They are played first.
var keptHistories = []int64{}

// TestRandomHistories plays seeded histories of a small cluster with the controllers, their watches, caches and queues. Nothing
// but events and the times that the manager itself has asked for cause a pass. A NodeJob whose next pass would change
// something, although the manager waits for nothing, has lost an event.
//
// To see one: go test ./internal/manager/controller -run TestRandomHistories -seed N -v
func TestRandomHistories(t *testing.T) {
	if *seed != 0 {
		h := playHistory(t, *seed)
		t.Log(strings.Join(h.lines, "\n"))
		if h.broken != "" {
			t.Fatal(h.broken)
		}
		return
	}
	seeds := slices.Clone(keptHistories)
	for s := range int64(*histories) {
		seeds = append(seeds, *from+s)
	}
	const share = 2
	for i := range share {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			for j := i; j < len(seeds) && (*list || !t.Failed()); j += share {
				if h := playHistory(t, seeds[j]); h.broken != "" {
					t.Errorf("seed %d: %s", seeds[j], h.broken)
				}
			}
		})
	}
}

type history struct {
	*rand.Rand
	t   *testing.T
	api *fakeapi.Server
	// kubelets are those of all nodes.
	kubelets *fakeapi.Kubelets
	// r is the current manager, which stop ends.
	r    *Reconciler
	stop func()
	// flaky is true if tasks sometimes fail.
	flaky bool
	// byHand are the nodes that users have cordoned. nodes and edits count those that were created.
	byHand       map[types.UID]bool
	nodes, edits int
	// ran is how often a task has succeeded, and succeeded whether it has, for a revision on a node.
	ran       map[taskRun]int
	succeeded map[taskRun]bool

	mu     sync.Mutex
	lines  []string
	broken string
}

func (h *history) say(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

func (h *history) breaks(format string, args ...any) {
	if h.broken == "" {
		h.broken = fmt.Sprintf(format, args...)
		h.say("BROKEN %s", h.broken)
	}
}

// do makes a request of a client other than the manager.
func (h *history) do(err error) {
	if err != nil {
		h.t.Error(err)
	}
}

func playHistory(t *testing.T, seed int64) (h *history) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h = &history{
			Rand: rand.New(rand.NewSource(seed)), t: t, byHand: map[types.UID]bool{}, ran: map[taskRun]int{}, succeeded: map[taskRun]bool{},
		}
		h.api = fakeapi.New(t, seed, h.Intn(3) == 0)
		h.api.Stored, h.flaky = h.stored, h.Intn(2) == 0
		h.kubelets = &fakeapi.Kubelets{
			Server: h.api, Succeeded: h.podSucceeded, Fails: func(pod *corev1.Pod) bool { return h.flaky && h.api.Roll(4, pod.UID) == 0 },
		}
		h.api.SetFaults(true)
		h.do(h.api.Create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}}))
		h.do(h.api.Create(h.newContent()))
		for range 3 + h.Intn(3) {
			h.join()
		}
		h.createJobs()
		h.restart()
		defer func() { h.stop() }()
		for range 15 + h.Intn(15) {
			h.event()
			time.Sleep(time.Duration(h.Int63n(int64([]time.Duration{time.Second, 30 * time.Second, 3 * time.Minute}[h.Intn(3)]))))
			if h.look(); h.broken != "" {
				return
			}
		}
		if h.settle(); h.broken == "" {
			h.deleteAll()
		}
	})
	return h
}

// restart ends the manager and starts another one.
func (h *history) restart() {
	if h.stop != nil {
		h.stop()
	}
	cached, err := CacheOptions(seal.Key{})
	if err != nil {
		h.t.Fatal(err)
	}
	mgr, err := ctrl.NewManager(h.api.Config(), ctrl.Options{
		Scheme: h.api.Scheme, Cache: cached, Logger: logr.Discard(), Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: new(true)}, NewClient: loop.NewClient,
	})
	if err != nil {
		h.t.Fatal(err)
	}
	h.r = New(
		mgr.GetClient(),
		mgr.GetAPIReader(),
		h,
		NewMetrics(prometheus.NewRegistry()),
		task.Options{RunnerImage: "registry.example/runner"},
	)
	ctx, cancel := context.WithCancel(h.t.Context())
	if err := h.r.SetupWithManager(ctx, mgr); err != nil {
		h.t.Fatal(err)
	}
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

// Eventf makes the events of the manager a part of the story.
func (h *history) Eventf(regarding, _ runtime.Object, _, reason, _, note string, args ...any) {
	h.say("  %s %s: %s: %s", fakeapi.KindOf(regarding), regarding.(client.Object).GetName(), reason, fmt.Sprintf(note, args...))
}

// quietFor is longer than the manager collects events and waits after errors.
const quietFor = 40 * time.Second

// look makes another pass of each NodeJob if all is quiet. It must change nothing.
func (h *history) look() {
	if !h.api.Quiet(quietFor) {
		return
	}
	faults := h.api.SetFaults(false)
	defer h.api.SetFaults(faults)
	for _, job := range fakeapi.All[*v1alpha1.NodeJob](h.api) {
		version := h.api.Version()
		_, err := h.r.Reconcile(h.t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(job)})
		if synctest.Wait(); err != nil || h.api.Version() != version {
			after := fakeapi.Get[*v1alpha1.NodeJob](h.api, "ns", job.Name)
			h.breaks("another pass of NodeJob %s changes something (%v): an event is lost\n%s", job.Name, err, cmp.Diff(job, after))
		}
	}
	for key, times := range h.ran {
		if times > 1 {
			h.breaks("the task has succeeded %d times: %+v", times, key)
		}
	}
}

// awaitRest waits until all NodeJobs have finished.
func (h *history) awaitRest(most time.Duration, rests func(*v1alpha1.NodeJob) bool) {
	for until := time.Now().Add(most); h.broken == ""; time.Sleep(time.Minute) {
		h.look()
		jobs := fakeapi.All[*v1alpha1.NodeJob](h.api)
		i := slices.IndexFunc(jobs, func(j *v1alpha1.NodeJob) bool { return !rests(j) })
		if i < 0 && h.api.Quiet(quietFor) {
			return
		}
		if time.Now().After(until) {
			if i < 0 {
				h.breaks("it never is quiet")
				return
			}
			h.breaks("NodeJob %s does not come to rest: %+v", jobs[i].Name, jobs[i].Status)
			return
		}
	}
}

// otherStalled reports whether another NodeJob is Stalled: its failed nodes stay cordoned, and those that depend on it wait.
func (h *history) otherStalled(job *v1alpha1.NodeJob) bool {
	return slices.ContainsFunc(fakeapi.All[*v1alpha1.NodeJob](h.api), func(other *v1alpha1.NodeJob) bool {
		return other.UID != job.UID && meta.IsStatusConditionTrue(other.Status.Conditions, v1alpha1.ConditionStalled)
	})
}

// settle ends all faults. Then only time passes.
func (h *history) settle() {
	h.api.SetFaults(false)
	h.flaky = false
	h.say("all faults end")
	if len(fakeapi.All[*corev1.ConfigMap](h.api)) == 0 {
		h.do(h.api.Create(h.newContent()))
	}
	for _, job := range fakeapi.All[*v1alpha1.NodeJob](h.api) {
		fakeapi.Edit(h.api, job, func(j *v1alpha1.NodeJob) { j.Spec.Suspend = false })
		if job.DeletionTimestamp != nil {
			h.retry(job) // a rollback may have failed
		}
	}
	for _, node := range fakeapi.All[*corev1.Node](h.api) {
		h.kubelets.SetReady(node, corev1.ConditionTrue)
		if h.byHand[node.UID] {
			fakeapi.Edit(h.api, node, func(n *corev1.Node) { n.Spec.Unschedulable = false })
		}
		time.Sleep(time.Duration(h.Intn(3)) * 10 * time.Second)
	}
	h.awaitRest(2*time.Hour, func(j *v1alpha1.NodeJob) bool { return j.DeletionTimestamp.IsZero() })
	h.createJobs()
	h.awaitRest(2*time.Hour, func(j *v1alpha1.NodeJob) bool {
		is := func(kind string) bool { return meta.IsStatusConditionTrue(j.Status.Conditions, kind) }
		return j.Status.ObservedGeneration == j.Generation && (!is(v1alpha1.ConditionReconciling) || h.otherStalled(j))
	})
	if h.look(); h.broken != "" {
		return
	}
	for _, node := range fakeapi.All[*corev1.Node](h.api) {
		for _, job := range fakeapi.All[*v1alpha1.NodeJob](h.api) {
			if rev := node.Labels[v1alpha1.RecordKey("ns", job.Name)]; rev != "" && !h.succeeded[taskRun{node: node.UID, revision: rev}] {
				h.breaks("node %s is done with revision %s, which has not run there", node.Name, rev)
			}
		}
	}
}

// deleteAll deletes all NodeJobs. Nothing of them may remain, but for the records of those that retain them.
func (h *history) deleteAll() {
	h.api.SetFaults(true)
	retained := map[string]bool{}
	if h.Intn(2) == 0 { // no manager runs for a while
		h.stop()
		h.stop = nil
	}
	for _, job := range fakeapi.All[*v1alpha1.NodeJob](h.api) {
		retained[job.Name] = job.Spec.DeletionPolicy == v1alpha1.DeletionRetain
		h.say("delete NodeJob %s (%s)", job.Name, job.Spec.DeletionPolicy)
		h.retry(job)
		h.do(h.api.Remove(job))
	}
	for range 3 {
		time.Sleep(2 * time.Minute)
		h.restart()
	}
	h.api.SetFaults(false)
	h.awaitRest(2*time.Hour, func(*v1alpha1.NodeJob) bool { return false })
	for _, node := range fakeapi.All[*corev1.Node](h.api) {
		if len(node.Spec.Taints) > 0 || node.Spec.Unschedulable {
			h.breaks("node %s has the taints %v, unschedulable %v", node.Name, node.Spec.Taints, node.Spec.Unschedulable)
		}
		for _, keys := range []map[string]string{node.Labels, node.Annotations} {
			for key := range keys {
				if name := key[strings.LastIndex(key, "/")+1:]; strings.HasPrefix(key, "ns.everynode.") && !retained[name] {
					h.breaks("node %s has %s", node.Name, key)
				}
			}
		}
	}
	for _, pod := range fakeapi.All[*corev1.Pod](h.api) {
		if pod.Namespace == "ns" && len(pod.Finalizers) > 0 {
			h.breaks("pod %s has the finalizers %s", pod.Name, pod.Finalizers)
		}
	}
}
