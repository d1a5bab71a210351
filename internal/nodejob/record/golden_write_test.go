// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package record_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/outcome"
	"github.com/everynode/everynode/internal/testing/plantest"
)

// situation is a state in which the manager, or the command line, leaves node-1.
type situation struct {
	// about is what has happened.
	about string
	// spec is the spec of the NodeJob in YAML. All have one step, so that node-1 does not wait for a canary.
	spec string
	// script is what happens in the cluster, which has node-1 and node-2.
	script func(*plantest.Cluster)
}

const disk = "task: {script: mkfs.ext4 /dev/sdb}\nretry: {limit: 2, backoffSeconds: 10}\n"

// situations are the golden records by the names of their files. Together, they have all fields of a record
// (TestGoldenRecordsHaveAllFields).
var situations = map[string]situation{
	"done": {
		about: "The task has succeeded at the second attempt. Its results are published as a label and an annotation, and a label is removed.",
		spec: disk + "publish: [{result: kernel, label: example.com/kernel}, {result: disks, annotation: example.com/disks}]\n" +
			"removeLabels: [example.com/needs-disk]\n",
		script: func(c *plantest.Cluster) {
			c.Nodes["node-1"].Labels["example.com/needs-disk"] = "yes"
			c.Task = ends(
				failure("no disk at /dev/sdb"),
				plantest.Result{Output: "1 disk", Results: map[string]string{"kernel": "6.12", "disks": "sda, sdb"}},
			)
			c.Create()
			c.Run(5 * time.Minute)
		},
	},
	"waiting-for-retry": {
		about: "The first attempt was disrupted, and the second one has failed. The next one waits.",
		spec:  disk,
		script: func(c *plantest.Cluster) {
			c.Task = ends(plantest.Result{}, failure("looking for the disk\nno disk at /dev/sdb"))
			c.Create()
			c.Run(5 * time.Second)
			interrupt(c)
			c.Run(50 * time.Second)
		},
	},
	"failed-and-rolled-back": {
		about: "All attempts have failed. The node was cordoned, rolled back at the second attempt, and drained.",
		spec:  disk + "rollback: {script: wipefs -a /dev/sdb}\nonFailure: {action: Drain}\n",
		script: func(c *plantest.Cluster) {
			c.Workloads["node-1"] = []*plantest.Workload{plantest.NewWorkload("shop", "web-1")}
			c.Task = ends(
				failure("no disk at /dev/sdb"),
				failure("no disk at /dev/sdb"),
				failure("no disk at /dev/sdb"),
				failure("the disk is busy"),
				plantest.Result{},
			)
			c.Create()
			c.Run(10 * time.Minute)
		},
	},
	"reverted": {
		about: "The task has cut the node off. The node was not confirmed, and has run the rollback by itself (spec.confirm).",
		spec:  disk + "rollback: {script: wipefs -a /dev/sdb}\nconfirm: {timeoutSeconds: 60}\n",
		script: func(c *plantest.Cluster) {
			c.Task = ends(plantest.Result{CutOff: true})
			c.Create()
			c.Run(10 * time.Minute)
		},
	},
	"rollback-disrupted": {
		about: "The task has failed after a user has requested a retry on all nodes. The rollback has failed, and was then disrupted.",
		spec:  "task: {script: mkfs.ext4 /dev/sdb}\nretry: {limit: 1, backoffSeconds: 10}\nrollback: {script: wipefs -a /dev/sdb}\n",
		script: func(c *plantest.Cluster) {
			c.Job.Annotations = map[string]string{v1alpha1.RetryAnnotation: "1"}
			c.Task = ends(failure("no disk at /dev/sdb"), failure("no disk at /dev/sdb"), failure("the disk is busy"), failure(""))
			c.Create()
			c.Run(95 * time.Second)
			interrupt(c)
		},
	},
	"rerun-disrupted": {
		about: "The node was done. After a reboot, the task has run again, and was disrupted twice.",
		spec:  disk + "rerun: {onReboot: true}\n",
		script: func(c *plantest.Cluster) {
			c.Create()
			c.Run(time.Minute)
			c.Happens("node-1 has rebooted.", func() { c.Nodes["node-1"].Status.NodeInfo.BootID = "00000000-0000-4000-8000-000000000099" })
			c.Run(5 * time.Second)
			interrupt(c)
			c.Run(15 * time.Second)
			interrupt(c)
		},
	},
	"run-requested": {
		about: "The node was done. A user has removed its label to request another run, which has not ended.",
		spec:  disk,
		script: func(c *plantest.Cluster) {
			c.Create()
			c.Run(time.Minute)
			c.Happens("A user removes the label of node-1.", func() { delete(c.Nodes["node-1"].Labels, c.Key()) })
			c.Run(5 * time.Second)
		},
	},
	"rebooting": {
		about: "The task has succeeded, and the node is back from its reboot. The check waits until the node has been Ready long enough.",
		spec:  "task: {script: grubby --args=quiet, check: {script: grep -q quiet /proc/cmdline}}\nmaintenance: {reboot: {policy: Always, minReadySeconds: 60}}\n",
		script: func(c *plantest.Cluster) {
			c.Create()
			c.Run(80 * time.Second)
		},
	},
	"template": {
		about: "The containers of a template have run.",
		spec:  "task: {template: {spec: {containers: [{name: disk-check, image: registry.example/disk-check:1.4}]}}}\n",
		script: func(c *plantest.Cluster) {
			c.Create()
			c.Run(time.Minute)
		},
	},
	"assumed-done": {
		about: "The node matched assumeDone, so it counts as done without a run.",
		spec:  disk + "nodes: {assumeDone: {selector: {}}}\n",
		script: func(c *plantest.Cluster) {
			c.Job.Annotations = map[string]string{v1alpha1.ChangedByAnnotation: "alice"}
			c.Create()
			c.Run(time.Minute)
		},
	},
	"already-done": {
		about: "The check before the task has answered yes, so the node is done without the task.",
		spec:  "task: {script: mkfs.ext4 /dev/sdb, check: {script: blkid /dev/sdb, before: true}}\nmaintenance: {cordon: true}\n",
		script: func(c *plantest.Cluster) {
			c.Create()
			c.Run(time.Minute)
		},
	},
	"still-needed": {
		about: "The task has succeeded, and spec.expires.check cannot say whether it is still needed.",
		spec:  "task: {script: load}\nrollback: {script: unload}\nexpires: {check: {script: fixed, periodSeconds: 60}}\n",
		script: func(c *plantest.Cluster) {
			c.Task = ends(
				plantest.Result{Code: 1, Output: "5.1 is older than 5.2"},
				plantest.Result{},
				plantest.Result{Code: 3, Output: "no version"},
			)
			c.Create()
			c.Run(2 * time.Minute)
		},
	},
	"needed": {
		about: "The check before the task has answered no, and the task has not started yet.",
		spec:  "task: {script: mkfs.ext4 /dev/sdb, check: {script: blkid /dev/sdb, before: true}}\nmaintenance: {drain: {}}\n",
		script: func(c *plantest.Cluster) {
			c.Workloads["node-1"] = []*plantest.Workload{plantest.NewWorkload("shop", "web-1")}
			c.Workloads["node-1"][0].Budget = "a PodDisruptionBudget allows no eviction"
			c.Task = ends(plantest.Result{Code: 1})
			c.Create()
			c.Run(time.Minute)
		},
	},
	"drifted": {
		about: "The node was done, and the check has answered no since, and then failed itself.",
		spec:  "task: {script: mkfs.ext4 /dev/sdb, check: {script: blkid /dev/sdb, periodSeconds: 60}}\n",
		script: func(c *plantest.Cluster) {
			c.Task = ends(
				plantest.Result{},
				plantest.Result{Code: 1, Output: "no file system"},
				plantest.Result{Code: 75, Output: "no blkid"},
			)
			c.Create()
			c.Run(2*time.Minute + 5*time.Second)
		},
	},
	"repaired": {
		about: "The node was done, and the check has answered no since, so the task has run again.",
		spec:  "task: {script: mkfs.ext4 /dev/sdb, check: {script: blkid /dev/sdb, periodSeconds: 60, onDrift: Run}}\n",
		script: func(c *plantest.Cluster) {
			c.Task = ends(plantest.Result{}, plantest.Result{Code: 1, Output: "no file system"}, plantest.Result{})
			c.Create()
			c.Run(2*time.Minute + 5*time.Second)
		},
	},
	"skipped": {
		about: "The task has failed, and a user has set the label of the node to skip it.",
		spec:  disk + "onFailure: {action: Cordon}\n",
		script: func(c *plantest.Cluster) {
			c.Task = ends(failure("1"), failure("2"), failure("3"))
			c.Create()
			c.Run(10 * time.Minute)
			c.Happens("A user skips node-1.", func() { c.Nodes["node-1"].Labels[c.Key()] = c.Job.Status.Revision })
			c.Run(time.Minute)
		},
	},
	"retry-requested": {
		about: "The task has failed, and a user has requested a retry on this node before other nodes start.",
		spec:  "task: {script: mkfs.ext4 /dev/sdb}\nretry: {limit: 0}\n",
		script: func(c *plantest.Cluster) {
			c.Task = ends(failure("no disk at /dev/sdb"))
			c.Create()
			c.Run(time.Minute)
			node := c.Nodes["node-1"]
			r := *record.Read(node.Labels, node.Annotations, c.Key()).Record
			r.RetryRequested, r.RunsAlone = true, true // as internal/cli does
			record.SetOn(node, c.Key(), r)
		},
	},
	"never-started": {
		about: "The node could not be drained before the task, so the attempt has failed without a pod.",
		spec:  "task: {script: mkfs.ext4 /dev/sdb}\nretry: {limit: 0}\nmaintenance: {drain: {timeoutSeconds: 60}}\n",
		script: func(c *plantest.Cluster) {
			blocked := plantest.NewWorkload("shop", "db-0")
			blocked.Budget = "The disruption budget db needs 2 healthy pods and has 2 currently"
			c.Workloads["node-1"] = []*plantest.Workload{blocked}
			c.Job.Annotations = map[string]string{v1alpha1.ChangedByAnnotation: "alice"}
			c.Create()
			c.Run(2*time.Minute + 35*time.Second)
		},
	},
	"not-started": {
		about: "The node was done. A user has requested another run, in which the task has not started, so it is not rolled back.",
		spec:  "task: {script: mkfs.ext4 /dev/sdb}\nretry: {limit: 0}\nrollback: {script: wipefs -a /dev/sdb}\n",
		script: func(c *plantest.Cluster) {
			c.Create()
			c.Run(time.Minute)
			c.Task = ends(plantest.Result{Code: 127, Reason: "InterpreterNotFound", Output: "no /bin/sh", NotStarted: true})
			c.Happens("A user removes the label of node-1.", func() { delete(c.Nodes["node-1"].Labels, c.Key()) })
			c.Run(time.Minute)
		},
	},
	"new-revision": {
		about: "A task that another user has changed has succeeded. The record keeps the results of the revision before, of which one was too long.",
		spec:  disk,
		script: func(c *plantest.Cluster) {
			c.Task = ends(plantest.Result{Results: map[string]string{"disks": "sda", "log": strings.Repeat("0123456789", 30)}})
			c.Job.Annotations = map[string]string{v1alpha1.ChangedByAnnotation: "alice"}
			c.Create()
			c.Run(time.Minute)
			c.Happens("Another user changes the task.", func() {
				c.Job.Annotations[v1alpha1.ChangedByAnnotation] = "bob\x1b[2J"
				c.ChangeSpec(func(s *v1alpha1.NodeJobSpec) { s.Task.Script += " || true" })
			})
			c.Run(time.Minute)
		},
	},
	"outside-window": {
		about: "The task has run outside of the window of a NodeDisruptionBudget, because spec.maintenance.ignoreWindowsOn names the node.",
		spec:  "task: {script: mkfs.ext4 /dev/sdb}\nmaintenance: {ignoreWindowsOn: [node-1]}\n",
		script: func(c *plantest.Cluster) {
			c.Budgets = []*v1alpha1.NodeDisruptionBudget{
				{ObjectMeta: metav1.ObjectMeta{Name: "nights"}, Spec: v1alpha1.NodeDisruptionBudgetSpec{
					AppliesTo: v1alpha1.AppliesToAllTasks, Windows: []v1alpha1.BudgetWindow{{Schedule: "0 2 1 1 *", DurationSeconds: 3600}},
					JoiningNodes: v1alpha1.JoiningNodesIncluded,
				}},
			}
			c.Create()
			c.Run(time.Minute)
		},
	},
	"node-values": {
		about: "The task has had a value from the Node in its environment.",
		spec:  "task: {script: mkfs.ext4 \"$DISK\", env: [{name: DISK, valueFrom: {nodeFieldRef: {fieldPath: \"metadata.labels['example.com/disk']\"}}}]}\n",
		script: func(c *plantest.Cluster) {
			c.Nodes["node-1"].Labels["example.com/disk"] = "sdb"
			c.Create()
			c.Run(time.Minute)
		},
	},
	"archived": {
		about: "The task has failed, and its output is archived without its middle. The archive did not accept the output of the rollback.",
		spec:  "task: {script: mkfs.ext4 /dev/sdb, output: {archive: Always}}\nretry: {limit: 0}\nrollback: {script: wipefs -a /dev/sdb}\n",
		script: func(c *plantest.Cluster) {
			failed := failure("no disk at /dev/sdb")
			failed.Archive = &outcome.Archive{Stored: true, Bytes: 16 << 20, Dropped: 1234, SHA256: strings.Repeat("0a", 32)}
			c.Task = ends(failed, plantest.Result{Archive: outcome.NotStored("the response is 403 Forbidden (AccessDenied)")})
			c.Create()
			c.Run(2 * time.Minute)
		},
	},
	"cut": {
		about: "The task has failed, and has reported more results than a record keeps.",
		spec:  "task: {script: lsblk}\nretry: {limit: 0}\n",
		script: func(c *plantest.Cluster) {
			c.Task = ends(
				plantest.Result{Code: 1, Output: "\x1b[31mfailed", Results: map[string]string{"log": strings.Repeat("0123456789", 30)}},
			)
			c.Create()
			c.Run(time.Minute)
		},
	},
}

func failure(output string) plantest.Result { return plantest.Result{Code: 3, Output: output} }

// ends returns how the attempts on node-1 end, in this order; later ones, and those on other nodes, succeed.
func ends(results ...plantest.Result) func(task.Attempt) plantest.Result {
	return func(a task.Attempt) plantest.Result {
		if a.NodeName != "node-1" || len(results) == 0 {
			return plantest.Result{}
		}
		next := results[0]
		results = results[1:]
		return next
	}
}

// interrupt ends the pod on node-1 as an eviction does.
func interrupt(c *plantest.Cluster) {
	c.Happens("The pod on node-1 is evicted.", func() {
		for _, name := range slices.Sorted(maps.Keys(c.Pods)) {
			if pod := c.Pods[name]; pod.Spec.NodeName == "node-1" && pod.Status.Phase == corev1.PodRunning {
				c.Interrupt(pod)
			}
		}
	})
}

// written returns node-1 after a situation, as the current code writes it.
func written(t *testing.T, s situation) golden {
	t.Helper()
	c := plantest.New(t, `
apiVersion: everynode.dev/v1alpha1
kind: NodeJob
metadata: {name: disk, namespace: node-setup}
spec:
  rollout: {steps: [{name: all}]}
`+indented(s.spec), "node-1", "node-2")
	s.script(c)
	node := c.Nodes["node-1"]
	g := golden{About: s.about, Key: c.Key(), Labels: node.Labels, Annotations: node.Annotations}
	for _, label := range []string{corev1.LabelHostname, corev1.LabelOSStable} {
		delete(g.Labels, label)
	}
	return g
}

func indented(lines string) string {
	return "  " + strings.ReplaceAll(strings.TrimSuffix(lines, "\n"), "\n", "\n  ") + "\n"
}
