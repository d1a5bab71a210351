// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package explore plays all histories of a small world: the planners are pure functions, so with a bound on faults the states that a
// world can reach are finite. Only tests import it.
//
// The worlds are those of the random histories, with the same rules after each step. In a random history, dice decide what happens next.
// Here each thing that can happen is a Step, and dice that a step throws anyway show what the step says (see Dice). So there is one
// simulation and one oracle for both.
//
// A state is a copy of the simulation (see Cloner). States from which the same can happen are the same (see Canon). The search goes by
// the number of faults first, and then by the number of steps, so that the history to a broken rule has as few of both as possible.
package explore

import (
	"fmt"
	"hash/maphash"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Step is one thing that can happen in a state.
type Step[S any] struct {
	Name string
	// Faults is how many of the faults of the exploration it uses up. Steps without faults can happen any number of times.
	Faults int
	// Last is true for a step that uses up one more fault if another one without faults leads elsewhere: time that passes while something
	// else could happen is late.
	Last bool
	Do   func(*S)
}

// Model is how a simulation is explored.
type Model[S any] struct {
	// Steps are those of a state with at most so many faults, always in the same order.
	Steps func(s *S, faults int) []Step[S]
	Clone func(*S) *S
	// Canon is the canonical form of a state.
	Canon func(*S) []byte
	// Broken is the rule that was broken in the last step; "" if none was.
	Broken func(*S) string
	// Settle plays a state to its end without further faults, and returns the rule that this breaks; "" if it comes to rest.
	Settle func(*S) string
	// Told are the lines that the simulation has written since it was asked.
	Told func(*S) []string
}

// Bounds end an exploration.
type Bounds struct {
	Faults, States, Violations int
	For                        time.Duration
	// Memory is the size of the heap in bytes.
	Memory uint64
}

// Result is what an exploration has found.
type Result struct {
	States, Edges, Depth int
	// Cut is the bound that has ended it; "" if all states were visited.
	Cut        string
	Took       time.Duration
	Memory     uint64
	Violations []Violation
}

// Violation is a broken rule with the shortest history to it.
type Violation struct{ Rule, Story string }

func (r *Result) String() string {
	whole := "complete"
	if r.Cut != "" {
		whole = "cut: " + r.Cut
	}
	return fmt.Sprintf("%d states, %d edges, depth %d, %s, %d MiB, %s",
		r.States, r.Edges, r.Depth, r.Took.Round(10*time.Millisecond), r.Memory>>20, whole)
}

// mostKept is how many copies of states wait to be visited. The others are played again, which needs no memory.
const mostKept = 5000

// arrival is how a state was reached first.
type arrival struct {
	from  int32
	step  int16
	depth int16
	// faults are those used up until then.
	faults int8
}

// waiting is a state that is not visited yet. Without its copy, it is played again.
type waiting[S any] struct {
	at    int32
	state *S
}

type explorer[S any] struct {
	Model[S]
	bounds Bounds
	result Result
	first  *S
	seed   maphash.Seed
	known  map[uint64]struct{}
	came   []arrival
	// queues are by the number of faults.
	queues [][]waiting[S]
	kept   int
	began  time.Time
}

// Explore visits all states that can be reached from the first one.
func Explore[S any](first *S, m Model[S], b Bounds) Result {
	e := &explorer[S]{
		Model: m, bounds: b, first: m.Clone(first), seed: maphash.MakeSeed(), known: map[uint64]struct{}{},
		queues: make([][]waiting[S], b.Faults+1), began: time.Now(),
	}
	e.came = append(e.came, arrival{from: -1})
	e.known[e.hash(first)] = struct{}{}
	e.queues[0] = append(e.queues[0], waiting[S]{0, first})
	for faults := range e.queues {
		for len(e.queues[faults]) > 0 && e.result.Cut == "" {
			next := e.queues[faults][0]
			e.queues[faults] = e.queues[faults][1:]
			if next.state == nil {
				next.state = e.replay(next.at, func(_ int, _ *Step[S], s *S) { e.Told(s) })
			} else {
				e.kept--
			}
			e.visit(next, faults)
			e.bound()
		}
	}
	e.result.States, e.result.Took = len(e.came), time.Since(e.began)
	e.measure()
	return e.result
}

// bound ends the exploration at the first of its bounds.
func (e *explorer[S]) bound() {
	left := 0
	for _, q := range e.queues {
		left += len(q)
	}
	if e.result.Edges%64 == 0 {
		e.measure()
	}
	what := e.reached()
	if what != "" && (left > 0 || len(e.result.Violations) > 0) {
		e.result.Cut = fmt.Sprintf("%s, %d states are not visited", what, left)
	}
}

func (e *explorer[S]) reached() string {
	b := &e.bounds
	switch {
	case len(e.result.Violations) >= max(1, b.Violations):
		return "violations"
	case b.States > 0 && len(e.came) >= b.States:
		return "states"
	case b.For > 0 && time.Since(e.began) > b.For:
		return "time"
	case b.Memory > 0 && e.result.Memory > b.Memory:
		return "memory"
	}
	return ""
}

func (e *explorer[S]) measure() {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	e.result.Memory = max(e.result.Memory, m.HeapInuse)
}

func (e *explorer[S]) hash(s *S) uint64 { return maphash.Bytes(e.seed, e.Canon(s)) }

// visit makes all steps from a state.
func (e *explorer[S]) visit(now waiting[S], faults int) {
	end := e.Clone(now.state)
	if rule := e.Settle(end); rule != "" {
		e.violation(rule, now.at, append([]string{"-- from here without faults --"}, e.Told(end)...))
		return
	}
	steps := e.Steps(now.state, e.bounds.Faults-faults)
	here, moves := e.hash(now.state), false
	for _, last := range []bool{false, true} {
		for i := range steps {
			if step := &steps[i]; step.Last == last {
				then := faults + step.Faults
				if last && moves {
					then++
				}
				moves = e.step(now, i, step, then, here) && step.Faults == 0 || moves
			}
		}
	}
}

// step makes a step from a state, and reports whether it leads elsewhere. A step with too many faults is not made.
func (e *explorer[S]) step(now waiting[S], i int, step *Step[S], then int, here uint64) bool {
	if then > e.bounds.Faults {
		return false
	}
	next := e.Clone(now.state)
	step.Do(next)
	e.result.Edges++
	rule, there := e.Broken(next), e.hash(next)
	if _, known := e.known[there]; rule == "" && known {
		return there != here
	}
	e.known[there] = struct{}{}
	at, from := int32(len(e.came)), e.came[now.at]                                 //nolint:gosec // there is memory for fewer
	e.came = append(e.came, arrival{now.at, int16(i), from.depth + 1, int8(then)}) //nolint:gosec // there are few
	e.result.Depth = max(e.result.Depth, int(from.depth)+1)
	if rule != "" {
		e.violation(rule, at, nil)
		return true
	}
	e.Told(next)
	item := waiting[S]{at: at}
	if e.kept < mostKept {
		item.state = next
		e.kept++
	}
	e.queues[then] = append(e.queues[then], item)
	return true
}

// path are the arrivals on the way to a state, beginning with the first step.
func (e *explorer[S]) path(at int32) []arrival {
	var path []arrival
	for ; at > 0; at = e.came[at].from {
		path = append(path, e.came[at])
	}
	slices.Reverse(path)
	return path
}

// replay plays the history to a state once more.
func (e *explorer[S]) replay(at int32, each func(i int, step *Step[S], s *S)) *S {
	s, used := e.Clone(e.first), 0
	for i, a := range e.path(at) {
		step := e.Steps(s, e.bounds.Faults-used)[a.step]
		step.Do(s)
		step.Faults, used = int(a.faults)-used, int(a.faults)
		each(i, &step, s)
	}
	return s
}

// violation notes a broken rule, once for each kind.
func (e *explorer[S]) violation(rule string, at int32, more []string) {
	kind, _, _ := strings.Cut(rule, "\n")
	kind = strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, kind)
	for _, v := range e.result.Violations {
		if strings.HasPrefix(v.Story, kind+"\n") {
			return
		}
	}
	lines := []string{kind, rule}
	e.replay(at, func(i int, step *Step[S], s *S) {
		lines = append(lines, fmt.Sprintf("%2d. %s (faults: %d)", i+1, step.Name, step.Faults))
		for _, line := range e.Told(s) {
			lines = append(lines, "      "+line)
		}
	})
	e.result.Violations = append(e.result.Violations, Violation{rule, strings.Join(append(lines, more...), "\n")})
}
