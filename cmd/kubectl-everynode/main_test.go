// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli"
	"github.com/everynode/everynode/internal/nodejob/record"
)

// asProgram makes the test binary act as the program, because a separate process is measured and piped.
const asProgram = "KUBECTL_EVERYNODE_TEST_IS_THE_PROGRAM"

// memoryTo names a file to which the program writes its memory according to /proc. The kernel's own account of a child
// begins with that of its parent.
const memoryTo = "KUBECTL_EVERYNODE_TEST_MEMORY_TO"

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(memoryTo) != "":
		code := cli.Run(context.Background(), genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}, os.Args[1:])
		status, err := os.ReadFile("/proc/self/status")
		if err == nil {
			err = os.WriteFile(os.Getenv(memoryTo), status, 0o600)
		}
		if err != nil {
			panic(err)
		}
		os.Exit(code)
	case os.Getenv(asProgram) != "":
		main()
	}
	os.Exit(m.Run())
}

// program returns a command that uses this API server.
func program(t testing.TB, server *httptest.Server, args ...string) *exec.Cmd {
	t.Helper()
	config := filepath.Join(t.TempDir(), "kubeconfig")
	content := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: %q}}],
contexts: [{name: c, context: {cluster: c, user: u}}], users: [{name: u, user: {token: t}}]}`, server.URL)
	if err := os.WriteFile(config, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], append([]string{"--kubeconfig", config, "-n", "node-setup"}, args...)...)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	return cmd
}

// standIn returns a fake API server of a cluster with this number of nodes and NodeJobs, during a rollout. Nodes are as
// large as real ones, and most of a node is its images.
func standIn(t testing.TB, nodes, jobs int) *httptest.Server {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	proto := protobuf.NewSerializer(scheme, scheme)
	encoded := func(o runtime.Object) []byte {
		var b bytes.Buffer
		if err := proto.Encode(o, &b); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	all := make([]corev1.Node, 0, nodes)
	for i := range nodes {
		all = append(all, node(i))
	}
	pages := map[string][]byte{}
	const size = 500
	for first := 0; first < len(all); first += size {
		last := min(first+size, len(all))
		list := &corev1.NodeList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}, Items: all[first:last]}
		if last < len(all) {
			list.Continue = fmt.Sprint(last)
		}
		key := ""
		if first > 0 {
			key = fmt.Sprint(first)
		}
		pages[key] = encoded(list)
	}
	pods := &corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
	for i := range nodes / 4 {
		pods.Items = append(pods.Items, pod(i))
	}
	podList := encoded(pods)
	list := &v1alpha1.NodeJobList{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeJobList"}}
	for i := range jobs {
		list.Items = append(list.Items, *job(fmt.Sprintf("job-%04d", i), nodes))
	}
	jobList, err := yaml.Marshal(list)
	if err == nil {
		jobList, err = yaml.YAMLToJSON(jobList)
	}
	if err != nil {
		t.Fatal(err)
	}
	one, err := yaml.Marshal(job("job-0000", nodes))
	if err == nil {
		one, err = yaml.YAMLToJSON(one)
	}
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		kind, body := "application/vnd.kubernetes.protobuf", []byte(nil)
		switch {
		case r.URL.Path == "/api/v1/nodes":
			body = pages[r.URL.Query().Get("continue")]
		case strings.HasSuffix(r.URL.Path, "/pods"):
			body = podList
		case strings.HasSuffix(r.URL.Path, "/nodejobs"):
			kind, body = "application/json", jobList
		case strings.HasSuffix(r.URL.Path, "/nodejobs/job-0000"):
			kind, body = "application/json", one
		default:
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write(
				[]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"message":"not found"}`),
			)
			return
		}
		w.Header().Set("Content-Type", kind)
		_, _ = w.Write(body)
	}))
	t.Cleanup(server.Close)
	return server
}

var start = time.Now().Add(-time.Hour).UTC().Truncate(time.Second)

func job(name string, nodes int) *v1alpha1.NodeJob {
	n := int32(nodes)
	return &v1alpha1.NodeJob{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeJob"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace:         "node-setup",
			Name:              name,
			UID:               types.UID("uid-" + name),
			Generation:        1,
			CreationTimestamp: metav1.NewTime(start),
		},
		Spec: v1alpha1.NodeJobSpec{Task: v1alpha1.TaskSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "true"}}},
		Status: v1alpha1.NodeJobStatus{
			ObservedGeneration: 1,
			Revision:           "7d9f2c41",
			Nodes:              v1alpha1.NodeCounts{Total: n, Done: n / 2, Running: n / 4, Waiting: n - n/2 - n/4},
			Rollout: &v1alpha1.RolloutStatus{
				Step:          "all",
				StepStartedAt: metav1.NewTime(start),
				Steps:         []v1alpha1.StepStatus{{Name: "canary", Nodes: 1, Done: 1}, {Name: "all", Nodes: n - 1, Done: n/2 - 1}},
			},
			Conditions: []metav1.Condition{
				{Type: v1alpha1.ConditionComplete, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonInProgress, Message: "half of it"},
				{
					Type:    v1alpha1.ConditionReconciling,
					Status:  metav1.ConditionTrue,
					Reason:  v1alpha1.ReasonInProgress,
					Message: "half of it",
				},
			},
		},
	}
}

func node(i int) corev1.Node {
	name := fmt.Sprintf("ip-10-0-%d-%d.eu-west-1.compute.internal", i/250, i%250)
	n := corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:              name,
			UID:               types.UID("uid-" + name),
			CreationTimestamp: metav1.NewTime(start.Add(-time.Hour)),
			Labels:            map[string]string{},
			Annotations:       map[string]string{},
		},
		Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			NodeInfo:   corev1.NodeSystemInfo{MachineID: "machine-" + name, BootID: "boot-" + name},
		},
	}
	for k := range 20 {
		n.Labels[fmt.Sprintf("example.com/label-%d", k)] = strings.Repeat("v", 30)
	}
	for k := range 50 {
		n.Status.Images = append(n.Status.Images, corev1.ContainerImage{SizeBytes: 1, Names: []string{
			fmt.Sprintf("registry.example/team/image-%d@sha256:%064d", k, k), fmt.Sprintf("registry.example/team/image-%d:v1.2.3", k),
		}})
	}
	if i%2 == 0 {
		key := v1alpha1.RecordKey("node-setup", "job-0000")
		n.Labels[key] = "7d9f2c41"
		record.SetOn(
			&n,
			key,
			record.Record{
				Revision:   "7d9f2c41",
				Outcome:    record.Succeeded,
				Attempts:   1,
				StartedAt:  start,
				FinishedAt: start,
				Message:    strings.Repeat("said ", 100),
				PodUID:     "p",
			},
		)
	}
	return n
}

func pod(i int) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:         "node-setup",
			Name:              fmt.Sprintf("job-0000-%d", i),
			UID:               types.UID(fmt.Sprint("pod-", i)),
			CreationTimestamp: metav1.NewTime(start),
			Labels: map[string]string{
				v1alpha1.NodeJobLabel:  "job-0000",
				v1alpha1.RevisionLabel: "7d9f2c41",
			},
			OwnerReferences: []metav1.OwnerReference{{UID: "uid-job-0000"}},
			Annotations: map[string]string{
				v1alpha1.NodeUIDAnnotation: string(node(2*i + 1).UID),
			},
			Finalizers: []string{v1alpha1.PodFinalizer},
		},
		Spec: corev1.PodSpec{
			NodeName: node(2*i + 1).Name,
			Containers: []corev1.Container{
				{Name: "task", Env: []corev1.EnvVar{{Name: "EVERYNODE_SCRIPT", Value: strings.Repeat("#", 4096)}}},
			},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

// TestAPipeThatIsClosedEarlyIsNoError covers a reader such as head.
func TestAPipeThatIsClosedEarlyIsNoError(t *testing.T) {
	cmd := program(t, standIn(t, 1, 3000), "list")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	first, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.HasPrefix(first, "NAME") {
		t.Errorf("%q, %v", first, err)
	}
	_ = out.Close()
	err = cmd.Wait()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); errs.Len() > 0 || !ok ||
		(err != nil && status.Signal() != syscall.SIGPIPE) {
		t.Errorf("it ended with %v, message %s", err, errs.String())
	}
}

func TestInvalidCommandLinesHaveExitCodes(t *testing.T) {
	server := standIn(t, 1, 1)
	tests := map[string]struct {
		args []string
		code int
		want string
	}{
		"an unknown command":        {[]string{"stauts"}, 2, "unknown command \"stauts\""},
		"an unknown flag":           {[]string{"status", "job-0000", "--foo"}, 2, "unknown flag: --foo"},
		"too many names":            {[]string{"status", "a", "b"}, 2, "takes the name of a NodeJob"},
		"an unknown format":         {[]string{"list", "-o", "xml"}, 2, "-o xml is not supported here: give one of wide, name, json, yaml"},
		"a timeout without a watch": {[]string{"status", "job-0000", "--timeout", "1m"}, 2, "--timeout is for --watch"},
		"an unknown NodeJob":        {[]string{"status", "job-00000"}, 3, "there is no NodeJob job-00000"},
		"an unknown node": {
			[]string{"explain", "job-0000", "ip-10"},
			3,
			"there is no node ip-10; there are ip-10-0-0-0.eu-west-1.compute.internal",
		},
		"a missing file":            {[]string{"plan", "-f", "none.yaml"}, 2, "none.yaml"},
		"an unreachable API server": {[]string{"list", "--server", "http://127.0.0.1:1"}, 6, "the API server does not answer"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			cmd := program(t, server, tt.args...)
			var errs bytes.Buffer
			cmd.Stderr = &errs
			_ = cmd.Run()
			said := strings.Join(strings.Fields(errs.String()), " ")
			if code := cmd.ProcessState.ExitCode(); code != tt.code || !strings.Contains(said, tt.want) {
				t.Errorf("exit code %d, and %q", code, said)
			}
		})
	}
}

// BenchmarkAThousandNodes measures the commands on a cluster of 1,000 nodes: the time of the whole process, and its
// maximum memory.
func BenchmarkAThousandNodes(b *testing.B) {
	server := standIn(b, 1000, 20)
	for name, args := range map[string][]string{
		"status":      {"status", "job-0000"},
		"status-wide": {"status", "job-0000", "-o", "wide"},
		"explain":     {"explain", "job-0000", node(7).Name},
		"list":        {"list"},
		// All that comes before the NodeJob of a run is made.
		"run-begins": {"run", "--all", "--dry-run", "--", "true"},
	} {
		b.Run(name, func(b *testing.B) {
			most, file := 0, filepath.Join(b.TempDir(), "status")
			for b.Loop() {
				cmd := program(b, server, args...)
				cmd.Env = append(cmd.Env, memoryTo+"="+file)
				if out, err := cmd.CombinedOutput(); err != nil {
					b.Fatalf("%v: %s", err, out)
				}
				most = max(most, highWater(b, file))
			}
			b.ReportMetric(float64(most)/1024, "MiB-max")
			b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s/command")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// highWater returns the maximum memory of a process, in KiB.
func highWater(b *testing.B, file string) int {
	content, err := os.ReadFile(file)
	if err != nil {
		b.Fatal(err)
	}
	kib := 0
	for line := range strings.Lines(string(content)) {
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kib); err == nil {
			return kib
		}
	}
	b.Fatalf("no VmHWM in %s", content)
	return 0
}
