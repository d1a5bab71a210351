// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
)

// opens returns a budget with a window of an hour for each schedule.
func opens(name string, schedules ...string) *v1alpha1.NodeDisruptionBudget {
	b := newBudget(name, "1")
	for _, schedule := range schedules {
		b.Spec.Windows = append(b.Spec.Windows, v1alpha1.BudgetWindow{Schedule: schedule, DurationSeconds: 3600})
	}
	return b
}

const neverWith = "are never open at the same time within a year, so no disruption of node n"

func TestBudgetsThatAreNeverOpenTogether(t *testing.T) {
	expiring := opens("b", "0 2 * * MON")
	expiring.Spec.ExpiresAt = new(metav1.NewTime(noon.Add(time.Hour)))
	audit := opens("b", "0 2 * * MON")
	audit.Spec.Enforcement = v1alpha1.BudgetReport
	christmas := newBudget("b", "1")
	christmas.Spec.ExceptDates = []string{"2026-12-20/2027-01-02"}
	for name, tt := range map[string]struct {
		budgets []*v1alpha1.NodeDisruptionBudget
		want    map[string]string // the others that the message names, by the budgets that are Stalled
	}{
		"one":              {[]*v1alpha1.NodeDisruptionBudget{opens("a", "0 2 * * SUN")}, nil},
		"a common window":  {[]*v1alpha1.NodeDisruptionBudget{opens("a", "0 2 * * SUN"), opens("b", "0 2 * * MON", "30 2 * * SUN")}, nil},
		"different days":   {[]*v1alpha1.NodeDisruptionBudget{opens("a", "0 2 * * SUN"), opens("b", "0 2 * * MON")}, map[string]string{"a": "b", "b": "a"}},
		"different nodes":  {[]*v1alpha1.NodeDisruptionBudget{inPool("x", opens("a", "0 2 * * SUN")), inPool("y", opens("b", "0 2 * * MON"))}, nil},
		"one that expires": {[]*v1alpha1.NodeDisruptionBudget{opens("a", "0 2 * * SUN"), expiring}, nil},
		"one that reports": {[]*v1alpha1.NodeDisruptionBudget{opens("a", "0 2 * * SUN"), audit}, nil},
		"excepted dates":   {[]*v1alpha1.NodeDisruptionBudget{opens("a", "0 2 24 12 *"), christmas}, map[string]string{"a": "b", "b": "a"}},
		"one that is open with both": {
			[]*v1alpha1.NodeDisruptionBudget{opens("a", "0 2 * * SUN"), opens("b", "0 2 * * *"), opens("c", "0 2 * * MON")},
			map[string]string{"a": "c", "c": "a"},
		},
		"each two, but not all three": {
			[]*v1alpha1.NodeDisruptionBudget{opens("a", "0 2 * * *", "0 4 * * *"), opens("b", "0 2 * * *", "0 6 * * *"), opens("c", "0 4 * * *", "0 6 * * *")},
			map[string]string{"a": "b, c", "b": "a, c", "c": "a, b"},
		},
		"some of the nodes": {
			[]*v1alpha1.NodeDisruptionBudget{opens("a", "0 2 * * SUN"), inPool("y", opens("b", "0 2 * * MON"))},
			map[string]string{"a": "b", "b": "a"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := settled(t, 4, tt.budgets...)
			got := map[string]string{}
			for i, st := range Next(&f.Input).Statuses {
				c := meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionStalled)
				if c.Status != metav1.ConditionTrue {
					continue
				}
				own, message, _ := strings.Cut(c.Message, " and ")
				others, rest, _ := strings.Cut(message, " are ")
				if c.Reason != v1alpha1.ReasonWindowsNeverOverlap || own != "NodeDisruptionBudget "+tt.budgets[i].Name ||
					!strings.HasPrefix("are "+rest, neverWith) {
					t.Errorf("%s: %s", c.Reason, c.Message)
				}
				got[tt.budgets[i].Name] = strings.ReplaceAll(others, "NodeDisruptionBudget ", "")
			}
			if diff := cmp.Diff(tt.want, got); diff != "" && len(tt.want)+len(got) > 0 {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestCommonWindowsAreNotCalculatedAgain : a plan believes the plan before, until a spec or a time changes the result.
func TestCommonWindowsAreNotCalculatedAgain(t *testing.T) {
	for name, tt := range map[string]struct {
		known  Common
		change func(*fixture)
		again  bool
	}{
		"none, a moment before":          {Common{Found: noon.Add(-time.Hour)}, nil, false},
		"none, a day before":             {Common{Found: noon.Add(-24 * time.Hour)}, nil, true},
		"a time that comes":              {Common{At: noon.Add(time.Hour), Found: noon.Add(-48 * time.Hour)}, nil, false},
		"a time that has passed":         {Common{At: noon.Add(-time.Hour), Found: noon.Add(-48 * time.Hour)}, nil, true},
		"calculated by a clock ahead":    {Common{Found: noon.Add(time.Hour)}, nil, true},
		"another spec":                   {Common{Found: noon}, func(f *fixture) { f.Budgets[1].Generation++ }, true},
		"another budget with that name":  {Common{Found: noon}, func(f *fixture) { f.Budgets[1].UID = "other" }, true},
		"a change of no spec is nothing": {Common{Found: noon}, func(f *fixture) { f.cordon("n1") }, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := settled(t, 4, opens("a", "0 2 * * SUN"), opens("b", "0 2 * * *"))
			f.Common = Next(&f.Input).Common
			if len(f.Common) != 1 {
				t.Fatalf("%d results", len(f.Common))
			}
			for key := range f.Common {
				f.Common[key] = tt.known
			}
			before := maps.Clone(f.Common)
			if tt.change != nil {
				tt.change(f)
			}
			after := Next(&f.Input).Common
			if got := !maps.Equal(after, before); got != tt.again || len(after) != 1 {
				t.Errorf("calculated again: %t, %v", got, after)
			}
		})
	}
}
