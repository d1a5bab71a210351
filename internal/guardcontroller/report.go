// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guardcontroller

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/guard"
	"github.com/everynode/everynode/internal/loop"
	"github.com/everynode/everynode/internal/seal"
)

// Actions of events.
const (
	actionHold    = "Hold"
	actionRelease = "Release"
	actionGuard   = "Guard"
)

// reports remembers the last written version of each NodeGuard until the cache shows it, when it was written, and which
// status counts.
type reports struct {
	loop.Pace
	mu       sync.Mutex
	newest   loop.WrittenObjects[*v1alpha1.NodeGuard]
	statuses guard.Statuses
	uids     map[client.ObjectKey]types.UID
}

func newReports() *reports {
	return &reports{newest: loop.WrittenObjects[*v1alpha1.NodeGuard]{}, uids: map[client.ObjectKey]types.UID{}}
}

// of returns the newest known version of a cached NodeGuard.
func (r *reports) of(cached *v1alpha1.NodeGuard) *v1alpha1.NodeGuard {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.newest.Of(cached)
}

// open replaces the status of a NodeGuard by the one that counts.
func (r *reports) open(key seal.Key, g *v1alpha1.NodeGuard) {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := client.ObjectKeyFromObject(g)
	if before := r.uids[name]; before != g.UID {
		r.statuses.Forget(before)
		r.uids[name] = g.UID
	}
	r.statuses.Key = key
	r.statuses.Open(g)
}

// seal marks a status that is about to be written.
func (r *reports) seal(key seal.Key, g *v1alpha1.NodeGuard, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.statuses.Key = key
	r.statuses.Seal(g, now)
}

func (r *reports) wrote(g *v1alpha1.NodeGuard, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.newest.Remember(g)
	r.Wrote(client.ObjectKeyFromObject(g), now)
}

func (r *reports) forget(name client.ObjectKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.newest, name)
	r.statuses.Forget(r.uids[name])
	delete(r.uids, name)
	r.Forget(name)
}

// writeStatus writes the whole status under the resource version that the plan is based on, and reports the changes.
func (r *Reconciler) writeStatus(ctx context.Context, seen *observation, p *guard.Plan) error {
	before := seen.guard.Status
	changed := seen.guard.DeepCopy()
	changed.Status = p.Status
	changed.Status.Authorization = seen.authorization
	if err := r.storeStatus(ctx, changed); err != nil {
		return err
	}
	seen.guard = changed
	r.Notifier.OfferNodeGuard(changed)
	r.announce(ctx, seen, &before, p)
	return nil
}

// storeStatus seals and writes the status of a NodeGuard, and remembers it.
func (r *Reconciler) storeStatus(ctx context.Context, changed *v1alpha1.NodeGuard) error {
	r.reports.seal(r.Key, changed, r.Now())
	if err := r.Metrics.writes.Do("update", "nodeguards/status", func() error { return r.Client.Status().Update(ctx, changed) }); err != nil {
		return fmt.Errorf("writing the status: %w", err)
	}
	r.reports.open(r.Key, changed)
	r.reports.wrote(changed, r.Now())
	return nil
}

// report writes the status if it changed, and returns when to check again; zero means only after an event.
func (r *Reconciler) report(ctx context.Context, seen *observation, p *guard.Plan) (time.Duration, error) {
	name, now := client.ObjectKeyFromObject(seen.guard), r.Now()
	next := loop.Until(p.WakeAt, now)
	p.Status.Authorization = seen.authorization
	if seen.idle {
		r.targets.forget(name)
		r.Metrics.forget(name)
		if !r.Metrics.notServed.Add(name) {
			return next, nil
		}
	} else {
		r.Metrics.notServed.Remove(name)
		r.Metrics.status(name, p)
		r.Notifier.OfferNodeGuard(seen.guard)
		next = r.Notifier.NodeGuard(seen.guard, &p.Status, next)
	}
	if seen.guard.Status.ControllerState.Seal != "" && equality.Semantic.DeepEqual(seen.guard.Status, p.Status) {
		return next, nil
	}
	if wait := r.reports.Wait(name, now); wait > 0 {
		return loop.Soonest(next, wait), nil
	}
	return next, client.IgnoreNotFound(r.writeStatus(ctx, seen, p))
}

// announce sends events about changes after they are written: which nodes are released, available again, or held, and
// why.
func (r *Reconciler) announce(ctx context.Context, seen *observation, before *v1alpha1.NodeGuardStatus, p *guard.Plan) {
	name := seen.guard.Namespace + "/" + seen.guard.Name
	log := logf.FromContext(ctx)
	for _, m := range p.Moves {
		switch m.Kind {
		case guard.MoveReleased:
			kind, note := corev1.EventTypeNormal, fmt.Sprintf("NodeGuard %s released node %s after %s (%s)", name, m.Node, m.Held.Round(time.Second), m.Reason)
			if m.Note != "" {
				note += ": " + m.Note
			}
			if m.Reason != v1alpha1.ReasonConditionMet {
				kind = corev1.EventTypeWarning
			}
			r.Metrics.released(client.ObjectKeyFromObject(seen.guard), m)
			r.tell(seen.guard, m.Node, m.UID, kind, v1alpha1.ReasonNodeReleased, actionRelease, note)
			log.Info("node released", "node", m.Node, "reason", m.Reason)
		case guard.MoveAvailable:
			r.tell(seen.guard, m.Node, m.UID, corev1.EventTypeNormal, v1alpha1.ReasonNodeAvailable, actionRelease,
				fmt.Sprintf("NodeGuard %s no longer counts node %s as unavailable: %s", name, m.Node, m.Note))
		case guard.MoveReturning: // nothing has ended yet
		}
	}
	r.announceHolds(seen, before, &p.Status)
	r.announceCondition(seen.guard, before, &p.Status)
}

func (r *Reconciler) announceHolds(seen *observation, before, after *v1alpha1.NodeGuardStatus) {
	uids := map[string]types.UID{}
	for i := range seen.input.Nodes {
		uids[seen.input.Nodes[i].Name] = seen.input.Nodes[i].UID
	}
	for i := range after.Held {
		h := &after.Held[i]
		was := slices.IndexFunc(before.Held, func(o v1alpha1.HeldNode) bool { return o.Node == h.Node })
		switch {
		case h.Reason == v1alpha1.ReasonReleasing:
		case was < 0 || before.Held[was].Reason != h.Reason:
			r.tell(seen.guard, h.Node, uids[h.Node], corev1.EventTypeNormal, v1alpha1.ReasonNodeHeld, actionHold,
				guard.Sentence(seen.guard.Namespace+"/"+seen.guard.Name, h))
		case h.DeadlinePassed && !before.Held[was].DeadlinePassed:
			r.tell(seen.guard, h.Node, uids[h.Node], corev1.EventTypeWarning, v1alpha1.ReasonHoldDeadlinePassed, actionHold,
				guard.Sentence(seen.guard.Namespace+"/"+seen.guard.Name, h))
		}
	}
}

func (r *Reconciler) announceCondition(g *v1alpha1.NodeGuard, before, after *v1alpha1.NodeGuardStatus) {
	is := meta.FindStatusCondition(after.Conditions, v1alpha1.ConditionStalled)
	was := meta.FindStatusCondition(before.Conditions, v1alpha1.ConditionStalled)
	if is != nil && is.Status == metav1.ConditionTrue && (was == nil || was.Status != is.Status || was.Reason != is.Reason) {
		r.event(g, nil, corev1.EventTypeWarning, is.Reason, actionGuard, is.Message)
	}
}

// tell sends one event about the NodeGuard, and one about the node.
func (r *Reconciler) tell(g *v1alpha1.NodeGuard, name string, uid types.UID, kind, reason, action, note string) {
	loop.RecordEvent(r.Recorder, g, loop.Node(name, uid), kind, reason, action, note)
}

func (r *Reconciler) event(regarding, related runtime.Object, kind, reason, action, note string) {
	loop.Event(r.Recorder, regarding, related, kind, reason, action, note)
}
