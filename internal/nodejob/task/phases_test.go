// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package task

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/kube"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/runner/contract"
	"github.com/everynode/everynode/internal/seal"
)

// TestEnvironmentOfPhases compares the environment of each pod with the contract in docs/runner.md.
func TestEnvironmentOfPhases(t *testing.T) {
	src := Source{Script: "task $A", Check: "check", Rollback: "undo"}
	rebootAs := func(policy v1alpha1.RebootPolicy) func(*v1alpha1.NodeJob) {
		return func(j *v1alpha1.NodeJob) {
			j.Spec.Maintenance = v1alpha1.MaintenanceSpec{Reboot: v1alpha1.RebootSpec{Policy: policy, TimeoutSeconds: new(int32(77))}}
		}
	}
	results := &record.Record{Results: map[string]string{"kernel": "6.8"}}
	const task, check, both = "EVERYNODE_SCRIPT=task $$A EVERYNODE_INTERPRETER=[\"/bin/bash\",\"-eu\"]", "EVERYNODE_SCRIPT=check EVERYNODE_INTERPRETER=[\"/bin/dash\"]",
		" EVERYNODE_CHECK=check EVERYNODE_CHECK_INTERPRETER=[\"/bin/dash\"]"
	tests := map[string]struct {
		job     func(*v1alpha1.NodeJob)
		attempt func(*Attempt)
		want    string
	}{
		"the task and its check without a reboot":      {want: task + both + " EVERYNODE_TIMEOUT=120"},
		"the task and its check with the policy Never": {job: rebootAs(v1alpha1.RebootNever), want: task + both + " EVERYNODE_TIMEOUT=120"},
		"a command as JSON, without a shell": {
			job: func(j *v1alpha1.NodeJob) {
				j.Spec.Task.Interpreter, j.Spec.Task.Command = nil, []string{"awk", "{print $1 > \"a\"}", ""}
			},
			want: `EVERYNODE_COMMAND=["awk","{print $$1 > \"a\"}",""]` + both + " EVERYNODE_TIMEOUT=120",
		},
		"the task alone before a reboot": {
			job:  rebootAs(v1alpha1.RebootAlways),
			want: task + " EVERYNODE_REBOOT=Always EVERYNODE_TIMEOUT=120",
		},
		"the runner decides if the task may request a reboot": {
			job:  rebootAs(v1alpha1.RebootIfRequested),
			want: task + both + " EVERYNODE_REBOOT=IfRequested EVERYNODE_TIMEOUT=120",
		},
		"the reboot runs no script, and ends one boot": {
			job: rebootAs(
				v1alpha1.RebootAlways,
			),
			attempt: func(a *Attempt) { a.Phase = Reboot },
			want:    "EVERYNODE_REBOOT=Now EVERYNODE_BOOT_ID=boot EVERYNODE_TIMEOUT=77",
		},
		"the check after the reboot has the results of the task": {
			job: rebootAs(v1alpha1.RebootAlways), attempt: func(a *Attempt) { a.Phase, a.Checks = Check, results },
			want: check + ` EVERYNODE_RUN_RESULTS={"kernel":"6.8"} EVERYNODE_RESULT_KERNEL=6.8 EVERYNODE_TIMEOUT=120`,
		},
		"a rollback does not reboot": {
			job:     func(j *v1alpha1.NodeJob) { rebootAs(v1alpha1.RebootAlways)(j); withRollback(j) },
			attempt: func(a *Attempt) { a.Phase, a.Undoes = Rollback, results },
			want:    `EVERYNODE_SCRIPT=undo EVERYNODE_INTERPRETER=["/bin/sh","-u"] EVERYNODE_ROLLBACK_FOR=Failure EVERYNODE_RUN_RESULTS={"kernel":"6.8"} EVERYNODE_RESULT_KERNEL=6.8 EVERYNODE_TIMEOUT=30`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			job, a := scriptJob(), attempt()
			if tt.job != nil {
				tt.job(job)
			}
			if tt.attempt != nil {
				tt.attempt(&a)
			}
			var got []string
			for _, v := range Pod(job, src, a, options).Spec.Containers[0].Env {
				switch v.Name {
				case "WANT",
					"COPY",
					"EVERYNODE_NODEJOB",
					"EVERYNODE_NODE_NAME",
					"EVERYNODE_REVISION",
					"EVERYNODE_ATTEMPT",
					"EVERYNODE_VERSION":
				default:
					got = append(got, v.Name+"="+v.Value)
				}
			}
			if diff := cmp.Diff(tt.want, strings.Join(got, " ")); diff != "" {
				t.Errorf("environment (-want +got):\n%s", diff)
			}
		})
	}
}

// A template runs the task itself; the runner does everything else.
func TestTemplateIsRebootedByRunner(t *testing.T) {
	job := templateJob()
	job.Spec.Maintenance.Reboot.Policy = v1alpha1.RebootAlways
	a := attempt()
	if got := Pod(
		job,
		Source{},
		a,
		options,
	); got.Annotations[v1alpha1.RebootAnnotation] != "Always" ||
		got.Spec.Containers[0].Image == options.RunnerImage {
		t.Errorf("the task runs %s, with %q as its policy", got.Spec.Containers[0].Image, got.Annotations[v1alpha1.RebootAnnotation])
	}
	a.Phase = Reboot
	if got := Pod(
		job,
		Source{},
		a,
		options,
	); got.Annotations[v1alpha1.RebootAnnotation] != "" ||
		got.Spec.Containers[0].Image != options.RunnerImage {
		t.Errorf("the reboot runs %s, with %q as its policy", got.Spec.Containers[0].Image, got.Annotations[v1alpha1.RebootAnnotation])
	}
}

// A task tolerates every gate, as the check before it does, and the pods that complete a run tolerate every taint.
func TestTolerationsOfThePhases(t *testing.T) {
	job, a := scriptJob(), attempt()
	a.Gates = []string{"example.com/boot", "ns.everynode.dev/other"}
	got := Pod(job, Source{}, a, options).Spec.Tolerations
	for _, taint := range []corev1.Taint{
		{Key: "example.com/boot", Value: "true", Effect: corev1.TaintEffectNoExecute}, {Key: "ns.everynode.dev/other", Value: "everynode", Effect: corev1.TaintEffectNoSchedule},
		{Key: "dedicated", Effect: corev1.TaintEffectNoSchedule}, {Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule},
	} {
		if kube.Untolerated([]corev1.Taint{taint}, got) != nil {
			t.Errorf("the task does not tolerate %s", taint.ToString())
		}
	}
	other := []corev1.Taint{{Key: "other.example/else", Effect: corev1.TaintEffectNoExecute}}
	if kube.Untolerated(other, got) == nil {
		t.Error("the task has a toleration that was not requested")
	}
	for _, phase := range slices.DeleteFunc(slices.Clone(phases), func(p Phase) bool { return p == Task || p.Asks() }) {
		a.Phase = phase
		job.Spec.Rollback = &v1alpha1.RollbackSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "true"}}
		if got := Pod(job, Source{}, a, options).Spec.Tolerations; kube.Untolerated(other, got) != nil {
			t.Errorf("%s does not tolerate every taint: %+v", phase, got)
		}
	}
}

// The check runs before the task in the same pod, or with maintenance in a pod of its own, and is not part of the revision.
func TestPodsOfCheckBefore(t *testing.T) {
	job, a := scriptJob(), attempt()
	src := Source{Script: "work", Check: "look"}
	job.Spec.Task.Check = &v1alpha1.CheckSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "look"}}
	revision := Revision(&job.Spec, src)
	asks := func(pod *corev1.Pod) []string {
		asked := []string{pod.Annotations[v1alpha1.CheckBeforeAnnotation]}
		for _, env := range pod.Spec.Containers[0].Env {
			if env.Name == contract.EnvScript || env.Name == contract.EnvCheck || env.Name == contract.EnvCheckBefore {
				asked = append(asked, env.Name+"="+env.Value)
			}
		}
		return asked
	}
	job.Spec.Task.Check.Before = true
	if diff := cmp.Diff(
		[]string{"true", "EVERYNODE_SCRIPT=work", "EVERYNODE_CHECK=look", "EVERYNODE_CHECK_BEFORE=true"},
		asks(Pod(job, src, a, options)),
	); diff != "" {
		t.Errorf("the task asks first (-want +got):\n%s", diff)
	}
	if got := Revision(&job.Spec, src); got != revision {
		t.Errorf("the revision is %s, and was %s", got, revision)
	}
	job.Spec.Maintenance.Drain = &v1alpha1.DrainSpec{}
	if diff := cmp.Diff([]string{"", "EVERYNODE_SCRIPT=work", "EVERYNODE_CHECK=look"}, asks(Pod(job, src, a, options))); diff != "" {
		t.Errorf("after a drain (-want +got):\n%s", diff)
	}
	a.Phase = CheckBefore
	if diff := cmp.Diff([]string{"", "EVERYNODE_SCRIPT=look"}, asks(Pod(job, src, a, options))); diff != "" {
		t.Errorf("before a drain (-want +got):\n%s", diff)
	}
}

func TestPhaseOf(t *testing.T) {
	for label, want := range map[string]Phase{"task": Task, "rollback": Rollback, "reboot": Reboot, "check": Check, "check-before": CheckBefore, "": Task, "Reboot": Task, "x": Task} {
		if got := PhaseOf(label); got != want {
			t.Errorf("phase %q of the label %q, want %q", got, label, want)
		}
	}
}

// The phases of one attempt have pods with different names.
func TestPodNamesOfPhases(t *testing.T) {
	names := map[string]bool{}
	for _, phase := range phases {
		a := attempt()
		a.Phase = phase
		names[PodName(seal.Key{}, scriptJob(), a)] = true
	}
	if len(names) != len(phases) {
		t.Errorf("%d names for %d phases", len(names), len(phases))
	}
}

// TestContentHash tests that different contents have different hashes, and so does the same content of two objects.
func TestContentHash(t *testing.T) {
	data := func(pairs ...string) map[string][]byte {
		m := map[string][]byte{}
		for i := 0; i < len(pairs); i += 2 {
			m[pairs[i]] = []byte(pairs[i+1])
		}
		return m
	}
	base := ContentHash("uid", data("a", "1", "b", "2"))
	if again := ContentHash("uid", data("b", "2", "a", "1")); again != base {
		t.Errorf("the same content is %s, then %s", base, again)
	}
	if len(base) != 64 || strings.Contains(base, "1 ") {
		t.Errorf("hash %q", base)
	}
	for name, other := range map[string]string{
		"another value":                        ContentHash("uid", data("a", "1", "b", "3")),
		"another key":                          ContentHash("uid", data("a", "1", "c", "2")),
		"one key fewer":                        ContentHash("uid", data("a", "1")),
		"an additional empty key":              ContentHash("uid", data("a", "1", "b", "2", "c", "")),
		"the same content of another object":   ContentHash("uid-2", data("a", "1", "b", "2")),
		"a value that looks like several keys": ContentHash("uid", data("a", "11 b 1 2")),
		"nothing":                              ContentHash("uid", nil),
	} {
		if other == base {
			t.Errorf("%s has the same hash", name)
		}
	}
}

// All pods of a NodeJob have its files, except the one that reboots a node.
func TestFilesOfPhases(t *testing.T) {
	job := withFiles(withRollback(scriptJob()))
	for _, phase := range phases {
		a := attempt()
		a.Phase = phase
		spec := Pod(job, Source{Script: "true", Check: "true", Rollback: "true"}, a, options).Spec
		want := len(job.Spec.Task.Files)
		if phase == Reboot {
			want = 0
		}
		if volumes, mounts := len(spec.Volumes), len(spec.Containers[0].VolumeMounts); volumes != want || mounts != want {
			t.Errorf("%s has %d volumes and %d mounts, want %d", phase, volumes, mounts, want)
		}
	}
}
