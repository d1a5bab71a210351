// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/text"
)

const budgetOfWeb = "The disruption budget web needs 2 healthy pods and has 2 currently"

// drainedNode is the explanation of a node that is drained before the task, with these pods left.
func drainedNode(pods ...plan.DrainPod) Explain {
	return drainedNodeBlockedFor(40*time.Second, pods...)
}

// drainedNodeBlockedFor is the same for pods that have been blocked for this long.
func drainedNodeBlockedFor(blocked time.Duration, pods ...plan.DrainPod) Explain {
	j := job(func(j *v1alpha1.NodeJob) {
		j.Status.Revision, j.Spec.Rollout.Steps = revision, []v1alpha1.RolloutStep{{Name: "all"}}
		j.Spec.Maintenance.Drain = &v1alpha1.DrainSpec{TimeoutSeconds: new(int32(120))}
		d := v1alpha1.NodeDrain{Node: "node-1", Since: at(time.Minute)}
		for i := range pods {
			if pods[i].Blocked != "" {
				d.Blocked = append(d.Blocked, v1alpha1.BlockedPod{Pod: pods[i].Namespace + "/" + pods[i].Name, Since: at(blocked)})
			}
		}
		j.Status.Drains = []v1alpha1.NodeDrain{d}
	})
	nodes := nodesOf(1, func(_ int, n *plan.Node) {
		n.Created, n.Unschedulable, n.CordonedBy = before(time.Hour), true, []string{v1alpha1.RecordKey(j.Namespace, j.Name)}
	})
	in := plan.Input{Job: j, Revision: revision, Nodes: nodes, Now: now, Drains: map[types.UID][]plan.DrainPod{nodes[0].UID: pods}}
	return ExplainNode(in, plan.Next(in), 0, 0)
}

// TestNextOfABlockedDrain checks that a drain that cannot continue is not called progress.
func TestNextOfABlockedDrain(t *testing.T) {
	web := func(name, message string) plan.DrainPod {
		return plan.DrainPod{Namespace: "shop", Name: name, UID: types.UID(name), Blocked: message}
	}
	bare := plan.DrainPod{Namespace: "shop", Name: "db-0", UID: "db-0", EvictionRefused: "it has no controller"}
	tests := map[string]struct {
		pods []plan.DrainPod
		want string
	}{
		"it continues": {
			[]plan.DrainPod{web("web-0", "")},
			"no action needed: it ends automatically, at its timeout at the latest",
		},
		"a budget": {
			[]plan.DrainPod{web("web-0", budgetOfWeb)},
			"relax the budget shop/web, or delete the pod shop/web-0; else it fails at 12:31:00 UTC",
		},
		"two pods of a budget": {
			[]plan.DrainPod{web("web-0", budgetOfWeb), web("web-1", budgetOfWeb)},
			"relax the budget shop/web, or delete the pods shop/web-0, shop/web-1; else it fails at 12:31:00 UTC",
		},
		"without a controller": {[]plan.DrainPod{bare}, "delete the pod shop/db-0; else it fails at 12:31:00 UTC"},
		"a name that is no name": {
			[]plan.DrainPod{web("web-0", "The disruption budget $(reboot) needs")},
			"delete the pod shop/web-0; else it fails at 12:31:00 UTC",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := drainedNode(tt.pods...).Next().String(); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	t.Run("blocked for a moment", func(t *testing.T) {
		e := drainedNodeBlockedFor(time.Second, web("web-0", budgetOfWeb))
		const next = "the eviction is retried automatically until 12:31:00 UTC (in 60s). If it stays blocked, " +
			"relax the budget shop/web, or delete the pod shop/web-0; else it fails at 12:31:00 UTC"
		if got := e.Next().String(); got != next {
			t.Errorf("got %q, want %q", got, next)
		}
		const why = "1 pod is not evicted yet; shop/web-0: " + budgetOfWeb + ", until 12:31:00 UTC"
		if got := e.Sentence(); !strings.Contains(got, why) {
			t.Errorf("got %q, want a part %q", got, why)
		}
	})
	drawn(t, "explain-a-blocked-drain", func(width int) []text.Line {
		e := drainedNode(web("web-0", budgetOfWeb))
		e.Width = width
		return e.Lines()
	})
}

// TestRemedyOfADrainThatTimedOut checks that no message says to fix a task that has not run.
func TestRemedyOfADrainThatTimedOut(t *testing.T) {
	s := Status{Now: now, Job: job(func(j *v1alpha1.NodeJob) {
		stands(
			j,
			v1alpha1.ConditionStalled,
			v1alpha1.ReasonNodesFailed,
			"1 node failed (node-1: DrainTimedOut: 1 pod not evicted within 60 s). "+plan.FailureRemedies(plan.MakeRoom, true).
				Kubectl(j, j.Status.Revision),
		)
	})}
	printed := text.Print(s.Lines(), text.Options{})
	const want = "make room for the pods that block the drain, or relax their disruption budgets, then"
	if !strings.Contains(printed, want) || strings.Contains(printed, "annotate") ||
		!strings.Contains(printed, "kubectl everynode retry somaxconn NODE -n node-setup") {
		t.Errorf("got\n%s", printed)
	}
	e := Explain{Job: s.Job, Node: &plan.Node{Name: "node-1"}, State: plan.NodeState{State: plan.Failed}, Now: now}
	e.Node.On.Record = &record.Record{
		Revision:   s.Job.Status.Revision,
		Outcome:    record.Failed,
		Reason:     v1alpha1.ReasonDrainTimedOut,
		FinishedAt: now,
	}
	if got := e.Next(); !strings.HasPrefix(got.String(), want+" retry it: kubectl everynode retry somaxconn node-1 -n node-setup") {
		t.Errorf("next: %q", got)
	}
}
