// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/everynode/everynode/local/cluster"
)

var kubernetesVersion = flag.String("kubernetes", "", "minor version of Kubernetes of the clusters, such as 1.34")

// It runs beside the test of real nodes: two clusters at once must not collide.
func TestSimulatedNodes(t *testing.T) {
	t.Parallel()
	var progress strings.Builder
	started := time.Now()
	c, err := cluster.Up(t.Context(), cluster.Options{
		Name: "test-simulated", KubernetesVersion: *kubernetesVersion, Simulated: 100, Progress: &progress,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Down(context.Background()); err != nil {
			t.Error(err)
		}
		want := `"test-simulated" is removed: no process, network link, control group or mount of it is left, nor its folder ` + c.Dir()
		if !strings.Contains(progress.String(), want) {
			t.Errorf("Down says %q, and not %q", progress.String(), want)
		}
	})
	t.Logf("100 simulated nodes were Ready after %s", time.Since(started).Round(time.Millisecond))
	if _, err := cluster.Up(
		t.Context(),
		cluster.Options{Name: "test-simulated"},
	); err == nil ||
		!strings.Contains(err.Error(), "it exists") {
		t.Errorf("a second cluster of the same name: %v", err)
	}
	config, err := c.RESTConfig()
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	list, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	boots := map[string]bool{}
	for _, node := range list.Items {
		boots[node.Status.NodeInfo.BootID] = true
	}
	if len(list.Items) != 100 || len(boots) != 100 {
		t.Errorf("%d nodes with %d boot IDs", len(list.Items), len(boots))
	}
	version, err := client.Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	reopened, err := cluster.Open("test-simulated")
	if err != nil {
		t.Fatal(err)
	}
	if want := reopened.KubernetesVersion(); want == "" || !strings.HasPrefix(version.GitVersion, "v"+want+".") {
		t.Errorf("the API server is %s, and the record of the cluster says %q", version.GitVersion, want)
	}
	names := map[string]bool{}
	clusters, err := cluster.List()
	if err != nil {
		t.Fatal(err)
	}
	for _, other := range clusters {
		names[other.Name()] = true
	}
	if !names["test-simulated"] {
		t.Errorf("the list of clusters is %v", names)
	}
}

func TestInvalidOptionsAreRefused(t *testing.T) {
	for _, name := range []string{"Upper", "-dash", "under_score", strings.Repeat("a", 41), "a/b"} {
		if _, err := cluster.Up(t.Context(), cluster.Options{Name: name}); err == nil {
			t.Errorf("a cluster named %q was started", name)
		}
	}
	_, err := cluster.Up(t.Context(), cluster.Options{KubernetesVersion: "1.33"})
	if err == nil || !strings.Contains(err.Error(), "1.33") || !strings.Contains(err.Error(), "1.34, 1.35, 1.36, 1.37") {
		t.Errorf("a cluster of an unknown version: %v", err)
	}
	if _, err := cluster.Open("never-made"); err == nil || !strings.Contains(err.Error(), "never-made") {
		t.Errorf("opening a missing cluster: %v", err)
	}
	if got := fmt.Sprint(cluster.Prerequisites(t.Context())); got == "[]" {
		t.Error("real nodes have no requirements for the machine")
	}
}
