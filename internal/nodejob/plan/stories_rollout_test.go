// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/testing/plantest"
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
		script: func(c *plantest.Cluster) {
			c.Create()
			c.Run(10 * time.Minute)
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
		script: func(c *plantest.Cluster) {
			c.Task = func(task.Attempt) plantest.Result {
				return plantest.Result{Code: 255, Output: "sysctl: cannot stat /proc/sys/net/core/somaxcon"}
			}
			c.Create()
			c.Run(10 * time.Minute)
			c.Happens("The user fixes the script: net.core.somaxconn instead of net.core.somaxcon.", func() {
				c.Task = nil
				c.ChangeSpec(func(s *v1alpha1.NodeJobSpec) { s.Task.Script = "sysctl -w net.core.somaxconn=4096" })
			})
			c.Run(10 * time.Minute)
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
		script: func(c *plantest.Cluster) {
			c.Create()
			c.Run(5 * time.Minute)
			c.Happens("node-1 turns NotReady in the soak.", func() { c.SetReady("node-1", corev1.ConditionFalse) })
			c.Run(time.Minute)
			c.Happens("node-1 is Ready again.", func() { c.SetReady("node-1", corev1.ConditionTrue) })
			c.Run(20 * time.Minute)
			c.Happens("The user has checked node-1, and requests a retry: kubectl everynode retry cpu-governor.", func() {
				c.Job = c.Job.DeepCopy()
				c.Job.Annotations = map[string]string{v1alpha1.RetryAnnotation: "1"}
			})
			c.Run(20 * time.Minute)
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
		script: func(c *plantest.Cluster) {
			c.Create()
			c.Run(30 * time.Minute)
			c.Happens("The user promotes the rollout: kubectl everynode promote somaxconn.", func() {
				c.ChangeSpec(func(s *v1alpha1.NodeJobSpec) { s.Rollout.PromoteTo = "all" })
			})
			c.Run(10 * time.Minute)
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
		script: func(c *plantest.Cluster) {
			c.Task = func(a task.Attempt) plantest.Result {
				if a.NodeName == "node-1" && a.Number < 3 {
					return plantest.Result{Code: 7, Output: "curl: (7) Failed to connect to ca.example port 443", After: 5 * time.Second}
				}
				return plantest.Result{After: 5 * time.Second}
			}
			c.Create()
			c.Run(10 * time.Minute)
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
		script: func(c *plantest.Cluster) {
			c.Create()
			c.Run(10 * time.Minute)
			c.Task = func(a task.Attempt) plantest.Result {
				if a.Number == 1 {
					return plantest.Result{Code: 1, Output: "sysctl: permission denied"}
				}
				return plantest.Result{}
			}
			c.Happens(
				"node-3 joins. The admission policy of the gate adds the taint in the request that creates the Node. Its kubelet has not reported yet.",
				func() {
					c.AddNode("node-3", c.Now, corev1.Taint{Key: c.Key(), Value: v1alpha1.GateValue, Effect: corev1.TaintEffectNoSchedule})
					c.SetReady("node-3", "")
				},
			)
			c.Run(5 * time.Second)
			c.Happens("node-3 is Ready.", func() { c.SetReady("node-3", corev1.ConditionTrue) })
			c.Run(10 * time.Minute)
		},
	},
}
