// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/outcome"
)

func withConfirm(j *v1alpha1.NodeJob) {
	withRollback(j)
	j.Spec.Confirm = &v1alpha1.ConfirmSpec{TimeoutSeconds: new(int32(60))}
}

// waiting is a pod whose kubelet has reported that its task has ended and waits for the confirmation.
func waiting(p *Pod) { p.Confirm, p.Confirming, p.Started = true, true, ago(60) }

// revertedBy is the end of a pod whose node has run the rollback by itself.
func revertedBy(code int) func(*Pod) {
	reason := outcome.ReasonReverted
	if code != 0 {
		reason = outcome.ReasonRevertFailed
	}
	return exited(1, func(e *Exit) { e.Reported, e.Reason, e.RollbackExitCode = true, reason, &code })
}

func TestConfirm(t *testing.T) {
	for name, tt := range map[string]struct {
		node   func(*Node)
		pod    []func(*Pod)
		want   bool
		reason string
	}{
		"the task runs":                       {pod: []func(*Pod){func(p *Pod) { p.Confirming = false }}, reason: v1alpha1.ReasonRunning},
		"it has ended, and the node is Ready": {want: true, reason: v1alpha1.ReasonConfirming},
		"it is confirmed already":             {pod: []func(*Pod){func(p *Pod) { p.Confirmed = true }}, reason: v1alpha1.ReasonConfirming},
		"the node is not Ready":               {node: func(n *Node) { n.Ready = corev1.ConditionFalse }, reason: v1alpha1.ReasonConfirming},
		"the node is unreachable":             {node: func(n *Node) { n.Ready = corev1.ConditionUnknown }, reason: v1alpha1.ReasonConfirming},
		"the node has not reported":           {node: func(n *Node) { n.Ready = "" }, reason: v1alpha1.ReasonConfirming},
		"the pod is being deleted":            {pod: []func(*Pod){func(p *Pod) { p.DeleteRequested = ago(1) }}, reason: v1alpha1.ReasonRunning},
	} {
		t.Run(name, func(t *testing.T) {
			node := newNode("n")
			if tt.node != nil {
				tt.node(&node)
			}
			pod := newPod(node, append([]func(*Pod){waiting}, tt.pod...)...)
			p := Next(see(newJob(withConfirm), []Node{node}, pod))
			confirms := slices.ContainsFunc(p.Actions, func(a Action) bool { c, ok := a.(Confirm); return ok && c.Pod.UID == pod.UID })
			if confirms != tt.want || p.Nodes[0].State != Running || p.Nodes[0].Reason != tt.reason {
				t.Errorf("confirms %v, want %v; the node is %+v", confirms, tt.want, p.Nodes[0])
			}
		})
	}
}

// TestCutOff checks what is said of a node that is not heard while a task with a confirmation runs there. The deadline of the pod is the
// latest end of the rollback.
func TestCutOff(t *testing.T) {
	runs := func(p *Pod) { p.Confirming, p.Started, p.Created = false, ago(20), ago(21) }
	const want = "not heard since 2026-03-01T11:59:48Z: if the task has cut it off, it reverts by itself, 1m0s after the end of the task, by 2026-03-01T12:03:19Z at the latest"
	for name, tt := range map[string]struct {
		node *Node
		pod  func(*Pod)
		want bool
	}{
		"the node is not heard": {node: new(newNode("n", unheard(ago(12)))), want: true},
		"it is heard":           {node: new(newNode("n"))},
		"the task has not started": {
			node: new(newNode("n", unheard(ago(12)))), pod: func(p *Pod) { p.Started = time.Time{} },
		},
		"spec.confirm was removed":          {node: new(newNode("n", unheard(ago(12))))},
		"the pod waits for no confirmation": {node: new(newNode("n", unheard(ago(12)))), pod: func(p *Pod) { p.Confirm = false }},
	} {
		pod := newPod(*tt.node, waiting, runs)
		if tt.pod != nil {
			tt.pod(&pod)
		}
		job := newJob(withConfirm)
		if name == "spec.confirm was removed" {
			job.Spec.Confirm = nil
		}
		p := Next(see(job, []Node{*tt.node}, pod))
		if c := p.Status.Conditions[1].Message; (p.Nodes[0].Message == want) != tt.want || strings.Contains(c, "; n: "+want) != tt.want {
			t.Errorf("%s: the message is %q, and the condition %q, want %q", name, p.Nodes[0].Message, c, want)
		}
	}
}

func unheard(since time.Time) func(*Node) {
	return func(n *Node) { n.Ready, n.ReadySince, n.UnreachableSince = corev1.ConditionUnknown, time.Time{}, since }
}

// TestReverted checks the record of a node that has run the rollback by itself, and what happens to the node after that.
func TestReverted(t *testing.T) {
	for name, tt := range map[string]struct {
		pod      []func(*Pod)
		outcome  record.Outcome
		reason   string
		rollback record.Outcome
	}{
		"the rollback has succeeded": {[]func(*Pod){revertedBy(0)}, record.Failed, v1alpha1.ReasonReverted, record.Succeeded},
		"the rollback has failed":    {[]func(*Pod){revertedBy(3)}, record.Failed, v1alpha1.ReasonRevertFailed, record.Failed},
		"the pod was deleted while the node was cut off": {
			[]func(*Pod){revertedBy(0), func(p *Pod) { p.DeleteRequested = ago(50) }}, record.Failed, v1alpha1.ReasonReverted, record.Succeeded,
		},
		"the pod was told to stop": {
			[]func(*Pod){revertedBy(0), func(p *Pod) { p.Exit.Reason = outcome.ReasonDisrupted }}, record.Disrupted, v1alpha1.ReasonDisrupted, "",
		},
		"the end of the container is lost": {
			[]func(*Pod){revertedBy(0), func(p *Pod) { p.Exit.Lost = true }}, record.Disrupted, v1alpha1.ReasonDisrupted, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			node := newNode("n")
			pod := newPod(node, append([]func(*Pod){waiting}, tt.pod...)...)
			var got *record.Record
			for _, a := range Next(see(newJob(withConfirm), []Node{node}, pod)).Actions {
				switch a := a.(type) {
				case Record:
					got = a.Record
					if a.Final != (tt.rollback != "") {
						t.Errorf("final is %v: a reverted node is not retried", a.Final)
					}
				case Confirm:
					t.Errorf("a node that has reverted is confirmed")
				}
			}
			if got == nil || got.Outcome != tt.outcome || got.Reason != tt.reason || got.Reverted != (tt.rollback != "") {
				t.Fatalf("the record is %+v", got)
			}
			if tt.rollback == "" {
				if got.Rollback != nil {
					t.Errorf("the rollback is %+v", got.Rollback)
				}
				return
			}
			if rb := got.Rollback; rb == nil || rb.Outcome != tt.rollback || rb.Attempts != 1 || rb.PodUID != pod.UID ||
				rb.RecordedAt.IsZero() {
				t.Errorf("the rollback is %+v", rb)
			}
		})
	}
}

func TestAfterARevert(t *testing.T) {
	byItself := func(o record.Outcome, pod types.UID) func(*record.Record) {
		return func(r *record.Record) {
			undone(o, 1)(r)
			r.Attempts, r.Reverted, r.Rollback.PodUID = 1, true, pod
		}
	}
	for name, tt := range map[string]struct {
		record func(*record.Record)
		retry  func(*v1alpha1.NodeJob)
		reason string
		starts task.Phase
		failed bool // the condition RollbackFailed is True
	}{
		"neither the task nor the rollback runs again": {record: byItself(record.Succeeded, "p"), reason: v1alpha1.ReasonRolledBack},
		"a rollback that failed is repeated, and users know": {
			record: byItself(record.Failed, "p"), reason: v1alpha1.ReasonRollingBack, starts: task.Rollback, failed: true,
		},
		"the task is not retried after the repeated rollback": {record: byItself(record.Succeeded, "other"), reason: v1alpha1.ReasonRolledBack},
		"a user retries the task": {
			record: byItself(record.Succeeded, "p"), retry: askAgain, reason: v1alpha1.ReasonStarting, starts: task.Task,
		},
	} {
		t.Run(name, func(t *testing.T) {
			job := newJob(withConfirm)
			if tt.retry != nil {
				tt.retry(job)
			}
			p := Next(see(job, []Node{newNode("n", recorded(record.Failed, tt.record))}))
			var starts task.Phase
			for _, a := range p.Actions {
				if s, ok := a.(Start); ok {
					starts = s.Attempt.Phase
				}
			}
			if starts != tt.starts || p.Nodes[0].Reason != tt.reason {
				t.Errorf("starts %q, want %q; the node is %+v", starts, tt.starts, p.Nodes[0])
			}
			if got := meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.ConditionRollbackFailed); got != tt.failed {
				t.Errorf("RollbackFailed is %v, want %v", got, tt.failed)
			}
		})
	}
}
