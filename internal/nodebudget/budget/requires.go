// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/plural"
)

const (
	// CheckEvery is how often each requirement is checked.
	CheckEvery = 15 * time.Second

	// AnswersLast is how long an answer counts after its check began. Then it is not known whether the requirement is met.
	AnswersLast = 3 * CheckEvery

	// StalledAfter is how long a requirement cannot be checked before its budget is Stalled.
	StalledAfter = 5 * time.Minute
)

// Answers are the results of the last checks of the requirements of a budget.
type Answers struct {
	// UID and Generation are those of the budget whose requirements were checked. The answers count for these only.
	UID        types.UID
	Generation int64
	// Of are in the order of spec.requirements.
	Of []Answer
}

// Answer is the result of a check of a requirement.
type Answer struct {
	State v1alpha1.RequirementState
	// Message is why the requirement is not met, or cannot be checked.
	Message string
	// At is when the check began.
	At time.Time
	// FailingSince is when the first check without a result began, of those since the last result; zero if there is a result.
	FailingSince time.Time
	// Invalid is true if the requirement cannot be used, so that only a change of it helps.
	Invalid bool
}

// SaysAsMuchAs reports whether a new check has the same result as an earlier one that is not too old.
func (a Answers) SaysAsMuchAs(earlier Answers) bool {
	return a.UID == earlier.UID && a.Generation == earlier.Generation && slices.EqualFunc(a.Of, earlier.Of, func(is, was Answer) bool {
		timely := is.At.Before(was.At.Add(AnswersLast))
		is.At = was.At
		return timely && is == was
	})
}

// readAnswers sets what is known of the requirements of a budget.
func (r *rule) readAnswers(known Answers, now time.Time) {
	for i := range r.Spec.Requirements {
		a := Answer{State: v1alpha1.RequirementUnknown, Message: "it has not been checked yet"}
		if known.UID == r.UID && known.Generation == r.Generation && i < len(known.Of) {
			a = known.Of[i].at(now)
		}
		if a.Invalid {
			r.invalid = cmp.Or(r.invalid, "requirement "+r.Spec.Requirements[i].Name+": "+a.Message)
		}
		r.answers = append(r.answers, a)
	}
}

// at returns what an answer says at a time: one that is too old says nothing.
func (a Answer) at(now time.Time) Answer {
	if now.Before(a.At.Add(AnswersLast)) {
		return a
	}
	return Answer{
		State: v1alpha1.RequirementUnknown, At: a.At, FailingSince: a.At,
		Message: "the manager has not checked it since " + a.At.UTC().Format(time.RFC3339),
	}
}

// changesAt returns when time alone changes what the answer means; zero if it does not.
func (a Answer) changesAt(now time.Time) time.Time {
	switch stalled := a.FailingSince.Add(StalledAfter); {
	case a.State == v1alpha1.RequirementMet:
		return a.At.Add(AnswersLast)
	case !a.FailingSince.IsZero() && now.Before(stalled):
		return stalled
	}
	return time.Time{}
}

// unmet returns why the requirements of a budget close it, as a reason and a sentence; "" if all are met. A requirement that cannot be
// checked is named before one that is not met, and one that fails for long before others.
func (r *rule) unmet() (reason, message string) {
	worst, others := -1, -1
	for i, a := range r.answers {
		if a.State == v1alpha1.RequirementMet {
			continue
		}
		others++
		if worst < 0 || compareFailures(a, r.answers[worst]) < 0 {
			worst = i
		}
	}
	if worst < 0 {
		return "", ""
	}
	reason, is := v1alpha1.ReasonRequirementNotMet, "is not met"
	if r.answers[worst].State != v1alpha1.RequirementNotMet {
		reason, is = v1alpha1.ReasonRequirementUnknown, "cannot be checked"
	}
	message = fmt.Sprintf("allows no disruption while requirement %s %s (%s)", r.Spec.Requirements[worst].Name, is, r.answers[worst].Message)
	if others > 0 {
		message += ", and " + plural.Count(others, "more requirement")
	}
	return reason, message
}

func compareFailures(a, b Answer) int {
	rank := func(a Answer) int {
		switch {
		case a.State == v1alpha1.RequirementNotMet:
			return 2
		case a.FailingSince.IsZero():
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), a.FailingSince.Compare(b.FailingSince))
}

// failsLong reports whether a requirement cannot be checked for so long that the budget is Stalled.
func (r *rule) failsLong(now time.Time) bool {
	return slices.ContainsFunc(r.answers, func(a Answer) bool {
		return !a.FailingSince.IsZero() && !now.Before(a.FailingSince.Add(StalledAfter))
	})
}

// requirements are the states of the requirements for the status.
func (s *summary) requirements(before *v1alpha1.NodeDisruptionBudgetStatus) []v1alpha1.BudgetRequirementStatus {
	if s.rule.expired {
		return nil
	}
	var list []v1alpha1.BudgetRequirementStatus
	for i, a := range s.rule.answers {
		is := v1alpha1.BudgetRequirementStatus{
			Name: s.rule.Spec.Requirements[i].Name, State: a.State, Since: metav1.NewTime(s.in.Now), Message: a.Message,
		}
		for _, was := range before.Requirements {
			if was.Name == is.Name && was.State == is.State {
				is.Since = was.Since
			}
		}
		list = append(list, is)
	}
	return list
}

// ToldAnswers returns what the statuses of budgets say about their requirements, for a client that does not check them.
func ToldAnswers(budgets []*v1alpha1.NodeDisruptionBudget, now time.Time) map[string]Answers {
	told := map[string]Answers{}
	for _, b := range budgets {
		if b.Status.ObservedGeneration != b.Generation {
			continue
		}
		answers := Answers{UID: b.UID, Generation: b.Generation}
		for i := range b.Spec.Requirements {
			a := Answer{State: v1alpha1.RequirementUnknown, At: now, Message: "its status does not say"}
			for _, is := range b.Status.Requirements {
				if is.Name == b.Spec.Requirements[i].Name {
					a.State, a.Message = is.State, is.Message
				}
			}
			answers.Of = append(answers.Of, a)
		}
		told[b.Name] = answers
	}
	return told
}
