// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/text"
)

const (
	key      = "node-setup.everynode.dev/somaxconn"
	revision = "7d9f2c41"
)

// nodesOf returns this number of nodes as input for the plan.
func nodesOf(n int, change func(i int, node *plan.Node)) []plan.Node {
	var all []plan.Node
	for i := range n {
		node := plan.Node{
			Name: fmt.Sprintf(
				"node-%d",
				i+1,
			),
			UID:     types.UID(fmt.Sprint("uid-", i+1)),
			Created: before(time.Duration(n-i) * 24 * time.Hour),
			Labels: map[string]string{
				"pool": "web",
			},
			Annotations: map[string]string{},
			Ready:       corev1.ConditionTrue,
			ReadySince:  before(time.Hour),
			MachineID:   fmt.Sprint("machine-", i+1),
			BootID:      "boot",
		}
		change(i, &node)
		all = append(all, node)
	}
	return all
}

// ran puts the record of an attempt on a node.
func ran(node *plan.Node, change func(*record.Record)) {
	r := record.Record{
		Revision:   revision,
		Outcome:    record.Succeeded,
		Attempts:   1,
		StartedAt:  before(10 * time.Minute),
		FinishedAt: before(9 * time.Minute),
		ExitCode:   new(int32(0)),
		MachineID:  node.MachineID,
		BootID:     node.BootID,
		PodUID:     types.UID("pod-" + node.Name),
	}
	change(&r)
	node.On = record.NodeRecord{Record: &r, Present: true}
	if r.Outcome == record.Succeeded {
		node.On.Label = revision
	}
}

// explained returns the explanation of the first node by the planner.
func explained(in plan.Input) Explain {
	in.Revision, in.Now = revision, now
	p := plan.Next(in)
	e := Explain{Job: in.Job, Node: &in.Nodes[0], State: p.Nodes[0], Now: now}
	for _, pod := range in.Pods {
		if pod.NodeName == e.Node.Name {
			e.Pods = append(e.Pods, pod)
		}
	}
	for _, step := range p.Steps {
		for _, i := range step.Nodes {
			if i == 0 {
				e.Step = step.Name
			}
		}
	}
	return e
}

func TestEachNodeIsExplained(t *testing.T) {
	plain := func(int, *plan.Node) {}
	fresh := func(change func(*v1alpha1.NodeJob)) *v1alpha1.NodeJob {
		return job(func(j *v1alpha1.NodeJob) {
			j.Spec.Rollout.Steps = nil
			change(j)
		})
	}
	same := func(*v1alpha1.NodeJob) {}
	first := func(change func(node *plan.Node)) []plan.Node {
		return nodesOf(3, func(i int, node *plan.Node) {
			if i == 0 {
				change(node)
			}
		})
	}
	tests := map[string]plan.Input{
		"done-and-published": {Job: fresh(func(j *v1alpha1.NodeJob) {
			j.Annotations = map[string]string{
				v1alpha1.ChangedByAnnotation:   "system:serviceaccount:flux-system:kustomize-controller",
				v1alpha1.RequestedByAnnotation: "jane\n",
			}
			j.Spec.Publish = []v1alpha1.PublishedResult{
				{Result: "kernel", Label: "example.com/kernel"},
				{Result: "kernle", Annotation: "example.com/a"},
			}
		}), Nodes: first(func(n *plan.Node) {
			ran(n, func(r *record.Record) {
				r.ChangedBy = "jane@example.com"
				r.Images = record.Images{"disk-check": "sha256:" + strings.Repeat("0a", 32)}
				r.Attempts, r.Message, r.Results = 2, "was 128\nis 4096\n", map[string]string{"kernel": "6.1\x1b[2J"}
				r.Previous = &record.Previous{
					Revision: "0ldc0de",
					Outcome:  record.Succeeded,
					Results:  map[string]string{"kernel": "5.15", "size": "\x1b[2J"},
				}
			})
			n.Labels["example.com/kernel"], n.Published = "6.1", record.Published{Labels: map[string]string{"example.com/kernel": key}}
		})},
		"already-done": {Job: fresh(same), Nodes: first(func(n *plan.Node) {
			ran(n, func(r *record.Record) {
				r.CheckBefore, r.Assumed, r.NeverStarted, r.Attempts, r.Reason, r.Message = record.AnswerYes, true, true, 0, v1alpha1.ReasonAlreadyDone, "is 4096\n"
			})
		})},
		"a-check-before-that-fails": {Job: fresh(func(j *v1alpha1.NodeJob) {
			j.Spec.Task.Script = "true"
			j.Spec.Task.Check = &v1alpha1.CheckSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "exit 3"}, Before: true}
		}), Nodes: first(func(n *plan.Node) {
			ran(n, func(r *record.Record) {
				failed(r, 0)
				r.Outcome, r.CheckBefore, r.Reason, r.Disruptions, r.Message = record.Disrupted, record.AnswerError, v1alpha1.ReasonCheckError, 9, "no database\n"
				r.FinishedAt, r.DisruptedSince = before(time.Minute), before(9*time.Minute)
			})
			n.On.Label = ""
		})},
		"a-check-before-that-says-no": {Job: fresh(func(j *v1alpha1.NodeJob) {
			j.Spec.Task.Script = "true"
			j.Spec.Task.Check, j.Spec.Maintenance.Cordon, j.Spec.Suspend = &v1alpha1.CheckSpec{
				ScriptBlock: v1alpha1.ScriptBlock{Script: "exit 1"},
				Before:      true,
			}, true, true
		}), Nodes: first(func(n *plan.Node) {
			ran(n, func(r *record.Record) {
				r.Outcome, r.CheckBefore, r.Attempts, r.ExitCode, r.Message = record.Needed, record.AnswerNo, 0, new(int32(1)), ""
				r.NeverStarted = true
			})
			n.On.Label = ""
		})},
		"done-by-its-label": {
			Job:   fresh(same),
			Nodes: first(func(n *plan.Node) { n.On = record.NodeRecord{Label: revision, Present: true} }),
		},
		"not-selected": {Job: fresh(func(j *v1alpha1.NodeJob) {
			j.Spec.Nodes.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "db"}}
		}), Nodes: nodesOf(3, plain)},
		"a-taint": {Job: fresh(same), Nodes: first(func(n *plan.Node) {
			n.Taints = []corev1.Taint{{Key: "gpu", Value: "true", Effect: corev1.TaintEffectNoSchedule}}
		})},
		"starts-now":   {Job: fresh(same), Nodes: nodesOf(3, plain)},
		"a-later-step": {Job: fresh(same), Nodes: first(func(n *plan.Node) { n.Created = before(time.Minute) })},
		"lost":         {Job: fresh(same), Nodes: first(func(n *plan.Node) { n.Ready = corev1.ConditionUnknown })},
		"suspended":    {Job: fresh(func(j *v1alpha1.NodeJob) { j.Spec.Suspend = true }), Nodes: nodesOf(3, plain)},
		"a-missing-configmap": {
			Job:   fresh(same),
			Nodes: nodesOf(3, plain),
			Obstacle: &hold.Why{
				Reason:  v1alpha1.ReasonConfigMapNotFound,
				Message: "spec.task.scriptFrom: ConfigMap node-setup/scripts does not exist. Create it; the NodeJob then continues automatically",
			},
		},
		"backs-off": {Job: fresh(same), Nodes: first(func(n *plan.Node) {
			ran(n, func(r *record.Record) { failed(r, 2); r.FinishedAt = before(5 * time.Second) })
		})},
		"failed-and-rolled-back": {
			Job: fresh(func(j *v1alpha1.NodeJob) {
				j.Spec.Rollback = &v1alpha1.RollbackSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "true"}}
			}),
			Nodes: first(func(n *plan.Node) {
				ran(n, func(r *record.Record) { failed(r, 4); rolledBack(r); r.Rollback.Attempts, r.Earlier = 2, earlier() })
			}),
		},
		"of-an-earlier-revision": {Job: fresh(func(j *v1alpha1.NodeJob) { j.Spec.Suspend = true }), Nodes: first(func(n *plan.Node) {
			ran(n, func(r *record.Record) { r.Revision, r.ChangedBy = "0ldc0de", "jane\x1b[2J" })
			n.On.Label = "0ldc0de"
		})},
		"runs-after-a-disruption": {Job: fresh(same), Nodes: first(func(n *plan.Node) {
			ran(n, func(r *record.Record) {
				r.Outcome, r.Attempts, r.Disruptions, r.ExitCode, r.Reason = record.Disrupted, 0, 1, nil, "Disrupted"
			})
		}), Pods: []plan.Pod{onNode1(false)}},
		"a-pod-that-cannot-start": {Job: fresh(same), Nodes: nodesOf(3, plain), Pods: []plan.Pod{onNode1(true)}},
		"with-attempts-that-are-not-listed": {Job: fresh(same), Nodes: first(func(n *plan.Node) {
			ran(n, func(r *record.Record) { failed(r, 4) })
		})},
		"with-a-retained-pod": {Job: fresh(func(j *v1alpha1.NodeJob) { j.Spec.RetainPodsSeconds = 600 }), Nodes: first(func(n *plan.Node) {
			ran(n, func(r *record.Record) {
				failed(r, 3)
				r.FinishedAt = before(time.Minute)
				for number := range int32(2) {
					r.Earlier = append(
						r.Earlier,
						record.Attempt{
							Revision:   revision,
							Number:     number + 1,
							Outcome:    record.Failed,
							ExitCode:   new(int32(5)),
							Reason:     "TaskFailed",
							StartedAt:  before(4 * time.Minute),
							FinishedAt: before(3 * time.Minute),
							Message:    "cannot read",
						},
					)
				}
			})
		}), Pods: []plan.Pod{kept(onNode1(false))}},
		"whose-record-was-taken-off": {
			Job:   fresh(func(j *v1alpha1.NodeJob) { j.Spec.RetainPodsSeconds = 600 }),
			Nodes: nodesOf(3, plain),
			Pods:  []plan.Pod{onNode1(false), kept(onNode1(false))},
		},
	}
	for name, in := range tests {
		t.Run(name, func(t *testing.T) {
			in.Job.Status.Revision = revision
			e := explained(in)
			drawn(t, "explain-"+name, func(width int) []text.Line {
				e.Width = width
				return e.Lines()
			})
			if s := e.Sentence(); !strings.HasPrefix(s, "node-setup/somaxconn ") || !strings.HasSuffix(s, ".") {
				t.Errorf("not a sentence: %q", s)
			}
		})
	}
}

// TestAnAttemptOfAnEarlierRunSaysSo has a node that ran the task again after it had drifted: both attempts have the number 1.
func TestAnAttemptOfAnEarlierRunSaysSo(t *testing.T) {
	attempt := func(number int32, o record.Outcome) record.Attempt {
		return record.Attempt{Revision: revision, Number: number, Outcome: o, FinishedAt: before(time.Hour)}
	}
	drifted := attempt(1, record.Succeeded)
	drifted.DriftedAt = before(30 * time.Minute)
	for name, tt := range map[string]struct {
		attempts int32
		earlier  record.Attempts
		want     []string
	}{
		"the second attempt of a run":   {2, record.Attempts{attempt(1, record.Failed)}, []string{"attempt 1 failed"}},
		"a second run":                  {1, record.Attempts{attempt(1, record.Succeeded)}, []string{"attempt 1 succeeded, of an earlier run"}},
		"after a drift":                 {1, record.Attempts{drifted}, []string{"attempt 1 succeeded; task.check answered no at 12:00:00 UTC, and the task ran again"}},
		"a retry that failed as before": {1, record.Attempts{attempt(1, record.Failed)}, []string{"attempt 1 failed, of an earlier run"}},
		"the second attempt after a drift": {
			2,
			record.Attempts{attempt(1, record.Succeeded), attempt(1, record.Disrupted), attempt(1, record.Failed)},
			[]string{"attempt 1 succeeded, of an earlier run", "attempt 1 was disrupted", "attempt 1 failed"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := Explain{Job: job(func(j *v1alpha1.NodeJob) { j.Status.Revision = revision }), Now: now}
			rec := record.Record{Revision: revision, Outcome: record.Succeeded, Attempts: tt.attempts, Earlier: tt.earlier}
			var got []string
			for _, lines := range e.before(&rec) {
				said := strings.TrimSpace(strings.TrimPrefix(text.Print(lines[:1], text.Options{}), "Before"))
				start, rest, _ := strings.Cut(said, " at ")
				_, end, _ := strings.Cut(rest, ")")
				got = append(got, start+end)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// earlier are all outcomes before the fourth attempt and its second rollback attempt.
func earlier() record.Attempts {
	at := func(ago time.Duration, a record.Attempt) record.Attempt {
		a.StartedAt, a.FinishedAt = before(ago+30*time.Second), before(ago)
		return a
	}
	return record.Attempts{
		at(24*time.Hour, record.Attempt{Revision: "0ldc0de", Number: 1, Outcome: record.Succeeded, ExitCode: new(int32(0))}),
		at(
			20*time.Minute,
			record.Attempt{
				Revision: revision,
				Number:   2,
				Outcome:  record.Failed,
				ExitCode: new(int32(3)),
				Reason:   "TaskFailed",
				Message:  `\x1b[2J: try again`,
			},
		),
		at(
			15*time.Minute,
			record.Attempt{
				Revision:    revision,
				Number:      3,
				Outcome:     record.Disrupted,
				Disruptions: 4,
				Reason:      "Disrupted",
				Message:     "the pod was deleted while the task ran",
			},
		),
		at(12*time.Minute, record.Attempt{Revision: revision, Number: 3, Outcome: record.Failed, Reason: "NodeUnreachable"}),
		at(
			510*time.Second,
			record.Attempt{Revision: revision, Number: 1, Rollback: true, Outcome: record.Failed, Reason: "DeadlineExceeded"},
		),
	}
}

func failed(r *record.Record, attempts int32) {
	r.Outcome, r.Attempts, r.ExitCode, r.Reason, r.Message = record.Failed, attempts, new(int32(3)), "TaskFailed", "cannot write\n"
}

func rolledBack(r *record.Record) {
	r.Rollback = &record.Rollback{
		Outcome:    record.Succeeded,
		Attempts:   1,
		StartedAt:  before(8 * time.Minute),
		FinishedAt: before(8 * time.Minute),
		ExitCode:   new(int32(0)),
		PodUID:     "rollback",
	}
}

// kept is a retained pod whose end was recorded before the record was removed.
func kept(pod plan.Pod) plan.Pod {
	pod.Name, pod.UID, pod.Attempt, pod.Created, pod.Started = "somaxconn-9876543210", "kept", 2, before(
		4*time.Minute,
	), before(
		4*time.Minute,
	)
	pod.Phase, pod.Finalized, pod.Recorded = corev1.PodFailed, false, true
	pod.Exit = &plan.Exit{Code: 5, Finished: before(3 * time.Minute), Reported: true, Reason: "TaskFailed", Message: "cannot read\n"}
	return pod
}

func onNode1(waits bool) plan.Pod {
	pod := plan.Pod{
		Name:      "somaxconn-0123456789",
		UID:       "new",
		NodeName:  "node-1",
		NodeUID:   "uid-1",
		Machine:   "machine-1/boot",
		Runs:      task.Task,
		Revision:  revision,
		Attempt:   1,
		Created:   before(70 * time.Second),
		Finalized: true,
		Phase:     corev1.PodRunning,
		Started:   before(65 * time.Second),
	}
	if waits {
		pod.Phase, pod.Started, pod.Waiting = corev1.PodPending, time.Time{}, "ImagePullBackOff: image registry.example/tool:1"
	}
	return pod
}

func TestTheTableOfAllNodes(t *testing.T) {
	in := plan.Input{Job: job(func(*v1alpha1.NodeJob) {}), Revision: revision, Now: now, Nodes: nodesOf(5, func(i int, n *plan.Node) {
		switch i {
		case 0:
			ran(n, func(r *record.Record) { r.Results = map[string]string{"kernel": "6.1\x1b[2J", "size": "large"} })
		case 1:
			ran(n, func(r *record.Record) { failed(r, 4); r.Results = map[string]string{"kernel": "6.12"} })
		case 2:
			ran(n, func(r *record.Record) {
				r.Revision, r.Message, r.Results = "0ldc0de", "of an earlier revision", map[string]string{"ignored": "1"}
			})
			n.On.Label = "0ldc0de"
		case 4:
			ran(n, func(r *record.Record) {
				r.Assumed, r.Attempts, r.ExitCode, r.Message = true, 0, nil, "it matched spec.nodes.assumeDone"
			})
		}
	}), Pods: nil}
	p := plan.Next(in)
	var rows []NodeRow
	for i := range p.Nodes {
		rows = append(rows, NodeRow{State: p.Nodes[i], On: in.Nodes[i].On})
	}
	drawn(t, "nodes", func(int) []text.Line { return NodeTable(now, revision, rows, false) })
	drawn(t, "nodes-with-results", func(int) []text.Line { return NodeTable(now, revision, rows, true) })
}

func TestAskedSince(t *testing.T) {
	no := record.Asked{Answer: record.AnswerNo, At: before(2 * time.Minute), ExitCode: new(int32(1))}
	then := func(was record.Asked, answer record.Answer, code *int32) record.Asked {
		return was.Next(record.Asked{Answer: answer, At: before(time.Minute), ExitCode: code})
	}
	tests := map[string]struct {
		asked record.Asked
		want  string
	}{
		"yes": {
			then(record.Asked{}, record.AnswerYes, nil),
			"; task.check last answered yes at 12:29:00 UTC (60s ago)",
		},
		"no": {
			then(record.Asked{}.Next(no), record.AnswerNo, new(int32(1))),
			"; the node has drifted: task.check has answered no since 12:28:00 UTC (2m ago), last at 12:29:00 UTC (60s ago)",
		},
		"yes after a no": {
			then(record.Asked{}.Next(no), record.AnswerYes, nil),
			"; task.check last answered yes at 12:29:00 UTC (60s ago)",
		},
		"failed": {
			then(record.Asked{}, record.AnswerError, new(int32(3))),
			"; task.check itself failed at 12:29:00 UTC (60s ago), exit code 3",
		},
		"failed without an exit code": {
			then(record.Asked{}, record.AnswerError, nil),
			"; task.check itself failed at 12:29:00 UTC (60s ago)",
		},
		"failed after a no": {
			then(record.Asked{}.Next(no), record.AnswerError, new(int32(3))),
			"; task.check itself failed at 12:29:00 UTC (60s ago), exit code 3: task.check has answered no since 12:28:00 UTC (2m ago)",
		},
		"disrupted": {
			then(record.Asked{}, record.AnswerNone, nil),
			"; task.check was disrupted at 12:29:00 UTC (60s ago)",
		},
		"disrupted after a no": {
			then(record.Asked{}.Next(no), record.AnswerNone, nil),
			"; task.check was disrupted at 12:29:00 UTC (60s ago): task.check has answered no since 12:28:00 UTC (2m ago)",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			rec := &record.Record{Asked: record.Answers{record.QuestionCheck: tt.asked}}
			if got := (Explain{Job: &v1alpha1.NodeJob{Spec: v1alpha1.NodeJobSpec{Task: v1alpha1.TaskSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "true"}}}}, Now: now}).askedSince(
				rec,
			); got != tt.want {
				t.Errorf("it says %q, want %q", got, tt.want)
			}
		})
	}
	if got := (Explain{Now: now}).askedSince(&record.Record{}); got != "" {
		t.Errorf("a node that was not asked: %q", got)
	}
}
