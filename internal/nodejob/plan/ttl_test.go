// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
)

// created gives the NodeJob its time of creation.
func created(at time.Time) func(*v1alpha1.NodeJob) {
	return func(j *v1alpha1.NodeJob) { j.CreationTimestamp = metav1.NewTime(at) }
}

func TestNamedNodes(t *testing.T) {
	job := newJob(func(j *v1alpha1.NodeJob) { j.Spec.Nodes.Names = []string{"b", "c", "gone"} })
	p := Next(see(job, []Node{newNode("a"), newNode("b"), newNode("c")}))
	want := []string{"start attempt 1 of rev on b", "start attempt 1 of rev on c"}
	if diff := cmp.Diff(want, told(p)); diff != "" {
		t.Errorf("actions (-want +got):\n%s", diff)
	}
	if got := p.Nodes[0]; got.State != Excluded || got.Message != "spec.nodes.names does not name it" {
		t.Errorf("the node that is not named is %+v", got)
	}

	job.Spec.Nodes.Names = []string{"gone"}
	p = Next(see(job, []Node{newNode("a")}))
	if got := p.Status.Conditions[0]; got.Reason != v1alpha1.ReasonNoMatchingNodes ||
		got.Message != "no node that spec.nodes.names names is there, and matches spec.nodes.selector; the task runs as soon as one does" {
		t.Errorf("without a node it is %+v", got)
	}

	other := newJob(func(j *v1alpha1.NodeJob) { j.Spec.DependsOn = []string{"dep"} })
	in := see(other, []Node{newNode("a"), newNode("b")})
	in.DependsOn = []Peer{{Name: "dep", Key: "ns.everynode.dev/dep", Revision: "1", NodeNames: []string{"b"}}}
	readOnPeers(&in)
	if diff := cmp.Diff([]string{"start attempt 1 of rev on a"}, told(Next(in))); diff != "" {
		t.Errorf("a dependency that matches only b (-want +got):\n%s", diff)
	}
}

func TestStartingDeadline(t *testing.T) {
	within := func(j *v1alpha1.NodeJob) { j.Spec.StartingDeadlineSeconds = new(int32(60)) }
	lost := newNode("lost", func(n *Node) { n.Ready = corev1.ConditionUnknown })
	running := newNode("running")
	tests := map[string]struct {
		created   time.Time
		nodes     []Node
		pods      []Pod
		want      []string
		condition string
		wantWake  time.Time
	}{
		"it starts before the deadline": {
			created:   ago(59),
			nodes:     []Node{newNode("a")},
			want:      []string{"start attempt 1 of rev on a"},
			condition: "Reconciling True InProgress",
			wantWake:  ago(-1),
		},
		"nothing starts after the deadline": {
			created:   ago(60),
			nodes:     []Node{newNode("a")},
			condition: "Reconciling False Suspended",
		},
		"a running attempt continues after the deadline": {
			created:   ago(60),
			nodes:     []Node{newNode("a"), running},
			pods:      []Pod{newPod(running)},
			condition: "Reconciling True Suspended",
			wantWake:  ago(10 - 70),
		},
		"it does not wait for an unreachable node after the deadline": {
			created:   ago(60),
			nodes:     []Node{lost},
			condition: "Reconciling False Suspended",
		},
		"it waits for an unreachable node before the deadline": {
			created:   ago(59),
			nodes:     []Node{lost},
			condition: "Reconciling True InProgress",
			wantWake:  ago(-1),
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := Next(see(newJob(within, created(tt.created)), tt.nodes, tt.pods...))
			if diff := cmp.Diff(tt.want, told(p)); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
			c := p.Status.Conditions[1]
			if got := c.Type + " " + string(c.Status) + " " + c.Reason; got != tt.condition {
				t.Errorf("%s, want %s", got, tt.condition)
			}
			if !wakes(p, tt.wantWake) {
				t.Errorf("it wakes at %v, want %v", p.WakeAt, tt.wantWake)
			}
		})
	}
}

func TestPodsAreRetained(t *testing.T) {
	keeps := func(j *v1alpha1.NodeJob) { j.Spec.RetainPodsSeconds = 100 }
	node := newNode("a")
	// by returns a node with the record of an attempt that ended this many seconds ago.
	by := func(pod Pod, o record.Outcome, seconds int) Node {
		return newNode("a", recorded(o, func(r *record.Record) { r.PodUID, r.FinishedAt = pod.UID, ago(seconds) }))
	}
	let := func(pod *Pod) { pod.Finalized, pod.Recorded = false, true }
	ended := newPod(node, exited(0))
	kept := newPod(node, exited(0), let)
	failed := newPod(node, exited(3), let)
	tests := map[string]struct {
		node     Node
		pod      Pod
		change   func(*v1alpha1.NodeJob)
		want     []string
		wantWake time.Time
	}{
		"its outcome is recorded, and it is not deleted": {
			node: node,
			pod:  ended,
			want: []string{"record Succeeded on a: attempts 1, disruptions 0, and keep its pod"},
		},
		"its outcome was recorded, and it is retained now": {
			node:     by(ended, record.Succeeded, 50),
			pod:      ended,
			want:     []string{"keep a-pod"},
			wantWake: ago(-50),
		},
		"it is retained": {node: by(kept, record.Succeeded, 50), pod: kept, wantWake: ago(-50)},
		"its time has passed": {
			node: by(kept, record.Succeeded, 100),
			pod:  kept,
			want: []string{"release a-pod"},
		},
		"a user has deleted it": {
			node: by(kept, record.Succeeded, 50),
			pod:  newPod(node, exited(0), let, func(p *Pod) { p.DeleteRequested = ago(1) }),
		},
		"the record was removed, and the task runs again": {node: node, pod: failed, want: []string{"release a-pod"}},
		"it is released before a retry": {
			node:     by(failed, record.Failed, 50),
			pod:      failed,
			want:     []string{"release a-pod"},
			wantWake: ago(-50),
		},
		"it failed for the last time and is retained": {
			node:     by(failed, record.Failed, 50),
			pod:      failed,
			change:   func(j *v1alpha1.NodeJob) { j.Spec.Retry.Limit = new(int32(0)) },
			wantWake: ago(-50),
		},
		"the NodeJob is deleted": {
			node:   by(kept, record.Succeeded, 50),
			pod:    kept,
			change: func(j *v1alpha1.NodeJob) { j.DeletionTimestamp = &metav1.Time{Time: now} },
			want:   []string{"release a-pod", "forget a"},
		},
		"it ended a rollback": {node: newNode("a", recorded(record.Failed, attempts(2), func(r *record.Record) {
			r.Rollback = &record.Rollback{Outcome: record.Succeeded, PodUID: kept.UID, FinishedAt: ago(30)}
		})), pod: newPod(node, exited(0), let, func(p *Pod) { p.Runs = task.Rollback }), wantWake: ago(-70)},
		"it ended an attempt before a rollback": {node: newNode("a", recorded(record.Failed, attempts(2), func(r *record.Record) {
			r.PodUID, r.Rollback = kept.UID, &record.Rollback{Outcome: record.Succeeded, PodUID: "another", FinishedAt: ago(30)}
		})), pod: failed, wantWake: ago(-40)},
		"the run continues with a reboot": {
			node:     by(ended, record.Rebooting, 5),
			pod:      ended,
			want:     []string{"Settling a, recorded", "release a-pod"},
			wantWake: ago(-840),
		},
		"a user has deleted it, and it has its finalizer": {
			node: by(ended, record.Succeeded, 50),
			pod:  newPod(node, exited(0), func(p *Pod) { p.DeleteRequested = ago(1) }),
			want: []string{"release a-pod"},
		},
		"it has not ended, and its outcome is recorded": {
			node: node,
			pod:  newPod(node, concluded(0)),
			want: []string{"record Succeeded on a: attempts 1, disruptions 0, and its pod ends"},
		},
		"another attempt was recorded since it was retained": {
			node: newNode("a", recorded(record.Succeeded, func(r *record.Record) { r.PodUID, r.FinishedAt = "another", ago(50) })),
			pod:  kept,
			want: []string{"release a-pod"},
		},
		"a record with a time in the future does not retain it": {
			node: by(kept, record.Succeeded, -1000),
			pod:  kept,
			want: []string{"release a-pod"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			job := newJob(keeps)
			if tt.change != nil {
				tt.change(job)
			}
			p := Next(see(job, []Node{tt.node}, tt.pod))
			if diff := cmp.Diff(tt.want, told(p)); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
			if !wakes(p, tt.wantWake) {
				t.Errorf("it wakes at %v, want %v", p.WakeAt, tt.wantWake)
			}
		})
	}
}

// TestUntilWhenAPodIsRetained tests it for a pod whose outcome was recorded 50 seconds ago.
func TestUntilWhenAPodIsRetained(t *testing.T) {
	for name, tt := range map[string]struct {
		job     func(*v1alpha1.NodeJob)
		pod     func(*Pod)
		outcome record.Outcome
		want    time.Time
	}{
		"it has ended":           {outcome: record.Succeeded, want: ago(-50)},
		"it has not ended":       {pod: func(p *Pod) { p.Phase = "Running" }, outcome: record.Succeeded},
		"a user has deleted it":  {pod: func(p *Pod) { p.DeleteRequested = ago(1) }, outcome: record.Succeeded},
		"the run continues":      {outcome: record.Rebooting},
		"no pods are retained":   {job: func(j *v1alpha1.NodeJob) { j.Spec.RetainPodsSeconds = 0 }, outcome: record.Succeeded},
		"the NodeJob is deleted": {job: deleted(v1alpha1.DeletionRollback), outcome: record.Succeeded},
	} {
		job := newJob(func(j *v1alpha1.NodeJob) { j.Spec.RetainPodsSeconds = 100 })
		if tt.job != nil {
			tt.job(job)
		}
		pod := newPod(newNode("a"), exited(0))
		if tt.pod != nil {
			tt.pod(&pod)
		}
		got := (&attemptReader{job: readJob(see(job, nil))}).retainedUntil(&pod, &record.Record{Outcome: tt.outcome, FinishedAt: ago(50)})
		if !got.Equal(tt.want) {
			t.Errorf("%s: until %v, want %v", name, got, tt.want)
		}
	}
}

// TestStartsAfterRetainedPods tests the state of a node whose retained pod must terminate before the next pod starts.
func TestStartsAfterRetainedPods(t *testing.T) {
	retained := newPod(newNode("a"), exited(3), func(p *Pod) { p.Finalized, p.Recorded = false, true })
	for name, tt := range map[string]struct {
		attempts int32
		state    State
		reason   string
	}{
		"an attempt": {1, Waiting, v1alpha1.ReasonPodTerminating},
		"a rollback": {2, Failed, v1alpha1.ReasonRollbackPending},
	} {
		node := newNode(
			"a",
			recorded(record.Failed, attempts(tt.attempts), func(r *record.Record) { r.PodUID, r.FinishedAt = retained.UID, ago(50) }),
		)
		p := Next(see(newJob(withRollback, func(j *v1alpha1.NodeJob) { j.Spec.RetainPodsSeconds = 100 }), []Node{node}, retained))
		if got := p.Nodes[0]; got.State != tt.state || got.Reason != tt.reason ||
			got.Message != "the pod of an earlier attempt is still terminating" {
			t.Errorf("%s: %+v, want %s, %s", name, got, tt.state, tt.reason)
		}
	}
}

// TestReleaseOfUnrecordedPods tests whether a pod is released that says that it is recorded, and is not.
func TestReleaseOfUnrecordedPods(t *testing.T) {
	node := newNode("a")
	on := newNode("a", recorded(record.Succeeded, func(r *record.Record) { r.PodUID = "a-pod-uid" }))
	says := func(p *Pod) { p.Finalized, p.Recorded = false, true }
	for name, tt := range map[string]struct {
		node Node
		pod  Pod
		want bool
	}{
		"its record is missing":        {node, newPod(node, exited(0), says), true},
		"its record is there":          {on, newPod(node, exited(0)), false},
		"this manager has recorded it": {node, newPod(node, exited(0), says, func(p *Pod) { p.RecordedOn = node.UID }), false},
		"its node was replaced":        {newNode("a", func(n *Node) { n.UID, n.MachineID = "new", "new" }), newPod(node, exited(0)), false},
	} {
		p := Next(see(newJob(func(j *v1alpha1.NodeJob) { j.Spec.RetainPodsSeconds = 1 }), []Node{tt.node}, tt.pod))
		release, is := p.Actions[0].(FinalizePod)
		if !is || release.Unrecorded != tt.want {
			t.Errorf("%s: %+v, want a release, unrecorded %t", name, p.Actions, tt.want)
		}
	}
}

func TestExpiry(t *testing.T) {
	ttl := func(seconds int32) func(*v1alpha1.NodeJob) {
		return func(j *v1alpha1.NodeJob) { j.Spec.TTLSecondsAfterFinished = &seconds }
	}
	// since sets the condition Reconciling, with its last transition this many seconds ago.
	since := func(status metav1.ConditionStatus, reason string, seconds int) func(*v1alpha1.NodeJob) {
		return func(j *v1alpha1.NodeJob) {
			j.Status.Conditions = []metav1.Condition{
				{Type: v1alpha1.ConditionReconciling, Status: status, Reason: reason, LastTransitionTime: metav1.NewTime(ago(seconds))},
			}
		}
	}
	finished := func(o record.Outcome, seconds int) Node {
		return newNode("a", recorded(o, func(r *record.Record) { r.FinishedAt = ago(seconds) }))
	}
	runs := newNode("b")
	once := func(j *v1alpha1.NodeJob) { j.Spec.Retry.Limit = new(int32(0)) }
	tests := map[string]struct {
		job      *v1alpha1.NodeJob
		nodes    []Node
		pods     []Pod
		want     []string
		wantWake time.Time
	}{
		"done for less than the TTL": {
			job:      newJob(ttl(60), since(metav1.ConditionFalse, "AllNodesDone", 50)),
			nodes:    []Node{finished(record.Succeeded, 55)},
			wantWake: ago(-10),
		},
		"done for the TTL": {
			job:   newJob(ttl(60), since(metav1.ConditionFalse, "AllNodesDone", 60)),
			nodes: []Node{finished(record.Succeeded, 65)},
			want:  []string{"expire"},
		},
		"done without a TTL": {
			job:   newJob(since(metav1.ConditionFalse, "AllNodesDone", 6000)),
			nodes: []Node{finished(record.Succeeded, 6000)},
		},
		"failed": {
			job:   newJob(once, ttl(60), since(metav1.ConditionFalse, "NodesFailed", 60)),
			nodes: []Node{finished(record.Failed, 60)},
			want:  []string{"expire"},
		},
		"suspended": {
			job:   newJob(ttl(60), since(metav1.ConditionFalse, "Suspended", 60), func(j *v1alpha1.NodeJob) { j.Spec.Suspend = true }),
			nodes: []Node{newNode("a")},
			want:  []string{"expire"},
		},
		"no matching node": {
			job:  newJob(ttl(60), since(metav1.ConditionFalse, "NoMatchingNodes", 60)),
			want: []string{"expire"},
		},
		"done since now": {
			job:      newJob(ttl(60), since(metav1.ConditionTrue, "InProgress", 600)),
			nodes:    []Node{finished(record.Succeeded, 5)},
			wantWake: ago(-60),
		},
		"a TTL of zero": {
			job:   newJob(ttl(0), since(metav1.ConditionTrue, "InProgress", 600)),
			nodes: []Node{finished(record.Succeeded, 5)},
			want:  []string{"expire"},
		},
		"Stalled, and a node runs": {
			job:      newJob(once, ttl(60), none, since(metav1.ConditionFalse, "MaxFailuresExceeded", 60)),
			nodes:    []Node{finished(record.Failed, 60), runs},
			pods:     []Pod{newPod(runs)},
			wantWake: ago(10 - 70),
		},
		"Stalled, and a node finished later": {
			job: newJob(once, ttl(60), none, since(metav1.ConditionFalse, "MaxFailuresExceeded", 600)),
			nodes: []Node{
				finished(record.Failed, 600),
				newNode("b", recorded(record.Succeeded, func(r *record.Record) { r.FinishedAt = ago(30) })),
			},
			wantWake: ago(-30),
		},
		"done, and a rollback ended later": {
			job: newJob(once, ttl(60), none, withRollback, since(metav1.ConditionFalse, "MaxFailuresExceeded", 600)),
			nodes: []Node{
				newNode(
					"a",
					recorded(
						record.Failed,
						func(r *record.Record) { r.FinishedAt = ago(600) },
						undone(record.Succeeded, 1),
						func(r *record.Record) { r.Rollback.FinishedAt = ago(30) },
					),
				),
			},
			wantWake: ago(-30),
		},
		"it runs": {
			job:   newJob(ttl(0), since(metav1.ConditionTrue, "InProgress", 600)),
			nodes: []Node{newNode("a", func(n *Node) { n.Ready = "Unknown" })},
		},
		"a failed node is being drained": {
			job:      newJob(once, ttl(60), onFailure(v1alpha1.FailureActionDrain), since(metav1.ConditionFalse, "NodesFailed", 60)),
			nodes:    []Node{newNode("a", recorded(record.Failed, drainSince(60)), cordonedBy(jobKey))},
			wantWake: ago(-5),
		},
		"a failed node is to be rolled back": {
			job: newJob(
				once,
				ttl(60),
				none,
				since(metav1.ConditionFalse, "MaxFailuresExceeded", 60),
				func(j *v1alpha1.NodeJob) {
					j.Spec.Rollback = &v1alpha1.RollbackSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "true"}}
				},
			),
			nodes: []Node{finished(record.Failed, 60)},
			want:  []string{"start " + string(task.Rollback) + " 1 of rev on a"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := Next(see(tt.job, tt.nodes, tt.pods...))
			if diff := cmp.Diff(tt.want, told(p)); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
			if !wakes(p, tt.wantWake) {
				t.Errorf("it wakes at %v, want %v", p.WakeAt, tt.wantWake)
			}
		})
	}
}

// none sets maxFailures to 0.
func none(j *v1alpha1.NodeJob) { j.Spec.Rollout.MaxFailures = nil }
