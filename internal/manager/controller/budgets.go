// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/manager/claims"
	"github.com/everynode/everynode/internal/manager/loop"
	nodebudget "github.com/everynode/everynode/internal/nodebudget/budget"
	"github.com/everynode/everynode/internal/nodecondition"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/observe"
)

// claimAgainAfter is when a refused claim is tried again if no event shows that the budgets allow more.
const claimAgainAfter = 5 * time.Second

// observeBudgets adds to the input what NodeDisruptionBudgets mean for the nodes.
func (r observer) observeBudgets(ctx context.Context, seen *observation) error {
	if r.Claims == nil {
		return nil
	}
	seen.stancesAt = r.budgets.version() // before the stances: a later change is noticed
	var list v1alpha1.NodeDisruptionBudgetList
	if err := r.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing NodeDisruptionBudgets: %w", err)
	}
	if len(list.Items) == 0 {
		return nil
	}
	all := make([]*v1alpha1.NodeDisruptionBudget, 0, len(list.Items))
	for i := range list.Items {
		all = append(all, &list.Items[i])
	}
	slices.SortFunc(all, func(a, b *v1alpha1.NodeDisruptionBudget) int { return strings.Compare(a.Name, b.Name) })
	stances := observe.Stances{Claimed: r.Claims.Claimed(seen.job.UID)}
	stances.Of, stances.Known = r.Claims.Stances()
	observe.Budgets(&seen.input, nodebudget.EffectsOf(all, r.Claims.Answers(), r.JoiningFor, seen.input.Now), stances)
	return nil
}

// claimed are the results of the claims of a pass. It is safe for concurrent use.
type claimed struct {
	mu      sync.Mutex
	granted bool
	refused []types.UID
}

func (c *claimed) add(node types.UID, granted bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if granted {
		c.granted = true
	} else {
		c.refused = append(c.refused, node)
	}
}

// claimAll claims nodes in goroutines of the group. When the time of ctx is over, the rest is left to the next pass.
func (r *Reconciler) claimAll(ctx context.Context, seen observation, actions []plan.Action, group *errgroup.Group) *claimed {
	results := &claimed{}
	for _, action := range actions {
		if a, ok := action.(plan.Claim); ok {
			group.Go(func() error { results.add(a.NodeUID, r.claim(ctx, seen.job, a)); return nil })
		}
	}
	return results
}

// claim evicts the seat of a node for a NodeJob, and reports whether the node is claimed. A refusal is not an error of the pass: the next
// stance of the budgets says why. The registry is told first: otherwise the seat could be created again at once.
func (r writer) claim(ctx context.Context, job *v1alpha1.NodeJob, a plan.Claim) bool {
	if r.Claims == nil || ctx.Err() != nil || !r.Claims.Claim(job.UID, a.NodeUID) {
		return false
	}
	if a.Seat == "" {
		return true
	}
	// A seat with another UID is a new one, which was not evicted.
	if err := r.evictSeat(ctx, a); err != nil && !apierrors.IsNotFound(err) {
		r.Claims.Unclaim(job.UID, a.NodeUID)
		logf.FromContext(ctx).V(1).Info("claim refused", "node", a.Node, "reason", blockedBy(err))
		return false
	}
	return true
}

// evictSeat evicts the seat of a node, while only a few others are evicted. The API server counts each eviction in the status of the
// PodDisruptionBudget, and repeats one that conflicts with another write after half a second, up to 20 times. With many at the same time,
// few succeed in time, and the others count as disruptions for up to two minutes, although no NodeJob has got the node. Source:
// k8s.io/kubernetes pkg/registry/core/pod/storage/eviction.go.
func (r writer) evictSeat(ctx context.Context, a plan.Claim) error {
	return r.Claims.LimitEvictions(ctx, func() error {
		seat := client.ObjectKey{Namespace: cmp.Or(r.Own.Pod.Namespace, ownNamespace), Name: a.Seat}
		return r.requestEviction(ctx, seat, a.SeatUID, nil)
	})
}

// tellBudgets reports what a NodeJob does on nodes after a pass, and returns when to plan again because of budgets; zero if only an
// event needs that.
func (r *shell) tellBudgets(seen *observation, p *plan.Plan, did *claimed) time.Duration {
	if r.Claims == nil {
		return 0
	}
	r.forgetEarlier(seen.job)
	waits, stale := r.budgets.passed(seen, p)
	for _, node := range did.refused {
		delete(p.Holds, node)
		delete(p.Claims, node)
		delete(p.Stages, node)
	}
	r.Claims.Report(seen.job.UID, claims.Report{
		Name: observe.ReporterOf(seen.job), Holds: p.Holds, Claims: p.Claims, Waits: waits, IgnoresWindows: ignoringWindows(seen), Closed: p.Closed, Disrupts: plan.Disrupts(seen.job), Disruptions: disruptionsOf(seen.job, p),
		Published: publishedBy(seen.job, p),
	})
	switch {
	case did.granted:
		return atOnce
	case stale:
		return loop.Soon
	case len(did.refused) > 0:
		return claimAgainAfter
	}
	return 0
}

// ignoringWindows are the nodes on which a NodeJob ignores the windows of budgets.
func ignoringWindows(seen *observation) map[types.UID]bool {
	nodes := map[types.UID]bool{}
	if len(seen.job.Spec.Maintenance.IgnoreWindowsOn) > 0 {
		for i := range seen.input.Nodes {
			if node := &seen.input.Nodes[i]; observe.IgnoresWindows(seen.job, node.Name) {
				nodes[node.UID] = true
			}
		}
	}
	return nodes
}

func disruptionsOf(job *v1alpha1.NodeJob, p *plan.Plan) map[types.UID]nodecondition.Disruption {
	all := make(map[types.UID]nodecondition.Disruption, len(p.Stages))
	for node, stage := range p.Stages {
		all[node] = nodecondition.Disruption{NodeJob: job.Namespace + "/" + job.Name, Stage: stage}
	}
	return all
}

// observeConditions notes as an obstacle that spec.publish has a condition, and the manager writes none.
func (r observer) observeConditions(seen *observation) {
	if !r.NodeConditions && plan.PublishesConditions(&seen.job.Spec) && seen.job.DeletionTimestamp.IsZero() {
		seen.input.Obstacle = &hold.Why{Reason: v1alpha1.ReasonNodeConditionsDisabled, Message: "spec.publish has a condition, and the manager does not write " +
			"node conditions: nothing starts. Allow it (nodeConditions.enabled of the Helm chart, or the component config/node-conditions), or remove the condition from spec.publish"}
	}
}

// publishedBy are the conditions that a NodeJob publishes.
func publishedBy(job *v1alpha1.NodeJob, p *plan.Plan) map[types.UID][]nodecondition.Published {
	all := make(map[types.UID][]nodecondition.Published, len(p.Conditions))
	for node, status := range p.Conditions {
		for _, entry := range job.Spec.Publish {
			if entry.Condition != "" {
				all[node] = append(all[node], nodecondition.Published{
					Type: corev1.NodeConditionType(entry.Condition), Status: status, NodeJob: job.Namespace + "/" + job.Name,
				})
			}
		}
	}
	return all
}

// tellIdle reports that a NodeJob does nothing.
func (r *shell) tellIdle(job *v1alpha1.NodeJob) {
	if r.Claims == nil {
		return
	}
	r.forgetEarlier(job)
	r.Claims.Report(job.UID, claims.Report{Name: observe.ReporterOf(job)})
}

// forgetEarlier removes what an earlier NodeJob with the same name has reported.
func (r *shell) forgetEarlier(job *v1alpha1.NodeJob) {
	if earlier := r.budgets.identify(client.ObjectKeyFromObject(job), job.UID); earlier != "" {
		r.Claims.Forget(earlier)
	}
}

// forgetBudgets removes what a NodeJob that does not exist any more has reported.
func (r *shell) forgetBudgets(name client.ObjectKey) {
	if uid := r.budgets.forget(name); uid != "" {
		r.Claims.Forget(uid)
	}
}

// watchBudgets triggers passes of all NodeJobs when the spec of a budget changes, and of those that wait for budgets when the budgets
// allow something else.
func (r watcher) watchBudgets(mgr ctrl.Manager, watches *ctrl.Builder) error {
	if r.Claims == nil {
		return nil
	}
	watches.Watches(&v1alpha1.NodeDisruptionBudget{}, handler.EnqueueRequestsFromMapFunc(r.budgetChanged),
		builder.WithPredicates(predicate.GenerationChangedPredicate{}))
	r.Claims.OnStances(r.budgets.stancesChanged)
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-r.budgets.changed:
				r.wakeAwaiting(ctx)
			}
		}
	}))
}

func (r watcher) wakeAwaiting(ctx context.Context) {
	for _, name := range r.budgets.awaiting() {
		r.wakeUp(ctx, name)
	}
}

// budgetChanged enqueues all NodeJobs: which of them a budget concerns depends on their nodes, and budgets change rarely.
func (r watcher) budgetChanged(ctx context.Context, _ client.Object) []reconcile.Request {
	var jobs v1alpha1.NodeJobList
	if err := r.Client.List(ctx, &jobs, client.UnsafeDisableDeepCopy); err != nil {
		return nil // only a cache that is not started returns an error
	}
	requests := make([]reconcile.Request, 0, len(jobs.Items))
	for i := range jobs.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&jobs.Items[i])})
	}
	return requests
}

// budgetMemory is what the manager remembers about NodeJobs and budgets from one pass to the next.
type budgetMemory struct {
	mu   sync.Mutex
	jobs map[client.ObjectKey]*budgetState
	// changes counts the changes of the stances of budgets, and changed signals one.
	changes int
	changed chan struct{}
}

type budgetState struct {
	uid types.UID
	// awaits is true if the NodeJob is planned again when the stances change. since is since when it waits for a node.
	awaits bool
	since  map[types.UID]time.Time
}

func newBudgetMemory() budgetMemory {
	return budgetMemory{jobs: map[client.ObjectKey]*budgetState{}, changed: make(chan struct{}, 1)}
}

func (m *budgetMemory) stancesChanged() {
	m.mu.Lock()
	m.changes++
	m.mu.Unlock()
	select {
	case m.changed <- struct{}{}:
	default: // it is signaled already
	}
}

// version identifies the stances that a pass reads.
func (m *budgetMemory) version() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changes
}

// awaiting are the NodeJobs that wait for budgets.
func (m *budgetMemory) awaiting() []client.ObjectKey {
	m.mu.Lock()
	defer m.mu.Unlock()
	var names []client.ObjectKey
	for name, state := range m.jobs {
		if state.awaits {
			names = append(names, name)
		}
	}
	return names
}

// identify stores the UID of a NodeJob. It returns that of an earlier one with the same name; "" if there was none.
func (m *budgetMemory) identify(name client.ObjectKey, uid types.UID) (earlier types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	state := m.jobs[name]
	if state != nil && state.uid == uid {
		return ""
	}
	m.jobs[name] = &budgetState{uid: uid}
	if state != nil {
		return state.uid
	}
	return ""
}

// forget returns the UID of a NodeJob that does not exist any more; "" if it has not reported.
func (m *budgetMemory) forget(name client.ObjectKey) types.UID {
	m.mu.Lock()
	defer m.mu.Unlock()
	state := m.jobs[name]
	delete(m.jobs, name)
	if state == nil {
		return ""
	}
	return state.uid
}

// passed stores what a NodeJob that was identified waits for after a pass. It returns since when it has waited for each node, and
// whether the stances have changed since the pass read them. A node that is claimed keeps its age, because the claim may be refused.
func (m *budgetMemory) passed(seen *observation, p *plan.Plan) (waits map[types.UID]time.Time, stale bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	state := m.jobs[client.ObjectKeyFromObject(seen.job)]
	since := map[types.UID]time.Time{}
	for node := range p.Waits {
		since[node] = state.sinceOr(node, seen.input.Now)
	}
	waits = maps.Clone(since)
	for _, action := range p.Actions {
		if a, ok := action.(plan.Claim); ok {
			since[a.NodeUID] = state.sinceOr(a.NodeUID, seen.input.Now)
		}
	}
	state.awaits, state.since = p.AwaitsBudgets, since
	return waits, p.AwaitsBudgets && m.changes != seen.stancesAt
}

func (s *budgetState) sinceOr(node types.UID, now time.Time) time.Time {
	if since, known := s.since[node]; known {
		return since
	}
	return now
}
