// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import "math/rand"

// Other actors in a history. Each actor takes part in some of the histories, depending on the seed.

// actor is a source of faults.
type actor int

const (
	autoscaler actor = iota
	mixedNodes
	skewedClocks
	refusals
	hastyUsers
	schedules
	compromised
	actorCount
)

// actors are those of a history.
type actors struct {
	on [actorCount]bool
	// dice decides what they do, so that histories without them do not change.
	dice *rand.Rand
}

// newActors chooses actors: none in plain histories, and each one in a quarter of the others.
func newActors(seed int64) actors {
	a := actors{dice: rand.New(rand.NewSource(seed + 1<<41))}
	for i := range a.on {
		a.on[i] = a.dice.Intn(4) == 0 && seed > 0
	}
	return a
}

// tellActors names those that take part.
func (a *actors) tellActors() []string {
	var names []string
	for i, name := range []string{"autoscaler", "mixed nodes", "skewed clocks", "refusals", "hasty users", "schedules", "compromised"} {
		if a.on[i] {
			names = append(names, name)
		}
	}
	return names
}

// actorsHappen reports whether one of the actors has done something.
func (h *history) actorsHappen() bool {
	var who []actor
	for i := range h.on {
		if h.on[i] {
			who = append(who, actor(i))
		}
	}
	if len(who) == 0 || !h.roll(4) {
		return false
	}
	switch who[h.dice.Intn(len(who))] {
	case autoscaler:
		h.scale()
	case hastyUsers:
		h.interrupt()
	case refusals:
		h.refuseMore()
	case compromised:
		h.misbehave()
	default:
		return false
	}
	return true
}

func (a *actors) with(who actor) bool { return a.on[who] }

// roll returns true once in n times.
func (a *actors) roll(n int) bool { return a.dice.Intn(n) == 0 }
