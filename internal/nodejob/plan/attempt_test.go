// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/outcome"
)

// The time limit of newJob is 60 seconds, so an attempt is ended from outside after 70.
const limit, overdue = 60, 70

// inTime is an end after half of the time limit of a pod that is 5 s past its deadline.
func inTime(exit *Exit) { exit.Finished = ago(overdue + 5 - limit/2) }

// pastDeadline is a pod that its kubelet has ended because of its deadline.
func pastDeadline(pod *Pod) { pod.PastDeadline = true }

// TestAttempt tests what the plan does with one pod on its node.
func TestAttempt(t *testing.T) {
	var (
		node      = newNode("n")
		lost      = newNode("n", func(n *Node) { n.Ready = corev1.ConditionUnknown })
		rebooted  = newNode("n", func(n *Node) { n.BootID = "next-boot" })
		recreated = newNode("n", func(n *Node) { n.UID = "n-uid-2" })
		another   = newNode("n", func(n *Node) { n.UID, n.MachineID, n.BootID = "n-uid-2", "machine-2", "boot-2" })
		imaged    = newNode("n", func(n *Node) { n.MachineID, n.BootID = "machine-2", "boot-2" })
		created   = func(seconds int) func(*Pod) { return func(p *Pod) { p.Created = ago(seconds) } }
		deleted   = func(seconds int) func(*Pod) { return func(p *Pod) { p.DeleteRequested = ago(seconds) } }
		letGo     = func(p *Pod) { p.Finalized = false }
		pending   = func(p *Pod) { p.Phase, p.Started = corev1.PodPending, time.Time{} }
		failed    = func(p *Pod) { p.Phase = corev1.PodFailed }
		disrupted = func(seconds int, reason string) func(*Pod) {
			return func(p *Pod) { p.Disrupted, p.DisruptedReason = ago(seconds), reason }
		}
		status = func(reason, message string) func(*Pod) {
			return func(p *Pod) { p.Phase, p.StatusReason, p.StatusMessage = corev1.PodFailed, reason, message }
		}
		waitsFor = func(what string) func(*Pod) { return func(p *Pod) { pending(p); p.Waiting = what } }
		silent   = func(reason string) func(*Exit) { return func(e *Exit) { e.Reason, e.Message = reason, "" } }
		gone     = func(e *Exit) { *e = Exit{Code: 137, Lost: true, Message: "the kubelet found no container"} }
	)
	const success = "record Succeeded on n: attempts 1, disruptions 0"
	tests := map[string]struct {
		node Node
		pod  Pod
		want []string
		// wantWake is in how many seconds the next plan is due; 0 if only an event changes it.
		wantWake int
	}{
		"it runs until its deadline": {node: node, pod: newPod(node), wantWake: overdue - 10},
		"it waits for its image until its deadline": {
			node:     node,
			pod:      newPod(node, waitsFor("ImagePullBackOff: image x")),
			wantWake: overdue - 10,
		},
		"it succeeded": {node: node, pod: newPod(node, exited(0)), want: []string{success}},
		"it succeeded without a container status": {
			node: node,
			pod:  newPod(node, func(p *Pod) { p.Phase = corev1.PodSucceeded }),
			want: []string{success},
		},
		"it succeeded after its deletion was requested": {node: node, pod: newPod(node, exited(0), deleted(5)), want: []string{success}},
		"it succeeded after the deadline": {
			node: node,
			pod:  newPod(node, exited(0), created(overdue+10)),
			want: []string{success},
		},
		"it succeeded before the reboot":                 {node: rebooted, pod: newPod(node, exited(0)), want: []string{success}},
		"it succeeded on a node that is unreachable now": {node: lost, pod: newPod(node, exited(0)), want: []string{success}},
		"it succeeded without our finalizer":             {node: node, pod: newPod(node, exited(0), letGo), want: []string{success}},
		"it failed": {
			node: node,
			pod:  newPod(node, exited(3)),
			want: []string{"record Failed on n: attempts 1, disruptions 0, TaskFailed: the end"},
		},
		"it failed for the last time": {
			node: newNode("n", recorded(record.Failed)),
			pod:  newPod(node, exited(3), func(p *Pod) { p.Attempt = 2 }),
			want: []string{"record Failed on n: attempts 2, disruptions 0, TaskFailed: the end, for good"},
		},
		"the reason from the runner is recorded": {
			node: node,
			pod:  newPod(node, exited(1, reported(outcome.ReasonCheckFailed))),
			want: []string{"record Failed on n: attempts 1, disruptions 0, CheckFailed: the end"},
		},
		"the runner ended it after the timeout": {
			node: node,
			pod:  newPod(node, exited(124, reported(outcome.ReasonTimedOut))),
			want: []string{"record Failed on n: attempts 1, disruptions 0, DeadlineExceeded: the end"},
		},
		"it took too much memory": {
			node: node,
			pod:  newPod(node, exited(137, silent("OOMKilled"))),
			want: []string{"record Failed on n: attempts 1, disruptions 0, OOMKilled: "},
		},
		"its command could not be started": {
			node: node,
			pod:  newPod(node, exited(128, silent("StartError"))),
			want: []string{"record Failed on n: attempts 1, disruptions 0, StartError: "},
		},
		"other reasons from the runtime are not recorded": {
			node: node,
			pod:  newPod(node, exited(1, silent("Error"))),
			want: []string{"record Failed on n: attempts 1, disruptions 0, TaskFailed: "},
		},

		"it was evicted": {
			node: node, pod: newPod(node, exited(143, reported(outcome.ReasonDisrupted)), disrupted(5, "EvictionByEvictionAPI")),
			want: []string{"record Disrupted on n: attempts 0, disruptions 1, Evicted: EvictionByEvictionAPI"},
		},
		"it was evicted and did not report its end": {
			node: node,
			pod: newPod(
				node,
				exited(137, silent("Error")),
				disrupted(5, "TerminationByKubelet"),
				status("Terminated", "the node shuts down"),
			),
			want: []string{"record Disrupted on n: attempts 0, disruptions 1, Disrupted: TerminationByKubelet: the node shuts down"},
		},
		"it failed in the same second as the eviction": {
			node: node, pod: newPod(node, exited(1), disrupted(2, "PreemptionByScheduler")),
			want: []string{"record Disrupted on n: attempts 0, disruptions 1, Disrupted: PreemptionByScheduler"},
		},
		"it failed before it was evicted": {
			node: node, pod: newPod(node, exited(1, reported(outcome.ReasonTaskFailed)), disrupted(1, "EvictionByEvictionAPI")),
			want: []string{"record Failed on n: attempts 1, disruptions 0, TaskFailed: the end"},
		},
		"its node's clock says that it failed before it was evicted": {
			node: node, pod: newPod(node, exited(1), disrupted(1, "EvictionByEvictionAPI")),
			want: []string{"record Disrupted on n: attempts 0, disruptions 1, Evicted: EvictionByEvictionAPI"},
		},
		"its record was removed while it ran": {
			node: node, pod: newPod(node, exited(3), func(p *Pod) { p.Attempt = 2 }),
			want: []string{"record Failed on n: attempts 1, disruptions 0, TaskFailed: the end"},
		},
		"its node was skipped while it ran": {
			node: newNode("n", labelled(rev)), pod: newPod(node, exited(3)),
			want: []string{"record Failed on n: attempts 1, disruptions 0, TaskFailed: the end"},
		},
		"its node was skipped during a retry": {
			node: newNode(
				"n",
				labelled(rev),
				recorded(record.Failed),
				labelled(rev),
			),
			pod:  newPod(node, exited(3), func(p *Pod) { p.Attempt = 2 }),
			want: []string{"record Failed on n: attempts 2, disruptions 0, TaskFailed: the end, for good"},
		},
		"it ran again on a node that was done": {
			node: newNode("n", labelled(rev), recorded(record.Succeeded)), pod: newPod(node, exited(3)),
			want: []string{"record Failed on n: attempts 1, disruptions 0, TaskFailed: the end, without label"},
		},
		"it ran on a node that was done with an earlier revision": {
			node: newNode(
				"n",
				recorded(record.Succeeded, func(r *record.Record) { r.Revision = "old" }),
				labelled("old"),
			),
			pod:  newPod(node, exited(3)),
			want: []string{"record Failed on n: attempts 1, disruptions 0, TaskFailed: the end, without label"},
		},
		"its kubelet rejected it": {
			node: node,
			pod:  newPod(node, pending, status("OutOfpods", "Node didn't have enough resource: pods")),
			want: []string{
				"record Disrupted on n: attempts 0, disruptions 1, Disrupted: OutOfpods: Node didn't have enough resource: pods",
			},
		},
		"it failed without a reported reason": {
			node: node, pod: newPod(node, failed),
			want: []string{"record Disrupted on n: attempts 0, disruptions 1, Disrupted: the pod ended before its container reported how"},
		},
		"the runtime lost its container": {
			node: node, pod: newPod(node, exited(137, gone)),
			want: []string{"record Disrupted on n: attempts 0, disruptions 1, Disrupted: the pod ended before its container reported how"},
		},
		"the node rebooted while it ran": {
			node: rebooted, pod: newPod(node, exited(255, silent("Error"))),
			want: []string{"record Disrupted on n: attempts 0, disruptions 1, Disrupted: the node rebooted while the task ran"},
		},
		"it reported a failure before the node rebooted": {
			node: rebooted, pod: newPod(node, exited(1, reported(outcome.ReasonTaskFailed))),
			want: []string{"record Failed on n: attempts 1, disruptions 0, TaskFailed: the end"},
		},
		"an attempt after failures is disrupted": {
			node: newNode("n", recorded(record.Failed, attempts(2))), pod: newPod(node, failed, func(p *Pod) { p.Attempt = 3 }),
			want: []string{"record Disrupted on n: attempts 2, disruptions 1, Disrupted: the pod ended before its container reported how"},
		},
		"it is disrupted for the third time in a row": {
			node: newNode("n", recorded(record.Disrupted, func(r *record.Record) { r.Disruptions = 2 })), pod: newPod(node, failed),
			want: []string{"record Disrupted on n: attempts 0, disruptions 3, Disrupted: the pod ended before its container reported how"},
		},
		"disruptions of another revision do not count": {
			node: newNode(
				"n",
				recorded(record.Disrupted, func(r *record.Record) { r.Revision, r.Disruptions = "old", 2 }),
			),
			pod:  newPod(node, failed),
			want: []string{"record Disrupted on n: attempts 0, disruptions 1, Disrupted: the pod ended before its container reported how"},
		},
		"a disruption replaces the record of another machine": {
			node: newNode(
				"n",
				labelled(rev),
				recorded(record.Succeeded, func(r *record.Record) { r.MachineID = "gone" }),
			),
			pod: newPod(node, failed),
			want: []string{
				"record Disrupted on n: attempts 0, disruptions 1, Disrupted: the pod ended before its container reported how, without label",
			},
		},

		"a user deletes it while it runs": {node: node, pod: newPod(node, deleted(1)), wantWake: overdue - 10},
		"a user deleted it before it ended": {
			node: node,
			pod:  newPod(node, exited(143, silent("Error")), deleted(5)),
			want: []string{"record Disrupted on n: attempts 0, disruptions 1, Disrupted: the pod was deleted while the task ran"},
		},
		"a user deleted it after it failed": {
			node: node,
			pod:  newPod(node, exited(1, reported(outcome.ReasonTaskFailed)), deleted(1)),
			want: []string{"record Failed on n: attempts 1, disruptions 0, TaskFailed: the end"},
		},
		"a user deleted it in the second in which it failed": {
			node: node,
			pod:  newPod(node, exited(1), deleted(2)),
			want: []string{"record Disrupted on n: attempts 0, disruptions 1, Disrupted: the pod was deleted while the task ran"},
		},
		"a user deleted it before it started": {
			node: node,
			pod:  newPod(node, pending, failed, deleted(5)),
			want: []string{"record Disrupted on n: attempts 0, disruptions 1, Disrupted: the pod ended before its container reported how"},
		},

		"it exceeds its deadline and is stopped": {
			node: node,
			pod:  newPod(node, created(overdue)),
			want: []string{"stop n-pod: DeadlineExceeded"},
		},
		"it is not stopped one second before its deadline": {node: node, pod: newPod(node, created(overdue-1)), wantWake: 1},
		"its image is not pulled before its deadline": {
			node: node,
			pod:  newPod(node, waitsFor("ImagePullBackOff: image x"), created(overdue)),
			want: []string{"stop n-pod: DeadlineExceeded"},
		},
		"it is being stopped": {
			node:     node,
			pod:      newPod(node, created(overdue+5), deleted(5)),
			wantWake: 55,
		},
		"it was stopped": {
			node: node,
			pod:  newPod(node, exited(143, reported(outcome.ReasonDisrupted)), created(overdue+5), deleted(5)),
			want: []string{"record Failed on n: attempts 1, disruptions 0, DeadlineExceeded: the end"},
		},
		"it was stopped before it started": {
			node: node,
			pod:  newPod(node, waitsFor("ImagePullBackOff: image x"), failed, created(overdue+5), deleted(5)),
			want: []string{"record Failed on n: attempts 1, disruptions 0, DeadlineExceeded: ImagePullBackOff: image x"},
		},
		"it was stopped and did not report its end": {
			node: node,
			pod:  newPod(node, failed, created(overdue+5), deleted(5)),
			want: []string{"record Failed on n: attempts 1, disruptions 0, DeadlineExceeded: the attempt took longer than its time limit"},
		},
		"the API server's clock is behind the manager's": {
			node: node,
			pod:  newPod(node, failed, created(overdue), deleted(1)),
			want: []string{"record Failed on n: attempts 1, disruptions 0, DeadlineExceeded: the attempt took longer than its time limit"},
		},
		"a user deleted it within its time limit": {
			node: node,
			pod:  newPod(node, failed, created(limit), deleted(1)),
			want: []string{"record Disrupted on n: attempts 0, disruptions 1, Disrupted: the pod ended before its container reported how"},
		},
		"the kubelet ended it while no manager ran": {
			node: node,
			pod:  newPod(node, exited(143), pastDeadline, created(300)),
			want: []string{"record Failed on n: attempts 1, disruptions 0, DeadlineExceeded: the end"},
		},
		"it failed within its time limit, and its kubelet reports that past its deadline": {
			node: node,
			pod:  newPod(node, exited(5, reported(outcome.ReasonCheckFailed), inTime), pastDeadline, created(overdue+5)),
			want: []string{"record Failed on n: attempts 1, disruptions 0, CheckFailed: the end"},
		},
		"it failed within its time limit, and its kubelet reports that after its deletion past its deadline": {
			node: node,
			pod:  newPod(node, exited(5, reported(outcome.ReasonTaskFailed), inTime), created(overdue+5), deleted(5)),
			want: []string{"record Failed on n: attempts 1, disruptions 0, TaskFailed: the end"},
		},
		"its runner says within its time limit that it was interrupted, and its kubelet ends it past its deadline": {
			node: node,
			pod:  newPod(node, exited(143, reported(outcome.ReasonDisrupted), inTime), pastDeadline, created(overdue+5)),
			want: []string{"record Failed on n: attempts 1, disruptions 0, DeadlineExceeded: the end"},
		},
		"only its kubelet says within its time limit how it ended": {
			node: node,
			pod:  newPod(node, exited(143, inTime), pastDeadline, created(overdue+5)),
			want: []string{"record Failed on n: attempts 1, disruptions 0, DeadlineExceeded: the end"},
		},
		"it has a long termination grace period": {
			node:     node,
			pod:      newPod(node, created(200), deleted(60), func(p *Pod) { p.DeleteGrace = 100 * time.Second }),
			wantWake: 100,
		},
		"its kubelet does not stop it": {
			node: node,
			pod:  newPod(node, created(200), deleted(60)),
			want: []string{
				"record Failed on n: attempts 1, disruptions 0, DeadlineExceeded: the attempt took too long, and its kubelet did not end it",
			},
		},
		"a user deleted it early and it is still terminating": {node: node, pod: newPod(node, created(100), deleted(90)), wantWake: 30},

		"its node is unreachable and it has its slot": {node: lost, pod: newPod(node), wantWake: overdue - 10},
		"its node is unreachable past its deadline": {
			node: lost,
			pod:  newPod(node, created(overdue)),
			want: []string{
				"record Failed on n: attempts 1, disruptions 0, NodeUnreachable: the node became unreachable during the attempt and was not reachable again before the deadline of the attempt",
			},
		},
		"its node is unreachable while it is deleted": {
			node:     lost,
			pod:      newPod(node, deleted(5)),
			wantWake: overdue - 10,
		},
		"its node is unreachable while it is stopped": {
			node: lost,
			pod:  newPod(node, created(overdue+5), deleted(5)),
			want: []string{
				"record Failed on n: attempts 1, disruptions 0, NodeUnreachable: the node became unreachable during the attempt and was not reachable again before the deadline of the attempt",
			},
		},
		"its node was recreated while it runs": {node: recreated, pod: newPod(node), wantWake: overdue - 10},
		"its node was recreated after it ended": {
			node: recreated,
			pod:  newPod(node, exited(0)),
			want: []string{success},
		},
		"its node is another machine now": {
			node: another,
			pod:  newPod(node),
			want: []string{"release n-pod"},
		},
		"it succeeded on another machine": {
			node: another,
			pod:  newPod(node, exited(0)),
			want: []string{"release n-pod"},
		},
		"it terminates on another machine": {
			node:     another,
			pod:      newPod(node, exited(0), letGo, deleted(5)),
			wantWake: 3595,
		},
		"its machine was re-imaged in place": {
			node: imaged,
			pod:  newPod(node),
			want: []string{"release n-pod"},
		},
		"it succeeded before its machine was re-imaged": {
			node: imaged,
			pod:  newPod(node, exited(0)),
			want: []string{"release n-pod"},
		},
		"the machine ID is unknown and the UID is different": {
			node: newNode("n", func(n *Node) { n.UID, n.MachineID, n.BootID = "n-uid-2", "", "" }),
			pod:  newPod(newNode("n", func(n *Node) { n.MachineID, n.BootID = "", "" })),
			want: []string{"release n-pod"},
		},
		"its outcome is recorded": {
			node: newNode("n", recorded(record.Succeeded, func(r *record.Record) { r.PodUID = "n-pod-uid" })),
			pod:  newPod(node, exited(0)),
			want: []string{"release n-pod"},
		},
		"its outcome is recorded and it terminates without our finalizer": {
			node: newNode("n", recorded(record.Succeeded, func(r *record.Record) { r.PodUID = "n-pod-uid" })),
			pod:  newPod(node, exited(0), letGo, deleted(5)),
		},
		"its outcome is recorded and it has no finalizer": {
			node: newNode("n", recorded(record.Succeeded, func(r *record.Record) { r.PodUID = "n-pod-uid" })),
			pod:  newPod(node, exited(0), letGo),
			want: []string{"release n-pod"},
		},
		"the record is of another pod": {
			node: newNode("n", recorded(record.Succeeded)),
			pod:  newPod(node, exited(0)),
			want: []string{success},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := Next(see(newJob(), []Node{tt.node}, tt.pod))
			if diff := cmp.Diff(tt.want, told(p)); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
			var wantWake time.Time
			if tt.wantWake > 0 {
				wantWake = now.Add(time.Duration(tt.wantWake) * time.Second)
			}
			if !wakes(p, wantWake) {
				t.Errorf("wakes at %v, want %v", p.WakeAt, wantWake)
			}
		})
	}
}

// A node whose machine ID changes with each boot would never be done otherwise.
func TestMachineReimagedInPlaceCanBeIgnored(t *testing.T) {
	node := newNode("n")
	job := newJob(func(j *v1alpha1.NodeJob) { j.Spec.Rerun.OnMachineChange = new(false) })
	rebooted := newNode("n", func(n *Node) { n.MachineID, n.BootID = "machine-2", "boot-2" })
	p := Next(see(job, []Node{rebooted}, newPod(node, exited(0))))
	if diff := cmp.Diff([]string{"record Succeeded on n: attempts 1, disruptions 0"}, told(p)); diff != "" {
		t.Errorf("actions (-want +got):\n%s", diff)
	}
}

// TestRecordOfAnAttempt shows whole records.
func TestRecordOfAnAttempt(t *testing.T) {
	node := newNode("n")
	results := map[string]string{"kernel": "6.12"}
	tests := map[string]struct {
		pod  Pod
		want record.Record
	}{
		"a success with results": {
			pod: newPod(node, exited(0, func(e *Exit) { e.Reported, e.Results, e.Truncated = true, results, true })),
			want: record.Record{
				Revision:   rev,
				Outcome:    record.Succeeded,
				Attempts:   1,
				StartedAt:  ago(9),
				FinishedAt: ago(2),
				RecordedAt: now,
				ExitCode:   new(int32(0)),
				Message:    "the end",
				Results:    results,
				Truncated:  true,
				BootID:     "n-boot",
				MachineID:  "n-machine",
				PodUID:     "n-pod-uid",
			},
		},
		"a failure keeps its results, which can explain it": {
			pod: newPod(node, exited(3, reported(outcome.ReasonTaskFailed), func(e *Exit) { e.Results = results })),
			want: record.Record{
				Revision:   rev,
				Outcome:    record.Failed,
				Attempts:   1,
				StartedAt:  ago(9),
				FinishedAt: ago(2),
				RecordedAt: now,
				ExitCode:   new(int32(3)),
				Reason:     "TaskFailed",
				Message:    "the end",
				Results:    results,
				BootID:     "n-boot",
				MachineID:  "n-machine",
				PodUID:     "n-pod-uid",
			},
		},
		"an attempt of an earlier revision is recorded with that revision": {
			pod: newPod(node, exited(0), func(p *Pod) { p.Revision = "old" }),
			want: record.Record{
				Revision:   "old",
				Outcome:    record.Succeeded,
				Attempts:   1,
				StartedAt:  ago(9),
				FinishedAt: ago(2),
				RecordedAt: now,
				ExitCode:   new(int32(0)),
				Message:    "the end",
				BootID:     "n-boot",
				MachineID:  "n-machine",
				PodUID:     "n-pod-uid",
			},
		},
		"a node's clock that is ahead does not count": {
			pod: newPod(
				node,
				exited(1, func(e *Exit) { e.Finished = now.Add(time.Hour) }),
				func(p *Pod) { p.Started = now.Add(time.Hour - 7*time.Second) },
			),
			want: record.Record{
				Revision:   rev,
				Outcome:    record.Failed,
				Attempts:   1,
				StartedAt:  ago(7),
				FinishedAt: now,
				RecordedAt: now,
				ExitCode:   new(int32(1)),
				Reason:     "TaskFailed",
				Message:    "the end",
				BootID:     "n-boot",
				MachineID:  "n-machine",
				PodUID:     "n-pod-uid",
			},
		},
		"a node's clock that is behind does not count": {
			pod: newPod(
				node,
				exited(1, func(e *Exit) { e.Finished = now.Add(-time.Hour) }),
				func(p *Pod) { p.Started = now.Add(-time.Hour - 7*time.Second) },
			),
			want: record.Record{
				Revision:   rev,
				Outcome:    record.Failed,
				Attempts:   1,
				StartedAt:  ago(10),
				FinishedAt: ago(3),
				RecordedAt: now,
				ExitCode:   new(int32(1)),
				Reason:     "TaskFailed",
				Message:    "the end",
				BootID:     "n-boot",
				MachineID:  "n-machine",
				PodUID:     "n-pod-uid",
			},
		},
		"a container that could not be started has the start time of its pod": {
			pod: newPod(node, exited(128, func(e *Exit) { e.Finished = now.Add(time.Hour) }), func(p *Pod) { p.Started = time.Time{} }),
			want: record.Record{
				Revision:   rev,
				Outcome:    record.Failed,
				Attempts:   1,
				StartedAt:  ago(10),
				FinishedAt: now,
				RecordedAt: now,
				ExitCode:   new(int32(128)),
				Reason:     "TaskFailed",
				Message:    "the end",
				BootID:     "n-boot",
				MachineID:  "n-machine",
				PodUID:     "n-pod-uid",
			},
		},
		"a node's clock does not count if the end is not known": {
			pod: newPod(node, func(p *Pod) { p.Phase, p.Started = corev1.PodFailed, now.Add(-time.Hour) }),
			want: record.Record{
				Revision:       rev,
				Outcome:        record.Disrupted,
				Disruptions:    1,
				DisruptedSince: now,
				StartedAt:      ago(10),
				FinishedAt:     now,
				RecordedAt:     now,
				Reason:         "Disrupted",
				Message:        "the pod ended before its container reported how",
				BootID:         "n-boot",
				MachineID:      "n-machine",
				PodUID:         "n-pod-uid",
			},
		},
		"an attempt that never started has the start time of its pod": {
			pod: newPod(node, func(p *Pod) { p.Phase, p.Started = corev1.PodFailed, time.Time{} }),
			want: record.Record{
				Revision:       rev,
				Outcome:        record.Disrupted,
				Disruptions:    1,
				DisruptedSince: now,
				StartedAt:      ago(10),
				FinishedAt:     now,
				RecordedAt:     now,
				Reason:         "Disrupted",
				Message:        "the pod ended before its container reported how",
				BootID:         "n-boot",
				MachineID:      "n-machine",
				PodUID:         "n-pod-uid",
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := Next(see(newJob(), []Node{node}, tt.pod))
			if tt.want.Outcome == record.Succeeded {
				tt.want.Label = tt.pod.Revision
			}
			want := []Action{Record{Node: "n", Change: record.Change{UID: "n-uid", Key: ownKey, Record: &tt.want}, Pod: tt.pod}}
			if tt.pod.Revision != rev {
				want = []Action{
					Record{
						Node:   "n",
						Change: record.Change{UID: "n-uid", Key: ownKey, Record: &tt.want, ResourceVersion: node.ResourceVersion},
						Pod:    tt.pod,
					},
				}
			}
			if diff := cmp.Diff(want, p.Actions); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPodsOfDeletedNodesAreReleased(t *testing.T) {
	gone := newNode("gone")
	tests := map[string]struct {
		pod  Pod
		want []string
	}{
		"a running pod":        {newPod(gone), []string{"release gone-pod"}},
		"a pod that succeeded": {newPod(gone, exited(0)), []string{"release gone-pod"}},
		"a pod that is terminating": {
			newPod(gone, func(p *Pod) { p.DeleteRequested = ago(5) }),
			[]string{"release gone-pod"},
		},
		"a terminating pod without our finalizer": {newPod(gone, func(p *Pod) { p.DeleteRequested, p.Finalized = ago(5), false }), nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := Next(see(newJob(), []Node{newNode("n", recorded(record.Succeeded))}, tt.pod))
			if diff := cmp.Diff(tt.want, told(p)); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
			if n := p.Status.Nodes; n.Running != 0 || n.Total != 1 {
				t.Errorf("counts %+v, want one node, done", n)
			}
		})
	}
}

// A pod has the name of its attempt, so the next pod with that name waits until it is deleted.
func TestNextAttemptWaitsForPreviousPod(t *testing.T) {
	recordOfPod := func(r *record.Record) { r.PodUID = "n-pod-uid" }
	tests := map[string]struct {
		node Node
		pod  Pod
		want []string
	}{
		"after a success whose label was removed": {
			node: newNode(
				"n",
				recorded(record.Succeeded, recordOfPod),
				labelled(""),
			),
			pod:  newPod(newNode("n"), exited(0)),
			want: []string{"release n-pod"},
		},
		"after a failure whose pod is still terminating": {
			node: newNode("n", recorded(record.Failed, recordOfPod)),
			pod:  newPod(newNode("n"), exited(1), func(p *Pod) { p.Finalized, p.DeleteRequested = false, ago(1) }),
		},
		"on another machine of the same name": {
			node: newNode(
				"n",
				func(n *Node) { n.UID, n.MachineID = "n-uid-2", "machine-2" },
			),
			pod:  newPod(newNode("n")),
			want: []string{"release n-pod"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := Next(see(newJob(), []Node{tt.node}, tt.pod))
			if diff := cmp.Diff(tt.want, told(p)); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
			want := []NodeState{
				{
					Name:    "n",
					State:   Waiting,
					Reason:  v1alpha1.ReasonPodTerminating,
					Message: "the pod of an earlier attempt is still terminating",
				},
			}
			if diff := cmp.Diff(want, p.Nodes); diff != "" {
				t.Errorf("states (-want +got):\n%s", diff)
			}
		})
	}
}

// The default time limit is the one of the API.
func TestDeadlineWithoutATimeLimit(t *testing.T) {
	node := newNode("n")
	job := newJob(func(j *v1alpha1.NodeJob) { j.Spec.Task.TimeoutSeconds = nil })
	want := ago(10).Add(task.DefaultTimeoutSeconds*time.Second + DeadlineSlack)
	if got := Next(see(job, []Node{node}, newPod(node))).WakeAt; !got.Equal(want) {
		t.Errorf("wakes at %v, want %v", got, want)
	}
}

// A pod that has not started is checked again soon, so that the status can say why. It does not end at that time.
func TestAPodThatHasNotStartedEndsAtItsDeadline(t *testing.T) {
	node := newNode("n")
	p := Next(see(newJob(), []Node{node}, newPod(node, func(p *Pod) { p.Phase, p.Started = corev1.PodPending, time.Time{} })))
	deadline := ago(10).Add(task.Timeout(newJob(), task.Task) + DeadlineSlack)
	if got := p.Nodes[0].Until; !got.Equal(deadline) {
		t.Errorf("it runs until %v at most, want %v", got, deadline)
	}
	if want := ago(10).Add(slowStart); !p.WakeAt.Equal(want) {
		t.Errorf("wakes at %v, want %v", p.WakeAt, want)
	}
}

// A user may set the label, or remove the record, between the read of the node and the write.
func TestOutcomeIsWrittenToObservedVersion(t *testing.T) {
	seen := func(n *Node) { n.ResourceVersion = "7" }
	second := func(p *Pod) { p.Attempt = 2 }
	tests := map[string]struct {
		node Node
		pod  Pod
		want string
	}{
		"a first failure": {newNode("n", seen), newPod(newNode("n"), exited(3)), ""},
		"a first success": {newNode("n", seen), newPod(newNode("n"), exited(0)), ""},
		"a failure after another failure": {
			newNode("n", seen, recorded(record.Failed)),
			newPod(newNode("n"), exited(3), second),
			"7",
		},
		"a first disruption": {
			newNode("n", seen),
			newPod(newNode("n"), func(p *Pod) { p.Phase = corev1.PodFailed }),
			"",
		},
		"a disruption after another disruption": {
			newNode("n", seen, recorded(record.Disrupted)),
			newPod(newNode("n"), func(p *Pod) { p.Phase = corev1.PodFailed }),
			"7",
		},
		"a disruption after a failure": {
			newNode("n", seen, recorded(record.Failed)),
			newPod(newNode("n"), second, func(p *Pod) { p.Phase = corev1.PodFailed }),
			"7",
		},
		"a failure that removes a label": {newNode("n", seen, recorded(record.Succeeded)), newPod(newNode("n"), exited(3)), "7"},
		"a success with an earlier revision": {
			newNode("n", seen),
			newPod(newNode("n"), exited(0), func(p *Pod) { p.Revision = "old" }),
			"7",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := Next(see(newJob(), []Node{tt.node}, tt.pod)).Actions[0].(Record).ResourceVersion; got != tt.want {
				t.Errorf("written with resource version %q, want %q", got, tt.want)
			}
		})
	}
}

// TestWithoutRetriesTheFirstFailureIsTheLast covers tasks of which no repetition helps, whatever their exit code.
func TestWithoutRetriesTheFirstFailureIsTheLast(t *testing.T) {
	once := func(j *v1alpha1.NodeJob) { j.Spec.Retry.Limit = new(int32(0)) }
	for _, code := range []int32{3, 127} {
		node := newNode("a")
		p := Next(see(newJob(once), []Node{node}, newPod(node, exited(code))))
		failed, is := p.Actions[0].(Record)
		if !is || failed.Record.Outcome != record.Failed || !failed.Final {
			t.Fatalf("exit code %d: %q", code, told(p))
		}
		node.On.Record = failed.Record
		if p := Next(see(newJob(once), []Node{node})); p.Nodes[0].State != Failed {
			t.Errorf("after exit code %d, the node is %s: %s", code, p.Nodes[0].State, p.Nodes[0].Reason)
		}
	}
}
