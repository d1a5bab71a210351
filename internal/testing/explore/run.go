// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"testing"
	"time"
)

var (
	faults     = flag.Int("faults", 1, "how many faults an exploration has")
	nodes      = flag.Int("nodes", 0, "how many nodes a world has at least")
	states     = flag.Int("states", 3000, "end an exploration after so many states, so that unit tests take seconds; 0 for all")
	limit      = flag.Duration("for", 0, "end the exploration of a world after so long; 0 for never")
	memory     = flag.Uint64("memory", 3<<10, "end an exploration when the heap has so many MiB")
	violations = flag.Int("violations", 1, "end an exploration after so many different broken rules")
)

// Run explores a world as the flags of the test say, in a test of its own. It fails with the shortest history to each broken rule.
func Run[S any](t *testing.T, name string, world func(nodes int) (*S, Model[S])) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		defer debug.SetGCPercent(debug.SetGCPercent(400)) // most states are short-lived
		b := Bounds{Faults: *faults, States: *states, Violations: *violations, For: *limit, Memory: *memory << 20}
		first, model := world(*nodes)
		r := Explore(first, model, b)
		for _, v := range r.Violations {
			t.Errorf("%s\n%s", v.Rule, v.Story)
		}
		line := fmt.Sprintf("%s, %d faults: %s", t.Name(), b.Faults, r.String())
		t.Log(line)
		if *states == 0 {
			fmt.Fprintln(os.Stderr, time.Now().Format(time.TimeOnly), line)
		}
	})
}
