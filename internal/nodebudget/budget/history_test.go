// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/testing/historytest"
)

// TestRandomHistories plays seeded histories of a cluster in which other tools and NodeJobs take nodes away and everything goes wrong,
// and checks rule 22 (docs/rules.md) after every step: with what the API server would grant at that moment, not only with what a tool
// happens to ask for. When the faults end, all drains and NodeJobs end, and all nodes have their seats. When the budgets are deleted,
// nothing is left.
//
// To see one: go test ./internal/nodebudget/budget -run TestRandomHistories -seed N -v
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
		"granted", "refused", "refused until processed", "granted without counting", "pending seat evicted", "drain given up",
		"drained", "node deleted", "joined", "not Ready", "relabeled", "unready seat", "seat killed", "seat failed", "stranger", "stranger among the placeholders", "placeholder created", "placeholder deleted",
		"PodDisruptionBudget deleted", "PodDisruptionBudget changed", "NodeJob claimed", "NodeJob claimed a young node",
		"NodeJob refused", "NodeJob took an unavailable node", "NodeJob done", "manager crashed", "manager frozen",
		"manager resumed", "new manager", "conflict", "name taken", "claim lost", "not available any more", "budget created",
		"budget changed", "budget deleted", "budget expired", "frozen", "frozen in part", "one group", "static", "seat returned",
		"seat moved", "seat tolerates", "seat joined", "first seat joined", "window closed", "NodeJob outside of a window", "pace", "held by the pace", "seat ended by its node", "seat evicted by its node", "relabeled in vain", "synced", "at the limit", "seat deleted", "seat ended at once", "eviction in flight", "eviction lost", "recovered before its seat was deleted",
		"pending seat deleted", "late view", "clock skew", "requirement met", "requirement not met", "requirement not checked", "requirement checked too long ago",
	} {
		if met[what] == 0 {
			t.Errorf("no history reaches: %s", what)
		}
	}
	t.Log(met)
}

// Shorter than in a cluster, so that a history has many of them.
const joiningFor, settleFor = 60 * time.Second, 10 * time.Second

// cluster is the state of the API. A cache is an old copy of it.
type cluster struct {
	nodes   map[string]Node
	pods    map[string]simPod
	floors  map[string]simFloor
	budgets map[string]*simBudget // replaced, never changed
	// placeholders are replaced, never changed.
	placeholders []Placeholder
}

// history is a cluster, its manager, and all that takes nodes away.
type history struct {
	rng    *rand.Rand
	tell   bool // formatting takes longer than the history
	now    time.Time
	serial int
	cluster
	// changes count the changes of nodes and budgets, and those of pods and floors.
	changes, ownChanges int
	manager             *manager
	// asleep are writes of a manager that was frozen before it made them.
	asleep []func(late bool)
	// passes counts those of all managers. A write of a frozen one is late if there was another pass since.
	passes int
	tools  []*tool
	jobs   []*job
	// inFlight are evictions whose pods are not deleted yet.
	inFlight []eviction
	// sick are nodes on which no seat becomes ready.
	sick map[string]bool
	// hostile is the name of a node that is compromised; "" if none is.
	hostile string
	// static is true if budgets and labels do not change, and oneGroup if all nodes are subject to the same limits.
	static, oneGroup bool
	// skew is the most by which the clock of a manager differs from that of the API server, in either direction. What depends on times is
	// as exact as that; limits do not depend on it.
	skew time.Duration
	// requirement is what a check of a requirement returns now, and answersChanges counts the checks of which the manager learns.
	requirement    v1alpha1.RequirementState
	answersChanges int
	oracle
}

// newHistory is a history in which nothing has happened.
func newHistory(rng *rand.Rand, tell bool) *history {
	h := &history{
		rng:         rng,
		tell:        tell,
		now:         time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		sick:        map[string]bool{},
		requirement: v1alpha1.RequirementMet,
		cluster: cluster{
			nodes: map[string]Node{}, pods: map[string]simPod{}, floors: map[string]simFloor{}, budgets: map[string]*simBudget{},
		},
	}
	h.oracle = oracle{
		met:       map[string]int{},
		out:       map[types.UID]taken{},
		touchedAt: map[types.UID]time.Time{},
		factsAt:   map[types.UID]time.Time{},
		brokenAt:  map[types.UID]time.Time{},
		changedAt: map[string]time.Time{},
		paces:     newPaces(),
		shown:     map[types.UID]shown{},
		newcomers: map[types.UID]bool{},
		gaveUpAt:  map[types.UID]time.Time{},
		asked:     map[string]asked{},
	}
	return h
}

func play(s int64, tell bool) *history {
	h := newHistory(rand.New(rand.NewSource(s)), tell)
	if h.chance(35) {
		h.hostile = "nu1"
	}
	h.skew = []time.Duration{0, 3 * time.Second, 20 * time.Second}[h.rng.Intn(3)]
	h.begin()
	if h.chance(70) {
		h.seatAll()
	}
	for range 90 + h.rng.Intn(90) {
		h.now = h.now.Add(time.Duration(h.rng.Intn(6000)) * time.Millisecond)
		h.step()
		h.check()
		if h.broken != "" {
			return h
		}
	}
	h.settle()
	return h
}

func (h *history) begin() {
	h.static, h.oneGroup = h.chance(40), h.chance(40)
	for range 2 + h.rng.Intn(5) {
		age := 10 * time.Hour
		if h.chance(20) {
			age = time.Duration(h.rng.Intn(100)) * time.Second
		}
		h.addNode(age)
	}
	for i := range 1 + h.rng.Intn(3) {
		h.addBudget(fmt.Sprint("b", i))
	}
	h.tools = []*tool{{name: "tool-1"}, {name: "tool-2", karpenter: true}, {name: "tool-3"}}
	h.jobs = []*job{{name: "job-1"}, {name: "job-2"}}
	h.manager = h.newManager()
	h.catchUp()
	h.synced, h.startedAt = h.now, h.now
	if h.static {
		h.met["static"]++
	}
	if h.oneGroup {
		h.met["one group"]++
	}
}

// seatAll gives all nodes their seats before anything happens.
func (h *history) seatAll() {
	h.calm = true
	h.rounds(6, func() bool { return false })
	h.calm = false
}

// step causes one event.
func (h *history) step() {
	if h.chance(15) {
		h.askAll(0)
	}
	if h.chance(6) {
		h.weather()
	}
	if h.manager == nil && h.chance(20) {
		h.wakeUp()
		return
	}
	if h.hostile != "" && h.chance(15) {
		h.hostileStep()
	}
	h.continueEvictions()
	switch n := h.rng.Intn(100); {
	case n < 36:
		if h.chance(70) {
			h.catchUp()
		}
		h.pass()
	case n < 64:
		h.act()
	case n < 80:
		h.controllers()
	case n < 83:
		h.catchUp()
	case n < 88:
		h.wakeUp()
	case n < 90:
		h.crash()
	case n < 95:
		h.trouble()
	default:
		h.users()
	}
}

// act is a step of something that takes nodes away.
func (h *history) act() {
	if n := h.rng.Intn(len(h.tools) + 2*len(h.jobs)); n < len(h.tools) {
		h.toolStep(h.tools[n])
	} else {
		h.jobStep(h.jobs[n%len(h.jobs)])
	}
}

func (h *history) chance(percent int) bool { return h.rng.Intn(100) < percent }

func (h *history) say(format string, args ...any) {
	if h.tell {
		h.lines = append(h.lines, h.now.Format("04:05.000 ")+fmt.Sprintf(format, args...))
	}
}

func (h *history) uid() string { h.serial++; return fmt.Sprint("u", h.serial) }

// second is a time as the API stores it.
func second(t time.Time) time.Time { return t.Truncate(time.Second) }

func sorted[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

func pick[V any](h *history, m map[string]V) string {
	keys := sorted(m)
	if len(keys) == 0 {
		return ""
	}
	return keys[h.rng.Intn(len(keys))]
}

// budgetObjects are the budgets in the order of their names.
func (c *cluster) budgetObjects() []*v1alpha1.NodeDisruptionBudget {
	var all []*v1alpha1.NodeDisruptionBudget
	for _, name := range sorted(c.budgets) {
		all = append(all, c.budgets[name].object)
	}
	return all
}
