// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/outcome"
	"github.com/everynode/everynode/internal/testing/explore"
)

// What can happen in a small world.

// longAway is how long a manager is away, longer than the progress deadline of a history.
const longAway = 400 * time.Second

// stepper collects the steps of a state.
type stepper struct {
	*explored
	faults int
	all    []explore.Step[explored]
}

func (w *explored) steps(faults int) []explore.Step[explored] {
	if w.gone {
		return nil
	}
	s := &stepper{explored: w, faults: faults}
	s.passes()
	for _, name := range w.podNames() {
		s.pod(name, w.pods[name])
	}
	for _, name := range sortedKeys(w.nodes) {
		s.node(name, w.nodes[name])
	}
	s.joins()
	s.users()
	if w.world.steps != nil {
		w.world.steps(s)
	}
	s.time()
	return s.all
}

// add adds a step of the environment, which the manager has to see.
func (s *stepper) add(faults int, do func(*explored), format string, args ...any) {
	if faults > s.faults {
		return
	}
	s.all = append(s.all, explore.Step[explored]{Name: fmt.Sprintf(format, args...), Faults: faults, Do: func(w *explored) {
		w.throws.Show()
		w.planned, w.quiet = false, false
		do(w)
		w.collect()
	}})
}

// passes are those of the manager: a whole one, and with a fault those in which each random decision of the simulation is the rare one.
// These are a write that fails, all writes after some, the status that is not written, and pods that are not released.
func (s *stepper) passes() {
	if !s.planned || !s.quiet {
		s.add(0, (*explored).plan, "the manager plans")
	}
	if s.faults == 0 {
		return
	}
	if !s.planned {
		s.add(1, func(w *explored) { w.unsure(func() { w.throws.Show(15) }) }, "the manager plans on what it saw last")
	}
	s.add(1, func(w *explored) { w.unsure(func() { w.throws.Show(2) }) }, "another manager plans")
	trial := explore.Clone(copies, s.explored)
	trial.unsure(func() { trial.throws.Show(5) })
	for i := 1; i < trial.throws.Count; i++ {
		s.add(
			1,
			func(w *explored) { w.unsure(func() { w.throws.ShowZeros(i, 5) }) },
			"the manager plans, and fails after %d decisions",
			i-1,
		)
		if i < trial.throws.Count-1 {
			s.add(1, func(w *explored) { w.unsure(func() { w.throws.ShowOne(i, 0, 5) }) }, "the manager plans, and decision %d fails", i)
		}
	}
}

// unsure is a pass with faults.
func (w *explored) unsure(show func()) {
	show()
	w.faults = true
	w.plan()
	w.faults = false
	w.throws.Show()
}

// time passes until the last plan wakes the manager.
func (s *stepper) time() {
	if !s.planned {
		return
	}
	if wake := s.last.WakeAt; wake.After(s.now) {
		s.add(0, func(w *explored) { w.now = wake }, "%s pass", wake.Sub(s.now))
		s.all[len(s.all)-1].Last = true
	}
	s.add(1, func(w *explored) { w.now = w.now.Add(longAway) }, "the manager is away for %s", longAway)
}

func (s *stepper) pod(name string, pod *simPod) {
	node := s.nodes[pod.NodeName]
	what := fmt.Sprintf("%s on %s", pod.Runs, pod.NodeName)
	kubelet := func(w *explored) { w.kubelet(name) }
	switch {
	case over(&pod.Pod):
	case node == nil:
		s.add(0, kubelet, "the pod collector ends %s", what)
	case silent(node):
	case inGap(pod), !pod.DeleteRequested.IsZero():
		s.add(0, kubelet, "the kubelet ends %s", what)
	case pod.Runs == task.Reboot:
		s.reboot(name, what)
	default:
		s.runs(name, what, pod)
	}
	if pod.DeleteRequested.IsZero() {
		s.add(1, func(w *explored) { w.pods[name].DeleteRequested = w.now }, "a user deletes %s", what)
	}
}

// reboot are the ends of a pod that reboots its node.
func (s *stepper) reboot(name, what string) {
	for luck, does := range []string{"reboots", "fails", "", "reboots, and is not Ready", "", "", "goes down"} {
		cost := 1
		if luck == 0 || luck == 6 {
			cost = 0
		}
		if does != "" {
			s.add(cost, func(w *explored) {
				w.throws.Show(luck)
				w.faults = true
				w.kubelet(name)
				w.faults = false
			}, "%s %s", what, does)
		}
	}
}

// runs are the ends of a pod that runs a script.
func (s *stepper) runs(name, what string, pod *simPod) {
	if pod.Runs.Asks() || pod.ChecksBefore && pod.answer == "" {
		for _, answer := range []string{saysYes, saysNo, saysError} {
			cost := 0
			if answer == saysError || answer == saysNo && pod.Runs == task.CheckDrift {
				cost = 1
			}
			if pod.Runs != task.CheckDrift && answer == saysYes && pod.pulls() {
				continue
			}
			s.add(cost, func(w *explored) { w.pods[name].answer = answer; w.kubelet(name) }, "%s says %s", what, answer)
		}
		if pod.Runs.Asks() {
			return
		}
	}
	s.add(0, func(w *explored) { w.kubelet(name) }, "%s succeeds", what)
	fails := func(throws ...int) func(*explored) {
		return func(w *explored) {
			w.pods[name].willSucceed = false
			w.throws.Show(throws...)
			w.kubelet(name)
		}
	}
	s.add(1, fails(), "%s fails", what)
	s.add(1, fails(-1, 0), "%s cannot start its task", what)
	s.add(1, func(w *explored) {
		w.gaps = true
		w.kubelet(name)
		w.gaps = false
	}, "%s succeeds, and its pod has not ended yet", what)
	s.add(1, func(w *explored) { w.evicted(w.pods[name]) }, "%s is evicted", what)
}

func (w *explored) evicted(pod *simPod) {
	pod.Disrupted, pod.DisruptedReason = w.now, "EvictionByEvictionAPI"
	w.beginWork(pod)
	exit := &Exit{Code: 143, Finished: w.byPod(pod), Reported: true, Reason: outcome.ReasonDisrupted}
	w.end(pod, corev1.PodFailed, exit, "is evicted")
}

func (s *stepper) node(name string, node *Node) {
	event := func(what int, throws ...int) func(*explored) {
		return func(w *explored) {
			w.throws.Show(throws...)
			w.nodeEvent(what, w.nodes[name])
		}
	}
	if node.Ready == corev1.ConditionTrue {
		s.add(1, event(0), "%s is unreachable", name)
		s.add(1, event(1), "%s is not Ready", name)
		s.add(1, event(4, 0), "%s reboots, and its pods fail", name)
		s.add(1, event(4, 1), "%s reboots, and its pods are lost", name)
	} else {
		s.add(0, event(2), "%s is Ready again", name)
	}
	s.add(1, event(5), "%s is deleted", name)
	s.add(1, event(5, 0, -1, -1, 0), "%s is created again for the same machine", name)
	s.add(1, event(7, 1), "%s is another machine", name)
	s.labels(name, node)
	s.cordons(name, node)
}

// joins are nodes that were deleted, and come back as other machines.
func (s *stepper) joins() {
	for i := range s.size {
		if name := "n" + strconv.Itoa(i); s.nodes[name] == nil {
			s.add(0, func(w *explored) { w.join(name) }, "%s joins", name)
		}
	}
}

// labels are what users write to a node.
func (s *stepper) labels(name string, node *Node) {
	event := func(what int, throws ...int) func(*explored) {
		return func(w *explored) {
			w.throws.Show(throws...)
			w.recordEvent(what, w.nodes[name])
		}
	}
	if node.On.Label != "" {
		s.add(1, event(0), "a user removes the label of %s", name)
	}
	if node.On.Record != nil {
		s.add(1, event(1), "a user removes the record of %s", name)
	}
	if node.On.Label != s.rev {
		s.add(1, event(2, 0), "a user skips %s", name)
	}
	if barred(node) {
		s.add(0, event(3), "%s loses its taint", name)
	} else {
		s.add(1, event(3, 0), "%s is tainted", name)
	}
	if node.Labels["pool"] == "a" {
		s.add(1, event(4, 1), "%s leaves the pool", name)
	} else {
		s.add(0, event(4, 0), "%s is in the pool again", name)
	}
}

func (s *stepper) cordons(name string, node *Node) {
	event := func(what int) func(*explored) {
		return func(w *explored) { w.cordonEvent(what, w.nodes[name]) }
	}
	switch {
	case !node.Unschedulable && len(node.CordonedBy) == 0:
		s.add(1, event(0), "a user cordons %s", name)
	case len(node.CordonedBy) > 0:
		s.add(1, event(1), "a user uncordons %s", name)
	default:
		s.add(0, event(1), "a user uncordons %s", name)
	}
}

// users change the NodeJob.
func (s *stepper) users() {
	if s.deleting() {
		return
	}
	event := func(what int, throws ...int) func(*explored) {
		return func(w *explored) {
			w.throws.Show(throws...)
			w.userEvent(what)
		}
	}
	for i := range 2 {
		if rev := "rev" + strconv.Itoa(i+1); rev != s.rev && s.revised < 2 {
			s.add(1, func(w *explored) { w.revised++; event(0, i)(w) }, "a user changes the task to %s", rev)
		}
	}
	if s.job.Spec.Suspend {
		s.add(0, event(1), "a user resumes the NodeJob")
	} else {
		s.add(1, event(1), "a user suspends the NodeJob")
	}
	if s.obstacle == nil {
		s.add(1, event(2), "a ConfigMap of the task is deleted")
	} else {
		s.add(0, event(2), "the ConfigMap is created again")
	}
	if s.retried < 1 {
		s.add(1, func(w *explored) { w.retried++; event(3)(w) }, "a user requests a retry")
	}
	for i, policy := range []v1alpha1.DeletionPolicy{v1alpha1.DeletionForget, v1alpha1.DeletionRetain, v1alpha1.DeletionRollback} {
		if policy != v1alpha1.DeletionRollback || s.job.Spec.Rollback != nil {
			cost := 1
			if s.world.deletes && policy == v1alpha1.DeletionRollback {
				cost = 0
			}
			s.add(
				cost,
				func(w *explored) { w.job = w.job.DeepCopy(); w.throws.Show(i); w.deleteJob() },
				"a user deletes the NodeJob: %s",
				policy,
			)
		}
	}
}
