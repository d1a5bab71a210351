// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/text"
)

func job(change func(*v1alpha1.NodeJob)) *v1alpha1.NodeJob {
	j := &v1alpha1.NodeJob{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:         "node-setup",
			Name:              "somaxconn",
			Generation:        2,
			CreationTimestamp: metav1.NewTime(before(3 * time.Hour)),
		},
		Spec: v1alpha1.NodeJobSpec{Rollout: v1alpha1.RolloutSpec{Steps: []v1alpha1.RolloutStep{
			{Name: "canary", SoakSeconds: 600}, {Name: "staging"}, {Name: "all"},
		}}},
		Status: v1alpha1.NodeJobStatus{ObservedGeneration: 2, Revision: "7d9f2c41"},
	}
	change(j)
	return j
}

// stands sets the only condition that is True.
func stands(j *v1alpha1.NodeJob, kind, reason, message string) {
	for _, k := range []string{v1alpha1.ConditionComplete, v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled} {
		c := metav1.Condition{Type: k, Status: metav1.ConditionFalse, Reason: reason, Message: message}
		if k == kind {
			c.Status = metav1.ConditionTrue
		}
		j.Status.Conditions = append(j.Status.Conditions, c)
	}
}

// remedyOf is how a condition ends that names the remedies for failed nodes.
func remedyOf(j *v1alpha1.NodeJob) string {
	return plan.FailureRemedies(plan.FixTask, true).Kubectl(j, j.Status.Revision)
}

func at(d time.Duration) metav1.Time { return metav1.NewTime(before(d)) }

func rollout(j *v1alpha1.NodeJob, step string, steps ...v1alpha1.StepStatus) {
	j.Status.Rollout = &v1alpha1.RolloutStatus{Step: step, StepStartedAt: at(4 * time.Minute), Steps: steps}
}

// audited is the status of an audit of 4 nodes, some of which are not compliant.
func audited(j *v1alpha1.NodeJob, nonCompliant int32) {
	j.Spec.Task = v1alpha1.TaskSpec{Check: &v1alpha1.CheckSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "true"}}}
	stands(
		j, v1alpha1.ConditionComplete, v1alpha1.ReasonNonCompliant,
		fmt.Sprintf("%d of 4 nodes are compliant, %d not compliant (node-1: PermitRootLogin is yes; node-2)", 4-nonCompliant, nonCompliant),
	)
	j.Status.Nodes = v1alpha1.NodeCounts{Total: 4, Done: 4, NonCompliant: nonCompliant}
	rollout(j, "all", v1alpha1.StepStatus{Name: "all", Nodes: 4, Done: 4})
	j.Status.Rollout.StableAt = at(time.Hour)
}

func TestStatusAsPeopleSeeIt(t *testing.T) {
	tests := map[string]Status{
		"audit": {Job: job(func(j *v1alpha1.NodeJob) { audited(j, 2) }), Rows: []NodeRow{
			{
				State: plan.NodeState{
					Name:    "node-1",
					State:   plan.Done,
					Reason:  v1alpha1.ReasonNonCompliant,
					Message: "task.check has answered no",
				},
				Step: "all",
			},
			{
				State: plan.NodeState{
					Name:    "node-2",
					State:   plan.Done,
					Reason:  v1alpha1.ReasonNonCompliant,
					Message: "task.check has answered no",
				},
				Step: "all",
			},
			{State: plan.NodeState{Name: "node-3", State: plan.Done, Reason: v1alpha1.ReasonDone}, Step: "all"},
		}},
		"done-everywhere": {Job: job(func(j *v1alpha1.NodeJob) {
			stands(j, v1alpha1.ConditionComplete, v1alpha1.ReasonAllNodesDone, "3 of 3 nodes are done")
			j.Status.Nodes = v1alpha1.NodeCounts{Total: 3, Done: 3}
			rollout(
				j,
				"all",
				v1alpha1.StepStatus{Name: "canary", Nodes: 1, Done: 1},
				v1alpha1.StepStatus{Name: "staging", Nodes: 1, Done: 1},
				v1alpha1.StepStatus{Name: "all", Nodes: 1, Done: 1},
			)
			j.Status.Rollout.StableAt = at(time.Hour)
		})},
		"done-where-it-is-not-excluded": {NotSelected: 12, Job: job(func(j *v1alpha1.NodeJob) {
			stands(
				j,
				v1alpha1.ConditionComplete,
				v1alpha1.ReasonAllNodesDone,
				"3 of 3 nodes are done; 9 nodes are excluded by a taint, 1 node is excluded by the operating system",
			)
			j.Status.Nodes = v1alpha1.NodeCounts{Total: 3, Done: 3, Excluded: 10}
			j.Status.Excluded = []v1alpha1.ExcludedNodes{
				{
					Nodes:   5,
					Message: "it has the taint dedicated=db:NoSchedule",
					Reason:  v1alpha1.ReasonUntoleratedTaint,
					Names:   []string{"node-4", "node-5", "node-6"},
				},
				{
					Nodes:   1,
					Message: `its label kubernetes.io/os is "windows", and the task runs on linux nodes`,
					Reason:  v1alpha1.ReasonUnsupportedOS,
					Names:   []string{"node-3\x1b[2J"},
				},
			}
			rollout(j, "all", v1alpha1.StepStatus{Name: "all", Nodes: 3, Done: 3})
		})},
		"canary-soaks": {Job: job(func(j *v1alpha1.NodeJob) {
			j.Annotations = map[string]string{
				v1alpha1.ChangedByAnnotation:   "jane@example.com",
				v1alpha1.RequestedByAnnotation: "bob@example.com\x1b[2J",
			}
			stands(
				j,
				v1alpha1.ConditionReconciling,
				v1alpha1.ReasonSoaking,
				"1 of 3 nodes are done; waiting: 2 WaitingForStep (node-2, …); step canary soaks until 2026-07-01T12:37:00Z",
			)
			j.Status.Nodes = v1alpha1.NodeCounts{Total: 3, Done: 1, Waiting: 2}
			j.Spec.Rollout.PromoteTo = "staging"
			rollout(
				j,
				"canary",
				v1alpha1.StepStatus{Name: "canary", Nodes: 1, Done: 1},
				v1alpha1.StepStatus{Name: "staging", Nodes: 1},
				v1alpha1.StepStatus{Name: "all", Nodes: 1},
			)
			j.Status.Rollout.SoakingSince = at(3 * time.Minute)
		})},
		"three-thousand-nodes-of-which-some-fail": thousands(),
		"stopped-with-hostile-output": {Job: job(func(j *v1alpha1.NodeJob) {
			j.Annotations = map[string]string{
				v1alpha1.ChangedByAnnotation: "jane\x1b[2J\n\u202eStatus    AllNodesDone" + strings.Repeat("x", 300),
			}
			stands(
				j,
				v1alpha1.ConditionStalled,
				v1alpha1.ReasonMaxFailuresExceeded,
				"the rollout has stopped: 1 node failed, and rollout.maxFailures allows 0 (node-1: TaskFailed, exit code 1: done). "+remedyOf(
					j,
				),
			)
			j.Status.Nodes = v1alpha1.NodeCounts{Total: 3, Failed: 1, Waiting: 2, RollbackFailed: 1}
			j.Status.Conditions = append(
				j.Status.Conditions,
				metav1.Condition{Type: v1alpha1.ConditionRollbackFailed, Status: metav1.ConditionTrue,
					Message: "the rollback also failed on 1 node (node-1). Check the state of these nodes"},
			)
			rollout(
				j,
				"canary",
				v1alpha1.StepStatus{Name: "canary", Nodes: 1, Failed: 1},
				v1alpha1.StepStatus{Name: "staging", Nodes: 1},
				v1alpha1.StepStatus{Name: "all", Nodes: 1},
			)
			j.Status.Failures = []v1alpha1.NodeFailure{
				{
					Node:       "node-1",
					Attempts:   4,
					ExitCode:   new(int32(1)),
					Reason:     "TaskFailed",
					FinishedAt: at(2 * time.Minute),
					Rollback:   "RollbackFailed",
					Quarantine: "Drained",
					Message: "first\nwriting\x1b[2J\x1b[H all is well\rReally\ttrue\n\u202egnp.exe\u202c\u200b " + strings.Repeat(
						"wide 漢字 ",
						30,
					) + "\n",
					RollbackMessage: "sysctl: cannot stat /proc/sys/net\n",
				},
			}
			j.Status.Drains = []v1alpha1.NodeDrain{
				{
					Node:     "node-3",
					Since:    at(time.Minute),
					Deadline: metav1.NewTime(now.Add(9 * time.Minute)),
					Pods:     2,
					Blocked: []v1alpha1.BlockedPod{
						{Pod: "shop/db-0", Message: "The disruption budget db needs 2 healthy pods and has 2 currently"},
					},
				},
			}
		})},
		"a-name-that-is-taken": {Job: job(func(j *v1alpha1.NodeJob) {
			stands(
				j,
				v1alpha1.ConditionStalled,
				v1alpha1.ReasonPodNameTaken,
				"1 of 2 nodes are done; the manager cannot continue on 1 node (node-2)",
			)
			j.Status.Nodes = v1alpha1.NodeCounts{Total: 2, Done: 1, Waiting: 1}
			j.Status.NodeProblems = []v1alpha1.NodeProblem{{Node: "node-2", Reason: v1alpha1.ReasonPodNameTaken, Since: at(5 * time.Minute),
				Message: "pod somaxconn-7d9f2c41-x belongs to another owner\x1b[2J: delete it, and the manager continues automatically"}}
		})},
		"no-manager": {Job: job(func(j *v1alpha1.NodeJob) { j.Status = v1alpha1.NodeJobStatus{} })},
		"gate-and-a-pod-that-does-not-start": {
			Job: job(func(j *v1alpha1.NodeJob) {
				stands(
					j,
					v1alpha1.ConditionReconciling,
					v1alpha1.ReasonPodNotStarting,
					"on 1 node the pod does not start (node-2: ImagePullBackOff: image registry.example/tool:1). Check the image's name",
				)
				j.Status.Nodes = v1alpha1.NodeCounts{Total: 3, Done: 1, Running: 2}
				j.Status.Gate = &v1alpha1.GateStatus{Key: "node-setup.everynode.dev/somaxconn", Effect: v1alpha1.GateNoSchedule, Closed: 2}
				j.Status.Conditions = append(
					j.Status.Conditions,
					metav1.Condition{
						Type:    v1alpha1.ConditionGateEnforced,
						Status:  metav1.ConditionFalse,
						Message: "there is no MutatingAdmissionPolicy everynode-gate: apply config/gate. The manager taints a node a moment after its creation",
					},
				)
				rollout(j, "all", v1alpha1.StepStatus{Name: "canary", Nodes: 1, Done: 1}, v1alpha1.StepStatus{Name: "all", Nodes: 2})
			}),
			Running: []Attempt{
				{Node: "node-2", Number: 2, Created: before(95 * time.Second), Waiting: "ImagePullBackOff: image registry.example/tool:1"},
				{Node: "node-3", Phase: "rollback", Number: 1, Created: before(40 * time.Second)},
				{Node: "node-4", Phase: "task", Number: 1, Created: before(4 * time.Second), Started: before(3 * time.Second)},
			},
		},
		"aborted": {
			Job: job(func(j *v1alpha1.NodeJob) {
				stands(j, v1alpha1.ConditionReconciling, v1alpha1.ReasonSuspended, "spec.suspend is true")
				j.Spec.Suspend = true
				j.Status.Nodes = v1alpha1.NodeCounts{Total: 1, Waiting: 1}
				j.Status.Failures = []v1alpha1.NodeFailure{
					{Node: "node-1", Attempts: 1, Retrying: true, Reason: "Disrupted", FinishedAt: at(time.Minute)},
				}
			}),
		},
		"a-deletion-that-is-blocked": {
			Job: job(func(j *v1alpha1.NodeJob) {
				deleted := at(time.Minute)
				j.DeletionTimestamp, j.Spec.DeletionPolicy = &deleted, v1alpha1.DeletionRollback
				stands(
					j,
					v1alpha1.ConditionStalled,
					v1alpha1.ReasonRollbackFailed,
					plan.BeingDeleted+"; on 1 node the task is still to be rolled back: node-1: the rollback has failed: TaskFailed, exit code 5: no way back. "+plan.DeletionRemedies().
						Kubectl(j, ""),
				)
				j.Status.Conditions = append(
					j.Status.Conditions,
					metav1.Condition{
						Type:    v1alpha1.ConditionRollbackFailed,
						Status:  metav1.ConditionTrue,
						Message: "the rollback also failed on 1 node",
					},
				)
				j.Status.Nodes = v1alpha1.NodeCounts{Total: 1, Failed: 1}
				rollout(j, "all", v1alpha1.StepStatus{Name: "all", Nodes: 1, Done: 1})
				j.Status.Failures = []v1alpha1.NodeFailure{
					{Node: "node-1", Attempts: 2, FinishedAt: at(time.Minute), Rollback: "RollbackFailed", RollbackMessage: "no way back"},
				}
			}),
		},
		"being-deleted-and-pods-forbidden": {
			Job: job(func(j *v1alpha1.NodeJob) {
				stands(j, v1alpha1.ConditionReconciling, v1alpha1.ReasonRollingBack, "2 nodes are still to be rolled back")
				deleted := at(time.Minute)
				j.DeletionTimestamp, j.Spec.DeletionPolicy = &deleted, v1alpha1.DeletionRollback
				j.Status.Nodes = v1alpha1.NodeCounts{Total: 2, Running: 1, Waiting: 1}
			}),
			RunningUnknown: "what runs cannot be seen: jane may not list pods in namespace node-setup",
		},
	}
	for name, s := range tests {
		t.Run(name, func(t *testing.T) {
			s.Now = now
			drawn(t, "status-"+name, func(width int) []text.Line {
				s.Width = width
				return s.Lines()
			})
		})
	}
}

// thousands is a rollout to 3,000 nodes in progress.
func thousands() Status {
	s := Status{Job: job(func(j *v1alpha1.NodeJob) {
		stands(
			j,
			v1alpha1.ConditionReconciling,
			v1alpha1.ReasonInProgress,
			"1203 of 3000 nodes are done, 14 failed, 300 running; waiting: 1483 WaitingForSlot (ip-10-0-4-17.eu-west-1.compute.internal, …)",
		)
		j.Status.Nodes = v1alpha1.NodeCounts{Total: 3000, Done: 1203, Running: 300, Waiting: 1483, Failed: 14, RolledBack: 12}
		rollout(
			j,
			"all",
			v1alpha1.StepStatus{Name: "canary", Nodes: 1, Done: 1},
			v1alpha1.StepStatus{Name: "staging", Nodes: 100, Done: 99, Failed: 1},
			v1alpha1.StepStatus{Name: "all", Nodes: 2899, Done: 1103, Failed: 13},
		)
		for i := range 10 {
			j.Status.Failures = append(
				j.Status.Failures,
				v1alpha1.NodeFailure{
					Node:       fmt.Sprintf("ip-10-0-7-%d.eu-west-1.compute.internal", i),
					Attempts:   4,
					ExitCode:   new(int32(3)),
					Retrying:   i > 7,
					Reason:     "CheckFailed",
					FinishedAt: at(time.Duration(i) * time.Minute),
					Rollback:   "RolledBack",
					Message:    fmt.Sprintf("expected 4096\ngot %d\n", i),
				},
			)
		}
		j.Status.Rollout.UnrecordedFailures = []v1alpha1.UnrecordedFailure{
			{Node: "ip-10-0-9-9.eu-west-1.compute.internal", Reason: v1alpha1.ReasonNotReadyNodeDeleted, At: at(time.Hour)},
		}
	})}
	for i := range 300 {
		s.Running = append(
			s.Running,
			Attempt{
				Node:    fmt.Sprintf("ip-10-0-5-%d.eu-west-1.compute.internal", i),
				Number:  1,
				Created: before(time.Duration(300-i) * time.Second),
				Started: before(time.Second),
			},
		)
	}
	return s
}

func TestAListAsPeopleSeeIt(t *testing.T) {
	big := thousands().Job
	small := job(func(j *v1alpha1.NodeJob) {
		stands(j, v1alpha1.ConditionComplete, v1alpha1.ReasonAllNodesDone, "3 of 3 nodes are done")
		j.Name, j.Status.Nodes = "max-map-count", v1alpha1.NodeCounts{Total: 3, Done: 3}
	})
	fresh := job(func(j *v1alpha1.NodeJob) {
		j.Name, j.Namespace, j.Status = "facts", "default", v1alpha1.NodeJobStatus{}
	})
	audit := job(func(j *v1alpha1.NodeJob) {
		audited(j, 4)
		j.Name = "sshd-audit"
	})
	jobs := []v1alpha1.NodeJob{*fresh, *small, *big, *audit}
	drawn(t, "list", func(int) []text.Line { return List{Jobs: jobs, Namespaces: true, Now: now}.Lines() })
	drawn(t, "list-wide", func(int) []text.Line { return List{Jobs: jobs[1:], Wide: true, Now: now}.Lines() })
}

// TestTheTableOfNodesHasThoseThatAreExcluded checks that no selected node is missing, and that the others are counted.
func TestTheTableOfNodesHasThoseThatAreExcluded(t *testing.T) {
	p := withReboots().Plan
	in := plan.Input{Nodes: make([]plan.Node, len(p.Nodes))}
	printed := text.Print(NodeTable(now, revision, NodeRows(in, p), false), text.Options{})
	for name, want := range map[string]bool{"node-1": true, "node-3  Excluded": true, "it has the taint gpu=true:NoSchedule": true, "node-4": false} {
		if strings.Contains(printed, name) != want {
			t.Errorf("%s: want %t in\n%s", name, want, printed)
		}
	}
	if n := NotSelected(p.Nodes); n != 1 {
		t.Errorf("%d nodes are not selected, want 1", n)
	}
}

func TestAllNodesAreShownOnRequest(t *testing.T) {
	s := thousands()
	s.Now, s.All = now, true
	printed := text.Print(s.Lines(), text.Options{})
	for _, want := range []string{"ip-10-0-5-0.", "ip-10-0-5-299."} {
		if !strings.Contains(printed, want) {
			t.Errorf("%s is not in it", want)
		}
	}
}

// TestAPromotionEndsWithItsCommand checks the command of this program, in place of that of the condition.
func TestAPromotionEndsWithItsCommand(t *testing.T) {
	const (
		passed = "step canary has passed; 1 of 3 nodes are done. "
		waits  = passed + "To continue with step staging: "
	)
	awaiting := func(promoteTo, remedy string) *v1alpha1.NodeJob {
		return job(func(j *v1alpha1.NodeJob) {
			j.Spec.Rollout.PromoteTo = promoteTo
			rollout(
				j,
				"canary",
				v1alpha1.StepStatus{Name: "canary"},
				v1alpha1.StepStatus{Name: "staging"},
				v1alpha1.StepStatus{Name: "all"},
			)
			stands(j, "", v1alpha1.ReasonAwaitingPromotion, passed+remedy)
		})
	}
	patch := plan.PromotionRemedies("staging").Kubectl(awaiting("", ""), "")
	tests := map[string]struct {
		job  *v1alpha1.NodeJob
		want string
	}{
		"a promotion to the next step": {awaiting("canary", patch), waits + "kubectl everynode promote somaxconn -n node-setup"},
		"the last step":                {awaiting("all", patch), passed + patch},
		"a step that does not exist":   {awaiting("misspelled", patch), passed + patch},
		"no step":                      {awaiting("", patch), passed + patch},
		"another command":              {awaiting("canary", "a newer command"), passed + "a newer command"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if _, reason, got, _ := Situation(tt.job); got != tt.want || reason != v1alpha1.ReasonAwaitingPromotion {
				t.Errorf("%s: %q, want %q", reason, got, tt.want)
			}
		})
	}
}

// TestALogOfChangesHasTheFailures checks that the log of a CI job shows why an attempt failed before the last one has.
func TestALogOfChangesHasTheFailures(t *testing.T) {
	s := Status{Now: now, Job: job(func(j *v1alpha1.NodeJob) {
		stands(j, v1alpha1.ConditionReconciling, v1alpha1.ReasonInProgress, "0 of 2 nodes are done; waiting: 2 BackingOff (node-1, …)")
		for i, retrying := range []bool{false, true, true, true, true} {
			j.Status.Failures = append(
				j.Status.Failures,
				v1alpha1.NodeFailure{
					Node:     fmt.Sprint("node-", i),
					Retrying: retrying,
					Reason:   "TaskFailed",
					ExitCode: new(int32(3)),
					Message:  "looking\nno disk\n",
				},
			)
		}
	})}
	const want = "node-setup/somaxconn  InProgress  0 of 2 nodes are done; waiting: 2 BackingOff (node-1, …)" +
		"; node-1: TaskFailed, exit code 3: no disk; node-2: TaskFailed, exit code 3: no disk; node-3: TaskFailed, exit code 3: no disk\n"
	if got := text.Print([]text.Line{s.Summary()}, text.Options{}); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestAStepWithFailuresHasNotPassed checks that failures are not shown in green.
func TestAStepWithFailuresHasNotPassed(t *testing.T) {
	s := Status{Now: now, Job: job(func(j *v1alpha1.NodeJob) {
		rollout(
			j,
			"all",
			v1alpha1.StepStatus{Name: "canary", Nodes: 1, Done: 1},
			v1alpha1.StepStatus{Name: "staging", Nodes: 3, Done: 1, Failed: 2},
			v1alpha1.StepStatus{Name: "all", Nodes: 3, Done: 2, Failed: 1},
		)
		j.Status.Rollout.StableAt = at(time.Minute)
	})}
	steps := s.Steps()
	for i, want := range []string{"passed", "ended with 2 failures", "ended with 1 failure 12:29:00 UTC"} {
		if steps[i].State != want || (steps[i].Tone == text.Good) != (i == 0) {
			t.Errorf("%s: %q with tone %d, want %q", steps[i].Name, steps[i].State, steps[i].Tone, want)
		}
	}
}

// TestNoStepOfANodeJobThatIsDoneWaits covers a change that is needed on no node: its canary has never found a node.
func TestNoStepOfANodeJobThatIsDoneWaits(t *testing.T) {
	s := Status{Now: now, Job: job(func(j *v1alpha1.NodeJob) {
		stands(j, v1alpha1.ConditionComplete, v1alpha1.ReasonAllNodesDone, "3 of 3 nodes are done; needed on no node")
		rollout(j, "canary", v1alpha1.StepStatus{Name: "canary"}, v1alpha1.StepStatus{Name: "all", Nodes: 3, Done: 3})
	})}
	for _, step := range s.Steps() {
		if step.State != v1alpha1.ReasonAllNodesDone || step.Tone != text.Good {
			t.Errorf("%s: %q with tone %d", step.Name, step.State, step.Tone)
		}
	}
}

// TestTheNodesOfAStepAddUp checks that each node of a step is in its counts once.
func TestTheNodesOfAStepAddUp(t *testing.T) {
	s := Status{Job: job(func(j *v1alpha1.NodeJob) { j.Spec.Rollout.Steps[0].Nodes = new(intstr.FromInt32(1)) })}
	tests := map[string]struct {
		step v1alpha1.StepStatus
		want string
	}{
		"a canary":             {v1alpha1.StepStatus{Name: "canary", Nodes: 1}, "0 of 1 done"},
		"a canary that failed": {v1alpha1.StepStatus{Name: "canary", Nodes: 1, Failed: 1}, "0 of 1 done, 1 failed"},
		"another node in its place": {
			v1alpha1.StepStatus{Name: "canary", Nodes: 2, Done: 1, Failed: 1},
			"1 of 1 done, 1 other failed",
		},
		"no node is left":                     {v1alpha1.StepStatus{Name: "canary", Nodes: 2, Failed: 2}, "0 of 2 done, 2 failed"},
		"no node needs the task":              {v1alpha1.StepStatus{Name: "canary"}, "no nodes"},
		"a failed node of a step without one": {v1alpha1.StepStatus{Name: "all", Nodes: 5, Done: 3, Failed: 1}, "3 of 5 done, 1 failed"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := s.stepCounts(tt.step); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// treeOf is a rollout of which each step has nodes in all states.
func treeOf(waiting int) Status {
	s := Status{Now: now, Unicode: true, Job: job(func(j *v1alpha1.NodeJob) {
		stands(j, v1alpha1.ConditionReconciling, v1alpha1.ReasonInProgress, "3 of 9 nodes are done")
		j.Spec.Rollout.PromoteTo = "staging"
		rollout(
			j,
			"staging",
			v1alpha1.StepStatus{Name: "canary", Nodes: 1, Done: 1},
			v1alpha1.StepStatus{Name: "staging", Nodes: int32(7 + waiting), Done: 2, Failed: 1},
			v1alpha1.StepStatus{Name: "all", Nodes: int32(waiting)},
		)
		j.Status.Nodes = v1alpha1.NodeCounts{
			Total:    int32(8 + 2*waiting),
			Done:     3,
			Running:  3,
			Failed:   1,
			Waiting:  int32(2*waiting + 1),
			Excluded: 1,
		}
		j.Status.Failures = []v1alpha1.NodeFailure{
			{
				Node:       "node-2\x1b[2J",
				Attempts:   4,
				ExitCode:   new(int32(3)),
				Reason:     "TaskFailed",
				FinishedAt: at(time.Minute),
				Message:    "looking\nno disk at /dev/sdz\n",
			},
			{
				Node:       "node-3",
				Attempts:   1,
				ExitCode:   new(int32(1)),
				Retrying:   true,
				Reason:     "TaskFailed",
				FinishedAt: at(time.Second),
				Message:    "busy\n",
			},
			{Node: "gone", Attempts: 1, ExitCode: new(int32(1)), Reason: "TaskFailed", FinishedAt: at(time.Second)},
		}
		j.Status.Rollout.UnrecordedFailures = []v1alpha1.UnrecordedFailure{
			{Node: "node-2\x1b[2J", Reason: v1alpha1.ReasonNotReadyInSoak, At: at(time.Minute)},
			{Node: "deleted", Reason: v1alpha1.ReasonNotReadyNodeDeleted, At: at(time.Minute)},
		}
		j.Status.Drains = []v1alpha1.NodeDrain{
			{
				Node:     "node-4",
				Since:    at(time.Minute),
				Deadline: metav1.NewTime(now.Add(time.Minute)),
				Pods:     1,
				Blocked: []v1alpha1.BlockedPod{
					{Pod: "shop/db-0", Message: "The disruption budget db needs 2 healthy pods and has 2 currently"},
				},
			},
		}
		j.Status.Excluded = []v1alpha1.ExcludedNodes{{Nodes: 1, Message: "it has the taint gpu=true:NoSchedule", Names: []string{"node-9"}}}
	})}
	s.Running = []Attempt{
		{Node: "node-5", Number: 1, Created: before(4 * time.Second), Started: before(3 * time.Second)},
		{Node: "node-6", Number: 2, Created: before(95 * time.Second), Waiting: "ImagePullBackOff: image registry.example/tool:1"},
	}
	row := func(name, step string, state plan.State, reason, message string) {
		s.Rows = append(s.Rows, NodeRow{Step: step, State: plan.NodeState{Name: name, State: state, Reason: reason, Message: message}})
	}
	row("node-1", "canary", plan.Done, v1alpha1.ReasonDone, "")
	row("node-7", "staging", plan.Done, v1alpha1.ReasonDone, "")
	row("node-8", "staging", plan.Done, v1alpha1.ReasonDone, "")
	row("node-5", "staging", plan.Running, "TaskRunning", "")
	row("node-6", "staging", plan.Running, "TaskRunning", "")
	row("node-4", "staging", plan.Running, v1alpha1.ReasonDrainBlocked, "1 pod is not evicted yet")
	row("node-3", "staging", plan.Waiting, v1alpha1.ReasonBackingOff, "the next attempt starts in 9s")
	row("node-2\x1b[2J", "staging", plan.Failed, "TaskFailed", "")
	row("node-9", "", plan.Excluded, v1alpha1.ReasonUntoleratedTaint, "it has the taint gpu=true:NoSchedule")
	for i := range waiting {
		row(
			fmt.Sprint("slow-", i),
			"staging",
			plan.Waiting,
			v1alpha1.ReasonWaitingForSlot,
			"2 nodes run, and rollout.maxConcurrent allows 2",
		)
		row(fmt.Sprint("late-", i), "all", plan.Waiting, v1alpha1.ReasonWaitingForStep, "it waits for step staging")
	}
	return s
}

func TestTheTreeOfARollout(t *testing.T) {
	drawn(t, "status-tree", func(width int) []text.Line {
		s := treeOf(5)
		s.Width, s.Unicode = width, width != 200
		return s.Lines()
	})
}

// TestATreeIsBounded checks that the length does not depend on the number of nodes, also if all of them fail, run or wait.
func TestATreeIsBounded(t *testing.T) {
	for _, state := range []plan.State{plan.Failed, plan.Running, plan.Waiting, plan.Done} {
		length := func(nodes int) int {
			s := treeOf(5)
			for i := range nodes {
				s.Rows = append(
					s.Rows,
					NodeRow{
						Step:  "staging",
						State: plan.NodeState{Name: fmt.Sprint("more-", i), State: state, Reason: fmt.Sprint("Reason", i)},
					},
				)
				s.Running = append(s.Running, Attempt{Node: fmt.Sprint("more-", i), Number: 1, Created: now})
			}
			return len(s.Lines())
		}
		if few, many := length(100), length(3000); few != many || many > 70 {
			t.Errorf("%s: %d lines with 100 nodes, and %d with 3,000", state, few, many)
		}
	}
}

// TestAProblemIsSaidOnce has a problem whose message the NodeJob, a node and the list of problems have.
func TestAProblemIsSaidOnce(t *testing.T) {
	const message = "ServiceAccount node-setup/agent does not exist. Create it"
	s := Status{Now: now, Job: job(func(j *v1alpha1.NodeJob) {
		rollout(j, "canary", v1alpha1.StepStatus{Name: "canary", Nodes: 1})
		j.Status.NodeProblems = []v1alpha1.NodeProblem{
			{Node: "node-1", Reason: v1alpha1.ReasonServiceAccountNotFound, Since: at(time.Minute), Message: message},
		}
	}), Rows: []NodeRow{{Step: "canary", State: plan.NodeState{
		Name: "node-1", State: plan.Waiting, Reason: v1alpha1.ReasonServiceAccountNotFound, Message: message,
	}}}}
	for name, said := range map[string]string{"the NodeJob says it": "node-1: " + message, "only the node": "0 of 1 nodes are done"} {
		stands(s.Job, v1alpha1.ConditionStalled, v1alpha1.ReasonServiceAccountNotFound, said)
		got := text.Print(s.Lines(), text.Options{})
		if n := strings.Count(got, message); n != 1 || !strings.Contains(got, "ServiceAccountNotFound since 60s") {
			t.Errorf("%s: the message is there %d times in\n%s", name, n, got)
		}
		s.Job.Status.Conditions = nil
	}
}
