// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package eta

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodebudget/window"
)

// now is a Saturday.
var now = time.Date(2026, 7, 4, 12, 0, 0, 0, time.UTC)

func minutes(all ...int) []time.Duration {
	var d []time.Duration
	for _, n := range all {
		d = append(d, time.Duration(n)*time.Minute)
	}
	return d
}

func at(day, hour, minute int) time.Time {
	return time.Date(2026, 7, day, hour, minute, 0, 0, time.UTC)
}

// open is a budget with a window.
func open(t *testing.T, schedule string, length time.Duration) Budget {
	t.Helper()
	s, err := window.Parse(&v1alpha1.NodeDisruptionBudgetSpec{
		Windows: []v1alpha1.BudgetWindow{{Schedule: schedule, DurationSeconds: int32(length / time.Second)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return Budget{Schedule: s}
}

func TestOf(t *testing.T) {
	always, err := window.Parse(&v1alpha1.NodeDisruptionBudgetSpec{})
	if err != nil {
		t.Fatal(err)
	}
	sundays := open(t, "0 2 * * SUN", 3*time.Hour)
	ended := sundays
	ended.Until = at(4, 15, 0)
	ten := []Step{{Nodes: 10}}
	for name, tt := range map[string]struct {
		rollout Rollout
		want    Estimate
		unknown bool
	}{
		"two durations are too few": {rollout: Rollout{Durations: minutes(10, 10), Steps: ten, AtOnce: 1}, unknown: true},
		"one node at a time": {
			rollout: Rollout{Durations: minutes(30, 10, 20), Steps: ten, AtOnce: 1},
			want:    Estimate{Work: 200 * time.Minute, P50: at(4, 15, 20), P95: at(4, 17, 0)},
		},
		"four nodes at a time: three rounds": {
			rollout: Rollout{Durations: minutes(10, 10, 10, 20), Steps: ten, AtOnce: 4},
			want:    Estimate{Work: 30 * time.Minute, P50: at(4, 12, 30), P95: at(4, 13, 0)},
		},
		"95% of 20 durations": {
			rollout: Rollout{Durations: minutes(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 7, 90), Steps: []Step{{Nodes: 1}}, AtOnce: 1},
			want:    Estimate{Work: time.Minute, P50: at(4, 12, 1), P95: at(4, 12, 7)},
		},
		"a soak, and the time between runs": {
			rollout: Rollout{
				Durations: minutes(10, 10, 10), Steps: []Step{{Nodes: 1, Soak: time.Hour}, {Nodes: 2}}, AtOnce: 1, Between: 5 * time.Minute,
			},
			want: Estimate{Work: 45 * time.Minute, P50: at(4, 13, 45), P95: at(4, 13, 45)},
		},
		"no node is left": {
			rollout: Rollout{Durations: minutes(10, 10, 10), Steps: []Step{{Soak: time.Hour}}, AtOnce: 1},
			want:    Estimate{P50: at(4, 13, 0), P95: at(4, 13, 0)},
		},
		"the next window": {
			rollout: Rollout{Durations: minutes(10, 10, 15), Steps: ten, AtOnce: 1, Budgets: []Budget{sundays, {Schedule: always}}},
			want:    Estimate{Work: 100 * time.Minute, P50: at(5, 3, 40), P95: at(5, 4, 30), Windows: 1},
		},
		"two windows, because no run starts that may not end": { // until 04:00: 7 runs of 20 minutes
			rollout: Rollout{Durations: minutes(20, 20, 20), Steps: ten, AtOnce: 1, Longest: time.Hour, Budgets: []Budget{sundays}},
			want:    Estimate{Work: 200 * time.Minute, P50: at(12, 3, 0), P95: at(12, 3, 0), Windows: 2},
		},
		"no run fits into a window": {
			rollout: Rollout{Durations: minutes(20, 20, 20), Steps: ten, AtOnce: 1, Longest: 4 * time.Hour, Budgets: []Budget{sundays}},
			unknown: true,
		},
		"windows that must both be open": {
			rollout: Rollout{Durations: minutes(10, 10, 10), Steps: []Step{{Nodes: 1}}, AtOnce: 1, Budgets: []Budget{sundays, open(t, "30 3 * * *", time.Hour)}},
			want:    Estimate{Work: 10 * time.Minute, P50: at(5, 3, 40), P95: at(5, 3, 40), Windows: 1},
		},
		"a budget that ends before its window": {
			rollout: Rollout{Durations: minutes(10, 10, 10), Steps: []Step{{Nodes: 1}}, AtOnce: 1, Budgets: []Budget{ended}},
			want:    Estimate{Work: 10 * time.Minute, P50: at(4, 15, 10), P95: at(4, 15, 10)},
		},
		"a freeze that ends": {
			rollout: Rollout{Durations: minutes(10, 10, 10), Steps: []Step{{Nodes: 1}}, AtOnce: 1, Budgets: []Budget{{Until: at(4, 16, 0)}}},
			want:    Estimate{Work: 10 * time.Minute, P50: at(4, 16, 10), P95: at(4, 16, 10)},
		},
		"a freeze without an end": {
			rollout: Rollout{Durations: minutes(10, 10, 10), Steps: ten, AtOnce: 1, Budgets: []Budget{{}}}, unknown: true,
		},
		"more than a year": {
			rollout: Rollout{Durations: minutes(10, 10, 10), Steps: []Step{{Nodes: 100_000}}, AtOnce: 1}, unknown: true,
		},
		"runs that take no time": {
			rollout: Rollout{Durations: minutes(0, 0, 0), Steps: []Step{{Nodes: 60}}, AtOnce: 1},
			want:    Estimate{Work: time.Minute, P50: at(4, 12, 1), P95: at(4, 12, 1)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			tt.rollout.Now = now
			got, ok := Of(&tt.rollout)
			if ok == tt.unknown {
				t.Fatalf("known: %t, %+v", ok, got)
			}
			if diff := cmp.Diff(tt.want, got); ok && diff != "" {
				t.Errorf("estimate (-want +got):\n%s", diff)
			}
		})
	}
}
