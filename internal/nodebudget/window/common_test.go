// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package window_test

import (
	"testing"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodebudget/window"
)

func TestCommon(t *testing.T) {
	type spec = v1alpha1.NodeDisruptionBudgetSpec
	of := func(w ...v1alpha1.BudgetWindow) spec { return spec{Windows: w} }
	in := func(zone string, w ...v1alpha1.BudgetWindow) spec { return spec{TimeZone: zone, Windows: w} }
	sunday, monday := of(opening("0 2 * * SUN", 3*hour)), of(opening("0 2 * * MON", 3*hour))
	daily := of(opening("0 2 * * *", 3*hour))
	for name, tt := range map[string]struct {
		specs []spec
		now   string
		want  string
	}{
		"nothing limits it":       {nil, "2026-06-01T12:00", "2026-06-01T12:00"},
		"one that is open":        {[]spec{daily}, "2026-06-01T03:00", "2026-06-01T03:00"},
		"one that is closed":      {[]spec{daily}, "2026-06-01T12:00", "2026-06-02T02:00"},
		"one within another":      {[]spec{daily, sunday}, "2026-06-01T12:00", "2026-06-07T02:00"},
		"different days":          {[]spec{sunday, monday}, "2026-06-01T12:00", ""},
		"two that touch":          {[]spec{of(opening("0 2 * * *", hour)), of(opening("0 3 * * *", hour))}, "2026-06-01T12:00", ""},
		"the same hour elsewhere": {[]spec{in(berlin, opening("0 2 * * *", hour)), in(newYork, opening("0 2 * * *", hour))}, "2026-06-01T12:00", ""},
		"an overlap in one night": {
			[]spec{in(berlin, opening("0 4 * * *", hour)), of(opening("0 3 * * *", hour))}, "2026-06-01T12:00", "2026-10-25T03:00",
		},
		"in pairs, but not all three": {
			[]spec{of(opening("0 2 * * *", 2*hour)), of(opening("0 3 * * *", 2*hour)), of(opening("0 2 * * *", hour), opening("0 4 * * *", hour))},
			"2026-06-01T12:00", "",
		},
		"the second Tuesday of a month, which has begun": {
			[]spec{of(opening("0 0 8-14 * *", day)), of(opening("0 2 * * TUE", hour))}, "2026-06-10T12:00", "2026-07-14T02:00",
		},
		"the last Friday of a month, in a time zone": {
			[]spec{in(berlin, opening("0 0 25-31 MAY *", day)), in(berlin, opening("0 22 * * FRI", 4*hour))},
			"2026-05-22T21:00", "2026-05-29T20:00",
		},
		"a weekday of a date that has another one for years": {
			[]spec{of(opening("0 0 29 2 *", day)), of(opening("0 2 * * TUE", hour))}, "2026-06-01T12:00", "",
		},
		"excepted dates": {
			[]spec{of(opening("0 2 24 12 *", hour)), {ExceptDates: []string{"2026-12-20/2027-01-02"}}}, "2026-06-01T12:00", "",
		},
		"after excepted dates": {
			[]spec{daily, {ExceptDates: []string{"2026-05-20/2026-06-10"}}}, "2026-06-01T12:00", "2026-06-11T02:00",
		},
		"one that never opens": {[]spec{daily, of(opening("0 0 30 2 *", hour))}, "2026-06-01T12:00", ""},
		"in more than a year":  {[]spec{of(opening("0 0 29 2 *", hour))}, "2026-06-01T12:00", ""},
		"too many windows to know": {
			[]spec{of(opening("*/2 * * * *", 60)), of(opening("1-59/2 * * * *", 60))}, "2026-06-01T12:00", "2026-06-08T10:39",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var schedules []*window.Schedule
			for i := range tt.specs {
				schedules = append(schedules, parse(t, &tt.specs[i]))
			}
			if got := window.Common(schedules, at(t, tt.now)); !got.Equal(at(t, tt.want)) {
				t.Errorf("%v, want %q", got, tt.want)
			}
		})
	}
}

// BenchmarkCommon measures the two most expensive results: none in a year, and none in the steps that are allowed.
func BenchmarkCommon(b *testing.B) {
	for name, schedules := range map[string][2]string{"daily": {"0 2 * * *", "0 3 * * *"}, "minutely": {"*/2 * * * *", "1-59/2 * * * *"}} {
		b.Run(name, func(b *testing.B) {
			var both []*window.Schedule
			for _, schedule := range schedules {
				s, err := window.Parse(&v1alpha1.NodeDisruptionBudgetSpec{Windows: windows(opening(schedule, 60)), TimeZone: berlin})
				if err != nil {
					b.Fatal(err)
				}
				both = append(both, s)
			}
			for b.Loop() {
				window.Common(both, time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC))
			}
		})
	}
}
