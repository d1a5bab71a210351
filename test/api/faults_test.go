// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/manager/controller"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/seal"
)

var (
	worldsAtOnce = flag.Int("worlds", 20, "how many rollouts with a fault are played at once")
	everyFault   = flag.Bool("every-fault", false, "let each write meet each fault")
)

// The nodes of the simulated rollout: n1 is the oldest and so the canary, n3 requests a reboot, n4 succeeds like n1,
// and n5 joins when the revision is stable.
const (
	canary     = "n1"
	fails      = "n2"
	asks       = "n3"
	joinsLater = "n5"
)

// statusWrite is how the names of the writes of the status begin.
const statusWrite = "status of the NodeJob "

// TestNoFaultOfAWriteChangesWhatARolloutComesTo plays a rollout with everything in it once without
// faults, and then repeatedly: the first write of each kind meets two or three of the faults. The final state, and the states that must
// never occur, are the same. TestSweep of the manager lets each write meet each fault, without an API server.
func TestNoFaultOfAWriteChangesWhatARolloutComesTo(t *testing.T) {
	var writes []string
	t.Run("without faults", func(t *testing.T) {
		c := newCut(fault{}, "")
		playRollout(t, c)
		writes, _ = c.seen()
	})
	if t.Failed() {
		return
	}
	for _, sort := range []string{"create the pod of task", "patch the pod of task", "delete the pod of task", "create the pod of rollback", "create the pod of reboot", "create the pod of check",
		"eviction of pod", "patch " + canary, "patch " + fails, "patch " + asks + " 5", "patch of the NodeJob", statusWrite} {
		if !slices.ContainsFunc(writes, func(name string) bool { return strings.HasPrefix(name, sort) }) {
			t.Errorf("no write is called %q: %q", sort, writes)
		}
	}
	t.Logf("%d writes without faults", len(writes))
	// How often the status is written depends on the time.
	statuses := 0
	for _, name := range writes {
		if strings.HasPrefix(name, statusWrite) {
			statuses++
		}
	}
	writes = append(writes, fmt.Sprint(statusWrite, statuses+1), fmt.Sprint(statusWrite, statuses+2))
	first := firstOfEachSort(writes)
	slots := make(chan struct{}, *worldsAtOnce)
	var playing sync.WaitGroup
	for nth, f := range allFaults {
		meet := writes
		if !*everyFault {
			meet = everyThird(first, nth)
		}
		playing.Go(func() { t.Run(f.name, func(t *testing.T) { cutEach(t, f, meet, slots) }) })
	}
	playing.Wait()
}

// firstOfEachSort are the writes of which one differs from another by more than a number.
func firstOfEachSort(writes []string) []string {
	var first []string
	seen := map[string]bool{}
	for _, name := range writes {
		sort := strings.Map(func(r rune) rune {
			if unicode.IsDigit(r) {
				return -1
			}
			return r
		}, name)
		if !seen[sort] {
			seen[sort] = true
			first = append(first, name)
		}
	}
	return first
}

// everyThird returns each third text, from one of the first three on.
func everyThird(texts []string, from int) (some []string) {
	for i := from % 3; i < len(texts); i += 3 {
		some = append(some, texts[i])
	}
	return some
}

// leastPatches are those that each node gets in every rollout.
var leastPatches = map[string]int{canary: 4, fails: 7, asks: 6, "n4": 4, joinsLater: 4}

// dependsOnTime reports whether a write may not occur in each rollout: a status write, or a later write on a node. Two
// writes may be merged into one, and a conflict adds one.
func dependsOnTime(write string) bool {
	var node string
	var n int
	if _, err := fmt.Sscanf(write, "patch %s %d", &node, &n); err == nil && leastPatches[node] > 0 {
		return n > leastPatches[node]
	}
	return strings.HasPrefix(write, statusWrite)
}

// cutEach plays a rollout for each of the writes, as many at once as there are slots.
func cutEach(t *testing.T, f fault, writes []string, slots chan struct{}) {
	var playing sync.WaitGroup
	var missed atomic.Int32
	began := time.Now()
	for _, write := range writes {
		slots <- struct{}{}
		playing.Go(func() {
			defer func() { <-slots }()
			t.Run(write, func(t *testing.T) {
				c := newCut(f, write)
				defer func() {
					if names, _ := c.seen(); t.Failed() {
						t.Logf("%s at %q; the writes were %q", f.name, write, names)
					}
				}()
				playRollout(t, c)
				if _, reached := c.seen(); !reached {
					missed.Add(1)
					if !dependsOnTime(write) {
						t.Error("the write never came")
					}
				}
			})
		})
	}
	playing.Wait()
	t.Logf("%d writes, of which %d never came, in %s", len(writes), missed.Load(), time.Since(began).Round(time.Second))
}

// playRollout plays a rollout to its end and then deletes it, with one fault.
func playRollout(t *testing.T, c *cut) {
	w := newWorld(t)
	name := func(role string) string { return w.Namespace + "-" + role }
	for i := 1; i <= 4; i++ {
		w.comes(name(fmt.Sprintf("n%d", i)), map[string]string{"x.test/wanted": "yes"})
	}
	w.workload("web", name(fails))
	k := w.playKubelet(map[string]int32{fails: 7})
	w.keepManager(c)
	job := w.job("plays", func(s *v1alpha1.NodeJobSpec) {
		whole(s)
		s.Gate.Nodes = v1alpha1.GateAll
		s.Maintenance = v1alpha1.MaintenanceSpec{
			Cordon:         true,
			Reboot:         v1alpha1.RebootSpec{Policy: v1alpha1.RebootIfRequested, MinReadySeconds: new(int32(0))},
			MaxUnavailable: number(4),
		} // the failed node must not block the others
		s.Task.Check = &v1alpha1.CheckSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "true"}}
		s.Retry.Limit = new(int32(1))
		s.Rollout = v1alpha1.RolloutSpec{MaxConcurrent: number(2), MaxFailures: number(1)} // canary, all
		s.Rollback = &v1alpha1.RollbackSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "true"}}
		s.OnFailure.Action = v1alpha1.FailureActionDrain
	})

	var proven time.Time
	k.await(t, "the revision is stable", func() error {
		if k.job == nil || k.job.Status.Rollout == nil || k.job.Status.Rollout.StableAt.IsZero() {
			return fmt.Errorf("it is not: %+v", k.job)
		}
		proven = k.job.Status.Rollout.StableAt.Time
		return nil
	})
	k.await(t, "web is evicted", func() error { return k.noPod("web") })
	// A node's age is in whole seconds. This one also wakes the manager, which would look after what it has
	// evicted 5 s later.
	time.Sleep(time.Until(proven.Add(time.Second)))
	w.comes(name(joinsLater), map[string]string{"x.test/wanted": "yes"})
	k.await(t, "all is done that is to be done", func() error {
		return errors.Join(settled(k.job), k.noPod())
	})
	w.checkNodes(k, name)

	must(t, admin.Delete(w.Ctx, job))
	k.await(t, "the NodeJob is gone", func() error {
		if k.job != nil {
			return fmt.Errorf("it is %+v", k.job)
		}
		return k.noPod()
	})
	for i := 1; i <= 5; i++ {
		node := w.liveNode(name(fmt.Sprintf("n%d", i)))
		on := record.Read(node.Labels, node.Annotations, v1alpha1.RecordKey(w.Namespace, "plays"))
		if on.Present || on.Label != "" || node.Spec.Unschedulable || node.Annotations[v1alpha1.CordonedAnnotation] != "" {
			t.Errorf("%s carries %+v and is %+v", node.Name, on, node.Spec)
		}
		if left := shows(node, v1alpha1.RecordKey(w.Namespace, "plays")); left != "" && left != "wanted" {
			t.Errorf("%s shows %q", node.Name, left)
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, wrong := range k.wrong {
		t.Error(wrong)
	}
}

func number(n int32) *intstr.IntOrString { v := intstr.FromInt32(n); return &v }

// settled returns nil if the status is the final one of the rollout.
func settled(job *v1alpha1.NodeJob) error {
	if job == nil {
		return errors.New("there is no NodeJob")
	}
	s := job.Status
	conditions := map[string]string{}
	for _, c := range s.Conditions {
		conditions[c.Type] = string(c.Status) + " " + c.Reason
	}
	want := map[string]string{
		v1alpha1.ConditionComplete:       "False " + v1alpha1.ReasonNodesFailed,
		v1alpha1.ConditionReconciling:    "False " + v1alpha1.ReasonNodesFailed,
		v1alpha1.ConditionStalled:        "True " + v1alpha1.ReasonNodesFailed,
		v1alpha1.ConditionRollbackFailed: "False " + v1alpha1.ReasonNoRollbackFailed,
		v1alpha1.ConditionGateEnforced:   "False " + v1alpha1.ReasonNoAdmissionPolicy,
	}
	counts := v1alpha1.NodeCounts{Total: 5, Done: 4, Failed: 1, RolledBack: 1}
	steps := []v1alpha1.StepStatus{{Name: "canary", Nodes: 1, Done: 1}, {Name: "all", Nodes: 4, Done: 3, Failed: 1}}
	switch {
	case s.Nodes != counts:
		return fmt.Errorf("the counts are %+v", s.Nodes)
	case !maps.Equal(conditions, want):
		return fmt.Errorf("the conditions are %v", conditions)
	case s.Rollout.Step != "all" || !slices.Equal(s.Rollout.Steps, steps) || len(s.Rollout.UnrecordedFailures) > 0 || len(s.Drains) > 0:
		return fmt.Errorf("the rollout is %+v", s.Rollout)
	case len(s.Failures) != 1 || role(s.Failures[0].Node) != fails || s.Failures[0].Attempts != 2 ||
		s.Failures[0].Rollback != v1alpha1.ReasonRolledBack || s.Failures[0].Quarantine != v1alpha1.ReasonDrained:
		return fmt.Errorf("the failures are %+v", s.Failures)
	}
	return nil
}

// checkNodes checks the nodes, and how often the task started on each.
func (w *world) checkNodes(k *kubelet, name func(string) string) {
	w.T.Helper()
	revision := w.live("plays").Status.Revision
	wantStarts := map[string]int{"task on " + fails: 2, "rollback on " + fails: 1, "reboot on " + asks: 1, "check on " + asks: 1}
	wantSuccesses := map[string]int{}
	for _, role := range []string{canary, asks, "n4", joinsLater} {
		wantStarts["task on "+role], wantSuccesses[role] = 1, 1
		node := w.liveNode(name(role))
		on := record.Read(node.Labels, node.Annotations, v1alpha1.RecordKey(w.Namespace, "plays"))
		if on.Label != revision || on.Record == nil || on.Record.Outcome != record.Succeeded || on.Record.Attempts != 1 ||
			node.Spec.Unschedulable {
			w.T.Errorf("%s carries %+v, %+v and is %+v", role, on, on.Record, node.Spec)
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if diff := cmp.Diff(wantStarts, k.starts); diff != "" {
		w.T.Errorf("starts on the nodes (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(wantSuccesses, k.successes); diff != "" {
		w.T.Errorf("successes on record (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]int{asks: 1}, k.reboots); diff != "" {
		w.T.Errorf("reboots (-want +got):\n%s", diff)
	}
	node := w.liveNode(name(fails))
	on := record.Read(node.Labels, node.Annotations, v1alpha1.RecordKey(w.Namespace, "plays"))
	rec := on.Record
	switch {
	case on.Label != "" || rec == nil || rec.Outcome != record.Failed || rec.Attempts != 2:
		w.T.Errorf("the failed node carries %+v, %+v", on, rec)
	case rec.Rollback == nil || rec.Rollback.Outcome != record.Succeeded || rec.Rollback.Attempts != 1:
		w.T.Errorf("its rollback is %+v", rec.Rollback)
	case rec.Drain == nil || rec.Drain.Outcome != v1alpha1.ReasonDrained || !node.Spec.Unschedulable ||
		node.Annotations[v1alpha1.CordonedAnnotation] != v1alpha1.RecordKey(w.Namespace, "plays"):
		w.T.Errorf("its quarantine is %+v; %+v with %v", rec.Drain, node.Spec, node.Annotations)
	}
}

func (w *world) liveNode(name string) *corev1.Node {
	w.T.Helper()
	var node corev1.Node
	must(w.T, admin.Get(w.Ctx, client.ObjectKey{Name: name}, &node))
	return &node
}

// keepManager runs a manager for this world only, and replaces it if it dies, until the test ends.
func (w *world) keepManager(c *cut) {
	w.T.Helper()
	options, err := w.cacheOptions()
	must(w.T, err)
	stop, err := runManager(asManager, options, c.funcs(), &events.FakeRecorder{}, time.Now)
	must(w.T, err)
	ended := make(chan struct{})
	var keeping sync.WaitGroup
	keeping.Go(func() {
		select {
		case <-ended:
		case <-c.died:
			err := stop()
			c.revive()
			var startErr error
			if stop, startErr = runManager(
				asManager,
				options,
				c.funcs(),
				&events.FakeRecorder{},
				time.Now,
			); errors.Join(
				err,
				startErr,
			) != nil {
				w.T.Errorf("replacing the manager: %v", errors.Join(err, startErr))
				return
			}
			<-ended
		}
		if err := stop(); err != nil {
			w.T.Errorf("running the manager: %v", err)
		}
	})
	w.T.Cleanup(func() {
		close(ended)
		keeping.Wait()
	})
}

// cacheOptions are those of a manager that only observes this world.
func (w *world) cacheOptions() (cache.Options, error) {
	options, err := controller.CacheOptions(seal.Key{})
	if err != nil {
		return options, err
	}
	options.DefaultNamespaces = map[string]cache.Config{w.Namespace: {}}
	for kind, by := range options.ByObject {
		switch kind.(type) {
		case *corev1.Node:
			by.Label = labels.SelectorFromSet(labels.Set{"world": w.Namespace})
		case *corev1.Pod:
			// A selector, because a cache for named namespaces has no index of all pods.
			by.Namespaces, by.Field = map[string]cache.Config{}, fields.OneTermEqualSelector("metadata.namespace", w.Namespace)
		}
		options.ByObject[kind] = by
	}
	return options, nil
}
