// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/text"
)

// withReboots is the plan of a NodeJob that reboots nodes, of which one has a taint, one has other labels, and one is unreachable.
func withReboots() Plan {
	reboots := job(func(j *v1alpha1.NodeJob) {
		j.Spec.Rollout.PromoteTo, j.Spec.Nodes.Selector = "canary", &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "web"}}
		j.Spec.Rollout.Steps = []v1alpha1.RolloutStep{{Name: "canary", Nodes: new(intstr.FromInt32(1)), SoakSeconds: 600}, {Name: "all"}}
		j.Spec.Maintenance = v1alpha1.MaintenanceSpec{
			Drain:  &v1alpha1.DrainSpec{},
			Reboot: v1alpha1.RebootSpec{Policy: v1alpha1.RebootAlways},
		}
	})
	small := nodesOf(5, func(i int, n *plan.Node) {
		switch i {
		case 2:
			n.Taints = []corev1.Taint{{Key: "gpu", Value: "true", Effect: corev1.TaintEffectNoSchedule}}
		case 3:
			n.Labels = nil
		case 4:
			n.Ready = corev1.ConditionUnknown
		}
	})
	return Plan{
		Job: reboots, Plan: plan.Next(plan.Input{Job: reboots, Revision: revision, Nodes: small, Now: now}), Revision: revision,
		Drained: []DrainData{
			{
				Node:        "node-1",
				PodsToEvict: []string{"shop/web-1", "shop/web-2"},
				Blocked: []BlockedData{
					{"shop/db-0", "PodDisruptionBudget db allows no disruption now: 2 pods are healthy, and 2 must be"},
				},
			},
			{Node: "node-2"},
		},
	}
}

func TestThePlanOfAFile(t *testing.T) {
	large := nodesOf(3000, func(i int, n *plan.Node) {
		n.Name = fmt.Sprintf("ip-10-0-%d-%d.eu-west-1.compute.internal", i/250, i%250)
		if i%10 == 0 {
			ran(n, func(*record.Record) {})
		}
	})
	tests := map[string]Plan{
		"with-reboots": withReboots(),
		"with-a-gate-and-published-results": func() Plan {
			gated := job(func(j *v1alpha1.NodeJob) {
				j.Spec.Gate, j.Spec.RemoveLabels = &v1alpha1.GateSpec{
					Effect: v1alpha1.GateNoExecute,
					Nodes:  v1alpha1.GateAll,
				}, []string{
					"setup.example/requested",
				}
				j.Spec.Publish = []v1alpha1.PublishedResult{
					{Result: "kernel", Label: "setup.example/kernel"},
					{Result: "found", Annotation: "setup.example/found"},
				}
			})
			return Plan{
				Job:      gated,
				Plan:     plan.Next(plan.Input{Job: gated, Revision: revision, Nodes: nodesOf(1, func(int, *plan.Node) {}), Now: now}),
				Revision: revision,
			}
		}(),
		"that-takes-over": func() Plan {
			takes := job(func(j *v1alpha1.NodeJob) {
				j.Spec.Suspend, j.CreationTimestamp = true, metav1.NewTime(now)
				j.Spec.Nodes.AssumeDone = &v1alpha1.AssumeDoneSpec{
					Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"setup.example/done": "true"}},
				}
				j.Spec.Publish = []v1alpha1.PublishedResult{
					{Result: "kernel", Label: "setup.example/kernel"},
					{Result: "found", Annotation: "setup.example/found", Adopt: v1alpha1.AdoptSameValue},
				}
			})
			nodes := nodesOf(3, func(i int, n *plan.Node) {
				n.Labels = map[string]string{"setup.example/kernel": "6.1"}
				n.Annotations = map[string]string{"setup.example/found": "yes"}
				switch i {
				case 0:
					n.Labels["setup.example/done"] = "true"
				case 2:
					n.Published = record.Published{Labels: map[string]string{"setup.example/kernel": "node-setup.everynode.dev/other"}}
				}
			})
			p := Plan{Job: takes, Plan: plan.Next(plan.Input{Job: takes, Revision: revision, Nodes: nodes, Now: now}), Revision: revision}
			for i := range nodes[1:] {
				for _, c := range plan.PublishConflicts(takes, &nodes[i+1]) {
					p.Conflicts = append(p.Conflicts, ConflictData{nodes[i+1].Name, c.Kind, c.Key, c.Value, c.Owner})
				}
			}
			return p
		}(),
		"three-thousand-nodes": {
			Job:      job(func(*v1alpha1.NodeJob) {}),
			Plan:     plan.Next(plan.Input{Job: job(func(*v1alpha1.NodeJob) {}), Revision: revision, Nodes: large, Now: now}),
			Exists:   true,
			Was:      "0ldc0de",
			Revision: revision,
			Notes: []string{
				"not checked by the API server, and without its defaults: jane may not create nodejobs.everynode.dev in namespace node-setup.",
			},
		},
		"stopped-and-suspended": func() Plan {
			stopped := job(func(j *v1alpha1.NodeJob) { j.Spec.Suspend, j.Spec.Rollout.Steps = true, nil })
			nodes := nodesOf(3, func(i int, n *plan.Node) {
				if i == 0 {
					ran(n, func(r *record.Record) { failed(r, 4) })
				}
			})
			return Plan{
				Job:      stopped,
				Plan:     plan.Next(plan.Input{Job: stopped, Revision: revision, Nodes: nodes, Now: now}),
				Exists:   true,
				Was:      revision,
				Revision: revision,
			}
		}(),
		"that-cannot-work": {
			Job:  job(func(*v1alpha1.NodeJob) {}),
			Plan: plan.Next(plan.Input{Job: job(func(*v1alpha1.NodeJob) {}), Now: now}),
			Obstacle: &hold.Why{
				Reason:  v1alpha1.ReasonConfigMapNotFound,
				Message: "spec.task.scriptFrom: ConfigMap node-setup/scripts does not exist. Create it; the NodeJob then continues automatically",
			},
		},
	}
	for name, p := range tests {
		t.Run(name, func(t *testing.T) {
			p.Now = now
			drawn(t, "plan-"+name, func(width int) []text.Line {
				p.Width = width
				return p.Lines()
			})
		})
	}
}

// TestThePlanForPrograms checks the output format, which must not change.
func TestThePlanForPrograms(t *testing.T) {
	stalled := withReboots()
	stalled.Exists, stalled.Was, stalled.Notes = true, "0ldc0de", []string{"a note"}
	stalled.Obstacle = &hold.Why{Reason: v1alpha1.ReasonConfigMapNotFound, Message: "there is none"}
	stalled.Plan, stalled.Drained = plan.Plan{}, nil
	for name, tt := range map[string]struct {
		plan Plan
		want string
	}{
		"with reboots": {withReboots(), `{
  "namespace": "node-setup",
  "name": "somaxconn",
  "exists": false,
  "revision": "7d9f2c41",
  "maxConcurrent": 1,
  "steps": [
    {
      "name": "canary",
      "soakSeconds": 600,
      "nodes": [
        "node-1"
      ]
    },
    {
      "name": "all",
      "awaitsPromotion": true,
      "nodes": [
        "node-2",
        "node-5"
      ]
    }
  ],
  "nodes": [
    {
      "node": "node-1",
      "state": "Waiting",
      "reason": "MaxUnavailableReached",
      "message": "1 node is not Ready, cordoned or at work (node-5), and maintenance.maxUnavailable allows 1",
      "step": "canary"
    },
    {
      "node": "node-2",
      "state": "Waiting",
      "reason": "WaitingForStep",
      "message": "it is in step all, and the rollout is in step canary",
      "step": "all"
    },
    {
      "node": "node-3",
      "state": "Excluded",
      "reason": "UntoleratedTaint",
      "message": "it has the taint gpu=true:NoSchedule"
    },
    {
      "node": "node-4",
      "state": "Excluded",
      "reason": "NotSelected",
      "message": "spec.nodes.selector does not match its labels"
    },
    {
      "node": "node-5",
      "state": "Waiting",
      "reason": "NodeUnreachable",
      "message": "the node is unreachable (Ready=Unknown)",
      "step": "all"
    }
  ],
  "drains": [
    {
      "node": "node-1",
      "podsToEvict": [
        "shop/web-1",
        "shop/web-2"
      ],
      "blocked": [
        {
          "pod": "shop/db-0",
          "message": "PodDisruptionBudget db allows no disruption now: 2 pods are healthy, and 2 must be"
        }
      ]
    },
    {
      "node": "node-2"
    }
  ]
}`},
		"that cannot work": {stalled, `{
  "namespace": "node-setup",
  "name": "somaxconn",
  "exists": true,
  "revision": "7d9f2c41",
  "previousRevision": "0ldc0de",
  "notes": [
    "a note"
  ],
  "stalled": {
    "reason": "ConfigMapNotFound",
    "message": "there is none"
  },
  "maxConcurrent": 1,
  "steps": [],
  "nodes": []
}`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := json.MarshalIndent(tt.plan.Data(), "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, string(got)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}
