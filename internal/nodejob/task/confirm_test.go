// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package task

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/runner/contract"
	"github.com/everynode/everynode/internal/seal"
)

func withConfirm(job *v1alpha1.NodeJob) *v1alpha1.NodeJob {
	job = withRollback(job)
	job.Spec.Rollback.TimeoutSeconds = new(int32(45))
	job.Spec.Confirm = &v1alpha1.ConfirmSpec{TimeoutSeconds: new(int32(30)), Probes: []v1alpha1.ConfirmProbe{
		{Name: "registry", Script: "curl registry"}, {Name: "ssh", Script: "pgrep sshd", TimeoutSeconds: new(int32(3))},
	}}
	return job
}

// TestOnlyTheTaskWaitsForAConfirmation checks that no other pod of the NodeJob changes.
func TestOnlyTheTaskWaitsForAConfirmation(t *testing.T) {
	src := Source{Script: "task", Check: "check", Rollback: "undo"}
	for _, phase := range []Phase{Rollback, Check, CheckBefore} {
		a := attempt()
		a.Phase = phase
		if diff := cmp.Diff(
			Pod(withRollbackTime(scriptJob()), src, a, Options{}),
			Pod(withConfirm(scriptJob()), src, a, Options{}),
		); diff != "" {
			t.Errorf("the pod of %s changes:\n%s", phase, diff)
		}
	}
	opts := Options{Key: seal.Key{1}}
	pod := Pod(withConfirm(scriptJob()), src, attempt(), opts)
	env := map[string]string{}
	for _, v := range pod.Spec.Containers[0].Env {
		env[v.Name] = v.Value
	}
	var confirm contract.Confirm
	if err := json.Unmarshal([]byte(env[contract.EnvConfirm]), &confirm); err != nil {
		t.Fatal(err)
	}
	confirmation := Confirmation(opts.Key, pod.Name)
	want := contract.Confirm{SHA256: contract.ConfirmDigest(confirmation), Seconds: 30, RollbackSeconds: 45, Probes: []contract.Probe{
		{Name: "registry", Script: "curl registry", Seconds: DefaultProbeSeconds}, {Name: "ssh", Script: "pgrep sshd", Seconds: 3},
	}}
	if !reflect.DeepEqual(confirm, want) || pod.Annotations[v1alpha1.ConfirmAnnotation] != want.SHA256 ||
		env[contract.EnvRollback] != "undo" {
		t.Errorf("the runner waits for %+v, want %+v; the pod says %v", confirm, want, pod.Annotations)
	}
	if *pod.Spec.TerminationGracePeriodSeconds != 45+graceSeconds {
		t.Errorf("a pod that is deleted has %d s for its rollback", *pod.Spec.TerminationGracePeriodSeconds)
	}
	if got := *pod.Spec.ActiveDeadlineSeconds; got != int64(
		(120*time.Second+30*time.Second+45*time.Second+reportTime+KubeletSlack)/time.Second,
	) {
		t.Errorf("the kubelet ends the pod after %d s", got)
	}
	if probe := pod.Spec.Containers[0].ReadinessProbe; probe == nil || probe.TimeoutSeconds < 86400 {
		t.Errorf("the probe is %+v: it must wait for as long as a task may run", probe)
	}
	pod.Annotations[v1alpha1.ConfirmedAnnotation] = confirmation
	if !opts.Key.MadePod(pod) {
		t.Error("the confirmation breaks the seal of the pod")
	}
	other := attempt()
	other.Number++
	if Confirmation(opts.Key, PodName(opts.Key, withConfirm(scriptJob()), other)) == confirmation {
		t.Error("two attempts have the same confirmation")
	}
}

func withRollbackTime(job *v1alpha1.NodeJob) *v1alpha1.NodeJob {
	job = withConfirm(job)
	job.Spec.Confirm = nil
	return job
}

func TestConfirms(t *testing.T) {
	withoutRollback, template := withConfirm(scriptJob()), withConfirm(scriptJob())
	withoutRollback.Spec.Rollback = nil
	template.Spec.Task.Template = &corev1.PodTemplateSpec{}
	for name, tt := range map[string]struct {
		job  *v1alpha1.NodeJob
		want bool
	}{
		"with confirm":        {withConfirm(scriptJob()), true},
		"without confirm":     {withRollback(scriptJob()), false},
		"without a rollback":  {withoutRollback, false},
		"with a pod template": {template, false},
	} {
		if got := Confirms(tt.job, Task); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

// TestConfirmKeepsTheFiles : both add volumes to the pod of the task.
func TestConfirmKeepsTheFiles(t *testing.T) {
	pod := Pod(withConfirm(withFiles(scriptJob())), Source{Script: "true", Rollback: "false"}, attempt(), options)
	files := Pod(withFiles(scriptJob()), Source{Script: "true"}, attempt(), options)
	if got, want := len(pod.Spec.Volumes), len(files.Spec.Volumes)+1; got != want {
		t.Errorf("%d volumes, want those of the files and that of the confirmation: %d", got, want)
	}
	if got, want := len(pod.Spec.Containers[0].VolumeMounts), len(files.Spec.Containers[0].VolumeMounts)+1; got != want {
		t.Errorf("%d are mounted, want %d", got, want)
	}
}
