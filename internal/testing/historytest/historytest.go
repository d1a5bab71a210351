// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package historytest plays the random histories of the planners: which ones, by the flags of the test and by $EVERYNODE_HISTORIES, and
// which of them is shown. Only tests import it.
package historytest

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
)

// byDefault is how many histories are played if nothing else is requested.
const byDefault = 300

var (
	histories = flag.Int64("histories", 0, "how many random histories to play; $EVERYNODE_HISTORIES, or 300, if 0")
	seed      = flag.Int64("seed", 0, "play only the history of this seed, and print its story")
	from      = flag.Int64("from", 1, "the first of them, to play many in pieces")
	list      = flag.Bool("list", false, "list all broken histories, and do not stop at the first")
)

// Player plays the history of a seed, and returns the rule that it broke, or "". With told, it returns the story too.
type Player func(seed int64, told bool) (broken, story string)

// Run plays the requested histories, after those of the seeds in kept, and fails with the first of them that is broken. A planner may
// choose a variant of a history by the sign of its seed: variant returns the seed with that sign; nil leaves it.
func Run(t *testing.T, kept []int64, variant func(int64) int64, play Player) {
	t.Helper()
	run(t, 1, kept, variant, play)
}

// RunLong plays histories that take longer: one for each few that are requested, but at least one. It fails with the first of them that
// is broken.
func RunLong(t *testing.T, few int64, play Player) {
	t.Helper()
	run(t, few, nil, nil, play)
}

func run(t *testing.T, perHistory int64, kept []int64, variant func(int64) int64, play Player) {
	t.Helper()
	if *seed != 0 {
		broken, story := play(*seed, true)
		t.Log(story)
		if broken != "" {
			t.Fatal(broken)
		}
		return
	}
	seeds := slices.Clone(kept)
	for s := *from; s < *from+max(1, howMany(t)/perHistory); s++ {
		if variant != nil {
			seeds = append(seeds, variant(s))
		} else {
			seeds = append(seeds, s)
		}
	}
	playAll(t, seeds, play)
}

// howMany histories are played. make test sets it in the environment, because go test's cache ignores flags.
func howMany(t *testing.T) int64 {
	t.Helper()
	requested := os.Getenv("EVERYNODE_HISTORIES")
	switch {
	case *histories > 0:
		return *histories
	case requested == "":
		return byDefault
	}
	n, err := strconv.ParseInt(requested, 10, 64)
	if err != nil || n <= 0 {
		t.Fatalf("EVERYNODE_HISTORIES is %q, want a positive number", requested)
	}
	return n
}

// playAll plays histories on all processors, and shows the first of them that is broken.
func playAll(t *testing.T, seeds []int64, play Player) {
	t.Helper()
	defer debug.SetGCPercent(debug.SetGCPercent(800)) // histories are short-lived
	var group sync.WaitGroup
	var next, first atomic.Int64
	first.Store(int64(len(seeds)))
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			for i := next.Add(1) - 1; i < first.Load(); i = next.Add(1) - 1 {
				broken, _ := play(seeds[i], false)
				switch {
				case broken == "":
				case *list:
					t.Errorf("seed %d: %s", seeds[i], broken)
				default:
					for was := first.Load(); i < was && !first.CompareAndSwap(was, i); was = first.Load() {
					}
				}
			}
		})
	}
	group.Wait()
	if i := first.Load(); i < int64(len(seeds)) {
		broken, story := play(seeds[i], true)
		t.Fatalf("seed %d: %s\n%s", seeds[i], broken, story)
	}
}

// failure is what has failed a simulation.
type failure string

// simulated is the testing.TB of a simulation: a failure ends only that simulation, which may run in any goroutine.
type simulated struct{ testing.TB }

func (simulated) Errorf(format string, args ...any) { panic(failure(fmt.Sprintf(format, args...))) }
func (simulated) Fatalf(format string, args ...any) { panic(failure(fmt.Sprintf(format, args...))) }
func (simulated) Fatal(args ...any)                 { panic(failure(fmt.Sprint(args...))) }

// Simulate calls play, and returns with what it has first failed its testing.TB, by Errorf, Fatalf or Fatal; "" if it has not. The test
// itself does not fail.
func Simulate(t testing.TB, play func(testing.TB)) (broken string) {
	t.Helper()
	defer func() {
		switch r := recover().(type) {
		case nil:
		case failure:
			broken = string(r)
		default:
			panic(r)
		}
	}()
	play(simulated{t})
	return ""
}
