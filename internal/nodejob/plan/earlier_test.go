// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/outcome"
)

// TestOutcomesExtendEarlierAttempts tests each kind of end, whether a pod ends the attempt or not.
func TestOutcomesExtendEarlierAttempts(t *testing.T) {
	with := func(o record.Outcome, changes ...func(*record.Record)) func(*Node) {
		return recorded(o, append([]func(*record.Record){func(r *record.Record) {
			r.Earlier = record.Attempts{{Revision: "old", Number: 1, Outcome: record.Succeeded, FinishedAt: ago(9000)}}
		}}, changes...)...)
	}
	rebooting := func(changes ...func(*record.Record)) func(*Node) {
		return with(
			record.Rebooting,
			append([]func(*record.Record){func(r *record.Record) { r.Reboot.FromBootID = "before" }}, changes...)...)
	}
	rollback := func(r *record.Record) {
		r.Attempts = 4
		r.Rollback = &record.Rollback{Outcome: record.Failed, Attempts: 1, FinishedAt: ago(50), PodUID: "undo"}
	}
	const old, before = "old 1 Succeeded", "rev 1 Failed"
	runs := func(phase task.Phase, changes ...func(*Pod)) []func(*Pod) {
		return append([]func(*Pod){func(p *Pod) { p.Runs, p.Attempt = phase, 2 }}, changes...)
	}
	inBoot := func(n *Node) { n.BootID = "before" }
	undo := func(j *v1alpha1.NodeJob) {
		j.Spec.Rollback = &v1alpha1.RollbackSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "undo"}}
	}
	tests := map[string]struct {
		job  []func(*v1alpha1.NodeJob)
		node []func(*Node)
		pod  []func(*Pod)
		want []string
	}{
		"a success": {node: []func(*Node){with(record.Failed)}, pod: runs(task.Task, exited(0)), want: []string{old, before}},
		"a failure": {node: []func(*Node){with(record.Failed)}, pod: runs(task.Task, exited(3)), want: []string{old, before}},
		"a disruption": {
			node: []func(*Node){with(record.Failed)},
			pod:  runs(task.Task, exited(143, reported(outcome.ReasonDisrupted))),
			want: []string{old, before},
		},
		"a further disruption": {
			node: []func(*Node){with(record.Disrupted)},
			pod:  runs(task.Task, exited(143, reported(outcome.ReasonDisrupted))),
			want: []string{old},
		},
		"a rerun": {
			node: []func(*Node){with(record.Succeeded)},
			pod:  runs(task.Task, exited(0)),
			want: []string{old, "rev 1 Succeeded"},
		},
		"a success after a failure of another revision": {
			node: []func(*Node){with(record.Failed, func(r *record.Record) { r.Revision = "a" })},
			pod:  runs(task.Task, exited(0)),
			want: []string{old, "a 1 Failed"},
		},
		"a success after a failure of another machine": {
			node: []func(*Node){with(record.Failed, func(r *record.Record) { r.MachineID = "gone" })},
			pod:  runs(task.Task, exited(0)),
		},
		"an unreachable node": {
			node: []func(*Node){with(record.Failed), func(n *Node) { n.Ready = "Unknown" }},
			pod:  runs(task.Task, func(p *Pod) { p.Created = ago(99999) }),
			want: []string{old, before},
		},
		"a success and a reboot": {
			node: []func(*Node){with(record.Failed)},
			pod:  runs(task.Task, exited(0), func(p *Pod) { p.Reboot = v1alpha1.RebootAlways }),
			want: []string{old, before},
		},
		"a reboot that failed": {
			job: []func(*v1alpha1.NodeJob){rebootingAs(v1alpha1.RebootAlways)}, node: []func(*Node){rebooting(), inBoot},
			pod: runs(task.Reboot, exited(1, reported(outcome.ReasonRebootFailed))), want: []string{old},
		},
		"a reboot without an end": {
			job:  []func(*v1alpha1.NodeJob){rebootingAs(v1alpha1.RebootAlways)},
			node: []func(*Node){rebooting(func(r *record.Record) { r.Reboot.StartedAt = ago(301) }), inBoot}, want: []string{old},
		},
		"a reboot into another machine": {
			job: []func(*v1alpha1.NodeJob){
				rebootingAs(v1alpha1.RebootAlways),
			},
			node: []func(*Node){rebooting(func(r *record.Record) { r.MachineID = "gone" })},
		},
		"a check after a reboot": {
			job: []func(*v1alpha1.NodeJob){rebootingAs(v1alpha1.RebootAlways), checking}, node: []func(*Node){rebooting()},
			pod: runs(task.Check, exited(3)), want: []string{old},
		},
		"a drain that timed out": {
			job: []func(*v1alpha1.NodeJob){
				draining,
				drainsSince("n", 60),
			},
			node: []func(*Node){cordonedBy(jobKey), with(record.Failed, func(r *record.Record) { r.Revision = "a" })},
			want: []string{old, "a 1 Failed"},
		},
		"the first rollback": {
			job: []func(*v1alpha1.NodeJob){undo}, node: []func(*Node){with(record.Failed, func(r *record.Record) { r.Attempts = 4 })},
			pod: runs(task.Rollback, exited(3)), want: []string{old},
		},
		"a further rollback": {
			job: []func(*v1alpha1.NodeJob){undo}, node: []func(*Node){with(record.Failed, rollback)},
			pod: runs(task.Rollback, exited(0)), want: []string{old, "rev 1 Failed rollback"},
		},
		"a task after its rollback": {
			node: []func(*Node){
				with(record.Failed, rollback),
			},
			pod:  runs(task.Task, exited(0)),
			want: []string{old, "rev 4 Failed", "rev 1 Failed rollback"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			node := newNode("n", tt.node...)
			var pods []Pod
			if tt.pod != nil {
				pods = append(pods, newPod(node, tt.pod...))
			}
			in := see(newJob(tt.job...), []Node{node}, pods...)
			in.Drains = map[types.UID][]DrainPod{node.UID: {{Name: "a", UID: "a"}}}
			p := Next(in)
			if len(p.Actions) != 1 {
				t.Fatalf("actions %v, want one record", told(p))
			}
			a, ok := p.Actions[0].(Record)
			if !ok {
				t.Fatalf("actions %v, want one record", told(p))
			}
			var got []string
			for _, e := range a.Record.Earlier {
				s := fmt.Sprintf("%s %d %s", e.Revision, e.Number, e.Outcome)
				if e.Rollback {
					s += " rollback"
				}
				got = append(got, s)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("%v: earlier attempts (-want +got):\n%s", told(p), diff)
			}
		})
	}
}
