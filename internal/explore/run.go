// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"
)

var (
	faults     = flag.Int("faults", -1, "how many faults an exploration has; -1 for as many as in the unit tests")
	nodes      = flag.Int("nodes", 0, "how many nodes a world has at least")
	states     = flag.Int("states", 0, "end an exploration after so many states; 0 for all")
	limit      = flag.Duration("for", 0, "end the exploration of a world after so long; 0 for never")
	memory     = flag.Uint64("memory", 3<<10, "end an exploration when the heap has so many MiB")
	violations = flag.Int("violations", 1, "end an exploration after so many different broken rules")
)

// Run explores a world as the flags of the test say, in a test of its own. It fails with the shortest history to each broken rule.
func Run[S any](t *testing.T, name string, usual int, world func(nodes, faults int) (*S, Model[S])) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		b := Bounds{Faults: usual, States: *states, Violations: *violations, For: *limit, Memory: *memory << 20}
		if *faults >= 0 {
			b.Faults = *faults
		}
		first, model := world(*nodes, b.Faults)
		r := Explore(first, model, b)
		for _, v := range r.Violations {
			t.Errorf("%s\n%s", v.Rule, v.Story)
		}
		line := fmt.Sprintf("%s, %d faults: %s", t.Name(), b.Faults, r.String())
		t.Log(line)
		if *faults >= 0 {
			fmt.Fprintln(os.Stderr, time.Now().Format(time.TimeOnly), line) //nolint:forbidigo // for long runs
		}
	})
}
