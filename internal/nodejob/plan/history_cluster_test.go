// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/hold"
)

func (h *history) nextUID(prefix string) types.UID {
	h.uid++
	return types.UID(fmt.Sprintf("%s-%d", prefix, h.uid))
}

func (h *history) addNode(name string) {
	labels := map[string]string{"pool": "a", corev1.LabelTopologyZone: []string{"x", "y"}[h.rng.Intn(2)]}
	if h.rng.Intn(3) == 0 {
		labels["stage"] = "yes"
	}
	node := &Node{
		Name: name, UID: h.nextUID("node"), Created: h.now.Truncate(time.Second), Labels: labels,
		Ready: corev1.ConditionTrue, BootID: string(h.nextUID("boot")), MachineID: string(h.nextUID("machine")), ReadySince: h.now,
	}
	h.nodes[name] = node
	h.configure(node)
	h.mix(node)
	h.setClock(node)
	node.ReadySince, h.backAt[node.BootID] = h.by(node), h.now
	h.equip(node)
	h.equipValue(node)
	h.addTeam(node)
	h.changed(node)
	pods := h.rng.Intn(3)
	if h.job.Spec.Gate != nil && h.closedFor(node) {
		pods = 0 // its gate excludes them
	}
	for i := range pods {
		h.workloads[node.UID] = append(
			h.workloads[node.UID],
			DrainPod{Namespace: "web", Name: fmt.Sprintf("web-%d", i), UID: h.nextUID("web")},
		)
	}
}

// changed gives the node a new resource version.
func (h *history) changed(node *Node) {
	if !node.Unschedulable {
		delete(h.at, node.UID)
	}
	node.ResourceVersion = strconv.Itoa(h.uid)
	h.uid++
}

func (h *history) pick() *Node {
	if len(h.nodes) == 0 {
		return nil
	}
	names := slices.Sorted(maps.Keys(h.nodes))
	return h.nodes[names[h.rng.Intn(len(names))]]
}

func (h *history) podNames() []string { return slices.Sorted(maps.Keys(h.pods)) }

// catchUp updates the whole cache.
func (h *history) catchUp() {
	before := h.cache.pods
	h.cache = cache{nodes: map[string]Node{}, pods: map[string]Pod{}}
	for name, node := range h.nodes {
		h.cache.nodes[name] = *node
	}
	for name, pod := range h.pods {
		if h.isMade(pod) {
			h.cache.pods[name] = pod.Pod
		} else {
			pod.tampered = true
			h.forgetRun(pod)
		}
	}
	for name, pod := range h.forged {
		if h.isMade(pod) {
			h.cache.pods[name] = pod.Pod
		}
	}
	h.vanish(before)
}

// wrote updates the cache with a write of the manager to a node.
func (h *history) wrote(node *Node) { h.cache.nodes[node.Name] = *node }

// collect removes terminating pods without finalizers from the API.
func (h *history) collect() {
	for _, name := range h.podNames() {
		pod := h.pods[name]
		node := h.nodes[pod.NodeName]
		if !pod.DeleteRequested.IsZero() && !pod.Finalized && (over(&pod.Pod) || node == nil) {
			delete(h.pods, name)
		}
	}
}

func (h *history) input() Input {
	in := Input{
		Job:       h.job,
		Revision:  h.rev,
		Obstacle:  h.obstacle,
		Now:       h.apiTime(),
		BusyNodes: h.busyWithEarlier(),
		Drains:    map[types.UID][]DrainPod{},
	}
	for _, name := range slices.Sorted(maps.Keys(h.cache.nodes)) {
		in.Nodes = append(in.Nodes, h.cache.nodes[name])
	}
	for _, look := range h.last.DrainPodRequests {
		in.Drains[look.UID] = slices.Clone(h.workloads[look.UID]) // read live
	}
	if h.denied {
		in.NotAllowed = hold.NamespaceNotAllowed("ns")
	} else if nodes, obstacle := hold.AllowedNodes("ns", h.annotations()); obstacle != nil {
		in.NotAllowed = obstacle
	} else {
		in.AllowedNodes = nodes
	}
	h.addPeers(&in)
	h.addBudgets(&in)
	h.tellTroubles(&in)
	for _, name := range slices.Sorted(maps.Keys(h.cache.pods)) {
		pod := h.cache.pods[name]
		pod.RecordedOn = h.recordedOn[pod.UID]
		in.Pods = append(in.Pods, pod)
	}
	return in
}

// pass is one reconcile: the plan, the rules, and its actions, of which some may fail.
func (h *history) pass() {
	another := false
	switch luck := h.rng.Intn(16); {
	case h.faults && luck < 2:
		h.say("no manager runs")
		return
	case h.faults && luck < 4:
		h.say("another manager starts")
		another = true
		h.last.DrainPodRequests = nil
		h.newManager()
		h.forgetClaims()
		h.catchUp()
	case !h.faults || luck < 12:
		h.catchUp()
	}
	h.readStatus(another)
	h.releaseQueued()
	in := h.input()
	h.checkAffects(in)
	h.seen = maps.Clone(h.cache.nodes)
	h.noteNodes(in)
	p := Next(in)
	h.last = p
	h.checkAllowed(in, p)
	h.checkWork(p)
	h.checkLimit(in, p)
	h.checkTenant(p)
	h.checkBudget(in, p)
	h.noteTry(in, p)
	h.checkPlan(in, p)
	h.noteStarts(in, p)
	bare, failed := h.bareNodes(in), map[*Node]bool{}
	h.raced = false
	for _, action := range p.Actions {
		if h.faults && h.rng.Intn(6) == 0 {
			h.say("%T fails", action)
			failed[h.target(action)] = true
			h.failClaim(action)
			continue
		}
		h.do(action)
	}
	h.reportToBudget(p)
	h.noteBare(bare, failed)
	h.removeOthers()
	h.judgeStarts()
	h.rest = nil
	if h.faults && h.rng.Intn(6) == 0 {
		h.say("the status is not written")
		for _, uid := range h.beginsUnready {
			h.again[uid] = true
		}
	} else {
		before := h.job.Status
		h.checkStatus(before, p.Status)
		h.checkProgress(in, &before, &p.Status)
		h.job.Status, h.shown = p.Status, nil
		if h.plot != nil {
			h.job.Status.ControllerState.Seal = h.key.NodeJob(h.job)
		}
		h.saw(in, before)
		if !h.raced {
			h.rests(in, p)
		}
	}
	h.collect()
}
