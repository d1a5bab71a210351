// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/kube"
)

// The API server, the disruption controller, the kubelets, and what happens to nodes.

// simPod is a seat, or a pod of another owner with the label of a group.
type simPod struct {
	Seat
	// on is the name of its node. running is false until its kubelet has started it.
	on       string
	running  bool
	stranger bool
	// killed is true if its kubelet still runs it.
	killed bool
}

// simFloor is a PodDisruptionBudget with its status, which is that of an earlier time.
type simFloor struct {
	Floor
	// open is true if another client has set unhealthyPodEvictionPolicy to AlwaysAllow.
	open             bool
	healthy, desired int
	// evictedAt is when the evictions of pods were counted that it still names.
	evictedAt map[string]time.Time
	// queued is true if the disruption controller has been told of a change since it processed it last, and waits is for how long.
	queued bool
	waits  int
}

// eviction is a request for an eviction that a PodDisruptionBudget has counted, and whose pod is not deleted yet.
type eviction struct {
	pod string
	uid types.UID
	by  string
	at  time.Time
}

// The disruption controller counts a pod as away for so long whose eviction was granted; a request lasts shorter than that.
const countedFor, requestFor = 2 * time.Minute, 30 * time.Second

func (h *history) addNode(age time.Duration) {
	name := fmt.Sprint("n", h.uid())
	n := Node{Node: kube.Node{Name: name, UID: types.UID("node-" + name), Ready: true}, Created: second(h.now.Add(-age))}
	n.ReadyChanged = n.Created
	n.Labels = map[string]string{"zone": []string{"a", "b"}[h.rng.Intn(2)], "pool": []string{"x", "x", "y"}[h.rng.Intn(3)]}
	h.setNode(n)
	h.factsAt[n.UID] = h.now
	h.newcomers[n.UID] = !h.synced.IsZero()
	h.say("%s joins, created %v ago: %v", name, age, n.Labels)
}

func (h *history) setNode(n Node) {
	h.changes++
	h.touchedAt[n.UID] = h.now
	h.nodes[n.Name] = n
}

func (h *history) setPod(p simPod) {
	h.ownChanges++
	h.pods[p.Name] = p
	h.queue(p.Group)
}

// queue tells the disruption controller of a change of a pod. It finds the PodDisruptionBudget by the labels that the pod has now: nothing
// tells it to count that of the earlier labels again. Source: k8s.io/kubernetes pkg/controller/disruption (updatePod).
func (h *history) queue(group string) {
	for key, f := range h.floors {
		if key == group || group == PlaceholderGroup {
			f.queued = true
			h.floors[key] = f
		}
	}
}

// remove deletes a pod. A watch tells the manager its last state, unless it was interrupted.
func (h *history) remove(p simPod) {
	h.deletePod(p)
	if m := h.manager; m != nil && !p.stranger {
		m.ends = append(m.ends, end{p.Seat, h.calm || h.chance(90)})
	}
}

func (h *history) deletePod(p simPod) {
	h.ownChanges++
	delete(h.pods, p.Name)
	h.queue(p.Group)
}

func (h *history) setFloor(f simFloor) {
	h.ownChanges++
	f.ResourceVersion, f.queued, f.Evicted = h.uid(), true, sorted(f.evictedAt)
	h.floors[f.Group] = f
}

// setReady changes the Ready condition of a node.
func (h *history) setReady(name string, ready bool) {
	n, there := h.nodes[name]
	if !there || n.Ready == ready {
		return
	}
	n.Ready, n.ReadyChanged = ready, second(h.now)
	h.brokenAt[n.UID] = h.now
	n.Taints = slices.DeleteFunc(slices.Clone(n.Taints), func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeUnreachable })
	if !ready && h.chance(50) {
		n.Taints = append(n.Taints, corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute})
	}
	h.say("%s is Ready: %v", name, ready)
	h.setNode(n)
}

func (h *history) deleteNode(name string) {
	n := h.nodes[name]
	h.say("%s is deleted", name)
	h.changes++
	delete(h.nodes, name)
	delete(h.out, n.UID)
	h.left = append(h.left, h.now)
	h.met["node deleted"]++
}

// verdict is what the API server answers to an eviction.
type verdict int

const (
	refuses verdict = iota
	// unprocessed is the answer while the disruption controller has not observed the spec.
	unprocessed
	// grants uses one of the evictions that are allowed.
	grants
	// ignores grants an eviction without a PodDisruptionBudget: none selects the pod, or the pod does not run.
	ignores
	// unhealthy grants the eviction of a pod that is not ready, because enough others are.
	unhealthy
)

// ask is the decision of the API server. Source: k8s.io/kubernetes pkg/registry/core/pod/storage/eviction.go.
func (h *history) ask(p *simPod) verdict {
	f, there := h.floors[p.Group]
	switch {
	case !there || !p.running || p.Ended:
		return ignores
	case !p.Ready && (f.open || f.healthy >= f.desired && f.desired > 0):
		return unhealthy
	case !f.Processed:
		return unprocessed
	case f.Allowed > 0:
		return grants
	}
	return refuses
}

// evict asks for the eviction of a pod, and returns true if it is granted, or the pod terminates or does not exist.
func (h *history) evict(name string, uid types.UID, by string) bool {
	p, there := h.pods[name]
	if !there || p.UID != uid || p.Terminating {
		return true
	}
	if slices.ContainsFunc(h.inFlight, func(e eviction) bool { return e.uid == uid && e.by == by }) {
		return false
	}
	v := h.ask(&p)
	if v == refuses || v == unprocessed {
		h.met[map[verdict]string{refuses: "refused", unprocessed: "refused until processed"}[v]]++
		return false
	}
	h.granted(&p, v, by)
	if v == grants {
		f := h.floors[p.Group]
		f.Allowed, f.evictedAt = f.Allowed-1, maps.Clone(f.evictedAt)
		if f.evictedAt == nil {
			f.evictedAt = map[string]time.Time{}
		}
		f.evictedAt[p.Name] = h.now
		h.setFloor(f)
		if !h.calm && h.chance(15) {
			h.say("the API server has not deleted %s yet", p.Name)
			h.met["eviction in flight"]++
			h.inFlight = append(h.inFlight, eviction{p.Name, p.UID, by, h.now})
			return false
		}
	}
	h.deleteEvicted(p)
	return true
}

func (h *history) deleteEvicted(p simPod) {
	p.Terminating, p.killed, p.Evicted = true, true, true
	h.setPod(p)
}

// continueEvictions deletes pods whose evictions were granted before. The API server deletes them by UID only, whatever has happened to them
// meanwhile, unless it crashes before.
func (h *history) continueEvictions() {
	for _, e := range slices.Clone(h.inFlight) {
		if h.calm || h.now.Sub(e.at) > requestFor || h.chance(25) {
			h.continueEviction(e, !h.calm && h.chance(10))
		}
	}
}

func (h *history) continueEviction(e eviction, lost bool) {
	h.inFlight = slices.DeleteFunc(h.inFlight, func(o eviction) bool { return o == e })
	p, there := h.pods[e.pod]
	switch {
	case !there || p.UID != e.uid || p.Terminating:
	case lost:
		h.say("the API server crashes before it deletes %s", e.pod)
		h.met["eviction lost"]++
		if t := h.out[p.Node]; t.by == e.by && t.since.Equal(e.at) {
			delete(h.out, p.Node)
		}
	default:
		h.say("the API server deletes %s, which %s has evicted", e.pod, e.by)
		h.deleteEvicted(p)
	}
}

// controllers are steps of the disruption controller, the kubelets and the garbage collectors.
func (h *history) controllers() {
	for _, name := range sorted(h.pods) {
		if h.calm || h.chance(60) {
			h.kubelet(name)
		}
	}
	for _, group := range sorted(h.floors) {
		f := h.floors[group]
		if !f.queued && !hasExpired(&f, h.now) {
			continue
		}
		if f.waits++; !h.calm && f.waits < 3 && h.chance(40) {
			h.floors[group] = f
			continue
		}
		h.process(f)
	}
	h.collectGarbage()
	for _, name := range sorted(h.nodes) {
		n := h.nodes[name]
		isTainted := slices.ContainsFunc(n.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeUnschedulable })
		if n.Unschedulable && !isTainted && (h.calm || h.chance(60)) {
			n.Taints = append(slices.Clone(n.Taints), corev1.Taint{
				Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule, TimeAdded: new(metav1.NewTime(second(h.now))),
			})
			h.setNode(n)
		}
	}
}

// kubelet is a step of what runs a pod, or of what reports that nothing does.
func (h *history) kubelet(name string) {
	p := h.pods[name]
	n, there := h.nodes[p.on]
	was := p
	switch {
	case !there || n.UID != p.Node && !p.stranger, p.Terminating && n.Ready:
		h.remove(p)
		return
	case p.stranger || p.Terminating || p.Ended:
	case !n.Ready:
		p.Ready = false
	case h.sick[p.on]:
		p.running, p.Ready = true, false
	default:
		p.running, p.Ready = true, true
	}
	if p != was {
		h.setPod(p)
	}
}

// hasExpired reports whether a pod counts again whose eviction was granted.
func hasExpired(f *simFloor, now time.Time) bool {
	for _, at := range f.evictedAt {
		if !now.Before(at.Add(countedFor)) {
			return true
		}
	}
	return false
}

// process is a pass of the disruption controller for a PodDisruptionBudget.
func (h *history) process(f simFloor) {
	was := f
	f.evictedAt = maps.Clone(f.evictedAt)
	maps.DeleteFunc(f.evictedAt, func(name string, at time.Time) bool {
		p, there := h.pods[name]
		return !there || p.Group != f.Group || p.Terminating || !h.now.Before(at.Add(countedFor))
	})
	pods, healthy := h.countHealthy(&f)
	f.waits, f.Processed, f.healthy, f.desired = 0, true, healthy, int(f.MinAvailable)
	f.Allowed = int32(max(0, healthy-f.desired))
	if pods == 0 {
		f.Allowed = 0
	}
	same := was.Processed && was.Allowed == f.Allowed && was.healthy == f.healthy && was.desired == f.desired &&
		maps.Equal(was.evictedAt, f.evictedAt)
	if !same {
		h.setFloor(f)
		f = h.floors[f.Group]
	}
	f.queued = false
	h.floors[f.Group] = f
}

func (f *simFloor) selects(p *simPod) bool { return p.Group == f.Group || p.Group == PlaceholderGroup }

func (h *history) countHealthy(f *simFloor) (pods, healthy int) {
	for _, p := range h.pods {
		if !f.selects(&p) {
			continue
		}
		pods++
		if at, evicted := f.evictedAt[p.Name]; evicted && h.now.Before(at.Add(countedFor)) {
			continue
		}
		if p.Ready && !p.Terminating {
			healthy++
		}
	}
	return pods, healthy
}

// collectGarbage deletes floors whose budgets do not exist any more.
func (h *history) collectGarbage() {
	live := map[types.UID]bool{}
	for _, b := range h.budgets {
		live[b.object.UID] = true
	}
	for _, group := range sorted(h.floors) {
		f := h.floors[group]
		owned := len(f.Owners) == 0
		for _, uid := range f.Owners {
			owned = owned || live[uid]
		}
		if !owned && (h.calm || h.chance(50)) {
			h.say("the garbage collector deletes the floor %s", group)
			h.ownChanges++
			delete(h.floors, group)
		}
	}
}

// trouble is a fault of a node or a pod.
func (h *history) trouble() {
	name := pick(h, h.nodes)
	if name == "" {
		return
	}
	switch h.rng.Intn(8) {
	case 0, 1, 2:
		if h.nodes[name].Ready {
			h.met["not Ready"]++
		}
		h.setReady(name, !h.nodes[name].Ready)
	case 3:
		h.sick[name] = !h.sick[name]
		h.met["unready seat"]++
		h.say("no seat becomes ready on %s: %v", name, h.sick[name])
	case 4:
		h.strangers(name)
	default:
		h.spoil()
	}
}

// strangers makes pods on a node that is compromised, with any labels, or ends them.
func (h *history) strangers(on string) {
	for _, name := range sorted(h.pods) {
		if h.pods[name].stranger && h.chance(60) {
			h.strangerAt = h.now
			h.deletePod(h.pods[name])
			return
		}
	}
	group := pick(h, h.floors)
	if group == "" {
		return
	}
	h.met["stranger"]++
	h.strangerAt = h.now
	if h.serial%4 == 0 {
		group = PlaceholderGroup
		h.met["stranger among the placeholders"]++
	}
	p := simPod{
		on:       on,
		running:  true,
		stranger: true,
		Seat:     Seat{Name: "static-" + h.uid(), Group: group, Ready: true, Created: second(h.now)},
	}
	p.UID = types.UID(p.Name)
	h.say("%s makes %s with the label of %s", on, p.Name, group)
	h.setPod(p)
}

// spoil changes a seat or a PodDisruptionBudget.
func (h *history) spoil() {
	switch p, there := h.pods[pick(h, h.pods)]; h.rng.Intn(5) {
	case 0, 1:
		if there && !p.stranger && !p.Terminating {
			h.met["seat killed"]++
			h.say("a user deletes %s", p.Name)
			p.Terminating = true
			h.setPod(p)
			if t, out := h.out[p.Node]; out {
				t.deleted = true
				h.out[p.Node] = t
			}
		}
	case 2:
		if there && !p.stranger && !p.Terminating {
			h.met["seat failed"]++
			h.say("%s fails", p.Name)
			p.Ended, p.Ready = true, false
			h.setPod(p)
		}
	default:
		h.spoilFloor()
	}
}

func (h *history) spoilFloor() {
	group := pick(h, h.floors)
	if group == "" || h.static {
		return
	}
	h.floorsAt = h.now
	if h.chance(30) {
		h.say("a user deletes the floor %s", group)
		h.met["PodDisruptionBudget deleted"]++
		h.ownChanges++
		delete(h.floors, group)
		return
	}
	h.met["PodDisruptionBudget changed"]++
	f := h.floors[group]
	f.Processed = false
	if h.chance(50) {
		f.MinAvailable = max(0, f.MinAvailable-1)
	} else {
		f.open, f.Drifted = true, true
	}
	h.say("a user changes the floor %s to %d, %v", group, f.MinAvailable, f.open)
	h.setFloor(f)
}

// copied is deep enough: what is in the maps is replaced, never changed.
func (c *cluster) copied() cluster {
	copied := *c
	copied.nodes, copied.pods, copied.floors, copied.budgets = maps.Clone(
		c.nodes,
	), maps.Clone(
		c.pods,
	), maps.Clone(
		c.floors,
	), maps.Clone(
		c.budgets,
	)
	return copied
}
