// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guardcontroller

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/manager/loop"
	"github.com/everynode/everynode/internal/nodeguard/guard"
)

// Actions of events.
const (
	actionHold    = "Hold"
	actionRelease = "Release"
	actionGuard   = "Guard"
)

// announcer sends events, and counts what they are about.
type announcer struct {
	// Recorder writes events.
	Recorder events.EventRecorder
	// Metrics are the metrics of NodeGuards.
	Metrics *Metrics
}

// announce sends events about changes after they are written: which nodes are released, available again, or held, and
// why.
func (r announcer) announce(ctx context.Context, seen *observation, before *v1alpha1.NodeGuardStatus, p *guard.Plan) {
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

func (r announcer) announceHolds(seen *observation, before, after *v1alpha1.NodeGuardStatus) {
	uids := map[string]types.UID{}
	for i := range seen.input.Nodes {
		uids[seen.input.Nodes[i].Name] = seen.input.Nodes[i].UID
	}
	for i := range after.Waiting {
		h := &after.Waiting[i]
		was := slices.IndexFunc(before.Waiting, func(o v1alpha1.WaitingNode) bool { return o.Node == h.Node })
		switch {
		case h.Reason == v1alpha1.ReasonReleasing:
		case was < 0 || before.Waiting[was].Reason != h.Reason:
			r.tell(seen.guard, h.Node, uids[h.Node], corev1.EventTypeNormal, v1alpha1.ReasonNodeHeld, actionHold,
				guard.Sentence(seen.guard.Namespace+"/"+seen.guard.Name, h))
		case seen.guard.Spec.Release.DeadlineSeconds != nil && h.Until.IsZero() && !before.Waiting[was].Until.IsZero():
			r.tell(seen.guard, h.Node, uids[h.Node], corev1.EventTypeWarning, v1alpha1.ReasonHoldDeadlinePassed, actionHold,
				guard.Sentence(seen.guard.Namespace+"/"+seen.guard.Name, h))
		}
	}
}

func (r announcer) announceCondition(g *v1alpha1.NodeGuard, before, after *v1alpha1.NodeGuardStatus) {
	is := meta.FindStatusCondition(after.Conditions, v1alpha1.ConditionStalled)
	was := meta.FindStatusCondition(before.Conditions, v1alpha1.ConditionStalled)
	if is != nil && is.Status == metav1.ConditionTrue && (was == nil || was.Status != is.Status || was.Reason != is.Reason) {
		r.event(g, nil, corev1.EventTypeWarning, is.Reason, actionGuard, is.Message)
	}
}

// tell sends one event about the NodeGuard, and one about the node.
func (r announcer) tell(g *v1alpha1.NodeGuard, name string, uid types.UID, kind, reason, action, note string) {
	loop.RecordEvent(r.Recorder, g, loop.Node(name, uid), kind, reason, action, note)
}

func (r announcer) event(regarding, related runtime.Object, kind, reason, action, note string) {
	loop.Event(r.Recorder, regarding, related, kind, reason, action, note)
}
