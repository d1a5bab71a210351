// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/observe"
	"github.com/everynode/everynode/internal/script"
)

// The API limits an inline script in characters, each of which may have four bytes. Linux accepts
// at most 128 KiB.
func TestScriptsThatLinuxRejects(t *testing.T) {
	tests := map[string]struct {
		script, check, rollback string
		want                    *hold.Why
	}{
		"the longest that fits": {
			script:   strings.Repeat("#", 65536),
			check:    strings.Repeat("#", 65536),
			rollback: strings.Repeat("#", 65536),
		},
		"as many characters of two bytes": {script: strings.Repeat("ä", 65536), want: &hold.Why{
			Reason:  v1alpha1.ReasonInvalidScript,
			Message: "spec.task.script has 131072 bytes, of which 65536 are allowed. Put large files into an image and use spec.task.template",
		}},
		"a zero byte": {script: "echo \x00", want: &hold.Why{Reason: v1alpha1.ReasonInvalidScript,
			Message: "spec.task.script contains a zero byte, which an environment variable cannot contain. Remove it"}},
		"a check script that is too long": {
			script: "true",
			check:  strings.Repeat("ä", 65536),
			want: &hold.Why{
				Reason:  v1alpha1.ReasonInvalidScript,
				Message: "spec.task.check.script has 131072 bytes, of which 65536 are allowed. Put large files into an image and use spec.task.template",
			},
		},
		"a rollback script that is too long": {
			script:   "true",
			rollback: "echo \x00",
			want: &hold.Why{Reason: v1alpha1.ReasonInvalidScript,
				Message: "spec.rollback.script contains a zero byte, which an environment variable cannot contain. Remove it"},
		},
		"Windows line endings": {script: "#!/bin/sh\r\ntrue\r\n", want: &hold.Why{Reason: v1alpha1.ReasonInvalidScript,
			Message: "spec.task.script " + script.Problem("\r\n")}},
		"a check with Windows line endings": {script: "true", check: "true\r\n", want: &hold.Why{Reason: v1alpha1.ReasonInvalidScript,
			Message: "spec.task.check.script " + script.Problem("\r\n")}},
		"a rollback with Windows line endings": {
			script:   "true",
			rollback: "true\r\n",
			want: &hold.Why{Reason: v1alpha1.ReasonInvalidScript,
				Message: "spec.rollback.script " + script.Problem("\r\n")},
		},
		"a byte order mark": {script: "\ufeff#!/bin/bash\n", want: &hold.Why{Reason: v1alpha1.ReasonInvalidScript,
			Message: "spec.task.script " + script.Problem("\ufeff")}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			job := &v1alpha1.NodeJob{Spec: v1alpha1.NodeJobSpec{
				Task: v1alpha1.TaskSpec{
					ScriptBlock: v1alpha1.ScriptBlock{Script: tt.script},
					Check:       &v1alpha1.CheckSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: tt.check}},
				},
				Rollback: &v1alpha1.RollbackSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: tt.rollback}},
			}}
			_, got, err := newReconciler(t).source(t.Context(), job)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("obstacle (-want +got):\n%s", diff)
			}
		})
	}
}

// Linux executes no program with a longer variable, so the container would not start.
func TestVariablesThatLinuxRejects(t *testing.T) {
	const most = 128<<10 - len("BIG=") - 1
	for name, tt := range map[string]struct {
		size int
		want *hold.Why
	}{
		"the longest that fits": {size: most},
		"a longer one": {size: most + 1, want: &hold.Why{Reason: v1alpha1.ReasonInvalidScript,
			Message: "spec.task.env: BIG has 131068 bytes, of which 131067 are allowed, since Linux starts no program with a longer variable. Put the value into a file, or split it"}},
	} {
		t.Run(name, func(t *testing.T) {
			job := &v1alpha1.NodeJob{
				Spec: v1alpha1.NodeJobSpec{
					Task: v1alpha1.TaskSpec{
						ScriptBlock: v1alpha1.ScriptBlock{Script: "true"},
						Env:         []v1alpha1.EnvVar{{Name: "BIG", Value: strings.Repeat("x", tt.size)}},
					},
				},
			}
			_, got, err := newReconciler(t).source(t.Context(), job)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("obstacle (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSource(t *testing.T) {
	from := func(name string) *v1alpha1.ScriptSource {
		return &v1alpha1.ScriptSource{ConfigMapKeyRef: v1alpha1.ConfigMapKeyRef{Name: name, Key: "sh"}}
	}
	job := func(changes ...func(*v1alpha1.NodeJob)) *v1alpha1.NodeJob {
		job := liveJob()
		job.Spec.Task.ScriptFrom = from("task")
		job.Spec.Task.Check = &v1alpha1.CheckSpec{ScriptBlock: v1alpha1.ScriptBlock{ScriptFrom: from("check")}}
		job.Spec.Rollback = &v1alpha1.RollbackSpec{ScriptBlock: v1alpha1.ScriptBlock{ScriptFrom: from("rollback")}}
		for _, change := range changes {
			change(job)
		}
		return job
	}
	deleted := func(policy v1alpha1.DeletionPolicy) func(*v1alpha1.NodeJob) {
		return func(job *v1alpha1.NodeJob) {
			now := at(0)
			job.DeletionTimestamp, job.Spec.DeletionPolicy = &now, policy
		}
	}
	missing := func(name string) *hold.Why {
		return &hold.Why{
			Reason:  v1alpha1.ReasonConfigMapNotFound,
			Message: "spec." + name + ".scriptFrom: ConfigMap ns/" + name + " does not exist. Create it; the NodeJob then continues automatically",
		}
	}
	unlabeled := func(name string) *hold.Why {
		return &hold.Why{
			Reason: v1alpha1.ReasonConfigMapNotLabeled,
			Message: "spec." + name + ".scriptFrom: ConfigMap ns/" + name + " does not have the label that lets NodeJobs run its content as root. " +
				"Check its content, and add the label: kubectl -n ns label configmap " + name + " everynode.dev/script=true",
		}
	}
	all := task.Source{Script: "echo task", Check: "echo check", Rollback: "echo rollback"}
	tests := map[string]struct {
		job  *v1alpha1.NodeJob
		gone []string
		// unlabeled do not have the label that lets NodeJobs run their scripts.
		unlabeled []string
		want      task.Source
		// wantObstacle is why nothing may start.
		wantObstacle *hold.Why
	}{
		"all exist": {job: job(), want: all},
		"without a rollback": {
			job:  job(func(j *v1alpha1.NodeJob) { j.Spec.Rollback = nil }),
			want: task.Source{Script: all.Script, Check: all.Check},
		},
		"an inline rollback": {
			job: job(func(j *v1alpha1.NodeJob) {
				j.Spec.Rollback = &v1alpha1.RollbackSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "undo"}}
			}),
			want: task.Source{Script: all.Script, Check: all.Check, Rollback: "undo"},
		},
		"a missing rollback prevents the start": {
			job:          job(),
			gone:         []string{"rollback"},
			want:         task.Source{Script: all.Script, Check: all.Check},
			wantObstacle: missing("rollback"),
		},
		"the task is missing":   {job: job(), gone: []string{"task"}, wantObstacle: missing("task")},
		"the task has no label": {job: job(), unlabeled: []string{"task"}, wantObstacle: unlabeled("task")},
		"a deletion with an unlabeled rollback": {
			job:          job(deleted(v1alpha1.DeletionRollback)),
			unlabeled:    []string{"rollback"},
			wantObstacle: unlabeled("rollback"),
		},
		"a deletion only needs the rollback": {
			job:  job(deleted(v1alpha1.DeletionRollback)),
			gone: []string{"task", "check"},
			want: task.Source{Rollback: all.Rollback},
		},
		"a deletion with a missing rollback": {
			job:          job(deleted(v1alpha1.DeletionRollback)),
			gone:         []string{"rollback"},
			wantObstacle: missing("rollback"),
		},
		"a terminating namespace needs no rollback": {
			job: job(deleted(v1alpha1.DeletionRollback), func(j *v1alpha1.NodeJob) { j.Namespace = "gone" }),
			wantObstacle: &hold.Why{
				Reason:  v1alpha1.ReasonNamespaceTerminating,
				Message: "namespace gone is being deleted, and no pod can be made in it",
			},
		},
		"a deletion without a rollback needs no script": {
			job:  job(deleted(v1alpha1.DeletionForget)),
			gone: []string{"task", "check", "rollback"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := newReconciler(t)
			for _, name := range []string{"task", "check", "rollback"} {
				labels := map[string]string{v1alpha1.ScriptLabel: v1alpha1.ScriptLabelValue}
				if slices.Contains(tt.unlabeled, name) {
					labels = map[string]string{v1alpha1.ScriptLabel: "false"}
				}
				r.create(
					&corev1.ConfigMap{
						ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: labels},
						Data:       map[string]string{"sh": "echo " + name},
					},
				)
			}
			for _, name := range tt.gone {
				r.delete(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}})
			}
			got, obstacle, err := r.source(t.Context(), tt.job)
			if err == nil {
				got, obstacle, err = r.source(t.Context(), tt.job) // from what is remembered
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.wantObstacle, obstacle); diff != "" {
				t.Errorf("obstacle (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("source (-want +got):\n%s", diff)
			}
		})
	}
	if diff := cmp.Diff([]string{"task", "check", "rollback"}, observe.ConfigMapNames(job())); diff != "" {
		t.Errorf("ConfigMaps that wake it (-want +got):\n%s", diff)
	}
}

// The task's ConfigMap, from which the revision is computed, may be deleted.
func TestANodeJobThatIsDeletedKeepsItsRevision(t *testing.T) {
	job := liveJob()
	now := at(0)
	job.DeletionTimestamp, job.Status.Revision = &now, "0123456789"
	seen, err := newReconciler(t).observe(t.Context(), job, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := seen.input.Revision; got != "0123456789" {
		t.Errorf("the revision is %q, want that of the status", got)
	}
}
