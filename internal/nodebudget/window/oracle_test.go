// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package window_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodebudget/window"
)

// oracle is a window with a naive implementation of its schedule: a list of numbers for each field, or none for "*".
type oracle struct {
	fields [5][]int
	zone   *time.Location
	length time.Duration
	except [][2]string
}

// matches reports whether the fields match a time on the clock.
func (o *oracle) matches(clock time.Time) bool {
	field := func(i, value int) bool { return o.fields[i] == nil || slices.Contains(o.fields[i], value) }
	dom, dow := field(2, clock.Day()), field(4, int(clock.Weekday()))
	days := dom && dow
	if o.fields[2] != nil && o.fields[4] != nil {
		days = dom || dow
	}
	return field(0, clock.Minute()) && field(1, clock.Hour()) && field(3, int(clock.Month())) && days
}

// excepted reports whether the date of a time is excepted.
func (o *oracle) excepted(t time.Time) bool {
	date := t.In(o.zone).Format(time.DateOnly)
	return slices.ContainsFunc(o.except, func(dates [2]string) bool { return dates[0] <= date && date <= dates[1] })
}

// openings goes through all minutes and returns those at which the window opens.
func (o *oracle) openings(begin time.Time, minutes int) []bool {
	opens := make([]bool, minutes)
	seen := map[int64]bool{}
	var before time.Time
	for i := range minutes {
		local := begin.Add(time.Duration(i) * time.Minute).In(o.zone)
		clock := time.Date(local.Year(), local.Month(), local.Day(), local.Hour(), local.Minute(), 0, 0, time.UTC)
		if !before.IsZero() {
			for k, skipped := i, before.Add(time.Minute); skipped.Before(clock); k, skipped = k+1, skipped.Add(time.Minute) {
				if k < minutes && o.matches(skipped) {
					opens[k] = true
				}
			}
		}
		before = clock
		if o.matches(clock) && (!seen[clock.Unix()] || o.fields[1] == nil) {
			opens[i] = true
		}
		seen[clock.Unix()] = true
	}
	return opens
}

// open returns at which minutes the window is open, and at which it is closed only because of the date.
func (o *oracle) open(begin time.Time, minutes int) (open, excepted []bool) {
	open, excepted = make([]bool, minutes), make([]bool, minutes)
	length := int(o.length / time.Minute)
	left := 0
	for i, opens := range o.openings(begin, minutes) {
		if opens {
			left = length
		}
		if left > 0 {
			closed := o.excepted(begin.Add(time.Duration(i) * time.Minute))
			open[i], excepted[i] = !closed, closed
			left--
		}
	}
	return open, excepted
}

func randomField(r *rand.Rand, star float64, values ...int) []int {
	if r.Float64() < star {
		return nil
	}
	r.Shuffle(len(values), func(i, j int) { values[i], values[j] = values[j], values[i] })
	return values[:1+r.IntN(min(3, len(values)))]
}

func fieldText(values []int) string {
	if values == nil {
		return "*"
	}
	parts := make([]string, len(values))
	for i, value := range values {
		parts[i] = strconv.Itoa(value)
	}
	return strings.Join(parts, ",")
}

// randomWindow returns a window around middle, and its oracle.
func randomWindow(r *rand.Rand, middle time.Time, zone string, except [][2]string) (v1alpha1.BudgetWindow, oracle) {
	location, err := time.LoadLocation(zone)
	if err != nil {
		panic(err)
	}
	date := middle.Day()
	o := oracle{zone: location, except: except, fields: [5][]int{
		randomField(r, 0.1, 0, 15, 30, 45, 59),
		randomField(r, 0.2, 0, 1, 2, 3, 4, 12, 22, 23),
		randomField(r, 0.6, date, 1+date%28, 1+(date+5)%28, 31),
		randomField(r, 0.8, int(middle.Month()), 1+int(middle.Month())%12),
		randomField(r, 0.5, 0, 1, 2, 3, 4, 5, 6),
	}}
	lengths := []int32{1, 1, 5, 14, 15, 16, 60, 60, 119, 120, 180, 480, 24 * 60, 24*60 + 1, 3 * 24 * 60, 7 * 24 * 60}
	minutes := lengths[r.IntN(len(lengths))]
	o.length = time.Duration(minutes) * time.Minute
	texts := make([]string, len(o.fields))
	for i, values := range o.fields {
		texts[i] = fieldText(values)
	}
	return opening(strings.Join(texts, " "), minutes*60), o
}

func randomDates(r *rand.Rand, middle time.Time) (texts []string, dates [][2]string) {
	for range r.IntN(4) {
		first := middle.AddDate(0, 0, r.IntN(15)-7)
		last := first.AddDate(0, 0, r.IntN(3))
		pair := [2]string{first.Format(time.DateOnly), last.Format(time.DateOnly)}
		text := pair[0]
		if pair[0] != pair[1] {
			text += "/" + pair[1]
		}
		texts, dates = append(texts, text), append(dates, pair)
	}
	return texts, dates
}

// Changes of the UTC offset in each zone.
var changes = map[string][]string{
	"":                    {"2026-06-01T00:00", "2028-02-29T00:00"},
	"Europe/Berlin":       {"2026-03-29T01:00", "2026-10-25T01:00"},
	"America/New_York":    {"2026-03-08T07:00", "2026-11-01T06:00"},
	"Africa/Cairo":        {"2026-04-23T22:00", "2026-10-29T21:00"},
	"America/Santiago":    {"2026-04-05T03:00", "2026-09-06T04:00"},
	"Australia/Lord_Howe": {"2026-04-04T15:00", "2026-10-03T15:30"},
	"Africa/Casablanca":   {"2026-02-15T02:00", "2026-03-22T02:00"},
	"America/Havana":      {"2026-03-08T05:00", "2026-11-01T05:00"},
	"Pacific/Apia":        {"2011-12-30T10:00", "2011-09-24T14:00"},
	"Asia/Kathmandu":      {"2026-06-01T00:00"},
	"Antarctica/Troll":    {"2026-03-29T01:00", "2026-10-25T01:00"},
}

// TestRandomSchedules compares random schedules with the oracle, around changes of the UTC offset.
func TestRandomSchedules(t *testing.T) {
	zones := make([]string, 0, len(changes))
	for zone := range changes {
		zones = append(zones, zone)
	}
	slices.Sort(zones)
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0))
		zone := zones[r.IntN(len(zones))]
		middle := at(t, changes[zone][r.IntN(len(changes[zone]))])
		texts, dates := randomDates(r, middle)
		spec := v1alpha1.NodeDisruptionBudgetSpec{ExceptDates: texts, TimeZone: zone}
		var oracles []oracle
		for range 1 + r.IntN(3) {
			w, o := randomWindow(r, middle, zone, dates)
			spec.Windows, oracles = append(spec.Windows, w), append(oracles, o)
		}
		compareWithOracles(
			t,
			fmt.Sprintf("seed %d: %v in %s, except %v", seed, spec.Windows, zone, texts),
			r,
			parse(t, &spec),
			oracles,
			middle,
		)
		if t.Failed() {
			return
		}
	}
}

func compareWithOracles(t *testing.T, name string, r *rand.Rand, s *window.Schedule, oracles []oracle, middle time.Time) {
	t.Helper()
	const before, weeks = 10 * 24 * 60, 5 * 7 * 24 * 60 // the longest window has 7 days
	begin := middle.Add(-2 * before * time.Minute)
	open, excepted := make([]bool, weeks), make([]bool, weeks)
	for i := range oracles {
		isOpen, isExcepted := oracles[i].open(begin, weeks)
		for k := range weeks {
			open[k], excepted[k] = open[k] || isOpen[k], excepted[k] || isExcepted[k]
		}
	}
	minute := func(k int) time.Time { return begin.Add(time.Duration(k) * time.Minute) }
	for range 100 {
		k := before + r.IntN(weeks-before)
		if r.IntN(2) == 0 {
			k = 2*before + r.IntN(2*24*60) - 12*60 // near the change
		}
		got := s.At(minute(k).Add(time.Duration(r.Int64N(int64(time.Minute)))))
		want := window.State{
			Open: open[k], Excepted: excepted[k] && !open[k],
			OnExceptedDate: got.OnExceptedDate, DateChangesAt: got.DateChangesAt, // see TestExceptedDates
		}
		end := after(open, k)
		if open[k] {
			want.OpensAt, want.ClosesAt, want.ChangesAt = minute(since(open, k)), minute(end), minute(end)
		} else if end < weeks {
			want.OpensAt, want.ChangesAt = minute(end), minute(end)
			end = after(open, end)
			want.ClosesAt = minute(end)
		}
		// What begins or ends outside of the minutes that the oracle has seen cannot be compared.
		if want.OpensAt.IsZero() || !want.OpensAt.After(minute(before)) {
			got.OpensAt, want.OpensAt = time.Time{}, time.Time{}
		}
		if end == weeks || merged(oracles) {
			got.ClosesAt, want.ClosesAt = time.Time{}, time.Time{}
			got.OpensAt, want.OpensAt = time.Time{}, time.Time{}
			got.ChangesAt, want.ChangesAt = time.Time{}, time.Time{}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%s\nat %s: -want +got:\n%s", name, minute(k), diff)
		}
	}
}

// merged reports whether a window may open more than 1000 times without a gap in the time that the oracle has seen.
func merged(oracles []oracle) bool {
	return slices.ContainsFunc(oracles, func(o oracle) bool { return o.fields[1] == nil && o.length < 2*time.Hour })
}

// after returns the first minute after k at which the state is another.
func after(open []bool, k int) int {
	for i := k; i < len(open); i++ {
		if open[i] != open[k] {
			return i
		}
	}
	return len(open)
}

// since returns the first minute from which on the state is that of k.
func since(open []bool, k int) int {
	for i := k; i > 0; i-- {
		if open[i-1] != open[k] {
			return i
		}
	}
	return 0
}

func BenchmarkLongest(b *testing.B) {
	for _, schedule := range []string{"0 2 * * SUN", "0 2 * * *", "0 * * * *", "*/15 * * * *", "* * * * *"} {
		b.Run(schedule, func(b *testing.B) {
			s, err := window.Parse(&v1alpha1.NodeDisruptionBudgetSpec{Windows: windows(opening(schedule, 60)), TimeZone: berlin})
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				s.Longest(time.Date(2026, 6, 5, 12, 0, 0, 0, time.UTC))
			}
		})
	}
}

func BenchmarkAt(b *testing.B) {
	now := time.Date(2026, 6, 5, 12, 0, 0, 0, time.UTC)
	tests := map[string]v1alpha1.NodeDisruptionBudgetSpec{
		"weekly":           {TimeZone: berlin, Windows: windows(opening("0 2 * * SUN", 4*hour))},
		"never":            {TimeZone: berlin, Windows: windows(opening("0 0 31 2,4,6,9,11 *", hour))},
		"minutely, 1 min":  {TimeZone: berlin, Windows: windows(opening("* * * * *", 60))},
		"minutely, 7 days": {TimeZone: berlin, Windows: windows(opening("* * * * *", 7*day))},
		"daily, 1 day":     {TimeZone: berlin, Windows: windows(opening("0 0 * * *", day))},
	}
	for name, spec := range tests {
		b.Run(name, func(b *testing.B) {
			s, err := window.Parse(&spec)
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				s.At(now)
			}
		})
	}
}
