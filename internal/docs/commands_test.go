// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package docs

import (
	"fmt"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/testing/plantest"
)

var fiveNodes = []string{"node-1", "node-2", "node-3", "node-4", "node-5"}

// examples are the texts of the examples, by their names in the pages.
var examples = map[string]func(t *testing.T) string{
	"status-soaking": func(t *testing.T) string {
		c := plantest.New(t, inSteps, fiveNodes...)
		c.Create()
		c.Run(3*time.Minute + 20*time.Second)
		return serve(t, c).run("status", "somaxconn", "-n", "node-setup")
	},
	"status-stopped": func(t *testing.T) string {
		return serve(t, stopped(t, 1, 3*time.Minute)).run("status", "somaxconn", "-n", "node-setup")
	},
	"list": listed,
	"explain-failed": func(t *testing.T) string {
		return serve(t, stopped(t, 0, 10*time.Minute)).run("explain", "somaxconn", "node-1", "-n", "node-setup")
	},
	"plan": planned,
}

// stopped returns a rollout that has stopped, some time after its creation. The rollback fails with a code.
func stopped(t *testing.T, rollback int, after time.Duration) *plantest.Cluster {
	c := plantest.New(t, inSteps, fiveNodes...)
	blocked := plantest.NewWorkload("shop", "db-0")
	blocked.Budget = "The disruption budget db needs 2 healthy pods and has 2 currently"
	c.Workloads["node-1"] = []*plantest.Workload{plantest.NewWorkload("shop", "web-1"), blocked}
	c.Task = func(a task.Attempt) plantest.Result {
		switch {
		case a.Phase == task.Task:
			return plantest.Result{
				Code:   255,
				Output: "writing 60-somaxconn.conf\n\x1b[31msysctl: cannot stat /proc/sys/net/core/somaxcon",
				After:  4 * time.Second,
			}
		case rollback != 0:
			return plantest.Result{
				Code:   rollback,
				Output: "rm: cannot remove '60-somaxconn.conf': Read-only file system",
				After:  2 * time.Second,
			}
		}
		return plantest.Result{After: 2 * time.Second}
	}
	c.ChangeSpec(func(s *v1alpha1.NodeJobSpec) {
		s.Task.Script = "sysctl -w net.core.somaxcon=4096"
		s.Rollback = &v1alpha1.RollbackSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "rm /etc/sysctl.d/60-somaxconn.conf"}}
		s.OnFailure.Action = v1alpha1.FailureActionDrain
	})
	c.Create()
	c.Run(after)
	return c
}

// listed is a list with a NodeJob that is complete, one that runs, and one that no manager has observed.
func listed(t *testing.T) string {
	var nodes []string
	for i := range 40 {
		nodes = append(nodes, fmt.Sprintf("node-%d", i+1))
	}
	done := plantest.New(t, simple("node-setup", "max-map-count"), nodes...)
	done.Job.CreationTimestamp = metav1.NewTime(done.Now.Add(-3 * time.Hour))
	done.Create()
	done.Run(5 * time.Minute)
	c := plantest.New(t, simple("node-setup", "somaxconn"), nodes...)
	c.Task = func(a task.Attempt) plantest.Result {
		if a.NodeName == "node-13" {
			return plantest.Result{Code: 255, Output: "sysctl: cannot stat /proc/sys/net/core/somaxconn"}
		}
		return plantest.Result{}
	}
	c.Create()
	c.Run(65 * time.Second)
	s := serve(t, done, c)
	s.jobs = append(s.jobs, *plantest.New(t, simple("default", "facts"), nodes...).Job)
	s.columns = 100
	return s.run("list", "-A")
}

// planned is the plan of a NodeJob that reboots nodes. One node has a taint, one has other labels, and one is unreachable.
func planned(t *testing.T) string {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("no-thp.yaml", []byte(withReboot), 0o600); err != nil {
		t.Fatal(err)
	}
	c := plantest.New(t, withReboot, fiveNodes...)
	for _, node := range c.Nodes {
		node.Labels["pool"] = "web"
	}
	c.Nodes["node-3"].Spec.Taints = []corev1.Taint{{Key: "gpu", Value: "true", Effect: corev1.TaintEffectNoSchedule}}
	c.Nodes["node-4"].Labels["pool"] = "db"
	c.SetReady("node-5", corev1.ConditionUnknown)
	s := serve(t, c)
	s.jobs = nil
	for _, name := range []string{"web-1", "web-2", "db-0"} {
		s.pods = append(s.pods, corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{"app": name[:len(name)-2]},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: name, Controller: new(true)}}},
			Spec:   corev1.PodSpec{NodeName: "node-1"},
			Status: corev1.PodStatus{Phase: corev1.PodRunning},
		})
	}
	s.budgets = []policyv1.PodDisruptionBudget{{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}},
		Status:     policyv1.PodDisruptionBudgetStatus{CurrentHealthy: 2, DesiredHealthy: 2},
	}}
	return s.run("plan", "-f", "no-thp.yaml")
}

func simple(namespace, name string) string {
	return fmt.Sprintf(`
apiVersion: everynode.dev/v1alpha1
kind: NodeJob
metadata: {namespace: %s, name: %s}
spec:
  task: {script: sysctl -w vm.max_map_count=262144}
  retry: {limit: 0}
  rollout:
    maxConcurrent: 25%%
    maxFailures: 10%%
    steps: [{name: canary, nodes: 1}, {name: all}]
`, namespace, name)
}

const inSteps = `
apiVersion: everynode.dev/v1alpha1
kind: NodeJob
metadata: {namespace: node-setup, name: somaxconn}
spec:
  task: {script: sysctl -w net.core.somaxconn=4096}
  rollout:
    maxConcurrent: 25%
    maxFailures: 0
    promoteTo: staging
    steps:
    - {name: canary, nodes: 1, soakSeconds: 600}
    - {name: staging, nodes: 1}
    - {name: all}
`

const withReboot = `
apiVersion: everynode.dev/v1alpha1
kind: NodeJob
metadata: {namespace: node-setup, name: no-thp}
spec:
  nodes:
    selector: {matchExpressions: [{key: pool, operator: NotIn, values: [db]}]}
  task: {script: grubby --update-kernel=ALL --args=transparent_hugepage=never}
  maintenance:
    drain: {timeoutSeconds: 1800}
    reboot:
      policy: Always
    maxUnavailable: 2
  rollout:
    maxConcurrent: 2
    promoteTo: canary
    steps:
    - {name: canary, nodes: 1, soakSeconds: 600}
    - {name: all}
`
