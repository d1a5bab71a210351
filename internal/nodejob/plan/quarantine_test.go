// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/nodejob/record"
)

// Each drain is checked repeatedly, so only a few run at the same time.
func TestConcurrentDrainsAreLimited(t *testing.T) {
	nodes := make([]Node, 0, 15)
	for i := range 15 {
		changes := []func(*record.Record){attempts(2), wasCordoned}
		if i >= 12 {
			changes = append(changes, drainSince(9))
		}
		nodes = append(nodes, newNode(fmt.Sprintf("n%02d", i), recorded(record.Failed, changes...), cordonedFor("ns.everynode.dev/job")))
	}
	if p := Next(see(newJob(onFailure(v1alpha1.FailureActionDrain)), nodes)); len(p.Actions) != maxDrains-3 {
		t.Errorf("%v start in addition to 3 drains that continue", told(p))
	}
}

// The status says what blocks a drain, since when and until when, and the drain is checked repeatedly.
func TestDrainStatus(t *testing.T) {
	node := newNode("n", recorded(record.Failed, attempts(2), drainSince(100)), cordonedFor("ns.everynode.dev/job"))
	job := newJob(onFailure(v1alpha1.FailureActionDrain), func(j *v1alpha1.NodeJob) {
		j.Spec.OnFailure.Drain = &v1alpha1.DrainSpec{TimeoutSeconds: new(int32(103)), GracePeriodSeconds: new(int32(7))}
	})
	job.Status.Drains = []v1alpha1.NodeDrain{
		{
			Node:         "m",
			Since:        metav1.Time{Time: ago(100)},
			BlockedSince: metav1.Time{Time: ago(70)},
			Blocked:      []v1alpha1.BlockedPod{{Pod: "web/b", Since: metav1.Time{Time: ago(60)}}},
		},
		{
			Node:         "n",
			Since:        metav1.Time{Time: ago(200)},
			BlockedSince: metav1.Time{Time: ago(50)},
			Blocked:      []v1alpha1.BlockedPod{{Pod: "web/c", Since: metav1.Time{Time: ago(50)}}},
		},
	}
	in := see(job, []Node{node})
	in.Drains = map[types.UID][]DrainPod{node.UID: {{Namespace: "web", Name: "0", Terminating: true, Blocked: "budget 0"}}}
	for _, name := range []string{"a", "b", "c", "d"} {
		in.Drains = map[types.UID][]DrainPod{node.UID: append(in.Drains[node.UID],
			DrainPod{Namespace: "web", Name: name, UID: types.UID(name), Blocked: "budget " + name, TriedAt: ago(9)})}
	}
	p := Next(in)
	blocked := func(name string, since time.Time) v1alpha1.BlockedPod {
		return v1alpha1.BlockedPod{Pod: "web/" + name, Since: metav1.Time{Time: since}, Message: "budget " + name}
	}
	want := []v1alpha1.NodeDrain{
		{
			Node:         "n",
			Since:        metav1.Time{Time: ago(100)},
			Deadline:     metav1.Time{Time: now.Add(3 * time.Second)},
			BlockedSince: metav1.Time{Time: now},
			Pods:         5,
			Blocked:      []v1alpha1.BlockedPod{blocked("c", ago(50)), blocked("a", now), blocked("b", now)},
		},
	}
	if diff := cmp.Diff(want, p.Status.Drains); diff != "" {
		t.Errorf("drains (-want +got):\n%s", diff)
	}
	if !p.WakeAt.Equal(now.Add(3 * time.Second)) {
		t.Errorf("wakes at %v, want at the deadline", p.WakeAt)
	}
	if e, ok := p.Actions[0].(Evict); !ok || *e.GracePeriodSeconds != 7 || len(e.Pods) != 4 {
		t.Errorf("%+v, want the eviction of 4 pods with 7 seconds", p.Actions)
	}
	if got := p.Status.Failures[0].Quarantine; got != v1alpha1.ReasonDraining {
		t.Errorf("quarantined: %q", got)
	}
}

// TestEndOfQuarantine tests the write with which the quarantine of a node ends.
func TestEndOfQuarantine(t *testing.T) {
	const byUser, over = "it was uncordoned by a user or another tool, and is not cordoned again for this failure", "the cordon is no longer needed"
	uncordoned := func(n *Node) { n.CordonedBy = []string{jobKey} }
	cordon, drain := onFailure(v1alpha1.FailureActionCordon), onFailure(v1alpha1.FailureActionDrain)
	for name, tt := range map[string]struct {
		job     func(*v1alpha1.NodeJob)
		changes []func(*record.Record)
		cordon  func(*Node)
		message string
		// cordoned is what the record says, and drain how the drain ended; "" if there was none.
		cordoned bool
		drain    string
	}{
		"a user has uncordoned a failed node":              {cordon, []func(*record.Record){attempts(2)}, uncordoned, byUser, true, ""},
		"a user has uncordoned a node that is drained":     {drain, []func(*record.Record){attempts(2), drainSince(9)}, uncordoned, byUser, true, v1alpha1.ReasonDrainCancelled},
		"a user has uncordoned a node that is retried":     {cordon, []func(*record.Record){wasCordoned}, uncordoned, byUser, false, ""},
		"onFailure no longer requires the cordon":          {onFailure(v1alpha1.FailureActionNone), []func(*record.Record){attempts(2), wasCordoned}, cordonedBy(jobKey), over, false, ""},
		"onFailure no longer requires the cordon or drain": {onFailure(v1alpha1.FailureActionNone), []func(*record.Record){attempts(2), drainSince(9)}, cordonedBy(jobKey), over, false, v1alpha1.ReasonDrainCancelled},
	} {
		t.Run(name, func(t *testing.T) {
			actions := Next(see(newJob(tt.job), []Node{newNode("n", recorded(record.Failed, tt.changes...), tt.cordon)})).Actions
			mark, is := actions[len(actions)-1].(PatchNode)
			if !is || mark.Message != tt.message || mark.Record == nil || mark.Record.Cordoned != tt.cordoned {
				t.Fatalf("%+v, want %q, and a record with cordoned %t", actions, tt.message, tt.cordoned)
			}
			if got := mark.Record.Drain; (got == nil) != (tt.drain == "") || got != nil && got.Outcome != tt.drain {
				t.Errorf("drain %+v, want %q", got, tt.drain)
			}
		})
	}
}

// TestCordonBeforeTheTask tests whether a node stays cordoned that was prepared for the task and on which it does not start.
func TestCordonBeforeTheTask(t *testing.T) {
	refusedUntil := func(at time.Time) func(*Input) {
		return func(in *Input) {
			in.Obstacle = &hold.Why{Reason: v1alpha1.ReasonPodForbidden, Message: "no", Until: at}
		}
	}
	lost := func(n *Node) { n.Ready = corev1.ConditionUnknown }
	terminating := func(in *Input) {
		in.Pods = []Pod{newPod(in.Nodes[0], func(p *Pod) { p.Finalized, p.DeleteRequested = false, ago(1) })}
	}
	const uncordoned, rollback = "Uncordoned n, uncordoned", "start rollback 1 of rev on n"
	for name, tt := range map[string]struct {
		job  func(*v1alpha1.NodeJob)
		node func(*Node)
		in   func(*Input)
		want []string
	}{
		"pods are refused for a while":                          {in: refusedUntil(ago(-5))},
		"pods are refused for a while, and a user uncordons it": {in: refusedUntil(ago(-5)), node: func(n *Node) { n.Unschedulable = false }, want: []string{uncordoned}},
		"pods are refused until a user acts":                    {in: refusedUntil(time.Time{}), want: []string{uncordoned}},
		"pods are refused for a while, and it is done":          {in: refusedUntil(ago(-5)), node: labelled(rev), want: []string{uncordoned}},
		"it is suspended":                                       {job: onHold, want: []string{uncordoned}},
		"it is suspended after an attempt":                      {job: func(j *v1alpha1.NodeJob) { onHold(j); onFailure(v1alpha1.FailureActionCordon)(j) }, node: recorded(record.Failed), want: []string{uncordoned}},
		"it is suspended before the rollback":                   {job: func(j *v1alpha1.NodeJob) { onHold(j); withRollback(j) }, node: exhaustedWith(nil)},
		"the rollback starts":                                   {job: withRollback, node: exhaustedWith(nil), want: []string{rollback}},
		"the rollback has ended":                                {job: withRollback, node: recorded(record.Failed, attempts(2), undone(record.Succeeded, 1)), want: []string{uncordoned}},
		"it waits for the backoff":                              {node: recorded(record.Disrupted, func(r *record.Record) { r.FinishedAt = ago(1) })},
		"it is unreachable before the first attempt":            {node: lost, want: []string{uncordoned}},
		"it is unreachable after an attempt":                    {node: func(n *Node) { recorded(record.Disrupted)(n); lost(n) }},
		"it is unreachable after an attempt of a revision ago":  {node: func(n *Node) { recorded(record.Failed, func(r *record.Record) { r.Revision = "old" })(n); lost(n) }, want: []string{uncordoned}},
		"the pod of the attempt before is terminating":          {node: recorded(record.Failed), in: terminating},
	} {
		t.Run(name, func(t *testing.T) {
			in := see(newJob(cordoning), []Node{newNode("n", cordonedBy(jobKey))})
			if tt.job != nil {
				tt.job(in.Job)
			}
			if tt.node != nil {
				tt.node(&in.Nodes[0])
			}
			if tt.in != nil {
				tt.in(&in)
			}
			if diff := cmp.Diff(tt.want, told(Next(in))); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
		})
	}
}

// While one start shows whether pods are still refused, a node stays cordoned, but not if it has not made progress for too long.
func TestAPreparedNodeWithoutProgressIsUncordoned(t *testing.T) {
	in := see(newJob(cordoning), []Node{
		newNode("a", cordonedBy(jobKey)), newNode("b", cordonedBy(jobKey)),
		newNode("c", cordonedBy(jobKey), recorded(record.Disrupted, func(r *record.Record) { r.DisruptedSince = ago(7200) })),
	})
	in.Obstacle = &hold.Why{Reason: v1alpha1.ReasonPodForbidden, Message: "no", Until: ago(5)}
	if diff := cmp.Diff([]string{"start attempt 1 of rev on a", "Uncordoned c, uncordoned"}, told(Next(in))); diff != "" {
		t.Errorf("actions (-want +got):\n%s", diff)
	}
}

// TestCordonWhilePodsAreRefused tests nodes that do not stay cordoned although pods are only refused for a while.
func TestCordonWhilePodsAreRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		job   []func(*v1alpha1.NodeJob)
		nodes []Node
		retry int
		want  []string
	}{
		"the rollout has stopped": {[]func(*v1alpha1.NodeJob){mayFailNodes(0)}, []Node{newNode("a", isFailed), newNode("n", cordonedBy(jobKey))}, 5, []string{"Uncordoned n, uncordoned"}},
		"it waits for its step": {
			[]func(*v1alpha1.NodeJob){inSteps(poolB(0), rest)}, []Node{newNode("a", inPool("b")), newNode("n", cordonedBy(jobKey))}, -5,
			[]string{"Preparing a, cordoned by " + jobKey, "Uncordoned n, uncordoned"},
		},
		"it was cordoned because of a failure": {nil, []Node{newNode("n", recorded(record.Failed, wasCordoned), cordonedBy(jobKey))}, 5, []string{"Uncordoned n, recorded, uncordoned"}},
	} {
		in := see(newJob(append([]func(*v1alpha1.NodeJob){cordoning}, tt.job...)...), tt.nodes)
		in.Obstacle = &hold.Why{Reason: v1alpha1.ReasonPodForbidden, Message: "no", Until: ago(-tt.retry)}
		if diff := cmp.Diff(tt.want, told(Next(in))); diff != "" {
			t.Errorf("%s: actions (-want +got):\n%s", name, diff)
		}
	}
}

func TestQuarantineState(t *testing.T) {
	ended := func(outcome string) func(*record.Record) {
		return func(r *record.Record) {
			r.Drain = &record.Drain{StartedAt: ago(9), FinishedAt: ago(5), Outcome: outcome}
		}
	}
	co := &cordons{&job{policy: policy{key: jobKey}}}
	for name, tt := range map[string]struct {
		record func(*record.Record)
		cordon func(*Node)
		want   string
	}{
		"it is not cordoned":                 {func(*record.Record) {}, func(*Node) {}, ""},
		"it is cordoned by a user":           {func(*record.Record) {}, byHand, ""},
		"it is cordoned":                     {wasCordoned, cordonedBy(jobKey), v1alpha1.ReasonCordoned},
		"it is being drained":                {drainSince(9), cordonedBy(jobKey), v1alpha1.ReasonDraining},
		"it is drained":                      {ended(v1alpha1.ReasonDrained), cordonedBy(jobKey), v1alpha1.ReasonDrained},
		"it could not be drained":            {ended(v1alpha1.ReasonDrainTimedOut), cordonedBy(jobKey), v1alpha1.ReasonDrainTimedOut},
		"its drain was cancelled":            {ended(v1alpha1.ReasonDrainCancelled), cordonedBy(jobKey), v1alpha1.ReasonCordoned},
		"a user has uncordoned it meanwhile": {ended(v1alpha1.ReasonDrainCancelled), func(*Node) {}, ""},
	} {
		node := newNode("n", recorded(record.Failed, tt.record), tt.cordon)
		if got := co.quarantineState(&node); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// TestDrainsThatBecomeBlocked tests which drains get an event.
func TestDrainsThatBecomeBlocked(t *testing.T) {
	drain := func(node string, blockedSince time.Time) v1alpha1.NodeDrain {
		return v1alpha1.NodeDrain{
			Node:         node,
			BlockedSince: metav1.Time{Time: blockedSince},
			Blocked:      []v1alpha1.BlockedPod{{Pod: "web/a", Message: "budget"}},
		}
	}
	for name, tt := range map[string]struct {
		before, after []v1alpha1.NodeDrain
		want          bool
	}{
		"it is not blocked":                              {nil, []v1alpha1.NodeDrain{drain("n", time.Time{})}, false},
		"it becomes blocked":                             {[]v1alpha1.NodeDrain{drain("n", time.Time{})}, []v1alpha1.NodeDrain{drain("n", now)}, true},
		"it has been blocked":                            {[]v1alpha1.NodeDrain{drain("n", ago(9))}, []v1alpha1.NodeDrain{drain("n", ago(9))}, false},
		"it was blocked before, and is now":              {[]v1alpha1.NodeDrain{drain("n", ago(9))}, []v1alpha1.NodeDrain{drain("n", now)}, true},
		"another one has been blocked for the same time": {[]v1alpha1.NodeDrain{drain("m", now)}, []v1alpha1.NodeDrain{drain("n", now)}, true},
	} {
		got := DrainBlocked(&v1alpha1.NodeJobStatus{Drains: tt.before}, &v1alpha1.NodeJobStatus{Drains: tt.after})
		if _, is := got["n"]; is != tt.want || len(got) > 1 {
			t.Errorf("%s: %v, want one of n: %t", name, got, tt.want)
		}
	}
}
