// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"maps"
	"math/rand"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/outcome"
	"github.com/everynode/everynode/internal/testing/historytest"
)

// confirmWindow is the window of the histories of confirmations.
const confirmWindow = 60 * time.Second

// confirmHistory is a cluster in which tasks cut nodes off, and each node decides by its own clock whether it reverts.
type confirmHistory struct {
	*rand.Rand
	now    time.Time
	job    *v1alpha1.NodeJob
	nodes  map[string]*confirmNode
	pods   map[string]*confirmPod
	seen   Input // what the manager has read
	faults bool
	uid    int
	told   []string
	broken string
}

type confirmNode struct {
	Node
	cutSince time.Time // zero: its kubelet reaches the API server
	// reverted is true if the rollback of its own has succeeded since the task last ran there.
	reverted bool
}

type confirmPod struct {
	Pod
	cuts     bool // the task cuts the node off
	ends     time.Time
	deadline time.Time // of the window; zero before
	arrives  time.Time // when the confirmation reaches the node; zero: none was written
	decided  string    // by the node: confirmed, reverted, stopped, or killed
}

func (h *confirmHistory) say(format string, args ...any) {
	h.told = append(h.told, h.now.Sub(now).String()+" "+fmt.Sprintf(format, args...))
}

func (h *confirmHistory) breaks(format string, args ...any) {
	if h.broken == "" {
		h.broken = fmt.Sprintf(format, args...)
	}
	h.say("BROKEN: "+format, args...)
}

// TestHistoriesOfConfirmations checks rule 24: a node is confirmed or reverted, never both, and never neither. The manager dies, its
// cache is late, and its writes fail; runners are killed.
func TestHistoriesOfConfirmations(t *testing.T) {
	historytest.Run(t, nil, nil, func(seed int64, _ bool) (broken, story string) {
		h := playConfirm(seed)
		return h.broken, strings.Join(h.told, "\n")
	})
}

func newConfirmHistory(random *rand.Rand, nodes int) *confirmHistory {
	h := &confirmHistory{
		Rand: random, now: now, faults: true, nodes: map[string]*confirmNode{}, pods: map[string]*confirmPod{},
		job: newJob(withConfirm, func(j *v1alpha1.NodeJob) { j.Spec.Rollout = v1alpha1.RolloutSpec{} }),
	}
	for i := range nodes {
		name := fmt.Sprintf("n%d", i)
		h.nodes[name] = &confirmNode{Node: newNode(name)}
	}
	return h
}

func playConfirm(seed int64) *confirmHistory {
	h := newConfirmHistory(rand.New(rand.NewSource(seed)), 4)
	for range 100 {
		h.step()
	}
	h.settle()
	return h
}

// settle ends the faults, and checks that no pod is left in the end.
func (h *confirmHistory) settle() {
	h.faults = false
	end := h.now.Add(time.Hour)
	for rest := 0; rest < 20 && h.now.Before(end); {
		if h.step(); len(h.pods) == 0 {
			rest++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(h.pods)) {
		h.breaks("pod %s is left", name)
	}
}

func (h *confirmHistory) step() {
	h.now = h.now.Add(time.Duration(500+h.Intn(4000)) * time.Millisecond)
	for _, name := range slices.Sorted(maps.Keys(h.pods)) {
		pod := h.pods[name]
		h.runs(pod, h.nodes[pod.NodeName])
	}
	h.turn()
	if h.faults && h.Intn(60) == 0 {
		h.deleteSomePod()
	}
	if !h.faults || h.Intn(3) > 0 {
		h.manager()
	}
}

// turn has the control plane notice which nodes are cut off.
func (h *confirmHistory) turn() {
	cut := 0
	for _, node := range h.nodes {
		node.Ready = corev1.ConditionTrue
		if !node.cutSince.IsZero() {
			if cut++; h.now.Sub(node.cutSince) > 40*time.Second {
				node.Ready = corev1.ConditionUnknown
			}
		}
	}
	if cut > 1 {
		h.breaks("%d nodes are cut off at the same time", cut)
	}
}

// runs lets a runner and its kubelet do what is due.
func (h *confirmHistory) runs(pod *confirmPod, node *confirmNode) {
	connected := node.cutSince.IsZero()
	switch {
	case pod.decided != "" || h.now.Before(pod.ends):
	case pod.Runs == task.Rollback:
		pod.decided, node.reverted = "confirmed", true
		h.reports(pod, 0, "", nil)
	case pod.deadline.IsZero():
		pod.deadline = h.now.Add(confirmWindow)
		if pod.cuts {
			h.say("%s is cut off", node.Name)
			node.cutSince = h.now
		}
	case connected && !pod.DeleteRequested.IsZero():
		h.reverts(pod, node, "stopped")
	case h.faults && h.Intn(80) == 0:
		h.killed(pod, node)
	case connected && !pod.arrives.IsZero() && !h.now.Before(pod.arrives) && !pod.arrives.After(pod.deadline):
		h.decides(pod, "confirmed")
		h.reports(pod, 0, "", nil)
	case !h.now.Before(pod.deadline):
		h.reverts(pod, node, "reverted")
	case connected && h.Intn(2) > 0:
		pod.Confirming = true
	}
}

// decides notes what the node has decided.
func (h *confirmHistory) decides(pod *confirmPod, what string) {
	h.say("%s of %s is %s", pod.Name, pod.NodeName, what)
	if pod.decided = what; pod.cuts && what == "confirmed" {
		h.breaks("%s is confirmed, and cut off", pod.NodeName)
	}
}

// reverts runs the rollback on the node, which may fail. A person repairs a node that stays cut off, before its kubelet reports that.
func (h *confirmHistory) reverts(pod *confirmPod, node *confirmNode, why string) {
	h.decides(pod, why)
	node.cutSince = time.Time{}
	reason, code := outcome.ReasonReverted, 0
	if h.Intn(6) == 0 {
		reason, code = outcome.ReasonRevertFailed, 4
	} else if why == "stopped" {
		reason = outcome.ReasonDisrupted
	}
	node.reverted = code == 0 && why == "reverted"
	h.reports(pod, 1, reason, &code)
}

// killed ends the runner without a decision, also by a reboot. Another process on the node runs the rollback at once.
func (h *confirmHistory) killed(pod *confirmPod, node *confirmNode) {
	h.decides(pod, "killed")
	node.cutSince = time.Time{}
	h.reports(pod, 137, "", nil)
	pod.Exit.Reported, pod.Exit.Lost = false, h.Intn(2) == 0
}

// reports ends a pod, as its kubelet reports it.
func (h *confirmHistory) reports(pod *confirmPod, code int32, reason string, rollback *int) {
	pod.Phase, pod.Confirming = corev1.PodSucceeded, false
	if code != 0 {
		pod.Phase = corev1.PodFailed
	}
	pod.Exit = &Exit{Code: code, Finished: h.now, Reported: true, Reason: reason, RollbackExitCode: rollback}
}

func (h *confirmHistory) deleteSomePod() {
	for _, name := range slices.Sorted(maps.Keys(h.pods)) {
		if pod := h.pods[name]; pod.DeleteRequested.IsZero() {
			h.say("%s is deleted by hand", name)
			pod.DeleteRequested, pod.DeleteGrace = h.now, time.Minute
			return
		}
	}
}

// manager makes a plan and executes it. What kubelets have reported may be old; the manager remembers its own writes.
func (h *confirmHistory) manager() Plan {
	old, stale := h.seen, h.faults && h.Intn(3) == 0
	h.seen = Input{Job: h.job, Revision: rev, Now: h.now}
	for _, name := range slices.Sorted(maps.Keys(h.nodes)) {
		node := h.nodes[name].Node
		if i := slices.IndexFunc(old.Nodes, func(n Node) bool { return n.Name == name }); i >= 0 && stale {
			node.Ready = old.Nodes[i].Ready
		}
		h.seen.Nodes = append(h.seen.Nodes, node)
	}
	for _, name := range slices.Sorted(maps.Keys(h.pods)) {
		pod := h.pods[name].Pod
		if i := slices.IndexFunc(old.Pods, func(p Pod) bool { return p.UID == pod.UID }); i >= 0 && stale {
			pod = old.Pods[i]
		}
		h.seen.Pods = append(h.seen.Pods, pod)
	}
	p := Next(h.seen)
	h.job = h.job.DeepCopy()
	h.job.Status = p.Status
	for _, action := range p.Actions {
		if !h.faults || h.Intn(6) > 0 {
			h.apply(action)
		}
	}
	return p
}

func (h *confirmHistory) apply(action Action) {
	switch a := action.(type) {
	case Start:
		h.start(a.Attempt)
	case Confirm:
		if pod := h.pods[a.Pod.Name]; pod != nil && pod.UID == a.Pod.UID {
			h.say("%s is confirmed by the manager", pod.Name)
			if pod.deadline.IsZero() || pod.cuts {
				h.breaks("%s is confirmed, and its kubelet has not responded since its task has ended", pod.Name)
			}
			pod.Confirmed, pod.arrives = true, h.now.Add(time.Duration(h.Intn(3000))*time.Millisecond)
		}
	case Record:
		h.record(a)
	case FinalizePod:
		if pod := h.pods[a.Pod.Name]; pod != nil && pod.UID == a.Pod.UID {
			delete(h.pods, a.Pod.Name)
		}
	case Stop:
		if pod := h.pods[a.Pod.Name]; pod != nil && pod.DeleteRequested.IsZero() {
			pod.DeleteRequested, pod.DeleteGrace = h.now, time.Minute
		}
	}
}

func (h *confirmHistory) start(a task.Attempt) {
	name := fmt.Sprintf("%s-%s-%d", a.NodeName, a.Phase, a.Number)
	node := h.nodes[a.NodeName]
	if h.pods[name] != nil {
		h.breaks("pod %s is made a second time", name)
	}
	switch {
	case node.reverted:
		h.breaks("the %s runs on %s, which has reverted by itself", a.Phase, node.Name)
	case a.Phase == task.Task && node.On.Record != nil && node.On.Record.Reverted:
		h.breaks("the task is retried on %s, whose revert has failed", node.Name)
	}
	h.uid++
	pod := &confirmPod{
		Pod:  newPod(node.Node),
		cuts: a.Phase == task.Task && h.Intn(3) == 0,
		ends: h.now.Add(time.Duration(h.Intn(20)) * time.Second),
	}
	pod.Name, pod.UID, pod.Runs, pod.Attempt = name, types.UID(fmt.Sprintf("pod-%d", h.uid)), a.Phase, a.Number
	pod.Created, pod.Started, pod.Confirm = h.now, h.now, a.Phase == task.Task
	h.say("%s starts (cuts the node off: %v)", name, pod.cuts)
	h.pods[name] = pod
}

// record writes a record, and releases the pod.
func (h *confirmHistory) record(a Record) {
	node, pod := h.nodes[a.Node], h.pods[a.Pod.Name]
	if pod == nil || pod.UID != a.Pod.UID {
		return
	}
	r := *a.Record
	h.say("%s is recorded: %s %s reverted=%v", pod.Name, r.Outcome, r.Reason, r.Reverted)
	switch {
	case pod.decided == "":
		if r.Reason != v1alpha1.ReasonNodeUnreachable && r.Reason != v1alpha1.ReasonDeadlineExceeded {
			h.breaks("%s is recorded as %s before the node has decided", pod.Name, r.Outcome)
		}
	case pod.Runs == task.Task && (r.Outcome == record.Succeeded) != (pod.decided == "confirmed"):
		h.breaks("%s is recorded as %s, and the node is %s", pod.Name, r.Outcome, pod.decided)
	case pod.Runs == task.Task && pod.decided == "reverted" && !r.Reverted:
		h.breaks("%s has reverted, and its record does not say so", pod.Name)
	}
	node.On.Record, node.On.Present, node.On.Sealed = &r, true, true
	if r.Outcome == record.Succeeded {
		node.On.Label = rev
	}
	delete(h.pods, pod.Name)
}
