// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/local/cluster"
	"github.com/everynode/everynode/test/install"
	"github.com/everynode/everynode/test/shards"
	"github.com/everynode/everynode/test/testenv"
)

var (
	shardsAtOnce = shards.Flag("cluster")

	keep       = flag.Bool("keep", false, "leave the cluster running after the tests, and use it when it is there")
	kubernetes = flag.String("kubernetes", "", "the minor version of Kubernetes, such as 1.34, where no cluster was kept")

	real   *cluster.Cluster
	admin  client.Client
	images install.Images
	// serial numbers namespaces and nodes.
	serial atomic.Int32
)

const clusterName = "everynode-e2e"

// world is one test's namespace and nodes.
type world struct{ *testenv.World }

// must and wantText are shared with the tests with an API server alone.
var must, wantText = testenv.Must, testenv.WantText

var notInName = regexp.MustCompile(`[^a-z0-9]+`)

// changesTheKernel waits until no other test changes settings of the machine's kernel, which all nodes of all clusters share, and lets none
// begin until the test has ended. The lock is on the program of the tests, which each of their processes runs.
func changesTheKernel(t *testing.T) {
	t.Helper()
	name, err := os.Executable()
	must(t, err)
	program, err := os.Open(name)
	must(t, err)
	t.Cleanup(func() { _ = program.Close() }) // which ends the lock
	must(t, syscall.Flock(int(program.Fd()), syscall.LOCK_EX))
}

func newWorld(t *testing.T) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Minute)
	t.Cleanup(cancel)
	short := strings.Trim(notInName.ReplaceAllString(strings.ToLower(strings.TrimPrefix(t.Name(), "Test")), "-"), "-")
	namespace := fmt.Sprintf("%.24s-%d", short, serial.Add(1))
	// The limit is for a busy machine, not for luck. After an outage of the API server, a component of the cluster may wait for a minute
	// before it asks again, and another one may wait for it.
	w := &world{
		&testenv.World{T: t, Ctx: ctx, Client: admin, Namespace: namespace, Limit: 150 * time.Second, Pause: 100 * time.Millisecond},
	}
	must(t, admin.Create(ctx, testenv.NewNamespace(metav1.ObjectMeta{Name: namespace})))
	t.Cleanup(w.cleanUp)
	w.Eventually("pods can be created in the namespace", func() error {
		return admin.Get(ctx, client.ObjectKey{Namespace: w.Namespace, Name: "default"}, &corev1.ServiceAccount{})
	})
	return w
}

// cleanUp deletes the NodeJobs and waits for their end: a test after which something hangs has failed.
func (w *world) cleanUp() {
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	w.Ctx = ctx
	if w.T.Failed() {
		w.tell()
	} else {
		defer func() {
			if w.T.Failed() {
				w.tell()
			}
		}()
	}
	w.Eventually("the NodeJobs of the test are deleted", func() error {
		return admin.DeleteAllOf(ctx, &v1alpha1.NodeJob{}, client.InNamespace(w.Namespace))
	})
	w.Eventually("the NodeJobs of the test are gone", func() error {
		var jobs v1alpha1.NodeJobList
		if err := admin.List(ctx, &jobs, client.InNamespace(w.Namespace)); err != nil {
			return err
		}
		if len(jobs.Items) > 0 {
			first := &jobs.Items[0]
			return fmt.Errorf(
				"%s is there: deleted at %v, finalizers %v, status %+v",
				first.Name,
				first.DeletionTimestamp,
				first.Finalizers,
				first.Status,
			)
		}
		return nil
	})
	for _, shared := range []string{"node-1", "node-2"} {
		w.sh(shared, fmt.Sprintf("rm -f %[1]s %[1]s.*", w.markFile()))
	}
	w.Eventually("the namespace of the test is deleted", func() error {
		return client.IgnoreNotFound(admin.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace}}))
	})
}

// stopAPIServer kills the API server. It is started again at the end of the test at the latest: the tests that follow
// need it.
func (w *world) stopAPIServer() {
	w.T.Helper()
	w.T.Cleanup(w.startAPIServer)
	must(w.T, real.StopAPIServer(w.Ctx))
}

// startAPIServer starts the API server, unless it runs, and waits until it accepts NodeJobs: it first reads the schemas of
// the CRDs, which mutating policies need.
func (w *world) startAPIServer() {
	w.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	must(w.T, real.StartAPIServer(ctx))
	probe := &v1alpha1.NodeJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, GenerateName: "probe-"},
		Spec: v1alpha1.NodeJobSpec{
			Nodes: v1alpha1.NodesSpec{Names: []string{"node-2"}},
			Task:  v1alpha1.TaskSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "true"}},
		},
	}
	w.Eventually("the API server accepts NodeJobs", func() error { return admin.Create(ctx, probe.DeepCopy(), client.DryRunAll) })
}

// longestLine is how many bytes of each line of the output of kubectl are printed when a test has failed.
const longestLine = 300

// tell prints what is useful for debugging, the most useful last: CI may keep only the end of a long output.
func (w *world) tell() {
	defer func() { w.T.Log(w.Late) }()
	var nodes corev1.NodeList
	if err := admin.List(w.Ctx, &nodes); err != nil {
		w.T.Log(err)
	}
	for _, node := range nodes.Items {
		ready := func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}
		if !slices.ContainsFunc(node.Status.Conditions, ready) {
			w.T.Log(real.NodeLogs(node.Name))
		}
	}
	for _, args := range [][]string{
		{"-n", install.Namespace, "logs", "deployment/" + install.Deployment, "--all-pods", "--prefix", "--tail=30"},
		{"get", "nodes"}, {"-n", w.Namespace, "get", "events"}, {"-n", w.Namespace, "get", "pods", "-o", "wide"},
		{"-n", w.Namespace, "get", "nodejobs", "-o", `jsonpath={range .items[*]}{.metadata.name}: {range .status.conditions[*]}{.type}={.status} {.reason} {.message}{"\n"}{end}{end}`},
	} {
		out, err := install.Kubectl(w.Ctx, real, "", args...)
		lines := strings.SplitAfter(out, "\n")
		for i, line := range lines {
			if len(line) > longestLine {
				lines[i] = line[:longestLine] + "…\n"
			}
		}
		w.T.Logf("kubectl %s\n%s%v", strings.Join(args, " "), strings.Join(lines, ""), err)
	}
}

// join brings one more real node up, for this test alone.
func (w *world) join(options cluster.NodeOptions) string {
	w.T.Helper()
	if options.Name == "" {
		options.Name = fmt.Sprintf("extra-%d", serial.Add(1))
	}
	if options.Labels == nil {
		options.Labels = map[string]string{}
	}
	options.Labels["world"] = w.Namespace
	w.T.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := real.Remove(ctx, options.Name); client.IgnoreNotFound(err) != nil {
			w.T.Errorf("removing node %s: %v", options.Name, err)
		}
	})
	if options.WithoutCNI {
		must(w.T, real.Join(w.Ctx, options))
	} else {
		must(w.T, real.JoinReady(w.Ctx, options))
	}
	return options.Name
}

// onNode2 selects the second node of the cluster, which every test that breaks nothing shares.
func onNode2(s *v1alpha1.NodeJobSpec) {
	s.Nodes.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/hostname": "node-2"}}
}

// onNodes selects nodes by their names.
func onNodes(names ...string) func(*v1alpha1.NodeJobSpec) {
	return func(s *v1alpha1.NodeJobSpec) {
		s.Nodes.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "kubernetes.io/hostname", Operator: metav1.LabelSelectorOpIn, Values: names},
		}}
	}
}

// job makes a NodeJob with a script, by default for the nodes that joined for this test: for all at
// once, and however many fail, since most tests are about something else than a rollout.
func (w *world) job(name, script string, changes ...func(*v1alpha1.NodeJobSpec)) *v1alpha1.NodeJob {
	w.T.Helper()
	all := intstr.FromString("100%")
	job := &v1alpha1.NodeJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name},
		Spec: v1alpha1.NodeJobSpec{
			Nodes: v1alpha1.NodesSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"world": w.Namespace}}},
			Task:  v1alpha1.TaskSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: script}},
			Retry: v1alpha1.RetrySpec{BackoffSeconds: new(int32(1))},
			Rollout: v1alpha1.RolloutSpec{
				MaxConcurrent: &all, MaxFailures: &all, Steps: []v1alpha1.RolloutStep{{Name: "all"}},
			},
		},
	}
	for _, change := range changes {
		change(&job.Spec)
	}
	if m := &job.Spec.Maintenance; m.MaxUnavailable == nil && (m.Cordon || m.Drain != nil || m.Reboot.Policy != "") {
		m.MaxUnavailable = job.Spec.Rollout.MaxConcurrent
	}
	must(w.T, admin.Create(w.Ctx, job))
	return job
}

func (w *world) node(name string) corev1.Node {
	w.T.Helper()
	var live corev1.Node
	w.Eventually("node "+name+" can be read", func() error {
		return admin.Get(w.Ctx, client.ObjectKey{Name: name}, &live)
	})
	return live
}

// failed waits until the node has failed.
func (w *world) failed(job, node string) record.Record {
	w.T.Helper()
	w.Eventually(job+" has failed on "+node, func() error {
		live := w.Get(job)
		if live.Status.Nodes.Failed == 0 {
			return fmt.Errorf("the status is %+v", live.Status)
		}
		return nil
	})
	on := w.On(job, node)
	if on.Record == nil || on.Label != "" {
		w.T.Fatalf("the node carries label %q and record %+v", on.Label, on.Record)
	}
	return *on.Record
}

// complete waits until the job is complete and no pod of it is left.
func (w *world) complete(job string) {
	w.T.Helper()
	w.Condition(job, v1alpha1.ConditionComplete, metav1.ConditionTrue, v1alpha1.ReasonAllNodesDone)
	w.NoPods()
}

// runningPod waits until a task's container runs.
func (w *world) runningPod(node string) corev1.Pod {
	w.T.Helper()
	var found corev1.Pod
	w.Eventually("a task runs on "+node, func() error {
		for _, pod := range w.Pods() {
			if pod.Spec.NodeName == node && pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp.IsZero() {
				found = pod
				return nil
			}
		}
		return errors.New("none does")
	})
	return found
}

func mergePatch(format string, args ...any) client.Patch {
	return client.RawPatch(types.MergePatchType, fmt.Appendf(nil, format, args...))
}

// patch changes a NodeJob as kubectl patch --type=merge does.
func (w *world) patch(job, format string, args ...any) {
	w.T.Helper()
	must(w.T, admin.Patch(w.Ctx, &v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: job}},
		mergePatch(format, args...)))
}

func (w *world) kubectl(args ...string) string {
	w.T.Helper()
	out, err := install.Kubectl(w.Ctx, real, "", args...)
	must(w.T, err)
	return out
}

// asTold runs the command in a message that contains these words, as a shell does. A command in a message must work
// unchanged.
func (w *world) asTold(message, words string, replace ...string) {
	w.T.Helper()
	for part := range strings.SplitSeq(message, "; ") {
		at := strings.Index(part, "kubectl ")
		if at < 0 || !strings.Contains(part[at:], words) {
			continue
		}
		command := strings.NewReplacer(replace...).Replace(part[at:])
		cmd := exec.CommandContext(w.Ctx, "/bin/sh", "-c", command)
		cmd.Env = real.Environ()
		if out, err := cmd.CombinedOutput(); err != nil {
			w.T.Fatalf("%s: %v\n%s", command, err, out)
		}
		return
	}
	w.T.Fatalf("no command with %q is in: %s", words, message)
}

func (w *world) unlabel(job, node string) {
	w.T.Helper()
	must(w.T, admin.Patch(w.Ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}},
		mergePatch(`{"metadata":{"labels":{%q:null}}}`, v1alpha1.RecordKey(w.Namespace, job))))
}
