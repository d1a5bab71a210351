// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/local/cluster"
	"github.com/everynode/everynode/test/install"
)

func TestR01_RunsOnceOnEachNodeOfNowAndLater(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.join(cluster.NodeOptions{})
	w.job("once", w.mark())
	w.Done("once", first)
	w.complete("once")
	second := w.join(cluster.NodeOptions{})
	w.Done("once", second)
	w.complete("once")
	w.wantRan(first, 1)
	w.wantRan(second, 1)
}

func TestR02_OnlyTheKubernetesAPIFromInsideTheCluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.job("inside", "true", onNode2)
	w.Done("inside", "node-2")
	w.complete("inside")
	var manager corev1.PodList
	must(t, admin.List(w.Ctx, &manager, client.InNamespace(install.Namespace)))
	if len(manager.Items) == 0 || manager.Items[0].Spec.ServiceAccountName != "everynode-manager" || manager.Items[0].Spec.HostNetwork {
		t.Errorf("the manager is %+v", manager.Items)
	}
	// Every write to a task's pod and its node comes from the manager's service account, or from the
	// kubelet that runs it.
	for _, e := range w.audit() {
		if e.ObjectRef.Resource == "pods" && e.ObjectRef.Namespace == w.Namespace && e.write() &&
			e.User.Username != managerUser && !strings.HasPrefix(e.User.Username, "system:node:") {
			t.Errorf("%s wrote: %s %s", e.User.Username, e.Verb, e.RequestURI)
		}
	}
}

func TestR03_TheNodeCarriesALabelWhenItIsDone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := w.join(cluster.NodeOptions{})
	key := v1alpha1.RecordKey(w.Namespace, "label")
	workload := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "workload"},
		Spec: corev1.PodSpec{
			Affinity: &corev1.Affinity{
				NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
					NodeSelectorTerms: []corev1.NodeSelectorTerm{
						{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpExists}}},
					},
				}},
			},
			Containers: []corev1.Container{{Name: "x", Image: install.RunnerImage, Args: []string{"--version"}}},
		},
	}
	must(t, admin.Create(w.Ctx, workload))
	w.Eventually("the workload cannot be scheduled", func() error {
		must(t, admin.Get(w.Ctx, client.ObjectKeyFromObject(workload), workload))
		for _, c := range workload.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonUnschedulable {
				return nil
			}
		}
		return fmt.Errorf("it is %s on %q", workload.Status.Phase, workload.Spec.NodeName)
	})
	w.job("label", "true")
	w.Done("label", node)
	w.Eventually("the workload runs on the node", func() error {
		must(t, admin.Get(w.Ctx, client.ObjectKeyFromObject(workload), workload))
		if workload.Spec.NodeName != node {
			return fmt.Errorf("it is on %q", workload.Spec.NodeName)
		}
		return nil
	})
}

func TestR05_ThePrivilegedTaskLivesInItsOwnNamespace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	restricted := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace}}
	must(t, admin.Patch(w.Ctx, restricted, mergePatch(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`)))
	w.job("here", w.mark(), onNode2)
	c := w.Condition("here", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonPodForbidden)
	wantText(t, c.Message, "violates PodSecurity", "pod-security.kubernetes.io/enforce=privileged")
	w.wantRan("node-2", 0)
	// The command in the message fixes the problem.
	must(t, admin.Patch(w.Ctx, restricted, mergePatch(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"privileged"}}}`)))
	w.Done("here", "node-2")
	w.complete("here")
	w.wantRan("node-2", 1)
}

func TestR06_TheHistoryCanBeSeenAfterwards(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	before := time.Now().Add(-2 * time.Second)
	w.job("history", w.mark()+`
echo "attempt $EVERYNODE_ATTEMPT on $EVERYNODE_NODE_NAME"
echo "attempt=$EVERYNODE_ATTEMPT" >> "$EVERYNODE_RESULTS"
[ "$EVERYNODE_ATTEMPT" = 3 ] || exit 41`, onNode2)
	w.Eventually("a failed attempt is on record", func() error {
		rec := w.On("history", "node-2").Record
		if rec == nil || rec.Outcome != record.Failed {
			return fmt.Errorf("the record is %+v", rec)
		}
		if *rec.ExitCode != 41 || !strings.Contains(rec.Message, "attempt "+strconv.Itoa(int(rec.Attempts))+" on node-2") {
			t.Errorf("the record is %+v", rec)
		}
		return nil
	})
	rec := w.Done("history", "node-2")
	if rec.Attempts != 3 || *rec.ExitCode != 0 || rec.Results["attempt"] != "3" || !strings.Contains(rec.Message, "attempt 3") ||
		rec.StartedAt.Before(before) || rec.FinishedAt.Before(rec.StartedAt) {
		t.Errorf("the record is %+v", rec)
	}
	w.complete("history")
	w.wantRan("node-2", 3)
}

// TestR07_MaxMapCountIsRaisedOnlyWhereItIsTooLow uses the recipe of the samples with other numbers:
// vm.max_map_count is the machine's, not the node's, and is put back.
func TestR07_MaxMapCountIsRaisedOnlyWhereItIsTooLow(t *testing.T) {
	t.Parallel()
	changesTheKernel(t)
	w := newWorld(t)
	was, err := strconv.Atoi(w.sh("node-2", "cat /proc/sys/vm/max_map_count"))
	must(t, err)
	t.Cleanup(func() {
		ctx := w.Ctx
		if _, stderr, err := real.Exec(
			ctx,
			"node-2",
			"/bin/sh",
			"-c",
			fmt.Sprintf("echo %d > /proc/sys/vm/max_map_count", was),
		); err != nil {
			t.Errorf("putting vm.max_map_count back: %v %s", err, stderr)
		}
	})
	script := `
want=%d
is=$(cat /proc/sys/vm/max_map_count)
if [ "$is" -lt "$want" ]; then echo "$want" > /proc/sys/vm/max_map_count; echo changed=yes >> "$EVERYNODE_RESULTS"; fi`
	w.job("raise", fmt.Sprintf(script, was+1), onNode2)
	if rec := w.Done("raise", "node-2"); rec.Results["changed"] != "yes" {
		t.Errorf("the record is %+v", rec)
	}
	w.job("keep", fmt.Sprintf(script, was), onNode2)
	if rec := w.Done("keep", "node-2"); rec.Results["changed"] != "" {
		t.Errorf("the record is %+v", rec)
	}
	if got := w.sh("node-2", "cat /proc/sys/vm/max_map_count"); got != strconv.Itoa(was+1) {
		t.Errorf("vm.max_map_count is %s, want %d", got, was+1)
	}
}

func TestR09_RemovingTheLabelRunsTheTaskAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.job("again", w.mark(), onNode2)
	first := w.Done("again", "node-2")
	w.complete("again")
	w.unlabel("again", "node-2")
	w.Eventually("there is another record", func() error {
		if rec := w.Done("again", "node-2"); rec.PodUID == first.PodUID {
			return errors.New("it is the first")
		}
		return nil
	})
	w.complete("again")
	w.wantRan("node-2", 2)
}

func TestR10_TheTaskHasNoAPIAccess(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.job("script", "sleep 2", onNode2)
	pod := w.runningPod("node-2")
	if token := pod.Spec.AutomountServiceAccountToken; token == nil || *token {
		t.Errorf("the task's pod mounts a token: %v", token)
	}
	for _, volume := range pod.Spec.Volumes {
		if volume.Projected != nil || volume.Secret != nil {
			t.Errorf("the task's pod has the volume %+v", volume)
		}
	}
	w.Done("script", "node-2")
	// The pod of a template sees no token either. The runner of our own image looks for it.
	w.job("template", "", onNode2, func(s *v1alpha1.NodeJobSpec) {
		s.Task = v1alpha1.TaskSpec{Template: &corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "x", Image: install.RunnerImage, Args: []string{"--version"}}},
		}}}
	})
	w.Done("template", "node-2")
	for _, e := range w.audit() {
		if e.ObjectRef.Resource == "serviceaccounts" && e.ObjectRef.Subresource == "token" && e.ObjectRef.Namespace == w.Namespace {
			t.Errorf("a token of the task's namespace was asked for: %s by %s", e.RequestURI, e.User.Username)
		}
	}
}

func TestR11_EventsTellWhatHappened(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.job("told", "echo the disk is full; exit 9", onNode2, func(s *v1alpha1.NodeJobSpec) { s.Retry.Limit = new(int32(1)) })
	w.failed("told", "node-2")
	w.job("fine", "true", onNode2)
	w.complete("fine")
	for _, want := range []struct{ kind, name, reason string }{
		{"NodeJob", "told", v1alpha1.ReasonRevisionStarted},
		{"NodeJob", "told", v1alpha1.ReasonAttemptFailed},
		{"NodeJob", "told", v1alpha1.ReasonRetriesExhausted},
		{"Node", "node-2", v1alpha1.ReasonRetriesExhausted},
		{"NodeJob", "told", v1alpha1.ReasonNodesFailed},
		{"NodeJob", "fine", v1alpha1.ReasonAllNodesDone},
	} {
		w.Eventually(fmt.Sprintf("%+v is told", want), func() error {
			var list eventsv1.EventList
			must(t, admin.List(w.Ctx, &list))
			for _, e := range list.Items {
				if e.Regarding.Kind == want.kind && e.Regarding.Name == want.name && e.Reason == want.reason &&
					(strings.Contains(e.Note, w.Namespace) || e.Regarding.Namespace == w.Namespace) {
					return nil
				}
			}
			return errors.New("it is not")
		})
	}
}

// TestR13_ContainerdRestartedByTask adds a certificate and restarts containerd during a run, as the recipe does. The
// image pull of another task fails while the runtime is not running, and is retried.
func TestR13_ContainerdRestartedByTask(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := w.join(cluster.NodeOptions{})
	was := w.sh(node, "pgrep -x containerd")
	w.job("certificate", w.mark()+`
set -e
dir=/etc/containerd/certs.d/registry.example
mkdir -p $dir
echo "not really a certificate" > $dir/ca.crt
old=$(pgrep -x containerd)
pkill -x containerd
while [ "$(pgrep -x containerd || echo $old)" = "$old" ]; do sleep 0.1; done
sleep 3
echo "restarted=yes" >> "$EVERYNODE_RESULTS"`)
	w.runningPod(node)
	w.job("meanwhile", "true")
	rec := w.Done("certificate", node)
	if rec.Attempts != 1 || rec.Results["restarted"] != "yes" {
		t.Errorf("the record is %+v", rec)
	}
	w.Done("meanwhile", node)
	w.complete("certificate")
	w.wantRan(node, 1)
	if is := w.sh(node, "pgrep -x containerd"); is == was {
		t.Error("containerd was not restarted")
	}
	wantText(t, w.sh(node, "cat /etc/containerd/certs.d/registry.example/ca.crt"), "not really")
	if out := w.sh("node-2", "ls /etc/containerd/certs.d/registry.example 2>&1 || true"); !strings.Contains(out, "No such file") {
		t.Errorf("the certificate is on another node as well: %s", out)
	}
}

// TestR13_TaskEndsWhileContainerdIsAway covers a task whose end is not observed, so the runtime makes up an exit code.
// The success must neither be lost nor repeated.
func TestR13_TaskEndsWhileContainerdIsAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := w.join(cluster.NodeOptions{})
	for i := range 3 {
		job := fmt.Sprintf("hasty-%d", i)
		w.job(
			job,
			"echo "+job+" >> "+w.markFile()+"; pkill -KILL -x containerd",
			func(s *v1alpha1.NodeJobSpec) { s.Retry.Limit = new(int32(0)) },
		)
		w.Done(job, node)
		w.complete(job)
		if got := w.sh(node, "grep -c "+job+" "+w.markFile()); got != "1" {
			t.Errorf("%s ran %s times", job, got)
		}
	}
}

// TestR14_RunsBeforeTheNetwork : the node has no CNI, so it is NotReady and tainted, and nothing else
// can be scheduled there.
func TestR14_RunsBeforeTheNetwork(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.job("early", w.mark()+`; date +%s.%N > /var/tmp/started; sleep 2`)
	node := w.join(cluster.NodeOptions{WithoutCNI: true})
	pod := w.runningPod(node)
	if pod.Spec.PriorityClassName != "system-node-critical" {
		t.Errorf("the priority class is %q", pod.Spec.PriorityClassName)
	}
	w.Done("early", node)
	w.wantRan(node, 1)
	var live corev1.Node
	must(t, admin.Get(w.Ctx, client.ObjectKey{Name: node}, &live))
	for _, c := range live.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status != corev1.ConditionFalse {
			t.Errorf("the node is Ready=%s (%s): the task may have waited for that", c.Status, c.Message)
		}
	}
	started, err := strconv.ParseFloat(w.sh(node, "cat /var/tmp/started"), 64)
	must(t, err)
	t.Logf("from the node's registration (whole seconds) to the start of its task: %.1f s", started-float64(live.CreationTimestamp.Unix()))
	must(t, real.InstallCNI(w.Ctx, node))
	must(t, real.WaitReady(w.Ctx, node))
	w.wantRan(node, 1)
}

func TestR15_ANonZeroExitIsRetried(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.job("retried", w.mark()+`; test $(wc -l < `+w.markFile()+`) -ge 2`, onNode2)
	if rec := w.Done("retried", "node-2"); rec.Attempts != 2 {
		t.Errorf("the record is %+v", rec)
	}
	w.wantRan("node-2", 2)

	w.job("given-up", "exit 3", onNode2, func(s *v1alpha1.NodeJobSpec) { s.Retry.Limit = new(int32(0)) })
	if rec := w.failed("given-up", "node-2"); rec.Attempts != 1 || *rec.ExitCode != 3 {
		t.Errorf("the record is %+v", rec)
	}
}

func TestR16_AScriptRunsInTheHostsOwnNamespaces(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := w.join(cluster.NodeOptions{})
	w.sh(node, "echo by-the-test > /etc/seen-by-the-task")
	must(t, admin.Create(w.Ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.Namespace,
			Name:      "scripts",
			Labels:    map[string]string{v1alpha1.ScriptLabel: v1alpha1.ScriptLabelValue},
		},
		Data: map[string]string{"setup.sh": `#!/bin/bash
set -euo pipefail
results=("host=$(hostname)" "file=$(cat /etc/seen-by-the-task)" "init=$(cat /proc/1/comm)" "user=$(id -u)" "extra=$EXTRA" "shell=$$")
printf '%s\n' "${results[@]}" >> "$EVERYNODE_RESULTS"
for ns in mnt uts ipc net pid; do echo "$ns=$(readlink /proc/self/ns/$ns)" >> "$EVERYNODE_RESULTS"; done
echo by-the-task > /etc/seen-by-the-test`},
	}))
	w.job("host", "", func(s *v1alpha1.NodeJobSpec) {
		s.Task = v1alpha1.TaskSpec{
			ScriptBlock: v1alpha1.ScriptBlock{
				ScriptFrom: &v1alpha1.ScriptSource{ConfigMapKeyRef: v1alpha1.ConfigMapKeyRef{Name: "scripts", Key: "setup.sh"}},
			},
			Env: []v1alpha1.EnvVar{{Name: "EXTRA", Value: "from-env"}},
		}
		s.Task.Check = &v1alpha1.CheckSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "grep -q by-the-task /etc/seen-by-the-test"}}
	})
	rec := w.Done("host", node)
	want := map[string]string{"host": node, "file": "by-the-test", "user": "0", "extra": "from-env"}
	for _, ns := range []string{"mnt", "uts", "ipc", "net", "pid"} {
		want[ns] = w.sh(node, "readlink /proc/1/ns/"+ns)
	}
	for key, value := range want {
		if rec.Results[key] != value {
			t.Errorf("%s is %q, want %q", key, rec.Results[key], value)
		}
	}
	if _, err := strconv.Atoi(rec.Results["shell"]); err != nil {
		t.Errorf("$$ is %q: it was expanded before the script ran", rec.Results["shell"])
	}
	wantText(t, w.sh(node, "cat /etc/seen-by-the-test"), "by-the-task")

	// A change of the ConfigMap's content is a new revision.
	must(t, admin.Patch(w.Ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "scripts"}},
		mergePatch(`{"data":{"setup.sh":"echo again=yes >> $EVERYNODE_RESULTS"}}`)))
	w.Eventually("the new content ran", func() error {
		again := w.Done("host", node)
		if again.Results["again"] != "yes" {
			return fmt.Errorf("the record is %+v", again)
		}
		if p := again.Previous; p == nil || p.Revision != rec.Revision || !maps.Equal(p.Results, rec.Results) {
			t.Errorf("the results of the previous revision are %+v, want %v", p, rec.Results)
		}
		return nil
	})
}

func TestR17_OnlySelectedNodesRunTheTask(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.job("selected", w.mark(), onNode2)
	w.complete("selected")
	w.wantRan("node-2", 1)
	w.wantRan("node-1", 0)
	// A taint excludes the task as it excludes a pod of a DaemonSet, and a toleration includes it.
	node := w.join(cluster.NodeOptions{Taints: []corev1.Taint{{Key: "special", Effect: corev1.TaintEffectNoSchedule}}})
	w.job("tainted", w.mark())
	w.Condition("tainted", v1alpha1.ConditionComplete, metav1.ConditionUnknown, v1alpha1.ReasonNoMatchingNodes)
	w.wantRan(node, 0)
	w.job("tolerating", "true", func(s *v1alpha1.NodeJobSpec) {
		s.Nodes.Tolerations = []corev1.Toleration{{Key: "special", Operator: corev1.TolerationOpExists}}
	})
	w.Done("tolerating", node)
	w.wantRan(node, 0)
}

func TestR21_SuccessAndFailureAreInTheStatus(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := w.join(cluster.NodeOptions{})
	both := func(s *v1alpha1.NodeJobSpec) {
		s.Nodes.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "kubernetes.io/hostname", Operator: metav1.LabelSelectorOpIn, Values: []string{"node-2", node}},
		}}
		s.Retry.Limit = new(int32(0))
	}
	w.job("mixed", `echo "here on $(hostname)"; [ "$(hostname)" = node-2 ]`, both)
	c := w.Condition("mixed", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonNodesFailed)
	wantText(t, c.Message, node+": TaskFailed, exit code 1: here on "+node)
	live := w.Get("mixed")
	if want := (v1alpha1.NodeCounts{Total: 2, Done: 1, Failed: 1}); live.Status.Nodes != want {
		t.Errorf("the counts are %+v, want %+v", live.Status.Nodes, want)
	}
	if f := live.Status.Failures; len(f) != 1 || f[0].Node != node || *f[0].ExitCode != 1 || f[0].Attempts != 1 || f[0].Retrying {
		t.Errorf("the failures are %+v", f)
	}
	out, err := install.Kubectl(w.Ctx, real, "", "-n", w.Namespace, "get", "nj", "mixed", "--no-headers")
	must(t, err)
	if got := strings.Fields(out)[:8]; strings.Join(got, " ") != "mixed 2 1 0 1 0 all NodesFailed" {
		t.Errorf("kubectl get prints %q", out)
	}
	// A corrected script is a new revision, and goes through.
	must(t, admin.Patch(w.Ctx, &live, mergePatch(`{"spec":{"task":{"script":"true"}}}`)))
	w.complete("mixed")
	_, err = install.Kubectl(w.Ctx, real, "", "-n", w.Namespace, "wait", "nj/mixed", "--for=condition=Complete", "--timeout=5s")
	must(t, err)
}
