// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/outcome"
)

// expiring asks a check whether the task is still needed, every hour, and can undo the task.
func expiring(j *v1alpha1.NodeJob) {
	j.Spec.Rollback = &v1alpha1.RollbackSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "undo"}}
	j.Spec.Expires = &v1alpha1.ExpiresSpec{
		Check: &v1alpha1.ExpiresCheckSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "true"}, PeriodSeconds: 3600},
	}
}

// expiresAt ends the task at a time, in seconds from now.
func expiresAt(seconds int) func(*v1alpha1.NodeJob) {
	return func(j *v1alpha1.NodeJob) {
		j.Spec.Expires = &v1alpha1.ExpiresSpec{At: &metav1.Time{Time: ago(-seconds)}}
	}
}

// asksExpiry is the pod of such a check.
func asksExpiry(p *Pod) { p.Runs = task.CheckExpires }

// answers puts the answer of such a check on record, of a second ago.
func answers(answer record.Answer, changes ...func(*record.Expiry)) func(*record.Record) {
	return func(r *record.Record) {
		r.Expiry = &record.Expiry{Asked: record.Asked{Answer: answer, At: ago(1), PodUID: "check"}, Checks: 4, BootID: r.BootID}
		for _, change := range changes {
			change(r.Expiry)
		}
	}
}

// fresh is the record of a node on which only such a check has run.
func fresh(answer record.Answer) func(*Node) {
	return recorded(record.Needed, func(r *record.Record) { r.CheckBefore, r.NeverStarted, r.Attempts = "", true, 0 }, answers(answer))
}

// expiry says what is written about it.
func expiry(actions []Action) []string {
	var all []string
	for _, action := range actions {
		words := tell(action)
		switch a := action.(type) {
		case Record:
			if e := a.Record.Expiry; e != nil {
				words += fmt.Sprintf("; %s after %d checks, errors %d", e.Answer, e.Checks, e.Unanswered)
			}
			if a.KeepLabel {
				words += ", label kept"
			}
		case PatchNode:
			words += fmt.Sprintf(": %s, label %s", a.Record.Outcome, a.Record.Label)
		}
		all = append(all, words)
	}
	return all
}

// TestExpires tests a NodeJob with one node.
func TestExpires(t *testing.T) {
	no := reported(outcome.ReasonTaskFailed)
	tests := map[string]struct {
		job    []func(*v1alpha1.NodeJob)
		node   []func(*Node)
		pod    []func(*Pod)
		want   []string
		state  State
		reason string
	}{
		"a new node is asked before the task": {
			want:   []string{"start check-expires 1 of rev on a"},
			state:  Waiting,
			reason: v1alpha1.ReasonCheckingBefore,
		},
		"a new node on which it is not needed is done": {
			pod:    []func(*Pod){asksExpiry, exited(0)},
			state:  Waiting,
			reason: v1alpha1.ReasonCheckingBefore,
			want: []string{
				"record Expired on a: attempts 0, disruptions 0, Expired: the task is no longer needed on the node (spec.expires); Yes after 1 checks, errors 0",
			},
		},
		"a new node on which it is needed": {
			pod: []func(*Pod){asksExpiry, exited(1, no)}, state: Waiting, reason: v1alpha1.ReasonCheckingBefore,
			want: []string{"record Needed on a: attempts 0, disruptions 0; No after 1 checks, errors 0"},
		},
		"the task starts after a no": {
			node:   []func(*Node){fresh(record.AnswerNo)},
			want:   []string{"start attempt 1 of rev on a"},
			state:  Running,
			reason: v1alpha1.ReasonStarting,
		},
		"the end of the task keeps the answer": {
			node: []func(*Node){fresh(record.AnswerNo)}, pod: []func(*Pod){exited(0)}, state: Running, reason: v1alpha1.ReasonRunning,
			want: []string{"record Succeeded on a: attempts 1, disruptions 0; No after 4 checks, errors 0"},
		},
		"the task waits after an error": {
			node:   []func(*Node){fresh(record.AnswerError)},
			state:  Waiting,
			reason: v1alpha1.ReasonBackingOff,
		},
		"task.check.before runs after the no": {
			job: []func(*v1alpha1.NodeJob){checkedFirst}, node: []func(*Node){fresh(record.AnswerNo)},
			want: []string{"start check-before 1 of rev on a"}, state: Waiting, reason: v1alpha1.ReasonCheckingBefore,
		},
		"a done node in the same boot is not asked": {
			node:   []func(*Node){recorded(record.Succeeded, answers(record.AnswerNo))},
			state:  Done,
			reason: v1alpha1.ReasonDone,
		},
		"a done node is asked after a reboot": {
			node: []func(*Node){recorded(record.Succeeded, answers(record.AnswerNo, func(e *record.Expiry) { e.BootID = "earlier" }))},
			want: []string{"start check-expires 5 of rev on a"}, state: Done, reason: v1alpha1.ReasonDone,
		},
		"a done node is asked after a period": {
			node: []func(*Node){recorded(record.Succeeded, answers(record.AnswerNo, func(e *record.Expiry) { e.At = ago(6000) }))},
			want: []string{"start check-expires 5 of rev on a"}, state: Done, reason: v1alpha1.ReasonDone,
		},
		"a done node is asked when spec.expires is added": {
			node: []func(*Node){
				recorded(record.Succeeded),
			},
			want:   []string{"start check-expires 1 of rev on a"},
			state:  Done,
			reason: v1alpha1.ReasonDone,
		},
		"a done node that is not Ready any more is not asked": {
			node: []func(*Node){
				recorded(record.Succeeded),
				func(n *Node) { n.Ready = corev1.ConditionUnknown },
			},
			state:  Done,
			reason: v1alpha1.ReasonDone,
		},
		"a failed node is asked": {
			node: []func(*Node){recorded(record.Failed, attempts(2), undone(record.Succeeded, 1))},
			want: []string{"start check-expires 1 of rev on a"}, state: Failed, reason: v1alpha1.ReasonRolledBack,
		},
		"a no on a done node": {
			node: []func(*Node){
				recorded(record.Succeeded, answers(record.AnswerNo)),
			},
			pod: []func(*Pod){asksExpiry, attempt(5), exited(1, no)},
			want: []string{
				"record Succeeded on a: attempts 1, disruptions 0; No after 5 checks, errors 0, label kept",
			},
			state:  Done,
			reason: v1alpha1.ReasonDone,
		},
		"an error on a done node": {
			node: []func(*Node){
				recorded(record.Succeeded, answers(record.AnswerError, func(e *record.Expiry) { e.Unanswered = 2 })),
			},
			pod: []func(*Pod){asksExpiry, attempt(5), exited(3, no)},
			want: []string{
				"record Succeeded on a: attempts 1, disruptions 0; Error after 5 checks, errors 3, label kept",
			},
			state:  Done,
			reason: v1alpha1.ReasonDone,
		},
		"a yes on a done node": {
			node: []func(*Node){recorded(record.Succeeded)},
			pod:  []func(*Pod){asksExpiry, exited(0)},
			want: []string{
				"record Succeeded on a: attempts 1, disruptions 0; Yes after 1 checks, errors 0, label kept",
			},
			state:  Done,
			reason: v1alpha1.ReasonDone,
		},
		"a yes of an earlier boot is no answer": {
			node: []func(*Node){
				recorded(record.Succeeded),
			},
			pod: []func(*Pod){asksExpiry, exited(0), func(p *Pod) { p.Machine = task.Machine("a-machine", "earlier") }},
			want: []string{
				"record Succeeded on a: attempts 1, disruptions 0; None after 1 checks, errors 1, label kept",
			},
			state:  Done,
			reason: v1alpha1.ReasonDone,
		},
		"a yes about another revision is dropped": {
			node: []func(*Node){
				recorded(record.Succeeded, answers(record.AnswerNo)),
			},
			pod:    []func(*Pod){asksExpiry, exited(0), func(p *Pod) { p.Revision = "old" }},
			want:   []string{"release a-pod"},
			state:  Done,
			reason: v1alpha1.ReasonDone,
		},
		"a yes of a failed and rolled back node": {
			node: []func(*Node){recorded(record.Failed, attempts(2), undone(record.Succeeded, 1))},
			pod:  []func(*Pod){asksExpiry, exited(0)},
			want: []string{
				"record Expired on a: attempts 0, disruptions 0, Expired: the task is no longer needed on the node (spec.expires), rollback Succeeded: attempts 1, disruptions 0; Yes after 1 checks, errors 0",
			},
			state:  Failed,
			reason: v1alpha1.ReasonRolledBack,
		},
		"what an earlier revision did is rolled back": {
			node: []func(*Node){
				recorded(record.Succeeded, func(r *record.Record) { r.Revision = "old" }),
				labelled("old"),
			},
			pod: []func(*Pod){asksExpiry, exited(0)},
			want: []string{
				"record Needed on a: attempts 0, disruptions 0; Yes after 1 checks, errors 0",
			},
			state:  Waiting,
			reason: v1alpha1.ReasonCheckingBefore,
		},
		"the rollback starts after a yes": {
			node: []func(*Node){
				recorded(record.Succeeded, answers(record.AnswerYes)),
			},
			want:   []string{"start rollback 1 of rev on a"},
			state:  Running,
			reason: v1alpha1.ReasonRollingBack,
		},
		"the rollback waits in a suspended NodeJob": {
			job: []func(*v1alpha1.NodeJob){func(j *v1alpha1.NodeJob) { j.Spec.Suspend = true }},
			node: []func(*Node){
				recorded(record.Succeeded, answers(record.AnswerYes)),
			},
			state:  Waiting,
			reason: v1alpha1.ReasonRollbackPending,
		},
		"the rollback runs": {
			node: []func(*Node){
				recorded(record.Succeeded, answers(record.AnswerYes)),
			},
			pod:    []func(*Pod){rollingBack},
			state:  Running,
			reason: v1alpha1.ReasonRollingBack,
		},
		"the rollback has succeeded": {
			node: []func(*Node){
				recorded(record.Succeeded, answers(record.AnswerYes)),
			},
			pod:    []func(*Pod){rollingBack, exited(0)},
			state:  Running,
			reason: v1alpha1.ReasonRollingBack,
			want: []string{
				"record Expired on a: attempts 0, disruptions 0, Expired: the task is no longer needed on the node (spec.expires), rollback Succeeded: attempts 1, disruptions 0; Yes after 4 checks, errors 0",
			},
		},
		"the rollback has succeeded, and spec.expires is gone": {
			job: []func(*v1alpha1.NodeJob){func(j *v1alpha1.NodeJob) { j.Spec.Expires = nil }},
			node: []func(*Node){
				recorded(record.Succeeded, answers(record.AnswerYes)),
			},
			pod:    []func(*Pod){rollingBack, exited(0)},
			state:  Waiting,
			reason: v1alpha1.ReasonRollingBack,
			want: []string{
				"record Expired on a: attempts 0, disruptions 0, Expired: the task is no longer needed on the node (spec.expires), rollback Succeeded: attempts 1, disruptions 0; Yes after 4 checks, errors 0",
			},
		},
		"the rollback has failed for good": {
			node: []func(*Node){recorded(record.Succeeded, answers(record.AnswerYes), func(r *record.Record) {
				r.Rollback = &record.Rollback{Outcome: record.Failed, Attempts: 2, Reason: "TaskFailed"}
			})}, state: Failed, reason: v1alpha1.ReasonRollbackFailed,
		},
		"an Expired node is done": {
			node:   []func(*Node){recorded(record.Expired, answers(record.AnswerYes)), labelled(rev)},
			state:  Done,
			reason: v1alpha1.ReasonExpired,
		},
		"an Expired node is done on every boot": {
			job: []func(*v1alpha1.NodeJob){func(j *v1alpha1.NodeJob) { j.Spec.Rerun.OnReboot = true }},
			node: []func(*Node){
				recorded(record.Expired, answers(record.AnswerYes), func(r *record.Record) { r.BootID = "earlier" }),
				labelled(rev),
			},
			state:  Done,
			reason: v1alpha1.ReasonExpired,
		},
		"a user requests a run on an Expired node": {
			node:   []func(*Node){recorded(record.Expired, answers(record.AnswerYes))},
			want:   []string{"start check-expires 5 of rev on a"},
			state:  Waiting,
			reason: v1alpha1.ReasonCheckingBefore,
		},
		"a no on an Expired node for which a user has requested a run": {
			node: []func(*Node){
				recorded(record.Expired, answers(record.AnswerYes)),
			},
			pod: []func(*Pod){asksExpiry, attempt(5), exited(1, no)},
			want: []string{
				"record Needed on a: attempts 1, disruptions 0; No after 5 checks, errors 0, label kept",
			},
			state:  Waiting,
			reason: v1alpha1.ReasonCheckingBefore,
		},
		"another machine is asked again": {
			node: []func(*Node){
				recorded(record.Expired, answers(record.AnswerYes), func(r *record.Record) { r.MachineID = "other" }),
				labelled(rev),
			},
			want:   []string{"start check-expires 1 of rev on a"},
			state:  Waiting,
			reason: v1alpha1.ReasonCheckingBefore,
		},
		"at: before it, nothing is asked": {
			job:    []func(*v1alpha1.NodeJob){expiresAt(9)},
			node:   []func(*Node){recorded(record.Succeeded)},
			state:  Done,
			reason: v1alpha1.ReasonDone,
		},
		"at: a done node is rolled back": {
			job: []func(*v1alpha1.NodeJob){expiresAt(0)}, node: []func(*Node){recorded(record.Succeeded)},
			want: []string{"start rollback 1 of rev on a"}, state: Running, reason: v1alpha1.ReasonRollingBack,
		},
		"at: a new node is done": {
			job:    []func(*v1alpha1.NodeJob){expiresAt(0)},
			want:   []string{"Expired a, recorded: Expired, label rev"},
			state:  Waiting,
			reason: v1alpha1.ReasonExpired,
		},
		"at: a suspended NodeJob writes nothing": {
			job:    []func(*v1alpha1.NodeJob){expiresAt(0), func(j *v1alpha1.NodeJob) { j.Spec.Suspend = true }},
			state:  Waiting,
			reason: v1alpha1.ReasonExpired,
		},
		"at: a running task ends first": {
			job:    []func(*v1alpha1.NodeJob){expiresAt(0)},
			pod:    []func(*Pod){},
			state:  Running,
			reason: v1alpha1.ReasonRunning,
		},
		"at: a skipped node stays skipped": {
			job:    []func(*v1alpha1.NodeJob){expiresAt(0)},
			node:   []func(*Node){labelled(rev)},
			state:  Done,
			reason: v1alpha1.ReasonDone,
		},
		"a deletion asks nothing": {
			job: []func(*v1alpha1.NodeJob){func(j *v1alpha1.NodeJob) { j.DeletionTimestamp = &metav1.Time{Time: ago(1)} }, rolledBack},
			pod: []func(*Pod){asksExpiry}, want: []string{"release a-pod"}, state: Excluded, reason: v1alpha1.ReasonNothingToRollback,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			job := newJob(append([]func(*v1alpha1.NodeJob){expiring}, tt.job...)...)
			nodes := []Node{newNode("a", tt.node...)}
			in := see(job, nodes)
			if tt.pod != nil {
				in.Pods = []Pod{newPod(nodes[0], tt.pod...)}
			}
			p := Next(in)
			if diff := cmp.Diff(tt.want, expiry(p.Actions)); diff != "" || p.Nodes[0].State != tt.state || p.Nodes[0].Reason != tt.reason {
				t.Errorf(
					"it is %s (%s), want %s (%s); actions (-want +got):\n%s",
					p.Nodes[0].State,
					p.Nodes[0].Reason,
					tt.state,
					tt.reason,
					diff,
				)
			}
		})
	}
}

func rollingBack(p *Pod) { p.Runs = task.Rollback }

func attempt(n int32) func(*Pod) { return func(p *Pod) { p.Attempt = n } }

// The rollbacks after spec.expires.at keep the limits of the rollout.
func TestExpiryWithinLimits(t *testing.T) {
	var nodes []Node
	for i := range 9 {
		nodes = append(nodes, newNode(fmt.Sprint(i), recorded(record.Succeeded)))
	}
	if got := len(Next(see(newJob(expiring, expiresAt(0), oneAtOnce), nodes)).Actions); got != 1 {
		t.Errorf("%d rollbacks start, want 1", got)
	}
	if p := Next(see(newJob(expiring, expiresAt(9)), nodes)); !wakes(p, ago(-9)) || len(p.Actions) > 0 {
		t.Errorf("it wakes at %v with %d actions, want %v and none", p.WakeAt, len(p.Actions), ago(-9))
	}
}

// All nodes are asked at once: a node that does not need the task is no canary, so a rollout would ask one after the other.
func TestNodesAreAskedBeforeTheirStep(t *testing.T) {
	const all = "start check-expires 1 of rev on a, start check-expires 1 of rev on b, start check-expires 1 of rev on c"
	nodes := func(a Node) []Node { return []Node{a, newNode("b"), newNode("c")} }
	steps := inSteps(first(intstr.FromInt32(1)), rest)
	ceiling := func(j *v1alpha1.NodeJob) { j.Spec.Rollout.PromoteTo = "first" }
	for name, tt := range map[string]struct {
		job   []func(*v1alpha1.NodeJob)
		nodes []Node
		want  string
	}{
		"no node has answered":        {nil, nodes(newNode("a")), all},
		"without a promotion":         {[]func(*v1alpha1.NodeJob){ceiling}, nodes(newNode("a")), all},
		"the canary needs the task":   {nil, nodes(newNode("a", fresh(record.AnswerNo))), "start attempt 1 of rev on a, start check-expires 1 of rev on b, start check-expires 1 of rev on c"},
		"the task waits for its step": {nil, []Node{newNode("a", fresh(record.AnswerNo)), newNode("b", fresh(record.AnswerNo))}, "start attempt 1 of rev on a"},
		"the rollout has stopped":     {[]func(*v1alpha1.NodeJob){mayFailNodes(0)}, nodes(newNode("a", recorded(record.Failed, attempts(2), answers(record.AnswerNo)))), "start rollback 1 of rev on a"},
	} {
		got := strings.Join(told(Next(see(newJob(append(tt.job, expiring, steps)...), tt.nodes))), ", ")
		if got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}

// The status says on how many nodes the task is needed, and why a check fails.
func TestExpiryStatus(t *testing.T) {
	needed := newNode("a", recorded(record.Succeeded, answers(record.AnswerNo)))
	expired := newNode("b", recorded(record.Expired, answers(record.AnswerYes)), labelled(rev))
	fails := newNode("c", recorded(record.Succeeded, answers(record.AnswerError, func(e *record.Expiry) {
		e.ExitCode, e.Message, e.ErrorSince = new(int32(3)), "no database", ago(299)
	})))
	for want, nodes := range map[string][]Node{
		"2 of 2 nodes are done; needed on 1 of 2 nodes":                      {needed, expired},
		"1 of 1 node is done; needed on no node: the NodeJob can be deleted": {expired},
		"2 of 2 nodes are done; needed on 2 of 2 nodes, and not in effect on 1 of them": {
			needed, newNode("d", recorded(record.Succeeded, answers(record.AnswerNo), func(r *record.Record) { r.Results = map[string]string{"in-effect": "no"} })),
		},
		"1 of 1 node is done; needed on 0 of 1 node; on 1 node, spec.expires.check itself fails (c: exit code 3: no database). It is repeated, and ends nothing; correct it so that it exits with 0 if the task is no longer needed, or 1 if it is": {fails},
	} {
		p := Next(see(newJob(expiring), nodes))
		if c := p.Status.Conditions[0]; c.Message != want || c.Status != metav1.ConditionTrue {
			t.Errorf("%s is %s: %s, want %s", c.Type, c.Status, c.Message, want)
		}
	}
	// A node that has drifted, and one that waits.
	drifts := func(j *v1alpha1.NodeJob) {
		j.Spec.Task.Check = &v1alpha1.CheckSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "denied?"}, PeriodSeconds: 3600}
	}
	no := func(r *record.Record) {
		r.Asked = record.Answers{record.QuestionCheck: {Answer: record.AnswerNo, At: ago(9), NoSince: ago(9)}}
	}
	nodes := []Node{needed, newNode("d", recorded(record.Succeeded, answers(record.AnswerNo), no)), newNode("e")}
	if c := Next(
		see(newJob(expiring, drifts), nodes),
	).Status.Conditions; !strings.Contains(
		fmt.Sprint(c),
		"; needed on 2 of 3 nodes, and not in effect on 1 of them; not known yet on 1",
	) {
		t.Errorf("%+v", c)
	}
	if p := Next(see(newJob(), []Node{needed})); strings.Contains(p.Status.Conditions[0].Message, "needed") || p.Status.Nodes.Expired > 0 {
		t.Errorf("without spec.expires: %s", p.Status.Conditions[0].Message)
	}
}

// A check is never counted as a failure. After checkErrorPatience, the NodeJob is Stalled if nothing else continues.
func TestExpiryErrorsAreNoFailures(t *testing.T) {
	fails := func(since int) func(*record.Expiry) {
		return func(e *record.Expiry) {
			e.At, e.Unanswered, e.ErrorSince, e.ExitCode = now.Add(-time.Hour), 50, ago(since), new(int32(3))
		}
	}
	waits := func(since int) Node {
		return newNode(
			"a",
			recorded(record.Needed, func(r *record.Record) { r.CheckBefore = "" }, answers(record.AnswerError, fails(since))),
		)
	}
	done := func(since int) Node {
		return newNode("a", recorded(record.Succeeded, answers(record.AnswerError, fails(since))))
	}
	for name, tt := range map[string]struct {
		nodes []Node
		want  string // the condition that is True
	}{
		"a node that waits":                       {[]Node{waits(299)}, v1alpha1.ConditionReconciling},
		"a node that waits, for long":             {[]Node{waits(300)}, v1alpha1.ConditionStalled},
		"a node that waits, and another one runs": {[]Node{waits(300), newNode("b", recorded(record.Failed))}, v1alpha1.ConditionReconciling},
		"a node that is done":                     {[]Node{done(299)}, v1alpha1.ConditionComplete},
		"a node that is done, for long":           {[]Node{done(300)}, v1alpha1.ConditionStalled},
	} {
		t.Run(name, func(t *testing.T) {
			p := Next(see(newJob(expiring, mayFailNodes(0)), tt.nodes))
			if got := told(p); got[0] != "start check-expires 5 of rev on a" || p.Status.Nodes.Failed > 0 {
				t.Errorf("%d failed; actions %q", p.Status.Nodes.Failed, got)
			}
			for _, c := range p.Status.Conditions {
				if is := c.Status == metav1.ConditionTrue; is != (c.Type == tt.want) ||
					is && !strings.Contains(c.Message, "spec.expires.check itself fails (a: exit code 3") {
					t.Errorf("%s is %s (%s): %s; want %s", c.Type, c.Status, c.Reason, c.Message, tt.want)
				}
			}
		})
	}
}
