// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/outcome"
)

// audit asks its check, and has no task.
func audit(j *v1alpha1.NodeJob) {
	j.Spec.Task.Script, j.Spec.Task.Check = "", &v1alpha1.CheckSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "true"}}
	j.Spec.Rollout.Steps = nil
}

// answered is the record of a node that has answered an audit.
func answeredAudit(answer record.Answer) func(*Node) {
	return recorded(record.Succeeded, said(answer, 60), func(r *record.Record) {
		r.CheckBefore, r.Assumed, r.NeverStarted, r.Attempts = answer, true, true, 0
	})
}

// TestAudit tests an audit of nodes a and b.
func TestAudit(t *testing.T) {
	const askA, askB = "start check-before 1 of rev on a", "start check-before 1 of rev on b"
	no := reported(outcome.ReasonTaskFailed)
	for name, tt := range map[string]struct {
		job    []func(*v1alpha1.NodeJob)
		a      []func(*Node)
		pods   []func(*Pod) // of the pod on a, if any
		want   []string
		reason string
		counts v1alpha1.NodeCounts
	}{
		"all nodes are asked at once": {
			job:  []func(*v1alpha1.NodeJob){oneAtOnce},
			want: []string{askA, askB}, reason: v1alpha1.ReasonChecking, counts: v1alpha1.NodeCounts{Total: 2, Waiting: 2},
		},
		"a yes is recorded": {
			pods: []func(*Pod){checks, exited(0, reported(""))}, reason: v1alpha1.ReasonChecking,
			want:   []string{"record Succeeded on a: attempts 0, disruptions 0, AlreadyDone: the end", askB},
			counts: v1alpha1.NodeCounts{Total: 2, Waiting: 2},
		},
		"a no is recorded": {
			pods: []func(*Pod){checks, exited(1, no)}, reason: v1alpha1.ReasonChecking,
			want:   []string{"record Succeeded on a: attempts 0, disruptions 0", askB},
			counts: v1alpha1.NodeCounts{Total: 2, Waiting: 2},
		},
		"a service that is not active, as systemctl says it, is a no": {
			pods: []func(*Pod){checks, exited(3, no)}, reason: v1alpha1.ReasonChecking,
			want:   []string{"record Succeeded on a: attempts 0, disruptions 0", askB},
			counts: v1alpha1.NodeCounts{Total: 2, Waiting: 2},
		},
		"a missing package, as a shell says it of its command, is a no": {
			pods: []func(*Pod){checks, exited(127, no)}, reason: v1alpha1.ReasonChecking,
			want:   []string{"record Succeeded on a: attempts 0, disruptions 0", askB},
			counts: v1alpha1.NodeCounts{Total: 2, Waiting: 2},
		},
		"an error is no answer": {
			pods: []func(*Pod){checks, exited(75, no)}, reason: v1alpha1.ReasonChecking,
			want:   []string{"record Disrupted on a: attempts 0, disruptions 1, CheckError: the end", askB},
			counts: v1alpha1.NodeCounts{Total: 2, Waiting: 2},
		},
		"an error is counted": {
			a: []func(*Node){answeredBy(record.Disrupted, record.AnswerError, func(r *record.Record) { r.RecordedAt = ago(9) })}, want: []string{askB},
			reason: v1alpha1.ReasonBackingOff, counts: v1alpha1.NodeCounts{Total: 2, Waiting: 2, CheckErrors: 1},
		},
		"a compliant node is done": {
			a: []func(*Node){answeredAudit(record.AnswerYes)}, want: []string{askB}, reason: v1alpha1.ReasonDone,
			counts: v1alpha1.NodeCounts{Total: 2, Done: 1, Waiting: 1},
		},
		"a node that is not compliant is done, and counted": {
			a: []func(*Node){answeredAudit(record.AnswerNo)}, want: []string{askB}, reason: v1alpha1.ReasonNonCompliant,
			counts: v1alpha1.NodeCounts{Total: 2, Done: 1, Waiting: 1, NonCompliant: 1},
		},
		"with a period, it is asked again": {
			job: []func(*v1alpha1.NodeJob){func(j *v1alpha1.NodeJob) { j.Spec.Task.Check.PeriodSeconds = 60 }},
			a:   []func(*Node){answeredAudit(record.AnswerNo)}, want: []string{askB, "start check-drift 1 of rev on a"},
			reason: v1alpha1.ReasonNonCompliant, counts: v1alpha1.NodeCounts{Total: 2, Done: 1, Waiting: 1, NonCompliant: 1},
		},
		"a node that was compliant before has drifted": {
			a:    []func(*Node){answeredAudit(record.AnswerNo), func(n *Node) { n.On.Record.CheckBefore = record.AnswerYes }},
			want: []string{askB}, reason: v1alpha1.ReasonNonCompliant, counts: v1alpha1.NodeCounts{Total: 2, Done: 1, Waiting: 1, NonCompliant: 1},
		},
		"another revision is asked": {
			a:    []func(*Node){answeredAudit(record.AnswerNo), func(n *Node) { n.On.Record.Revision, n.On.Label = "old", "old" }},
			want: []string{askA, askB}, reason: v1alpha1.ReasonChecking, counts: v1alpha1.NodeCounts{Total: 2, Waiting: 2},
		},
		"a node of assumeDone is asked": {
			job: []func(*v1alpha1.NodeJob){func(j *v1alpha1.NodeJob) {
				j.Spec.Nodes.AssumeDone = &v1alpha1.AssumeDoneSpec{Selector: &metav1.LabelSelector{}}
			}},
			want: []string{askA, askB}, reason: v1alpha1.ReasonChecking, counts: v1alpha1.NodeCounts{Total: 2, Waiting: 2},
		},
	} {
		t.Run(name, func(t *testing.T) {
			job := newJob(append([]func(*v1alpha1.NodeJob){audit}, tt.job...)...)
			job.CreationTimestamp.Time = now
			nodes := []Node{newNode("a", tt.a...), newNode("b")}
			in := see(job, nodes)
			if tt.pods != nil {
				in.Pods = []Pod{newPod(nodes[0], tt.pods...)}
			}
			p := Next(in)
			if diff := cmp.Diff(tt.want, told(p)); diff != "" || p.Nodes[0].Reason != tt.reason {
				t.Errorf("a is %s (%s), want %s; actions (-want +got):\n%s", p.Nodes[0].State, p.Nodes[0].Reason, tt.reason, diff)
			}
			if diff := cmp.Diff(tt.counts, p.Status.Nodes); diff != "" {
				t.Errorf("counts (-want +got):\n%s", diff)
			}
			if len(p.Holds) > 0 || len(p.Claims) > 0 {
				t.Errorf("it holds %v", p.Holds)
			}
		})
	}
}

// TestTheVerdictOfAnAudit tests what an audit says when each node has answered. It is Complete, whatever the answers are.
func TestTheVerdictOfAnAudit(t *testing.T) {
	yes, no := answeredAudit(record.AnswerYes), answeredAudit(record.AnswerNo)
	for name, tt := range map[string]struct {
		nodes        []Node
		reason, said string
	}{
		"all are compliant": {
			[]Node{newNode("a", yes), newNode("b", yes)}, v1alpha1.ReasonAllNodesDone, "2 of 2 nodes are compliant",
		},
		"one is not": {
			[]Node{newNode("a", yes), newNode("b", no)}, v1alpha1.ReasonNonCompliant, "1 of 2 nodes are compliant, 1 not compliant (b: the end)",
		},
		"none is": {
			[]Node{newNode("d", no), newNode("c", no), newNode("b", no), newNode("a", no)}, v1alpha1.ReasonNonCompliant,
			"0 of 4 nodes are compliant, 4 not compliant (a: the end; b; c; and 1 more)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := Next(see(newJob(audit), tt.nodes)).Status.Conditions[0]
			if c.Status != metav1.ConditionTrue || c.Reason != tt.reason || c.Message != tt.said {
				t.Errorf("%s is %s (%s): %s", c.Type, c.Status, c.Reason, c.Message)
			}
		})
	}
}

// An audit is Complete when each node has answered, whatever the answer is, and the record says so.
func TestAuditIsComplete(t *testing.T) {
	job := newJob(audit)
	node := newNode("a")
	first := Next(see(job, []Node{node}, newPod(node, checks, exited(1, reported(outcome.ReasonTaskFailed))))).Actions[0].(Record)
	want := record.Compliance{Answer: record.AnswerNo, AskedAt: now, DriftedSince: now, ExitCode: new(int32(1)), Message: "the end"}
	encoded, err := record.Decode(record.Encode(*first.Record))
	if diff := cmp.Diff(want, encoded.Compliance()); err != nil || diff != "" || first.KeepLabel {
		t.Errorf("%v: the record says (-want +got):\n%s", err, diff)
	}
	p := Next(see(job, []Node{newNode("a", answeredAudit(record.AnswerNo)), newNode("b", answeredAudit(record.AnswerYes))}))
	c := p.Status.Conditions[0]
	if c.Status != metav1.ConditionTrue || c.Message != "1 of 2 nodes are compliant, 1 not compliant (a: the end)" || len(p.Actions) > 0 {
		t.Errorf("%s is %s: %s; actions %v", c.Type, c.Status, c.Message, told(p))
	}
	if !task.IsAudit(job) || task.IsAudit(newJob(watched)) {
		t.Error("only a NodeJob without a task is an audit")
	}
}
