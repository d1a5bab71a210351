// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/testing/fakeapi"
)

// edits are representative changes of each field of a NodeJob, by the path of the field.
type edits = map[string][]func(*v1alpha1.NodeJobSpec)

func one(change func(*v1alpha1.NodeJobSpec)) []func(*v1alpha1.NodeJobSpec) {
	return []func(*v1alpha1.NodeJobSpec){change}
}

// each makes a change for each value.
func each[T any](values []T, change func(*v1alpha1.NodeJobSpec, T)) (all []func(*v1alpha1.NodeJobSpec)) {
	for _, value := range values {
		all = append(all, func(s *v1alpha1.NodeJobSpec) { change(s, value) })
	}
	return all
}

type spec = v1alpha1.NodeJobSpec

var inZoneA = &metav1.LabelSelector{MatchLabels: map[string]string{zoneLabel: "a"}}

// transitions have an entry for each field, which TestEachFieldHasATransition requires.
var transitions = edits{
	"nodes.selector": each(
		[]*metav1.LabelSelector{inZoneA, {MatchLabels: map[string]string{"no": "node"}}},
		func(s *spec, v *metav1.LabelSelector) { s.Nodes.Selector = v },
	),
	"nodes.names": each([][]string{{"n1"}, {"n2", "missing"}}, func(s *spec, v []string) { s.Nodes.Names = v }),
	"nodes.tolerations": one(func(s *spec) {
		s.Nodes.Tolerations = []corev1.Toleration{{Key: "x", Operator: corev1.TolerationOpExists}}
	}),
	"nodes.assumeDone": one(func(s *spec) { s.Nodes.AssumeDone = &v1alpha1.AssumeDoneSpec{Selector: inZoneA} }),
	"task.script":      one(func(s *spec) { s.Task.Script = "echo another" }),
	"task.scriptFrom":  each([]string{"content", "missing"}, func(s *spec, v string) { s.Task.Script, s.Task.ScriptFrom = "", fromMap(v) }),
	"task.command":     one(func(s *spec) { s.Task.Script, s.Task.Command = "", []string{"/bin/true"} }),
	"task.template": one(func(s *spec) {
		s.Task.Script, s.Task.Template = "", &corev1.PodTemplateSpec{
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "task", Image: "registry.example/task:1"}}},
		}
	}),
	"task.interpreter": one(func(s *spec) { s.Task.Interpreter = []string{"/bin/bash"} }),
	"task.env": each(
		[]v1alpha1.EnvVar{{Name: "A", Value: "b"}, zoneEnv},
		func(s *spec, v v1alpha1.EnvVar) { s.Task.Env = []v1alpha1.EnvVar{v} },
	),
	"task.timeoutSeconds": one(func(s *spec) { s.Task.TimeoutSeconds = new(int32(3600)) }),
	"task.resources": one(func(s *spec) {
		s.Task.Resources = &v1alpha1.TaskResources{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")}}
	}),
	"task.inputs": each([]string{"content", "missing"}, func(s *spec, v string) {
		s.Task.Inputs = []v1alpha1.ContentRef{{Kind: v1alpha1.ContentConfigMap, Name: v}}
	}),
	"task.files": each([]string{"content", "missing"}, func(s *spec, v string) {
		s.Task.Files = []v1alpha1.FilesSource{{Name: "files", ConfigMap: &v1alpha1.FilesFromObject{Name: v}}}
	}),
	"task.check": one(func(s *spec) { s.Task.Check = &v1alpha1.CheckSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "look"}} }),
	"task.check.script": one(func(s *spec) {
		s.Task.Check = &v1alpha1.CheckSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "look elsewhere"}}
	}),
	"task.check.scriptFrom": each(
		[]string{"content", "missing"},
		func(s *spec, v string) {
			s.Task.Check = &v1alpha1.CheckSpec{ScriptBlock: v1alpha1.ScriptBlock{ScriptFrom: fromMap(v)}}
		},
	),
	"task.check.interpreter": one(
		func(s *spec) {
			s.Task.Check = &v1alpha1.CheckSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "look", Interpreter: []string{"/bin/bash"}}}
		},
	),
	"task.check.before": one(func(s *spec) {
		s.Task.Check = &v1alpha1.CheckSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "look"}, Before: true}
	}),
	"task.check.periodSeconds": one(func(s *spec) {
		s.Task.Check = &v1alpha1.CheckSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "look"}, PeriodSeconds: 86_400}
	}),
	"task.check.onDrift": each([]v1alpha1.DriftPolicy{v1alpha1.DriftReport, v1alpha1.DriftRun}, func(s *spec, v v1alpha1.DriftPolicy) {
		s.Task.Check = &v1alpha1.CheckSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "look"}, PeriodSeconds: 86_400, OnDrift: v}
	}),
	"task.output.record": each(
		[]v1alpha1.OutputPolicy{v1alpha1.OutputTail, v1alpha1.OutputNone},
		func(s *spec, v v1alpha1.OutputPolicy) { s.Task.Output.Record = v },
	),
	"task.output.archive": each(
		[]v1alpha1.ArchivePolicy{v1alpha1.ArchiveNever, v1alpha1.ArchiveAlways},
		func(s *spec, v v1alpha1.ArchivePolicy) { s.Task.Output.Archive = v },
	),
	"rollback": one(func(s *spec) { s.Rollback = nil }),
	"rollback.script": one(func(s *spec) {
		s.Rollback = &v1alpha1.RollbackSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "undo more"}}
	}),
	"rollback.scriptFrom": each(
		[]string{"content", "missing"},
		func(s *spec, v string) {
			s.Rollback = &v1alpha1.RollbackSpec{ScriptBlock: v1alpha1.ScriptBlock{ScriptFrom: fromMap(v)}}
		},
	),
	"rollback.interpreter": one(
		func(s *spec) {
			s.Rollback = &v1alpha1.RollbackSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "undo", Interpreter: []string{"/bin/bash"}}}
		},
	),
	"rollback.timeoutSeconds": one(func(s *spec) {
		s.Rollback = &v1alpha1.RollbackSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "undo"}, TimeoutSeconds: new(int32(3600))}
	}),
	"confirm":                one(func(s *spec) { s.Confirm = &v1alpha1.ConfirmSpec{} }),
	"confirm.timeoutSeconds": one(func(s *spec) { s.Confirm = &v1alpha1.ConfirmSpec{TimeoutSeconds: new(int32(3600))} }),
	"confirm.probes": one(func(s *spec) {
		s.Confirm = &v1alpha1.ConfirmSpec{Probes: []v1alpha1.ConfirmProbe{{Name: "a", Script: "true"}}}
	}),
	"retry.limit":             each([]int32{0, 2}, func(s *spec, v int32) { s.Retry.Limit = &v }),
	"retry.backoffSeconds":    one(func(s *spec) { s.Retry.BackoffSeconds = new(int32(600)) }),
	"retry.maxBackoffSeconds": one(func(s *spec) { s.Retry.MaxBackoffSeconds = new(int32(20)) }),
	"onFailure.action": each(
		[]v1alpha1.FailureAction{v1alpha1.FailureActionNone, v1alpha1.FailureActionCordon, v1alpha1.FailureActionDrain},
		func(s *spec, v v1alpha1.FailureAction) { s.OnFailure.Action = v },
	),
	"onFailure.drain": one(func(s *spec) {
		s.OnFailure = v1alpha1.OnFailureSpec{Action: v1alpha1.FailureActionDrain, Drain: drains}
	}),
	"rollout.maxConcurrent": each(
		[]string{"1", "100%"},
		func(s *spec, v string) { s.Rollout.MaxConcurrent = new(intstr.Parse(v)) },
	),
	"rollout.maxFailures": each(
		[]string{"0", "2"},
		func(s *spec, v string) { s.Rollout.MaxFailures = new(intstr.Parse(v)) },
	),
	"rollout.progressDeadlineSeconds": one(func(s *spec) { s.Rollout.ProgressDeadlineSeconds = new(int32(7200)) }),
	"rollout.steps": each(
		[][]v1alpha1.RolloutStep{canaryThenAll, {{Name: "zone", Selector: inZoneA, SoakSeconds: 60}, {Name: "rest"}}},
		func(s *spec, v []v1alpha1.RolloutStep) { s.Rollout.Steps = v },
	),
	"rollout.promoteTo": each(
		[]string{"canary", "all"},
		func(s *spec, v string) { s.Rollout.Steps, s.Rollout.PromoteTo = canaryThenAll, v },
	),
	"publish": one(
		func(s *spec) { s.Publish = []v1alpha1.PublishedResult{{Result: "kernel", Label: "x.example/other"}} },
	),
	"removeLabels": one(func(s *spec) { s.RemoveLabels = []string{"once"} }),
	"gate.key":     one(func(s *spec) { s.Gate = &v1alpha1.GateSpec{Key: "x.example/key"} }),
	"gate":         one(func(s *spec) { s.Gate = &v1alpha1.GateSpec{} }),
	"gate.effect": each(
		[]v1alpha1.GateEffect{v1alpha1.GateNoSchedule, v1alpha1.GateNoExecute},
		func(s *spec, v v1alpha1.GateEffect) { s.Gate = &v1alpha1.GateSpec{Nodes: v1alpha1.GateAll, Effect: v} },
	),
	"gate.nodes": each(
		[]v1alpha1.GateNodes{v1alpha1.GateJoining, v1alpha1.GateJoiningAndRebooted, v1alpha1.GateAll},
		func(s *spec, v v1alpha1.GateNodes) { s.Gate, s.Rerun.OnReboot = &v1alpha1.GateSpec{Nodes: v}, true },
	),
	"maintenance.cordon":               one(func(s *spec) { s.Maintenance.Cordon = true }),
	"maintenance.drain":                one(func(s *spec) { s.Maintenance.Drain = &v1alpha1.DrainSpec{} }),
	"maintenance.drain.timeoutSeconds": one(func(s *spec) { s.Maintenance.Drain = drains }),
	"maintenance.drain.gracePeriodSeconds": one(
		func(s *spec) { s.Maintenance.Drain = &v1alpha1.DrainSpec{GracePeriodSeconds: new(int32(5))} },
	),
	"maintenance.drain.deleteEmptyDirData": one(func(s *spec) { s.Maintenance.Drain = &v1alpha1.DrainSpec{DeleteEmptyDirData: true} }),
	"maintenance.drain.podSelector": one(func(s *spec) {
		s.Maintenance.Drain = &v1alpha1.DrainSpec{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"no": "pod"}}}
	}),
	"maintenance.reboot.policy": each(
		[]v1alpha1.RebootPolicy{v1alpha1.RebootNever, v1alpha1.RebootIfRequested, v1alpha1.RebootAlways},
		func(s *spec, v v1alpha1.RebootPolicy) { s.Maintenance.Reboot.Policy = v },
	),
	"maintenance.reboot.timeoutSeconds": one(func(s *spec) {
		s.Maintenance.Reboot = v1alpha1.RebootSpec{Policy: v1alpha1.RebootAlways, TimeoutSeconds: new(int32(600))}
	}),
	"maintenance.reboot.minReadySeconds": one(func(s *spec) {
		s.Maintenance.Reboot = v1alpha1.RebootSpec{Policy: v1alpha1.RebootAlways, MinReadySeconds: new(int32(120))}
	}),
	"maintenance.prePull": one(func(s *spec) { s.Maintenance.Cordon, s.Maintenance.PrePull = true, true }),
	"maintenance.maxUnavailable": each([]string{"1", "50%"}, func(s *spec, v string) {
		s.Maintenance.Cordon, s.Maintenance.MaxUnavailable = true, new(intstr.Parse(v))
	}),
	"maintenance.ignoreWindowsOn": one(func(s *spec) { s.Maintenance.Cordon, s.Maintenance.IgnoreWindowsOn = true, []string{"n1"} }),
	"dependsOn":                   each([]string{"other", "missing"}, func(s *spec, v string) { s.DependsOn = []string{v} }),
	"suspend":                     one(func(s *spec) { s.Suspend = true }),
	"startingDeadlineSeconds":     one(func(s *spec) { s.StartingDeadlineSeconds = new(int32(3600)) }),
	"retainPodsSeconds":           one(func(s *spec) { s.RetainPodsSeconds = 600 }),
	"rerun.onRevisionChange":      each([]bool{false, true}, func(s *spec, v bool) { s.Rerun.OnRevisionChange = &v }),
	"rerun.onMachineChange":       each([]bool{false, true}, func(s *spec, v bool) { s.Rerun.OnMachineChange = &v }),
	"rerun.onReboot":              one(func(s *spec) { s.Rerun.OnReboot = true }),
	"rerun.onNodeFieldChange":     one(func(s *spec) { s.Rerun.OnNodeFieldChange, s.Task.Env = true, []v1alpha1.EnvVar{zoneEnv} }),
	"rerun.periodSeconds":         one(func(s *spec) { s.Rerun.PeriodSeconds = 864_000 }),
	"expires.check": one(func(s *spec) {
		s.Expires = &v1alpha1.ExpiresSpec{
			Check: &v1alpha1.ExpiresCheckSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "fixed"}, PeriodSeconds: 864_000},
		}
	}),
	"expires.at": one(func(s *spec) {
		s.Expires = &v1alpha1.ExpiresSpec{At: &metav1.Time{Time: time.Date(2000, 6, 1, 0, 0, 0, 0, time.UTC)}}
	}),
	"deletionPolicy": each(
		[]v1alpha1.DeletionPolicy{v1alpha1.DeletionForget, v1alpha1.DeletionRetain, v1alpha1.DeletionRollback},
		func(s *spec, v v1alpha1.DeletionPolicy) { s.DeletionPolicy = v },
	),
}

// withoutTransition are fields that other entries change, or that end the NodeJob.
var withoutTransition = map[string]string{
	"ttlSecondsAfterFinished":            "the NodeJob is deleted then: scenario 'deleted after its end'",
	"expires":                            "expires.check, expires.at",
	"expires.check.script":               "expires.check",
	"expires.check.scriptFrom":           "as rollback.scriptFrom",
	"expires.check.interpreter":          "as rollback.interpreter",
	"expires.check.periodSeconds":        "expires.check",
	"onFailure.drain.timeoutSeconds":     "as maintenance.drain",
	"onFailure.drain.gracePeriodSeconds": "as maintenance.drain",
	"onFailure.drain.deleteEmptyDirData": "as maintenance.drain",
	"onFailure.drain.podSelector":        "as maintenance.drain",
	"nodes.assumeDone.selector":          "nodes.assumeDone",
	"task.resources.requests":            "task.resources",
	"task.resources.limits":              "task.resources",
}

var zoneEnv = v1alpha1.EnvVar{Name: "ZONE", ValueFrom: &v1alpha1.EnvVarSource{
	NodeFieldRef: &v1alpha1.NodeFieldSelector{FieldPath: "metadata.labels['" + zoneLabel + "']"},
}}

func fromMap(name string) *v1alpha1.ScriptSource {
	return &v1alpha1.ScriptSource{ConfigMapKeyRef: v1alpha1.ConfigMapKeyRef{Name: name, Key: "sh"}}
}

// TestEachFieldHasATransition : a new field of a NodeJob needs an entry in transitions.
func TestEachFieldHasATransition(t *testing.T) {
	known := map[string]bool{}
	var walk func(path string, of reflect.Type)
	walk = func(path string, of reflect.Type) {
		for of.Kind() == reflect.Pointer {
			of = of.Elem()
		}
		if path != "" {
			known[path] = true
		}
		if of.Kind() != reflect.Struct || !strings.HasSuffix(of.PkgPath(), "/api/v1alpha1") ||
			of == reflect.TypeFor[v1alpha1.ScriptSource]() {
			return
		}
		for field := range of.Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if name != "" { // otherwise the fields are those of the struct around it
				name = "." + name
			}
			walk(strings.TrimPrefix(path+name, "."), field.Type)
		}
	}
	walk("", reflect.TypeFor[v1alpha1.NodeJobSpec]())
	for path := range known {
		covered := transitions[path] != nil || withoutTransition[path] != ""
		for other := range known {
			covered = covered || strings.HasPrefix(other, path+".") // the fields of it are covered
		}
		if !covered {
			t.Errorf("field %s has no transition", path)
		}
	}
	for path := range transitions {
		if !known[path] {
			t.Errorf("there is no field %s", path)
		}
	}
}

const beforeStart = "before it has started"

// A state is one from which a spec is changed.
var states = map[string]struct {
	// fails has the task fail on n2.
	fails bool
	await func(w *sweep)
}{
	beforeStart: {await: func(*sweep) {}},
	"while it runs": {await: func(w *sweep) {
		w.await("the first task has succeeded", func() bool { return w.succeededOn("n1 job task") > 0 })
	}},
	"after its end":       {await: func(w *sweep) { w.awaitComplete("job") }},
	"after it has failed": {fails: true, await: func(w *sweep) { w.awaitStalled("job") }},
}

// staysDone are the fields whose change cannot undo what was done before, and why.
var staysDone = map[string]string{
	"nodes.selector":        "what is recorded on nodes that no longer match stays",
	"nodes.names":           "what is recorded on nodes that no longer match stays",
	"nodes.assumeDone":      "a node on which the task has run is not assumed",
	"suspend":               "it stops what has not started",
	"dependsOn":             "it delays what has not started",
	"rollout.maxFailures":   "it stops what has not started",
	"rollout.promoteTo":     "it stops what has not started",
	"task.scriptFrom":       "it cannot run what is missing, and what ran before is recorded",
	"task.inputs":           "it cannot run what is missing, and what ran before is recorded",
	"task.files":            "it cannot run what is missing, and what ran before is recorded",
	"task.check.scriptFrom": "it cannot run what is missing, and what ran before is recorded",
	"task.output.archive":   "it cannot run without an archive, and what ran before is recorded",
	"rollback.scriptFrom":   "it cannot run what is missing, and what ran before is recorded",
}

// comesBack are the fields whose change back does not undo what the change has done, and why.
var comesBack = map[string]string{
	"expires.check":    "what has expired is rolled back, and does not run again",
	"nodes.assumeDone": "what was assumed to be done does not run",
}

// transition is a change of a field in a state.
type transition struct {
	field, state string
	nth          int
}

func (c transition) String() string { return fmt.Sprintf("%s %d %s", c.field, c.nth, c.state) }

// fresh are the final states of new NodeJobs.
type fresh struct {
	mu    sync.Mutex
	known map[string]func() *sweep
}

// of returns the final state of a new NodeJob with a change that has a name.
func (f *fresh) of(t *testing.T, name string, fails bool, change func(*v1alpha1.NodeJobSpec)) *sweep {
	f.mu.Lock()
	key := fmt.Sprint(name, fails)
	if f.known[key] == nil {
		f.known[key] = sync.OnceValue(func() *sweep {
			return playSweep(t, scenario{nodes: 3, fails: failing(fails), play: func(w *sweep) { w.applyBase(change) }}, nil, "")
		})
	}
	play := f.known[key]
	f.mu.Unlock()
	return play()
}

// failing has the task fail on n2. The check before the task says no.
func failing(task bool) func(node, phase string, _ int) bool {
	return func(node, phase string, _ int) bool {
		return task && node == "n2" && phase == "job task" || phase == "job check-before"
	}
}

// TestTransitions changes each field of a NodeJob to representative values and back, before it has started, while it runs, after its end
// and after a failure. The final state must be that of a new NodeJob with the same spec, and the status must say why it waits.
//
// One of them: -fault 'maintenance.drain 0 while it runs'.
func TestTransitions(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	known := &fresh{known: map[string]func() *sweep{}}
	var chosen []transition
	for _, field := range slices.Sorted(maps.Keys(transitions)) {
		for nth := range transitions[field] {
			for _, state := range slices.Sorted(maps.Keys(states)) {
				c := transition{field, state, nth}
				if *onlyFault == c.String() || *onlyFault == "" && roll(max(1, every()/10), c.String()) == 0 {
					chosen = append(chosen, c)
				}
			}
		}
	}
	onAllProcessors(chosen, func(c transition) { playTransition(t, c, known) })
}

// playTransition changes a NodeJob and changes it back, and compares its final states with those of new NodeJobs.
func playTransition(t *testing.T, c transition, known *fresh) {
	state, change := states[c.state], transitions[c.field][c.nth]
	var changed, back string
	played := playSweep(t, scenario{nodes: 3, fails: failing(state.fails), play: func(w *sweep) {
		w.applyBase(func(*v1alpha1.NodeJobSpec) {})
		state.await(w)
		var before v1alpha1.NodeJobSpec
		w.editJob("job", func(j *v1alpha1.NodeJob) {
			before = *j.Spec.DeepCopy()
			change(&j.Spec)
		})
		w.rest("")
		changed = w.shape()
		w.editJob("job", func(j *v1alpha1.NodeJob) { j.Spec = before })
		w.rest("")
		back = w.shape()
	}}, nil, "")
	if *onlyFault != "" {
		t.Log(strings.Join(played.lines, "\n"))
	}
	if played.broken != "" {
		t.Errorf("%s: %s", c, played.broken)
		return
	}
	compare := func(what, got string, of *sweep) {
		if diff := cmp.Diff(strings.Split(of.shape(), "\n"), strings.Split(got, "\n")); diff != "" || of.broken != "" {
			t.Errorf("%s, %s: the final state is not that of a new NodeJob (-new +changed): %s\n%s", c, what, of.broken, diff)
		}
	}
	if staysDone[c.field] == "" || c.state == beforeStart {
		compare("changed", changed, known.of(t, fmt.Sprint(c.field, c.nth), state.fails, change))
	}
	if comesBack[c.field] == "" {
		compare("changed back", back, known.of(t, "", state.fails, func(*v1alpha1.NodeJobSpec) {}))
	}
}

// applyBase creates the NodeJob whose spec is changed.
func (w *sweep) applyBase(change func(*v1alpha1.NodeJobSpec)) {
	w.do(w.api.Create(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "content", Labels: map[string]string{v1alpha1.ScriptLabel: "true"}},
		Data:       map[string]string{"sh": "echo content"},
	}))
	w.apply("other", func(s *v1alpha1.NodeJobSpec) { s.Nodes.Names = []string{"n1"} })
	w.apply("job", func(s *v1alpha1.NodeJobSpec) {
		s.Rollback = undo
		s.Publish = []v1alpha1.PublishedResult{{Result: "kernel", Label: "x.example/kernel"}}
		change(s)
	})
}

// shape is the final state of a NodeJob, without its history.
func (w *sweep) shape() string {
	var lines []string
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	for _, node := range fakeapi.All[*corev1.Node](w.api) {
		add("node %s: unschedulable %v, taints %v, labels %v, annotations %v", node.Name, node.Spec.Unschedulable, taintKeys(node),
			slices.Sorted(maps.Keys(node.Labels)), slices.Sorted(maps.Keys(node.Annotations)))
	}
	job := fakeapi.Get[*v1alpha1.NodeJob](w.api, namespace, "job")
	add("%+v%s", job.Status.Nodes, conditions(job.Status.Conditions))
	if c := meta.FindStatusCondition(job.Status.Conditions, v1alpha1.ConditionReconciling); c == nil || c.Message == "" {
		add("no sentence says why it waits")
	}
	for _, pod := range fakeapi.All[*corev1.Pod](w.api) {
		if pod.Labels[v1alpha1.NodeJobLabel] != "" {
			add("pod on %s: %s", pod.Spec.NodeName, phaseOf(pod))
		}
	}
	return strings.Join(lines, "\n")
}
