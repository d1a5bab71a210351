// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodecondition"
	"github.com/everynode/everynode/internal/nodejob/record"
)

// TestStages tests how far the disruption of a node is.
func TestStages(t *testing.T) {
	always := rebootingAs(v1alpha1.RebootAlways)
	quarantines := func(j *v1alpha1.NodeJob) { j.Spec.OnFailure.Action = v1alpha1.FailureActionDrain }
	planned, works := nodecondition.Stage{Planned: true}, nodecondition.Stage{InProgress: true}
	drained := nodecondition.Stage{Drained: true, InProgress: true}
	failed := func(changes ...func(*record.Record)) func(*Node) {
		return recorded(record.Failed, append([]func(*record.Record){attempts(2)}, changes...)...)
	}
	tests := map[string]struct {
		job    []func(*v1alpha1.NodeJob)
		node   []func(*Node)
		budget NodeBudget
		pods   func(Node) []Pod
		drains []DrainPod
		want   *nodecondition.Stage
	}{
		"a task that disrupts nothing":       {},
		"a node that waits for its budget":   {job: []func(*v1alpha1.NodeJob){always}, budget: limited(exhausted)},
		"a node that is claimed":             {job: []func(*v1alpha1.NodeJob){always}, budget: limited(), want: &planned},
		"a node that is cordoned":            {job: []func(*v1alpha1.NodeJob){draining}, want: &planned},
		"a task that reboots starts at once": {job: []func(*v1alpha1.NodeJob){always}, want: &works},
		"a task on a cordoned node": {
			job:  []func(*v1alpha1.NodeJob){cordoning},
			node: []func(*Node){cordonedBy(jobKey)},
			want: &works,
		},
		"a node that reboots": {
			job:  []func(*v1alpha1.NodeJob){always},
			node: []func(*Node){recorded(record.Rebooting)},
			want: &works,
		},
		"a node that is done and is uncordoned": {
			job: []func(*v1alpha1.NodeJob){
				draining,
			},
			node: []func(*Node){cordonedBy(jobKey), recorded(record.Succeeded)},
			want: &nodecondition.Stage{},
		},
		"a node that a user cordons when it is done, while its pod ends": {
			job: []func(*v1alpha1.NodeJob){draining}, node: []func(*Node){byHand, recorded(record.Succeeded)},
			pods: func(n Node) []Pod {
				return []Pod{newPod(n, func(p *Pod) { p.Finalized, p.DeleteRequested = false, ago(1) })}
			},
			want: &works,
		},
		"a drain": {
			job: []func(*v1alpha1.NodeJob){draining, drainsSince("a", 10)}, node: []func(*Node){cordonedBy(jobKey)},
			drains: []DrainPod{{Namespace: "web", Name: "a", UID: "a"}}, want: &nodecondition.Stage{Planned: true, Draining: true},
		},
		"a drain of a node that a user has cordoned": {
			job: []func(*v1alpha1.NodeJob){draining, drainsSince("a", 10)}, node: []func(*Node){byHand},
			drains: []DrainPod{{Namespace: "web", Name: "a", UID: "a"}}, want: &nodecondition.Stage{Planned: true, Draining: true},
		},
		"a drain of a node that was drained after a failure": {
			job: []func(*v1alpha1.NodeJob){draining, quarantines, drainsSince("a", 4)}, node: []func(*Node){
				cordonedBy(jobKey),
				recorded(
					record.Failed,
					drainSince(9),
					func(r *record.Record) { r.Drain.FinishedAt, r.Drain.Outcome = ago(5), v1alpha1.ReasonDrained },
				),
			},
			drains: []DrainPod{{Namespace: "web", Name: "a", UID: "a"}}, want: &nodecondition.Stage{Planned: true, Draining: true},
		},
		"the drain has ended": {
			job: []func(*v1alpha1.NodeJob){
				draining,
				drainsSince("a", 10),
			},
			node:   []func(*Node){cordonedBy(jobKey)},
			drains: []DrainPod{},
			want:   &drained,
		},
		"the task runs after a drain": {
			job: []func(*v1alpha1.NodeJob){draining}, node: []func(*Node){cordonedBy(jobKey)},
			pods: func(n Node) []Pod { return []Pod{newPod(n)} }, want: &drained,
		},
		"a retry is awaited": {
			job:  []func(*v1alpha1.NodeJob){draining},
			node: []func(*Node){cordonedBy(jobKey), recorded(record.Failed, func(r *record.Record) { r.FinishedAt = now })}, want: &drained,
		},
		"a failed node is cordoned": {
			job: []func(*v1alpha1.NodeJob){
				draining,
				quarantines,
			},
			node: []func(*Node){cordonedBy(jobKey), failed(wasCordoned)},
			want: &nodecondition.Stage{},
		},
		"a failed node is drained": {
			job: []func(*v1alpha1.NodeJob){quarantines}, node: []func(*Node){cordonedBy(jobKey), failed(drainSince(9))},
			drains: []DrainPod{{Namespace: "web", Name: "a", UID: "a"}}, want: &nodecondition.Stage{Draining: true},
		},
		"the drain of a failed node has ended": {
			job: []func(*v1alpha1.NodeJob){quarantines}, node: []func(*Node){
				cordonedBy(jobKey),
				failed(drainSince(9), func(r *record.Record) { r.Drain.FinishedAt, r.Drain.Outcome = ago(5), v1alpha1.ReasonDrained }),
			}, want: &nodecondition.Stage{Drained: true},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			node := newNode("a", tt.node...)
			var pods []Pod
			if tt.pods != nil {
				pods = tt.pods(node)
			}
			in := see(newJob(append([]func(*v1alpha1.NodeJob){upToUnavailable(1)}, tt.job...)...), []Node{node}, pods...)
			in.Budgets = map[types.UID]NodeBudget{"a-uid": tt.budget}
			if tt.drains != nil {
				in.Drains = map[types.UID][]DrainPod{"a-uid": tt.drains}
			}
			var got *nodecondition.Stage
			if stage, held := Next(in).Stages["a-uid"]; held {
				got = &stage
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
