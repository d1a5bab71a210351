// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/task"
)

var threeNodes = []string{"node-1", "node-2", "node-3"}

// rolloutStories are about steps, failures and joining nodes.
var rolloutStories = []story{
	{
		file: "canary-then-all.txt",
		about: "A canary, then all nodes. The task runs on one node first. Only after it has succeeded there, the step all starts, " +
			"and runs on the other nodes, two at a time.",
		nodes: []string{"node-1", "node-2", "node-3", "node-4"},
		spec: `
apiVersion: everynode.dev/v1alpha1
kind: NodeJob
metadata:
  name: somaxconn
  namespace: node-setup
spec:
  task:
    script: sysctl -w net.core.somaxconn=4096
  rollout:
    maxConcurrent: 2
    steps:
    - name: canary
      nodes: 1
    - name: all
`,
		script: func(c *cluster) {
			c.create()
			c.run(10 * time.Minute)
		},
	},
	{
		file: "canary-fails.txt",
		about: "A canary fails, and the rollout stops. No other node runs the task, because rollout.maxFailures is 0. " +
			"The NodeJob is Stalled until the user fixes the script. The fixed script is a new revision, which begins with the same canary.",
		nodes: threeNodes,
		spec: `
apiVersion: everynode.dev/v1alpha1
kind: NodeJob
metadata:
  name: somaxconn
  namespace: node-setup
spec:
  task:
    script: sysctl -w net.core.somaxcon=4096
  retry:
    limit: 0
  rollout:
    maxConcurrent: 2
    maxFailures: 0
    steps:
    - name: canary
      nodes: 1
    - name: all
`,
		script: func(c *cluster) {
			c.task = func(task.Attempt) result {
				return result{code: 255, output: "sysctl: cannot stat /proc/sys/net/core/somaxcon"}
			}
			c.create()
			c.run(10 * time.Minute)
			c.happens("The user fixes the script: net.core.somaxconn instead of net.core.somaxcon.", func() {
				c.task = nil
				c.changeSpec(func(s *v1alpha1.NodeJobSpec) { s.Task.Script = "sysctl -w net.core.somaxconn=4096" })
			})
			c.run(10 * time.Minute)
		},
	},
	{
		file: "node-not-ready-in-soak.txt",
		about: "A node turns NotReady in the soak of its step. The task has succeeded on the node, so its record is a success. " +
			"The node still counts against rollout.maxFailures, as an unrecorded failure, and the rollout stops before it reaches the other nodes.",
		nodes: threeNodes,
		spec: `
apiVersion: everynode.dev/v1alpha1
kind: NodeJob
metadata:
  name: cpu-governor
  namespace: node-setup
spec:
  task:
    script: cpupower frequency-set --governor performance
  rollout:
    maxFailures: 0
    steps:
    - name: canary
      nodes: 1
      soakSeconds: 600
    - name: all
`,
		script: func(c *cluster) {
			c.create()
			c.run(5 * time.Minute)
			c.happens("node-1 turns NotReady in the soak.", func() { c.setReady("node-1", corev1.ConditionFalse) })
			c.run(time.Minute)
			c.happens("node-1 is Ready again.", func() { c.setReady("node-1", corev1.ConditionTrue) })
			c.run(20 * time.Minute)
			c.happens("The user has checked node-1, and requests a retry: kubectl everynode retry cpu-governor.", func() {
				c.job = c.job.DeepCopy()
				c.job.Annotations = map[string]string{v1alpha1.RetryAnnotation: "1"}
			})
			c.run(20 * time.Minute)
		},
	},
	{
		file: "promotion.txt",
		about: "A rollout that is paused at the step in rollout.promoteTo. The step passes, and no further step starts " +
			"until a user promotes the rollout. A paused rollout is not Stalled.",
		nodes: threeNodes,
		spec: `
apiVersion: everynode.dev/v1alpha1
kind: NodeJob
metadata:
  name: somaxconn
  namespace: node-setup
spec:
  task:
    script: sysctl -w net.core.somaxconn=4096
  rollout:
    promoteTo: canary
    maxConcurrent: 2
    steps:
    - name: canary
      nodes: 1
    - name: all
`,
		script: func(c *cluster) {
			c.create()
			c.run(30 * time.Minute)
			c.happens("The user promotes the rollout: kubectl everynode promote somaxconn.", func() {
				c.changeSpec(func(s *v1alpha1.NodeJobSpec) { s.Rollout.PromoteTo = "all" })
			})
			c.run(10 * time.Minute)
		},
	},
	{
		file: "retry-with-backoff.txt",
		about: "A task that fails twice and then succeeds. Each retry waits twice as long as the one before: 10 and 20 seconds after the " +
			"failure was recorded. A node with a retry left is not failed, and does not count against rollout.maxFailures.",
		nodes: []string{"node-1", "node-2"},
		spec: `
apiVersion: everynode.dev/v1alpha1
kind: NodeJob
metadata:
  name: ca-certificates
  namespace: node-setup
spec:
  task:
    script: curl -fsS https://ca.example/ca.pem -o /etc/ssl/ca.pem
  retry:
    limit: 3
    backoffSeconds: 10
  rollout:
    steps:
    - name: all
`,
		script: func(c *cluster) {
			c.task = func(a task.Attempt) result {
				if a.NodeName == "node-1" && a.Number < 3 {
					return result{code: 7, output: "curl: (7) Failed to connect to ca.example port 443", after: 5 * time.Second}
				}
				return result{after: 5 * time.Second}
			}
			c.create()
			c.run(10 * time.Minute)
		},
	},
	{
		file: "joining-node-with-a-gate.txt",
		about: "A node joins after the rollout has ended. It is created with the taint of the gate, so that no workload is scheduled there. " +
			"The revision is stable, so the task starts without waiting for a step. The write that records the success also opens the gate.",
		nodes: []string{"node-1", "node-2"},
		spec: `
apiVersion: everynode.dev/v1alpha1
kind: NodeJob
metadata:
  name: inotify
  namespace: node-setup
spec:
  gate: {}
  task:
    script: sysctl -w fs.inotify.max_user_instances=8192
  retry:
    limit: 1
  rollout:
    steps:
    - name: canary
      nodes: 1
    - name: all
`,
		script: func(c *cluster) {
			c.create()
			c.run(10 * time.Minute)
			c.task = func(a task.Attempt) result {
				if a.Number == 1 {
					return result{code: 1, output: "sysctl: permission denied"}
				}
				return result{}
			}
			c.happens("node-3 joins. The admission policy of the gate adds the taint in the request that creates the Node. Its kubelet has not reported yet.", func() {
				c.addNode("node-3", c.now, corev1.Taint{Key: c.key(), Value: v1alpha1.GateValue, Effect: corev1.TaintEffectNoSchedule})
				c.setReady("node-3", "")
			})
			c.run(5 * time.Second)
			c.happens("node-3 is Ready.", func() { c.setReady("node-3", corev1.ConditionTrue) })
			c.run(10 * time.Minute)
		},
	},
}
