// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
)

// envOf is what the container of a pod has in its environment.
func envOf(pod *corev1.Pod, name string) string {
	for _, v := range pod.Spec.Containers[0].Env {
		if v.Name == name {
			return v.Value
		}
	}
	return ""
}

// killed simulates the end of a pod that is only observed after its node has rebooted, so that the exit code is
// unknown. The manager may have seen the new boot first and have deleted the pod. Then the kubelet completes the deletion.
func (w *world) killed(pod *corev1.Pod) {
	w.T.Helper()
	live := pod.DeepCopy()
	err := tellEnd(w.Ctx, admin, pod, unknownExit, "")
	if err == nil {
		err = admin.Get(w.Ctx, client.ObjectKeyFromObject(pod), live)
	}
	if err == nil && !live.DeletionTimestamp.IsZero() {
		err = admin.Delete(w.Ctx, live, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID})
	}
	must(w.T, client.IgnoreNotFound(err))
}

// outcome waits until the record of a node has an outcome.
func (w *world) outcome(job, node string, want record.Outcome) record.Record {
	w.T.Helper()
	var rec record.Record
	w.Eventually(fmt.Sprintf("the record of %s is %s", node, want), func() error {
		on := w.On(job, node)
		if on.Record == nil || on.Record.Outcome != want {
			return fmt.Errorf("it carries %+v, %+v", on, on.Record)
		}
		rec = *on.Record
		return nil
	})
	return rec
}

// TestARunWithARebootContinuesInTheNextBoot covers the whole sequence: cordon, task, reboot, check, uncordon.
func TestARunWithARebootContinuesInTheNextBoot(t *testing.T) {
	w := newWorld(t)
	startManager(t, noFaults)
	job := w.job("boots", func(s *v1alpha1.NodeJobSpec) {
		whole(s)
		s.Task.Check = &v1alpha1.CheckSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "check"}}
		s.Maintenance = v1alpha1.MaintenanceSpec{
			Cordon: true,
			Reboot: v1alpha1.RebootSpec{Policy: v1alpha1.RebootAlways, MinReadySeconds: new(int32(0))},
		}
	})
	w.gateIsSeen("boots")
	key := v1alpha1.GateKey(job)
	taint := gateOf(key, v1alpha1.GateValue)
	w.comes("reboot-1", map[string]string{"x.test/wanted": "yes"}, taint)
	pod := w.podOf("reboot-1", task.Task)
	w.cordoned("reboot-1", key)
	if got := envOf(pod, "EVERYNODE_REBOOT"); got != "Always" {
		t.Errorf("the task is told to reboot %q", got)
	}
	w.end(pod, 0, wholeResult)
	rec := w.outcome("boots", "reboot-1", record.Rebooting)
	if rec.Reboot == nil || rec.Reboot.FromBootID != "boot-1" {
		t.Errorf("the record is %+v", rec)
	}
	reboots := w.podOf("reboot-1", task.Reboot)
	if now, from := envOf(reboots, "EVERYNODE_REBOOT"), envOf(reboots, "EVERYNODE_BOOT_ID"); now != "Now" || from != "boot-1" {
		t.Errorf("it is told to reboot %q from %q", now, from)
	}
	w.Condition("boots", v1alpha1.ConditionReconciling, metav1.ConditionTrue, "")
	if got := shows(w.liveNode("reboot-1"), key); got != "taint wanted" {
		t.Errorf("before its reboot the node shows %q", got)
	}
	w.ready("reboot-1", corev1.ConditionUnknown)
	w.reboots("reboot-1", "boot-2")
	w.killed(reboots)
	w.ready("reboot-1", corev1.ConditionTrue)
	w.end(w.podOf("reboot-1", task.Check), 0, `{"exitCode":0,"message":"it holds"}`)
	rec = w.Done("boots", "reboot-1")
	if rec.BootID != "boot-2" || rec.Attempts != 1 || rec.Reboot != nil || rec.Results["kernel"] != "6.1" || rec.Message != "it holds" {
		t.Errorf("the record is %+v", rec)
	}
	if got := shows(w.liveNode("reboot-1"), key); got != "done label note owner record" {
		t.Errorf("after all the node shows %q", got)
	}
	w.cordoned("reboot-1", "")
	w.Condition("boots", v1alpha1.ConditionComplete, metav1.ConditionTrue, "")
	w.NoPods()
}

// TestATaskThatAsksForNoRebootIsDoneWithoutOne has a NodeJob in which one node requests a reboot and another does not.
func TestATaskThatAsksForNoRebootIsDoneWithoutOne(t *testing.T) {
	w := newWorld(t)
	startManager(t, noFaults)
	for _, node := range []string{"asks-1", "asks-2"} {
		w.node(node)
	}
	w.job("asks", func(s *v1alpha1.NodeJobSpec) {
		s.Maintenance = v1alpha1.MaintenanceSpec{
			Reboot: v1alpha1.RebootSpec{Policy: v1alpha1.RebootIfRequested, MinReadySeconds: new(int32(0))},
		}
	})
	w.end(w.podOf("asks-1", task.Task), 0, "")
	w.Done("asks", "asks-1")
	w.end(w.podOf("asks-2", task.Task), 0, `{"exitCode":0,"results":{"reboot":"true"}}`)
	reboots := w.podOf("asks-2", task.Reboot)
	w.reboots("asks-2", "boot-2")
	w.killed(reboots)
	if rec := w.Done("asks", "asks-2"); rec.BootID != "boot-2" {
		t.Errorf("the record is %+v", rec)
	}
	w.NoPods()
}

func TestACheckThatFailsAfterTheRebootFailsTheAttempt(t *testing.T) {
	w := newWorld(t)
	startManager(t, noFaults)
	w.node("bad-boot-1")
	w.job("bad", func(s *v1alpha1.NodeJobSpec) {
		s.Task.Check = &v1alpha1.CheckSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "check"}}
		s.Retry.Limit = new(int32(0))
		s.Maintenance = v1alpha1.MaintenanceSpec{
			Cordon: true,
			Reboot: v1alpha1.RebootSpec{Policy: v1alpha1.RebootAlways, MinReadySeconds: new(int32(0))},
		}
	})
	w.end(w.podOf("bad-boot-1", task.Task), 0, "")
	reboots := w.podOf("bad-boot-1", task.Reboot)
	w.reboots("bad-boot-1", "boot-2")
	w.killed(reboots)
	w.end(w.podOf("bad-boot-1", task.Check), 4, `{"exitCode":4,"reason":"TaskFailed","message":"the old kernel"}`)
	rec := w.outcome("bad", "bad-boot-1", record.Failed)
	if rec.Reason != "CheckFailed" || *rec.ExitCode != 4 || rec.Reboot != nil {
		t.Errorf("the record is %+v", rec)
	}
	w.cordoned("bad-boot-1", "")
	w.Condition("bad", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonNodesFailed)
	w.NoPods()
}

// TestAnAttemptFailsIfTheNodeDoesNotComeBack : its slot is available for the next node.
func TestAnAttemptFailsIfTheNodeDoesNotComeBack(t *testing.T) {
	w := newWorld(t)
	startManager(t, noFaults)
	w.node("lost-boot-1")
	w.job("lost", func(s *v1alpha1.NodeJobSpec) {
		s.Retry.Limit = new(int32(0))
		s.Maintenance = v1alpha1.MaintenanceSpec{
			Reboot: v1alpha1.RebootSpec{Policy: v1alpha1.RebootAlways, TimeoutSeconds: new(int32(10)), MinReadySeconds: new(int32(0))},
		}
	})
	w.end(w.podOf("lost-boot-1", task.Task), 0, "")
	pod := w.podOf("lost-boot-1", task.Reboot)
	w.ready("lost-boot-1", corev1.ConditionUnknown)
	rec := w.outcome("lost", "lost-boot-1", record.Failed)
	if rec.Reason != v1alpha1.ReasonRebootTimedOut || rec.Reboot != nil {
		t.Errorf("the record is %+v", rec)
	}
	w.Eventually("the finalizer of its pod is removed", func() error {
		var live corev1.Pod
		if err := admin.Get(w.Ctx, client.ObjectKeyFromObject(pod), &live); err != nil {
			return client.IgnoreNotFound(err)
		}
		if len(live.Finalizers) > 0 || live.DeletionTimestamp.IsZero() {
			return errors.New("it is held")
		}
		return nil
	})
}
