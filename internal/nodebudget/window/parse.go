// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package window

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // the image has no time zone database

	"github.com/netresearch/go-cron"

	"github.com/everynode/everynode/api/v1alpha1"
)

// Bounds of durationSeconds, as in the CustomResourceDefinition.
const minDurationSeconds, maxDurationSeconds = 60, 7 * 24 * 60 * 60

// cronFields are the names of the fields of a schedule.
var cronFields = []string{"minute", "hour", "day of month", "month", "day of week"}

// cronParser reads schedules as a CronJob does: if both days are restricted, either of them matches.
var cronParser = cron.MustNewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.DowOrDom).WithMaxSearchYears(10)

// Parse returns the schedule of a budget, or an error that names the field that cannot be used. Without windows and excepted dates, the
// schedule is always open. A schedule that never matches, such as "0 0 30 2 *", is not an error.
func Parse(spec *v1alpha1.NodeDisruptionBudgetSpec) (*Schedule, error) {
	zone, err := Zone(spec)
	if err != nil {
		return nil, err
	}
	except, err := parseDates(spec.ExceptDates, zone)
	if err != nil {
		return nil, err
	}
	if len(spec.Windows) == 0 {
		return &Schedule{windows: []window{{except: except}}, except: except}, nil
	}
	s := &Schedule{except: except}
	for i := range spec.Windows {
		w, err := parseWindow(fmt.Sprintf("spec.windows[%d]", i), &spec.Windows[i], zone)
		if err != nil {
			return nil, err
		}
		w.except = except
		s.windows = append(s.windows, w)
	}
	return s, nil
}

func parseWindow(path string, spec *v1alpha1.BudgetWindow, zone *time.Location) (window, error) {
	if spec.DurationSeconds < minDurationSeconds || spec.DurationSeconds > maxDurationSeconds {
		return window{}, fmt.Errorf("%s.durationSeconds %d: must be %d to %d", path, spec.DurationSeconds, minDurationSeconds, maxDurationSeconds)
	}
	times, err := parseCron(spec.Schedule, zone)
	if err != nil {
		return window{}, fmt.Errorf("%s.schedule %q: %w", path, spec.Schedule, err)
	}
	return window{times: times, length: time.Duration(spec.DurationSeconds) * time.Second}, nil
}

// Zone returns the time zone of a budget, which is UTC by default, or an error if it is unknown.
func Zone(spec *v1alpha1.NodeDisruptionBudgetSpec) (*time.Location, error) {
	zone, err := time.LoadLocation(spec.TimeZone) // UTC if the name is empty
	if err != nil || zone == time.Local {
		return nil, fmt.Errorf("spec.timeZone %q: unknown time zone: use a name of the IANA time zone database, such as Europe/Berlin", spec.TimeZone)
	}
	return zone, nil
}

func parseCron(schedule string, zone *time.Location) (*times, error) {
	if strings.Contains(schedule, "=") {
		return nil, errors.New("must not contain a time zone: use timeZone")
	}
	fields := strings.Fields(strings.ToLower(schedule)) // cron takes the H of THU for an extension
	if len(fields) != len(cronFields) {
		return nil, fmt.Errorf("has %d fields instead of 5: use minute, hour, day of month, month and day of week, such as \"0 2 * * SUN\"", len(fields))
	}
	for i, field := range fields {
		if err := checkField(i, field); err != nil {
			return nil, fmt.Errorf("%s: %w", cronFields[i], err)
		}
	}
	parsed, err := cronParser.Parse(strings.Join(fields, " "))
	clock, ok := parsed.(*cron.SpecSchedule)
	if err != nil || !ok {
		return nil, fmt.Errorf("not a schedule: %w", err)
	}
	clock.Location = time.UTC
	const hours = 1<<24 - 1
	return &times{clock: clock, zone: zone, everyHour: fields[1][0] == '*' || clock.Hour&hours == hours}, nil
}

// checkField returns an error for a field that the package cron does not accept, or reads differently than a CronJob: it takes a step
// of the days of the week beyond Saturday.
func checkField(i int, field string) error {
	items := strings.Split(field, ",")
	step := func(item string) bool { return strings.Contains(item, "/") && item[0] != '*' }
	switch {
	case slices.Contains(items, ""):
		return fmt.Errorf("empty item in %q", field)
	case i == 2 && strings.ContainsAny(field, "lw"), strings.Contains(field, "#"):
		return fmt.Errorf("unsupported extension in %q: use numbers", field)
	case i == 4 && slices.ContainsFunc(items, step):
		return fmt.Errorf("step in %q: list the days instead, such as MON,WED,FRI", field)
	}
	alone := []string{"*", "*", "*", "*", "*"}
	alone[i] = field
	_, err := cronParser.Parse(strings.Join(alone, " "))
	return err
}
