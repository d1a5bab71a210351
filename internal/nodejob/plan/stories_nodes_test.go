// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"time"

	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/testing/plantest"
)

// nodeStories show maintenance of nodes before and after the task.
var nodeStories = []story{
	{
		file: "reboot-and-check.txt",
		about: "A task with a reboot. A run takes three pods: the task, the reboot, and the check in the new boot. " +
			"The node has its slot during all of them, and is done only when the check has succeeded.",
		nodes: []string{"node-1", "node-2"},
		spec: `
apiVersion: everynode.dev/v1alpha1
kind: NodeJob
metadata:
  name: kernel-arguments
  namespace: node-setup
spec:
  task:
    script: grubby --update-kernel=ALL --args=mitigations=auto
    check:
      script: grep -q mitigations=auto /proc/cmdline
  maintenance:
    reboot:
      policy: Always
      minReadySeconds: 10
  rollout:
    maxConcurrent: 1
    steps:
    - name: all
`,
		script: func(c *plantest.Cluster) {
			c.Create()
			c.Run(10 * time.Minute)
		},
	},
	{
		file: "node-is-cut-off.txt",
		about: "A firewall rule that works on node-1 and cuts node-2 off. The manager confirms node-1, whose kubelet has reported the end of the task. Nothing " +
			"reaches node-2, so it runs the rollback by itself. It has failed without a retry, and node-3 is spared.",
		nodes: []string{"node-1", "node-2", "node-3"},
		spec: `
apiVersion: everynode.dev/v1alpha1
kind: NodeJob
metadata:
  name: firewall
  namespace: node-setup
spec:
  task:
    script: cp /etc/nftables.conf /run/nftables.before && nft -f /opt/nftables.conf
  rollback:
    script: nft flush ruleset && nft -f /run/nftables.before
  confirm:
    timeoutSeconds: 60
  rollout:
    maxConcurrent: 1
    steps:
    - name: all
`,
		script: func(c *plantest.Cluster) {
			c.Task = func(a task.Attempt) plantest.Result { return plantest.Result{CutOff: a.NodeName == "node-2"} }
			c.Create()
			c.Run(10 * time.Minute)
		},
	},
	{
		file: "check-before-a-drain.txt",
		about: "The check runs before the task, on all nodes at once. node-1 is as it should be, and is done without a cordon or a drain. On node-2, the check " +
			"itself fails at first, and is repeated. Then node-2 and node-3 need the task, one at a time because of rollout.maxConcurrent.",
		nodes: []string{"node-1", "node-2", "node-3"},
		spec: `
apiVersion: everynode.dev/v1alpha1
kind: NodeJob
metadata:
  name: kubelet-config
  namespace: node-setup
spec:
  task:
    script: cp /opt/kubelet.yaml /var/lib/kubelet/config.yaml && systemctl restart kubelet
    check:
      script: cmp -s /opt/kubelet.yaml /var/lib/kubelet/config.yaml
      before: true
  maintenance:
    drain: {}
  rollout:
    maxConcurrent: 1
    steps:
    - name: all
`,
		script: func(c *plantest.Cluster) {
			asked := map[string]int{}
			c.Task = func(a task.Attempt) plantest.Result {
				if a.Phase != task.CheckBefore || a.NodeName == "node-1" {
					return plantest.Result{}
				}
				if asked[a.NodeName]++; a.NodeName == "node-2" && asked[a.NodeName] == 1 {
					return plantest.Result{After: 2 * time.Second, Code: 75, Output: "/opt does not respond"}
				}
				return plantest.Result{After: 2 * time.Second, Code: 1}
			}
			c.Create()
			c.Run(10 * time.Minute)
		},
	},
	{
		file: "drain-with-a-blocked-pod.txt",
		about: "Maintenance: each node is cordoned and drained before the task, one at a time because of maintenance.maxUnavailable. " +
			"On node-2, a PodDisruptionBudget denies an eviction for some time. The eviction is retried every 5 seconds, and the status names the blocked pod.",
		nodes: []string{"node-1", "node-2"},
		spec: `
apiVersion: everynode.dev/v1alpha1
kind: NodeJob
metadata:
  name: kubelet-config
  namespace: node-setup
spec:
  task:
    script: cp /opt/kubelet.yaml /var/lib/kubelet/config.yaml && systemctl restart kubelet
  maintenance:
    drain:
      timeoutSeconds: 300
    maxUnavailable: 1
  rollout:
    maxConcurrent: 2
    steps:
    - name: all
`,
		script: func(c *plantest.Cluster) {
			blocked := plantest.NewWorkload("shop", "db-0")
			blocked.Budget = "The disruption budget db needs 2 healthy pods and has 2 currently"
			c.Workloads["node-1"] = []*plantest.Workload{plantest.NewWorkload("shop", "web-1")}
			c.Workloads["node-2"] = []*plantest.Workload{plantest.NewWorkload("shop", "web-2"), blocked}
			c.Create()
			c.Run(50 * time.Second)
			c.HappensUnwatched(
				"The third pod of the database is ready: its PodDisruptionBudget allows a disruption.",
				func() { blocked.Budget = "" },
			)
			c.Run(10 * time.Minute)
		},
	},
	{
		file: "rollback-and-quarantine.txt",
		about: "A node fails, is rolled back, and is quarantined. After the last attempt, the node is cordoned at once, and the rollback runs. " +
			"The pods of the node are evicted when the rollback has ended. The other node is not affected, because rollout.maxFailures is 1.",
		nodes: []string{"node-1", "node-2"},
		spec: `
apiVersion: everynode.dev/v1alpha1
kind: NodeJob
metadata:
  name: containerd-config
  namespace: node-setup
spec:
  task:
    script: cp /opt/containerd.toml /etc/containerd/config.toml && systemctl restart containerd
  rollback:
    script: cp /etc/containerd/config.toml.bak /etc/containerd/config.toml && systemctl restart containerd
  retry:
    limit: 1
  onFailure:
    action: Drain
  rollout:
    maxConcurrent: 1
    maxFailures: 1
    steps:
    - name: all
`,
		script: func(c *plantest.Cluster) {
			c.Workloads["node-1"] = []*plantest.Workload{plantest.NewWorkload("shop", "web-1")}
			c.Task = func(a task.Attempt) plantest.Result {
				if a.NodeName == "node-1" && a.Phase == task.Task {
					return plantest.Result{Code: 1, Output: "Job for containerd.service failed"}
				}
				return plantest.Result{}
			}
			c.Create()
			c.Run(20 * time.Minute)
		},
	},
	{
		file: "deletion-with-rollback.txt",
		about: "A NodeJob with deletionPolicy Rollback is deleted while it runs. No further task starts, and the attempt that runs may end. " +
			"Then each node on which the task has run is rolled back, one at a time because of rollout.maxConcurrent. At last the records are removed, and the NodeJob is gone.",
		nodes: threeNodes,
		spec: `
apiVersion: everynode.dev/v1alpha1
kind: NodeJob
metadata:
  name: max-map-count
  namespace: node-setup
spec:
  task:
    script: echo 'vm.max_map_count = 262144' > /etc/sysctl.d/60-max-map-count.conf && sysctl --system
  rollback:
    script: rm -f /etc/sysctl.d/60-max-map-count.conf && sysctl --system
  deletionPolicy: Rollback
  rollout:
    maxConcurrent: 1
    steps:
    - name: all
`,
		script: func(c *plantest.Cluster) {
			c.Create()
			c.Run(30 * time.Second)
			c.Happens("The user deletes the NodeJob.", c.Delete)
			c.Run(10 * time.Minute)
		},
	},
	{
		file: "expires-after-a-reboot.txt",
		about: "A mitigation is needed until a fixed kernel runs. node-1 has the old kernel and node-2 the fixed one, so the task runs only on node-1. " +
			"When node-1 has rebooted into the fixed kernel, the check says that the mitigation is no longer needed there, and the rollback runs.",
		nodes: []string{"node-1", "node-2"},
		spec: `
apiVersion: everynode.dev/v1alpha1
kind: NodeJob
metadata:
  name: deny-esp4
  namespace: node-setup
spec:
  task:
    script: echo 'install esp4 /bin/false' > /etc/modprobe.d/deny-esp4.conf
  rollback:
    script: rm -f /etc/modprobe.d/deny-esp4.conf
  expires:
    check:
      script: '[ "$(printf "%s\\n" 6.12.85 "$(uname -r)" | sort -V | head -n 1)" = 6.12.85 ]'
  rollout:
    steps:
    - name: all
`,
		script: func(c *plantest.Cluster) {
			fixed := map[string]bool{"node-2": true}
			c.Task = func(a task.Attempt) plantest.Result {
				if a.Phase == task.CheckExpires && !fixed[a.NodeName] {
					return plantest.Result{Code: 1}
				}
				return plantest.Result{}
			}
			c.Create()
			c.Run(5 * time.Minute)
			c.Happens("node-1 is rebooted into the fixed kernel.", func() {
				fixed["node-1"] = true
				c.Reboot("node-1")
			})
			c.Run(10 * time.Minute)
		},
	},
}
