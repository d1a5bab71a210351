// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"fmt"
	"maps"
	"math/rand"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/kube"
	"github.com/everynode/everynode/internal/testing/historytest"
)

// TestRandomHistories plays seeded histories of a cluster in which two tools drain nodes and everything goes wrong, and
// checks the rules (docs/rules.md) after every step. When the faults end, every node with a release request is
// released, or held for a reason that says what is missing. After that is fixed, all drains end.
//
// To see one: go test ./internal/nodeguard/guard -run TestRandomHistories -seed N -v
func TestRandomHistories(t *testing.T) {
	historytest.Run(t, nil, nil, func(seed int64, told bool) (broken, story string) {
		h := play(seed, told)
		return h.broken, strings.Join(h.lines, "\n")
	})
}

// TestHistoriesReachAllSituations checks that the histories reach all situations for which there are rules.
func TestHistoriesReachAllSituations(t *testing.T) {
	met := map[string]int{}
	for s := int64(1); s <= 300; s++ {
		for what, n := range play(s, false).met {
			met[what] += n
		}
	}
	for _, what := range []string{
		"seat evicted", "seat refused", "seat joins a cordoned node", "release ends because the seat is back", v1alpha1.ReasonWaitingForBudget,
		"released", "available again", "node deleted", "evicted", "companion deleted for a release", "release ended before its companion was deleted", "created too late", "lowered too late", "refused", "break-glass", "deadline", "check succeeded", "check failed", "approved", "stale write", "conflict",
		"manager crashed", "manager frozen", "manager resumed", "drained", "companion replaced", "unhealthy node released", "guard deleted", "two guards on one node", "three guards on one node", "released by two guards", "drained while another is unready",
		"stranger", "stranger under a held node's labels", "name taken", "another name", "companion rejected", "check rejected", "companion created after a rejection",
		"check never ends", "pod never ends", "break-glass of the compromised node", "guard with a finalizer", "guard added", "namespace not allowed", "released in a namespace that is not allowed", "skewed check",
		"forged: a release", "forged: a break-glass release", "forged: a node that returns", "forged: nothing", "forged: an earlier status", "forged: a status of another NodeGuard", "status lost",
		"forged companion", "forged check", "forged budget", "pod changed", "guard in a namespace that was never allowed",
		v1alpha1.ReasonMaxUnavailableReached, v1alpha1.ReasonWaitingForOtherRelease, v1alpha1.ReasonHeldByOtherGuard, v1alpha1.ReasonReleasesDisabled, v1alpha1.ReasonCheckFailed,
		v1alpha1.ReasonAwaitingApproval, v1alpha1.ReasonOverlappingBudget, v1alpha1.ReasonWaitingForTurn,
	} {
		if met[what] == 0 {
			t.Errorf("no history reaches: %s", what)
		}
	}
	t.Log(met)
}

// cluster is the state of the API. A cache is an old copy of parts of it.
type cluster struct {
	nodes   map[string]kube.Node
	targets map[string]map[string]TargetPod // of each DaemonSet, by node
	missing map[string]bool                 // DaemonSets that do not exist
	pods    map[string]simPod
	budgets map[string]simBudget
	guards  map[string]*v1alpha1.NodeGuard
	barred  map[string]bool // NodeGuards whose namespace is not allowed
	limited map[string]bool // NodeGuards whose namespace is limited to the nodes of team a
	foreign bool            // a budget that Everynode did not create selects the companions
	seats   map[string]simSeat
}

type simPod struct {
	Pod
	guard, role string
	// forged pods have the labels of ours and the owner of ours, and the manager has not created them, or not like that.
	forged bool
	// claims, of a stranger, is the node whose companion's labels it has; "" if it has none.
	claims string
	// began and finished, of a check, are by the clock of its node.
	began, finished time.Time
}

type simBudget struct {
	Budget
	guard string
	// desired and allowed are what the disruption controller has calculated with Healthy.
	desired, allowed int32
	// loose is true if another client has changed it, or it counts pods that Everynode has not created.
	loose bool
}

// history is a cluster, its managers and the tools that drain its nodes.
type history struct {
	rng    *rand.Rand
	tell   bool // formatting takes longer than the history
	now    time.Time
	serial int
	cluster
	// cache is what the manager observes, each kind as of some time.
	cache cluster
	// asleep are writes of a manager that was frozen before it made them.
	asleep []func()
	// decisions counts those that were made, one after another, and passes all passes.
	decisions, passes int
	tools             []*tool
	disruption        disruption
	gate              map[string]bool // the result of a check on the node
	// clocks are the offsets of the clocks of nodes.
	clocks map[string]time.Duration
	// refuses are the nodes whose pods the API server rejects.
	refuses map[string]bool
	// memory is what the manager remembers of its own writes.
	memory map[string]*memory
	// prompt is true if each pass writes a status that has changed. Otherwise, half of them do.
	prompt bool
	// names are those of all earlier pods: every client that may list pods knows them.
	names map[string]bool
	// evil is the compromised node, while it exists; stubborn is true if it ends no pods.
	evil     string
	stubborn bool
	// limits decides when administrators limit namespaces to nodes; nil in most histories.
	limits *rand.Rand
	// hostile is a user with all rights in namespaces; nil in most histories.
	hostile *hostile
	oracle
}

// newHistory is a history in which nothing has happened.
func newHistory(rng *rand.Rand, tell bool) *history {
	h := &history{rng: rng, tell: tell, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), gate: map[string]bool{},
		clocks: map[string]time.Duration{}, refuses: map[string]bool{}, memory: map[string]*memory{}, names: map[string]bool{}}
	h.oracle = oracle{
		met:           map[string]int{},
		asked:         map[string]int{},
		lets:          map[string]bool{},
		unready:       map[string]bool{},
		unguardedOnce: map[string]bool{},
		wasTaken:      map[string]bool{},
	}
	return h
}

func play(s int64, tell bool) *history {
	h := newHistory(rand.New(rand.NewSource(s)), tell)
	if limits := rand.New(rand.NewSource(s + 1<<43)); limits.Intn(4) == 0 {
		h.limits = limits
	}
	h.begin()
	h.addHostile(s)
	steps := 150 + h.rng.Intn(250)
	for i := 0; i < steps && h.broken == ""; i++ {
		h.now = h.now.Add(time.Duration(h.rng.Intn(8000)) * time.Millisecond)
		h.step()
		h.limitNamespace()
		h.attack()
		h.check()
	}
	if h.broken == "" {
		h.settle()
	}
	return h
}

func (h *history) chance(percent int) bool { return h.rng.Intn(100) < percent }

func (h *history) say(format string, args ...any) {
	if !h.tell {
		return
	}
	h.lines = append(h.lines, h.now.Format("04:05.000 ")+fmt.Sprintf(format, args...))
}

func (h *history) uid() string { h.serial++; return fmt.Sprint("u", h.serial) }

func pick[K ~string, V any](h *history, m map[K]V) K {
	keys := slices.Sorted(maps.Keys(m))
	if len(keys) == 0 {
		return ""
	}
	return keys[h.rng.Intn(len(keys))]
}

func (h *history) begin() {
	h.cluster = newCluster()
	for i := range 2 + h.rng.Intn(5) {
		h.addNode(fmt.Sprint("n", i))
	}
	h.addGuard("g1", "a")
	if h.chance(60) {
		h.addGuard("g2", []string{"a", "b"}[h.rng.Intn(2)])
		if h.chance(40) {
			h.addGuard("g3", []string{"a", "b"}[h.rng.Intn(2)])
		}
	}
	h.addTenant()
	h.addDisruptionBudget()
	h.tools = []*tool{{name: "tool-1"}, {name: "tool-2"}}
	if h.chance(50) {
		h.evil = pick(h, h.nodes)
		h.stubborn = h.chance(30)
	}
	h.catchUp()
}

func newCluster() cluster {
	return cluster{
		nodes:   map[string]kube.Node{},
		targets: map[string]map[string]TargetPod{"a": {}, "b": {}},
		missing: map[string]bool{},
		barred:  map[string]bool{},
		limited: map[string]bool{},
		pods:    map[string]simPod{},
		budgets: map[string]simBudget{},
		guards:  map[string]*v1alpha1.NodeGuard{},
		seats:   map[string]simSeat{},
	}
}

func (h *history) addNode(name string) {
	h.nodes[name] = kube.Node{
		Name:            name,
		UID:             types.UID(h.uid()),
		ResourceVersion: h.uid(),
		Ready:           true,
		Labels:          map[string]string{"storage": "yes", "team": "a"},
	}
	if h.limits != nil && h.limits.Intn(3) == 0 {
		h.nodes[name].Labels["team"] = "b"
	}
	h.gate[name] = h.chance(70)
	h.clocks[name] = []time.Duration{0, 0, 2 * time.Hour, -3 * time.Hour, 40 * time.Second}[h.rng.Intn(5)]
}

func (h *history) addGuard(name, target string) {
	g := &v1alpha1.NodeGuard{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(h.uid()), ResourceVersion: h.uid(), Generation: 1},
	}
	g.Spec.Target.DaemonSet = target
	h.respec(g)
	h.guards[name] = g
	h.keepClosed()
}

// respec is a user who changes the spec.
func (h *history) respec(g *v1alpha1.NodeGuard) {
	spec := &g.Spec
	spec.MaxUnavailable = []*intstr.IntOrString{nil, new(intstr.FromInt32(1)), new(intstr.FromInt32(1)), new(intstr.FromInt32(2)), new(intstr.FromString("50%")), new(intstr.FromInt32(0))}[h.rng.Intn(6)]
	spec.Release = v1alpha1.ReleaseSpec{}
	conditions := h.rng.Intn(5)
	if conditions == 0 || conditions == 1 {
		spec.Release.Approval = v1alpha1.ApprovalRequired
	}
	if conditions == 1 || conditions == 2 {
		spec.Release.Check = &v1alpha1.ReleaseCheck{Script: "true", PeriodSeconds: new(int32(5 + h.rng.Intn(40)))}
	}
	if h.chance(25) {
		spec.Release.DeadlineSeconds = new(int32(30 + h.rng.Intn(120)))
		spec.Release.OnDeadline = []v1alpha1.DeadlineAction{v1alpha1.OnDeadlineRelease, v1alpha1.OnDeadlineHold}[h.rng.Intn(2)]
	}
	g.Generation++
	g.Labels = map[string]string{"revision": fmt.Sprint("r", h.rng.Intn(3))}
}

// copied is deep enough: what is in the maps is replaced, never changed.
func (c *cluster) copied() cluster {
	d := *c
	d.nodes, d.pods, d.budgets, d.guards, d.missing = maps.Clone(
		c.nodes,
	), maps.Clone(
		c.pods,
	), maps.Clone(
		c.budgets,
	), maps.Clone(
		c.guards,
	), maps.Clone(
		c.missing,
	)
	d.seats = maps.Clone(c.seats)
	d.barred, d.limited, d.targets = maps.Clone(c.barred), maps.Clone(c.limited), map[string]map[string]TargetPod{}
	for name, pods := range c.targets {
		d.targets[name] = maps.Clone(pods)
	}
	return d
}

func (h *history) catchUp() {
	if h.calm { // it does so before each pass
		h.cache = h.cluster
		return
	}
	h.cache = h.copied()
}

// catchUpWith updates one kind: watches are independent of each other.
func (h *history) catchUpWith() {
	c := h.copied()
	switch h.rng.Intn(6) {
	case 0:
		h.cache.nodes = c.nodes
	case 1:
		h.cache.pods = c.pods
	case 2:
		h.cache.budgets = c.budgets
	case 3:
		h.cache.guards, h.cache.barred, h.cache.limited = c.guards, c.barred, c.limited
	case 4:
		h.cache.targets, h.cache.missing, h.cache.foreign = c.targets, c.missing, c.foreign
	case 5:
		h.cache.seats = c.seats
	}
}

var (
	template        = &corev1.PodSpec{NodeSelector: map[string]string{"storage": "yes"}}
	companionLabels = labels.Set{"companion": "yes"}
)

// sight is what the manager observes of a cluster. All NodeGuards share it, because sorting takes longer than planning.
type sight struct {
	*cluster
	live   bool
	nodes  []kube.Node
	guards []*v1alpha1.NodeGuard
	seated map[types.UID]bool
	// parts are the pods and budgets of each NodeGuard, by its name.
	parts map[string]*Input
}

func (h *history) look(c *cluster, live bool) *sight {
	s := &sight{
		cluster: c,
		live:    live,
		seated:  c.seated(),
		nodes:   make([]kube.Node, 0, len(c.nodes)),
		guards:  make([]*v1alpha1.NodeGuard, 0, len(c.guards)),
		parts:   make(map[string]*Input, len(c.guards)),
	}
	for _, name := range sorted(c.nodes) {
		s.nodes = append(s.nodes, c.nodes[name])
	}
	for _, name := range sorted(c.guards) {
		s.guards = append(s.guards, h.opened(c.guards[name]))
	}
	for _, name := range sorted(c.pods) {
		p := c.pods[name]
		in := s.part(p.guard)
		switch {
		case p.isStranger():
			in.ForeignPods = append(in.ForeignPods, Stranger{p.Name, p.Node})
		case p.forged, p.role == "stranger":
		case p.role == "placeholder":
			in.Placeholders = append(in.Placeholders, p.Pod)
		case p.role == "check":
			in.Checks = append(in.Checks, p.timed())
		default:
			in.Companions = append(in.Companions, p.Pod)
		}
	}
	for _, name := range sorted(c.budgets) {
		b := c.budgets[name]
		in := s.part(b.guard)
		in.Budgets = append(in.Budgets, b.Budget)
	}
	return s
}

func (s *sight) part(guard string) *Input {
	in := s.parts[guard]
	if in == nil {
		in = &Input{Companions: make([]Pod, 0, len(s.nodes))}
		s.parts[guard] = in
	}
	return in
}

// view is the input of the plan from a cluster.
func (h *history) view(c *cluster, name string, live bool) (Input, bool) {
	if c.guards[name] == nil {
		return Input{}, false
	}
	s := h.look(c, live)
	in := h.viewOne(s, name)
	asking, breaksGlass := RequestingNodes(in)
	if breaksGlass {
		in.PeersUnknown = true
		return in, true
	}
	for i := range in.Peers {
		peer := &in.Peers[i]
		companions := s.part(peer.Guard.Name).Companions
		if CanGuard(peer, asking, func(node string) bool {
			return slices.ContainsFunc(companions, func(c Pod) bool { return c.Node == node })
		}) {
			peer.Stances = Stances(h.viewOne(s, peer.Guard.Name))
		}
	}
	return in, true
}

// viewOne asks no other NodeGuard.
func (h *history) viewOne(s *sight, name string) Input {
	in := *s.part(name)
	in.Guard = s.guards[slices.IndexFunc(s.guards, func(g *v1alpha1.NodeGuard) bool { return g.Name == name })]
	in.Live, in.Now, in.Revision, in.Labels, in.Nodes, in.Seats = s.live, h.now, in.Guard.Labels["revision"], companionLabels, s.nodes, s.seated
	h.remembered(&in)
	if s.barred[name] {
		in.NotAllowed = hold.NamespaceNotAllowed("ns")
	}
	if s.limited[name] {
		in.AllowedNodes = labels.SelectorFromSet(labels.Set{"team": "a"})
	}
	ds := in.Guard.Spec.Target.DaemonSet
	in.Target = Target{Name: "DaemonSet " + ds, Missing: s.missing[ds], Template: template, Pods: make([]TargetPod, 0, len(s.targets[ds]))}
	for _, node := range sorted(s.targets[ds]) {
		in.Target.Pods = append(in.Target.Pods, s.targets[ds][node])
	}
	if s.foreign {
		in.Foreign = []kube.ForeignBudget{{Name: "theirs", Selector: labels.Everything()}}
	}
	in.Peers = PeersOf(in.Guard, s.guards, func(o *v1alpha1.NodeGuard) bool { return !s.barred[o.Name] })
	return in
}
