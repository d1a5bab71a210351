// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/testing/fakeapi"
	"github.com/everynode/everynode/internal/uninstall"
)

// The scenarios, by their names: each kind, and each phase of a run and of a release.
var scenarios = map[string]scenario{
	"a node joins": {nodes: 2, play: func(w *sweep) {
		w.apply("job", nil)
		w.awaitComplete("job")
		w.join("a")
	}},
	"canary and soak": {nodes: 3, play: func(w *sweep) {
		w.apply("job", func(s *v1alpha1.NodeJobSpec) { s.Rollout.Steps = canaryThenAll })
		w.awaitComplete("job")
	}},
	"everything": {nodes: 4, fails: failsAt("n2 job task", 1, "n2 job task", 2), play: func(w *sweep) {
		w.apply("job", func(s *v1alpha1.NodeJobSpec) {
			s.Gate = &v1alpha1.GateSpec{Nodes: v1alpha1.GateAll}
			s.Publish = []v1alpha1.PublishedResult{{Result: "kernel", Label: "x.example/kernel"}}
			s.Maintenance = v1alpha1.MaintenanceSpec{Cordon: true, Reboot: v1alpha1.RebootSpec{Policy: v1alpha1.RebootIfRequested}}
			s.Maintenance.MaxUnavailable = new(intstr.FromInt32(4)) // the failed node must not block the others
			s.Task.Check = &v1alpha1.CheckSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "look"}}
			s.Retry.Limit = new(int32(1))
			s.Rollout.MaxConcurrent, s.Rollout.Steps = new(intstr.FromInt32(2)), canaryThenAll
			s.Rollback, s.OnFailure.Action = undo, v1alpha1.FailureActionDrain
		})
		w.await("n2 is drained", func() bool { return fakeapi.Get[*corev1.Pod](w.api, "default", "workload-n2") == nil })
		w.join("a")
		w.awaitStalled("job")
		w.await("n5 is done", func() bool { return w.succeededOn("n5 job task") == 1 })
	}},
	"companions are replaced": {nodes: 3, play: func(w *sweep) {
		w.guard(nil)
		fakeapi.Edit(w.api, fakeapi.Get[*v1alpha1.NodeGuard](w.api, namespace, "guard"), func(g *v1alpha1.NodeGuard) {
			g.Spec.Template = &corev1.PodTemplateSpec{
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "guard", Image: "registry.example/guard:2"}}},
			}
		})
	}},
	"a failure is retried": {nodes: 2, fails: failsAt("n2 job task", 1), play: func(w *sweep) {
		w.apply("job", func(s *v1alpha1.NodeJobSpec) { s.Retry.Limit = new(int32(2)) })
		w.awaitComplete("job")
	}},
	"rollback and quarantine": {nodes: 3, fails: failsAt("n2 job task", 1), play: func(w *sweep) {
		w.apply("job", func(s *v1alpha1.NodeJobSpec) {
			s.Rollback, s.OnFailure.Action = undo, v1alpha1.FailureActionDrain
		})
		w.awaitStalled("job")
		w.await("n2 is drained", func() bool { return fakeapi.Get[*corev1.Pod](w.api, "default", "workload-n2") == nil })
		w.editJob("job", func(j *v1alpha1.NodeJob) { j.Annotations = map[string]string{v1alpha1.RetryAnnotation: "again"} })
		w.awaitComplete("job")
	}},
	"a rollback fails": {nodes: 2, fails: failsAt("n1 job task", 1, "n1 job rollback", 1), play: func(w *sweep) {
		w.apply("job", func(s *v1alpha1.NodeJobSpec) { s.Rollback = undo })
		w.awaitStalled("job")
	}},
	"drain and reboot": {nodes: 2, play: func(w *sweep) {
		w.apply("job", func(s *v1alpha1.NodeJobSpec) {
			s.Maintenance = v1alpha1.MaintenanceSpec{
				Drain:  drains,
				Reboot: v1alpha1.RebootSpec{Policy: v1alpha1.RebootAlways, TimeoutSeconds: new(int32(300))},
			}
			s.Task.Check = &v1alpha1.CheckSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "look"}}
		})
		w.awaitComplete("job")
	}},
	"a check before": {nodes: 2, fails: failsAt("n1 job check-before", 1), play: func(w *sweep) {
		w.apply("job", func(s *v1alpha1.NodeJobSpec) {
			s.Maintenance.Cordon, s.Task.Check = true, &v1alpha1.CheckSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "look"}, Before: true}
		})
		w.awaitComplete("job")
	}},
	"drift is repaired": {nodes: 2, fails: failsAt("n2 job check-drift", 1), play: func(w *sweep) {
		w.apply("job", func(s *v1alpha1.NodeJobSpec) {
			s.Task.Check = &v1alpha1.CheckSpec{
				ScriptBlock:   v1alpha1.ScriptBlock{Script: "look"},
				PeriodSeconds: 3600,
				OnDrift:       v1alpha1.DriftRun,
			}
		})
		w.awaitComplete("job")
		w.await("the repair of n2", func() bool { return w.succeededOn("n2 job task") == 2 })
		w.editJob("job", func(j *v1alpha1.NodeJob) { j.Spec.Task.Check.PeriodSeconds = 0 })
	}},
	"an audit": {nodes: 2, fails: func(node, _ string, _ int) bool { return node == "n1" }, play: func(w *sweep) {
		w.apply("job", func(s *v1alpha1.NodeJobSpec) {
			s.Task = v1alpha1.TaskSpec{Check: &v1alpha1.CheckSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "look"}, PeriodSeconds: 86_400}}
		})
		w.await("all nodes have answered", func() bool { return w.isComplete("job") || w.has("job", v1alpha1.ConditionStalled) })
	}},
	"a schedule": {nodes: 2, play: func(w *sweep) {
		w.apply("job", func(s *v1alpha1.NodeJobSpec) { s.Rerun.PeriodSeconds, s.Maintenance.Cordon = 3600, true })
		w.await("the second run", func() bool { return w.succeededOn("n1 job task")+w.succeededOn("n2 job task") == 4 })
		w.editJob("job", func(j *v1alpha1.NodeJob) { j.Spec.Rerun.PeriodSeconds = 0 })
		w.awaitComplete("job")
	}},
	"a mitigation expires": {nodes: 2, fails: failsAt("n1 job check-expires", 1, "n2 job check-expires", 1), play: func(w *sweep) {
		w.apply("job", func(s *v1alpha1.NodeJobSpec) {
			s.Rollback, s.Expires = undo, &v1alpha1.ExpiresSpec{
				Check: &v1alpha1.ExpiresCheckSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "fixed"}, PeriodSeconds: 3600},
			}
		})
		w.awaitComplete("job")
		w.await("all nodes have expired", func() bool { return w.succeededOn("n1 job rollback")+w.succeededOn("n2 job rollback") == 2 })
	}},
	"one NodeJob after the other": {nodes: 2, play: func(w *sweep) {
		w.apply("second", func(s *v1alpha1.NodeJobSpec) { s.DependsOn, s.Maintenance.Cordon = []string{"first"}, true })
		w.apply("first", func(s *v1alpha1.NodeJobSpec) { s.Maintenance.Drain = drains })
		w.awaitComplete("second")
	}},
	"a gate for nodes that join": {nodes: 2, play: func(w *sweep) {
		w.apply("job", func(s *v1alpha1.NodeJobSpec) { s.Gate = &v1alpha1.GateSpec{Nodes: v1alpha1.GateJoining} })
		w.awaitComplete("job")
		w.join("a")
		w.await("n3 is done", func() bool { return w.succeededOn("n3 job task") == 1 })
	}},
	"deletion with rollback": {nodes: 2, fails: failsAt("n1 job rollback", 1), play: func(w *sweep) {
		w.apply("job", func(s *v1alpha1.NodeJobSpec) {
			s.Rollback, s.DeletionPolicy, s.Gate = undo, v1alpha1.DeletionRollback, &v1alpha1.GateSpec{Nodes: v1alpha1.GateAll}
			s.Publish = []v1alpha1.PublishedResult{{Result: "kernel", Label: "x.example/kernel"}}
		})
		w.awaitComplete("job")
		w.remove("job")
		w.await("the rollback of n1 has failed", func() bool { return w.attempts("n1 job rollback") == 1 })
		w.editJob("job", func(j *v1alpha1.NodeJob) { j.Annotations = map[string]string{v1alpha1.RetryAnnotation: "again"} })
		w.awaitGone("job")
	}},
	"suspended in the middle": {nodes: 3, play: func(w *sweep) {
		w.apply("job", func(s *v1alpha1.NodeJobSpec) {
			s.Rollout.MaxConcurrent, s.Maintenance.Drain = new(intstr.FromInt32(1)), drains
		})
		w.await("the first node is done", func() bool { return w.jobDone("job") == 1 })
		w.editJob("job", func(j *v1alpha1.NodeJob) { j.Spec.Suspend = true })
		w.await("it is suspended", func() bool { return w.observed("job") })
		time.Sleep(10 * time.Minute)
		w.editJob("job", func(j *v1alpha1.NodeJob) { j.Spec.Suspend = false })
		w.awaitComplete("job")
	}},
	"another task": {nodes: 2, play: func(w *sweep) {
		w.apply("job", func(s *v1alpha1.NodeJobSpec) { s.RemoveLabels = []string{zoneLabel} })
		w.awaitComplete("job")
		w.editJob("job", func(j *v1alpha1.NodeJob) { j.Spec.Task.Script = "echo other" })
		w.awaitComplete("job")
	}},
	"again after a reboot": {nodes: 2, play: func(w *sweep) {
		w.apply("job", func(s *v1alpha1.NodeJobSpec) {
			s.Rerun.OnReboot, s.Gate = true, &v1alpha1.GateSpec{Nodes: v1alpha1.GateJoiningAndRebooted}
		})
		w.awaitComplete("job")
		w.kubelets.Reboot(w.node("n1"))
		w.await("n1 is done again", func() bool { return w.succeededOn("n1 job task") == 2 })
	}},
	"deleted after its end": {nodes: 2, play: func(w *sweep) {
		w.apply("job", func(s *v1alpha1.NodeJobSpec) { s.TTLSecondsAfterFinished, s.RetainPodsSeconds = new(int32(300)), 60 })
		w.awaitGone("job")
	}},
	"a NodeGuard": {nodes: 3, play: func(w *sweep) {
		w.guard(nil)
		w.drainAll("n1", "n2")
	}},
	"a NodeGuard with a check": {nodes: 2, fails: failsAt("n1 check", 1), play: func(w *sweep) {
		w.guard(func(g *v1alpha1.NodeGuardSpec) {
			g.Release.Check = &v1alpha1.ReleaseCheck{Script: "may", PeriodSeconds: new(int32(20))}
		})
		w.drainAll("n1")
	}},
	"a NodeGuard is deleted": {nodes: 2, fails: func(_, phase string, _ int) bool { return phase == "check" }, play: func(w *sweep) {
		w.guard(func(g *v1alpha1.NodeGuardSpec) {
			g.Release.Check = &v1alpha1.ReleaseCheck{Script: "never", PeriodSeconds: new(int32(20))}
		})
		w.beginDrain("n1")
		w.await("n1 is held", func() bool { return w.attempts("n1 check") > 0 })
		w.do(w.api.Remove(fakeapi.Get[*v1alpha1.NodeGuard](w.api, namespace, "guard")))
		w.awaitDrains()
	}},
	"a budget": {nodes: 3, play: func(w *sweep) {
		w.budget("all", func(*v1alpha1.NodeDisruptionBudgetSpec) {})
		w.drainAll("n1", "n2", "n3")
	}},
	"a freeze": {nodes: 2, play: func(w *sweep) {
		w.budget("all", func(*v1alpha1.NodeDisruptionBudgetSpec) {})
		w.setBudget("freeze", &v1alpha1.NodeDisruptionBudgetSpec{
			Limits:       []v1alpha1.BudgetLimit{{MaxUnavailable: new(intstr.FromInt32(0))}},
			JoiningNodes: v1alpha1.JoiningNodesIncluded,
		})
		time.Sleep(5 * time.Minute)
		w.beginDrain("n1")
		time.Sleep(5 * time.Minute)
		w.do(w.api.Remove(fakeapi.Get[*v1alpha1.NodeDisruptionBudget](w.api, "", "freeze")))
		w.awaitDrains()
	}},
	"a window": {nodes: 2, play: func(w *sweep) {
		w.budget("all", func(s *v1alpha1.NodeDisruptionBudgetSpec) {
			s.Windows = []v1alpha1.BudgetWindow{{Schedule: "*/30 * * * *", DurationSeconds: windowSeconds}}
		})
		time.Sleep(time.Until(time.Now().Truncate(time.Hour).Add(time.Hour + 25*time.Minute))) // it is closed
		w.drainAll("n1")
		w.do(w.api.Remove(fakeapi.Get[*v1alpha1.NodeDisruptionBudget](w.api, "", "all"))) // its status changes with each window
	}},
	"a NodeJob within a budget": {nodes: 3, play: func(w *sweep) {
		w.budget("zones", func(s *v1alpha1.NodeDisruptionBudgetSpec) {
			s.Limits = []v1alpha1.BudgetLimit{
				{MaxUnavailable: new(intstr.FromInt32(1)), TopologyKey: zoneLabel},
				{MaxUnavailable: new(intstr.FromInt32(2))},
			}
			s.PaceSeconds = new(int32(60))
		})
		w.apply("job", func(s *v1alpha1.NodeJobSpec) {
			s.Maintenance.Drain, s.Rollout.MaxConcurrent = drains, new(intstr.FromInt32(3))
		})
		w.awaitComplete("job")
	}},
	"a budget and a NodeGuard": {nodes: 2, play: func(w *sweep) {
		w.budget("all", func(*v1alpha1.NodeDisruptionBudgetSpec) {})
		w.guard(nil)
		w.apply("job", func(s *v1alpha1.NodeJobSpec) { s.Maintenance.Drain = drains })
		w.drainAll("n1")
		w.awaitComplete("job")
	}},
	"a budget is deleted": {nodes: 2, play: func(w *sweep) {
		w.budget("all", func(*v1alpha1.NodeDisruptionBudgetSpec) {})
		w.do(w.api.Remove(fakeapi.Get[*v1alpha1.NodeDisruptionBudget](w.api, "", "all")))
		w.await("no seats are left", func() bool { return w.seats() == 0 })
	}},
}

var (
	undo          = &v1alpha1.RollbackSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "undo"}, TimeoutSeconds: new(int32(60))}
	drains        = &v1alpha1.DrainSpec{TimeoutSeconds: new(int32(1800))}
	canaryThenAll = []v1alpha1.RolloutStep{{Name: "canary", Nodes: new(intstr.FromInt32(1)), SoakSeconds: 120}, {Name: "all"}}
)

// failsAt has a pod fail by its node, what it runs, and which attempt of that it is: pairs of a text and a number.
func failsAt(pairs ...any) func(node, phase string, nth int) bool {
	return func(node, phase string, nth int) bool {
		for pair := range slices.Chunk(pairs, 2) {
			if pair[0] == node+" "+phase && pair[1] == nth {
				return true
			}
		}
		return false
	}
}

// apply creates a NodeJob.
func (w *sweep) apply(name string, change func(*v1alpha1.NodeJobSpec)) {
	job := &v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	job.Spec = v1alpha1.NodeJobSpec{
		Task:    v1alpha1.TaskSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "echo " + name}, TimeoutSeconds: new(int32(60))},
		Retry:   v1alpha1.RetrySpec{Limit: new(int32(0)), BackoffSeconds: new(int32(10))},
		Rollout: v1alpha1.RolloutSpec{MaxFailures: new(intstr.FromString("100%"))},
	}
	if change != nil {
		change(&job.Spec)
	}
	w.say("NodeJob %s is created", name)
	w.do(w.api.Create(job))
}

func (w *sweep) editJob(name string, change func(*v1alpha1.NodeJob)) {
	w.say("NodeJob %s is changed", name)
	if job := fakeapi.Get[*v1alpha1.NodeJob](w.api, namespace, name); job != nil {
		fakeapi.Edit(w.api, job, change)
	}
}

func (w *sweep) remove(name string) {
	w.say("NodeJob %s is deleted", name)
	w.do(w.api.Remove(fakeapi.Get[*v1alpha1.NodeJob](w.api, namespace, name)))
}

func (w *sweep) awaitComplete(job string) {
	w.await(job+" is complete", func() bool { return w.isComplete(job) })
}

func (w *sweep) awaitStalled(job string) {
	w.await(job+" is stalled", func() bool { return w.has(job, v1alpha1.ConditionStalled) })
}

func (w *sweep) awaitGone(job string) {
	w.await(job+" is gone", func() bool { return fakeapi.Get[*v1alpha1.NodeJob](w.api, namespace, job) == nil })
}

func (w *sweep) jobDone(name string) int32 {
	return fakeapi.Get[*v1alpha1.NodeJob](w.api, namespace, name).Status.Nodes.Done
}

func (w *sweep) node(name string) *corev1.Node { return fakeapi.Get[*corev1.Node](w.api, "", name) }

func (w *sweep) succeededOn(key string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.succeeded[key]
}

func (w *sweep) attempts(key string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.counts[key]
}

// budget creates a budget of one node, and waits until the nodes have their seats.
func (w *sweep) budget(name string, change func(*v1alpha1.NodeDisruptionBudgetSpec)) {
	spec := &v1alpha1.NodeDisruptionBudgetSpec{
		Limits:       []v1alpha1.BudgetLimit{{MaxUnavailable: new(intstr.FromInt32(1))}},
		JoiningNodes: v1alpha1.JoiningNodesIncluded,
	}
	change(spec)
	w.setBudget(name, spec)
	w.await("all nodes have their seats", func() bool { return w.seats() == w.scenario.nodes })
	time.Sleep(knows)
}

// seats are how many seats are ready, and belong to a group.
func (w *sweep) seats() (ready int) {
	for _, pod := range fakeapi.All[*corev1.Pod](w.api) {
		group := pod.Labels[v1alpha1.BudgetGroupLabel]
		if pod.Namespace == uninstall.Namespace && group != "" && group != pendingGroup && fakeapi.PodReady(pod) {
			ready++
		}
	}
	return ready
}

// guard creates a NodeGuard, and waits until the nodes have their companions.
func (w *sweep) guard(change func(*v1alpha1.NodeGuardSpec)) {
	g := &v1alpha1.NodeGuard{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "guard"}}
	g.Spec.Target.DaemonSet = "storage"
	g.Spec.MaxUnavailable = new(intstr.FromInt32(1))
	if change != nil {
		change(&g.Spec)
	}
	w.say("a NodeGuard is created")
	w.do(w.api.Create(g))
	w.await("all nodes have their companions", func() bool {
		ready := 0
		for _, pod := range fakeapi.All[*corev1.Pod](w.api) {
			if pod.Labels[v1alpha1.GuardRoleLabel] == v1alpha1.GuardRoleCompanion && fakeapi.PodReady(pod) {
				ready++
			}
		}
		return ready == w.scenario.nodes
	})
	time.Sleep(knows)
}

// beginDrain has a tool drain and maintain nodes at the same time.
func (w *sweep) beginDrain(nodes ...string) {
	for _, name := range nodes {
		w.goDrain(w.node(name), time.Time{})
	}
}

func (w *sweep) awaitDrains() {
	w.await("all drains have ended", func() bool { return w.waitsForDrain() == "" })
}

func (w *sweep) drainAll(nodes ...string) {
	w.say("%s are drained", strings.Join(nodes, ", "))
	w.beginDrain(nodes...)
	w.awaitDrains()
}
