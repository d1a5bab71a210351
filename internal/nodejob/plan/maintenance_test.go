// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
)

func cordoning(j *v1alpha1.NodeJob) { j.Spec.Maintenance.Cordon = true }

// draining drains before the task, within 60 seconds.
func draining(j *v1alpha1.NodeJob) {
	j.Spec.Maintenance.Drain = &v1alpha1.DrainSpec{TimeoutSeconds: new(int32(60)), GracePeriodSeconds: new(int32(7))}
}

// drainsSince adds a drain of the node to the status.
func drainsSince(node string, seconds int) func(*v1alpha1.NodeJob) {
	return func(j *v1alpha1.NodeJob) {
		j.Status.Drains = []v1alpha1.NodeDrain{{Node: node, Since: metav1.NewTime(ago(seconds))}}
	}
}

func cordonedBy(keys ...string) func(*Node) {
	return func(n *Node) { n.Unschedulable, n.CordonedBy = true, keys }
}

func byHand(n *Node) { n.Unschedulable = true }

// TestPreparation follows a node from its slot to the start of the task.
// evictedIn is a node in the boot "boot" on which an attempt was evicted in a boot.
func evictedIn(boot string) func(*Node) {
	return func(n *Node) {
		recorded(record.Disrupted, func(r *record.Record) { r.Reason, r.BootID = v1alpha1.ReasonEvicted, boot })(n)
		n.BootID = "boot"
	}
}

func TestPreparation(t *testing.T) {
	web := []DrainPod{
		{Namespace: "web", Name: "a", UID: "a"},
		{Namespace: "web", Name: "b", UID: "b", EvictionRefused: "nothing would make it again"},
	}
	ours := cordonedBy(jobKey)
	const prepared, start = "Preparing n, cordoned by ns.everynode.dev/job", "start attempt 1 of rev on n"
	const inVain = "record Failed on n: attempts 1, disruptions 0, DrainTimedOut: 2 pods not evicted within 60 s; web/b: nothing would make it again"
	tests := map[string]struct {
		job    []func(*v1alpha1.NodeJob)
		node   []func(*Node)
		pods   []DrainPod
		looked bool
		want   []string
		reason string
		looks  int
		drains int
	}{
		"it is cordoned first": {
			job:    []func(*v1alpha1.NodeJob){cordoning},
			want:   []string{prepared},
			reason: v1alpha1.ReasonPreparing,
		},
		"the task starts on a cordoned node": {
			job:    []func(*v1alpha1.NodeJob){cordoning},
			node:   []func(*Node){ours},
			want:   []string{start},
			reason: v1alpha1.ReasonStarting,
		},
		"a cordon by a user is sufficient": {
			job:    []func(*v1alpha1.NodeJob){cordoning},
			node:   []func(*Node){byHand},
			want:   []string{start},
			reason: v1alpha1.ReasonStarting,
		},
		"a cordon of another NodeJob is shared": {
			job:    []func(*v1alpha1.NodeJob){cordoning},
			node:   []func(*Node){cordonedBy("ns.everynode.dev/other")},
			want:   []string{"Preparing n, cordoned by ns.everynode.dev/job and ns.everynode.dev/other"},
			reason: v1alpha1.ReasonPreparing,
		},
		"it is cordoned before a drain": {
			job:    []func(*v1alpha1.NodeJob){draining},
			want:   []string{prepared},
			reason: v1alpha1.ReasonPreparing,
		},
		"the pods of a cordoned node are requested": {
			job:    []func(*v1alpha1.NodeJob){draining},
			node:   []func(*Node){ours},
			reason: v1alpha1.ReasonPreparing,
			looks:  1,
			drains: 1,
		},
		"pods that can be evicted are evicted": {
			job:    []func(*v1alpha1.NodeJob){draining, drainsSince("n", 10)},
			node:   []func(*Node){ours},
			pods:   web,
			looked: true,
			want:   []string{"evict from n: web/a"},
			reason: v1alpha1.ReasonDrainBlocked,
			looks:  1,
			drains: 1,
		},
		"the task starts when all pods have terminated": {
			job:    []func(*v1alpha1.NodeJob){draining, drainsSince("n", 10)},
			node:   []func(*Node){ours},
			looked: true,
			want:   []string{start},
			reason: v1alpha1.ReasonStarting,
			looks:  1,
		},
		"the task does not start before the pods were observed": {
			job:    []func(*v1alpha1.NodeJob){draining, drainsSince("n", 10)},
			node:   []func(*Node){ours},
			reason: v1alpha1.ReasonPreparing,
			looks:  1,
			drains: 1,
		},
		"a drain that times out fails": {
			job:    []func(*v1alpha1.NodeJob){draining, drainsSince("n", 60)},
			node:   []func(*Node){ours},
			pods:   web,
			looked: true,
			want:   []string{inVain},
			reason: v1alpha1.ReasonPreparing,
			looks:  1,
		},
		"the drain of another node does not count": {
			job: []func(*v1alpha1.NodeJob){draining, drainsSince("m", 60)}, node: []func(*Node){ours}, pods: web, looked: true,
			want: []string{"evict from n: web/a"}, reason: v1alpha1.ReasonDrainBlocked, looks: 1, drains: 1,
		},
		"the drain of a node that was created in the same second counts": {
			job: []func(*v1alpha1.NodeJob){draining, drainsSince("n", 60)}, node: []func(*Node){ours, made(60)}, pods: web, looked: true,
			want: []string{inVain}, reason: v1alpha1.ReasonPreparing, looks: 1,
		},
		"a drain that began after that for an earlier failure counts": {
			job:    []func(*v1alpha1.NodeJob){draining, drainsSince("n", 60)},
			pods:   web,
			looked: true,
			looks:  1,
			node: []func(*Node){
				ours,
				recorded(record.Failed, func(r *record.Record) { r.Revision, r.Drain = "old", &record.Drain{StartedAt: ago(61)} }),
			},
			want:   []string{inVain},
			reason: v1alpha1.ReasonPreparing,
		},
		"a node that a user has uncordoned is not cordoned a second time": {
			job: []func(*v1alpha1.NodeJob){
				cordoning,
			},
			node:   []func(*Node){func(n *Node) { n.CordonedBy = []string{jobKey} }},
			want:   []string{start},
			reason: v1alpha1.ReasonStarting,
		},
		"the drain of an earlier node of the same name does not count": {
			job: []func(*v1alpha1.NodeJob){draining, drainsSince("n", 60)}, node: []func(*Node){ours, made(30)}, pods: web, looked: true,
			want: []string{"evict from n: web/a"}, reason: v1alpha1.ReasonDrainBlocked, looks: 1, drains: 1,
		},
		"the drain for an earlier failure does not count": {
			job:    []func(*v1alpha1.NodeJob){draining, drainsSince("n", 60)},
			pods:   web,
			looked: true,
			looks:  1,
			drains: 1,
			node: []func(*Node){
				ours,
				recorded(record.Failed, func(r *record.Record) { r.Revision, r.Drain = "old", &record.Drain{StartedAt: ago(60)} }),
			},
			want:   []string{"evict from n: web/a"},
			reason: v1alpha1.ReasonDrainBlocked,
		},
		"pods that were placed on the node after its drain began stay": {
			job: []func(*v1alpha1.NodeJob){draining, drainsSince("n", 30)}, node: []func(*Node){ours}, looked: true,
			pods: []DrainPod{
				{Namespace: "web", Name: "c", UID: "c", Placed: ago(28)}, {Namespace: "web", Name: "d", UID: "d", Placed: ago(29)},
			},
			want: []string{"evict from n: web/d"}, reason: v1alpha1.ReasonDrainBlocked, looks: 1, drains: 1,
		},
		"another tool has evicted the task": {
			job: []func(*v1alpha1.NodeJob){cordoning}, node: []func(*Node){ours, evictedIn("boot")}, reason: v1alpha1.ReasonNodeInUse,
		},
		"another tool has evicted the task, and left a node that is not Ready": {
			job: []func(*v1alpha1.NodeJob){cordoning},
			node: []func(*Node){
				ours,
				evictedIn("boot"),
				func(n *Node) { n.Ready = corev1.ConditionFalse },
			},
			reason: v1alpha1.ReasonNodeInUse,
		},
		"another tool has evicted the task and rebooted the node": {
			job: []func(*v1alpha1.NodeJob){cordoning}, node: []func(*Node){ours, evictedIn("boot-before")},
			want: []string{start}, reason: v1alpha1.ReasonStarting,
		},
		"another tool has evicted the task, and the NodeJob takes the node over": {
			job: []func(*v1alpha1.NodeJob){cordoning, takesOver("n")}, node: []func(*Node){ours, evictedIn("boot")},
			want: []string{start}, reason: v1alpha1.ReasonStarting,
		},
		"another tool has evicted the task and uncordoned the node": {
			job: []func(*v1alpha1.NodeJob){
				cordoning,
			},
			node:   []func(*Node){evictedIn("boot"), func(n *Node) { n.CordonedBy = []string{jobKey} }},
			want:   []string{"Preparing n, recorded, cordoned by ns.everynode.dev/job"},
			reason: v1alpha1.ReasonPreparing,
		},
		"another tool has evicted a task that disrupts nothing": {
			node: []func(*Node){byHand, evictedIn("boot")}, want: []string{start}, reason: v1alpha1.ReasonStarting,
		},
		"it is uncordoned while suspended": {
			job:    []func(*v1alpha1.NodeJob){cordoning, onHold},
			node:   []func(*Node){ours},
			want:   []string{"Uncordoned n, uncordoned"},
			reason: v1alpha1.ReasonSuspended,
		},
		"it is uncordoned while suspended with onFailure.action: Cordon": {
			job: []func(*v1alpha1.NodeJob){
				cordoning,
				onHold,
				func(j *v1alpha1.NodeJob) { j.Spec.OnFailure.Action = v1alpha1.FailureActionCordon },
			},
			node:   []func(*Node){ours},
			want:   []string{"Uncordoned n, uncordoned"},
			reason: v1alpha1.ReasonSuspended,
		},
		"a failed node stays cordoned while suspended": {
			job: []func(*v1alpha1.NodeJob){
				cordoning,
				onHold,
				func(j *v1alpha1.NodeJob) { j.Spec.OnFailure.Action = v1alpha1.FailureActionCordon },
			},
			node: []func(*Node){
				ours,
				recorded(record.Failed, func(r *record.Record) { r.Revision, r.Cordoned = "old", true }),
			},
			reason: v1alpha1.ReasonSuspended,
		},
		"between two attempts it stays cordoned": {
			job:    []func(*v1alpha1.NodeJob){cordoning},
			node:   []func(*Node){ours, recorded(record.Failed, func(r *record.Record) { r.FinishedAt = ago(1) })},
			reason: v1alpha1.ReasonBackingOff,
		},
		"it is uncordoned after a drain that timed out": {
			job: []func(*v1alpha1.NodeJob){draining},
			node: []func(*Node){
				ours,
				recorded(record.Failed, func(r *record.Record) { r.FinishedAt, r.Reason = ago(1), v1alpha1.ReasonDrainTimedOut }),
			},
			want:   []string{"Uncordoned n, uncordoned"},
			reason: v1alpha1.ReasonBackingOff,
		},
		"a failed node is uncordoned": {
			job:    []func(*v1alpha1.NodeJob){cordoning},
			node:   []func(*Node){ours, recorded(record.Failed, attempts(2))},
			want:   []string{"Uncordoned n, uncordoned"},
			reason: v1alpha1.ReasonRetriesExhausted,
		},
		"a done node is uncordoned": {
			job:    []func(*v1alpha1.NodeJob){cordoning},
			node:   []func(*Node){ours, recorded(record.Succeeded)},
			want:   []string{"Uncordoned n, uncordoned"},
			reason: v1alpha1.ReasonDone,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			node := newNode("n", append([]func(*Node){made(3600)}, tt.node...)...)
			in := see(newJob(tt.job...), []Node{node})
			if tt.looked {
				in.Drains = map[types.UID][]DrainPod{node.UID: tt.pods}
			}
			p := Next(in)
			if diff := cmp.Diff(tt.want, told(p)); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
			if p.Nodes[0].Reason != tt.reason || len(p.DrainPodRequests) != tt.looks || len(p.Status.Drains) != tt.drains {
				t.Errorf(
					"%+v, pod requests %+v, drains %+v; want %s, %d, %d",
					p.Nodes[0],
					p.DrainPodRequests,
					p.Status.Drains,
					tt.reason,
					tt.looks,
					tt.drains,
				)
			}
			if tt.drains > 0 && !p.WakeAt.After(now) {
				t.Errorf("wakes at %v, want later than now", p.WakeAt)
			}
		})
	}
}

// TestOutcomeOfTimedOutDrain tests what a rollback has to undo if the task never started.
func TestOutcomeOfTimedOutDrain(t *testing.T) {
	rolledBack := &record.Rollback{Outcome: record.Succeeded, Attempts: 1, FinishedAt: ago(50), PodUID: "undo"}
	tests := map[string]struct {
		node func(*Node)
		// neverStarted is true if there is nothing to roll back, and notStarted if there is nothing of this run.
		neverStarted, notStarted bool
		rollback                 *record.Rollback
	}{
		"a timeout in the first attempt is neverStarted": {node: func(*Node) {}, neverStarted: true},
		"a second timeout is neverStarted": {
			node:         recorded(record.Failed, func(r *record.Record) { r.NeverStarted = true }),
			neverStarted: true,
		},
		"a timeout after a failure of the task is not":                                {node: recorded(record.Failed)},
		"a timeout after a disruption is not, because the task may have made changes": {node: recorded(record.Disrupted)},
		"a timeout after an earlier success is notStarted": {node: func(n *Node) {
			recorded(record.Succeeded, func(r *record.Record) { r.Revision = "old" })(n)
			n.On.Label = "old"
		}, notStarted: true},
		"a timeout after a success of which a user has removed the label is notStarted": {node: succeeded(60), notStarted: true},
		"a second timeout after an earlier success is notStarted": {
			node:       recorded(record.Failed, func(r *record.Record) { r.NotStarted = true }),
			notStarted: true,
		},
		"what an earlier revision has rolled back is not rolled back again": {
			node:       recorded(record.Failed, func(r *record.Record) { r.Revision, r.Rollback = "old", rolledBack }),
			notStarted: true,
			rollback:   rolledBack,
		},
		"what an earlier revision has not rolled back is another run": {
			node:       recorded(record.Failed, undone(record.Failed, 1), func(r *record.Record) { r.Revision = "old" }),
			notStarted: true,
		},
		"a timeout after a failure of another revision is notStarted": {
			node:       recorded(record.Failed, func(r *record.Record) { r.Revision = "old" }),
			notStarted: true,
		},
		"a timeout after a failure on another machine is neverStarted": {
			node:         recorded(record.Failed, func(r *record.Record) { r.MachineID = "gone" }),
			neverStarted: true,
		},
		"what was rolled back is not rolled back again": {
			node:       recorded(record.Failed, func(r *record.Record) { r.Rollback = rolledBack }),
			notStarted: true,
			rollback:   rolledBack,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			node := newNode("n", cordonedBy(jobKey), tt.node)
			in := see(newJob(draining, askAgain, drainsSince("n", 60)), []Node{node})
			in.Drains = map[types.UID][]DrainPod{node.UID: {{Name: "a", UID: "a"}}}
			r := Next(in).Actions[0].(Record)
			if r.Record.Reason != v1alpha1.ReasonDrainTimedOut || r.Record.NeverStarted != tt.neverStarted ||
				r.Record.NotStarted != tt.notStarted ||
				r.ResourceVersion != node.ResourceVersion {
				t.Errorf("recorded %+v, want neverStarted %v and notStarted %v", r.Record, tt.neverStarted, tt.notStarted)
			}
			if diff := cmp.Diff(tt.rollback, r.Record.Rollback); diff != "" {
				t.Errorf("rollback (-want +got):\n%s", diff)
			}
		})
	}
}

// TestMaxUnavailable tests which nodes become unavailable.
func TestMaxUnavailable(t *testing.T) {
	notReady := func(n *Node) { n.Ready = corev1.ConditionFalse }
	three := func(a, b, c []func(*Node)) []Node {
		return []Node{newNode("a", a...), newNode("b", b...), newNode("c", c...)}
	}
	rebooting := rebootingAs(v1alpha1.RebootAlways)
	atMost := func(n intstr.IntOrString) func(*v1alpha1.NodeJob) {
		return func(j *v1alpha1.NodeJob) { j.Spec.Maintenance.MaxUnavailable = &n }
	}
	tests := map[string]struct {
		job   []func(*v1alpha1.NodeJob)
		nodes []Node
		pods  []Pod
		own   string
		want  []string
	}{
		"without a value it is maxConcurrent": {
			job:   []func(*v1alpha1.NodeJob){rebooting},
			nodes: three(nil, nil, nil),
			want:  []string{"start attempt 1 of rev on a", "start attempt 1 of rev on b", "start attempt 1 of rev on c"},
		},
		"one at a time": {
			job:   []func(*v1alpha1.NodeJob){rebooting, atMost(intstr.FromInt32(1))},
			nodes: three(nil, nil, nil),
			want:  []string{"start attempt 1 of rev on a"},
		},
		"a percentage is rounded down": {
			job:   []func(*v1alpha1.NodeJob){rebooting, atMost(intstr.FromString("70%"))},
			nodes: three(nil, nil, nil),
			want:  []string{"start attempt 1 of rev on a", "start attempt 1 of rev on b"},
		},
		"at least one node may be unavailable": {
			job:   []func(*v1alpha1.NodeJob){rebooting, atMost(intstr.FromString("1%"))},
			nodes: three(nil, nil, nil),
			want:  []string{"start attempt 1 of rev on a"},
		},
		"it does not apply to a task without maintenance": {
			job:   []func(*v1alpha1.NodeJob){atMost(intstr.FromInt32(1))},
			nodes: three(nil, nil, nil),
			want:  []string{"start attempt 1 of rev on a", "start attempt 1 of rev on b", "start attempt 1 of rev on c"},
		},
		"a node that is not Ready counts, except for itself": {
			job:   []func(*v1alpha1.NodeJob){rebooting, atMost(intstr.FromInt32(1))},
			nodes: three(nil, []func(*Node){notReady}, nil),
			want:  []string{"start attempt 1 of rev on b"},
		},
		"a node that a user has cordoned counts, except for itself": {
			job:   []func(*v1alpha1.NodeJob){rebooting, atMost(intstr.FromInt32(1))},
			nodes: three(nil, nil, []func(*Node){byHand}),
			want:  []string{"start attempt 1 of rev on c"},
		},
		"a cordoned node that is done counts": {
			job:   []func(*v1alpha1.NodeJob){rebooting, atMost(intstr.FromInt32(1))},
			nodes: three(nil, nil, []func(*Node){byHand, labelled(rev)}),
		},
		"a joining node without a slot does not count": {
			job: []func(*v1alpha1.NodeJob){
				rebooting,
				stableSince(600),
				atMost(intstr.FromInt32(1)),
			},
			nodes: three(nil, nil, []func(*Node){made(5), func(n *Node) { n.Ready = corev1.ConditionUnknown }}),
			want:  []string{"start attempt 1 of rev on a"},
		},
		"a joining node on which the task runs counts": {
			job: []func(*v1alpha1.NodeJob){
				rebooting,
				stableSince(600),
				atMost(intstr.FromInt32(1)),
			},
			nodes: three(nil, nil, []func(*Node){made(5), notReady}),
			pods:  []Pod{newPod(newNode("c"))},
		},
		"a joining node starts although others are unavailable": {
			job: []func(*v1alpha1.NodeJob){
				rebooting,
				stableSince(600),
				atMost(intstr.FromInt32(1)),
			},
			nodes: three([]func(*Node){notReady, labelled(rev)}, nil, []func(*Node){made(5), notReady}),
			want:  []string{"start attempt 1 of rev on c"},
		},
		"a node that reboots counts": {
			job: []func(*v1alpha1.NodeJob){
				rebooting,
				atMost(intstr.FromInt32(1)),
			},
			nodes: three(nil, nil, []func(*Node){recorded(record.Rebooting), func(n *Node) { n.ReadySince = now }}),
			want:  []string{"Settling c, recorded"},
		},
		"a node on which the task runs counts": {
			job: []func(*v1alpha1.NodeJob){
				rebooting,
				atMost(intstr.FromInt32(1)),
			},
			nodes: three(nil, nil, nil),
			pods:  []Pod{newPod(newNode("c"))},
		},
		"a node that has its slot continues": {
			job: []func(*v1alpha1.NodeJob){
				cordoning,
				atMost(intstr.FromInt32(1)),
			},
			nodes: three([]func(*Node){notReady}, []func(*Node){cordonedBy(jobKey)}, nil),
			want:  []string{"start attempt 1 of rev on b", "Preparing a, cordoned by ns.everynode.dev/job"},
		},
		"nodes that are not selected do not count": {
			job: []func(*v1alpha1.NodeJob){
				rebooting,
				inPoolA,
				atMost(intstr.FromInt32(1)),
			},
			nodes: three(nil, []func(*Node){inPool("b"), notReady}, nil),
			want:  []string{"start attempt 1 of rev on a"},
		},
		"the node of the manager waits for the others": {
			job:   []func(*v1alpha1.NodeJob){rebooting},
			own:   "a",
			nodes: three(nil, nil, nil),
			want:  []string{"start attempt 1 of rev on b", "start attempt 1 of rev on c"},
		},
		"the node of the manager waits until the others have no attempt": {
			job:   []func(*v1alpha1.NodeJob){rebooting},
			own:   "a",
			nodes: three(nil, []func(*Node){labelled(rev)}, nil),
			pods:  []Pod{newPod(newNode("c"))},
		},
		"the node of the manager does not wait for reruns": {
			job: []func(*v1alpha1.NodeJob){
				rebooting,
				periodSeconds(60),
			},
			own: "a",
			nodes: three(
				nil,
				[]func(*Node){recorded(record.Succeeded, func(r *record.Record) { r.FinishedAt = ago(3600) })},
				[]func(*Node){labelled(rev)},
			),
			want: []string{"start attempt 1 of rev on a", "start attempt 1 of rev on b"},
		},
		"the node of the manager does not wait for others once the revision is stable": {
			job:   []func(*v1alpha1.NodeJob){rebooting, stableSince(600)},
			own:   "a",
			nodes: three(nil, nil, []func(*Node){labelled(rev)}),
			want:  []string{"start attempt 1 of rev on b", "start attempt 1 of rev on a"},
		},
		"the node of the manager does not wait for a node that has not made progress for too long": {
			job: []func(*v1alpha1.NodeJob){
				rebooting,
			},
			own: "a",
			nodes: three(
				nil,
				[]func(*Node){recorded(record.Disrupted, func(r *record.Record) { r.DisruptedSince = ago(7200) })},
				[]func(*Node){labelled(rev)},
			),
			want: []string{"start attempt 1 of rev on a", "start attempt 1 of rev on b"},
		},
		"the node of the manager waits for another one when a user retries both before others": {
			job: []func(*v1alpha1.NodeJob){
				rebooting,
			},
			own:   "a",
			nodes: three([]func(*Node){retriedAlone}, []func(*Node){retriedAlone}, []func(*Node){labelled(rev)}),
			want:  []string{"start attempt 1 of rev on b"},
		},
		"the node of the manager starts last": {
			job:   []func(*v1alpha1.NodeJob){rebooting},
			own:   "a",
			nodes: three(nil, []func(*Node){labelled(rev)}, []func(*Node){labelled(rev)}),
			want:  []string{"start attempt 1 of rev on a"},
		},
		"a task without maintenance does not treat the node of the manager differently": {
			own:   "a",
			nodes: three(nil, []func(*Node){labelled(rev)}, nil),
			want:  []string{"start attempt 1 of rev on a", "start attempt 1 of rev on c"},
		},
		"the node of the manager is only a canary if there is no other node": {
			job:   []func(*v1alpha1.NodeJob){rebooting, inSteps(first(intstr.FromInt32(1)), rest)},
			own:   "a",
			nodes: three([]func(*Node){made(90)}, []func(*Node){made(5)}, []func(*Node){made(50)}),
			want:  []string{"start attempt 1 of rev on c"},
		},
		"a node that is already cordoned is the canary": {
			job:   []func(*v1alpha1.NodeJob){cordoning, atMost(intstr.FromInt32(1)), inSteps(first(intstr.FromInt32(1)), rest)},
			nodes: three([]func(*Node){made(90)}, []func(*Node){made(50), cordonedBy(jobKey)}, nil),
			want:  []string{"start attempt 1 of rev on b"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			in := see(newJob(tt.job...), tt.nodes, tt.pods...)
			in.OwnNode = tt.own
			p := Next(in)
			if diff := cmp.Diff(tt.want, told(p)); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
		})
	}
}

// retriedAlone is a failed node that a user retries before others start.
var retriedAlone = recorded(record.Failed, attempts(2), func(r *record.Record) { r.RetryRequested, r.RunsAlone = true, true })

func TestTheNodeOfTheManagerDoesNotWaitForANodeWithAProblem(t *testing.T) {
	in := see(newJob(rebootingAs(v1alpha1.RebootAlways)), []Node{newNode("b"), newNode("a")})
	in.OwnNode, in.NodeProblems = "b", nameTaken(60, -5)
	if diff := cmp.Diff([]string{"start attempt 1 of rev on b", "start attempt 1 of rev on a"}, told(Next(in))); diff != "" {
		t.Errorf("actions (-want +got):\n%s", diff)
	}
}

// A joining node may start although too many nodes are unavailable. The nodes that wait after it name it.
func TestNamesOfNodesThatBecomeUnavailableInTheSamePass(t *testing.T) {
	notReady := func(n *Node) { n.Ready = corev1.ConditionFalse }
	nodes := []Node{newNode("a", notReady, labelled(rev)), newNode("b"), newNode("c", made(5), notReady), newNode("d")}
	p := Next(see(newJob(rebootingAs(v1alpha1.RebootAlways), stableSince(600), upToUnavailable(1)), nodes))
	const want = "2 nodes are not Ready, cordoned or at work (a, c), and maintenance.maxUnavailable allows 1"
	if got := p.Nodes[3].Message; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// The message names only a few of the unavailable nodes.
func TestNamesOfUnavailableNodes(t *testing.T) {
	notReady := func(n *Node) { n.Ready = corev1.ConditionFalse }
	var nodes []Node
	for i := range maxNamed {
		nodes = append(nodes, newNode(string(rune('a'+i)), notReady, labelled(rev)))
	}
	const names, message = "a, b, c", "%d nodes are not Ready, cordoned or at work (%s), and maintenance.maxUnavailable allows 1"
	for name, tt := range map[string]struct {
		nodes []Node
		want  string
	}{
		"as many as are named": {nodes, fmt.Sprintf(message, maxNamed, names)},
		"more than are named":  {append(slices.Clone(nodes), newNode("d", notReady, labelled(rev))), fmt.Sprintf(message, maxNamed+1, names+", …")},
	} {
		p := Next(see(newJob(rebootingAs(v1alpha1.RebootAlways), upToUnavailable(1)), append(tt.nodes, newNode("z"))))
		if got := p.Nodes[len(p.Nodes)-1].Message; got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// Nodes that were quarantined after failures may use up maxUnavailable. The status says so, and how to continue.
func TestStatusReportsExhaustedMaxUnavailable(t *testing.T) {
	one := intstr.FromInt32(1)
	job := newJob(cordoning, inSteps(poolB(0), rest), func(j *v1alpha1.NodeJob) {
		j.Spec.OnFailure.Action, j.Spec.Maintenance.MaxUnavailable = v1alpha1.FailureActionCordon, &one
	})
	aside := newNode("aside", cordonedBy(jobKey), recorded(record.Failed, func(r *record.Record) { r.Revision, r.Cordoned = "old", true }))
	p := Next(see(job, []Node{aside, newNode("b", inPool("b"))}))
	if len(p.Actions) > 0 {
		t.Fatalf("actions %v, want none", told(p))
	}
	c := p.Status.Conditions[2]
	want := "1 node is not Ready or cordoned, and maintenance.maxUnavailable allows 1; still quarantined after an earlier failure: 1 node (aside), which run later. Uncordon them with kubectl uncordon, or raise maintenance.maxUnavailable"
	if c.Status != metav1.ConditionTrue || c.Reason != v1alpha1.ReasonMaxUnavailableReached || c.Message != want {
		t.Errorf("condition %+v, want Stalled: %s", c, want)
	}
	if !wakes(p, time.Time{}) {
		t.Errorf("wakes at %v, want no wake-up", p.WakeAt)
	}
	aside.Unschedulable = false // a user has uncordoned it, and another node is not Ready
	p = Next(see(job, []Node{aside, newNode("b", inPool("b")), newNode("c", func(n *Node) { n.Ready = corev1.ConditionFalse })}))
	if isStalled(p.Status) {
		t.Errorf("conditions %+v, want that no node is reported as quarantined", p.Status.Conditions)
	}
}

// TestBlockedDrain checks that a drain that cannot continue is not shown as progress.
func TestBlockedDrain(t *testing.T) {
	const budget = "The disruption budget web needs 2 healthy pods and has 2 currently"
	const progress = "0 of 1 node is done, 1 running, of which 1 "
	blockedFor := func(seconds int, pods ...DrainPod) Input {
		node := newNode("n", made(3600), cordonedBy(jobKey))
		job := newJob(draining, drainsSince("n", 40))
		job.Status.Drains[0].Blocked = []v1alpha1.BlockedPod{{Pod: "shop/web-0", Since: metav1.NewTime(ago(seconds)), Message: budget}}
		in := see(job, []Node{node})
		in.Drains = map[types.UID][]DrainPod{node.UID: pods}
		return in
	}
	web := DrainPod{Namespace: "shop", Name: "web-0", UID: "web-0", Blocked: budget, TriedAt: ago(1)}
	bare := DrainPod{Namespace: "shop", Name: "db-0", UID: "db-0", EvictionRefused: "it has no controller"}
	terminating := bare
	terminating.Terminating = true
	tests := map[string]struct {
		in      Input
		reason  string
		since   time.Time
		message string
	}{
		"a pod that is evicted": {
			blockedFor(39, DrainPod{Namespace: "shop", Name: "web-0", UID: "web-0", TriedAt: ago(1)}),
			v1alpha1.ReasonPreparing,
			time.Time{},
			progress + "Preparing (n)",
		},
		"a budget that may allow it soon": {blockedFor(29, web), v1alpha1.ReasonPreparing, time.Time{}, progress + "Preparing (n)"},
		"a refused pod that terminates": {
			blockedFor(9, terminating),
			v1alpha1.ReasonPreparing,
			time.Time{},
			progress + "Preparing (n)",
		},
		"a budget that does not allow it": {
			blockedFor(30, web),
			v1alpha1.ReasonDrainBlocked,
			now,
			progress + "DrainBlocked (n); the drain of 1 node is blocked (n: shop/web-0: " + budget + "; until 2026-03-01T12:00:20Z)",
		},
		"a pod that must never be evicted": {
			blockedFor(9, bare),
			v1alpha1.ReasonDrainBlocked,
			now,
			progress + "DrainBlocked (n); the drain of 1 node is blocked (n: shop/db-0: it has no controller; until 2026-03-01T12:00:20Z)",
		},
		"it has been blocked for some time": {
			blockedSinceBefore(blockedFor(38, web), 8),
			v1alpha1.ReasonDrainBlocked,
			ago(8),
			progress + "DrainBlocked (n); the drain of 1 node is blocked (n: shop/web-0: " + budget + "; until 2026-03-01T12:00:20Z)",
		},
		"it is not blocked any more": {
			blockedSinceBefore(blockedFor(38), 8),
			v1alpha1.ReasonStarting,
			time.Time{},
			"0 of 1 node is done, 1 running",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := Next(tt.in)
			c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReconciling)
			if p.Nodes[0].Reason != tt.reason || c.Message != tt.message ||
				(c.Reason == v1alpha1.ReasonDrainBlocked) != (tt.reason == v1alpha1.ReasonDrainBlocked) {
				t.Errorf("%+v, %s: %q; want %s, %q", p.Nodes[0], c.Reason, c.Message, tt.reason, tt.message)
			}
			if len(p.Status.Drains) > 0 && !p.Status.Drains[0].BlockedSince.Time.Equal(tt.since) {
				t.Errorf("blocked since %v, want %v", p.Status.Drains[0].BlockedSince, tt.since)
			}
			if got := len(DrainBlocked(&tt.in.Job.Status, &p.Status)); got != map[bool]int{true: 1}[tt.since.Equal(now)] {
				t.Errorf("%d events", got)
			}
		})
	}
}

// blockedSinceBefore is an input in which the drain has been blocked for some seconds.
func blockedSinceBefore(in Input, seconds int) Input {
	in.Job.Status.Drains[0].BlockedSince = metav1.NewTime(ago(seconds))
	return in
}

// TestRemedyOfTimedOutDrains checks that no message says to fix a task that has never run, and that the message begins with what is wrong.
func TestRemedyOfTimedOutDrains(t *testing.T) {
	undrained := recorded(record.Failed, attempts(2), func(r *record.Record) {
		r.Reason, r.ExitCode, r.NeverStarted = v1alpha1.ReasonDrainTimedOut, nil, true
		r.Message = "1 pod not evicted within 60 s; shop/web-7d9c5b8f6d-x2x9q: The disruption budget web needs 2 healthy pods and has 2 currently" + strings.Repeat(
			"; and so on",
			60,
		)
	})
	message := func(nodes ...Node) string {
		return meta.FindStatusCondition(Next(see(newJob(draining), nodes)).Status.Conditions, v1alpha1.ConditionStalled).Message
	}
	got := message(newNode("n", undrained))
	const want = "1 node failed (n: DrainTimedOut: 1 pod not evicted within 60 s; shop/web-7d9c5b8f6d-x2x9q: The disruption budget web needs 2 healthy pods and has 2 currently"
	if !strings.HasPrefix(got, want) || !strings.Contains(got, ". "+MakeRoom+" retry all failed nodes: kubectl -n ns annotate") ||
		strings.Contains(got, FixTask) {
		t.Errorf("got %q", got)
	}
	if got := message(newNode("n", undrained), newNode("m", recorded(record.Disrupted), isLost)); !strings.Contains(got, ". "+MakeRoom) {
		t.Errorf("with an attempt that is retried: %q", got)
	}
	if got := message(
		newNode("n", undrained),
		newNode("m", recorded(record.Failed, attempts(2))),
	); !strings.Contains(
		got,
		". "+FixTask+" retry all failed nodes: kubectl",
	) {
		t.Errorf("with a failure of the task: %q", got)
	}
	f := Next(see(newJob(draining), []Node{newNode("n", undrained)})).Status.Failures[0]
	if len(f.Message) > maxFailureMessage || !strings.HasPrefix(f.Message, "1 pod not evicted") {
		t.Errorf("the failure begins with %q", f.Message)
	}
}
