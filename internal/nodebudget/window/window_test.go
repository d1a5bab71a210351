// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package window_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodebudget/window"
)

const (
	berlin  = "Europe/Berlin"
	newYork = "America/New_York"
	hour    = int32(3600)
	day     = 24 * hour
)

func windows(windows ...v1alpha1.BudgetWindow) []v1alpha1.BudgetWindow { return windows }

func opening(schedule string, seconds int32) v1alpha1.BudgetWindow {
	return v1alpha1.BudgetWindow{Schedule: schedule, DurationSeconds: seconds}
}

func parse(t *testing.T, spec *v1alpha1.NodeDisruptionBudgetSpec) *window.Schedule {
	t.Helper()
	s, err := window.Parse(spec)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// at reads a time in UTC without seconds.
func at(t *testing.T, text string) time.Time {
	t.Helper()
	if text == "" {
		return time.Time{}
	}
	parsed, err := time.Parse("2006-01-02T15:04", text)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func TestWindows(t *testing.T) {
	type want struct {
		opens, closes string
		// changes is the time that is expected for ChangesAt if it is neither that of closes, if the window is open, nor that of opens.
		changes  string
		open     bool
		excepted bool
	}
	tests := map[string]struct {
		windows []v1alpha1.BudgetWindow
		except  []string
		zone    string
		now     string
		want    want
	}{
		"without windows, it is always open": {
			now: "2026-06-01T12:00", want: want{open: true},
		},
		"a window is open from its begin on": {
			windows: windows(opening("0 2 * * *", 2*hour)),
			now:     "2026-06-01T02:00", want: want{open: true, opens: "2026-06-01T02:00", closes: "2026-06-01T04:00"},
		},
		"a window is closed at its end": {
			windows: windows(opening("0 2 * * *", 2*hour)),
			now:     "2026-06-01T04:00", want: want{opens: "2026-06-02T02:00", closes: "2026-06-02T04:00"},
		},
		"the time zone decides when a window opens": {
			zone: berlin, windows: windows(opening("0 22 * * SAT", 8*hour)),
			now: "2026-06-06T19:59", want: want{opens: "2026-06-06T20:00", closes: "2026-06-07T04:00"},
		},
		"a window is open after midnight": {
			zone: berlin, windows: windows(opening("0 22 * * SAT", 8*hour)),
			now: "2026-06-07T03:59", want: want{open: true, opens: "2026-06-06T20:00", closes: "2026-06-07T04:00"},
		},
		"day of month and day of week: either matches, first the day of month": {
			windows: windows(opening("0 2 15 * THU", hour)),
			now:     "2026-06-12T00:00", want: want{opens: "2026-06-15T02:00", closes: "2026-06-15T03:00"},
		},
		"day of month and day of week: either matches, then the day of week": {
			windows: windows(opening("0 2 15 * THU", hour)),
			now:     "2026-06-15T03:00", want: want{opens: "2026-06-18T02:00", closes: "2026-06-18T03:00"},
		},
		"an unrestricted day of week leaves the day of month": {
			windows: windows(opening("0 2 15 * ?", hour)),
			now:     "2026-06-15T03:00", want: want{opens: "2026-07-15T02:00", closes: "2026-07-15T03:00"},
		},
		"Sunday is also 7": {
			windows: windows(opening("0 2 * jun,aug 7", hour)),
			now:     "2026-06-29T03:00", want: want{opens: "2026-08-02T02:00", closes: "2026-08-02T03:00"},
		},
		"days of the week continue after Saturday": {
			windows: windows(opening("0 0 * * FRI-MON", day)),
			now:     "2026-06-09T12:00", want: want{opens: "2026-06-12T00:00", closes: "2026-06-16T00:00"},
		},
		"windows that overlap count as one, in a time zone": {
			zone: berlin, windows: windows(opening("0 2 * * *", 6*hour), opening("0 6 * * *", 4*hour)),
			now: "2026-06-01T01:00", want: want{open: true, opens: "2026-06-01T00:00", closes: "2026-06-01T08:00"},
		},
		"windows with a gap between them do not": {
			zone: berlin, windows: windows(opening("0 2 * * *", 3*hour), opening("0 6 * * *", 4*hour)),
			now: "2026-06-01T03:30", want: want{opens: "2026-06-01T04:00", closes: "2026-06-01T08:00"},
		},
		"windows that follow each other count as one, from the first": {
			windows: windows(opening("0 3 * * *", hour), opening("0 2 * * *", hour), opening("0 4 * * *", hour)),
			now:     "2026-06-01T02:30", want: want{open: true, opens: "2026-06-01T02:00", closes: "2026-06-01T05:00"},
		},
		"and from the last": {
			windows: windows(opening("0 3 * * *", hour), opening("0 2 * * *", hour), opening("0 4 * * *", hour)),
			now:     "2026-06-01T04:30", want: want{open: true, opens: "2026-06-01T02:00", closes: "2026-06-01T05:00"},
		},
		"and before the first": {
			windows: windows(opening("0 3 * * *", hour), opening("0 2 * * *", hour), opening("0 4 * * *", hour)),
			now:     "2026-06-01T01:00", want: want{opens: "2026-06-01T02:00", closes: "2026-06-01T05:00"},
		},
		"a window that opens each minute of an hour closes after the last": {
			windows: windows(opening("* 2 * * *", 1800)),
			now:     "2026-06-01T02:10", want: want{open: true, opens: "2026-06-01T02:00", closes: "2026-06-01T03:29"},
		},
		"many windows that overlap": {
			windows: windows(opening("* * 1-10 6 *", 7*day)),
			now:     "2026-06-05T12:00", want: want{open: true, opens: "2026-06-01T00:00", closes: "2026-06-17T23:59"},
		},
		"after a year without a gap, the window has no end": {
			windows: windows(opening("0 0 * * SUN", 7*day)),
			now:     "2026-06-05T12:00", want: want{open: true, changes: "2027-06-13T00:00"},
		},
		"at most 1000 windows are merged": {
			windows: windows(opening("* * * * *", 60)),
			now:     "2026-06-05T12:00", want: want{open: true, opens: "2026-06-04T19:20", closes: "2026-06-06T04:40"},
		},
		"a schedule that never matches": {
			windows: windows(opening("0 0 30 2 *", hour)),
			now:     "2026-06-01T00:00",
		},
		"the next window is more than a year away": {
			windows: windows(opening("0 0 29 2 *", hour)),
			now:     "2026-06-01T00:00", want: want{changes: "2028-02-29T00:00"},
		},
		"the next window is eight years away": {
			windows: windows(opening("0 0 29 2 *", hour)),
			now:     "2096-03-01T00:00", want: want{changes: "2104-02-29T00:00"},
		},

		"without windows, it is open until an excepted date of UTC": {
			except: []string{"2026-12-24/2027-01-02"},
			now:    "2026-12-23T23:59", want: want{open: true, closes: "2026-12-24T00:00"},
		},
		"without windows, it is closed on excepted dates": {
			except: []string{"2026-12-24/2027-01-02", "2027-02-01"},
			now:    "2026-12-24T00:00", want: want{excepted: true, opens: "2027-01-03T00:00", closes: "2027-02-01T00:00"},
		},
		"without windows, timeZone decides": {
			except: []string{"2026-12-24"}, zone: newYork,
			now: "2026-12-24T05:00", want: want{excepted: true, opens: "2026-12-25T05:00"},
		},
		"after an excepted date, it is open since then": {
			except: []string{"2026-12-24"}, zone: newYork,
			now: "2026-12-25T05:00", want: want{open: true, opens: "2026-12-25T05:00"},
		},
		"excepted dates that follow each other or overlap": {
			except: []string{"2026-12-26/2026-12-27", "2026-12-24", "2026-12-25", "2026-12-24/2026-12-25"},
			now:    "2026-12-25T12:00", want: want{excepted: true, opens: "2026-12-28T00:00"},
		},
		"an excepted date within others": {
			except: []string{"2026-12-24/2026-12-27", "2026-12-25"},
			now:    "2026-12-25T12:00", want: want{excepted: true, opens: "2026-12-28T00:00"},
		},
		"an excepted date in a zone whose UTC offset does not change": {
			except: []string{"2026-12-24"}, zone: "Asia/Tokyo",
			now: "2026-12-23T14:00", want: want{open: true, closes: "2026-12-23T15:00"},
		},
		"dates are excepted for more than a year": {
			except: []string{"2026-01-01/2028-01-01"},
			now:    "2026-06-01T00:00", want: want{excepted: true, changes: "2028-01-02T00:00"},
		},
		"an excepted date cuts the end of a window": {
			zone: berlin, windows: windows(opening("0 22 * * *", 8*hour)), except: []string{"2026-06-02"},
			now: "2026-06-01T20:30", want: want{open: true, opens: "2026-06-01T20:00", closes: "2026-06-01T22:00"},
		},
		"an excepted date cuts the begin of a window": {
			zone: berlin, windows: windows(opening("0 22 * * *", 8*hour)), except: []string{"2026-06-02"},
			now: "2026-06-01T23:00", want: want{excepted: true, opens: "2026-06-02T22:00", closes: "2026-06-03T04:00"},
		},
		"after the excepted date, such a window is open since the end of the date": {
			zone: berlin, windows: windows(opening("0 22 * * *", 8*hour)), except: []string{"2026-06-01"},
			now: "2026-06-01T23:00", want: want{open: true, opens: "2026-06-01T22:00", closes: "2026-06-02T04:00"},
		},
		"outside of the windows, the excepted date is not the reason": {
			zone: berlin, windows: windows(opening("0 22 * * *", 8*hour)), except: []string{"2026-06-02"},
			now: "2026-06-02T12:00", want: want{opens: "2026-06-02T22:00", closes: "2026-06-03T04:00"},
		},
		"all windows of a week are excepted": {
			windows: windows(opening("0 2 * * *", hour)), except: []string{"2026-06-02/2026-06-08"},
			now: "2026-06-01T12:00", want: want{opens: "2026-06-09T02:00", closes: "2026-06-09T03:00"},
		},
		"an excepted date is longer when the clock is set back": {
			zone: berlin, windows: windows(opening("0 0 * * *", 26*hour)), except: []string{"2026-10-25"},
			now: "2026-10-25T12:00", want: want{excepted: true, opens: "2026-10-25T23:00"},
		},
		"an excepted date begins at 01:00 if the clock skips midnight": {
			except: []string{"2026-04-24"}, zone: "Africa/Cairo",
			now: "2026-04-23T12:00", want: want{open: true, closes: "2026-04-23T22:00"},
		},

		"before the clock skips 02:30, the window opens at 02:30": {
			zone: berlin, windows: windows(opening("30 2 * * *", hour)),
			now: "2026-03-28T00:00", want: want{opens: "2026-03-28T01:30", closes: "2026-03-28T02:30"},
		},
		"when the clock skips 02:30, the window opens at 03:30": {
			zone: berlin, windows: windows(opening("30 2 * * *", hour)),
			now: "2026-03-28T02:30", want: want{opens: "2026-03-29T01:30", closes: "2026-03-29T02:30"},
		},
		"also if this is searched after 03:00": {
			zone: berlin, windows: windows(opening("30 2 * * *", hour)),
			now: "2026-03-29T01:10", want: want{opens: "2026-03-29T01:30", closes: "2026-03-29T02:30"},
		},
		"and when that window is open": {
			zone: berlin, windows: windows(opening("30 2 * * *", hour)),
			now: "2026-03-29T02:29", want: want{open: true, opens: "2026-03-29T01:30", closes: "2026-03-29T02:30"},
		},
		"after the clock skipped 02:30, the window opens at 02:30": {
			zone: berlin, windows: windows(opening("30 2 * * *", hour)),
			now: "2026-03-29T02:30", want: want{opens: "2026-03-30T00:30", closes: "2026-03-30T01:30"},
		},
		"02:00 and 03:00 are the same time when the clock skips the hour": {
			zone: berlin, windows: windows(opening("0 2,3 * * *", hour)),
			now: "2026-03-29T01:00", want: want{open: true, opens: "2026-03-29T01:00", closes: "2026-03-29T02:00"},
		},
		"when 02:30 occurs twice, the window opens at the first": {
			zone: berlin, windows: windows(opening("30 2 * * *", 1800)),
			now: "2026-10-24T12:00", want: want{opens: "2026-10-25T00:30", closes: "2026-10-25T01:00"},
		},
		"when 02:30 occurs twice, the window does not open at the second": {
			zone: berlin, windows: windows(opening("30 2 * * *", 1800)),
			now: "2026-10-25T01:00", want: want{opens: "2026-10-26T01:30", closes: "2026-10-26T02:00"},
		},
		"an hourly schedule continues when the clock is set back": {
			zone: berlin, windows: windows(opening("0 * * * *", 1800)),
			now: "2026-10-25T00:30", want: want{opens: "2026-10-25T01:00", closes: "2026-10-25T01:30"},
		},
		"also with the hours 0-23": {
			zone: berlin, windows: windows(opening("0 0-23 * * *", 1800)),
			now: "2026-10-25T00:30", want: want{opens: "2026-10-25T01:00", closes: "2026-10-25T01:30"},
		},
		"a schedule of every second hour has no gap when the clock is set back": {
			zone: berlin, windows: windows(opening("0 */2 * 10 *", 2*hour)),
			now: "2026-10-25T00:30", want: want{open: true, opens: "2026-09-30T22:00", closes: "2026-10-31T23:00"},
		},
		"the length of a window is elapsed time": {
			zone: berlin, windows: windows(opening("0 0 * * SUN", 4*hour)),
			now: "2026-03-28T23:00", want: want{open: true, opens: "2026-03-28T23:00", closes: "2026-03-29T03:00"},
		},
		"a daily window of 24 hours is closed for an hour when the clock is set back": {
			zone: berlin, windows: windows(opening("0 0 25,26 10 *", day)),
			now: "2026-10-25T22:30", want: want{opens: "2026-10-25T23:00", closes: "2026-10-26T23:00"},
		},
		"New York skips 02:30": {
			zone: newYork, windows: windows(opening("30 2 * * *", hour)),
			now: "2026-03-08T07:00", want: want{opens: "2026-03-08T07:30", closes: "2026-03-08T08:30"},
		},
		"New York has 01:30 twice": {
			zone: newYork, windows: windows(opening("30 1 * * *", hour)),
			now: "2026-11-01T06:30", want: want{opens: "2026-11-02T06:30", closes: "2026-11-02T07:30"},
		},
		"a midnight that the clock skips": {
			zone: "Africa/Cairo", windows: windows(opening("0 0 * * FRI", hour)),
			now: "2026-04-23T12:00", want: want{opens: "2026-04-23T22:00", closes: "2026-04-23T23:00"},
		},
		"a time after the half hour that the clock skips, before the skipped time": {
			zone: "Australia/Lord_Howe", windows: windows(opening("15,40 2 * * *", 60)),
			now: "2026-10-03T15:30", want: want{opens: "2026-10-03T15:40", closes: "2026-10-03T15:41"},
		},
		"half an hour that the clock skips": {
			zone: "Australia/Lord_Howe", windows: windows(opening("15 2 * * *", hour)),
			now: "2026-10-03T15:20", want: want{opens: "2026-10-03T15:45", closes: "2026-10-03T16:45"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := parse(t, &v1alpha1.NodeDisruptionBudgetSpec{Windows: test.windows, ExceptDates: test.except, TimeZone: test.zone})
			want := window.State{
				Open: test.want.open, Excepted: test.want.excepted,
				OpensAt: at(t, test.want.opens), ClosesAt: at(t, test.want.closes), ChangesAt: at(t, test.want.changes),
			}
			switch {
			case test.want.changes != "":
			case want.Open:
				want.ChangesAt = want.ClosesAt
			default:
				want.ChangesAt = want.OpensAt
			}
			got := s.At(at(t, test.now).In(time.FixedZone("", 12345)))
			want.OnExceptedDate, want.DateChangesAt = got.OnExceptedDate, got.DateChangesAt // see TestExceptedDates
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			for _, reported := range []time.Time{got.OpensAt, got.ClosesAt, got.ChangesAt} {
				if reported.Location() != time.UTC {
					t.Errorf("%s is not in UTC", reported)
				}
			}
		})
	}
}

// TestExceptedDates tests what depends on excepted dates alone, also while no window is open.
func TestExceptedDates(t *testing.T) {
	nightly := windows(opening("0 2 * * *", hour))
	for name, test := range map[string]struct {
		windows  []v1alpha1.BudgetWindow
		zone     string
		except   []string
		now      string
		excepted bool
		changes  string
	}{
		"no dates":        {windows: nightly, zone: berlin, now: "2026-06-01T12:00"},
		"before the date": {nightly, berlin, []string{"2026-06-03"}, "2026-06-01T12:00", false, "2026-06-02T22:00"},
		"on the date":     {nightly, berlin, []string{"2026-06-03"}, "2026-06-03T12:00", true, "2026-06-03T22:00"},
		"after the date":  {windows: nightly, zone: berlin, except: []string{"2026-06-03"}, now: "2026-06-04T12:00"},
		"without windows": {nil, "", []string{"2026-06-03"}, "2026-06-03T12:00", true, "2026-06-04T00:00"},
	} {
		t.Run(name, func(t *testing.T) {
			got := parse(
				t,
				&v1alpha1.NodeDisruptionBudgetSpec{Windows: test.windows, ExceptDates: test.except, TimeZone: test.zone},
			).At(at(t, test.now))
			if got.OnExceptedDate != test.excepted || !got.DateChangesAt.Equal(at(t, test.changes)) {
				t.Errorf("excepted %v until %s", got.OnExceptedDate, got.DateChangesAt)
			}
		})
	}
}

func TestEachDayHasOneWindow(t *testing.T) {
	for _, zone := range []string{berlin, newYork, "Africa/Cairo", "America/Santiago", "Australia/Lord_Howe", "Africa/Casablanca"} {
		for _, clock := range []string{"0 0", "30 0", "30 1", "0 2", "30 2", "0 3", "30 3", "30 23"} {
			s := parse(t, &v1alpha1.NodeDisruptionBudgetSpec{Windows: windows(opening(clock+" * * *", 600)), TimeZone: zone})
			// From the middle of 2025 on, so that no window begins or ends at the limits.
			first := at(t, "2025-07-01T12:00")
			n := 0
			for now := first; ; n++ {
				state := s.At(now)
				if length := state.ClosesAt.Sub(state.OpensAt); length != 10*time.Minute {
					t.Fatalf("%s in %s: window at %s of %s", clock, zone, state.OpensAt, length)
				}
				if state.OpensAt.After(first.AddDate(2, 0, 0)) {
					break
				}
				now = state.ClosesAt
			}
			if n != 730 {
				t.Errorf("%s in %s: %d windows in 730 days", clock, zone, n)
			}
		}
	}
}

func TestLongest(t *testing.T) {
	tests := map[string]struct {
		windows []v1alpha1.BudgetWindow
		except  []string
		now     string // noon if omitted
		want    time.Duration
	}{
		"one window": {windows: windows(opening("0 2 * * *", 3*hour)), want: 3 * time.Hour},
		"windows with gaps": {
			windows: windows(opening("0 2 * * *", hour), opening("0 4 * * *", 2*hour)),
			want:    2 * time.Hour,
		},
		"a schedule without gaps": {windows: windows(opening("0 22,23,0,1,2,3 * * *", hour)), want: 6 * time.Hour},
		"windows that follow each other": {
			windows: windows(opening("0 22 * * FRI", 2*hour), opening("0 0 * * SAT", 6*hour)), want: 8 * time.Hour,
		},
		"windows that overlap": {windows: windows(opening("0 2 * * *", 3*hour), opening("0 4 * * *", 3*hour)), want: 5 * time.Hour},
		"the window that is open now": {
			windows: windows(
				opening("0 22 * * FRI", 2*hour),
				opening("0 0 * * SAT", 6*hour),
			),
			now:  "2026-06-06T05:59",
			want: 8 * time.Hour,
		},
		"a window that follows another one next week": {
			windows: windows(opening("0 2 * * *", hour), opening("0 3 12 6 *", 5*hour)), want: 6 * time.Hour,
		},
		"windows that never close":      {windows: windows(opening("0 0 * * *", day))},
		"a window that opens in a year": {windows: windows(opening("0 0 4 6 *", hour)), want: time.Hour},
		"an excepted date":              {except: []string{"2026-12-24"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			now := "2026-06-05T12:00"
			if tt.now != "" {
				now = tt.now
			}
			s := parse(t, &v1alpha1.NodeDisruptionBudgetSpec{Windows: tt.windows, ExceptDates: tt.except})
			if got := s.Longest(at(t, now)); got != tt.want {
				t.Errorf("Longest() = %s, want %s", got, tt.want)
			}
		})
	}
}

func TestBadSpecs(t *testing.T) {
	good := opening("0 2 * * *", hour)
	tests := map[string]v1alpha1.NodeDisruptionBudgetSpec{
		`spec.timeZone "Mars/Olympus": unknown time zone: use a name of the IANA time zone database, such as Europe/Berlin`: {
			Windows: windows(good), TimeZone: "Mars/Olympus",
		},
		`spec.timeZone "Local": unknown time zone: use a name of the IANA time zone database, such as Europe/Berlin`:  {TimeZone: "Local"},
		`spec.timeZone "../etc": unknown time zone: use a name of the IANA time zone database, such as Europe/Berlin`: {TimeZone: "../etc"},
		`spec.timeZone "CET+1": unknown time zone: use a name of the IANA time zone database, such as Europe/Berlin`:  {TimeZone: "CET+1"},
		`spec.windows[0].durationSeconds 59: must be 60 to 604800`: {
			Windows: windows(opening("0 2 * * *", 59)),
		},
		`spec.windows[0].durationSeconds 604801: must be 60 to 604800`: {
			Windows: windows(opening("0 2 * * *", 7*day+1)),
		},

		`spec.exceptDates[1] "2026-02-30": not a date: use YYYY-MM-DD, or YYYY-MM-DD/YYYY-MM-DD`: {
			ExceptDates: []string{"2026-02-28", "2026-02-30"},
		},
		`spec.exceptDates[0] "2026-02-01/2026-02-30": not a date: use YYYY-MM-DD, or YYYY-MM-DD/YYYY-MM-DD`: {
			Windows: windows(good), ExceptDates: []string{"2026-02-01/2026-02-30"},
		},
		`spec.exceptDates[0] "24.12.2026": not a date: use YYYY-MM-DD, or YYYY-MM-DD/YYYY-MM-DD`: {ExceptDates: []string{"24.12.2026"}},
		`spec.exceptDates[0] "2026-12-24/2026-12-23": the last date is before the first`: {
			ExceptDates: []string{"2026-12-24/2026-12-23"},
		},
	}
	const fields = `use minute, hour, day of month, month and day of week, such as "0 2 * * SUN"`
	for schedule, problem := range map[string]string{
		"":                       "has 0 fields instead of 5: " + fields,
		"@daily":                 "has 1 fields instead of 5: " + fields,
		"@every 1h":              "has 2 fields instead of 5: " + fields,
		"0 2 * *":                "has 4 fields instead of 5: " + fields,
		"0 0 2 * * *":            "has 6 fields instead of 5: " + fields,
		"TZ=UTC 0 2 * * *":       "must not contain a time zone: use timeZone",
		"CRON_TZ=UTC 0 2 * * *":  "must not contain a time zone: use timeZone",
		"60 2 * * *":             `minute: end of range (60) above maximum (59): "60"`,
		"0 24 * * *":             `hour: end of range (24) above maximum (23): "24"`,
		"0 2 0 * *":              `day of month: beginning of range (0) below minimum (1): "0"`,
		"0 2 * 13 *":             `month: end of range (13) above maximum (12): "13"`,
		"0 2 * * 8":              `day of week: end of range (8) above maximum (7): "8"`,
		"0 2 * * SUNDAY":         `day of week: failed to parse int from "sunday": strconv.Atoi: parsing "sunday": invalid syntax`,
		"0 */0 * * *":            `hour: step of range must be a positive number: "*/0"`,
		"0 2 L * *":              `day of month: unsupported extension in "l": use numbers`,
		"0 2 15W * *":            `day of month: unsupported extension in "15w": use numbers`,
		"0 2 * * SUN#2":          `day of week: unsupported extension in "sun#2": use numbers`,
		"H 2 * * *":              `minute: failed to parse int from "h": strconv.Atoi: parsing "h": invalid syntax`,
		"0 , * * *":              `hour: empty item in ","`,
		"0 2 * * MON,,TUE":       `day of week: empty item in "mon,,tue"`,
		"0 2 * * FRI-MON/2":      `day of week: step in "fri-mon/2": list the days instead, such as MON,WED,FRI`,
		"0 2 * * */2,1/2":        `day of week: step in "*/2,1/2": list the days instead, such as MON,WED,FRI`,
		"\u00a00 2 * * * \u2003": "", // spaces of Unicode separate fields
		"0 2 1-7,*/2 JAN-MAR ?":  "",
		"0 2 * * */2":            "",
	} {
		spec := v1alpha1.NodeDisruptionBudgetSpec{Windows: windows(opening(schedule, hour)), TimeZone: berlin}
		if problem == "" {
			parse(t, &spec)
			continue
		}
		tests[`spec.windows[0].schedule "`+schedule+`": `+problem] = spec
	}
	for want, spec := range tests {
		s, err := window.Parse(&spec)
		if err == nil || err.Error() != want || s != nil {
			t.Errorf("Parse() = %v\n%v, want\n%s", s, err, want)
		}
	}
}
