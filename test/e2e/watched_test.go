// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/local/cluster"
	"github.com/everynode/everynode/test/install"
)

func TestMetricsTellWhatHappenedWithoutNodeNames(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.job("measured", "sleep 1")
	node := w.join(cluster.NodeOptions{})
	w.Done("measured", node)
	w.complete("measured")
	series := fmt.Sprintf(`{namespace=%q,nodejob="measured"`, w.Namespace)
	w.Eventually("the metrics show it", func() error {
		text := w.metrics()
		for _, want := range []string{
			"everynode_nodejob_nodes" + fmt.Sprintf(`{namespace=%q,nodejob="measured",state="done"} 1`, w.Namespace),
			"everynode_attempt_duration_seconds_count" + series + "} 1",
			"everynode_node_ready_to_done_seconds_count" + series + "} 1",
			`everynode_attempts_total{outcome="Succeeded",phase="task"}`,
			`everynode_api_writes_total{resource="nodes",verb="patch"}`,
		} {
			if !strings.Contains(text, want) {
				return fmt.Errorf("%s is missing", want)
			}
		}
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "everynode_") && strings.Contains(line, node) {
				t.Fatalf("a node is named: %s", line)
			}
		}
		return nil
	})
	job := w.Get("measured")
	must(t, admin.Delete(w.Ctx, &job))
	w.Eventually("the series of a deleted NodeJob are removed", func() error {
		if strings.Contains(w.metrics(), series) {
			return fmt.Errorf("%s is there", series)
		}
		return nil
	})
}

func TestLogsOfARunningTaskCanBeRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.job("talks", "echo to be seen; "+w.hold(), onNode2)
	pod := w.runningPod("node-2")
	w.Eventually("kubectl logs shows it", func() error {
		out, err := install.Kubectl(w.Ctx, real, "", "-n", w.Namespace, "logs", pod.Name)
		if err != nil || !strings.Contains(out, "to be seen") {
			return fmt.Errorf("%w %s", err, out)
		}
		return nil
	})
	w.letGo("node-2")
	w.Done("talks", "node-2")
}

// TestRunnerImageIsSmall : it is pulled to every node of every cluster.
func TestRunnerImageIsSmall(t *testing.T) {
	t.Parallel()
	layers, err := images.Runner.Layers()
	must(t, err)
	var compressed int64
	for _, layer := range layers {
		size, err := layer.Size()
		must(t, err)
		compressed += size
	}
	t.Logf("the runner's image has %d layer of %.2f MiB (compressed)", len(layers), float64(compressed)/(1<<20))
	if len(layers) != 1 || compressed > 4<<20 {
		t.Errorf("the runner's image has %d layers of %d bytes, want one of at most 4 MiB", len(layers), compressed)
	}
}

// TestNothingIsLeftOfADeletedNodeJob looks for every key that Everynode writes.
func TestNothingIsLeftOfADeletedNodeJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	job := w.job("leaves", "true", onNode2)
	w.Done("leaves", "node-2")
	must(t, admin.Delete(w.Ctx, job))
	w.Eventually("the record is off the node", func() error {
		if on := w.On("leaves", "node-2"); on.Present {
			return fmt.Errorf("it carries %+v", on)
		}
		return nil
	})
	w.NoPods()
	out, err := install.Kubectl(w.Ctx, real, "", "get", "node", "node-2", "-o", "yaml")
	must(t, err)
	if strings.Contains(out, v1alpha1.RecordKey(w.Namespace, "leaves")) {
		t.Errorf("the node still names it:\n%s", out)
	}
}
