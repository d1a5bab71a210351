// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
)

// limited is a node with a seat that the budgets allow to evict.
func limited(changes ...func(*NodeBudget)) NodeBudget {
	b := NodeBudget{Effect: hold.Effect{Limited: true}, Stance: hold.Stance{Seat: "seat", SeatUID: "seat-uid", Allowed: true}}
	for _, change := range changes {
		change(&b)
	}
	return b
}

func isClaimed(b *NodeBudget) { b.Claimed = true }
func seatless(b *NodeBudget)  { b.Seat, b.SeatUID = "", "" }
func drained(b *NodeBudget)   { b.Drained = true }
func takesOver(names string) func(*v1alpha1.NodeJob) {
	return func(j *v1alpha1.NodeJob) {
		j.Annotations = map[string]string{v1alpha1.TakeOverAnnotation: names}
	}
}

func exhausted(b *NodeBudget) {
	b.Allowed, b.Message = false, "NodeDisruptionBudget b allows 1"
}

var frozenUntil = now.Add(time.Hour)

func frozen(b *NodeBudget) {
	b.Closed = &hold.Why{Message: "NodeDisruptionBudget b allows no disruption", Until: frozenUntil}
}

func tasksFrozen(b *NodeBudget) { frozen(b); b.TasksClosed = b.Closed }

// window closes after some time, and the longest one has that duration.
func window(closes, longest time.Duration) func(*NodeBudget) {
	return func(b *NodeBudget) {
		b.ClosesAt, b.ClosesBy, b.Longest, b.LongestOf = now.Add(closes), "b", longest, "b"
	}
}

// TestBudgets tests a NodeJob with nodes a and b, which run a task of one minute, twice at most.
func TestBudgets(t *testing.T) {
	always := rebootingAs(v1alpha1.RebootAlways) // with a timeout of 5 minutes
	unready := func(n *Node) { n.Ready = corev1.ConditionFalse }
	const (
		startA, startB = "start attempt 1 of rev on a", "start attempt 1 of rev on b"
		cordonA        = "Preparing a, cordoned by ns.everynode.dev/job"
		longest        = "a run can take 7m10s (task 2 × 1m0s, backoff 10s, reboot 5m0s)"
	)
	tests := map[string]struct {
		job    []func(*v1alpha1.NodeJob)
		a      []func(*Node)
		budget NodeBudget // of both nodes
		pods   []Pod
		want   []string
		// message and until are those of node a, if it waits for a budget.
		cause         cause
		message       string
		until         time.Time
		holds, awaits []types.UID
		// claims are the nodes whose claims are still needed; nil if these are the held ones.
		claims []types.UID
	}{
		"without a budget, both start": {
			job: []func(*v1alpha1.NodeJob){always}, want: []string{startA, startB}, holds: []types.UID{"a-uid", "b-uid"},
		},
		"a task that disrupts nothing claims nothing": {
			budget: limited(exhausted, frozen, window(time.Second, time.Second)), want: []string{startA, startB},
		},
		"a task that disrupts nothing waits for a closed budget with scope Tasks": {
			budget: limited(tasksFrozen),
			cause:  causeBudgetClosed, message: "NodeDisruptionBudget b allows no disruption", until: frozenUntil,
		},
		"a node is claimed before it starts": {
			job: []func(*v1alpha1.NodeJob){always}, budget: limited(), want: []string{"claim a", "claim b"},
			cause: causeBudget, message: "it claims the node from its NodeDisruptionBudgets", holds: []types.UID{"a-uid", "b-uid"},
		},
		"a node that ignores windows is claimed": {
			job: []func(*v1alpha1.NodeJob){
				always,
			},
			budget:  limited(func(b *NodeBudget) { b.Outside = "b" }),
			want:    []string{"claim a", "claim b"},
			cause:   causeBudget,
			message: "it claims the node from its NodeDisruptionBudgets outside of the window of b, because spec.maintenance.ignoreWindowsOn names it",
			holds:   []types.UID{"a-uid", "b-uid"},
		},
		"no more nodes are claimed than may be unavailable": {
			job: []func(*v1alpha1.NodeJob){always, upToUnavailable(1)}, budget: limited(), want: []string{"claim a"},
			cause: causeBudget, message: "it claims the node from its NodeDisruptionBudgets", holds: []types.UID{"a-uid"},
		},
		"no more nodes are claimed than there are slots": {
			job: []func(*v1alpha1.NodeJob){always, oneAtOnce, upToUnavailable(2)}, budget: limited(), want: []string{"claim a"},
			cause: causeBudget, message: "it claims the node from its NodeDisruptionBudgets", holds: []types.UID{"a-uid"},
		},
		"a claimed node starts": {
			job: []func(*v1alpha1.NodeJob){always}, budget: limited(isClaimed, seatless, exhausted, frozen),
			want: []string{startA, startB}, holds: []types.UID{"a-uid", "b-uid"},
		},
		"a claimed node is prepared": {
			job: []func(*v1alpha1.NodeJob){cordoning, upToUnavailable(1)}, budget: limited(isClaimed, seatless),
			want: []string{cordonA}, holds: []types.UID{"a-uid"},
		},
		"the claim of a node that must not start is dropped": {
			job:    []func(*v1alpha1.NodeJob){always, func(j *v1alpha1.NodeJob) { j.Spec.Suspend = true }},
			budget: limited(isClaimed, seatless),
		},
		"a claimed node does not start while a budget with scope Tasks is closed": {
			job: []func(*v1alpha1.NodeJob){always}, budget: limited(isClaimed, seatless, tasksFrozen),
			cause: causeBudgetClosed, message: "NodeDisruptionBudget b allows no disruption", until: frozenUntil,
		},
		"a node that is prepared continues while its budget is closed": {
			job: []func(*v1alpha1.NodeJob){cordoning, upToUnavailable(1)}, a: []func(*Node){cordonedBy(jobKey)},
			budget: limited(seatless, tasksFrozen), want: []string{startA}, holds: []types.UID{"a-uid"},
		},
		"a node that is prepared waits, and stays cordoned, until the manager knows whether it has its seat": {
			job:     []func(*v1alpha1.NodeJob){cordoning, upToUnavailable(1)},
			a:       []func(*Node){cordonedBy(jobKey)},
			budget:  NodeBudget{Effect: hold.Effect{Limited: true}, Unknown: true},
			cause:   causeBudget,
			message: "the manager does not know yet what its NodeDisruptionBudgets allow",
			holds:   []types.UID{"a-uid"},
			claims:  []types.UID{},
		},
		"a node that is drained continues while its budget is closed": {
			job: []func(*v1alpha1.NodeJob){draining, drainsSince("a", 10)}, a: []func(*Node){byHand},
			budget: limited(seatless, tasksFrozen), holds: []types.UID{"a-uid"},
		},
		"a node whose drain has begun is not one that another tool has drained": {
			job: []func(*v1alpha1.NodeJob){draining, drainsSince("a", 10)}, a: []func(*Node){byHand},
			budget: limited(seatless, drained), holds: []types.UID{"a-uid"},
		},
		"a node that another tool has drained": {
			job: []func(*v1alpha1.NodeJob){
				always,
				oneAtOnce,
			},
			a:      []func(*Node){byHand, func(n *Node) { n.CordonedWith = "kubectl-cordon" }},
			budget: limited(seatless, drained),
			cause:  causeInUse,
			message: "something else (kubectl-cordon) has drained it and may still work on it; the task starts when the node is uncordoned. " +
				"If nothing works there: kubectl uncordon a, or kubectl -n ns annotate nodejob job everynode.dev/take-over=a --overwrite",
		},
		"a node that another tool has drained, and that the NodeJob may take over": {
			job: []func(*v1alpha1.NodeJob){always, takesOver("x, a,y")}, a: []func(*Node){byHand},
			budget: limited(seatless, drained), want: []string{"claim a"}, cause: causeBudget,
			message: "it claims the node from its NodeDisruptionBudgets", holds: []types.UID{"a-uid"},
		},
		"a task that disrupts nothing starts where another tool works": {
			budget: limited(seatless, drained),
			want:   []string{startA, startB},
		},
		"a budget is exhausted": {
			job: []func(*v1alpha1.NodeJob){always}, budget: limited(exhausted),
			cause: causeBudget, message: "NodeDisruptionBudget b allows 1", awaits: []types.UID{"a-uid", "b-uid"},
		},
		"the manager does not know what the budgets allow": {
			job: []func(*v1alpha1.NodeJob){always}, budget: NodeBudget{Effect: hold.Effect{Limited: true}, Unknown: true},
			cause: causeBudget, message: "the manager does not know yet what its NodeDisruptionBudgets allow",
		},
		"a budget is closed": {
			job: []func(*v1alpha1.NodeJob){always}, budget: limited(frozen),
			cause: causeBudgetClosed, message: "NodeDisruptionBudget b allows no disruption", until: frozenUntil,
		},
		"a node waits for its seat": {
			job: []func(*v1alpha1.NodeJob){always}, budget: limited(seatless, func(b *NodeBudget) { b.Allowed, b.Message = false, "" }),
			cause: causeBudget, message: "its NodeDisruptionBudgets do not allow it now",
		},
		"a node without a seat that is unavailable is claimed without an eviction": {
			job: []func(*v1alpha1.NodeJob){always, oneAtOnce, upToUnavailable(1)}, a: []func(*Node){unready}, budget: limited(seatless),
			want: []string{"claim a"}, cause: causeBudget, message: "it claims the node from its NodeDisruptionBudgets",
			holds: []types.UID{"a-uid"},
		},
		"the window closes when the run can end": {
			job: []func(*v1alpha1.NodeJob){always, oneAtOnce}, budget: limited(window(7*time.Minute+10*time.Second, time.Hour)),
			want: []string{"claim a"}, cause: causeBudget, message: "it claims the node from its NodeDisruptionBudgets",
			holds: []types.UID{"a-uid"},
		},
		"the window closes before the run can end": {
			job:     []func(*v1alpha1.NodeJob){always},
			budget:  limited(window(7*time.Minute+9*time.Second, time.Hour)),
			cause:   causeBudgetClosed,
			until:   now.Add(7*time.Minute + 9*time.Second),
			message: "the window of NodeDisruptionBudget b closes at 2026-03-01T12:07:09Z, and " + longest + ", so it starts in a later window",
		},
		"no window is long enough": {
			job: []func(*v1alpha1.NodeJob){always}, budget: limited(window(time.Minute, 7*time.Minute)), cause: causeWindowTooShort,
			message: longest + ", and the longest window of NodeDisruptionBudget b is 7m0s, so none can start: " +
				"set a longer durationSeconds there, or a shorter task.timeoutSeconds or a lower retry.limit here",
		},
		"the longest window of another budget than the one that closes first is not long enough": {
			job: []func(*v1alpha1.NodeJob){always}, cause: causeWindowTooShort,
			budget: limited(window(time.Minute, 7*time.Minute), func(b *NodeBudget) { b.LongestOf = "c" }),
			message: longest + ", and the longest window of NodeDisruptionBudget c is 7m0s, so none can start: " +
				"set a longer durationSeconds there, or a shorter task.timeoutSeconds or a lower retry.limit here",
		},
		"the last attempt needs less time": {
			job: []func(*v1alpha1.NodeJob){always, oneAtOnce}, a: []func(*Node){recorded(record.Failed)},
			budget: limited(window(6*time.Minute, time.Hour)), want: []string{"claim a"},
			cause: causeBudget, message: "it claims the node from its NodeDisruptionBudgets", holds: []types.UID{"a-uid"},
		},
		"a run that waits for its retry is held": {
			job:    []func(*v1alpha1.NodeJob){always, oneAtOnce, upToUnavailable(1)},
			a:      []func(*Node){recorded(record.Failed, func(r *record.Record) { r.FinishedAt = now })},
			budget: limited(exhausted), holds: []types.UID{"a-uid"}, awaits: []types.UID{"b-uid"},
		},
		"a node that could not be drained is not held": {
			job: []func(*v1alpha1.NodeJob){draining},
			a: []func(*Node){recorded(record.Failed, func(r *record.Record) {
				r.FinishedAt, r.NeverStarted, r.Reason = now, true, v1alpha1.ReasonDrainTimedOut
			})},
			budget: limited(exhausted), awaits: []types.UID{"b-uid"},
		},
		"a node that reboots is held": {
			job: []func(*v1alpha1.NodeJob){always}, a: []func(*Node){recorded(record.Rebooting)}, budget: limited(exhausted),
			want: []string{"Settling a, recorded"}, holds: []types.UID{"a-uid"}, awaits: []types.UID{"b-uid"},
		},
		"a rollback waits for no budget": {
			job:    []func(*v1alpha1.NodeJob){always, withRollback, upToUnavailable(1)},
			a:      []func(*Node){exhaustedWith(nil)},
			budget: limited(exhausted, frozen, func(b *NodeBudget) { b.TasksClosed = nil }),
			want:   []string{"start rollback 1 of rev on a"}, holds: []types.UID{"a-uid"},
		},
		"a node that is quarantined after a failure is held": {
			job: []func(*v1alpha1.NodeJob){always, func(j *v1alpha1.NodeJob) { j.Spec.OnFailure.Action = v1alpha1.FailureActionCordon }},
			a: []func(*Node){
				recorded(record.Failed, attempts(2), func(r *record.Record) { r.Cordoned = true }), cordonedBy(jobKey),
			},
			budget: limited(exhausted), holds: []types.UID{"a-uid"}, claims: []types.UID{}, awaits: []types.UID{"b-uid"},
		},
		"a failed node is held until it is quarantined": {
			job:    []func(*v1alpha1.NodeJob){always, func(j *v1alpha1.NodeJob) { j.Spec.OnFailure.Action = v1alpha1.FailureActionCordon }},
			a:      []func(*Node){recorded(record.Failed, attempts(2))},
			budget: limited(exhausted),
			want:   []string{"Cordoned a, recorded, cordoned by ns.everynode.dev/job"},
			holds:  []types.UID{"a-uid"},
			claims: []types.UID{},
			awaits: []types.UID{"b-uid"},
		},
		"a failed node that is not quarantined is not held": {
			job: []func(*v1alpha1.NodeJob){always}, a: []func(*Node){recorded(record.Failed, attempts(2))}, budget: limited(exhausted),
			awaits: []types.UID{"b-uid"},
		},
		"a failed node that a user has uncordoned is not held": {
			job: []func(*v1alpha1.NodeJob){always, func(j *v1alpha1.NodeJob) { j.Spec.OnFailure.Action = v1alpha1.FailureActionCordon }},
			a:   []func(*Node){recorded(record.Failed, attempts(2), wasCordoned)}, budget: limited(exhausted),
			awaits: []types.UID{"b-uid"},
		},
		"a run whose rollback waits for a retry is held": {
			job:    []func(*v1alpha1.NodeJob){always, withRollback},
			a:      []func(*Node){exhaustedWith(&record.Rollback{Outcome: record.Failed, Attempts: 1, FinishedAt: now})},
			budget: limited(exhausted), holds: []types.UID{"a-uid"}, claims: []types.UID{}, awaits: []types.UID{"b-uid"},
		},
		"a run that waits for a slot for its retry is held": {
			job:    []func(*v1alpha1.NodeJob){always, oneAtOnce},
			a:      []func(*Node){recorded(record.Failed, func(r *record.Record) { r.FinishedAt = ago(60) })},
			budget: limited(isClaimed, seatless), pods: []Pod{newPod(newNode("b"))}, holds: []types.UID{"a-uid", "b-uid"},
		},
		"a run that waits for its retry is held while the manager does not know the budgets": {
			job:     []func(*v1alpha1.NodeJob){always, oneAtOnce},
			a:       []func(*Node){recorded(record.Failed, func(r *record.Record) { r.FinishedAt = ago(60) })},
			budget:  NodeBudget{Effect: hold.Effect{Limited: true}, Unknown: true},
			holds:   []types.UID{"a-uid"},
			cause:   causeBudget,
			message: "the manager does not know yet what its NodeDisruptionBudgets allow",
		},
		"a run that waits for a budget for its retry is not held": {
			job: []func(*v1alpha1.NodeJob){
				always,
			},
			a: []func(*Node){recorded(record.Failed, func(r *record.Record) { r.FinishedAt = ago(60) })},
			budget: limited(
				exhausted,
			),
			cause:   causeBudget,
			message: "NodeDisruptionBudget b allows 1",
			awaits:  []types.UID{"a-uid", "b-uid"},
		},
		"a node on which a pod of the task ends is held": {
			job:    []func(*v1alpha1.NodeJob){always},
			pods:   []Pod{newPod(newNode("a"), func(p *Pod) { p.Finalized, p.DeleteRequested = false, ago(1) })},
			budget: limited(seatless, exhausted), holds: []types.UID{"a-uid"}, claims: []types.UID{},
		},
		"a run that disrupts its node is held although the spec no longer does": {
			job:    []func(*v1alpha1.NodeJob){oneAtOnce},
			pods:   []Pod{newPod(newNode("a"), func(p *Pod) { p.Disrupts = true })},
			budget: limited(isClaimed, seatless), holds: []types.UID{"a-uid"},
		},
		"a run that disrupts its node is held until it has ended": {
			job:    []func(*v1alpha1.NodeJob){oneAtOnce},
			pods:   []Pod{newPod(newNode("a"), func(p *Pod) { p.Disrupts, p.Finalized, p.DeleteRequested = true, false, ago(1) })},
			budget: limited(seatless), want: []string{startB}, holds: []types.UID{"a-uid"}, claims: []types.UID{},
		},
		"a node that a pod may reboot is held when the record of the run was removed and the spec no longer disrupts it": {
			job:    []func(*v1alpha1.NodeJob){oneAtOnce},
			pods:   []Pod{newPod(newNode("a"), func(p *Pod) { p.Disrupts, p.Runs = true, task.Reboot })},
			budget: limited(seatless), want: []string{"release a-pod", startB}, holds: []types.UID{"a-uid"}, claims: []types.UID{},
		},
		"a run that disrupts nothing is not held": {
			job: []func(*v1alpha1.NodeJob){oneAtOnce}, pods: []Pod{newPod(newNode("a"))}, budget: limited(),
		},
		"the claim ends with the run": {
			job:    []func(*v1alpha1.NodeJob){cordoning, oneAtOnce},
			a:      []func(*Node){cordonedBy(jobKey)},
			pods:   []Pod{newPod(newNode("a"), exited(0))},
			budget: limited(isClaimed, seatless),
			want:   []string{"record Succeeded on a: attempts 1, disruptions 0, uncordoned"},
			holds:  []types.UID{"a-uid"},
			claims: []types.UID{},
		},
		"a node that is cordoned after a failure is claimed again for a retry": {
			job:     []func(*v1alpha1.NodeJob){cordoning, upToUnavailable(1)},
			a:       []func(*Node){recorded(record.Failed, wasCordoned), cordonedBy(jobKey)},
			budget:  limited(seatless),
			want:    []string{"claim a"},
			cause:   causeBudget,
			message: "it claims the node from its NodeDisruptionBudgets",
			holds:   []types.UID{"a-uid"},
		},
		"a cordoned node with a seat is claimed": {
			job:     []func(*v1alpha1.NodeJob){cordoning, upToUnavailable(1)},
			a:       []func(*Node){cordonedBy(jobKey)},
			budget:  limited(),
			want:    []string{"claim a"},
			cause:   causeBudget,
			message: "it claims the node from its NodeDisruptionBudgets",
			holds:   []types.UID{"a-uid"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			in := see(newJob(append([]func(*v1alpha1.NodeJob){upToUnavailable(2)}, tt.job...)...),
				[]Node{newNode("a", tt.a...), newNode("b")}, tt.pods...)
			in.Budgets = map[types.UID]NodeBudget{"a-uid": tt.budget, "b-uid": tt.budget}
			s := newPlanner(in)
			p := s.next()
			if diff := cmp.Diff(tt.want, told(p)); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
			a := &s.nodes[0]
			if tt.message != "" && (a.cause != tt.cause || a.Message != tt.message || !a.Until.Equal(tt.until)) {
				t.Errorf("node a waits with cause %d until %v: %q\nwant cause %d until %v: %q",
					a.cause, a.Until, a.Message, tt.cause, tt.until, tt.message)
			}
			if tt.message == "" && slices.Contains([]cause{causeBudget, causeBudgetClosed, causeWindowTooShort, causeInUse}, a.cause) {
				t.Errorf("node a waits with cause %d: %q", a.cause, a.Message)
			}
			if tt.message != "" && !p.AwaitsBudgets {
				t.Error("the plan does not say that it depends on budgets")
			}
			if !tt.until.IsZero() && !wakes(p, tt.until) {
				t.Errorf("the next look is at %v, want %v", p.WakeAt, tt.until)
			}
			if diff := cmp.Diff(tt.holds, slices.Sorted(maps.Keys(p.Holds))); diff != "" {
				t.Errorf("holds (-want +got):\n%s", diff)
			}
			if tt.claims == nil {
				tt.claims = tt.holds
			}
			if diff := cmp.Diff(tt.claims, slices.Sorted(maps.Keys(p.Claims)), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("claims (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.awaits, slices.Sorted(maps.Keys(p.Waits))); diff != "" {
				t.Errorf("waits (-want +got):\n%s", diff)
			}
			if closed := tt.cause == causeBudgetClosed; p.Closed["a-uid"] != closed {
				t.Errorf("a budget that is closed holds %v back, want node a: %t", p.Closed, closed)
			}
		})
	}
}

// TestAFreezeHidesNoPromotion : a node whose step may not begin waits for the promotion, not for a budget.
func TestAFreezeHidesNoPromotion(t *testing.T) {
	in := see(
		newJob(inSteps(first(intstr.FromInt32(1)), rest), promotedTo("first")),
		[]Node{newNode("a", recorded(record.Succeeded), labelled(rev)), newNode("b")},
	)
	in.Budgets = map[types.UID]NodeBudget{"b-uid": limited(tasksFrozen)}
	p := Next(in)
	if b := p.Nodes[1]; b.Reason != v1alpha1.ReasonAwaitingPromotion || len(p.Closed) > 0 {
		t.Errorf("node b is %+v, and %v are held back", b, p.Closed)
	}
	for _, c := range p.Status.Conditions {
		if c.Type == v1alpha1.ConditionReconciling && (c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.ReasonAwaitingPromotion) {
			t.Errorf("the condition is %+v", c)
		}
	}
}

// A claim names the seat that is to be evicted.
func TestAClaimNamesTheSeat(t *testing.T) {
	in := see(newJob(rebootingAs(v1alpha1.RebootAlways)), []Node{newNode("a")})
	in.Budgets = map[types.UID]NodeBudget{"a-uid": limited()}
	want := []Action{Claim{Node: "a", NodeUID: "a-uid", Seat: "seat", SeatUID: "seat-uid"}}
	if diff := cmp.Diff(want, Next(in).Actions); diff != "" {
		t.Errorf("actions (-want +got):\n%s", diff)
	}
}

// A claimed node starts before others, so that the claim is used.
func TestAClaimedNodeStartsFirst(t *testing.T) {
	in := see(newJob(rebootingAs(v1alpha1.RebootAlways), oneAtOnce), []Node{newNode("a"), newNode("b")})
	in.Budgets = map[types.UID]NodeBudget{"a-uid": limited(), "b-uid": limited(isClaimed, seatless)}
	if diff := cmp.Diff([]string{"start attempt 1 of rev on b"}, told(Next(in))); diff != "" {
		t.Errorf("actions (-want +got):\n%s", diff)
	}
}

// The node of the manager starts once it is claimed, although it was last: the nodes that could not be claimed instead still wait.
func TestTheClaimedNodeOfTheManagerStarts(t *testing.T) {
	in := see(newJob(rebootingAs(v1alpha1.RebootAlways), upToUnavailable(1)), []Node{newNode("a"), newNode("b")})
	in.OwnNode = "a"
	in.Budgets = map[types.UID]NodeBudget{"a-uid": limited(isClaimed, seatless), "b-uid": limited(exhausted)}
	if diff := cmp.Diff([]string{"start attempt 1 of rev on a"}, told(Next(in))); diff != "" {
		t.Errorf("actions (-want +got):\n%s", diff)
	}
}

// What must not be disrupted together is not claimed together.
func TestClaimsCountAsDisruptions(t *testing.T) {
	controlPlane := func(n *Node) { n.Labels = map[string]string{controlPlaneLabel: ""} }
	retried := &hold.Why{Reason: v1alpha1.ReasonPodForbidden, Message: "no", Until: ago(1)}
	tests := map[string]struct {
		nodes    []Node
		own      string
		obstacle *hold.Why
		want     []string
	}{
		"control plane nodes": {
			nodes: []Node{newNode("a", controlPlane), newNode("b", controlPlane)},
			want:  []string{"claim a"},
		},
		"the node of the manager":             {nodes: []Node{newNode("a"), newNode("b")}, own: "a", want: []string{"claim b"}},
		"nodes of a NodeJob with an obstacle": {nodes: []Node{newNode("a"), newNode("b")}, obstacle: retried, want: []string{"claim a"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			in := see(newJob(rebootingAs(v1alpha1.RebootAlways), upToUnavailable(2)), tt.nodes)
			in.OwnNode, in.Obstacle = tt.own, tt.obstacle
			in.Budgets = map[types.UID]NodeBudget{"a-uid": limited(), "b-uid": limited()}
			if diff := cmp.Diff(tt.want, told(Next(in))); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
		})
	}
}

// TestLongestRun tests how long a run can take by its own limits.
func TestLongestRun(t *testing.T) {
	always := rebootingAs(v1alpha1.RebootAlways)
	tests := map[string]struct {
		job   []func(*v1alpha1.NodeJob)
		first int32
		want  string
	}{
		"a task":               {first: 1, want: "2m10s (task 2 × 1m0s, backoff 10s)"},
		"its last attempt":     {first: 2, want: "1m0s (task 1m0s)"},
		"an attempt after all": {first: 3, want: "1m0s (task 1m0s)"},
		"defaults": {
			job: []func(*v1alpha1.NodeJob){always, func(j *v1alpha1.NodeJob) {
				j.Spec.Task.TimeoutSeconds, j.Spec.Retry, j.Spec.Task.Check = nil, v1alpha1.RetrySpec{}, &v1alpha1.CheckSpec{
					ScriptBlock: v1alpha1.ScriptBlock{Script: "true"},
				}
				j.Spec.Maintenance.Reboot.TimeoutSeconds, j.Spec.Maintenance.Drain = nil, &v1alpha1.DrainSpec{}
			}},
			first: 1, want: "1h16m10s (drain 10m0s, task 4 × 10m0s, backoff 1m10s, reboot 15m0s, check 10m0s)",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d, parts := newPlanner(see(newJob(tt.job...), nil)).longestRun(tt.first)
			if got := d.String() + " (" + parts + ")"; got != tt.want {
				t.Errorf("it is %s, want %s", got, tt.want)
			}
		})
	}
}

// TestBudgetConditions tests what the status says while nodes wait for budgets.
func TestBudgetConditions(t *testing.T) {
	always := rebootingAs(v1alpha1.RebootAlways)
	running := newNode("a")
	tests := map[string]struct {
		budget NodeBudget
		pods   []Pod
		holds  string
		reason string
		says   string
	}{
		"all wait for a budget": {
			budget: limited(exhausted), holds: v1alpha1.ConditionReconciling, reason: v1alpha1.ReasonWaitingForBudget,
			says: "a: NodeDisruptionBudget b allows 1",
		},
		"all wait for a closed budget": {
			budget: limited(tasksFrozen), holds: v1alpha1.ConditionReconciling, reason: v1alpha1.ReasonBudgetClosed,
			says: "a: NodeDisruptionBudget b allows no disruption",
		},
		"no window is long enough": {
			budget: limited(window(time.Minute, time.Minute)), holds: v1alpha1.ConditionStalled, reason: v1alpha1.ReasonWindowTooShort,
			says: "a: a run can take 7m10s",
		},
		"nodes are claimed": {
			budget: limited(),
			holds:  v1alpha1.ConditionReconciling,
			reason: v1alpha1.ReasonInProgress,
			says:   "waiting: 2 WaitingForBudget (a, …)",
		},
		"a node runs": {
			budget: limited(
				exhausted,
			),
			pods:   []Pod{newPod(running)},
			holds:  v1alpha1.ConditionReconciling,
			reason: v1alpha1.ReasonInProgress,
			says:   "1 WaitingForBudget (b)",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			in := see(newJob(always, upToUnavailable(2)), []Node{running, newNode("b")}, tt.pods...)
			in.Budgets = map[types.UID]NodeBudget{"a-uid": tt.budget, "b-uid": tt.budget}
			for _, c := range Next(in).Status.Conditions {
				if c.Type != tt.holds {
					continue
				}
				if c.Status != metav1.ConditionTrue || c.Reason != tt.reason || !strings.Contains(c.Message, tt.says) {
					t.Errorf("%s is %s (%s): %s\nwant %s: …%s…", c.Type, c.Status, c.Reason, c.Message, tt.reason, tt.says)
				}
			}
		})
	}
}

// A node that waits for a budget does not count as failed, however long that takes.
func TestAWaitForABudgetIsNoLackOfProgress(t *testing.T) {
	in := see(newJob(), []Node{newNode("a", recorded(record.Disrupted, func(r *record.Record) { r.DisruptedSince = ago(90000) }))})
	in.Budgets = map[types.UID]NodeBudget{"a-uid": limited(tasksFrozen)}
	if n := Next(in).Nodes[0]; n.State != Waiting || n.Reason != v1alpha1.ReasonBudgetClosed {
		t.Errorf("node a is %s (%s: %s)", n.State, n.Reason, n.Message)
	}
}

// A plan that depends on budgets is made again when time changes them.
func TestAPlanWakesWhenBudgetsChange(t *testing.T) {
	for name, tt := range map[string]struct {
		budget NodeBudget
		want   bool
	}{
		"it waits for a budget":    {limited(exhausted), true},
		"it does not wait for one": {limited(isClaimed), false},
	} {
		in := see(newJob(rebootingAs(v1alpha1.RebootAlways)), []Node{newNode("a")})
		in.Budgets, in.BudgetsChangeAt = map[types.UID]NodeBudget{"a-uid": tt.budget}, now.Add(time.Minute)
		if p := Next(in); p.WakeAt.Equal(in.BudgetsChangeAt) != tt.want {
			t.Errorf("%s: the next look is at %v", name, p.WakeAt)
		}
	}
}

// TestABudgetThatANodeJobUsesUpItself tests when a NodeJob is Stalled because quarantined nodes use up a budget, and run later.
func TestABudgetThatANodeJobUsesUpItself(t *testing.T) {
	quarantined := func(n *Node) {
		cordonedBy(jobKey)(n)
		recorded(record.Failed, func(r *record.Record) { r.Revision, r.Cordoned = "old", true })(n)
	}
	usedUp := func(b *NodeBudget) { exhausted(b); b.UsedUpByJob = true }
	for name, tt := range map[string]struct {
		budget  NodeBudget
		q       func(*Node)
		c       func(*Node)
		stalled bool
	}{
		"a quarantined node runs later": {budget: limited(usedUp), q: quarantined, stalled: true},
		"others use up the budget too":  {budget: limited(exhausted), q: quarantined},
		"a node is not quarantined":     {budget: limited(usedUp), q: func(*Node) {}},
		"another tool works on a node": {budget: limited(usedUp), q: func(n *Node) {
			inPool("b")(n)
			cordonedBy(jobKey)(n)
			evictedIn("boot")(n)
		}},
		"another node of the step can continue": {budget: limited(usedUp), q: quarantined, c: inPool("b")},
	} {
		t.Run(name, func(t *testing.T) {
			nodes := []Node{newNode("q", tt.q), newNode("b", inPool("b"))}
			if tt.c != nil {
				nodes = append(nodes, newNode("c", tt.c))
			}
			in := see(newJob(cordoning, inSteps(poolB(0), rest)), nodes)
			in.Budgets = map[types.UID]NodeBudget{"q-uid": limited(seatless), "b-uid": tt.budget}
			p := Next(in)
			if isStalled(p.Status) != tt.stalled {
				t.Fatalf("conditions %+v", p.Status.Conditions)
			}
			want := "b: NodeDisruptionBudget b allows 1; still quarantined after an earlier failure: 1 node (q), which run later. " +
				"Uncordon them with kubectl uncordon, or raise the limit of the NodeDisruptionBudget"
			if c := p.Status.Conditions[2]; tt.stalled && (c.Reason != v1alpha1.ReasonMaxUnavailableReached || c.Message != want) {
				t.Errorf("%s: %q, want %q", c.Reason, c.Message, want)
			}
		})
	}
}

// TestOutsideOfAWindow tests that an attempt and its record name the budget whose window the task ignores.
func TestOutsideOfAWindow(t *testing.T) {
	node := newNode("a")
	in := see(newJob(rebootingAs(v1alpha1.RebootAlways)), []Node{node})
	in.Budgets = map[types.UID]NodeBudget{"a-uid": limited(isClaimed, seatless, func(b *NodeBudget) { b.Outside = "nights" })}
	start, ok := Next(in).Actions[0].(Start)
	if !ok || start.Attempt.OutsideWindow != "nights" {
		t.Errorf("the attempt is %+v", start.Attempt)
	}
	failed := newPod(node, exited(1), func(p *Pod) { p.OutsideWindow = "nights" })
	if r := Next(see(newJob(), []Node{node}, failed)).Actions[0].(Record).Record; r.OutsideWindow != "nights" {
		t.Errorf("the record is %+v", r)
	}
}

// TestAClosedBudgetIsSaidBesideAnotherReason covers a node that was cordoned while a window is closed for days: to uncordon it is not enough.
func TestAClosedBudgetIsSaidBesideAnotherReason(t *testing.T) {
	in := see(newJob(rebootingAs(v1alpha1.RebootAlways), upToUnavailable(1)), []Node{newNode("a"), newNode("b", byHand)})
	opens := now.Add(time.Hour)
	closed := &hold.Why{Message: "the window of NodeDisruptionBudget sunday is closed", Until: opens}
	in.Budgets, in.BudgetsChangeAt = map[types.UID]NodeBudget{"a-uid": {Effect: hold.Effect{Limited: true, Closed: closed}}}, opens
	p := Next(in)
	const want = "1 node is not Ready, cordoned or at work (b), and maintenance.maxUnavailable allows 1; and the window of NodeDisruptionBudget sunday is closed"
	if a := p.Nodes[0]; a.Reason != v1alpha1.ReasonMaxUnavailableReached || a.Message != want {
		t.Errorf("%s: %s", a.Reason, a.Message)
	}
	if !p.Closed["a-uid"] || !wakes(p, opens) {
		t.Errorf("waits for closed budgets: %v; the next look is at %v", p.Closed, p.WakeAt)
	}
}
