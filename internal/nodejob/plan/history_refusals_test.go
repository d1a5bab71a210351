// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
)

// An API server rejects pods of some kinds, or on some nodes, and writes to a node whose annotations are full. What the
// manager remembers is as in internal/manager/controller.

// shell is the in-memory state of a manager.
type shell struct {
	// refuses reports whether a pod is rejected; nil if none is.
	refuses func(task.Attempt) bool
	refused string
	// refusals are by the sort of pod: pods of the task, and pods of scripts if the task is a template.
	refusals map[bool]*refusal
	// troubles are problems of single nodes.
	troubles map[types.UID]*nodeTrouble
	// lastEnds and removals tell a record that is removed again and again.
	lastEnds map[types.UID]lastEnd
	removals map[types.UID]int
	// recordedOn are the nodes on which it has recorded the outcomes of pods.
	recordedOn map[types.UID]types.UID
	// queued are the pods that it releases in the background.
	queued map[types.UID]Pod
	// othersWait is true if the last try of a pod, while pods were refused, left nodes waiting that could have been tried.
	othersWait bool
	// refusedSince is since when no pod was accepted.
	refusedSince time.Time
	// retry is the last requested retry, which clears all troubles.
	retry string
	// tried are the sorts of pods that were tried in this pass, stopped those of which the first was refused.
	triedSorts, stopped map[bool]bool
	refusedNow          map[bool]bool
}

type refusal struct {
	hold.Why
	wait time.Duration
}

type nodeTrouble struct {
	NodeProblem
	wait        time.Duration
	reasonSince time.Time
}

type lastEnd struct {
	revision, retry string
	at              time.Time
}

func newShell() shell {
	return shell{
		refusals:   map[bool]*refusal{},
		troubles:   map[types.UID]*nodeTrouble{},
		lastEnds:   map[types.UID]lastEnd{},
		removals:   map[types.UID]int{},
		recordedOn: map[types.UID]types.UID{},
		queued:     map[types.UID]Pod{},
		triedSorts: map[bool]bool{},
		stopped:    map[bool]bool{},
		refusedNow: map[bool]bool{},
	}
}

// newManager starts a manager without in-memory state.
func (h *history) newManager() {
	refuses, refused := h.refuses, h.refused
	h.shell = newShell()
	h.refuses, h.refused = refuses, refused
}

// templateMore makes the task a pod template in some histories: an API server may reject that and accept scripts, or
// the other way round.
func (h *history) templateMore() {
	if h.with(refusals) && h.roll(2) {
		h.job.Spec.Task.Script = ""
		h.job.Spec.Task.Template = &corev1.PodTemplateSpec{Spec: corev1.PodSpec{OS: &corev1.PodOS{Name: corev1.Linux}}}
	}
}

// refuseMore makes an API server start or stop rejecting pods.
func (h *history) refuseMore() {
	names := sortedKeys(h.nodes)
	name := names[h.dice.Intn(len(names))]
	switch h.dice.Intn(5) {
	case 0:
		h.refuses, h.refused = nil, "nothing"
	case 1:
		h.refuses, h.refused = func(a task.Attempt) bool { return a.Phase == task.Rollback }, "rollback pods"
	case 2:
		h.refuses, h.refused = func(a task.Attempt) bool { return a.Phase == task.Reboot || a.Phase == task.Check }, "reboot and check pods"
	case 3:
		h.refuses, h.refused = func(a task.Attempt) bool { return h.sortOf(a) }, "scripts beside the template"
	default:
		h.refuses, h.refused = func(a task.Attempt) bool { return a.NodeName == name }, "pods on "+name
	}
	h.say("the API server rejects %s", h.refused)
}

// sortOf reports whether a pod runs a script although the task is a template.
func (h *history) sortOf(a task.Attempt) bool {
	return h.job.Spec.Task.Template != nil && a.Phase != task.Task
}

// mayBeMade reports whether the API server lets the manager create a pod. The first pod of each sort is created alone.
func (h *history) mayBeMade(a task.Attempt) bool {
	sort := h.sortOf(a)
	if h.stopped[sort] {
		return false
	}
	first := !h.triedSorts[sort]
	h.triedSorts[sort] = true
	switch {
	case h.isBad(h.nodes[a.NodeName]) && h.mirrors:
		h.say("%s already has a pod of that name", a.NodeName)
		h.trouble(a.NodeUID, v1alpha1.ReasonPodNameTaken, "the name of the pod is taken", time.Second, 15*time.Second)
		return false
	case h.refuses != nil && h.refuses(a):
		h.say("the %s pod on %s is rejected", a.Phase, a.NodeName)
		h.refusedNow[sort] = true
		h.stopped[sort] = first
		h.trouble(a.NodeUID, v1alpha1.ReasonPodForbidden, "the API server refuses "+h.refused, time.Second, 15*time.Second)
		return false
	}
	return true
}

// judgeStarts ends a pass: a created pod shows that its sort is no longer rejected.
func (h *history) judgeStarts() {
	for sort := range h.triedSorts {
		known := h.refusals[sort]
		switch {
		case h.refusedNow[sort]:
			wait := time.Second
			if known != nil {
				wait = max(min(2*known.wait, 15*time.Second), time.Second)
			}
			if known == nil && h.refusedSince.IsZero() {
				h.refusedSince = h.told
			}
			h.refusals[sort] = &refusal{wait: wait, Why: hold.Why{
				Reason: v1alpha1.ReasonPodForbidden, Message: "the API server refuses " + h.refused, Until: h.told.Add(wait),
			}}
		case known != nil:
			delete(h.refusals, sort)
			for _, met := range h.troubles {
				if h.isGeneral(met) {
					met.Since, met.reasonSince = h.told, h.told
				}
			}
			h.refusedSince = time.Time{}
		}
	}
	clear(h.triedSorts)
	clear(h.stopped)
	clear(h.refusedNow)
}

// trouble notes a problem of a node.
func (h *history) trouble(node types.UID, reason, message string, first, longest time.Duration) {
	known := h.troubles[node]
	if known == nil {
		known = &nodeTrouble{NodeProblem: NodeProblem{Since: h.told}}
		h.troubles[node] = known
	}
	if known.Reason != reason {
		known.Reason, known.reasonSince = reason, h.told
	}
	known.wait = max(first, min(2*known.wait, longest))
	known.Message, known.TriedAt, known.Until = message, h.told, h.told.Add(known.wait)
}

// isGeneral reports whether a pod was rejected while all other pods were rejected too.
func (h *history) isGeneral(met *nodeTrouble) bool {
	return met.Reason == v1alpha1.ReasonPodForbidden && !h.refusedSince.IsZero() && !met.reasonSince.Before(h.refusedSince)
}

func (h *history) untroubled(node types.UID, reasons ...string) {
	if known := h.troubles[node]; known != nil && slices.Contains(reasons, known.Reason) {
		delete(h.troubles, node)
	}
}

// noteEnd notes that the outcome of an attempt is recorded.
func (h *history) noteEnd(node types.UID, revision, retry string) {
	h.lastEnds[node] = lastEnd{revision, retry, h.told}
	h.untroubled(node, v1alpha1.ReasonRecordRejected, v1alpha1.ReasonPodForceDeleted)
}

// begins notes a first attempt on a node without the end of the run before: it may have been removed again and again.
func (h *history) begins(a task.Attempt) {
	on := h.seen[a.NodeName].On
	ended := on.Record != nil && on.Record.Revision == a.Revision && on.Record.Outcome != record.Succeeded
	if a.Phase != task.Task && a.Phase != task.CheckBefore || a.Number != 1 || on.Label == a.Revision || ended {
		return
	}
	last, known := h.lastEnds[a.NodeUID]
	if !known || last.revision != a.Revision || last.retry != a.Retry || h.told.Sub(last.at) > time.Hour {
		delete(h.removals, a.NodeUID)
		h.untroubled(a.NodeUID, v1alpha1.ReasonRecordRemoved)
		return
	}
	if h.removals[a.NodeUID]++; h.removals[a.NodeUID] >= 3 {
		h.trouble(a.NodeUID, v1alpha1.ReasonRecordRemoved, "its record is removed again and again", 10*time.Second, 300*time.Second)
	}
}

// vanish notes the pods that are deleted although the manager has not released them. The manager learns that when its
// cache catches up.
func (h *history) vanish(before map[string]Pod) {
	for _, name := range sortedKeys(before) {
		pod := before[name]
		made, node := h.made[pod.UID], h.nodes[pod.NodeName]
		if h.pods[name] != nil || made == nil || made.released || node == nil || node.UID != pod.NodeUID {
			continue
		}
		if rec := node.On.Record; rec != nil && (rec.PodUID == pod.UID || rec.Rollback != nil && rec.Rollback.PodUID == pod.UID) {
			continue
		}
		h.trouble(node.UID, v1alpha1.ReasonPodForceDeleted, "pod "+name+" was removed by force", 10*time.Second, 300*time.Second)
	}
}

// noteTry notes which nodes wait while one pod is tried.
func (h *history) noteTry(in Input, p Plan) {
	if in.Obstacle == nil || !slices.ContainsFunc(p.Actions, func(a Action) bool {
		mark, marks := a.(PatchNode)
		_, starts := a.(Start)
		return starts || marks && mark.Before != nil
	}) {
		return
	}
	h.othersWait = slices.ContainsFunc(
		p.Nodes,
		func(st NodeState) bool { return st.State == Waiting && st.Reason == v1alpha1.ReasonWaitingForSlot },
	)
}

// tellTroubles adds the in-memory state of the manager to the input of the plan.
func (h *history) tellTroubles(in *Input) {
	if in.Obstacle == nil && h.refusals[false] != nil {
		in.Obstacle = &h.refusals[false].Why
	}
	if h.refusals[true] != nil && h.job.Spec.Task.Template != nil {
		in.RunnerRefused = &h.refusals[true].Why
	}
	in.NodeProblems = map[types.UID]NodeProblem{}
	there := map[types.UID]bool{}
	for i := range in.Nodes {
		there[in.Nodes[i].UID] = true
	}
	if token := task.RetryToken(h.job); h.retry != token {
		h.retry = token
		clear(h.troubles)
	}
	maps.DeleteFunc(h.troubles, func(uid types.UID, _ *nodeTrouble) bool { return !there[uid] })
	for uid, met := range h.troubles {
		met.General = h.isGeneral(met)
		in.NodeProblems[uid] = met.NodeProblem
	}
}

// withRefusals ends a history in which the API server rejects pods until the end: all other nodes must be done.
func (h *history) withRefusals() {
	if h.refuses == nil || h.deleting() {
		return
	}
	h.until("all that is not refused is done", h.othersAreDone)
	h.refuses = nil
	h.say("the API server rejects nothing any more")
}
