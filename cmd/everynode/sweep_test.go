// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"flag"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	gocmp "github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/observe"
	"github.com/everynode/everynode/internal/testing/fakeapi"
)

var (
	stride    = flag.Int("stride", 0, "sweep every how many-th fault of each scenario; $EVERYNODE_STRIDE, or 40, if 0")
	onlyFault = flag.String("fault", "", "only the fault with this name, and tell the story")
)

// strideByDefault leaves about two hundred faults for all scenarios together.
const strideByDefault = 40

// scenario is what users and tools do.
type scenario struct {
	// nodes is how many there are in the beginning.
	nodes int
	// fails reports whether a pod fails: the nth that ends for this node and this phase, counted from 1.
	fails func(node, phase string, nth int) bool
	// play is what happens. It waits with await.
	play func(w *sweep)
}

// TestSweep plays each scenario with the whole manager: once without a fault, and then with each fault at each write of the manager in
// turn, and with an interrupted watch at each change in turn. The final state must be the same each time.
//
// make test plays one of 40 faults, and make sweep all of them.
// One of them: -run 'TestSweep/drain_and_reboot' -fault 'the manager ends after 17'.
func TestSweep(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	for _, name := range slices.Sorted(maps.Keys(scenarios)) {
		t.Run(name, func(t *testing.T) { sweepAll(t, scenarios[name]) })
	}
}

// meets is one fault: at the write, or at the change, with a number.
type meets struct {
	fault fakeapi.Fault
	at    int
}

// interrupted watches are a fault of a change, not of a write.
const interrupted fakeapi.Fault = "the watches are interrupted at"

func (m meets) String() string { return fmt.Sprintf("%s %d", m.fault, m.at) }

// isOfWrite reports whether a write of the manager meets the fault. Otherwise something happens at a change.
func (m meets) isOfWrite() bool { return slices.Contains(fakeapi.Faults, m.fault) }

// every is how many faults there are for each that is played. make test sets it in the environment, because go test's cache ignores flags.
func every() int {
	if n, err := strconv.Atoi(os.Getenv("EVERYNODE_STRIDE")); *stride == 0 && err == nil && n > 0 {
		return n
	}
	return cmp.Or(*stride, strideByDefault)
}

// roll returns a number below n that depends on a text, so that what is chosen is not all of the same kind.
func roll(n int, text string) int {
	h := fnv.New32a()
	h.Write([]byte(text))
	return int(h.Sum32() % uint32(n))
}

// sweepAll plays a scenario with its faults, or with some of them.
func sweepAll(t *testing.T, s scenario) {
	calm := playSweep(t, s, nil, "")
	if calm.broken != "" {
		t.Fatalf("without faults: %s\n%s", calm.broken, strings.Join(calm.lines, "\n"))
	}
	all := append(writeFaults(calm), changesMeet(calm, interrupted)...)
	var chosen [][]meets
	for _, m := range all {
		if *onlyFault == "" && roll(every(), m.String()) == 0 || m.String() == *onlyFault {
			chosen = append(chosen, []meets{m})
		}
	}
	t.Logf("%d writes, %d changes; %d faults are played", len(calm.writes), calm.ended-calm.began, len(chosen))
	t.Logf("the final state:\n%s", calm.final)
	playFaults(t, s, chosen, calm)
}

// writeFaults are all faults at each write of a play.
func writeFaults(calm *sweep) (all []meets) {
	for at := range calm.writes {
		for _, f := range fakeapi.Faults {
			all = append(all, meets{f, at + 1})
		}
	}
	return all
}

// changesMeet is what happens at each change of a play.
func changesMeet(calm *sweep, what fakeapi.Fault) (all []meets) {
	for at := calm.began; at <= calm.ended; at++ {
		all = append(all, meets{what, at})
	}
	return all
}

// playFaults plays a scenario with each of the faults, or combinations of them, on all processors.
func playFaults(t *testing.T, s scenario, faults [][]meets, calm *sweep) {
	onAllProcessors(faults, func(all []meets) {
		w := playSweep(t, s, all, calm.final)
		if *onlyFault != "" {
			t.Log(strings.Join(w.lines, "\n"))
		}
		if w.broken == "" {
			return
		}
		var names []string
		for _, m := range all {
			name := m.String()
			if m.isOfWrite() && m.at <= len(w.writes) {
				name += " (" + w.writes[m.at-1] + ")"
			}
			names = append(names, name)
		}
		t.Errorf("%s: %s", strings.Join(names, ", "), w.broken)
	})
}

// onAllProcessors plays each of some plays, as many at once as there are processors.
func onAllProcessors[T any](all []T, play func(T)) {
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for _, one := range all {
		group.Go(func() error {
			play(one)
			return nil
		})
	}
	_ = group.Wait() // the functions return no error
}

// sweep is one play of a scenario.
type sweep struct {
	*history
	scenario scenario
	// writes are those of the manager since the beginning of the scenario.
	writes []string
	// began and ended are the numbers of the first and the last change of the scenario.
	began, ended int
	// counts are how many pods have ended, and succeeded how many have succeeded, by node and phase.
	counts, succeeded map[string]int
	// died is sent when the manager dies.
	died chan struct{}
	// final is the summary of the final state.
	final string
}

const (
	// down is how long no manager runs after one has died.
	down = 5 * time.Second
	// rests is how long nothing happens after which a scenario has ended.
	rests = 15 * time.Minute
	// longest is how long a scenario may take.
	longest = 6 * time.Hour
)

// playSweep plays a scenario with some faults until its state is want. If want is "", it plays it until nothing happens any more.
func playSweep(t *testing.T, s scenario, faults []meets, want string) (w *sweep) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w = &sweep{
			history: &history{
				Rand: rand.New(rand.NewSource(1)), t: t, drains: map[types.UID]string{}, oracle: newOracle(), calm: true,
			},
			scenario: s, counts: map[string]int{}, succeeded: map[string]int{}, died: make(chan struct{}, 1),
		}
		w.api = fakeapi.New(t, 1, false)
		w.kubelets = &fakeapi.Kubelets{Server: w.api, Succeeded: w.podSucceeded, Fails: w.podFails}
		w.listen()
		w.prepare()
		var reviving sync.WaitGroup
		reviving.Go(w.revive)
		defer func() {
			close(w.died)
			reviving.Wait()
			w.end()
		}()
		w.began = w.api.Version() + 1
		w.meets(faults)
		s.play(w)
		w.rest(want)
		w.ended = w.api.Version()
	})
	return w
}

// meets has the faults happen when their writes and changes do.
func (w *sweep) meets(faults []meets) {
	w.api.Meets = func(what string) fakeapi.Fault {
		w.writes = append(w.writes, what)
		for _, m := range faults {
			if m.isOfWrite() && len(w.writes) == m.at {
				w.say("%s %s", m, what)
				if m.fault.Kills() {
					w.died <- struct{}{}
				}
				return m.fault
			}
		}
		return fakeapi.NoFault
	}
	changes := w.api.Version()
	w.api.Stored = func(before, after client.Object) {
		w.stored(before, after)
		changes++
		for _, m := range faults {
			if do := others[m.fault]; do != nil && changes == m.at {
				w.say("%s", m)
				w.goes(m.String(), types.UID(m.fault), func() { do(w) })
			}
		}
	}
	for _, m := range faults {
		if m.fault == interrupted {
			w.api.Interrupts = m.at
		}
	}
}

// prepare creates what each scenario begins with.
func (w *sweep) prepare() {
	w.history.prepare()
	for n := range w.scenario.nodes {
		w.join([]string{"a", "b"}[n%2])
		time.Sleep(time.Second) // the order of nodes is that of their creation
	}
	w.start()
	time.Sleep(time.Minute)
}

// revive starts another manager for each that dies.
func (w *sweep) revive() {
	for range w.died {
		w.crash()
		time.Sleep(down)
		w.api.Revive()
		w.start()
	}
}

// await waits for a condition.
func (w *sweep) await(what string, is func() bool) {
	for until := time.Now().Add(longest); !w.isBroken() && !is(); time.Sleep(time.Second) {
		if time.Now().After(until) {
			w.breaks("after %s, still not: %s\n%s", longest, what, w.summary())
		}
	}
}

// rest waits until the final state is that of the scenario without faults, or until nothing happens.
func (w *sweep) rest(want string) {
	for until := time.Now().Add(longest); !w.isBroken(); time.Sleep(time.Minute) {
		w.final = w.summary()
		switch quiet := w.api.Quiet(rests); {
		case want != "" && w.final == want && w.waitsForDrain() == "" && w.api.Quiet(time.Minute), want == "" && quiet:
			return
		case time.Now().After(until) && want == "":
			w.breaks("after %s, something still happens", longest)
		case time.Now().After(until) || want != "" && quiet:
			w.breaks(
				"the final state differs (-without the fault +with it):\n%s",
				gocmp.Diff(strings.Split(want, "\n"), strings.Split(w.final, "\n")),
			)
		}
	}
}

func (w *sweep) podFails(pod *corev1.Pod) bool {
	phase := phaseOf(pod)
	w.mu.Lock()
	defer w.mu.Unlock()
	key := pod.Spec.NodeName + " " + phase
	w.counts[key]++
	return w.scenario.fails != nil && w.scenario.fails(pod.Spec.NodeName, phase, w.counts[key])
}

func (w *sweep) podSucceeded(node *corev1.Node, pod *corev1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.succeeded[node.Name+" "+phaseOf(pod)]++
}

// phaseOf is the NodeJob of a pod and what it runs; "check" for that of a NodeGuard.
func phaseOf(pod *corev1.Pod) string {
	if job := pod.Labels[v1alpha1.NodeJobLabel]; job != "" {
		return job + " " + string(observe.Pod(pod).Runs)
	}
	return pod.Labels[v1alpha1.GuardRoleLabel]
}

// summary is the state of the cluster, without names and times that depend on when something happened.
func (w *sweep) summary() string {
	var lines []string
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	for _, node := range fakeapi.All[*corev1.Node](w.api) {
		add("node %s: unschedulable %v, taints %v", node.Name, node.Spec.Unschedulable, taintKeys(node))
		for _, key := range slices.Sorted(maps.Keys(node.Labels)) {
			if !strings.Contains(key, "node-restriction") { // the seal of a record has its times
				add("  label %s=%s", key, node.Labels[key])
			}
		}
		for _, key := range slices.Sorted(maps.Keys(node.Annotations)) {
			add("  annotation %s%s", key, recorded(node.Annotations[key]))
		}
	}
	for _, job := range fakeapi.All[*v1alpha1.NodeJob](w.api) {
		add("NodeJob %s: %+v%s", job.Name, job.Status.Nodes, conditions(job.Status.Conditions))
	}
	for _, g := range fakeapi.All[*v1alpha1.NodeGuard](w.api) {
		add("NodeGuard %s: %+v%s", g.Name, g.Status.Nodes, conditions(g.Status.Conditions))
	}
	for _, b := range fakeapi.All[*v1alpha1.NodeDisruptionBudget](w.api) {
		add("NodeDisruptionBudget %s: %+v%s", b.Name, b.Status.Nodes, conditions(b.Status.Conditions))
	}
	for _, b := range fakeapi.All[*policyv1.PodDisruptionBudget](w.api) {
		add("PodDisruptionBudget %s: minAvailable %v", b.Name, b.Spec.MinAvailable)
	}
	var pods []string
	for _, pod := range fakeapi.All[*corev1.Pod](w.api) {
		if pod.Spec.NodeName == "" {
			continue // a fault may need more placeholders, and they stay
		}
		pods = append(
			pods,
			fmt.Sprintf("pod on %s: %s%s %s", pod.Spec.NodeName, phaseOf(pod), pod.Labels[v1alpha1.BudgetGroupLabel], pod.Status.Phase),
		)
	}
	lines = append(lines, slices.Sorted(slices.Values(pods))...)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(w.succeeded)) {
		if !strings.HasSuffix(key, "check") { // a question may be asked again
			add("succeeded on %s: %d", key, w.succeeded[key])
		}
	}
	return strings.Join(lines, "\n")
}

func taintKeys(node *corev1.Node) (keys []string) {
	for _, taint := range node.Spec.Taints {
		keys = append(keys, taint.Key)
	}
	return keys
}

func conditions(all []metav1.Condition) string {
	var lines strings.Builder
	for _, c := range slices.SortedFunc(slices.Values(all), func(a, b metav1.Condition) int { return strings.Compare(a.Type, b.Type) }) {
		fmt.Fprintf(&lines, "\n  %s %s (%s)", c.Type, c.Status, c.Reason)
	}
	return lines.String()
}

// recorded is what a record says; "" for another text.
func recorded(text string) string {
	rec, err := record.Decode(text)
	if err != nil {
		return ""
	}
	said := fmt.Sprintf(": %s %s, attempts %d, labels removed %v", rec.Outcome, rec.Reason, rec.Attempts, rec.RemovedLabels)
	if rec.Rollback != nil {
		said += fmt.Sprintf(", rollback %s %d", rec.Rollback.Outcome, rec.Rollback.Attempts)
	}
	if rec.Reboot != nil {
		said += ", reboot"
	}
	return said
}

// isComplete reports whether a NodeJob has finished its current generation.
func (w *sweep) isComplete(name string) bool { return w.has(name, v1alpha1.ConditionComplete) }

// has reports whether a NodeJob has a condition for its current generation.
func (w *sweep) has(name, condition string) bool {
	return w.observed(name) &&
		meta.IsStatusConditionTrue(fakeapi.Get[*v1alpha1.NodeJob](w.api, namespace, name).Status.Conditions, condition)
}

// observed reports whether the status of a NodeJob is that of its current generation.
func (w *sweep) observed(name string) bool {
	job := fakeapi.Get[*v1alpha1.NodeJob](w.api, namespace, name)
	return job != nil && job.Status.ObservedGeneration == job.Generation
}
