// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/uninstall"
	"github.com/everynode/everynode/local/cluster"
	"github.com/everynode/everynode/test/install"
)

// managerPods are the pods of managers. Seats are in the same namespace.
var managerPods = client.MatchingLabels{uninstall.ComponentLabel: uninstall.ManagerComponent}

// manager is the pod that leads.
func (w *world) manager() corev1.Pod {
	w.T.Helper()
	var found corev1.Pod
	w.Eventually("the manager is ready", func() error {
		var pods corev1.PodList
		if err := admin.List(w.Ctx, &pods, client.InNamespace(install.Namespace), managerPods); err != nil {
			return err
		}
		// A terminating manager may still lead for a moment.
		if slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool { return !p.DeletionTimestamp.IsZero() }) {
			return errors.New("an old pod exists")
		}
		for _, pod := range pods.Items {
			for _, c := range pod.Status.Conditions {
				if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
					found = pod
					return nil
				}
			}
		}
		return errors.New("none is")
	})
	return found
}

// killManager ends the manager with SIGKILL, from the node, so that it cannot clean up.
func (w *world) killManager() {
	w.T.Helper()
	before := w.manager()
	w.sh(before.Spec.NodeName, "pkill -KILL -x everynode")
	w.Eventually("the manager is killed", func() error {
		var pod corev1.Pod
		if err := admin.Get(w.Ctx, client.ObjectKeyFromObject(&before), &pod); err != nil {
			return client.IgnoreNotFound(err)
		}
		switch {
		case restarts(&pod) != restarts(&before):
			return nil
		case !backsOff(&pod):
			return errors.New("its container is the same")
		}
		// Earlier tests have killed it too, so the kubelet would start it up to five minutes later.
		if err := admin.Delete(w.Ctx, &pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID}); err != nil {
			return client.IgnoreNotFound(err)
		}
		return errors.New("its container backs off, so its pod is replaced")
	})
}

// backsOff reports whether the kubelet waits before it starts the container again.
func backsOff(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
		return c.State.Waiting != nil && c.State.Waiting.Reason == "CrashLoopBackOff"
	})
}

func restarts(pod *corev1.Pod) int32 {
	if len(pod.Status.ContainerStatuses) == 0 {
		return -1
	}
	return pod.Status.ContainerStatuses[0].RestartCount
}

// The first tests break what all tests share, so they run alone: tests that are parallel wait for
// those that are not.

func TestManagerKilledWhileTasksRun(t *testing.T) {
	w := newWorld(t)
	w.job("killed", w.hold(), func(s *v1alpha1.NodeJobSpec) {
		s.Nodes.Selector.MatchLabels = map[string]string{"kubernetes.io/os": "linux"}
	})
	first, second := w.runningPod("node-1"), w.runningPod("node-2")
	w.killManager()
	w.letGo("node-1")
	w.letGo("node-2")
	for node, pod := range map[string]corev1.Pod{"node-1": first, "node-2": second} {
		if rec := w.Done("killed", node); rec.PodUID != pod.UID || rec.Attempts != 1 {
			t.Errorf("the record of %s is %+v, want that of pod %s", node, rec, pod.UID)
		}
		w.wantRan(node, 1)
	}
	w.complete("killed")
}

func TestFinishedPodDeletedByHandBeforeTheManagerIsBack(t *testing.T) {
	w := newWorld(t)
	w.job("gap", w.hold()+"; echo kept=yes >> $EVERYNODE_RESULTS", onNode2)
	pod := w.runningPod("node-2")
	w.scaleManager(0)
	w.letGo("node-2")
	w.Eventually("the pod has ended", func() error {
		var live corev1.Pod
		must(t, admin.Get(w.Ctx, client.ObjectKeyFromObject(&pod), &live))
		if live.Status.Phase != corev1.PodSucceeded {
			return errors.New(string(live.Status.Phase))
		}
		return nil
	})
	must(t, admin.Delete(w.Ctx, &pod))
	w.scaleManager(1)
	if rec := w.Done("gap", "node-2"); rec.PodUID != pod.UID || rec.Results["kept"] != "yes" {
		t.Errorf("the record is %+v", rec)
	}
	w.complete("gap")
	w.wantRan("node-2", 1)
}

func (w *world) scaleManager(n int) {
	w.T.Helper()
	_, err := install.Kubectl(
		w.Ctx,
		real,
		"",
		"-n",
		install.Namespace,
		"scale",
		"deployment",
		install.Deployment,
		fmt.Sprintf("--replicas=%d", n),
	)
	must(w.T, err)
	if n > 0 {
		w.manager()
		return
	}
	w.Eventually("no manager is there", func() error {
		var pods corev1.PodList
		must(w.T, admin.List(w.Ctx, &pods, client.InNamespace(install.Namespace)))
		if len(pods.Items) > 0 {
			return errors.New(pods.Items[0].Name)
		}
		return nil
	})
}

func TestAPIServerRestartedInMidRun(t *testing.T) {
	w := newWorld(t)
	w.job("restart", w.hold(), onNode2)
	pod := w.runningPod("node-2")
	before, since := w.manager(), time.Now()
	w.stopAPIServer()
	// The task ends while the API server is unreachable.
	w.letGo("node-2")
	w.sh("node-2", "while pgrep -x everynode-runne >/dev/null; do sleep 0.1; done")
	w.startAPIServer()
	outage := time.Since(since)
	if rec := w.Done("restart", "node-2"); rec.PodUID != pod.UID || rec.Attempts != 1 {
		t.Errorf("the record is %+v", rec)
	}
	w.complete("restart")
	w.wantRan("node-2", 1)
	// The manager renews its lease every 3 s, and ends after 20 s in which it could not. On a busy machine, the API server starts slowly.
	after, allowed := w.manager(), int32(0)
	if outage > 15*time.Second {
		t.Logf("the API server was away for %v, so the manager may have lost its lease", outage)
		allowed = 1
	}
	if n := restarts(&after) - restarts(&before); n > allowed {
		t.Errorf("the manager was restarted %d times in an outage of %v: one of less than 17 s must not restart it", n, outage)
	}
}

func TestKubeletStoppedInMidRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := w.join(cluster.NodeOptions{})
	w.job("deaf", w.hold())
	pod := w.runningPod(node)
	must(t, real.StopKubelet(w.Ctx, node))
	w.letGo(node)
	w.Eventually("the node is unreachable", func() error {
		var live corev1.Node
		must(t, admin.Get(w.Ctx, client.ObjectKey{Name: node}, &live))
		for _, c := range live.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionUnknown {
				return nil
			}
		}
		return errors.New("it is not")
	})
	must(t, real.StartKubelet(w.Ctx, node))
	if rec := w.Done("deaf", node); rec.PodUID != pod.UID || rec.Attempts != 1 {
		t.Errorf("the record is %+v", rec)
	}
	w.complete("deaf")
	w.wantRan(node, 1)
}

func TestNodeDeletedInMidRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := w.join(cluster.NodeOptions{})
	w.job("deleted", w.hold())
	w.runningPod(node)
	must(t, real.Remove(w.Ctx, node))
	// The pod itself goes with the cluster's own garbage collection, once nothing of ours holds it.
	w.Eventually("nothing holds the pod", func() error {
		for _, pod := range w.Pods() {
			if len(pod.Finalizers) > 0 || pod.DeletionTimestamp.IsZero() {
				return fmt.Errorf("%s has finalizers %v", pod.Name, pod.Finalizers)
			}
		}
		return nil
	})
	w.Condition("deleted", v1alpha1.ConditionComplete, metav1.ConditionUnknown, v1alpha1.ReasonNoMatchingNodes)
}

func TestNodeRecreatedWithTheSameName(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := w.join(cluster.NodeOptions{})
	w.job("recreated", w.mark())
	first := w.Done("recreated", node)
	w.complete("recreated")
	must(t, real.Remove(w.Ctx, node))
	w.join(cluster.NodeOptions{Name: node})
	if second := w.Done("recreated", node); second.PodUID == first.PodUID || second.MachineID == first.MachineID {
		t.Errorf("the records are %+v and %+v", first, second)
	}
	w.complete("recreated")
	w.wantRan(node, 1)
}

func TestReimagedMachineRunsTheTaskAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := w.join(cluster.NodeOptions{})
	w.job("reimaged", w.mark())
	first := w.Done("reimaged", node)
	w.complete("reimaged")
	must(t, real.ReimageReady(w.Ctx, node))
	w.Eventually("the new machine is on record", func() error {
		if rec := w.Done("reimaged", node); rec.MachineID == first.MachineID {
			return errors.New("it is the old one")
		}
		return nil
	})
	w.complete("reimaged")
	w.wantRan(node, 1)
}

func TestRebootDuringARunIsNotAFailure(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := w.join(cluster.NodeOptions{})
	w.job("boot", w.hold(), func(s *v1alpha1.NodeJobSpec) { s.Retry.Limit = new(int32(0)) })
	first := w.runningPod(node)
	w.began(node)
	must(t, real.RebootReady(w.Ctx, node))
	w.letGo(node)
	if rec := w.Done("boot", node); rec.PodUID == first.UID || rec.Attempts != 1 {
		t.Errorf("the record is %+v", rec)
	}
	w.complete("boot")
	w.wantRan(node, 2)
}

func TestEvictedTaskIsNoFailure(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.job("evicted", w.hold(), onNode2, func(s *v1alpha1.NodeJobSpec) { s.Retry.Limit = new(int32(0)) })
	first := w.runningPod("node-2")
	w.began("node-2")
	must(t, admin.Delete(w.Ctx, &first))
	w.Eventually("the disruption is on record", func() error {
		rec := w.On("evicted", "node-2").Record
		if rec == nil || rec.Outcome != record.Disrupted || rec.Attempts != 0 {
			return fmt.Errorf("the record is %+v", rec)
		}
		return nil
	})
	w.letGo("node-2")
	if rec := w.Done("evicted", "node-2"); rec.Attempts != 1 {
		t.Errorf("the record is %+v", rec)
	}
	w.complete("evicted")
}

func TestImageThatCannotBePulled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	began := time.Now()
	w.job("no-image", "", onNode2, func(s *v1alpha1.NodeJobSpec) {
		s.Task = v1alpha1.TaskSpec{TimeoutSeconds: new(int32(8)), Template: &corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "x", Image: "registry.local/none:1"}},
		}}}
		s.Retry.Limit, s.Rollback = new(int32(0)), &v1alpha1.RollbackSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: w.mark()}}
	})
	// A working NodeJob runs at the same time, and is not delayed.
	w.job("works", "true", onNode2)
	c := w.Condition("no-image", v1alpha1.ConditionReconciling, metav1.ConditionTrue, v1alpha1.ReasonPodNotStarting)
	wantText(t, c.Message, "node-2: ImagePullBackOff: image registry.local/none:1", "Check the image's name")
	t.Logf("said after %.1f s", time.Since(began).Seconds())
	w.Done("works", "node-2")
	if rec := w.failed(
		"no-image",
		"node-2",
	); rec.Reason != v1alpha1.ReasonDeadlineExceeded || !rec.NeverStarted ||
		!strings.Contains(rec.Message, "registry.local/none:1") {
		t.Errorf("the record is %+v", rec)
	}
	w.NoPods()
	w.wantRan("node-2", 0) // it is not rolled back
}

// TestScriptsThatMisbehave runs scripts with common mistakes, all on one node.
func TestScriptsThatMisbehave(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	limits := func(seconds int32) func(*v1alpha1.NodeJobSpec) {
		return func(s *v1alpha1.NodeJobSpec) {
			s.Task.TimeoutSeconds = &seconds
			s.Retry.Limit = new(int32(0))
		}
	}
	w.job("prints", `head -c 10000000 /dev/zero | tr '\0' x; echo; echo the end`, onNode2, limits(300))
	w.job("results", `head -c 1000000 /dev/zero | tr '\0' x >> $EVERYNODE_RESULTS`, onNode2, limits(300))
	w.job("keys", `i=0; while [ $i -lt 10000 ]; do echo "k$i=v"; i=$((i+1)); done >> $EVERYNODE_RESULTS`, onNode2, limits(300))
	w.job(
		"control",
		`printf 'a=\033[31mred\000\r\nb=fine\n' >> $EVERYNODE_RESULTS; printf 'say \033[2J\007\n'; exit 4`,
		onNode2,
		limits(300),
	)
	w.job("no-json", `echo '{"a": "b"' >> $EVERYNODE_RESULTS`, onNode2, limits(300))
	w.job("json", `echo '{"a": "b", "n": 1, "o": {"x": [1]}}' >> $EVERYNODE_RESULTS`, onNode2, limits(300))
	w.job("forks", `setsid sleep 7301 & sleep 7302 & echo left`, onNode2, limits(300))
	w.job(
		"python",
		`print("no")`,
		onNode2,
		limits(300),
		func(s *v1alpha1.NodeJobSpec) { s.Task.Interpreter = []string{"/no/such/interpreter"} },
	)
	w.job(
		"unchecked",
		`true`,
		onNode2,
		limits(300),
		func(s *v1alpha1.NodeJobSpec) {
			s.Task.Check = &v1alpha1.CheckSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "echo not so; exit 5"}}
		},
	)

	if rec := w.Done("prints", "node-2"); !strings.HasSuffix(strings.TrimSpace(rec.Message), "the end") || len(rec.Message) > 1024 {
		t.Errorf("prints: %d bytes of message, %+v", len(rec.Message), rec)
	}
	if rec := w.Done("results", "node-2"); len(rec.Results) > 32 {
		t.Errorf("results: %+v", rec)
	}
	if rec := w.Done("keys", "node-2"); len(rec.Results) == 0 || len(rec.Results) > 32 || !rec.Truncated {
		t.Errorf("keys: %d results, truncated %v", len(rec.Results), rec.Truncated)
	}
	if rec := w.failed(
		"control",
		"node-2",
	); rec.Results["b"] != "fine" ||
		strings.ContainsAny(rec.Results["a"]+rec.Message, "\x1b\x00\x07\r") {
		t.Errorf("control: %+v", rec)
	}
	if rec := w.Done("no-json", "node-2"); !strings.Contains(rec.Message, "results") {
		t.Errorf("no-json: %+v", rec)
	}
	if rec := w.Done("json", "node-2"); rec.Results["a"] != "b" || rec.Results["n"] != "1" || rec.Results["o"] != `{"x":[1]}` {
		t.Errorf("json: %+v", rec)
	}
	w.Done("forks", "node-2")
	// The deadline counts from the start of the pod. These pods do not start together with the others, so that the scripts begin before it.
	w.job("deaf", `trap '' TERM; echo started; sleep 7303 & while :; do sleep 1; done`, onNode2, limits(10))
	w.job("endless", `echo last words; sleep 7304`, onNode2, limits(10))
	for _, job := range []string{"deaf", "endless"} {
		if rec := w.failed(job, "node-2"); rec.Reason != v1alpha1.ReasonDeadlineExceeded {
			t.Errorf("%s: %+v", job, rec)
		}
	}
	if rec := *w.On("endless", "node-2").Record; !strings.Contains(rec.Message, "last words") {
		t.Errorf("endless: %+v", rec)
	}
	if rec := w.failed(
		"python",
		"node-2",
	); rec.Reason != "InterpreterNotFound" || *rec.ExitCode != 127 ||
		!strings.Contains(rec.Message, "/no/such/interpreter") {
		t.Errorf("python: %+v", rec)
	}
	if rec := w.failed("unchecked", "node-2"); rec.Reason != "CheckFailed" || !strings.Contains(rec.Message, "not so") {
		t.Errorf("unchecked: %+v", rec)
	}
	w.NoPods()
	if left := w.sh("node-2", "pgrep -af 'sleep 730[1-4]' || true"); left != "" {
		t.Errorf("left on the node:\n%s", left)
	}
}

// TestTemplateWritesTheSameOutcome shows a task with its own image that reports like the runner.
func TestTemplateWritesTheSameOutcome(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.job("template", "", onNode2, func(s *v1alpha1.NodeJobSpec) {
		s.Task = v1alpha1.TaskSpec{Template: &corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			HostPID: true,
			Containers: []corev1.Container{{
				Name: "own", Image: install.RunnerImage,
				SecurityContext: &corev1.SecurityContext{Privileged: new(true)},
				// The runner's image is the only one here that can write a file; what it writes is its outcome.
				Env: []corev1.EnvVar{{Name: "EVERYNODE_SCRIPT", Value: "echo own=image >> $EVERYNODE_RESULTS"}},
			}},
		}}}
	})
	if rec := w.Done("template", "node-2"); rec.Results["own"] != "image" || record.ImageDigest(rec.Images["own"]) == "" {
		t.Errorf("the record is %+v", rec)
	}
	w.complete("template")
}

// TestSimulatedNodeWithALongName : real host names end at 63 characters, node names do not.
func TestSimulatedNodeWithALongName(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	long := strings.Repeat("a", 61) + "." + strings.Repeat("b", 61) + "." + strings.Repeat("c", 61) + "." + strings.Repeat("d", 67)
	names := []string{long, "twin.zone-a.example", "twin.zone-b.example"}
	for _, name := range names {
		w.join(cluster.NodeOptions{Name: name, Simulated: true})
	}
	w.job(strings.Repeat("n", 63), "true")
	for _, name := range names {
		w.Done(strings.Repeat("n", 63), name)
	}
	w.complete(strings.Repeat("n", 63))
}

// TestNodesPastMaxConcurrentWait counts how many ran at the same time.
func TestNodesPastMaxConcurrentWait(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range 8 {
		w.join(cluster.NodeOptions{Name: fmt.Sprintf("slot-%d", i), Simulated: true})
	}
	w.job("slots", "true", func(s *v1alpha1.NodeJobSpec) { s.Rollout.MaxConcurrent = nil })
	most := 0
	w.Eventually("all nodes are done", func() error {
		running := 0
		for _, pod := range w.Pods() {
			if pod.Status.Phase == corev1.PodPending || pod.Status.Phase == corev1.PodRunning {
				running++
			}
		}
		most = max(most, running)
		if live := w.Get("slots"); live.Status.Nodes.Done != 8 {
			return fmt.Errorf("the counts are %+v", live.Status.Nodes)
		}
		return nil
	})
	if most > 2 {
		t.Errorf("%d nodes ran at once, a quarter of 8 may", most)
	}
}
