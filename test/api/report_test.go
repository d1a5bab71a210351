// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/ui/cmdutil"
)

// TestTheNodesAreAskedBeforeAFileIsApplied plans a NodeJob on its nodes, applies it, and reports the answers by zone.
func TestTheNodesAreAskedBeforeAFileIsApplied(t *testing.T) {
	w := newWorld(t)
	startManager(t, noFaults)
	config := w.kubeconfigOf()
	w.comes("asked-1", map[string]string{corev1.LabelTopologyZone: "x"})
	w.comes("asked-2", map[string]string{corev1.LabelTopologyZone: "y"})
	file := filepath.Join(t.TempDir(), "job.yaml")
	manifest := []byte(`apiVersion: everynode.dev/v1alpha1
kind: NodeJob
metadata: {name: kernel, namespace: ` + w.Namespace + `}
spec:
  nodes: {selector: {matchLabels: {world: ` + w.Namespace + `}}}
  rollout: {maxConcurrent: 100%, steps: [{name: all}]}
  task: {script: install, check: {script: 'test -e "$FILE"', before: true}, env: [{name: FILE, value: /x}]}
`)
	must(t, os.WriteFile(file, manifest, 0o600))

	ended := make(chan told)
	go func() { ended <- w.everynode(config, "plan", "-f", file, "--on-nodes") }()
	yes, no := w.podOf("asked-1", task.CheckBefore), w.podOf("asked-2", task.CheckBefore)
	w.end(yes, 0, `{"exitCode":0}`)
	w.end(no, 1, `{"exitCode":1,"reason":"TaskFailed","message":"6.1.0"}`)
	got := <-ended
	if got.code != cmdutil.ExitOK {
		t.Errorf("exit code %d: %s", got.code, got.err)
	}
	wantText(t, got.out, "a dry run: only task.check has run on the nodes", "(all)  2      1          1              0      0          50%",
		"asked-2  NonCompliant", "6.1.0")
	var jobs v1alpha1.NodeJobList
	must(t, admin.List(w.Ctx, &jobs, client.InNamespace(w.Namespace)))
	for i := range jobs.Items {
		if jobs.Items[i].DeletionTimestamp.IsZero() {
			t.Errorf("NodeJob %s is still there", jobs.Items[i].Name)
		}
	}

	var job v1alpha1.NodeJob
	must(t, yaml.UnmarshalStrict(manifest, &job))
	must(t, admin.Create(w.Ctx, &job))
	w.end(w.podOf("asked-1", task.Task), 0, `{"exitCode":0,"reason":"AlreadyDone"}`)
	w.Done("kernel", "asked-1")
	got = w.everynode(config, "report", "kernel", "--by", "zone")
	wantText(
		t,
		got.out,
		"x      1      1          0              0      0          100%",
		"y      1      0          0              0      1          0%",
		"asked-2  NotAsked",
	)
}
