// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/outcome"
	"github.com/everynode/everynode/local/cluster"
)

// The contents of the files of these tests, which occur nowhere else.
const (
	fileText   = "a-text-that-is-only-in-a-file"
	fileSecret = "a-secret-that-is-only-in-a-file"
)

// withFiles has a program in a ConfigMap, and a Secret.
func withFiles(s *v1alpha1.NodeJobSpec) {
	s.Task.Files = []v1alpha1.FilesSource{
		{Name: "tools", ConfigMap: &v1alpha1.FilesFromObject{Name: "tools", Items: []v1alpha1.FileItem{
			{Key: "greet.sh", Path: "bin/greet", Mode: new(int32(0o755))},
		}}},
		{Name: "token", Secret: &v1alpha1.FilesFromObject{Name: "token"}},
	}
}

// files makes the objects that withFiles names.
func (w *world) files() {
	w.T.Helper()
	must(w.T, admin.Create(w.Ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.Namespace,
			Name:      "tools",
			Labels:    map[string]string{v1alpha1.ScriptLabel: v1alpha1.ScriptLabelValue},
		},
		Data: map[string]string{"greet.sh": "#!/bin/sh\n: " + fileText + "\necho \"greetings, $1\"\n"},
	}))
	must(w.T, admin.Create(w.Ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "token"}, StringData: map[string]string{"token": fileSecret},
	}))
}

// onDisk are the files of the node's disk that contain a text of the files, and mounted are the mounts of task.files.
func (w *world) onDisk(node string) string {
	return w.sh(
		node,
		fmt.Sprintf(
			"grep -rlsF -e %s -e %s /var/lib/kubelet /var/lib/containerd /var/tmp /etc | xargs -r -n1 df --output=fstype,target,file | grep -v -e ^tmpfs -e ^Type || true",
			fileText,
			fileSecret,
		),
	)
}

// wantNoFiles waits until neither a file nor a mount of the files is left.
func (w *world) wantNoFiles(node string) {
	w.T.Helper()
	w.Eventually("the files are gone from "+node, func() error {
		left := w.sh(
			node,
			fmt.Sprintf(
				"grep everynode-files /proc/mounts; find /var/lib/kubelet/pods -path '*files-*'; grep -rlsF -e %s -e %s /var/lib/kubelet /var/lib/containerd /run /var/tmp /etc /tmp || true",
				fileText,
				fileSecret,
			),
		)
		if left != "" {
			return errors.New(left)
		}
		return nil
	})
}

// TestFilesAreOnTheNodeWhileTheirPodRuns runs a program of a ConfigMap in task, check and rollback, and looks for traces.
func TestFilesAreOnTheNodeWhileTheirPodRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := w.join(cluster.NodeOptions{})
	w.files()
	greet := func(whom string) string { return "$EVERYNODE_FILES/tools/bin/greet " + whom }

	w.job(
		"works",
		greet("task")+" && cat $EVERYNODE_FILES/token/token && stat -L -c %a $EVERYNODE_FILES/token/token && "+w.hold(),
		withFiles,
		func(s *v1alpha1.NodeJobSpec) {
			s.Task.Check = &v1alpha1.CheckSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: greet("check")}}
		},
	)
	c := w.Condition("works", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonSecretForbidden)
	wantText(t, c.Message, "spec.task.files[token]")
	w.asTold(c.Message, "create role")
	w.began(node)
	if left := w.onDisk(node); left != "" {
		t.Errorf("on the disk of the node: %s", left)
	}
	w.letGo(node)
	rec := w.Done("works", node)
	wantText(t, rec.Message, "greetings, task", "***", "400", "greetings, check")
	if strings.Contains(rec.Message, fileSecret) {
		t.Errorf("the record has the Secret: %s", rec.Message)
	}
	w.wantNoFiles(node)

	// Another content runs the task again.
	must(t, admin.Patch(w.Ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "tools"}},
		mergePatch(`{"data":{"greet.sh":"#!/bin/sh\n: `+fileText+`\necho \"goodbye, $1\"\n"}}`)))
	w.Eventually("the task has run with the new content", func() error {
		if on := w.On("works", node); on.Label == "" || on.Record == nil || !strings.Contains(on.Record.Message, "goodbye, check") {
			return fmt.Errorf("the record is %+v", on.Record)
		}
		return nil
	})

	// A failure, and its rollback.
	w.job("fails", greet("nobody")+"; exit 3", withFiles, func(s *v1alpha1.NodeJobSpec) {
		s.Retry.Limit = new(int32(0))
		s.Rollback = &v1alpha1.RollbackSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: greet("rollback")}}
	})
	wantText(t, w.rolledBack("fails", node, record.Succeeded).Message, "goodbye, rollback")
	w.wantNoFiles(node)
}

// TestFilesEndWithARunnerThatIsKilled kills the runner, and then reboots the node while the task runs once more.
func TestFilesEndWithARunnerThatIsKilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := w.join(cluster.NodeOptions{})
	w.files()
	w.job(
		"killed",
		"$EVERYNODE_FILES/tools/bin/greet you && "+w.hold(),
		withFiles,
		func(s *v1alpha1.NodeJobSpec) { s.Retry.Limit = new(int32(0)) },
	)
	w.asTold(w.Condition("killed", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonSecretForbidden).Message, "create role")
	w.began(node)
	w.sh(node, "pkill -9 -f '[e]verynode-runner --run-dir'")
	w.failed("killed", node)
	w.wantNoFiles(node)

	w.job("rebooted", "$EVERYNODE_FILES/tools/bin/greet you && "+w.hold(), withFiles)
	w.Eventually("it runs", func() error {
		if pods := w.Pods(); len(pods) != 1 || pods[0].Status.Phase != corev1.PodRunning {
			return fmt.Errorf("%d pods", len(pods))
		}
		return nil
	})
	must(t, real.RebootReady(w.Ctx, node))
	w.letGo(node)
	w.Done("rebooted", node)
	w.wantNoFiles(node)
}

// trusts makes the node trust the registry.
func (r *registry) trusts(node string) {
	r.w.T.Helper()
	r.w.sh(
		node,
		fmt.Sprintf(
			"mkdir -p /etc/containerd/certs.d/%[1]s && cd /etc/containerd/certs.d/%[1]s && cat > ca.crt <<'END'\n%[2]s\nEND\nprintf 'server = \"https://%[1]s\"\\n[host.\"https://%[1]s\"]\\nca = \"/etc/containerd/certs.d/%[1]s/ca.crt\"\\n' > hosts.toml",
			r.address,
			r.ca,
		),
	)
}

// reference is the name of an image of the registry by its digest.
func (r *registry) reference(name string) string {
	r.w.T.Helper()
	digest, err := r.image.Digest()
	must(r.w.T, err)
	return r.address + "/" + name + "@" + digest.String()
}

// TestAProgramOfAnImageRunsOnANodeWithoutAShell removes all shells from a node, as Bottlerocket and Talos have none.
func TestAProgramOfAnImageRunsOnANodeWithoutAShell(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := w.join(cluster.NodeOptions{})
	registry := w.registry()
	registry.trusts(node)
	w.sh(node, "rm -f /bin/*sh /usr/bin/*sh /usr/local/bin/*sh /bin/busybox /usr/bin/busybox") // in the node's own layer
	if _, _, err := real.Exec(w.Ctx, node, "/bin/sh", "-c", "true"); err == nil {
		t.Fatal("the node has a shell")
	}
	w.job("script", "true", func(s *v1alpha1.NodeJobSpec) { s.Retry.Limit = new(int32(0)) })
	if rec := w.failed("script", node); rec.Reason != outcome.ReasonInterpreterNotFound {
		t.Errorf("the record is %+v", rec)
	}

	w.job("command", "", func(s *v1alpha1.NodeJobSpec) {
		s.Task.Command = []string{"$(EVERYNODE_FILES)/tools/everynode-runner", "--version"}
		s.Task.Files = []v1alpha1.FilesSource{{Name: "tools", Image: &v1alpha1.FilesFromImage{Reference: registry.reference("tools")}}}
	})
	if rec := w.Done("command", node); rec.ExitCode == nil || *rec.ExitCode != 0 || rec.Message == "" {
		t.Errorf("the record is %+v", rec)
	}
	w.Eventually("the mount of the image is gone", func() error {
		out, _, err := real.Exec(w.Ctx, node, "grep", "-e", "everynode-files", "-e", "image-volumes", "/proc/mounts")
		if err == nil {
			return errors.New(out)
		}
		return nil
	})
}

// TestANodeIsNotCordonedBeforeTheImageOfItsFilesIsThere has the check before the task, which runs in a pod with the same files, wait for
// an image that cannot be pulled.
func TestANodeIsNotCordonedBeforeTheImageOfItsFilesIsThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := w.join(cluster.NodeOptions{})
	registry := w.registry()
	w.job("pulls", w.mark(), func(s *v1alpha1.NodeJobSpec) {
		s.Task.Files = []v1alpha1.FilesSource{{Name: "tools", Image: &v1alpha1.FilesFromImage{Reference: registry.reference("tools")}}}
		s.Task.Check = &v1alpha1.CheckSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "[ -e " + w.markFile() + " ]"}, Before: true}
		s.Maintenance.Cordon = true
	})
	w.cannotPull("pulls")
	w.wantCordoned(node, false)
	w.wantRan(node, 0)
	registry.trusts(node)
	w.Done("pulls", node)
	w.wantRan(node, 1)
}

// TestANodeIsNotCordonedBeforeTheImagesOfItsTaskAreThere has the images of a template pulled first (maintenance.prePull).
func TestANodeIsNotCordonedBeforeTheImagesOfItsTaskAreThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := w.join(cluster.NodeOptions{})
	registry := w.registry()
	w.job("pulls", "", func(s *v1alpha1.NodeJobSpec) {
		s.Task.Template = &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "program", Image: registry.reference("tools"), Command: []string{"/everynode-runner", "--version"},
		}}}}
		s.Maintenance.Cordon, s.Maintenance.PrePull = true, true
	})
	w.cannotPull("pulls")
	w.wantCordoned(node, false)
	registry.trusts(node)
	w.Done("pulls", node)
	w.wantCordoned(node, false)
}

// cannotPull waits until a NodeJob says that the image of the registry cannot be pulled.
func (w *world) cannotPull(name string) {
	w.T.Helper()
	w.Eventually("the NodeJob says that the image cannot be pulled", func() error {
		job := w.Get(name)
		for _, c := range job.Status.Conditions {
			if c.Status == metav1.ConditionTrue && strings.Contains(c.Message, "ImagePullBackOff: image tools@sha256:") {
				return nil
			}
		}
		return fmt.Errorf("the conditions are %+v", job.Status.Conditions)
	})
}

// TestNoForeignFileRuns puts another ConfigMap under the name of the files, as a user can who may only write ConfigMaps: between the check of
// the manager and the mount, of a task and of a rollback.
func TestNoForeignFileRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := w.join(cluster.NodeOptions{})
	tools := func(program string, labels map[string]string) *corev1.ConfigMap {
		return &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "tools", Labels: labels},
			Data:       map[string]string{"run.sh": "#!/bin/sh\n" + program + "\n"},
		}
	}
	const own, foreign = "echo own >> /var/tmp/own-", "echo foreign >> /var/tmp/foreign-"
	labels := map[string]string{v1alpha1.ScriptLabel: v1alpha1.ScriptLabelValue}
	replace := func() {
		must(t, admin.Delete(w.Ctx, tools("", nil)))
		must(t, admin.Create(w.Ctx, tools(foreign+w.Namespace, nil))) // without the label, no admission policy asks for a right
	}
	wantRuns := func(when string, want string) {
		t.Helper()
		if got := w.sh(
			node,
			"cat /var/tmp/own-"+w.Namespace+" /var/tmp/foreign-"+w.Namespace+" 2>/dev/null || true",
		); strings.Join(
			strings.Fields(got),
			" ",
		) != want {
			t.Errorf("%s: %q has run, want %q", when, got, want)
		}
	}

	must(t, admin.Create(w.Ctx, tools(own+w.Namespace, labels)))
	must(t, real.StopKubelet(w.Ctx, node))
	w.job("files", "$EVERYNODE_FILES/tools/run.sh", func(s *v1alpha1.NodeJobSpec) {
		s.Task.Files = []v1alpha1.FilesSource{
			{Name: "tools", ConfigMap: &v1alpha1.FilesFromObject{Name: "tools", DefaultMode: new(int32(0o755))}},
		}
		s.Rollback = &v1alpha1.RollbackSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "$EVERYNODE_FILES/tools/run.sh"}}
		s.DeletionPolicy = v1alpha1.DeletionRollback
	})
	wantPod := func() {
		t.Helper()
		w.Eventually("there is a pod", func() error {
			if len(w.Pods()) != 1 {
				return errors.New("no pod")
			}
			return nil
		})
	}
	wantPod()
	replace()
	must(t, real.StartKubelet(w.Ctx, node))
	w.Condition("files", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonConfigMapNotLabeled)
	w.Eventually("the attempt has ended", func() error {
		if rec := w.On("files", node).Record; rec == nil || rec.Outcome != record.Disrupted {
			return fmt.Errorf("the record is %+v", rec)
		}
		return nil
	})
	wantText(t, w.On("files", node).Record.Message, "does not have the content that the manager has read")
	wantRuns("before the mount", "")

	must(t, admin.Delete(w.Ctx, tools("", nil)))
	must(t, admin.Create(w.Ctx, tools(own+w.Namespace, labels)))
	w.Done("files", node)
	wantRuns("with the right files", "own")

	must(t, real.StopKubelet(w.Ctx, node))
	must(t, admin.Delete(w.Ctx, &v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "files"}}))
	wantPod()
	replace()
	must(t, real.StartKubelet(w.Ctx, node))
	c := w.Condition("files", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonRollbackFailed)
	wantText(t, c.Message, "everynode.dev/script", "deletionPolicy")
	w.NoPods()
	wantRuns("after the deletion", "own")
	must(t, admin.Delete(w.Ctx, tools("", nil)))
	must(t, admin.Create(w.Ctx, tools(own+w.Namespace, labels)))
	w.gone("files", node)
	wantRuns("after the rollback", "own own")
}
