// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/nodebudget/window"
)

// noCommonFor is how long it is believed that schedules have no common window within a year.
const noCommonFor = 24 * time.Hour

// Common is when the windows of several budgets are open at the same time.
type Common struct {
	// At is the next such time; zero if there is none within a year. Found is when it was calculated.
	At, Found time.Time
}

// holds reports whether the result still holds.
func (c Common) holds(now time.Time) bool {
	if c.At.IsZero() {
		return !now.Before(c.Found) && now.Before(c.Found.Add(noCommonFor))
	}
	return !now.Before(c.Found) && !now.After(c.At)
}

// apart are other budgets of a node that are never open at the same time as a budget.
type apart struct {
	others []*rule
	node   string
}

// findApart finds the budgets because of which no disruption of a node can ever begin. All members of a group have the same schedules.
func (p *planner) findApart() {
	p.plan.Common = map[string]Common{}
	for _, g := range p.groups {
		if len(g.members) == 0 {
			continue // its nodes have just joined
		}
		rules := slices.DeleteFunc(slices.Clone(g.members[0].rules), func(r *rule) bool { return !r.hasLastingSchedule() })
		if p.openTogether(rules) {
			continue
		}
		rules = p.fewestApart(rules)
		for _, r := range rules {
			if p.apart[r] == nil {
				p.apart[r] = &apart{others: without(rules, r), node: g.members[0].Name}
			}
		}
	}
}

// hasLastingSchedule reports whether a budget has windows or excepted dates, and no end. Specs that never allow anything are reported for
// themselves.
func (r *rule) hasLastingSchedule() bool {
	return r.permanent() && r.invalid == "" && !r.neverOpens() && r.Spec.ExpiresAt == nil && len(r.Spec.Windows)+len(r.Spec.ExceptDates) > 0
}

// openTogether reports whether budgets are open at the same time within a year. It calculates this only if no earlier plan has.
func (p *planner) openTogether(rules []*rule) bool {
	if len(rules) < 2 {
		return true
	}
	var key strings.Builder
	schedules := make([]*window.Schedule, 0, len(rules))
	for _, r := range rules {
		fmt.Fprintf(&key, "%s/%s/%d\n", r.Name, r.UID, r.Generation)
		schedules = append(schedules, r.schedule)
	}
	common, known := p.plan.Common[key.String()]
	if !known {
		if common, known = p.in.Common[key.String()]; !known || !common.holds(p.in.Now) {
			common = Common{At: window.Common(schedules, p.in.Now), Found: p.in.Now}
		}
		p.plan.Common[key.String()] = common
	}
	return !common.At.IsZero()
}

// fewestApart omits the budgets without which the others are never open together either.
func (p *planner) fewestApart(rules []*rule) []*rule {
	for _, r := range slices.Clone(rules) {
		if rest := without(rules, r); !p.openTogether(rest) {
			rules = rest
		}
	}
	return rules
}

func without(rules []*rule, r *rule) []*rule {
	return slices.DeleteFunc(slices.Clone(rules), func(o *rule) bool { return o == r })
}

// closure is what the status of a budget says.
func (a *apart) closure(r *rule) *hold.Why {
	names := make([]string, 0, maxNamed+1)
	for _, o := range a.others[:min(len(a.others), maxNamed)] {
		names = append(names, "NodeDisruptionBudget "+o.Name)
	}
	if len(a.others) > maxNamed {
		names = append(names, "…")
	}
	return r.close(v1alpha1.ReasonWindowsNeverOverlap, fmt.Sprintf("and %s are never open at the same time within a year, so no disruption of "+
		"node %s begins: change windows or exceptDates of one of them, or let them select different nodes", strings.Join(names, ", "), a.node), time.Time{})
}
