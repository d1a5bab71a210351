// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/manager/archive"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
)

// freshNode is a node on which the NodeJob has not run.
func freshNode() *corev1.Node {
	node := watchedNode()
	node.Labels, node.Annotations, node.Spec.Taints = map[string]string{"kubernetes.io/os": "linux"}, nil, nil
	return node
}

func archives(job *v1alpha1.NodeJob) { job.Spec.Task.Output.Archive = v1alpha1.ArchiveAlways }

// look runs passes until nothing follows at once, and returns when the next one is due.
func (r *fakeReconciler) look(job *v1alpha1.NodeJob) time.Duration {
	r.t.Helper()
	for range 10 {
		result, err := r.Reconcile(r.t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(job)})
		if err != nil {
			r.t.Fatal(err)
		}
		if result.RequeueAfter == 0 || result.RequeueAfter > time.Second {
			return result.RequeueAfter
		}
	}
	return 0
}

func (r *fakeReconciler) pods() []corev1.Pod {
	r.t.Helper()
	var pods corev1.PodList
	if err := r.Client.List(r.t.Context(), &pods); err != nil {
		r.t.Fatal(err)
	}
	return pods.Items
}

func TestANodeJobThatNeedsAnArchiveWaitsForOne(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	job := liveJob(archives)
	r := newReconciler(t, job, freshNode())
	stalled := func(want string) {
		t.Helper()
		wait := r.look(job)
		var live v1alpha1.NodeJob
		if err := r.Client.Get(t.Context(), client.ObjectKeyFromObject(job), &live); err != nil {
			t.Fatal(err)
		}
		c := meta.FindStatusCondition(live.Status.Conditions, v1alpha1.ConditionStalled)
		if c == nil || c.Status != metav1.ConditionTrue || c.Reason != v1alpha1.ReasonArchiveNotConfigured ||
			!strings.Contains(c.Message, want) {
			t.Errorf("Stalled is %+v, want %q", c, want)
		}
		if len(r.pods()) > 0 || wait == 0 || wait > r.PollInterval {
			t.Errorf("there are %d pods, and it looks again after %v", len(r.pods()), wait)
		}
	}
	stalled(
		"the installation has no archive: nothing starts. Configure one (archive.enabled of the Helm chart, or --archive-dir of the manager), or remove spec.task.output.archive",
	)

	r.Archive = archive.Config{Directory: dir, MaxBytes: 1 << 20, UploadTime: 30 * time.Second}
	r.Now = func() time.Time { return noon.Add(time.Minute) }
	stalled("the file url is missing or empty")

	write("url", "s3://outputs")
	write("access-key-id", "AKID")
	write("secret-access-key", "top-secret")
	write("endpoint", "https://s3.example.com")
	r.Now = func() time.Time { return noon.Add(2 * time.Minute) }
	stalled("no image can upload: set --archive-runner-image of the manager")

	r.Options.ArchiveRunnerImage = "registry.example/runner-archive"
	r.Now = func() time.Time { return noon.Add(3 * time.Minute) }
	r.look(job)
	pods := r.pods()
	if len(pods) != 1 {
		t.Fatalf("there are %d pods", len(pods))
	}
	location := pods[0].Annotations[v1alpha1.ArchiveAnnotation]
	if want := "s3://outputs/ns/job/"; !strings.HasPrefix(location, want) ||
		!strings.HasSuffix(location, "/n/20260301T120300Z-task-1.log") {
		t.Errorf("the location is %s", location)
	}
	var variable string
	for _, v := range pods[0].Spec.Containers[0].Env {
		if v.Name == "EVERYNODE_ARCHIVE" {
			variable = v.Value
		}
		if strings.Contains(v.Value, "top-secret") {
			t.Errorf("the secret key is in %s", v.Name)
		}
	}
	if want := `{"url":"https://s3.example.com/outputs/ns/job/`; !strings.HasPrefix(variable, want) ||
		!strings.HasSuffix(variable, `,"maxBytes":1048576,"seconds":30}`) {
		t.Errorf("the runner gets %s", variable)
	}
	if image := pods[0].Spec.Containers[0].Image; image != "registry.example/runner-archive" {
		t.Errorf("the image is %s", image)
	}
	if got, want := *pods[0].Spec.ActiveDeadlineSeconds, int64(600+60+60); got != want {
		t.Errorf("the pod may live for %d s, want %d", got, want)
	}
}

// TestOtherNodeJobsNeedNoArchive : those without the field do not pay for it.
func TestOtherNodeJobsNeedNoArchive(t *testing.T) {
	job := liveJob()
	r := newReconciler(t, job, freshNode())
	r.Archive = archive.Config{Directory: filepath.Join(t.TempDir(), "missing")}
	r.look(job)
	pods := r.pods()
	if len(pods) != 1 {
		t.Fatalf("there are %d pods", len(pods))
	}
	if _, has := pods[0].Annotations[v1alpha1.ArchiveAnnotation]; has ||
		strings.Contains(pods[0].Spec.Containers[0].Env[0].Name, "ARCHIVE") {
		t.Errorf("the pod has an archive: %+v", pods[0])
	}
	if image := pods[0].Spec.Containers[0].Image; image != "registry.example/runner" {
		t.Errorf("the image is %s", image)
	}
	if got, want := *pods[0].Spec.ActiveDeadlineSeconds, int64(600+60); got != want {
		t.Errorf("the pod may live for %d s, want %d", got, want)
	}
}

func TestOnlyTheArchiveOfTheRecordedPodIsCounted(t *testing.T) {
	stored := record.Archive{Phase: "task", Location: "s3://a", Stored: true}
	failed := record.Archive{Phase: "rollback", Location: "s3://b", Error: "gone"}
	for name, tt := range map[string]struct {
		pod                    plan.Pod
		wantStored, wantFailed float64
	}{
		"of the task":                     {plan.Pod{Runs: task.Task, Archive: "s3://a"}, 1, 0},
		"of the rollback":                 {plan.Pod{Runs: task.Rollback, Archive: "s3://b"}, 0, 1},
		"of a pod that is not archived":   {plan.Pod{Runs: task.Task}, 0, 0},
		"of a reboot, which is not there": {plan.Pod{Runs: task.Reboot, Archive: "s3://c"}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReconciler(t)
			r.Metrics.archived(
				plan.Record{Pod: tt.pod, Change: record.Change{Record: &record.Record{Archives: record.Archives{stored, failed}}}},
			)
			gotStored, gotFailed := testutil.ToFloat64(
				r.Metrics.archives.WithLabelValues("Stored"),
			), testutil.ToFloat64(
				r.Metrics.archives.WithLabelValues("Failed"),
			)
			if gotStored != tt.wantStored || gotFailed != tt.wantFailed {
				t.Errorf("stored %v, failed %v", gotStored, gotFailed)
			}
		})
	}
}
