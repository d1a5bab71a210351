// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"maps"
	"math/rand"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/testing/explore"
)

// TestExploreConfirmations visits all states of a small world of confirmations, with the rules of their random histories.
func TestExploreConfirmations(t *testing.T) {
	explore.Run(t, "confirm", func(nodes int) (*confirmWorld, explore.Model[confirmWorld]) {
		throws, random := explore.NewDice()
		first := &confirmWorld{confirmHistory: *newConfirmHistory(random, max(nodes, 2)), throws: throws}
		first.faults = false
		return first, explore.Model[confirmWorld]{
			Steps:  (*confirmWorld).steps,
			Clone:  func(w *confirmWorld) *confirmWorld { return explore.Clone(confirmCopies, w) },
			Canon:  (*confirmWorld).canon,
			Broken: func(w *confirmWorld) string { return w.broken },
			Settle: func(w *confirmWorld) string { w.throws.Show(); w.settle(); return w.broken },
			Told:   func(w *confirmWorld) []string { told := w.told; w.told = nil; return told },
		}
	})
}

// confirmWorld is a state of that world.
type confirmWorld struct {
	confirmHistory
	throws *explore.Dice
	// planned is true if nothing has happened since the last pass, and wake is when it wants the next one.
	planned bool
	wake    time.Time
}

var confirmCopies = explore.NewCloner(
	(*explore.Dice)(nil), (*rand.Rand)(nil), (*v1alpha1.NodeJob)(nil), (*record.Record)(nil), metav1.ObjectMeta{}, Node{}, Pod{}, Input{},
	[]string(nil),
)

var confirmForms = explore.Canon{
	Skip: []string{
		"confirmWorld.throws", "confirmHistory.told", "confirmHistory.uid", "Input.Job", "Input.Now",
		"Message", "StatusMessage", "Generation", "ObservedGeneration", "ResourceVersion",
	},
	IDs: []string{"pod-"},
	Old: 4000 * time.Second,
}

func (w *confirmWorld) canon() []byte {
	view := explore.View{Now: w.now, Alias: map[string]string{}, Live: map[string]bool{}}
	for _, p := range w.pods {
		view.Live[string(p.UID)] = true
	}
	return confirmForms.Bytes(view, w)
}

type confirmStep = explore.Step[confirmWorld]

func (w *confirmWorld) steps(faults int) []confirmStep {
	var all []confirmStep
	add := func(cost int, name string, do func(*confirmWorld)) {
		if cost <= faults {
			all = append(all, confirmStep{Name: name, Faults: cost, Do: func(w *confirmWorld) {
				w.throws.Show()
				w.planned = false
				do(w)
				w.faults = false
			}})
		}
	}
	w.passes(add)
	for _, name := range slices.Sorted(maps.Keys(w.pods)) {
		w.podSteps(name, add)
	}
	if next := w.nextTime(); !next.IsZero() {
		add(0, "time passes", func(w *confirmWorld) { w.planned = true; w.now = next; w.turn() })
		all[len(all)-1].Last = true
	}
	return all
}

// passes are those of the manager, with each way in which what it starts or confirms goes on, and with faults.
func (w *confirmWorld) passes(add func(int, string, func(*confirmWorld))) {
	try := func(faulty bool) int {
		trial := explore.Clone(confirmCopies, w)
		trial.throws.Show()
		trial.faults = faulty
		trial.manager()
		return trial.throws.Count
	}
	if !w.planned || !w.wake.IsZero() && !w.wake.After(w.now) {
		add(0, "the manager plans", (*confirmWorld).plans)
		for i := range try(false) {
			add(0, fmt.Sprintf("the manager plans, and decision %d is another one", i), func(w *confirmWorld) {
				w.throws.ShowOne(i, 0)
				w.plans()
			})
		}
	}
	for i := range try(true) {
		add(1, fmt.Sprintf("the manager plans, and decision %d is a fault", i), func(w *confirmWorld) {
			w.throws.ShowOne(i, 0)
			w.faults = true
			w.plans()
		})
	}
}

func (w *confirmWorld) plans() {
	w.wake = w.manager().WakeAt
	w.planned = true
}

// podSteps are what a node does.
func (w *confirmWorld) podSteps(name string, add func(int, string, func(*confirmWorld))) {
	pod := w.pods[name]
	runs := func(throws ...int) func(*confirmWorld) {
		return func(w *confirmWorld) {
			pod := w.pods[name]
			w.throws.Show(throws...)
			w.runs(pod, w.nodes[pod.NodeName])
		}
	}
	if pod.decided == "" && !w.now.Before(pod.ends) {
		add(0, name+" goes on", runs())
		add(1, name+" goes on, and its revert fails", runs(0))
		add(1, name+" is killed", func(w *confirmWorld) {
			if pod := w.pods[name]; !pod.deadline.IsZero() {
				w.killed(pod, w.nodes[pod.NodeName])
			}
		})
	}
	if pod.DeleteRequested.IsZero() {
		add(
			1,
			name+" is deleted by hand",
			func(w *confirmWorld) { w.pods[name].DeleteRequested, w.pods[name].DeleteGrace = w.now, time.Minute },
		)
	}
}

// nextTime is when something is due next; zero if nothing is.
func (w *confirmWorld) nextTime() (next time.Time) {
	due := func(at time.Time) {
		if at.After(w.now) && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	due(w.wake)
	for _, pod := range w.pods {
		if pod.decided == "" {
			due(pod.ends)
			due(pod.deadline)
			due(pod.arrives)
		}
	}
	for _, node := range w.nodes {
		if !node.cutSince.IsZero() {
			due(node.cutSince.Add(41 * time.Second))
		}
	}
	return next
}
