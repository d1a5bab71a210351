// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/hold"
)

// What takes nodes away: drain tools, and NodeJobs.

// tool drains nodes as kubectl does: it cordons, lists the pods once, evicts each until it terminates, maintains the node and uncordons
// it. Karpenter taints nodes, lists the pods repeatedly, and deletes the node.
type tool struct {
	name, node string
	karpenter  bool
	uid        types.UID
	phase      phase
	pods       []Seat
}

type phase int

const (
	idle phase = iota
	cordoned
	asking
	working
)

func (h *history) toolStep(t *tool) {
	n, there := h.nodes[t.node]
	if t.phase != idle && (!there || n.UID != t.uid) {
		t.phase = idle
		return
	}
	switch t.phase {
	case idle:
		h.beginDrain(t)
	case cordoned:
		h.list(t)
	case asking:
		h.drain(t)
	case working:
		h.maintain(t)
	}
}

func (h *history) beginDrain(t *tool) {
	name := pick(h, h.nodes)
	if h.calm || name == "" || h.chance(40) ||
		slices.ContainsFunc(h.tools, func(o *tool) bool { return o.phase != idle && o.node == name }) {
		return
	}
	n := h.nodes[name]
	t.node, t.uid, t.phase = name, n.UID, cordoned
	if t.karpenter {
		n.Taints = append(slices.Clone(n.Taints), corev1.Taint{
			Key: "karpenter.sh/disrupted", Effect: corev1.TaintEffectNoSchedule, TimeAdded: new(metav1.NewTime(second(h.now))),
		})
	} else {
		n.Unschedulable = true
	}
	h.say("%s begins to drain %s", t.name, name)
	h.setNode(n)
}

func (h *history) list(t *tool) {
	t.pods, t.phase = nil, asking
	for _, name := range sorted(h.pods) {
		if p := h.pods[name]; p.on == t.node && !p.stranger && !p.Terminating {
			t.pods = append(t.pods, p.Seat)
		}
	}
	h.say("%s finds %d seats on %s", t.name, len(t.pods), t.node)
}

func (h *history) drain(t *tool) {
	if n := h.nodes[t.node]; !isAskedFor(&n) {
		t.phase = idle // a NodeJob that also cordoned it has uncordoned it
		return
	}
	if !h.calm && h.chance(4) {
		h.met["drain given up"]++
		h.uncordon(t)
		return
	}
	if t.karpenter {
		h.list(t)
	}
	for _, p := range t.pods {
		if !h.evict(p.Name, p.UID, t.name) {
			return
		}
	}
	t.phase = working
}

func (h *history) maintain(t *tool) {
	switch n := h.nodes[t.node]; {
	case t.karpenter && h.chance(30) && len(h.nodes) > 2:
		n.Deleting = true
		h.setNode(n)
	case n.Deleting, t.karpenter && h.calm:
		h.deleteNode(t.node)
		t.phase = idle
		if h.chance(70) {
			h.addNode(0)
		}
	case h.chance(40) && !h.calm:
		h.setReady(t.node, !n.Ready)
	case h.chance(50) || h.calm:
		h.setReady(t.node, true)
		h.met["drained"]++
		h.uncordon(t)
	}
}

func (h *history) uncordon(t *tool) {
	n := h.nodes[t.node]
	n.Unschedulable, n.Deleting = false, false
	n.Taints = slices.DeleteFunc(slices.Clone(n.Taints), func(t corev1.Taint) bool {
		return t.Key == corev1.TaintNodeUnschedulable || t.Key == "karpenter.sh/disrupted"
	})
	h.say("%s uncordons %s", t.name, t.node)
	h.setNode(n)
	t.phase = idle
}

// job is a NodeJob that disrupts nodes. The manager runs it.
type job struct {
	name string
	work []*work
}

// work is what a NodeJob does on a node.
type work struct {
	node  string
	uid   types.UID
	since time.Time
	// cordons is true if the NodeJob cordons the node. If not, it only reboots it.
	cordons, cordoned bool
	// ignoresWindows is true if it may begin outside of windows.
	ignoresWindows bool
	// begun is true from the claim on, and recorded once a new manager would find it.
	begun, recorded bool
}

func (h *history) jobStep(j *job) {
	if h.manager == nil {
		return
	}
	if name := pick(h, h.nodes); !h.calm && len(j.work) < 2 && name != "" && h.chance(50) && h.workOn(h.nodes[name].UID) == nil {
		j.work = append(
			j.work,
			&work{node: name, uid: h.nodes[name].UID, since: h.now, cordons: h.chance(50), ignoresWindows: h.rng.Intn(3) == 0},
		)
		h.say("%s waits for %s: %+v", j.name, name, j.work[len(j.work)-1])
	}
	for _, w := range slices.Clone(j.work) {
		if n, there := h.nodes[w.node]; !there || n.UID != w.uid || h.workStep(j, w) {
			j.work = slices.DeleteFunc(j.work, func(o *work) bool { return o == w })
		}
	}
	h.manager.report(j)
}

func (h *history) workOn(node types.UID) *work {
	for _, j := range h.jobs {
		for _, w := range j.work {
			if w.uid == node {
				return w
			}
		}
	}
	return nil
}

// workStep continues the work on a node, and returns true if it is done.
func (h *history) workStep(j *job, w *work) (done bool) {
	switch n := h.nodes[w.node]; {
	case !w.begun && w.ignoresWindows && !h.calm && h.rng.Intn(20) == 0:
		h.say("%s gives up %s", j.name, w.node)
		h.gaveUpAt[w.uid] = h.now
		return true
	case !w.begun:
		h.claim(j, w)
	case !w.recorded:
		w.recorded = true
	case w.cordons && !w.cordoned:
		w.cordoned, w.cordons = !n.Unschedulable, !n.Unschedulable
		n.Unschedulable = true
		h.say("%s cordons %s", j.name, w.node)
		h.setNode(n)
	case !h.calm && h.chance(40):
		h.setReady(w.node, !n.Ready)
	case h.calm || h.chance(50):
		h.setReady(w.node, true)
		if n = h.nodes[w.node]; w.cordoned {
			n.Unschedulable, n.Taints = false, slices.DeleteFunc(
				slices.Clone(n.Taints),
				func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeUnschedulable },
			)
			h.setNode(n)
		}
		h.touchedAt[w.uid] = h.now
		h.say("%s is done on %s", j.name, w.node)
		h.met["NodeJob done"]++
		return true
	}
	return false
}

// claim begins to disrupt a node if the budgets allow it: the NodeJob first holds the node, and then evicts its seat.
func (h *history) claim(j *job, w *work) {
	m := h.manager
	s, limited := m.stances[w.uid]
	switch {
	case m.stances == nil || limited && !s.Allowed:
		return
	case !m.claim(j.name, w.uid):
		h.met["claim refused"]++
		return
	case s.Seat == "":
		if limited {
			h.takesWithoutSeat(j.name, h.nodes[w.node])
		}
	case !h.evictForJob(s, j.name):
		h.met["NodeJob refused"]++
		delete(m.claimed, w.uid)
		return
	default:
		h.met["NodeJob claimed"]++
		if h.now.Before(h.nodes[w.node].Created.Add(2 * joiningFor)) {
			h.met["NodeJob claimed a young node"]++
		}
	}
	h.say("%s begins on %s (%+v)", j.name, w.node, s)
	h.noteOutside(w)
	delete(h.own, w.uid)
	w.begun = true
}

// noteOutside notes work that begins outside of a window.
func (h *history) noteOutside(w *work) {
	n := h.nodes[w.node]
	for name, b := range h.budgets {
		if w.ignoresWindows && h.binds(name, b) && h.isSubject(b, &n) && !b.closedSince(h.now, h.skew, false).IsZero() {
			h.met["NodeJob outside of a window"]++
		}
	}
}

// evictForJob evicts a seat. A seat that does not exist is that of a node that counts as unavailable; another seat of the node is not.
func (h *history) evictForJob(s hold.Stance, by string) bool {
	if p, there := h.pods[s.Seat]; there && p.UID != s.SeatUID {
		return false
	}
	return h.evict(s.Seat, s.SeatUID, by)
}
