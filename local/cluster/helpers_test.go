// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package cluster_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/everynode/everynode/local/cluster"
	"github.com/everynode/everynode/local/image"
)

// limitOfStart is for a whole cluster, on a busy machine.
const limitOfStart = 2 * time.Minute

const probeImage = "registry.local/everynode/probe:test"

// lines sends progress to the test's log.
type lines struct{ t *testing.T }

func (l lines) Write(p []byte) (int, error) {
	l.t.Log(strings.TrimRight(string(p), "\n"))
	return len(p), nil
}

// bringUp brings a cluster up for a test and takes it down after.
func bringUp(t *testing.T, options cluster.Options) (*cluster.Cluster, kubernetes.Interface) {
	t.Helper()
	options.Progress, options.KubernetesVersion = lines{t}, *kubernetesVersion
	c, err := cluster.Up(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Down(context.Background()); err != nil {
			t.Error(err)
		}
	})
	config, err := c.RESTConfig()
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c, client
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("real nodes need root")
	}
}

// eventually polls a condition until it is met, and reports what is missing.
func eventually(t *testing.T, limit time.Duration, condition func() string) {
	t.Helper()
	missing := ""
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if missing = condition(); missing == "" {
			return
		}
	}
	t.Fatalf("after %s: %s", limit, missing)
}

// loadProbe builds the probe and loads it into the cluster.
func loadProbe(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "probe")
	cmd := exec.Command("go", "build", "-o", binary, "./testdata/probe")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building the probe: %v\n%s", err, out)
	}
	img, err := image.FromBinary(binary, image.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.LoadImage(t.Context(), probeImage, img); err != nil {
		t.Fatal(err)
	}
}

// pod returns a pod with one container of the probe, bound to a node and tolerating everything.
func pod(name, node string, args ...string) *corev1.Pod {
	none := int64(0)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: corev1.PodSpec{
			NodeName: node, RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: &none,
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers: []corev1.Container{{
				Name: "probe", Image: probeImage, ImagePullPolicy: corev1.PullIfNotPresent, Args: args,
			}},
		},
	}
}

// privileged gives a pod access to its node.
func privileged(p *corev1.Pod) *corev1.Pod {
	yes := true
	p.Spec.HostPID, p.Spec.HostNetwork = true, true
	p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: &yes}
	return p
}

// create creates a pod; its service account may be created shortly after its namespace.
func create(t *testing.T, client kubernetes.Interface, p *corev1.Pod) {
	t.Helper()
	eventually(t, 20*time.Second, func() string {
		if _, err := client.CoreV1().Pods(p.Namespace).Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
			return err.Error()
		}
		return ""
	})
}

func waitPhase(t *testing.T, client kubernetes.Interface, name string, want corev1.PodPhase) *corev1.Pod {
	t.Helper()
	var found *corev1.Pod
	eventually(t, 60*time.Second, func() string {
		p, err := client.CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		found = p
		if p.Status.Phase != want {
			return fmt.Sprintf("pod %s is %s: %+v", name, p.Status.Phase, p.Status.ContainerStatuses)
		}
		return ""
	})
	return found
}

func logs(t *testing.T, client kubernetes.Interface, name string) string {
	t.Helper()
	data, err := client.CoreV1().Pods("default").GetLogs(name, &corev1.PodLogOptions{}).DoRaw(t.Context())
	if err != nil {
		t.Fatalf("reading the logs of %s: %v", name, err)
	}
	return string(data)
}

// run runs a pod to its end and returns what it wrote.
func run(t *testing.T, client kubernetes.Interface, p *corev1.Pod) string {
	t.Helper()
	create(t, client, p)
	var phase corev1.PodPhase
	var statuses []corev1.ContainerStatus
	eventually(t, 60*time.Second, func() string {
		now, err := client.CoreV1().Pods(p.Namespace).Get(t.Context(), p.Name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		statuses = now.Status.ContainerStatuses
		if phase = now.Status.Phase; phase != corev1.PodSucceeded && phase != corev1.PodFailed {
			return fmt.Sprintf("pod %s is %s: %+v", p.Name, now.Status.Phase, now.Status.ContainerStatuses)
		}
		return ""
	})
	out := logs(t, client, p.Name)
	if phase != corev1.PodSucceeded {
		t.Fatalf("pod %s %s %+v: %s", p.Name, phase, statuses, out)
	}
	return out
}

func getNode(t *testing.T, client kubernetes.Interface, name string) *corev1.Node {
	t.Helper()
	node, err := client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return node
}

func ready(node *corev1.Node) corev1.ConditionStatus {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status
		}
	}
	return "absent"
}

func waitReadyStatus(t *testing.T, client kubernetes.Interface, name string, want corev1.ConditionStatus) {
	t.Helper()
	eventually(t, 60*time.Second, func() string {
		node, err := client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if got := ready(node); got != want {
			return fmt.Sprintf("node %s is Ready=%s, want %s", name, got, want)
		}
		return ""
	})
}
