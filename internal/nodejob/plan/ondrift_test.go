// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/outcome"
)

// watched asks task.check every hour on nodes that are done.
func watched(j *v1alpha1.NodeJob) {
	j.Spec.Task.Check = &v1alpha1.CheckSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "true"}, PeriodSeconds: 3600}
}

// repaired runs the task again on a node that has drifted.
func repaired(j *v1alpha1.NodeJob) { watched(j); j.Spec.Task.Check.OnDrift = v1alpha1.DriftRun }

// doneFor has been done for some seconds.
func doneFor(seconds int, changes ...func(*record.Record)) func(*Node) {
	return recorded(record.Succeeded, append([]func(*record.Record){func(r *record.Record) { r.RecordedAt = ago(seconds) }}, changes...)...)
}

// said has given that answer some seconds ago.
func said(answer record.Answer, seconds int, changes ...func(*record.Asked)) func(*record.Record) {
	return func(r *record.Record) {
		is := record.Asked{}.Next(record.Asked{Answer: answer, At: ago(seconds), Message: "line\nthe end", PodUID: "a-asked"})
		for _, change := range changes {
			change(&is)
		}
		r.Asked = r.Asked.With(record.QuestionCheck, is)
	}
}

// asks is a pod that asks a node that is done.
func asks(p *Pod) { p.Runs = task.CheckDrift }

// Two answers in one pass would be two writes to a node.
func TestANodeIsAskedOneQuestionAtATime(t *testing.T) {
	checked := func(j *v1alpha1.NodeJob) {
		j.Spec.Rerun.OnReboot, j.Spec.Maintenance.Cordon, j.Spec.Task.Check.Before = true, true, true
	}
	rebooted := doneFor(9999, said(record.AnswerNo, 3600), func(r *record.Record) { r.BootID = "earlier" })
	p := Next(see(newJob(repaired, checked), []Node{newNode("a", rebooted)}))
	if diff := cmp.Diff([]string{"start check-before 1 of rev on a"}, told(p)); diff != "" {
		t.Errorf("a node that is checked before its rerun, and whose question is due: actions (-want +got):\n%s", diff)
	}
}

// TestQuestions tests a NodeJob with node a that asks nodes that are done once an hour.
func TestQuestions(t *testing.T) {
	const ask = "start check-drift 1 of rev on a"
	no := reported(outcome.ReasonTaskFailed)
	tests := map[string]struct {
		job    []func(*v1alpha1.NodeJob)
		a      []func(*Node)
		pods   []func(*Pod) // of the pod on a, if any
		want   []string
		reason string
		// answer is the record that is written, if any.
		answer record.Asked
	}{
		"a node is asked within its period": {a: []func(*Node){doneFor(3600)}, want: []string{ask}, reason: v1alpha1.ReasonDone},
		"not before":                        {a: []func(*Node){doneFor(0)}, reason: v1alpha1.ReasonDone},
		"the period counts from the last answer": {
			a: []func(*Node){doneFor(9999, said(record.AnswerYes, 0))}, reason: v1alpha1.ReasonDone,
		},
		"after a no, too": {
			a: []func(*Node){doneFor(9999, said(record.AnswerNo, 3600))}, want: []string{ask}, reason: v1alpha1.ReasonDrifted,
		},
		"without a period, no node is asked": {
			job: []func(*v1alpha1.NodeJob){func(j *v1alpha1.NodeJob) { j.Spec.Task.Check.PeriodSeconds = 0 }},
			a:   []func(*Node){doneFor(9999, said(record.AnswerNo, 3600))}, reason: v1alpha1.ReasonDone,
		},
		"while one is asked, it is not asked again": {
			a:      []func(*Node){doneFor(9999)},
			pods:   []func(*Pod){asks},
			reason: v1alpha1.ReasonDone,
		},
		"a suspended NodeJob asks no node": {
			job: []func(*v1alpha1.NodeJob){func(j *v1alpha1.NodeJob) { j.Spec.Suspend = true }},
			a:   []func(*Node){doneFor(9999)}, reason: v1alpha1.ReasonDone,
		},
		"an unreachable node is not asked": {
			a: []func(*Node){doneFor(9999), func(n *Node) { n.Ready = corev1.ConditionUnknown }}, reason: v1alpha1.ReasonDone,
		},
		"a node with a taint that is not tolerated is not asked": {
			a: []func(*Node){doneFor(9999), func(n *Node) { n.Taints = []corev1.Taint{busy} }}, reason: v1alpha1.ReasonDone,
		},
		"a node that a user has skipped is not asked": {a: []func(*Node){labelled(rev)}, reason: v1alpha1.ReasonDone},
		"yes": {
			a: []func(*Node){doneFor(9999, said(record.AnswerNo, 60))}, pods: []func(*Pod){asks, exited(0, reported(""))},
			want: []string{"answer Yes on a"}, reason: v1alpha1.ReasonDrifted, answer: record.Asked{Answer: record.AnswerYes, At: now},
		},
		"no": {
			a: []func(*Node){doneFor(9999)}, pods: []func(*Pod){asks, exited(1, no)},
			want: []string{"answer No on a"}, reason: v1alpha1.ReasonDone,
			answer: record.Asked{Answer: record.AnswerNo, At: now, NoSince: now, ExitCode: new(int32(1)), Message: "the end"},
		},
		"a deleted file, as grep says it, is a drift": {
			a: []func(*Node){doneFor(9999)}, pods: []func(*Pod){asks, exited(2, no)},
			want: []string{"answer No on a"}, reason: v1alpha1.ReasonDone,
			answer: record.Asked{Answer: record.AnswerNo, At: now, NoSince: now, ExitCode: new(int32(2)), Message: "the end"},
		},
		"a mount that is gone, as mountpoint says it, is a drift": {
			a: []func(*Node){doneFor(9999)}, pods: []func(*Pod){asks, exited(32, no)},
			want: []string{"answer No on a"}, reason: v1alpha1.ReasonDone,
			answer: record.Asked{Answer: record.AnswerNo, At: now, NoSince: now, ExitCode: new(int32(32)), Message: "the end"},
		},
		"the least exit code of a signal is no answer": {
			a: []func(*Node){doneFor(9999)}, pods: []func(*Pod){asks, exited(128, no)},
			want: []string{"answer Error on a"}, reason: v1alpha1.ReasonDone,
			answer: record.Asked{
				Answer: record.AnswerError, At: now, ErrorSince: now, Unanswered: 1, ExitCode: new(int32(128)), Message: "the end",
			},
		},
		"a second no does not change since when": {
			a: []func(*Node){doneFor(9999, said(record.AnswerNo, 60))}, pods: []func(*Pod){asks, exited(1, no)},
			want: []string{"answer No on a"}, reason: v1alpha1.ReasonDrifted,
			answer: record.Asked{Answer: record.AnswerNo, At: now, NoSince: ago(60), ExitCode: new(int32(1)), Message: "the end"},
		},
		"an error is no answer, and does not end a drift": {
			a: []func(*Node){doneFor(9999, said(record.AnswerNo, 60))}, pods: []func(*Pod){asks, exited(75, no)},
			want: []string{"answer Error on a"}, reason: v1alpha1.ReasonDrifted,
			answer: record.Asked{
				Answer:     record.AnswerError,
				At:         now,
				NoSince:    ago(60),
				ErrorSince: now,
				Unanswered: 1,
				ExitCode:   new(int32(75)),
				Message:    "the end",
			},
		},
		"an eviction is no answer": {
			a: []func(*Node){doneFor(9999)}, pods: []func(*Pod){asks, exited(143, reported(outcome.ReasonDisrupted))},
			want: []string{"answer None on a"}, reason: v1alpha1.ReasonDone,
			answer: record.Asked{
				Answer: record.AnswerNone, At: now, Unanswered: 1, ExitCode: new(int32(143)),
				Message: "the task was interrupted by a signal from outside",
			},
		},
		"a node that becomes unreachable says nothing": {
			a: []func(*Node){
				doneFor(9999),
				func(n *Node) { n.Ready = corev1.ConditionUnknown },
			},
			pods:   []func(*Pod){asks, func(p *Pod) { p.Created = ago(80) }},
			want:   []string{"answer None on a"},
			reason: v1alpha1.ReasonDone,
			answer: record.Asked{
				Answer: record.AnswerNone, At: now, Unanswered: 1,
				Message: "the node became unreachable during the attempt and was not reachable again before the deadline of the attempt",
			},
		},
		"an error is repeated after the backoff": {
			a: []func(*Node){doneFor(9999, said(record.AnswerError, 10))}, want: []string{ask}, reason: v1alpha1.ReasonCheckError,
		},
		"an error is not repeated in the backoff": {
			a: []func(*Node){doneFor(9999, said(record.AnswerError, 9))}, reason: v1alpha1.ReasonCheckError,
		},
		"an answer that is on record is not recorded again": {
			a: []func(*Node){doneFor(9999, said(record.AnswerYes, 0))},
			pods: []func(*Pod){
				asks,
				exited(0, reported("")),
				func(p *Pod) { p.UID = "a-asked" },
			},
			want:   []string{"release a-pod"},
			reason: v1alpha1.ReasonDone,
		},
		"an answer for another revision does not count": {
			a: []func(*Node){doneFor(9999, said(record.AnswerYes, 0))},
			pods: []func(*Pod){
				asks,
				exited(1, no),
				func(p *Pod) { p.Revision = "old" },
			},
			want:   []string{"release a-pod"},
			reason: v1alpha1.ReasonDone,
		},
		"an answer after a reset does not count": {
			pods: []func(*Pod){asks, exited(1, no)}, want: []string{"release a-pod"}, reason: v1alpha1.ReasonPodTerminating,
		},
		"Report runs nothing": {a: []func(*Node){doneFor(99, said(record.AnswerNo, 0))}, reason: v1alpha1.ReasonDrifted},
		"Run runs the task again": {
			job: []func(*v1alpha1.NodeJob){repaired}, a: []func(*Node){doneFor(99, said(record.AnswerNo, 0))},
			want: []string{"start attempt 1 of rev on a"}, reason: v1alpha1.ReasonStarting,
		},
		"Run runs nothing after a yes": {
			job: []func(*v1alpha1.NodeJob){repaired}, a: []func(*Node){doneFor(99, said(record.AnswerYes, 0))}, reason: v1alpha1.ReasonDone,
		},
		"Run does not ask once more before the task": {
			job: []func(*v1alpha1.NodeJob){
				repaired,
				func(j *v1alpha1.NodeJob) { j.Spec.Task.Check.Before, j.Spec.Maintenance.Cordon = true, true },
			},
			a:      []func(*Node){doneFor(99, said(record.AnswerNo, 0))},
			reason: v1alpha1.ReasonWaitingForBudget,
		},
		"Run waits while the NodeJob is suspended": {
			job: []func(*v1alpha1.NodeJob){repaired, func(j *v1alpha1.NodeJob) { j.Spec.Suspend = true }},
			a:   []func(*Node){doneFor(99, said(record.AnswerNo, 0))}, reason: v1alpha1.ReasonSuspended,
		},
		"a node that waits for its run is asked again": {
			job: []func(*v1alpha1.NodeJob){repaired, func(j *v1alpha1.NodeJob) { j.Spec.Maintenance.Cordon = true }},
			a:   []func(*Node){doneFor(9999, said(record.AnswerNo, 3600))}, want: []string{ask}, reason: v1alpha1.ReasonWaitingForBudget,
		},
		"and waits for the answer": {
			job:  []func(*v1alpha1.NodeJob){repaired},
			a:    []func(*Node){doneFor(9999, said(record.AnswerNo, 3600))},
			pods: []func(*Pod){asks}, reason: v1alpha1.ReasonCheckingBefore,
		},
		"a deleted NodeJob asks no node": {
			job:  []func(*v1alpha1.NodeJob){func(j *v1alpha1.NodeJob) { j.DeletionTimestamp = &metav1.Time{Time: ago(1)} }, rolledBack},
			a:    []func(*Node){doneFor(9999)},
			pods: []func(*Pod){asks}, want: []string{"release a-pod"}, reason: v1alpha1.ReasonRollbackPending,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			node := newNode("a", tt.a...)
			in := see(newJob(append([]func(*v1alpha1.NodeJob){watched}, tt.job...)...), []Node{node})
			if tt.pods != nil {
				in.Pods = []Pod{newPod(node, tt.pods...)}
			}
			in.Budgets = map[types.UID]NodeBudget{"a-uid": limited(exhausted)}
			p := Next(in)
			if diff := cmp.Diff(tt.want, toldAnswers(p)); diff != "" || p.Nodes[0].Reason != tt.reason {
				t.Errorf("a is %s (%s), want %s; actions (-want +got):\n%s", p.Nodes[0].State, p.Nodes[0].Reason, tt.reason, diff)
			}
			for _, action := range p.Actions {
				checkAnswered(t, node, action, tt.answer)
			}
		})
	}
}

// toldAnswers are the actions of a plan, with answers of nodes that are done.
func toldAnswers(p Plan) []string {
	said := told(p)
	for i, action := range p.Actions {
		if a, is := action.(Record); is && a.Pod.Runs.AsksDone() {
			said[i] = "answer " + string(a.Record.Asked[record.QuestionCheck].Answer) + " on " + a.Node
		}
	}
	return said
}

// checkAnswered checks that nothing but the answer of a node changes, if the action records one.
func checkAnswered(t *testing.T, node Node, action Action, want record.Asked) {
	t.Helper()
	a, is := action.(Record)
	if !is {
		return
	}
	if !a.KeepLabel || a.ResourceVersion != node.ResourceVersion || a.Final || a.DropLabel || a.Shared() {
		t.Errorf("the write is %+v", a.Change)
	}
	want.PodUID = "a-pod-uid"
	rest := *a.Record
	if diff := cmp.Diff(want, rest.Asked[record.QuestionCheck]); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
	rest.Asked = node.On.Record.Asked
	if diff := cmp.Diff(*node.On.Record, rest); diff != "" {
		t.Errorf("the rest of the record changes (-before +after):\n%s", diff)
	}
}

// Nodes are asked at different times, and each within its period.
func TestQuestionsAreSpread(t *testing.T) {
	j := &job{policy: policy{in: Input{Job: newJob(watched), Now: now}, key: "key"}}
	q := j.questions()[0]
	at := map[time.Time]bool{}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		j.in.Now = now
		node := newNode(name, doneFor(0))
		first := j.dueAt(node.On.Record, node.UID, q)
		if first.Before(now) || first.After(now.Add(time.Hour+time.Second)) {
			t.Errorf("%s is asked at %v", name, first)
		}
		j.in.Now = first
		said(record.AnswerYes, 0, func(is *record.Asked) { is.At = first })(node.On.Record)
		if next := j.dueAt(node.On.Record, node.UID, q); !next.Equal(first.Add(time.Hour)) {
			t.Errorf("%s is asked at %v and then at %v", name, first, next)
		}
		at[first] = true
	}
	if len(at) != 5 {
		t.Errorf("they are asked at %v", at)
	}
}

// Nodes are asked in groups, those that are due the longest first, together with those that are checked before the task.
func TestQuestionsAtTheSameTime(t *testing.T) {
	var nodes []Node
	for i := range maxChecksBefore + 5 {
		nodes = append(nodes, newNode("n"+strings.Repeat("x", i), doneFor(99999-i*400)))
	}
	first := newNode("first", doneFor(500_000))
	nodes = append(nodes, first, newNode("new"))
	job := newJob(watched, checkedFirst, func(j *v1alpha1.NodeJob) { j.Spec.Task.Check.PeriodSeconds = 3600 })
	p := Next(see(job, nodes, newPod(nodes[0], asks)))
	if got := len(p.Actions); got != maxChecksBefore-1 {
		t.Errorf("%d questions start beside one, want %d in all", got, maxChecksBefore)
	}
	if got := told(p)[:2]; !cmp.Equal(got, []string{"start check-before 1 of rev on new", "start check-drift 1 of rev on first"}) {
		t.Errorf("the first are %v", got)
	}
	if p.WakeAt.IsZero() || p.WakeAt.After(now.Add(recheckInterval)) {
		t.Errorf("the others wait until %v", p.WakeAt)
	}
	in := see(job, nodes)
	in.Obstacle = &hold.Why{Reason: v1alpha1.ReasonPodForbidden, Message: "no", Until: ago(1)}
	if got := told(Next(in)); len(got) != 1 {
		t.Errorf("%v start to see whether the obstacle still exists, want 1", got)
	}
}

// A drift and an error are counted, and an error makes the NodeJob Stalled after checkErrorPatience.
func TestStatusOfDrift(t *testing.T) {
	for name, tt := range map[string]struct {
		a       func(*record.Record)
		failing int
		want    v1alpha1.NodeCounts
		holds   string
		reason  string
		message string
	}{
		"compliant": {
			said(record.AnswerYes, 0), 0, v1alpha1.NodeCounts{Total: 2, Done: 2},
			v1alpha1.ConditionComplete, v1alpha1.ReasonAllNodesDone, "2 of 2 nodes are done",
		},
		"drifted": {
			said(record.AnswerNo, 0), 0, v1alpha1.NodeCounts{Total: 2, Done: 2, NonCompliant: 1},
			v1alpha1.ConditionComplete, v1alpha1.ReasonAllNodesDone, "2 of 2 nodes are done, 1 drifted (a: the end)",
		},
		"fails": {
			said(record.AnswerError, 299), 0, v1alpha1.NodeCounts{Total: 2, Done: 2, CheckErrors: 1},
			v1alpha1.ConditionComplete, v1alpha1.ReasonAllNodesDone, "2 of 2 nodes are done; on 1 node, task.check itself fails (a: the end)",
		},
		"fails for long": {
			said(record.AnswerError, 300), 0, v1alpha1.NodeCounts{Total: 2, Done: 2, CheckErrors: 1},
			v1alpha1.ConditionStalled, v1alpha1.ReasonCheckError, "2 of 2 nodes are done; on 1 node, task.check itself fails (a: the end)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := Next(see(newJob(watched), []Node{newNode("a", doneFor(400, tt.a)), newNode("b", doneFor(0))}))
			if diff := cmp.Diff(tt.want, p.Status.Nodes); diff != "" {
				t.Errorf("counts (-want +got):\n%s", diff)
			}
			for _, c := range p.Status.Conditions {
				if c.Type == tt.holds &&
					(c.Status != metav1.ConditionTrue || c.Reason != tt.reason || !strings.HasPrefix(c.Message, tt.message)) {
					t.Errorf("%s is %s (%s): %s", c.Type, c.Status, c.Reason, c.Message)
				}
			}
			if tt.reason == v1alpha1.ReasonAllNodesDone && p.WakeAt.IsZero() {
				t.Error("it does not wake to ask")
			}
		})
	}
}

// What a run makes obsolete leaves the record with it.
func TestDriftEndsWithTheRun(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*Pod)
		want   bool
	}{
		"a success":    {exited(0), false},
		"a failure":    {exited(1, reported(outcome.ReasonTaskFailed)), false},
		"a disruption": {exited(143, reported(outcome.ReasonDisrupted)), true},
	} {
		t.Run(name, func(t *testing.T) {
			node := newNode("a", doneFor(99, said(record.AnswerNo, 0)))
			p := Next(see(newJob(repaired), []Node{node}, newPod(node, tt.change)))
			if got := p.Actions[0].(Record).Record.Asked != nil; got != tt.want {
				t.Errorf("the drift is on record: %v, want %v", got, tt.want)
			}
		})
	}
}
