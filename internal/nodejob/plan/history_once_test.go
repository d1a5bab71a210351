// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
)

// This file defines what a history knows about pods that are retained for their logs, about nodes that are assumed to be
// done, and about nodes that a user retries before others start.

// someOnce lets only every fifth history retain its pods for a while, so that the other histories do not change.
func (h *history) someOnce(seed int64) {
	if (seed%5+5)%5 == 4 {
		h.job.Spec.RetainPodsSeconds = 30
	}
}

// keep releases a pod and retains it.
func (h *history) keep(pod Pod) {
	live := h.pods[pod.Name]
	if live == nil || live.UID != pod.UID {
		return
	}
	h.checkRelease(pod)
	if h.job.Spec.RetainPodsSeconds == 0 || !h.job.DeletionTimestamp.IsZero() {
		h.break_("retainPodsSeconds", "pod %s is retained", pod.Name)
	}
	h.say("pod %s is retained", pod.Name)
	live.Finalized, live.Recorded, live.released = false, true, true
	h.cache.pods[pod.Name] = live.Pod
}

const configuredKey = "setup.example/configured"

// someAssumed lets only every seventh history assume that nodes with a label are done, so that the other histories do
// not change.
func (h *history) someAssumed(seed int64) {
	if (seed%7+7)%7 == 3 {
		h.job.CreationTimestamp.Time = h.now.Add(time.Second)
		h.job.Spec.Nodes.AssumeDone = &v1alpha1.AssumeDoneSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{configuredKey: "true"}},
		}
	}
}

// configure gives every second node the label by which it is assumed to be done.
func (h *history) configure(node *Node) {
	if h.job.Spec.Nodes.AssumeDone != nil && h.uid%2 == 0 {
		node.Labels[configuredKey] = "true"
	}
}

// checkAssumed checks a record that says that a node is done without a run.
func (h *history) checkAssumed(before *Node, rec *record.Record) {
	if rec == nil || !rec.Assumed || before.On.Record != nil && before.On.Record.Assumed {
		return
	}
	switch {
	case h.job.Spec.Nodes.AssumeDone == nil, before.Labels[configuredKey] == "":
		h.break_("assumeDone", "%s is assumed to be done, and does not match", before.Name)
	case !before.Created.Before(h.job.CreationTimestamp.Time):
		h.break_("assumeDone", "%s is assumed to be done, and joined later", before.Name)
	case before.On.Record != nil, before.On.Label != "", before.On.Altered:
		h.break_("assumeDone", "%s is assumed to be done again", before.Name)
	}
	h.claimed[string(before.UID)+"/"+rec.Revision], h.declared[before.UID] = true, rec.Revision
}

// someRetries lets every third history retry single nodes by a request in the record, and not by its removal.
func (h *history) someRetries(seed int64) { h.retriesNodes = (seed%3+3)%3 == 1 }

// retryNode is a user who retries a node, before others start or at the same time. It returns false for a node that
// cannot be retried.
func (h *history) retryNode(node *Node) bool {
	rec := node.On.Record
	if !h.retriesNodes || rec == nil || rec.Revision != h.rev || (rec.Outcome != record.Failed && rec.Outcome != record.Disrupted) ||
		node.On.Label != "" {
		return false
	}
	asked := *rec
	asked.RetryRequested, asked.RunsAlone = true, h.uid%3 != 0
	h.say("a user retries %s, alone: %v", node.Name, asked.RunsAlone)
	node.On.Record = &asked
	h.ask(node)
	for _, rev := range []string{"rev1", "rev2", "rev3"} {
		delete(h.failedSince, run(node, rev))
	}
	return true
}

// checkAlone checks that no node starts while a user retries another one before others.
func (h *history) checkAlone(in Input, node *Node) {
	if !h.stableAt().IsZero() || slices.Contains(node.CordonedBy, ownKey) || node.On.Record != nil && node.On.Record.RunsAlone {
		return
	}
	for i := range in.Nodes {
		other := &in.Nodes[i]
		rec := other.On.Record
		if other.UID == node.UID || rec == nil || !rec.RunsAlone || rec.Revision != h.rev || rec.MachineID != other.MachineID ||
			h.isBad(other) ||
			!h.selected(other) ||
			h.mayBeStuck(other) {
			continue
		}
		if slices.ContainsFunc(in.Pods, func(p Pod) bool {
			return p.NodeName == other.Name && p.Runs == task.Task && p.Revision == h.rev && h.owed(&p) && h.onThisMachine(&p, other) &&
				in.Now.Before(p.Created.Add(2*time.Minute))
		}) {
			h.break_("retry", "%s is started while %s is retried alone", node.Name, other.Name)
		}
	}
}
