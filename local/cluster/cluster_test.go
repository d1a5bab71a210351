// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/everynode/everynode/local/cluster"
)

func TestRealNodes(t *testing.T) {
	needRoot(t)
	t.Parallel()
	c, client := bringUp(t, cluster.Options{Name: "test-real", Nodes: 2, Simulated: 1, AuditPolicy: cluster.AuditMetadata})
	loadProbe(t, c)
	for _, test := range []struct {
		name string
		run  func(*testing.T, *cluster.Cluster, kubernetes.Interface)
	}{
		{"the API server says its release", testVersion},
		{"pods log and reach the API server from both networks", testPods},
		{"pods are reached from other nodes and by the API server", testPodNetwork},
		{"a pull from an unreachable registry fails fast", testPullFails},
		{"a node without a network runs host pods and becomes ready later", testWithoutCNI},
		{"labels annotations and taints are on a joined node", testJoinOptions},
		{"a kubelet has only its own node's rights", testKubeletRights},
		{"a killed runtime comes back and its containers survive", testKillRuntime},
		{"what a task writes is on its node only", testOwnFiles},
		{"a silent kubelet makes its node unknown", testStopKubelet},
		{"a reboot gives a new boot", testReboot},
		{"a node rebooted from inside comes back", testRebootFromInside},
		{"a node that cannot boot yet tries again", testBootsLater},
		{"a new image gives a new machine", testReimage},
		{"simulated nodes can be silenced rebooted and removed", testSimulated},
		{"the API server restarts", testRestartAPIServer},
		{"requests are in the audit log", testAudit},
		{"a removed node is gone and its name is free", testRemove},
	} {
		if !t.Run(test.name, func(t *testing.T) { test.run(t, c, client) }) {
			t.Fatal("the cluster is in an unknown state")
		}
	}
	marks := remember(t, c)
	if err := c.Down(t.Context()); err != nil {
		t.Fatal(err)
	}
	marks.wantGone(t)
	if err := c.Down(t.Context()); err != nil {
		t.Errorf("taking it down twice: %v", err)
	}
}

func testVersion(t *testing.T, c *cluster.Cluster, client kubernetes.Interface) {
	version, err := client.Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	minor := version.Major + "." + version.Minor
	if minor != c.KubernetesVersion() || !strings.HasPrefix(version.GitVersion, "v"+minor+".") {
		t.Errorf("the API server of a cluster of Kubernetes %s says %+v", c.KubernetesVersion(), version)
	}
	if got := getNode(t, client, "node-1").Status.NodeInfo.KubeletVersion; got != version.GitVersion {
		t.Errorf("the kubelet of node-1 is %s, and the API server %s", got, version.GitVersion)
	}
}

func testPods(t *testing.T, c *cluster.Cluster, client kubernetes.Interface) {
	if got := run(t, client, pod("say", "node-1", "say", "hello from a node")); got != "hello from a node\n" {
		t.Errorf("the log of a pod: %q", got)
	}
	const url = "https://10.96.0.1/version"
	version := "v" + c.KubernetesVersion() + "."
	if got := run(t, client, pod("get-pod", "node-2", "get", url)); !strings.Contains(got, version) {
		t.Errorf("the API server's answer to a pod: %q", got)
	}
	if got := run(t, client, privileged(pod("get-host", "node-1", "get", url))); !strings.Contains(got, version) {
		t.Errorf("the API server's answer to a pod in its node's network: %q", got)
	}
}

// Other nodes, this machine and the API server's proxy can reach the addresses of pods.
func testPodNetwork(t *testing.T, _ *cluster.Cluster, client kubernetes.Interface) {
	create(t, client, pod("server", "node-1", "serve", "served"))
	address := waitPhase(t, client, "server", corev1.PodRunning).Status.PodIP
	if got := run(t, client, pod("client", "node-2", "get", "http://"+address+":8080")); !strings.HasSuffix(got, "served\n") {
		t.Errorf("a pod on another node got %q", got)
	}
	path := "/api/v1/namespaces/default/pods/server:8080/proxy/"
	got, err := client.CoreV1().RESTClient().Get().AbsPath(path).DoRaw(t.Context())
	if err != nil || string(got) != "served\n" {
		t.Errorf("the API server's proxy got %q, %v", got, err)
	}
}

func testPullFails(t *testing.T, _ *cluster.Cluster, client kubernetes.Interface) {
	p := pod("pull", "node-1", "say", "never")
	p.Spec.Containers[0].Image = "registry.local/none:1"
	create(t, client, p)
	eventually(t, 15*time.Second, func() string {
		now, err := client.CoreV1().Pods("default").Get(t.Context(), "pull", metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		for _, status := range now.Status.ContainerStatuses {
			if w := status.State.Waiting; w != nil && (w.Reason == "ErrImagePull" || w.Reason == "ImagePullBackOff") {
				return ""
			}
		}
		return "no pull has failed yet"
	})
	if err := client.CoreV1().Pods("default").Delete(t.Context(), "pull", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

func testWithoutCNI(t *testing.T, c *cluster.Cluster, client kubernetes.Interface) {
	if err := c.Join(t.Context(), cluster.NodeOptions{Name: "bare", WithoutCNI: true}); err != nil {
		t.Fatal(err)
	}
	if got := run(t, client, privileged(pod("bare", "bare", "say", "before the network"))); got != "before the network\n" {
		t.Errorf("the log of a pod on a node without a network: %q", got)
	}
	if got := ready(getNode(t, client, "bare")); got != corev1.ConditionFalse {
		t.Errorf("a node without a network is Ready=%s", got)
	}
	if err := c.InstallCNI(t.Context(), "bare"); err != nil {
		t.Fatal(err)
	}
	waitReadyStatus(t, client, "bare", corev1.ConditionTrue)
}

func testJoinOptions(t *testing.T, c *cluster.Cluster, client kubernetes.Interface) {
	err := c.JoinReady(t.Context(), cluster.NodeOptions{
		Name:        "special",
		Labels:      map[string]string{"pool": "gpu", "node-role.kubernetes.io/worker": ""},
		Annotations: map[string]string{"example.com/note": "a note"},
		Taints:      []corev1.Taint{{Key: "dedicated", Value: "gpu", Effect: corev1.TaintEffectNoSchedule}},
	})
	if err != nil {
		t.Fatal(err)
	}
	node := getNode(t, client, "special")
	if node.Labels["pool"] != "gpu" || node.Annotations["example.com/note"] != "a note" {
		t.Errorf("labels %v, annotations %v", node.Labels, node.Annotations)
	}
	if _, found := node.Labels["node-role.kubernetes.io/worker"]; !found {
		t.Errorf("labels %v", node.Labels)
	}
	found := false
	for _, taint := range node.Spec.Taints {
		found = found || taint.Key == "dedicated"
	}
	if !found {
		t.Errorf("taints %v", node.Spec.Taints)
	}
	long := "sim-" + strings.Repeat("a.", 124) + "z"
	if err := c.JoinReady(t.Context(), cluster.NodeOptions{Name: long, Simulated: true}); err != nil {
		t.Errorf("joining a node with a name of %d characters: %v", len(long), err)
	}
	if err := c.Remove(t.Context(), long); err != nil {
		t.Error(err)
	}
}

// The identities of the kubelets must be real, or tests of RBAC would be meaningless.
func testKubeletRights(t *testing.T, c *cluster.Cluster, client kubernetes.Interface) {
	config, err := c.RESTConfig()
	if err != nil {
		t.Fatal(err)
	}
	files := filepath.Join(c.Dir(), "nodes", "node-1", "upper", "etc", "kubernetes")
	own := rest.AnonymousClientConfig(config)
	own.CertFile, own.KeyFile = filepath.Join(files, "kubelet-client.crt"), filepath.Join(files, "kubelet-client.key")
	kubelet, err := kubernetes.NewForConfig(own)
	if err != nil {
		t.Fatal(err)
	}
	patch := []byte(`{"metadata":{"annotations":{"example.com/by":"node-1"}}}`)
	if _, err := kubelet.CoreV1().Nodes().Patch(t.Context(), "node-1", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Errorf("a kubelet may not change its own node: %v", err)
	}
	_, err = kubelet.CoreV1().Nodes().Patch(t.Context(), "node-2", types.MergePatchType, patch, metav1.PatchOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("a kubelet changing another node got %v", err)
	}
	if _, err := kubelet.CoreV1().Secrets("kube-system").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a kubelet listing secrets got %v", err)
	}
}

func testKillRuntime(t *testing.T, c *cluster.Cluster, client kubernetes.Interface) {
	create(t, client, pod("survivor", "node-1", "wait", "10m"))
	before := waitPhase(t, client, "survivor", corev1.PodRunning)
	containerd := func(node string) string {
		out, _, err := c.Exec(t.Context(), node, "pidof", "containerd")
		if err != nil {
			return ""
		}
		return strings.TrimSpace(out)
	}
	old, sister := containerd("node-1"), containerd("node-2")
	// The script waits for the runtime: if a container ends while containerd is not running, containerd
	// does not know its exit code later, on any machine.
	const script = `pkill -x containerd && until ctr version >/dev/null 2>&1; do sleep 0.1; done && echo killed`
	out := run(t, client, privileged(pod("pkill", "node-1", "host", script)))
	if out != "killed\n" {
		t.Fatalf("killing the runtime from a pod: %q", out)
	}
	eventually(t, 10*time.Second, func() string {
		if now := containerd("node-1"); now == "" || now == old {
			return "containerd has not come back"
		}
		return ""
	})
	if now := containerd("node-2"); now != sister {
		t.Errorf("the runtime of node-2 was killed too: %s, now %s", sister, now)
	}
	if err := c.KillRuntime(t.Context(), "node-1"); err != nil {
		t.Fatal(err)
	}
	if got := run(t, client, pod("after", "node-1", "say", "after")); got != "after\n" {
		t.Errorf("a pod on the restarted runtime: %q", got)
	}
	after := waitPhase(t, client, "survivor", corev1.PodRunning)
	if was, is := before.Status.ContainerStatuses[0], after.Status.ContainerStatuses[0]; was.ContainerID != is.ContainerID ||
		is.RestartCount != 0 {
		t.Errorf("the container did not survive: it was %+v, now %+v", was, is)
	}
	if got := logs(t, client, "survivor"); got != "waiting\n" {
		t.Errorf("the survivor's log: %q", got)
	}
}

func testOwnFiles(t *testing.T, c *cluster.Cluster, client kubernetes.Interface) {
	const file = "/etc/containerd/certs.d/registry.local/ca.crt"
	run(t, client, privileged(pod("write", "node-1", "host", "mkdir -p "+filepath.Dir(file)+" && echo certificate > "+file)))
	if out, _, err := c.Exec(t.Context(), "node-1", "cat", file); err != nil || out != "certificate\n" {
		t.Errorf("the file on its node: %q, %v", out, err)
	}
	_, _, err := c.Exec(t.Context(), "node-2", "cat", file)
	var exit *cluster.ExitError
	if !errors.As(err, &exit) || exit.Code != 1 {
		t.Errorf("reading the file on another node gave %v", err)
	}
	if _, err := os.Stat(file); err == nil {
		t.Errorf("%s is on this machine", file)
	}
}

func testStopKubelet(t *testing.T, c *cluster.Cluster, client kubernetes.Interface) {
	nodes := []string{"special", "sim-1"}
	for _, node := range nodes {
		if err := c.StopKubelet(t.Context(), node); err != nil {
			t.Fatal(err)
		}
	}
	for _, node := range nodes {
		waitReadyStatus(t, client, node, corev1.ConditionUnknown)
		if err := c.StartKubelet(t.Context(), node); err != nil {
			t.Fatal(err)
		}
		waitReadyStatus(t, client, node, corev1.ConditionTrue)
	}
}

func testReboot(t *testing.T, c *cluster.Cluster, client kubernetes.Interface) {
	before := getNode(t, client, "node-1").Status.NodeInfo
	if _, _, err := c.Exec(t.Context(), "node-1", "sh", "-c", "echo kept > /etc/kept; echo lost > /run/lost"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := c.RebootReady(ctx, "node-1"); err != nil {
		t.Fatal(err)
	}
	after := getNode(t, client, "node-1").Status.NodeInfo
	if before.BootID == after.BootID || before.MachineID != after.MachineID {
		t.Errorf("before %+v, after %+v", before, after)
	}
	if out, _, err := c.Exec(
		t.Context(),
		"node-1",
		"sh",
		"-c",
		"cat /etc/kept; ls /run",
	); err != nil || !strings.HasPrefix(out, "kept\n") ||
		strings.Contains(out, "lost") {
		t.Errorf("files after the reboot: %q, %v", out, err)
	}
	if got := run(t, client, pod("rebooted", "node-1", "say", "back")); got != "back\n" {
		t.Errorf("a pod after the reboot: %q", got)
	}
}

func testRebootFromInside(t *testing.T, c *cluster.Cluster, client kubernetes.Interface) {
	before := getNode(t, client, "node-2").Status.NodeInfo.BootID
	create(t, client, privileged(pod("reboot", "node-2", "reboot")))
	eventually(t, time.Minute, func() string {
		node := getNode(t, client, "node-2")
		if node.Status.NodeInfo.BootID == before || ready(node) != corev1.ConditionTrue {
			return "node-2 has not come back"
		}
		return ""
	})
}

// testBootsLater has a leftover of the last boot block the next one for a while.
func testBootsLater(t *testing.T, c *cluster.Cluster, _ kubernetes.Interface) {
	dir := filepath.Join(c.Dir(), "nodes", "node-1")
	inTheWay := filepath.Join(dir, "boot_id")
	if err := errors.Join(os.Remove(inTheWay), os.Mkdir(inTheWay, 0o755)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	back := make(chan error, 1)
	go func() { back <- c.RebootReady(ctx, "node-1") }()
	eventually(t, time.Minute, func() string {
		if log, err := os.ReadFile(
			filepath.Join(dir, "logs", "keeper.log"),
		); err != nil ||
			!strings.Contains(string(log), "booting, try 1 of") {
			return fmt.Sprintf("the node did not try to boot: %v, %s", err, log)
		}
		return ""
	})
	if err := os.Remove(inTheWay); err != nil {
		t.Error(err)
	}
	if err := <-back; err != nil {
		t.Error(err)
	}
}

func testReimage(t *testing.T, c *cluster.Cluster, client kubernetes.Interface) {
	before := getNode(t, client, "node-1")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := c.ReimageReady(ctx, "node-1"); err != nil {
		t.Fatal(err)
	}
	after := getNode(t, client, "node-1")
	was, is := before.Status.NodeInfo, after.Status.NodeInfo
	if was.MachineID == is.MachineID || was.BootID == is.BootID || before.UID != after.UID {
		t.Errorf("before %s %+v, after %s %+v", before.UID, was, after.UID, is)
	}
	if out, _, err := c.Exec(t.Context(), "node-1", "ls", "/etc/kept"); err == nil {
		t.Errorf("a file survived the new image: %q", out)
	}
	if got := run(
		t,
		client,
		pod("reimaged", "node-1", "get", "https://10.96.0.1/version"),
	); !strings.Contains(
		got,
		"v"+c.KubernetesVersion()+".",
	) {
		t.Errorf("the API server's answer to a pod after the new image: %q", got)
	}
}

func testSimulated(t *testing.T, c *cluster.Cluster, client kubernetes.Interface) {
	create(t, client, pod("simulated", "sim-1", "say", "nothing"))
	waitPhase(t, client, "simulated", corev1.PodSucceeded)
	if err := c.RebootReady(t.Context(), "sim-1"); err != nil {
		t.Error(err)
	}
	if err := c.Remove(t.Context(), "sim-1"); err != nil {
		t.Fatal(err)
	}
	if err := c.Remove(t.Context(), "sim-1"); !apierrors.IsNotFound(errors.Unwrap(err)) {
		t.Errorf("removing a missing node: %v", err)
	}
}

func testRestartAPIServer(t *testing.T, c *cluster.Cluster, client kubernetes.Interface) {
	if err := c.StopAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Discovery().ServerVersion(); err == nil {
		t.Error("a stopped API server answered")
	}
	if err := c.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Discovery().ServerVersion(); err != nil {
		t.Error(err)
	}
}

func testAudit(t *testing.T, c *cluster.Cluster, _ kubernetes.Interface) {
	eventually(t, 10*time.Second, func() string {
		data, err := os.ReadFile(c.AuditLog())
		if err != nil {
			return err.Error()
		}
		for _, want := range []string{`"username":"system:node:node-1"`, `"verb":"create"`, `"level":"Metadata"`} {
			if !strings.Contains(string(data), want) {
				return "the audit log lacks " + want
			}
		}
		return ""
	})
}

func testRemove(t *testing.T, c *cluster.Cluster, client kubernetes.Interface) {
	if err := c.Remove(t.Context(), "special"); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Nodes().Get(t.Context(), "special", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the node object of a removed node: %v", err)
	}
	if err := c.JoinReady(t.Context(), cluster.NodeOptions{Name: "special"}); err != nil {
		t.Errorf("joining under the name of a removed node: %v", err)
	}
}
