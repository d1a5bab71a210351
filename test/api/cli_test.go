// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli"
	"github.com/everynode/everynode/internal/outcome"
)

// times match the parts of the output that differ between runs.
var times = regexp.MustCompile(`\d\d:\d\d:\d\d( UTC|Z)|\b(\d+[dhms])+( ago)?\b|\([a-z0-9-]+-[0-9a-f]{10}\)|revision [0-9a-z]+|\[[=>.! ]+\]`)

// timeless is a printed text without them.
func timeless(s string) string {
	return times.ReplaceAllStringFunc(s, func(m string) string {
		switch {
		case strings.HasPrefix(m, "revision"):
			return "revision REV"
		case strings.HasPrefix(m, "("):
			return "(POD)"
		case strings.HasPrefix(m, "["):
			return "[BAR]"
		case strings.HasSuffix(m, "ago"):
			return "AGO"
		case strings.Contains(m, ":"):
			return "TIME"
		}
		return "SPAN"
	})
}

// viewer binds the roles for the reading commands to a new user, as docs/cli.md says, and returns its kubeconfig.
func (w *world) viewer() string {
	w.T.Helper()
	config := w.kubeconfigOf(rule("", []string{"get"}, "nodes")) // a user has some rule
	w.bind("user-"+w.Namespace, "everynode-view", false)
	w.bind("user-"+w.Namespace, "everynode-view-nodes", true)
	w.bind("user-"+w.Namespace, "everynode-view-all", true)
	return config
}

// TestOutputOfReadingCommands simulates a failed rollout, and runs the commands as a user with read permissions only.
func TestOutputOfReadingCommands(t *testing.T) {
	t.Setenv("LC_ALL", "C.UTF-8") // for the signs of nodes
	w := newWorld(t)
	startManager(t, interceptor.Funcs{})
	for _, name := range []string{"reading-1", "reading-2", "reading-3"} {
		w.node(name)
	}
	w.job("works", func(s *v1alpha1.NodeJobSpec) {
		s.Publish = []v1alpha1.PublishedResult{{Result: "kernel", Label: "example.com/kernel"}}
	})
	for _, name := range []string{"reading-1", "reading-2", "reading-3"} {
		w.end(w.podOn(name), 0, string(outcome.Outcome{Message: "fine\x1b[2J", Results: map[string]string{"kernel": "6.1"}}.Encode()))
		w.Done("works", name)
	}
	w.job("fails", func(s *v1alpha1.NodeJobSpec) {
		s.Rollout = v1alpha1.RolloutSpec{}
		s.Retry.Limit = new(int32(0))
	})
	w.end(
		w.podOn("reading-1"),
		3,
		string(outcome.Outcome{ExitCode: 3, Reason: outcome.ReasonTaskFailed, Message: "one\ntwo\x1b[2J\n"}.Encode()),
	)
	w.Condition("fails", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonMaxFailuresExceeded)
	w.NoPods()
	config := w.viewer()
	tests := map[string]struct {
		args []string
		code int
		out  string
		err  string
	}{
		"the status of a complete NodeJob": {[]string{"status", "works"}, 0, `NodeJob   NAMESPACE/works  revision REV  created AGO
Status    AllNodesDone
          3 of 3 nodes are done
Nodes     3, of which 3 done

Steps
  ✔ all  3 of 3 done  passed TIME
    ✔ reading-1, reading-2, reading-3
`, ""},
		"the list of both NodeJobs": {[]string{"list"}, 0, `NAME   STATUS               DONE  RUNNING  FAILED  STEP    AGE  PROGRESS
fails  MaxFailuresExceeded  0/3   0        1       canary  SPAN   [BAR]
works  AllNodesDone         3/3   0        0       all     SPAN   [BAR]
`, ""},
		"names": {[]string{"list", "-o", "name"}, 0, "nodejob.everynode.dev/fails\nnodejob.everynode.dev/works\n", ""},
		"explain a node that is done": {
			[]string{"explain", "works", "reading-2"},
			0,
			`NAMESPACE/works has been done on reading-2 since TIME (AGO).

State     Done, step all
Last      attempt 1 succeeded at TIME (AGO) after SPAN, exit code 0
          | fine\x1b[2J
Results   kernel=6.1
Published label example.com/kernel=6.1
Next      it runs again after a change of the task, or kubectl everynode rerun works reading-2 -n NAMESPACE
`,
			"",
		},
		"explain a node that has not run": {
			[]string{"explain", "fails", "reading-2"},
			0,
			`NAMESPACE/fails has not run on reading-2 yet: the rollout has stopped: 1 node failed, and rollout.maxFailures allows 0.

State     Waiting, MaxFailuresExceeded, step canary
Next      fix the task, or retry all failed nodes: kubectl everynode retry fails -n NAMESPACE --failed; or raise spec.rollout.maxFailures
`,
			"",
		},
		"the logs of deleted pods": {
			[]string{"logs", "fails", "--failed"},
			0,
			"reading-1 | one\nreading-1 | two\\x1b[2J\n",
			"-- 1 pod is gone; the last lines that are on record:\n",
		},
		"all NodeJobs of a node": {[]string{"explain", "reading-3"}, 0, "", ""},
		"a missing NodeJob": {
			[]string{"status", "work"},
			3,
			"",
			"error: there is no NodeJob work in namespace NAMESPACE; there are works, fails\n",
		},
		"a missing node": {[]string{"explain", "works", "reading-9"}, 3, "", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := w.everynode(config, tt.args...)
			got.out, got.err = timeless(got.out), timeless(got.err)
			switch name {
			case "all NodeJobs of a node": // other tests may have NodeJobs
				wantText(
					t,
					got.out,
					"NAMESPACE/fails has not run on reading-3 yet: ",
					"NAMESPACE/works has been done on reading-3 since TIME (AGO).\n",
				)
			case "a missing node":
				wantText(t, got.err, "error: there is no node reading-9; there are reading-")
			default:
				wantTold(t, strings.Join(tt.args, " "), told{tt.code, tt.out, tt.err}, got)
			}
		})
	}
}

// TestATenantReadsNodesAndNoNodeJobsOfOthers : the roles for a tenant are enough for the commands about its own NodeJobs.
func TestATenantReadsNodesAndNoNodeJobsOfOthers(t *testing.T) {
	w := newWorld(t)
	startManager(t, noFaults)
	w.node("tenant-1")
	w.job("mine", func(s *v1alpha1.NodeJobSpec) { s.Suspend = true })
	config := w.kubeconfigOf(rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"list"}})
	w.bind("user-"+w.Namespace, "everynode-view", false)
	w.bind("user-"+w.Namespace, "everynode-view-nodes", true)
	for _, args := range [][]string{{"explain", "mine", "tenant-1"}, {"results", "mine"}, {"status", "mine", "-o", "wide"}, {"list"}} {
		w.Eventually(strings.Join(args, " "), func() error {
			if got := w.everynode(config, args...); got.code != 0 {
				return fmt.Errorf("%+v", got)
			}
			return nil
		})
	}
	for _, args := range [][]string{{"list", "-A"}, {"list", "-n", "default"}} {
		if got := w.everynode(config, args...); got.code != 4 || !strings.Contains(got.err, "may not list nodejobs.everynode.dev") {
			t.Errorf("%v: %+v", args, got)
		}
	}
}

func TestWhatIsForbiddenIsNamed(t *testing.T) {
	w := newWorld(t)
	w.node("forbidden-1")
	w.job("seen", nil)
	config := w.kubeconfigOf(
		rbacv1.PolicyRule{APIGroups: []string{v1alpha1.Group}, Resources: []string{"nodejobs"}, Verbs: []string{"get", "list"}},
	)
	user := "user-NAMESPACE"
	const check = "allows it. To check: kubectl auth can-i list "
	wantTold(
		t,
		"explain",
		told{
			4,
			"",
			"error: " + user + " may not list nodes in the whole cluster. The ClusterRole everynode-view-nodes, bound in the whole cluster, " + check + "nodes\n",
		},
		w.everynode(config, "explain", "forbidden-1"),
	)
	wantTold(
		t,
		"logs",
		told{
			4,
			"",
			"error: " + user + " may not list pods in namespace NAMESPACE. The ClusterRole everynode-view, bound in this namespace, " + check + "pods -n NAMESPACE\n",
		},
		w.everynode(config, "logs", "seen"),
	)
	if got := w.everynode(
		config,
		"status",
		"seen",
	); got.code != 0 ||
		!strings.Contains(got.out, "what runs cannot be seen: "+user+" may not list pods") {
		t.Errorf("status: %+v", got)
	}
}

// watched is a status that is followed, in this process.
type watched struct {
	mu   sync.Mutex
	out  bytes.Buffer
	code chan int
}

func (s *watched) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.Write(p)
}

func (s *watched) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.String()
}

func (w *world) watch(config string, args ...string) *watched {
	s := &watched{code: make(chan int, 1)}
	go func() {
		s.code <- cli.Run(w.Ctx, genericiooptions.IOStreams{In: strings.NewReader(""), Out: s, ErrOut: s}, append([]string{"status", "--watch", "--kubeconfig", config, "-n", w.Namespace}, args...))
	}()
	return s
}

func (w *world) says(s *watched, text string) {
	w.T.Helper()
	w.Eventually("it says "+text, func() error {
		if !strings.Contains(s.String(), text) {
			return errors.New(s.String())
		}
		return nil
	})
}

// breakable is a proxy for the API server that can stop responding.
type breakable struct {
	mu       sync.Mutex
	listener net.Listener
	open     []net.Conn
	broken   bool
}

func newBreakable(t *testing.T, to string) *breakable {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	b := &breakable{listener: listener}
	t.Cleanup(func() { _ = listener.Close(); b.set(true) })
	go func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			b.mu.Lock()
			out, err := net.Dial("tcp", to)
			if b.broken || err != nil {
				_ = in.Close()
			} else {
				b.open = append(b.open, in, out)
				go func() { _, _ = io.Copy(in, out) }()
				go func() { _, _ = io.Copy(out, in) }()
			}
			b.mu.Unlock()
		}
	}()
	return b
}

func (b *breakable) set(broken bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.broken = broken
	for _, c := range b.open {
		_ = c.Close()
	}
	b.open = nil
}

func TestAWatchOutlivesTheAPIServerAndEndsWithTheNodeJob(t *testing.T) {
	w := newWorld(t)
	startManager(t, interceptor.Funcs{})
	w.node("watched-1")
	w.job("watched", nil)
	pod := w.podOn("watched-1")
	config := w.kubeconfigOf()
	content, err := os.ReadFile(config)
	must(t, err)
	address := regexp.MustCompile(`https://([0-9.:]+)`).FindStringSubmatch(string(content))
	proxy := newBreakable(t, address[1])
	broken := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, os.WriteFile(broken, bytes.ReplaceAll(content, []byte(address[1]), []byte(proxy.listener.Addr().String())), 0o600))

	done, gone := w.watch(broken, "watched"), w.watch(broken, "watched", "-o", "json")
	w.says(done, "InProgress")
	w.says(gone, `"kind": "NodeJob"`)
	proxy.set(true)
	w.says(done, "the API server does not answer; what was seen last may be old")
	w.end(pod, 0, "")
	w.Done("watched", "watched-1")
	proxy.set(false)
	if code := <-done.code; code != 0 || !strings.Contains(done.String(), "AllNodesDone") {
		t.Errorf("exit code %d after\n%s", code, done)
	}
	<-gone.code

	w.job("suspended", func(s *v1alpha1.NodeJobSpec) { s.Suspend = true })
	waits := w.watch(config, "suspended")
	if code := <-waits.code; code != 9 || !strings.Contains(waits.String(), "Suspended") {
		t.Errorf("exit code %d after\n%s", code, waits)
	}

	w.job("deleted", nil)
	pod = w.podOn("watched-1")
	end := w.watch(config, "deleted")
	w.says(end, "InProgress")
	must(t, admin.Delete(w.Ctx, &v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "deleted"}}))
	must(t, tellEnd(w.Ctx, admin, pod, 0, "")) // a patch: the manager changes the pod at the same time
	if code := <-end.code; code != 12 || !strings.Contains(end.String(), "error: NodeJob "+w.Namespace+"/deleted was deleted") {
		t.Errorf("exit code %d after\n%s", code, end)
	}
}

// TestAPlanChangesNothing checks the audit log of the API server, at first in a cluster without Everynode.
func TestAPlanChangesNothing(t *testing.T) {
	folder := t.TempDir()
	audit, policy := filepath.Join(folder, "audit.log"), filepath.Join(folder, "policy.yaml")
	must(
		t,
		os.WriteFile(
			policy,
			[]byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata}]\n"),
			0o600,
		),
	)
	second := &envtest.Environment{Scheme: scheme}
	second.ControlPlane.GetAPIServer().Configure().Append("audit-log-path", audit).Append("audit-policy-file", policy)
	cfg, err := second.Start()
	must(t, err)
	t.Cleanup(func() { must(t, second.Stop()) })
	user, err := second.AddUser(envtest.User{Name: "planner", Groups: []string{"system:masters"}}, nil)
	must(t, err)
	content, err := user.KubeConfig()
	must(t, err)
	config := filepath.Join(folder, "kubeconfig")
	must(t, os.WriteFile(config, content, 0o600))
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	must(t, err)
	w := worldIn(t.Context(), t, "default")
	must(
		t,
		c.Patch(
			t.Context(),
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}},
			mergePatch(`{"metadata":{"labels":{"everynode.dev/enabled":"true"}}}`),
		),
	)

	for _, verb := range [][]string{{"list"}, {"status", "any"}, {"explain", "any", "any"}} {
		if got := w.everynode(
			config,
			verb...); got.code != 5 ||
			!strings.HasPrefix(got.err, "error: this cluster does not know NodeJobs: Everynode is not installed there.") {
			t.Errorf("%v without a CRD: %+v", verb, got)
		}
	}
	_, err = envtest.InstallCRDs(
		cfg,
		envtest.CRDInstallOptions{
			Paths:              []string{"../../config/crd/everynode.dev_nodejobs.yaml"},
			ErrorIfPathMissing: true,
			Scheme:             scheme,
		},
	)
	must(t, err)
	shop(t, c)
	file := filepath.Join(folder, "job.yaml")
	must(t, os.WriteFile(file, []byte(planned), 0o600))
	got := w.everynode(config, "plan", "-f", file)
	want := `NodeJob   NAMESPACE/reboots  revision REV, new
          a dry run: nothing has been changed
Nodes     3 nodes of 4 match; at most 1 at once

Steps
  1 canary  1 node  first, then soaks for SPAN
      plan-1 (starts first)
  2 all  2 nodes  after promotion (promoteTo: canary)
      plan-2, plan-3

Excluded
  1 node: it has the taint gpu=true:NoSchedule
      plan-4

Actions
  each node is cordoned and drained before the task
  each node is rebooted after the task
  plan-1
    evicts NAMESPACE/web
    blocked by NAMESPACE/db: PodDisruptionBudget db allows no disruption now: 0 pods are healthy, and 0 must be
    blocked by NAMESPACE/single: it has no controller that would recreate it: delete it if it is not needed
  plan-2  nothing to evict
  plan-3  nothing to evict
`
	got.out = timeless(got.out)
	wantTold(t, "plan", told{0, want, "-- left out, since no plan depends on it: v1 Service\n"}, got)

	content, err = os.ReadFile(audit)
	must(t, err)
	writes := writesOf(t, content, "kubectl-everynode/")
	if want := []string{"create /apis/everynode.dev/v1alpha1/namespaces/default/nodejobs?dryRun=All"}; !slices.Equal(want, writes) {
		t.Errorf("it wrote %q, not only the dry run %q", writes, want)
	}
}

// writesOf are the requests of a user agent that are no reads.
func writesOf(t *testing.T, audit []byte, agent string) []string {
	t.Helper()
	var writes []string
	reads := 0
	for line := range strings.Lines(string(audit)) {
		var event struct{ Verb, RequestURI, UserAgent string }
		must(t, json.Unmarshal([]byte(line), &event))
		switch {
		case !strings.HasPrefix(event.UserAgent, agent):
		case event.Verb == "get" || event.Verb == "list" || event.Verb == "watch":
			reads++
		default:
			uri, _, _ := strings.Cut(event.RequestURI, "&")
			writes = append(writes, event.Verb+" "+uri)
		}
	}
	if reads == 0 {
		t.Error("the audit has nothing of the command line")
	}
	return writes
}

const planned = `apiVersion: everynode.dev/v1alpha1
kind: NodeJob
metadata: {name: reboots}
spec:
  nodes: {selector: {matchExpressions: [{key: example.com/none, operator: DoesNotExist}]}}
  task: {script: "true"}
  rollout:
    promoteTo: canary
    steps: [{name: canary, nodes: 1, soakSeconds: 600}, {name: all}]
  maintenance: {drain: {}, reboot: {policy: Always}}
---
apiVersion: v1
kind: Service
metadata: {name: other}
`

// shop is a cluster of four nodes with some pods on the first.
func shop(t *testing.T, c client.Client) {
	t.Helper()
	ctx := t.Context()
	for i := range 4 {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("plan-%d", i+1)}}
		if i == 3 {
			node.Spec.Taints = []corev1.Taint{{Key: "gpu", Value: "true", Effect: corev1.TaintEffectNoSchedule}}
		}
		must(t, c.Create(ctx, node))
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		must(t, c.Status().Update(ctx, node))
	}
	for _, name := range []string{"db", "single", "web"} {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"app": name}},
			Spec:       corev1.PodSpec{NodeName: "plan-1", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}
		if name != "single" {
			pod.OwnerReferences = []metav1.OwnerReference{
				{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "r", UID: "r", Controller: new(true)},
			}
		}
		must(t, c.Create(ctx, pod))
	}
	must(t, c.Create(ctx, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: new(intstr.FromInt32(1)),
			Selector:     &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}},
		},
	}))
}
