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
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
)

// TestWaitsEnd tests for each cause that node w waits for what becomes of that when nothing happens: the wait ends, the
// status says that it needs a user, or node w waits for other nodes, for which the same is true.
func TestWaitsEnd(t *testing.T) {
	const (
		// ends : the node starts, or counts as failed. blocked : the NodeJob is Stalled. user : a user has asked for it.
		ends, blocked, user = "ends", "blocked", "user"
		// others : other nodes run, and their runs have time limits.
		others = "others"
		// named : the status names the nodes that must become available. What keeps them unavailable is not part of the rollout.
		named = "named"
		// budget : the status says for which NodeDisruptionBudget nodes wait. Its own status says why it allows nothing.
		budget = "budget"
	)
	steps := inSteps(first(intstr.FromInt32(1)), rest)
	soaked := first(intstr.FromInt32(1))
	soaked.SoakSeconds = 60
	reboots := func(j *v1alpha1.NodeJob) { j.Spec.Maintenance.Reboot.Policy = v1alpha1.RebootAlways }
	unready := func(n *Node) { n.Ready = corev1.ConditionFalse }
	controlPlane := func(n *Node) { n.Labels = map[string]string{controlPlaneLabel: ""} }
	w, running := newNode("w"), newNode("a")
	done, failed := newNode("a", recorded(record.Succeeded)), newNode("a", recorded(record.Failed, attempts(2)))
	dependent := func() Input {
		in := see(newJob(), []Node{newNode("w")})
		in.DependsOn = []Peer{{Name: "dep", Key: depKey, Revision: "d1"}}
		readOnPeers(&in)
		return in
	}
	with := func(in Input, change func(*Input)) Input {
		change(&in)
		return in
	}
	tests := map[cause]struct {
		in   Input
		want string
	}{
		causeNode: {
			see(
				newJob(),
				[]Node{
					newNode(
						"w",
						recorded(record.Disrupted, func(r *record.Record) { r.DisruptedSince = ago(60) }),
						func(n *Node) { n.Ready = corev1.ConditionUnknown },
					),
				},
			),
			ends,
		},
		causeTerminatingPod: {with(see(newJob(), []Node{w}), func(in *Input) {
			in.BusyNodes = map[string]time.Time{"w": ago(9)}
		}), ends},
		causeSuspended: {see(newJob(func(j *v1alpha1.NodeJob) { j.Spec.Suspend = true }), []Node{w}), user},
		causeObstacle: {with(see(newJob(), []Node{w}), func(in *Input) {
			in.Obstacle = &hold.Why{Reason: v1alpha1.ReasonConfigMapNotFound, Message: "no"}
		}), blocked},
		causeNodeProblem: {with(see(newJob(), []Node{w}), func(in *Input) {
			in.NodeProblems = map[types.UID]NodeProblem{
				"w-uid": {
					Why:     hold.Why{Reason: v1alpha1.ReasonPodNameTaken, Message: "no", Until: now.Add(24 * time.Hour)},
					Since:   ago(9),
					TriedAt: now.Add(2 * time.Hour),
				},
			}
		}), ends},
		causeBackoff: {
			see(newJob(), []Node{newNode("w", recorded(record.Failed, func(r *record.Record) { r.FinishedAt = now }))}),
			ends,
		},
		causeDependency:  {dependent(), ends},
		causeSlot:        {see(newJob(oneAtOnce), []Node{running, w}, newPod(running)), others},
		causeCheckBefore: {see(newJob(checkedFirst), []Node{w}, newPod(w, checks)), others},
		causeStep:        {see(newJob(steps), []Node{running, w}, newPod(running)), others},
		causeSoak:        {see(newJob(inSteps(soaked, rest)), []Node{done, w}), ends},
		causeEmptyStep:   {see(newJob(inSteps(poolB(0), rest)), []Node{w}), blocked},
		causePromotion:   {see(newJob(steps, promotedTo("first")), []Node{done, w}), user},
		causeStopped:     {see(newJob(mayFailNodes(0)), []Node{failed, w}), blocked},
		causeManagerNodeLast: {
			with(see(newJob(reboots), []Node{running, w}, newPod(running)), func(in *Input) { in.OwnNode = "w" }),
			others,
		},
		causeMaxUnavailable: {
			see(newJob(reboots, func(j *v1alpha1.NodeJob) { j.Spec.Maintenance.MaxUnavailable = new(intstr.FromInt32(1)) }),
				[]Node{newNode("a", recorded(record.Succeeded), unready), w}),
			named,
		},
		causeControlPlane: {
			see(newJob(reboots), []Node{newNode("a", recorded(record.Succeeded), controlPlane, unready), newNode("w", controlPlane)}),
			named,
		},
		causeBudget: {with(see(newJob(reboots), []Node{w}), func(in *Input) {
			in.Budgets = map[types.UID]NodeBudget{"w-uid": limited(exhausted)}
		}), budget},
		causeBudgetClosed: {with(see(newJob(), []Node{w}), func(in *Input) {
			in.Budgets = map[types.UID]NodeBudget{"w-uid": limited(tasksFrozen)}
		}), budget},
		causeWindowTooShort: {with(see(newJob(reboots), []Node{w}), func(in *Input) {
			in.Budgets = map[types.UID]NodeBudget{"w-uid": limited(window(time.Hour, time.Minute))}
		}), blocked},
		causeInUse: {with(see(newJob(reboots), []Node{w}), func(in *Input) {
			in.Budgets = map[types.UID]NodeBudget{"w-uid": limited(seatless, drained)}
		}), named},
		causeRunsAlone: {
			see(newJob(), []Node{newNode("a", recorded(record.Failed, func(r *record.Record) { r.RunsAlone = true })), w}, newPod(running)),
			others,
		},
		causeRollback: {see(newJob(func(j *v1alpha1.NodeJob) {
			j.Spec.Rollback = &v1alpha1.RollbackSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "undo"}}
		}),
			[]Node{w}, newPod(w, func(p *Pod) { p.Runs = task.Rollback })), others},
	}
	for c := causeNode; c <= causeRollback; c++ {
		if _, tested := tests[c]; !tested {
			t.Errorf("cause %d is not tested", c)
		}
	}
	for c, tt := range tests {
		in := tt.in
		in.Job.Status.Revision = rev
		s := newPlanner(in)
		p := s.next()
		at := len(in.Nodes) - 1
		if got := s.nodes[at].cause; got != c && c != causeRollback {
			t.Errorf("cause %d: node w is %s (%s), with cause %d", c, p.Nodes[at].State, p.Nodes[at].Reason, got)
			continue
		}
		if p.WakeAt.IsZero() || p.WakeAt.After(now.Add(recheckInterval)) {
			t.Errorf("cause %d: the next look is at %v", c, p.WakeAt)
		}
		running := p.Status.Nodes.Running > 0 || c == causeRollback || c == causeCheckBefore // whose pods have time limits
		for range 100 {                                                                      // the next looks, at which the world is the same
			in.Job.Status, in.Now = p.Status, later(p.WakeAt, in.Now.Add(time.Second))
			if p = Next(in); in.Now.Sub(now) > defaultProgressDeadlineSeconds*time.Second {
				break
			}
		}
		state, got := p.Nodes[at], ""
		switch stalled, reconciling := p.Status.Conditions[2], p.Status.Conditions[1]; {
		case c != causeEmptyStep && c != causeStopped && state.State != Waiting:
			got = ends
		case stalled.Status == metav1.ConditionTrue:
			got = blocked
		case reconciling.Status != metav1.ConditionTrue:
			got = user
		case running:
			got = others
		case strings.Contains(reconciling.Message, "NodeInUse (w)"),
			strings.Contains(reconciling.Message, "(a)") || strings.Contains(reconciling.Message, "node a "):
			got = named
		case strings.Contains(reconciling.Message, "NodeDisruptionBudget b "):
			got = budget
		}
		if got != tt.want && !(tt.want == others && got == ends) {
			t.Errorf("cause %d: after the deadline, node w is %s (%s: %s), and the result is %q, want %q; %+v",
				c, state.State, state.Reason, state.Message, got, tt.want, p.Status.Conditions[1])
		}
	}
}

// A pod of an earlier NodeJob of the same name that does not end keeps others waiting for the progress deadline.
func TestAPodOfAnEarlierNodeJobDelaysOthersForTheProgressDeadline(t *testing.T) {
	a, b := newNode("a", made(9000)), newNode("b", made(90))
	tests := map[string]struct {
		// since and created are when the pod should have ended, and when the NodeJob was created, in seconds before now.
		since, created int
		deleting       bool
		want           []string
		reason         string // of the first node
		stalled        bool
	}{
		"it should have ended a moment ago": {
			since:   60,
			created: 90000,
			reason:  v1alpha1.ReasonPodTerminating,
		},
		"the NodeJob has not waited for it for long": {
			since:   90000,
			created: 60,
			reason:  v1alpha1.ReasonPodTerminating,
		},
		"another canary starts after the deadline": {
			since:   3600,
			created: 90000,
			want:    []string{"start attempt 1 of rev on b"},
			reason:  v1alpha1.ReasonProgressDeadlineExceeded,
		},
		"a rollback for the deletion of the NodeJob waits for it": {
			since:    10,
			created:  90000,
			deleting: true,
			reason:   v1alpha1.ReasonRollbackPending,
		},
		"the status says so when a rollback for the deletion of the NodeJob waits": {
			since:    61,
			created:  90000,
			deleting: true,
			reason:   v1alpha1.ReasonRollbackPending,
			stalled:  true,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			job := newJob(inSteps(first(intstr.FromInt32(1)), rest), mayFailNodes(1))
			job.CreationTimestamp.Time = ago(tt.created)
			nodes := []Node{a, b}
			if tt.deleting {
				job.DeletionTimestamp = &metav1.Time{Time: ago(5)}
				job.Spec.DeletionPolicy, job.Spec.Rollback = v1alpha1.DeletionRollback, &v1alpha1.RollbackSpec{
					ScriptBlock: v1alpha1.ScriptBlock{Script: "undo"},
				}
				nodes = []Node{newNode("a", recorded(record.Succeeded))}
			}
			in := see(job, nodes)
			in.BusyNodes = map[string]time.Time{"a": ago(tt.since)}
			p := Next(in)
			if diff := cmp.Diff(tt.want, told(p)); diff != "" || p.Nodes[0].Reason != tt.reason || isStalled(p.Status) != tt.stalled {
				t.Errorf("a is %s, stalled: %v; actions (-want +got):\n%s", p.Nodes[0].Reason, isStalled(p.Status), diff)
			}
			if p.WakeAt.IsZero() || p.WakeAt.After(now.Add(recheckInterval)) {
				t.Errorf("the next look is at %v", p.WakeAt)
			}
		})
	}
}
