// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/manager/claims"
	nodebudget "github.com/everynode/everynode/internal/nodebudget/budget"
	"github.com/everynode/everynode/internal/nodejob/plan"
)

// budgeted is a cluster with a NodeJob that cordons node n, and a budget that limits the node. Evictions are answered with answer.
type budgeted struct {
	*fakeReconciler
	job     *v1alpha1.NodeJob
	now     time.Time
	answer  error
	evicted []string
	// evicting is called during each eviction; nil for nothing.
	evicting func()
}

func newBudgeted(t *testing.T) *budgeted {
	t.Helper()
	c := &budgeted{now: noon, job: liveJob(func(j *v1alpha1.NodeJob) {
		j.Spec.Maintenance.Cordon = true
		j.Spec.Rollout.Steps = []v1alpha1.RolloutStep{{Name: "all"}}
	})}
	limit := &v1alpha1.NodeDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "b"},
		Spec: v1alpha1.NodeDisruptionBudgetSpec{
			Limits: []v1alpha1.BudgetLimit{{MaxUnavailable: new(intstr.FromInt32(1))}}, JoiningNodes: v1alpha1.JoiningNodesIncluded,
		},
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "node-uid", Labels: map[string]string{}, CreationTimestamp: at(0)},
		Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			NodeInfo:   corev1.NodeSystemInfo{BootID: "boot", MachineID: "machine"},
		},
	}
	var mu sync.Mutex
	c.fakeReconciler = newFaultyReconciler(t, interceptor.Funcs{
		SubResourceCreate: func(
			_ context.Context, _ client.Client, kind string, o, sub client.Object, _ ...client.SubResourceCreateOption,
		) error {
			uid := *sub.(*policyv1.Eviction).DeleteOptions.Preconditions.UID
			if c.evicting != nil {
				c.evicting()
			}
			mu.Lock()
			defer mu.Unlock()
			c.evicted = append(c.evicted, fmt.Sprintf("%s of %s/%s (%s)", kind, o.GetNamespace(), o.GetName(), uid))
			return c.answer
		},
	}, c.job, node, limit)
	c.Now = func() time.Time { return c.now }
	c.Own.Pod = client.ObjectKey{Namespace: "everynode-system", Name: "manager"}
	c.Claims = claims.New()
	c.Claims.OnStances(c.budgets.stancesChanged)
	return c
}

// reconcile runs a pass, and returns when the next one begins.
func (c *budgeted) reconcile() time.Duration {
	c.t.Helper()
	result, err := c.Reconcile(c.t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(c.job)})
	if err != nil {
		c.t.Fatal(err)
	}
	return result.RequeueAfter
}

func (c *budgeted) stance(s hold.Stance) {
	c.Claims.SetStances(map[types.UID]hold.Stance{"node-uid": s})
}

func TestClaims(t *testing.T) {
	const eviction = "eviction of everynode-system/seat-1 (seat-uid)"
	seat := hold.Stance{Seat: "seat-1", SeatUID: "seat-uid", Allowed: true}
	pods := corev1.Resource("pods")
	tests := map[string]struct {
		stance  hold.Stance
		answer  error
		before  func(*budgeted)
		evicted []string
		claimed bool
		next    time.Duration
	}{
		"the seat is evicted": {stance: seat, evicted: []string{eviction}, claimed: true, next: atOnce},
		"the seat does not exist any more": {
			stance: seat, answer: apierrors.NewNotFound(pods, "seat-1"),
			evicted: []string{eviction}, claimed: true, next: atOnce,
		},
		"the budget is exhausted meanwhile": {stance: seat, answer: budget("b"), evicted: []string{eviction}, next: claimAgainAfter},
		"there is a new seat": {
			stance: seat, answer: apierrors.NewConflict(pods, "seat-1", errors.New("UID")),
			evicted: []string{eviction}, next: claimAgainAfter,
		},
		"the API server does not answer": {
			stance: seat, answer: context.DeadlineExceeded,
			evicted: []string{eviction}, next: claimAgainAfter,
		},
		"another NodeJob has claimed the node": {
			stance: seat, before: func(c *budgeted) { c.Claims.Claim("other", "node-uid") }, next: claimAgainAfter,
		},
		"the budget does not allow it": {stance: hold.Stance{Seat: "seat-1", Message: "no"}, next: recheckAfter},
		"the node waits for its seat":  {stance: hold.Stance{Message: "no seat"}, next: recheckAfter},
		"a node that counts as unavailable has no seat": {
			stance: hold.Stance{Allowed: true}, claimed: true, next: atOnce,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := newBudgeted(t)
			c.stance(tt.stance)
			c.answer = tt.answer
			if tt.before != nil {
				tt.before(c)
			}
			if next := c.reconcile(); next != tt.next {
				t.Errorf("the next pass begins after %s, want %s", next, tt.next)
			}
			if diff := cmp.Diff(tt.evicted, c.evicted); diff != "" {
				t.Errorf("evictions (-want +got):\n%s", diff)
			}
			if got := c.Claims.Claimed("job-uid")["node-uid"]; got != tt.claimed {
				t.Errorf("claimed: %t, want %t", got, tt.claimed)
			}
			if got := c.Claims.Holds()["node-uid"] == "NodeJob ns/job"; got != tt.claimed {
				t.Errorf("held: %t, want %t", got, tt.claimed)
			}
			if c.node("n").Spec.Unschedulable {
				t.Error("the node is cordoned in the pass that claims it")
			}
			c.now = c.now.Add(time.Second)
			c.reconcile()
			if got := c.node("n").Spec.Unschedulable; got != tt.claimed {
				t.Errorf("after another pass, the node is cordoned: %t, want %t", got, tt.claimed)
			}
		})
	}
}

// Evictions of seats at the same time conflict, which the API server retries after half a second until it gives up. What a pass has no
// time for is left to the next one.
func TestFewSeatsAreEvictedAtTheSameTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newBudgeted(t)
		var mu sync.Mutex
		running, most := 0, 0
		count := func(n int) {
			mu.Lock()
			defer mu.Unlock()
			running += n
			most = max(most, running)
		}
		c.evicting = func() {
			count(1)
			time.Sleep(2 * time.Second) // of the bubble
			count(-1)
		}
		c.job.Spec.Rollout.MaxConcurrent = new(intstr.FromInt32(12))
		c.job.Spec.Maintenance.MaxUnavailable = new(intstr.FromInt32(12))
		if err := c.Client.Update(t.Context(), c.job); err != nil {
			t.Fatal(err)
		}
		stances := map[types.UID]hold.Stance{}
		for i := range 12 {
			node := c.node("n").DeepCopy()
			node.Name, node.UID, node.ResourceVersion = fmt.Sprint("n", i), types.UID(fmt.Sprint("node-", i)), ""
			c.create(node)
			stances[node.UID] = hold.Stance{Seat: "seat-" + node.Name, SeatUID: "seat-uid", Allowed: true}
		}
		c.Claims.SetStances(stances)
		if next := c.reconcile(); next != atOnce {
			t.Errorf("the next pass begins after %s, want %s", next, atOnce)
		}
		if got := len(c.evicted); most != 4 || got != 8 {
			t.Errorf("%d evictions, and at most %d at the same time, want 8 and 4", got, most)
		}
		if got := len(c.Claims.Claimed("job-uid")); got != 8 {
			t.Errorf("%d nodes are claimed, want those of the 8 evictions", got)
		}
	})
}

// recheckAfter is when a NodeJob is planned again whose nodes wait.
const recheckAfter = 10*time.Minute + 10*time.Millisecond

// What a NodeJob waits for, and since when, is told to the budgets. It keeps its age while claims are refused.
func TestWaitsAreTold(t *testing.T) {
	c := newBudgeted(t)
	refused := hold.Stance{Seat: "seat-1", SeatUID: "seat-uid", Message: "no"}
	allowed := refused
	allowed.Allowed = true
	c.stance(refused)
	c.reconcile()
	want := map[types.UID]nodebudget.Wait{"node-uid": {By: "NodeJob ns/job", Since: noon}}
	if diff := cmp.Diff(want, c.Claims.Waits()); diff != "" {
		t.Errorf("waits (-want +got):\n%s", diff)
	}
	c.answer = budget("b")
	for _, s := range []hold.Stance{allowed, refused} {
		c.now = c.now.Add(time.Minute)
		c.stance(s)
		c.reconcile()
	}
	if diff := cmp.Diff(want, c.Claims.Waits()); diff != "" {
		t.Errorf("waits after a refused claim (-want +got):\n%s", diff)
	}
	c.answer = nil
	for range 2 {
		c.stance(allowed)
		c.reconcile()
	}
	if diff := cmp.Diff(map[types.UID]nodebudget.Wait{}, c.Claims.Waits()); diff != "" {
		t.Errorf("waits after a claim (-want +got):\n%s", diff)
	}
}

// A NodeJob that waits for budgets is woken when the budgets allow something else, also if that happens during its pass.
func TestChangedStancesWakeNodeJobsThatWait(t *testing.T) {
	c := newBudgeted(t)
	c.stance(hold.Stance{Seat: "seat-1", Message: "no"})
	seen, err := c.observe(t.Context(), c.job, nil)
	if err != nil {
		t.Fatal(err)
	}
	c.reconcile()
	woken := func() bool {
		t.Helper()
		select {
		case <-c.budgets.changed:
			c.wakeAwaiting(t.Context())
		default:
		}
		select {
		case e := <-c.wake:
			return e.Object.GetName() == "job"
		default:
			return false
		}
	}
	if !woken() {
		t.Error("it is not woken, although it waits")
	}
	if woken() {
		t.Error("it is woken, although nothing has changed")
	}
	c.stance(hold.Stance{Allowed: true})
	if !woken() {
		t.Error("it is not woken when the stance changes")
	}
	c.Claims.Forget("job-uid")
	if _, stale := c.budgets.passed(&seen, &plan.Plan{AwaitsBudgets: true}); !stale {
		t.Error("a pass with earlier stances is not repeated")
	}
	c.delete(c.job)
	c.reconcile()
	c.reconcile()
	c.stance(hold.Stance{})
	if woken() {
		t.Error("a NodeJob that does not wait any more is woken")
	}
}

// The reports of a NodeJob end with it, also if another one has its name.
func TestDeletedNodeJobsAreForgotten(t *testing.T) {
	for name, remove := range map[string]func(*budgeted){
		"it is deleted": func(c *budgeted) {
			if err := c.cleanUpDeleted(c.t.Context(), client.ObjectKeyFromObject(c.job)); err != nil {
				c.t.Fatal(err)
			}
		},
		"another one has its name": func(c *budgeted) {
			c.tellIdle(liveJob(func(j *v1alpha1.NodeJob) { j.UID = "next-uid" }))
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newBudgeted(t)
			c.stance(hold.Stance{Seat: "seat-1", SeatUID: "seat-uid", Allowed: true})
			c.reconcile()
			if len(c.Claims.Holds()) != 1 || !c.Claims.Reported("job-uid") {
				t.Fatalf("it holds %v", c.Claims.Holds())
			}
			remove(c)
			if len(c.Claims.Holds()) != 0 || c.Claims.Reported("job-uid") {
				t.Errorf("after that, it holds %v", c.Claims.Holds())
			}
		})
	}
}

// A NodeJob whose namespace is not allowed reports that it does nothing: the budgets wait for the reports of all NodeJobs.
func TestANodeJobThatIsNotServedReports(t *testing.T) {
	c := newBudgeted(t)
	c.RequireNamespaceLabel = true
	c.reconcile()
	if !c.Claims.Reported("job-uid") {
		t.Error("it has not reported")
	}
}

// A change of a budget triggers passes of all NodeJobs.
func TestABudgetEnqueuesNodeJobs(t *testing.T) {
	c := newBudgeted(t)
	if got := c.budgetChanged(t.Context(), &v1alpha1.NodeDisruptionBudget{}); len(got) != 1 || got[0].Name != "job" {
		t.Errorf("it enqueues %v", got)
	}
}

// A budget that is closed keeps tasks from starting, and ends by itself.
func TestAFreezeEnds(t *testing.T) {
	c := newBudgeted(t)
	c.create(&v1alpha1.NodeDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "freeze"},
		Spec: v1alpha1.NodeDisruptionBudgetSpec{
			Limits: []v1alpha1.BudgetLimit{{MaxUnavailable: new(intstr.FromInt32(0))}}, AppliesTo: v1alpha1.AppliesToAllTasks,
			JoiningNodes: v1alpha1.JoiningNodesIncluded, ExpiresAt: new(metav1.NewTime(noon.Add(time.Minute))),
		},
	})
	c.stance(hold.Stance{Seat: "seat-1", SeatUID: "seat-uid", Allowed: true})
	if next := c.reconcile(); next.Truncate(time.Second) != time.Minute || len(c.evicted) > 0 {
		t.Errorf("the next pass begins after %s, and evictions are %q", next, c.evicted)
	}
	c.now = noon.Add(time.Minute)
	if c.reconcile(); len(c.evicted) != 1 {
		t.Errorf("after the freeze, evictions are %q", c.evicted)
	}
}
