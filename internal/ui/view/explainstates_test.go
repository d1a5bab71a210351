// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/text"
)

// disrupts makes a NodeJob reboot its nodes, of which one may be unavailable at a time.
func disrupts(j *v1alpha1.NodeJob) {
	j.Status.Revision, j.Spec.Rollout.Steps = revision, []v1alpha1.RolloutStep{{Name: "all"}}
	j.Spec.Maintenance = v1alpha1.MaintenanceSpec{
		Reboot:         v1alpha1.RebootSpec{Policy: v1alpha1.RebootAlways},
		MaxUnavailable: new(intstr.FromInt32(1)),
	}
	j.Spec.OnFailure.Action, j.Spec.Rollout.MaxFailures = v1alpha1.FailureActionCordon, new(intstr.FromInt32(9))
}

// TestAFailedNodeThatIsCordonedIsSaidToBe : otherwise a user sees that the node takes no pods, and not why.
func TestAFailedNodeThatIsCordonedIsSaidToBe(t *testing.T) {
	for want, change := range map[string]func(*plan.Node, *record.Record){
		".":                                func(*plan.Node, *record.Record) {},
		"; the node is cordoned for that.": func(n *plan.Node, r *record.Record) { n.Unschedulable, r.Cordoned = true, true },
		" .":                               func(_ *plan.Node, r *record.Record) { r.Cordoned = true }, // a user has uncordoned it
		"; the node is cordoned for that, and is being drained.": func(n *plan.Node, r *record.Record) {
			n.Unschedulable, r.Cordoned, r.Drain = true, true, &record.Drain{StartedAt: now}
		},
		"; the node is cordoned for that, and its drain has ended with DrainTimedOut.": func(n *plan.Node, r *record.Record) {
			n.Unschedulable, r.Cordoned, r.Drain = true, true, &record.Drain{StartedAt: now, Outcome: v1alpha1.ReasonDrainTimedOut}
		},
	} {
		nodes := nodesOf(1, func(_ int, n *plan.Node) {
			ran(n, func(r *record.Record) { failed(r, 4); change(n, r) })
		})
		e := Explain{Job: job(func(*v1alpha1.NodeJob) {}), Node: &nodes[0], State: plan.NodeState{State: plan.Failed}, Now: now}
		if got := e.Sentence(); !strings.HasSuffix(got, "cannot write"+strings.TrimSpace(want)) {
			t.Errorf("%s, want that it ends with %q", got, want)
		}
	}
}

func TestWhoUsesMaxUnavailableIsNamed(t *testing.T) {
	const cordoned = "node-setup/somaxconn has not run on node-1 yet: 1 node is not Ready, cordoned or at work (node-2), and maintenance.maxUnavailable allows 1: "
	const makeRoom = "it starts automatically when fewer nodes are unavailable. What may help: "
	const raise = "; a higher spec.maintenance.maxUnavailable"
	tests := map[string]struct {
		second         func(*plan.Node)
		pod            bool
		sentence, next string
	}{
		"cordoned by a user": {
			func(n *plan.Node) { n.Unschedulable = true },
			false,
			cordoned + "node-2 (it is cordoned, and not by Everynode).",
			makeRoom + "kubectl uncordon node-2, when its maintenance is over" + raise,
		},
		"not Ready": {
			func(n *plan.Node) { n.Ready = corev1.ConditionFalse }, false,
			cordoned + "node-2 (it is not Ready).", makeRoom + "kubectl describe node node-2" + raise,
		},
		"a kubelet that does not report": {
			func(n *plan.Node) { n.Ready = corev1.ConditionUnknown }, false,
			cordoned + "node-2 (its kubelet does not report (Ready=Unknown)).", makeRoom + "kubectl describe node node-2" + raise,
		},
		"cordoned for another NodeJob": {
			func(n *plan.Node) { n.Unschedulable, n.CordonedBy = true, []string{"other.everynode.dev/kernel"} },
			false,
			cordoned + "node-2 (it is cordoned for NodeJob other/kernel).",
			makeRoom + "kubectl everynode explain kernel node-2 -n other" + raise,
		},
		"cordoned for an invalid NodeJob": {
			func(n *plan.Node) { n.Unschedulable, n.CordonedBy = true, []string{"x.everynode.dev/$(reboot)"} },
			false,
			cordoned + "node-2 (it is cordoned, and its annotation everynode.dev/cordoned-by names no NodeJob).",
			makeRoom + "kubectl uncordon node-2, when its maintenance is over" + raise,
		},
		"cordoned since it failed there": {
			func(n *plan.Node) {
				ran(n, func(r *record.Record) { failed(r, 4); r.Cordoned = true })
				n.Unschedulable, n.CordonedBy = true, []string{key}
			},
			false,
			cordoned + "node-2 (it is cordoned since this NodeJob failed there).",
			makeRoom + "kubectl everynode retry somaxconn node-2 -n node-setup" + raise,
		},
		"at work": {
			func(*plan.Node) {}, true,
			cordoned + "node-2 (this NodeJob runs there).", "no action needed: it starts automatically when fewer nodes are unavailable",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			in := plan.Input{Job: job(disrupts), Revision: revision, Now: now, Nodes: nodesOf(3, func(i int, n *plan.Node) {
				if i == 1 {
					if !tt.pod {
						ran(n, func(*record.Record) {}) // otherwise it would start: it is unavailable already
					}
					tt.second(n)
				}
			})}
			in.Job.Spec.Rollout.MaxConcurrent = new(intstr.FromInt32(3))
			if tt.pod {
				pod := onNode1(false)
				pod.NodeName, pod.NodeUID, pod.Machine = "node-2", "uid-2", "machine-2/boot"
				in.Pods = append(in.Pods, pod)
			}
			p := plan.Next(in)
			e := Explain{Job: in.Job, Node: &in.Nodes[0], State: p.Nodes[0], Now: now, Budget: BudgetUsers(in.Job, in.Nodes, p.Nodes)}
			if diff := cmp.Diff([]string{tt.sentence, tt.next}, []string{e.Sentence(), next(t, e)}); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// TestWhatANodeWaitsFor checks sentences about a check of spec.expires that fails itself, and a budget that is closed.
func TestWhatANodeWaitsFor(t *testing.T) {
	e := Explain{Job: job(func(j *v1alpha1.NodeJob) { j.Status.Revision = revision }), Node: &plan.Node{Name: "node-1"}, Now: now}
	e.Node.On.Record = &record.Record{Revision: revision, Outcome: record.Needed, Expiry: &record.Expiry{Asked: record.Asked{
		Answer: record.AnswerError, At: before(time.Minute), ExitCode: new(int32(3)), Unanswered: 2,
	}}}
	e.State = plan.NodeState{
		State:   plan.Waiting,
		Reason:  v1alpha1.ReasonBudgetClosed,
		Message: "NodeDisruptionBudget b allows no disruption until Sunday",
	}
	const want = "node-setup/somaxconn has not run on node-1 yet: spec.expires.check itself failed at 12:29:00 UTC"
	if got := e.Sentence(); !strings.HasPrefix(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	const next = "it starts automatically when all budgets of the node allow it. To see when: kubectl everynode budgets"
	if got := e.Next().String(); got != next {
		t.Errorf("next: %q", got)
	}
	e.State.Reason = v1alpha1.ReasonWindowTooShort
	if got := e.Next().String(); got != "it does not start before one of these is changed" {
		t.Errorf("next, with windows that are too short: %q", got)
	}
}

// TestConfirmIsExplained checks what is said before, while and after a task could cut its node off.
func TestConfirmIsExplained(t *testing.T) {
	confirms := func(j *v1alpha1.NodeJob) {
		j.Spec.Rollback = &v1alpha1.RollbackSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "undo"}, TimeoutSeconds: new(int32(30))}
		j.Spec.Confirm = &v1alpha1.ConfirmSpec{
			TimeoutSeconds: new(int32(60)),
			Probes:         []v1alpha1.ConfirmProbe{{Name: "registry", Script: "true"}},
		}
		j.Status.Revision, j.Spec.Rollout.Steps = revision, []v1alpha1.RolloutStep{{Name: "all"}}
	}
	for name, tt := range map[string]struct {
		ready corev1.ConditionStatus
		want  string
	}{
		"a node that is heard": {corev1.ConditionTrue, ", until 12:41:30 UTC (in 11m) at most; if the task cuts the node off, it reverts by itself by then."},
		"a node that is not heard": {
			corev1.ConditionUnknown,
			"node-setup/somaxconn runs on node-1 now: not heard since 2026-07-01T12:29:00Z: if the task has cut it off, it reverts by itself, 1m0s after the end of the task, by 2026-07-01T12:41:30Z at the latest.",
		},
	} {
		in := plan.Input{Job: job(confirms), Revision: revision, Now: now, Nodes: nodesOf(1, func(_ int, n *plan.Node) {
			if n.Ready = tt.ready; n.Ready == corev1.ConditionUnknown {
				n.ReadySince, n.UnreachableSince = time.Time{}, before(time.Minute)
			}
		})}
		pod := onNode1(false)
		pod.Confirm = true
		in.Pods = append(in.Pods, pod)
		e := Explain{Job: in.Job, Node: &in.Nodes[0], State: plan.Next(in).Nodes[0], Now: now, Pods: in.Pods}
		if got := e.Sentence(); !strings.HasSuffix(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
	in := plan.Input{Job: job(confirms), Revision: revision, Now: now, Nodes: nodesOf(1, func(int, *plan.Node) {})}
	p := Plan{Job: in.Job, Plan: plan.Next(in), Revision: revision}
	const want = "after the task, each node waits up to 1m0s until the manager confirms that it responds and 1 probe succeeded; otherwise it runs the rollback by itself, within 30s"
	if got := text.Print(p.Lines(), text.Options{}); !strings.Contains(got, want) {
		t.Errorf("the plan is\n%s\nwant %s", got, want)
	}
}

func TestNodeProblemsAreExplained(t *testing.T) {
	refused := plan.NodeProblem{
		Why: hold.Why{
			Reason:  v1alpha1.ReasonPodNameTaken,
			Message: "pod node-setup/x is not the NodeJob's. Delete it",
			Until:   now.Add(15 * time.Second),
		},
		Since: before(time.Minute),
	}
	stuck := refused
	stuck.Since, stuck.TriedAt = before(2*time.Hour), before(0)
	ended := onNode1(false)
	ended.Phase, ended.Exit = corev1.PodFailed, &plan.Exit{
		Code:     5,
		Finished: before(time.Second),
		Reported: true,
		Reason:   "TaskFailed",
		Message:  "one\ntwo\n",
	}
	tests := map[string]struct {
		trouble        *plan.NodeProblem
		pods           []plan.Pod
		sentence, next string
	}{
		"a taken name": {
			&refused,
			nil,
			"node-setup/somaxconn has not run on node-1 yet: pod node-setup/x is not the NodeJob's. Delete it, until 12:30:15 UTC (in 15s).",
			"it runs automatically when that is fixed",
		},
		"a name that is taken beyond the deadline": {
			&stuck,
			nil,
			"node-setup/somaxconn has failed on node-1: no progress for 3600 s (rollout.progressDeadlineSeconds): pod node-setup/x is not the NodeJob's. Delete it.",
			"it runs automatically when that is fixed. To leave the node out: kubectl everynode skip somaxconn node-1 -n node-setup",
		},
		"an attempt that has ended": {
			nil,
			[]plan.Pod{ended},
			"node-setup/somaxconn runs on node-1 now: attempt 1 (somaxconn-0123456789) ended with exit code 5, and the manager is about to record that.",
			"no action needed: it ends automatically, at its timeout at the latest",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			in := plan.Input{
				Job:   job(func(j *v1alpha1.NodeJob) { j.Spec.Rollout.Steps = nil }),
				Nodes: nodesOf(1, func(int, *plan.Node) {}),
				Pods:  tt.pods,
			}
			in.Job.Status.Revision = revision
			if tt.trouble != nil {
				in.NodeProblems = map[types.UID]plan.NodeProblem{"uid-1": *tt.trouble}
			}
			e := explained(in)
			if diff := cmp.Diff([]string{tt.sentence, tt.next}, []string{e.Sentence(), next(t, e)}); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

func TestAnAlteredRecordIsNamed(t *testing.T) {
	in := plan.Input{Job: job(disrupts), Revision: revision, Now: now, Nodes: nodesOf(1, func(_ int, n *plan.Node) {
		n.On = record.NodeRecord{Label: revision, Altered: true, Present: true}
	})}
	e := Explain{Job: in.Job, Node: &in.Nodes[0], State: plan.Next(in).Nodes[0], Now: now, Step: "all"}
	drawn(t, "explain-an-altered-record", func(width int) []text.Line {
		e.Width = width
		return e.Lines()
	})
}

func TestManyUsersOfTheBudgetAreBounded(t *testing.T) {
	in := plan.Input{Job: job(disrupts), Revision: revision, Now: now, Nodes: nodesOf(20, func(i int, n *plan.Node) {
		if i > 0 {
			ran(n, func(*record.Record) {})
			n.Unschedulable = true
		}
	})}
	p := plan.Next(in)
	e := Explain{Job: in.Job, Node: &in.Nodes[0], State: p.Nodes[0], Now: now, Step: "all", Budget: BudgetUsers(in.Job, in.Nodes, p.Nodes)}
	drawn(t, "explain-waits-for-budget", func(width int) []text.Line {
		e.Width = width
		return e.Lines()
	})
}

// takesRack has the task take a label from the node.
func takesRack(j *v1alpha1.NodeJob) {
	ref := &v1alpha1.NodeFieldSelector{FieldPath: "metadata.labels['example.com/rack']"}
	j.Spec.Task.Env = []v1alpha1.EnvVar{{Name: "RACK", ValueFrom: &v1alpha1.EnvVarSource{NodeFieldRef: ref}}}
}

func TestSentencesAboutANode(t *testing.T) {
	const retry = "kubectl everynode retry somaxconn node-1 -n node-setup"
	const skip = "; or leave the node out: kubectl everynode skip somaxconn node-1 -n node-setup"
	exhausted := func(change func(*record.Record)) func(*plan.Node) {
		return func(n *plan.Node) {
			ran(n, func(r *record.Record) { failed(r, 4); change(r) })
		}
	}
	rollsBack := func(j *v1alpha1.NodeJob) {
		j.Spec.Rollback = &v1alpha1.RollbackSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "true"}}
	}
	tests := map[string]struct {
		job            func(*v1alpha1.NodeJob)
		node           func(*plan.Node)
		sentence, next string
	}{
		"skipped after a failure": {
			nil,
			func(n *plan.Node) { exhausted(func(*record.Record) {})(n); n.On.Label = revision },
			"node-setup/somaxconn is done on node-1 by its label alone, without a success on record: the label was set by hand, as skip does.",
			"it runs again after a change of the task, or kubectl everynode rerun somaxconn node-1 -n node-setup",
		},
		"an altered record": {
			nil,
			func(n *plan.Node) {
				n.On = record.NodeRecord{Altered: true, Present: true}
				n.Ready = corev1.ConditionUnknown
			},
			"node-setup/somaxconn has no valid record on node-1, since the one there was changed by something other than the manager and is ignored: the node is unreachable (Ready=Unknown).",
			"it runs automatically when the node reports again. To see why it does not: kubectl describe node node-1",
		},
		"a label with an altered record": {
			nil,
			func(n *plan.Node) { n.On = record.NodeRecord{Label: revision, Altered: true, Present: true} },
			"node-setup/somaxconn is done on node-1 by its label alone: the record there was changed by something other than the manager, and is ignored.",
			"it runs again after a change of the task, or kubectl everynode rerun somaxconn node-1 -n node-setup",
		},
		"not on Linux": {
			nil, func(n *plan.Node) { n.Labels[corev1.LabelOSStable] = "windows" },
			`node-setup/somaxconn is not for node-1: its label kubernetes.io/os is "windows", and the task runs on linux nodes.`,
			"scripts and commands run on Linux nodes only: for other nodes use spec.task.template with spec.os",
		},
		"done with an earlier revision that counts": {
			func(j *v1alpha1.NodeJob) { j.Spec.Rerun.OnRevisionChange = new(false) },
			func(n *plan.Node) { ran(n, func(r *record.Record) { r.Revision = "0ldc0de" }); n.On.Label = "0ldc0de" },
			"node-setup/somaxconn has been done on node-1 since 12:21:00 UTC (9m ago), with the earlier revision 0ldc0de, which counts since spec.rerun.onRevisionChange is false.",
			"it runs again after kubectl everynode rerun somaxconn node-1 -n node-setup",
		},
		"failed, and the rollback failed as well": {
			rollsBack,
			exhausted(func(r *record.Record) { rolledBack(r); r.Rollback.Outcome, r.Rollback.Attempts = record.Failed, 4 }),
			"node-setup/somaxconn has failed on node-1 after 4 attempts, the last 9m ago: TaskFailed, exit code 3: cannot write; its rollback failed as well, exit code 0.",
			"check the state of the node, then retry it: " + retry + skip,
		},
		"cut off, and reverted by itself": {
			rollsBack,
			exhausted(func(r *record.Record) {
				rolledBack(r)
				r.Reverted, r.Reason, r.Message = true, v1alpha1.ReasonReverted, "loaded\nthe node was not confirmed within 20s"
			}),
			"node-setup/somaxconn has failed on node-1 after 4 attempts, the last 9m ago: Reverted, exit code 3: the node was not confirmed within 20s; it was rolled back.",
			"fix the task: it then runs again. A retry without that would cut nodes off again. Otherwise, leave the node out: kubectl everynode skip somaxconn node-1 -n node-setup; or retry it: " + retry,
		},
		"failed, and is being rolled back": {
			rollsBack,
			exhausted(func(*record.Record) {}),
			"node-setup/somaxconn has failed on node-1 after 4 attempts, the last 9m ago: TaskFailed, exit code 3: cannot write; its rollback runs now.",
			"no action needed for the rollback. To run the task again: " + retry,
		},
		"unreachable after a failure": {
			nil,
			func(n *plan.Node) { ran(n, func(r *record.Record) { failed(r, 1) }); n.Ready = corev1.ConditionUnknown },
			"node-setup/somaxconn has failed on node-1 after 1 attempt, the last 9m ago: the node has been unreachable (Ready=Unknown) since an attempt failed on it; it continues when the node is reachable again.",
			"see why the node does not report: kubectl describe node node-1. The task is retried when the node is back",
		},
		"without a value that the task takes from it": {
			takesRack,
			func(*plan.Node) {},
			"node-setup/somaxconn has not run on node-1 yet: spec.task.env: RACK takes metadata.labels['example.com/rack'] from the Node, which does not have it: set it, or valueFrom.nodeFieldRef.default.",
			"it runs automatically when the Node has the value. To see what it has: kubectl describe node node-1",
		},
		"with a value that has just changed": {
			func(j *v1alpha1.NodeJob) { takesRack(j); j.Spec.Rerun.OnNodeFieldChange = true },
			func(n *plan.Node) {
				ran(n, func(r *record.Record) { r.Inputs, r.FinishedAt = "other", before(20*time.Second) })
				n.Labels["example.com/rack"] = "7"
			},
			"node-setup/somaxconn waits to run again on node-1, where it succeeded 20s ago: the values that task.env takes from the Node have changed (rerun.onNodeFieldChange); it starts at least 60 s after the last run, until 12:30:40 UTC (in 40s).",
			"no action needed: it starts automatically",
		},
		"done with a value that it has": {
			func(j *v1alpha1.NodeJob) { takesRack(j); j.Spec.Rerun.OnNodeFieldChange = true },
			func(n *plan.Node) { ran(n, func(*record.Record) {}); n.Labels["example.com/rack"] = "7" },
			"node-setup/somaxconn has been done on node-1 since 12:21:00 UTC (9m ago).",
			"it runs again after a change of the task, or a change of the values that task.env takes from the Node, or kubectl everynode rerun somaxconn node-1 -n node-setup",
		},
		"due by its schedule, and suspended": {
			func(j *v1alpha1.NodeJob) { j.Spec.Rerun.PeriodSeconds, j.Spec.Suspend = 60, true },
			func(n *plan.Node) { ran(n, func(*record.Record) {}) },
			"node-setup/somaxconn waits to run again on node-1, where it succeeded 9m ago: spec.suspend is true.",
			"it can run after: kubectl everynode resume somaxconn -n node-setup",
		},
		"not named, with a selector": {
			func(j *v1alpha1.NodeJob) {
				j.Spec.Nodes.Names, j.Spec.Nodes.Selector = []string{
					"node-2",
				}, &metav1.LabelSelector{
					MatchLabels: map[string]string{"pool": "web"},
				}
			}, nil,
			"node-setup/somaxconn is not for node-1: spec.nodes.names does not name it.", "it would run if spec.nodes.names named it",
		},
		"a selector that cannot be used": {
			func(j *v1alpha1.NodeJob) {
				j.Spec.Nodes.Selector = &metav1.LabelSelector{
					MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}},
				}
			}, nil,
			"node-setup/somaxconn is not for node-1: spec.nodes.selector does not match its labels.",
			`correct spec.nodes.selector, which cannot be used: "Near" is not a valid label selector operator`,
		},
		"while the previous step soaks": {
			func(j *v1alpha1.NodeJob) {
				j.Spec.Rollout.Steps = []v1alpha1.RolloutStep{
					{Name: "canary", Nodes: new(intstr.FromInt32(1)), SoakSeconds: 600},
					{Name: "all"},
				}
				j.Status.Rollout = &v1alpha1.RolloutStatus{Step: "canary", SoakingSince: metav1.NewTime(before(time.Minute))}
			}, func(n *plan.Node) { n.Created = before(time.Minute) },
			"node-setup/somaxconn has not run on node-1 yet: it is in step all, and step canary soaks until 2026-07-01T12:39:00Z.",
			"no action needed: it starts automatically",
		},
		"being deleted": {
			func(j *v1alpha1.NodeJob) {
				j.DeletionTimestamp, j.Spec.DeletionPolicy = &metav1.Time{Time: before(time.Minute)}, v1alpha1.DeletionForget
			},
			func(n *plan.Node) { ran(n, func(*record.Record) {}) },
			"node-setup/somaxconn is being deleted (deletionPolicy Forget).",
			"see how far the deletion is: kubectl everynode status somaxconn -n node-setup --watch",
		},
		"being deleted, with conditions from before": {
			func(j *v1alpha1.NodeJob) {
				j.DeletionTimestamp, j.Spec.DeletionPolicy, j.Generation = &metav1.Time{
					Time: before(time.Minute),
				}, v1alpha1.DeletionForget, 2
				j.Status.ObservedGeneration = 1
				j.Status.Conditions = []metav1.Condition{
					{Type: v1alpha1.ConditionReconciling, Status: metav1.ConditionTrue, Message: "1 running"},
				}
			}, nil,
			"node-setup/somaxconn is being deleted (deletionPolicy Forget).",
			"see how far the deletion is: kubectl everynode status somaxconn -n node-setup --watch",
		},
		"being rolled back for its deletion": {
			func(j *v1alpha1.NodeJob) {
				rollsBack(j)
				j.DeletionTimestamp, j.Spec.DeletionPolicy = &metav1.Time{Time: before(time.Minute)}, v1alpha1.DeletionRollback
			},
			func(n *plan.Node) { ran(n, func(*record.Record) {}); n.Ready = corev1.ConditionUnknown },
			"node-setup/somaxconn is being deleted (deletionPolicy Rollback); on node-1: the node is unreachable (Ready=Unknown).",
			"see how far the deletion is: kubectl everynode status somaxconn -n node-setup --watch",
		},
		"waits for promotion to its step": {
			func(j *v1alpha1.NodeJob) {
				j.Spec.Rollout.Steps = []v1alpha1.RolloutStep{{Name: "canary", Nodes: new(intstr.FromInt32(1))}, {Name: "all"}}
				j.Spec.Rollout.PromoteTo = "canary"
			}, func(n *plan.Node) { n.Created = before(time.Minute) },
			"node-setup/somaxconn has not run on node-1 yet: it is in step all, and rollout.promoteTo is canary.",
			"it can run after: kubectl everynode promote somaxconn --to all -n node-setup",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			in := plan.Input{Revision: revision, Now: now, Job: job(func(j *v1alpha1.NodeJob) {
				j.Status.Revision, j.Spec.Rollout.Steps = revision, nil
				if tt.job != nil {
					tt.job(j)
				}
			}), Nodes: nodesOf(2, func(i int, n *plan.Node) {
				switch {
				case i == 0 && tt.node != nil:
					tt.node(n)
				case i == 1 && (name == "while the previous step soaks" || name == "waits for promotion to its step"):
					ran(n, func(*record.Record) {})
				}
			})}
			e := Explain{Job: in.Job, Node: &in.Nodes[0], Now: now}
			p := plan.Next(in)
			e.State = StateOf(in.Job, p, 0)
			for _, step := range p.Steps {
				if slices.Contains(step.Nodes, 0) {
					e.Step = step.Name
				}
			}
			if diff := cmp.Diff([]string{tt.sentence, tt.next}, []string{e.Sentence(), next(t, e)}); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}
