// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
)

func withInput(kind v1alpha1.ContentKind, name string) func(*v1alpha1.NodeJobSpec) {
	return func(s *v1alpha1.NodeJobSpec) { s.Task.Inputs = []v1alpha1.ContentRef{{Kind: kind, Name: name}} }
}

// run runs a command line as an administrator would.
func (w *world) run(line string) {
	w.T.Helper()
	user, err := env.AddUser(envtest.User{Name: "somebody", Groups: []string{"system:masters"}}, nil)
	must(w.T, err)
	config, err := user.KubeConfig()
	must(w.T, err)
	file := filepath.Join(w.T.TempDir(), "config")
	must(w.T, os.WriteFile(file, config, 0o600))
	cmd := exec.CommandContext(w.Ctx, "/bin/sh", "-c", line)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+file, "PATH="+os.Getenv("KUBEBUILDER_ASSETS")+":"+os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); err != nil {
		w.T.Fatalf("%s: %v\n%s", line, err, out)
	}
}

// becomes waits until the node is done with another revision than this, and returns it. It plays the kubelet.
func (w *world) becomes(job, node, than string) string {
	w.T.Helper()
	w.end(w.podOn(node), 0, "")
	var is string
	w.Eventually("another revision is recorded", func() error {
		if is = w.Done(job, node).Revision; is == than {
			return errors.New("it is the same")
		}
		return nil
	})
	w.NoPods()
	return is
}

// TestASecretThatChangesRunsTheTaskAgain goes the way of a user, by the commands of the status.
func TestASecretThatChangesRunsTheTaskAgain(t *testing.T) {
	w := newWorld(t)
	startManager(t, noFaults)
	w.node("secret-1")
	w.job("watches", withInput(v1alpha1.ContentSecret, "token.v1"))
	c := w.Condition("watches", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonSecretForbidden)
	command := regexp.MustCompile(`kubectl [^;]*`).FindString(c.Message)
	w.run(command)
	w.Condition("watches", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonSecretNotFound)
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "token.v1"},
		Data:       map[string][]byte{"token": []byte("hunter2")},
	}
	must(t, admin.Create(w.Ctx, secret))
	first := w.becomes("watches", "secret-1", "")

	secret.Data["token"] = []byte("hunter3")
	must(t, admin.Update(w.Ctx, secret))
	second := w.becomes("watches", "secret-1", first)

	// Created again with its old data: the revision must not reveal that the data is the same.
	must(t, admin.Delete(w.Ctx, secret))
	w.Condition("watches", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonSecretNotFound)
	secret.ResourceVersion, secret.UID = "", ""
	secret.Data["token"] = []byte("hunter2")
	must(t, admin.Create(w.Ctx, secret))
	if third := w.becomes("watches", "secret-1", second); third == first {
		t.Error("the revision is that of the Secret before")
	}

	must(t, admin.Delete(w.Ctx, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "everynode-token.v1"}}))
	w.Condition("watches", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonSecretForbidden)
	node, job := w.liveNode("secret-1"), w.live("watches")
	if text := fmt.Sprintf("%+v %+v", node, job); strings.Contains(text, "hunter") {
		t.Error("the node or the NodeJob tells what is in the Secret")
	}
}

func TestAConfigMapWhoseContentChangesRunsTheTaskAgain(t *testing.T) {
	w := newWorld(t)
	startManager(t, noFaults)
	w.node("content-1")
	w.job("watches", withInput(v1alpha1.ContentConfigMap, "settings"))
	w.Condition("watches", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonConfigMapNotFound)
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "settings"}, Data: map[string]string{"a": "1"}}
	must(t, admin.Create(w.Ctx, cm))
	first := w.becomes("watches", "content-1", "")
	cm.Data["a"] = "2"
	must(t, admin.Update(w.Ctx, cm))
	second := w.becomes("watches", "content-1", first)
	must(t, admin.Delete(w.Ctx, cm))
	w.Condition("watches", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonConfigMapNotFound)
	cm.ResourceVersion, cm.UID = "", ""
	must(t, admin.Create(w.Ctx, cm))
	w.Condition("watches", v1alpha1.ConditionComplete, metav1.ConditionTrue, "")
	if got := w.Done("watches", "content-1").Revision; got != second {
		t.Errorf("the revision is %s, want %s as before", got, second)
	}
}

// TestANodeThatRebootsRunsTheTaskAgain : a node that fails then stays failed after further reboots.
func TestANodeThatRebootsRunsTheTaskAgain(t *testing.T) {
	w := newWorld(t)
	startManager(t, noFaults)
	w.node("boot-again-1")
	w.job("again", func(s *v1alpha1.NodeJobSpec) { s.Rerun.OnReboot, s.Retry.Limit = true, new(int32(0)) })
	w.job("once", nil)
	for range 2 {
		pod := w.podOn("boot-again-1")
		w.end(pod, 0, "")
		w.Done(pod.Labels[v1alpha1.NodeJobLabel], "boot-again-1")
	}
	w.NoPods()
	w.reboots("boot-again-1", "boot-2")
	w.end(w.only("again"), 3, "")
	w.Eventually("it has failed", func() error {
		if on := w.On("again", "boot-again-1"); on.Record.Outcome != record.Failed || on.Label != "" {
			return fmt.Errorf("it carries %+v, %+v", on, on.Record)
		}
		return nil
	})
	w.NoPods()
	w.reboots("boot-again-1", "boot-3")
	c := w.Condition("again", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonNodesFailed)
	wantText(t, c.Message, "boot-again-1")
	if running := w.runOn(); len(running) > 0 {
		t.Errorf("there are pods on %v", running)
	}
}

// TestATaskThatIsDueRunsAgain : each node has a time of its own within the interval, of which at least half has passed.
func TestATaskThatIsDueRunsAgain(t *testing.T) {
	w := newWorld(t)
	startManager(t, noFaults)
	w.node("due-1")
	job := w.draft("due")
	job.Spec.Rerun.PeriodSeconds = 60
	must(t, admin.Create(w.Ctx, job))
	w.end(w.podOn("due-1"), 0, "")
	w.Done("due", "due-1")
	w.NoPods()
	// It was done an hour ago, so it is due.
	node := w.liveNode("due-1")
	key := v1alpha1.RecordKey(w.Namespace, "due")
	rec := *record.Read(node.Labels, node.Annotations, key).Record
	rec.FinishedAt, rec.StartedAt, rec.RecordedAt = rec.FinishedAt.Add(
		-time.Hour,
	), rec.StartedAt.Add(
		-time.Hour,
	), rec.RecordedAt.Add(
		-time.Hour,
	)
	record.SetOn(node, key, rec)
	must(t, admin.Update(w.Ctx, node))
	w.end(w.podOn("due-1"), 0, "")
	w.Eventually("it was done just now", func() error {
		if now := w.Done("due", "due-1"); !now.FinishedAt.After(rec.FinishedAt) {
			return fmt.Errorf("at %s", now.FinishedAt)
		}
		return nil
	})
	w.Condition("due", v1alpha1.ConditionComplete, metav1.ConditionTrue, "")
}
