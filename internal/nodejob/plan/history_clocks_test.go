// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
)

// Each node has a clock of its own, hours ahead or behind. The times of the API server are the only ones that decide.

// clockStep is how far two API servers may differ: the manager's time may step back by it.
const clockStep = 2 * time.Second

// clocks are the offsets of the clocks of nodes, and the real times of events.
type clocks struct {
	ahead map[types.UID]time.Duration
	// backAt is when a node came up, by its boot.
	backAt map[string]time.Time
	// ends are the last ends of a task, by run, that were no success.
	ends map[string]setback
	// told is the time on which the manager decides.
	told time.Time
}

// setback is a failure or a disruption.
type setback struct {
	at    time.Time
	since time.Time // of the first of its kind in a row
	inRow int32
	kind  record.Outcome
}

func newClocks() clocks {
	return clocks{ahead: map[types.UID]time.Duration{}, backAt: map[string]time.Time{}, ends: map[string]setback{}}
}

// setClock gives a node a clock.
func (h *history) setClock(node *Node) {
	if h.with(skewedClocks) {
		h.ahead[node.UID] = time.Duration(h.dice.Intn(6*3600)-3*3600) * time.Second
		h.say("the clock of %s is ahead by %s", node.Name, h.ahead[node.UID])
	}
}

// by returns the time of the clock of a node.
func (h *history) by(node *Node) time.Time { return h.now.Add(h.ahead[node.UID]) }

// byPod returns the time of the clock of a pod's node.
func (h *history) byPod(pod *simPod) time.Time { return h.now.Add(h.ahead[pod.NodeUID]) }

// apiTime is the time that an API server returns to the manager.
func (h *history) apiTime() time.Time {
	h.told = h.now
	if h.with(skewedClocks) {
		h.told = h.now.Add(-time.Duration(h.dice.Int63n(int64(clockStep))))
	}
	return h.told
}

// noteSetback notes when an attempt of the task that did not succeed really ended.
func (h *history) noteSetback(key string, pod *simPod, r *record.Record) {
	if r.Outcome != record.Failed && r.Outcome != record.Disrupted {
		delete(h.ends, key)
		return
	}
	at := h.now
	if pod != nil && !pod.endedAt.IsZero() {
		at = pod.endedAt
	}
	before := h.ends[key]
	now := setback{at: at, since: at, inRow: 1, kind: r.Outcome}
	if before.kind == r.Outcome {
		now.inRow, now.since = before.inRow+1, before.since
	}
	h.ends[key] = now
}

// checkBackoff checks that an attempt waits after a failure or a disruption, by the time of the API server.
func (h *history) checkBackoff(node *Node, a task.Attempt, key string) {
	last, known := h.ends[key]
	if !known {
		return
	}
	wait := seconds32(h.job.Spec.Retry.BackoffSeconds, 10)
	longest := seconds32(h.job.Spec.Retry.MaxBackoffSeconds, 300)
	if last.kind == record.Failed { // the number of disruptions in a row begins again with a failure in between
		for n := last.inRow; n > 1; n-- {
			wait = min(2*wait, longest)
		}
	}
	// Times in records are in whole seconds.
	if earliest := last.at.Add(wait - clockStep - time.Second); h.now.Before(earliest) {
		h.break_("rule 6", "attempt %d starts on %s %s after the last one ended (%s), and should wait for %s",
			a.Number, node.Name, h.now.Sub(last.at), last.kind, wait)
	}
}

// checkTimes checks that what is recorded and shown lies within the attempt, regardless of the node's clock.
func (h *history) checkTimes(node *Node, r *record.Record, pod *simPod) {
	if pod == nil || r.Reason == v1alpha1.ReasonDrainTimedOut {
		return
	}
	earliest, latest := pod.Created.Add(-time.Second), h.now.Add(time.Second)
	for what, at := range map[string]time.Time{"began": r.StartedAt, "ended": r.FinishedAt} {
		if !at.IsZero() && pod.Runs == task.Task && (at.Before(earliest) || at.After(latest)) {
			h.break_("clock", "pod %s of %s %s at %s by its record, and it was made at %s", pod.Name, node.Name, what, at, pod.Created)
		}
	}
}
