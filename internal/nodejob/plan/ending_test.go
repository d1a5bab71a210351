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

// concluded is a pod whose container has reported its outcome and ended, while its phase does not say so yet.
func concluded(code int32) func(*Pod) {
	return func(pod *Pod) {
		exited(code, func(e *Exit) {
			if e.Reported = true; code != 0 {
				e.Reason = outcome.ReasonTaskFailed
			}
		})(pod)
		pod.Phase, pod.Concluded = corev1.PodRunning, true
	}
}

// TestOutcomeBeforeThePodHasEnded covers the time between the end of a container and the end of its pod.
func TestOutcomeBeforeThePodHasEnded(t *testing.T) {
	recordedAgo := func(seconds int) func(*record.Record) {
		return func(r *record.Record) { r.PodUID, r.RecordedAt = "n-pod-uid", ago(seconds) }
	}
	later := func(phase corev1.PodPhase, changes ...func(*Pod)) func(*Pod) {
		return func(p *Pod) {
			p.Phase = phase
			for _, change := range changes {
				change(p)
			}
		}
	}
	var (
		node     = newNode("n")
		done     = newNode("n", recorded(record.Succeeded, recordedAgo(1)))
		again    = newNode("n", recorded(record.Succeeded, recordedAgo(1)), labelled(""))
		lost     = newNode("n", func(n *Node) { n.Ready = corev1.ConditionUnknown })
		reboot   = newJob(func(j *v1alpha1.NodeJob) { j.Spec.Maintenance.Reboot.Policy = v1alpha1.RebootAlways })
		keep     = newJob(func(j *v1alpha1.NodeJob) { j.Spec.RetainPodsSeconds = 600 })
		onNode   = func(p *Pod) { p.RecordedOn = node.UID }
		rollback = func(p *Pod) { p.Runs = task.Rollback }
		added    = func(p *Pod) { p.Added = "mesh" }
		evicted  = func(p *Pod) {
			p.Phase, p.StatusReason, p.Disrupted, p.DisruptedReason = corev1.PodFailed, "Evicted", ago(1), "TerminationByKubelet"
		}
		gone = func(p *Pod) { p.Phase, p.Exit, p.Concluded = corev1.PodFailed, &Exit{Code: 137, Lost: true}, false }
	)
	const success, failure = "record Succeeded on n: attempts 1, disruptions 0", "record Failed on n: attempts 1, disruptions 0, TaskFailed: the end"
	tests := map[string]struct {
		job  *v1alpha1.NodeJob
		node Node
		pod  Pod
		want []string
		// wantState is the state of the node after the pass.
		wantState State
		// wantWake is in how many seconds the next plan is due; 0 if only an event changes it.
		wantWake int
	}{
		"a success is recorded": {
			node:      node,
			pod:       newPod(node, concluded(0)),
			want:      []string{success + ", and its pod ends"},
			wantState: Running,
		},
		"a failure is recorded": {
			node:      node,
			pod:       newPod(node, concluded(3)),
			want:      []string{failure + ", and its pod ends"},
			wantState: Running,
		},
		"a success before an eviction counts": {
			node:      node,
			pod:       newPod(node, concluded(0), evicted),
			want:      []string{success},
			wantState: Running,
		},
		"a success before the deadline of the kubelet counts": {
			node:      node,
			pod:       newPod(node, concluded(0), later(corev1.PodFailed, pastDeadline)),
			want:      []string{success},
			wantState: Running,
		},
		"a failure before an eviction counts": {
			node:      node,
			pod:       newPod(node, concluded(3), evicted),
			want:      []string{failure},
			wantState: Running,
		},
		"a success on a node that became unreachable": {
			node:      lost,
			pod:       newPod(node, concluded(0)),
			want:      []string{success + ", and its pod ends"},
			wantState: Running,
		},
		"the pod is not deleted before it has ended": {
			node:      done,
			pod:       newPod(node, concluded(0)),
			wantState: Done,
			wantWake:  59,
		},
		"the pod is released when it has ended": {
			node:      done,
			pod:       newPod(node, exited(0)),
			want:      []string{"release n-pod"},
			wantState: Done,
		},
		"the pod is released although it was evicted in the end": {
			node:      done,
			pod:       newPod(node, concluded(0), evicted),
			want:      []string{"release n-pod"},
			wantState: Done,
		},
		"the pod is released although it was lost in the end": {
			node:      done,
			pod:       newPod(node, gone),
			want:      []string{"release n-pod"},
			wantState: Done,
		},
		"a kubelet that never ends the pod holds it for a minute": {
			node:      newNode("n", recorded(record.Succeeded, recordedAgo(60))),
			pod:       newPod(node, concluded(0)),
			want:      []string{"release n-pod"},
			wantState: Done,
		},
		"a status that is taken back changes nothing": {node: done, pod: newPod(node), wantState: Done, wantWake: 59},
		"a further run waits for the end of the pod": {
			node:      again,
			pod:       newPod(node, concluded(0)),
			wantState: Waiting,
			wantWake:  59,
		},
		"a further run does not wait forever": {
			node:      newNode("n", recorded(record.Succeeded, recordedAgo(90)), labelled("")),
			pod:       newPod(node, concluded(0)),
			want:      []string{"release n-pod"},
			wantState: Waiting,
		},
		"a record that a user removes is not written again": {
			node:      node,
			pod:       newPod(node, concluded(0), onNode),
			want:      []string{"release n-pod"},
			wantState: Waiting,
		},
		"a record of the Node before is written again": {
			node:      newNode("n", func(n *Node) { n.UID = "n-uid-2" }),
			pod:       newPod(node, concluded(0), onNode),
			want:      []string{success + ", and its pod ends"},
			wantState: Running,
		},
		"a reboot waits for the end of the pod": {
			job:       reboot,
			node:      newNode("n", recorded(record.Rebooting, recordedAgo(1), func(r *record.Record) { r.Reboot.FromBootID = "n-boot" })),
			pod:       newPod(node, concluded(0)),
			wantState: Running,
			wantWake:  59,
		},
		"the pod is retained for its logs when it has ended": {
			job:       keep,
			node:      done,
			pod:       newPod(node, exited(0)),
			want:      []string{"keep n-pod"},
			wantState: Done,
			wantWake:  599,
		},
		"the pod is retained for its logs not before it has ended": {
			job:       keep,
			node:      done,
			pod:       newPod(node, concluded(0)),
			wantState: Done,
			wantWake:  59,
		},
		"a success is recorded while an added container runs": {
			node:      node,
			pod:       newPod(node, concluded(0), added),
			want:      []string{success},
			wantState: Running,
		},
		"a failure is recorded while an added container runs": {
			node:      node,
			pod:       newPod(node, concluded(3), added),
			want:      []string{failure},
			wantState: Running,
		},
		"a pod with an added container is not waited for": {
			node:      done,
			pod:       newPod(node, concluded(0), added),
			want:      []string{"release n-pod"},
			wantState: Done,
		},
		"a pod with an added container is retained for its logs": {
			job:       keep,
			node:      done,
			pod:       newPod(node, concluded(0), added),
			want:      []string{"keep n-pod"},
			wantState: Done,
			wantWake:  599,
		},
		"a reboot does not wait for an added container": {
			job:       reboot,
			node:      newNode("n", recorded(record.Rebooting, recordedAgo(1), func(r *record.Record) { r.Reboot.FromBootID = "n-boot" })),
			pod:       newPod(node, concluded(0), added),
			want:      []string{"release n-pod"},
			wantState: Running,
		},
		"a rollback is recorded": {
			job: newJob(func(j *v1alpha1.NodeJob) {
				j.Spec.Rollback = &v1alpha1.RollbackSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "true"}}
			}),
			node: newNode("n", recorded(record.Failed, attempts(2))),
			pod:  newPod(node, concluded(0), rollback),
			want: []string{
				"record Failed on n: attempts 2, disruptions 0, TaskFailed: line 1\nno space left, rollback Succeeded: attempts 1, disruptions 0, and its pod ends",
			},
			wantState: Failed,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			job := tt.job
			if job == nil {
				job = newJob()
			}
			p := Next(see(job, []Node{tt.node}, tt.pod))
			if diff := cmp.Diff(tt.want, told(p)); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
			if p.Nodes[0].State != tt.wantState {
				t.Errorf("the node is %s (%s), want %s", p.Nodes[0].State, p.Nodes[0].Reason, tt.wantState)
			}
			var want time.Time
			if tt.wantWake > 0 {
				want = now.Add(time.Duration(tt.wantWake) * time.Second)
			}
			if !p.WakeAt.Equal(want) && tt.wantWake > 0 {
				t.Errorf("the next plan is due at %s, want %s", p.WakeAt, want)
			}
		})
	}
}

// A node that is done has no slot while its pod ends, so that others continue.
func TestARecordedPodHasNoSlotWhileItEnds(t *testing.T) {
	done := newNode("a", recorded(record.Succeeded, func(r *record.Record) { r.PodUID, r.RecordedAt = "a-pod-uid", ago(1) }))
	p := Next(see(newJob(atOnce(1)), []Node{done, newNode("b")}, newPod(done, concluded(0))))
	if diff := cmp.Diff([]string{"start attempt 1 of rev on b"}, told(p)); diff != "" {
		t.Errorf("actions (-want +got):\n%s", diff)
	}
}

// atOnce lets a number of nodes run at the same time.
func atOnce(nodes int32) func(*v1alpha1.NodeJob) {
	return func(j *v1alpha1.NodeJob) { j.Spec.Rollout.MaxConcurrent.IntVal = nodes }
}
