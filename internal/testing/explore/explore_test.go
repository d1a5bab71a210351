// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// counter is a small simulation: it counts to three, may be reset, and must not be reset twice.
type counter struct {
	now    time.Time
	id     string
	seen   map[string]*int
	resets int
	serial int
}

func counting(settle func(*counter) string) (*counter, Model[counter]) {
	copies, forms := NewCloner(), Canon{IDs: []string{"id-"}, Skip: []string{"counter.serial"}, Old: time.Minute}
	next := func(c *counter) {
		c.serial++
		c.id, c.now = fmt.Sprint("id-", c.serial), c.now.Add(time.Hour)
		c.seen[c.id] = new(len(c.seen))
	}
	return &counter{seen: map[string]*int{}}, Model[counter]{
		Steps: func(c *counter, faults int) []Step[counter] {
			var all []Step[counter]
			if len(c.seen) < 3 {
				all = append(all, Step[counter]{Name: "counts", Do: next})
			}
			if faults > 0 {
				all = append(all, Step[counter]{Name: "is reset", Faults: 1, Do: func(c *counter) { clear(c.seen); c.resets++ }})
			}
			return all
		},
		Clone: func(c *counter) *counter { return Clone(copies, c) },
		Canon: func(c *counter) []byte {
			return forms.Bytes(
				View{Now: c.now, Live: map[string]bool{"id-1": true, "id-2": true, "id-3": true, "id-4": true, c.id: true}},
				c,
			)
		},
		Broken: func(c *counter) string {
			if c.resets > 1 {
				return "it is reset twice"
			}
			return ""
		},
		Settle: settle,
		Told:   func(*counter) []string { return nil },
	}
}

func TestAllStatesAreVisitedOnce(t *testing.T) {
	first, m := counting(func(*counter) string { return "" })
	r := Explore(first, m, Bounds{Faults: 1})
	if r.Cut != "" || len(r.Violations) > 0 || r.States != 9 || r.Depth != 4 {
		t.Errorf("%s: %v", r.String(), r.Violations)
	}
	if len(first.seen) != 0 {
		t.Errorf("the first state has changed: %v", first.seen)
	}
}

func TestABrokenRuleHasTheShortestHistory(t *testing.T) {
	first, m := counting(func(*counter) string { return "" })
	r := Explore(first, m, Bounds{Faults: 2})
	if len(r.Violations) != 1 || strings.Count(r.Violations[0].Story, "is reset (faults: 1)") != 2 ||
		strings.Contains(r.Violations[0].Story, "counts") {
		t.Errorf("%s: %v", r.String(), r.Violations)
	}
}

func TestAStateThatDoesNotSettleIsAViolation(t *testing.T) {
	first, m := counting(func(c *counter) string {
		if len(c.seen) == 2 && c.resets == 1 {
			return "it stays at two"
		}
		return ""
	})
	r := Explore(first, m, Bounds{Faults: 1})
	if len(r.Violations) != 1 || r.Violations[0].Rule != "it stays at two" || strings.Count(r.Violations[0].Story, "counts") != 2 {
		t.Errorf("%s: %v", r.String(), r.Violations)
	}
}

func TestABoundIsReported(t *testing.T) {
	first, m := counting(func(*counter) string { return "" })
	if r := Explore(first, m, Bounds{Faults: 1, States: 3}); !strings.HasPrefix(r.Cut, "states, ") {
		t.Error(r.String())
	}
}

func TestDiceShowWhatIsDecided(t *testing.T) {
	d, r := NewDice()
	if got := []int{r.Intn(2), r.Intn(3), r.Intn(6), r.Intn(16) % 4, r.Intn(100)}; fmt.Sprint(got) != "[1 2 5 3 99]" {
		t.Errorf("without a decision: %v", got)
	}
	d.Show(4, -1, 0)
	if got := []int{r.Intn(6), r.Intn(6), r.Intn(6), r.Intn(6)}; fmt.Sprint(got) != "[4 5 0 5]" || d.Count != 4 {
		t.Errorf("shown: %v of %d", got, d.Count)
	}
	d.ShowZeros(2, 3)
	if got := []int{r.Intn(6), r.Intn(6), r.Intn(6), r.Intn(6)}; fmt.Sprint(got) != "[3 5 0 0]" {
		t.Errorf("zeros: %v", got)
	}
	d.ShowOne(2, 0, 3)
	if got := []int{r.Intn(6), r.Intn(6), r.Intn(6), r.Intn(6)}; fmt.Sprint(got) != "[3 5 0 5]" {
		t.Errorf("one zero: %v", got)
	}
}
