// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"hash/maphash"
	"math/rand"
	"reflect"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/testing/explore"
)

// TestExplore visits all states of small worlds, with the rules of the random histories after each step. From each state, the faults end,
// and the world must come to rest as a history must at its end, although the manager plans only when something wakes it.
//
// To explore one further: make explore WORLDS='^TestExplore/^canary$$' FAULTS=2
func TestExplore(t *testing.T) {
	for i := range smallWorlds {
		world := &smallWorlds[i]
		explore.Run(t, world.name, func(nodes int) (*explored, explore.Model[explored]) {
			return newExplored(world, max(nodes, world.nodes)), explore.Model[explored]{
				Steps:  (*explored).steps,
				Clone:  func(w *explored) *explored { return explore.Clone(copies, w) },
				Canon:  (*explored).canon,
				Broken: func(w *explored) string { return w.broken },
				Settle: (*explored).rests,
				Told:   (*explored).tell,
			}
		})
	}
}

// explored is a state of a small world.
type explored struct {
	history
	world  *smallWorld
	throws *explore.Dice
	*settled
	// planned is true if nothing has happened since the last pass, and quiet if that pass has changed nothing.
	planned, quiet bool
	// retried and revised are what the user has done, who does each once or twice.
	retried, revised int
	// size is how many nodes there are, besides those that are deleted.
	size int
}

var copies = explore.NewCloner(
	(*smallWorld)(nil),
	(*explore.Dice)(nil),
	(*settled)(nil),
	(*rand.Rand)(nil),
	(*corev1.Pod)(nil),
	(*record.Record)(nil),
	(*v1alpha1.NodeJobStatus)(
		nil,
	),
	v1alpha1.NodeJobSpec{},
	v1alpha1.NodeJobStatus{},
	metav1.ObjectMeta{},
	Node{},
	Pod{},
	DrainPod{},
	Plan{},
	Input{},
	[]string(nil),
)

// forms leaves out what only stories show, what each pass sets, and what only grows.
var forms = explore.Canon{
	Skip: []string{
		"history.lines",
		"history.uid",
		"history.last",
		"around.seen",
		"pause.rest",
		"pause.wakeAt",
		"pause.ignored",
		"pause.raced",
		"drifting.asked",
		"clocks.told",
		"truth.recordedResults",
		"simPod.raw",
		"explored.world",
		"explored.throws",
		"explored.settled",
		"Message",
		"StatusMessage",
		"Generation",
		"ObservedGeneration",
	},
	IDs: []string{"node-", "boot-", "machine-", "pod-", "web-", "forged-", ""},
	Old: 1300 * time.Second,
}

func newExplored(world *smallWorld, nodes int) *explored {
	w := &explored{history: *newHistory(-1), world: world, size: nodes, settled: &settled{maphash.MakeSeed(), map[uint64]bool{}}}
	h := &w.history
	w.throws, h.rng = explore.NewDice()
	h.more, h.plain, h.dice = h.rng, world.plain, h.rng
	h.gap, h.namespaces, h.tenant = gap{odds: h.rng}, namespaces{}, tenant{key: h.key, forged: h.forged}
	h.budgeter, h.faults, h.checkAnswers = budgeter{}, false, checkAnswers{questions: h.rng, mayRun: map[string]bool{}}
	h.job = h.someJob()
	h.someInputs(-1)
	h.someDrift(-1)
	h.random, h.luck = h.rng, h.rng
	h.job.Spec = world.job()
	h.deadlineMore()
	if world.begin != nil {
		world.begin(h)
	}
	h.beginRevision()
	for i := range nodes {
		w.join("n" + string(rune('0'+i)))
	}
	h.catchUp()
	return w
}

func (w *explored) join(name string) {
	stage := -1
	if slices.Contains(w.world.staged, name) {
		stage = 0
	}
	w.throws.Show(0, stage)
	w.addNode(name)
	w.throws.Show()
	node := w.nodes[name]
	if delete(w.workloads, node.UID); w.job.Spec.Maintenance.Drain != nil {
		w.workloads[node.UID] = []DrainPod{{Namespace: "web", Name: "web", UID: w.nextUID("web")}}
	}
}

func (w *explored) tell() []string {
	lines := w.lines
	w.lines = nil
	return lines
}

// canon is the canonical form of a state.
func (w *explored) canon() []byte {
	view := explore.View{Now: w.now, Alias: map[string]string{}, Live: map[string]bool{}}
	exists := func(n *Node) {
		view.Live[string(n.UID)], view.Live[n.BootID], view.Live[n.MachineID] = true, true, true
	}
	for _, n := range w.nodes {
		exists(n)
	}
	for _, n := range w.cache.nodes {
		exists(&n)
	}
	for name, p := range w.pods {
		view.Live[string(p.UID)], view.Alias[name] = true, p.NodeName+"."+string(p.Runs)+"/"+string(p.UID)
	}
	for name, p := range w.cache.pods {
		view.Live[string(p.UID)], view.Alias[name] = true, p.NodeName+"."+string(p.Runs)+"/"+string(p.UID)
	}
	var wake time.Time
	if w.planned {
		wake = w.last.WakeAt
	}
	var inPeriod time.Duration // of windows: what happens next depends on the time of day
	if w.every > 0 {
		inPeriod = w.now.Sub(w.now.Truncate(w.every))
	}
	return forms.Bytes(view, w, wake, len(w.last.DrainPodRequests), inPeriod)
}

// settled are the states from which worlds are known to come to rest.
type settled struct {
	seed  maphash.Seed
	known map[uint64]bool
}

// knownEnd is thrown where a world is in such a state.
type knownEnd struct{}

// rests plays the world to its end, as the end of a history. But the manager plans only when something has changed, or when its last plan
// has said.
func (w *explored) rests() (broken string) {
	var path []uint64
	defer func() {
		if r := recover(); r != nil {
			if _, known := r.(knownEnd); !known {
				panic(r)
			}
		}
		for _, at := range path {
			w.known[at] = broken == ""
		}
	}()
	var last mark
	var before string
	w.later = func(awaited string) {
		at := maphash.Bytes(w.seed, append(w.canon(), awaited...))
		if w.known[at] {
			panic(knownEnd{})
		}
		path = append(path, at)
		is := w.marked()
		if awaited != before { // and a pass shows whether it is there
			last, before = mark{}, awaited
		}
		switch {
		case w.badNode() != nil: // it wakes the manager again and again
			w.now = w.now.Add(5 * time.Second)
		case w.moves() || len(w.last.Actions) > 0 || !reflect.DeepEqual(last, is):
		case w.last.WakeAt.IsZero():
			w.break_("wake-ups", "%s never, and nothing wakes the manager: %s", awaited, w.unfinished())
		case w.last.WakeAt.After(w.now):
			w.now = w.last.WakeAt
		}
		last = is
	}
	w.throws.Show()
	if !w.gone {
		w.settle()
	}
	if w.broken == "" && w.gone {
		w.afterwards()
	}
	return w.broken
}

// mark tells whether a world has changed.
type mark struct {
	serial, without int
	status          v1alpha1.NodeJobStatus
}

func (h *history) marked() mark { return mark{h.uid, len(h.without), h.job.Status} }

// plan is a pass of the manager, and notes whether it has changed anything.
func (w *explored) plan() {
	before := w.marked()
	w.pass()
	w.planned, w.quiet = true, len(w.last.Actions) == 0 && reflect.DeepEqual(before, w.marked())
}

// moves reports whether a kubelet has something to do.
func (h *history) moves() bool {
	return slices.ContainsFunc(h.podNames(), func(name string) bool {
		pod := h.pods[name]
		node := h.nodes[pod.NodeName]
		return node == nil || !silent(node) && !over(&pod.Pod)
	})
}
