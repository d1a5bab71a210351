// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
)

// requiring returns a budget that allows 2 nodes and has requirements with these names.
func requiring(names ...string) *v1alpha1.NodeDisruptionBudget {
	return with(newBudget("b", "2"), func(s *spec) {
		for _, name := range names {
			s.Requirements = append(s.Requirements, v1alpha1.BudgetRequirement{Name: name})
		}
	})
}

// answered sets what is known of the requirements of the first budget.
func (f *fixture) answered(answers ...Answer) {
	b := f.Budgets[0]
	f.Answers = map[string]Answers{b.Name: {UID: b.UID, Generation: b.Generation, Of: answers}}
}

func TestRequirements(t *testing.T) {
	const met, not, unknown = v1alpha1.RequirementMet, v1alpha1.RequirementNotMet, v1alpha1.RequirementUnknown
	old := noon.Add(-AnswersLast)
	tests := map[string]struct {
		change  func(*fixture)
		floor   string
		kind    string
		reason  string
		message string // a part
		states  []v1alpha1.RequirementState
		wake    time.Duration
	}{
		"all met": {
			func(f *fixture) {
				f.answered(Answer{State: met, At: noon}, Answer{State: met, At: noon.Add(-time.Second)})
			},
			"n1 n2 n3 n4: 2", v1alpha1.ConditionReady, v1alpha1.ReasonBudgetOpen, "2 disruptions may begin",
			[]v1alpha1.RequirementState{met, met}, AnswersLast - time.Second,
		},
		"one is not met": {
			func(f *fixture) {
				f.answered(Answer{State: met, At: noon}, Answer{State: not, At: noon, Message: "1 alert is active: Fire"})
			},
			"n1 n2 n3 n4: 4", v1alpha1.ConditionReady, v1alpha1.ReasonRequirementNotMet,
			"allows no disruption while requirement two is not met (1 alert is active: Fire): because",
			[]v1alpha1.RequirementState{met, not}, AnswersLast,
		},
		"none is met": {
			func(f *fixture) {
				f.answered(Answer{State: not, At: noon, Message: "x"}, Answer{State: not, At: noon, Message: "y"})
			},
			"n1 n2 n3 n4: 4", v1alpha1.ConditionReady, v1alpha1.ReasonRequirementNotMet,
			"requirement one is not met (x), and 1 more requirement", []v1alpha1.RequirementState{not, not}, 0,
		},
		"no answer yet": {
			func(*fixture) {},
			"n1 n2 n3 n4: 4", v1alpha1.ConditionReconciling, v1alpha1.ReasonRequirementUnknown,
			"requirement one cannot be checked (it has not been checked yet), and 1 more", []v1alpha1.RequirementState{unknown, unknown}, 0,
		},
		"too few answers": {
			func(f *fixture) { f.answered(Answer{State: met, At: noon}) },
			"n1 n2 n3 n4: 4", v1alpha1.ConditionReconciling, v1alpha1.ReasonRequirementUnknown,
			"requirement two cannot be checked (it has not been checked yet)", []v1alpha1.RequirementState{met, unknown}, AnswersLast,
		},
		"answers for an earlier spec": {
			func(f *fixture) {
				f.answered(Answer{State: met, At: noon}, Answer{State: met, At: noon})
				f.Budgets[0].Generation++
			},
			"n1 n2 n3 n4: 4", v1alpha1.ConditionReconciling, v1alpha1.ReasonRequirementUnknown,
			"has not been checked yet", []v1alpha1.RequirementState{unknown, unknown}, 0,
		},
		"answers for an earlier budget with this name": {
			func(f *fixture) {
				f.answered(Answer{State: met, At: noon}, Answer{State: met, At: noon})
				f.Budgets[0].UID = "another"
			},
			"n1 n2 n3 n4: 4", v1alpha1.ConditionReconciling, v1alpha1.ReasonRequirementUnknown,
			"has not been checked yet", []v1alpha1.RequirementState{unknown, unknown}, 0,
		},
		"an answer that is almost too old": {
			func(f *fixture) {
				f.answered(Answer{State: met, At: old.Add(time.Second)}, Answer{State: met, At: noon})
			},
			"n1 n2 n3 n4: 2", v1alpha1.ConditionReady, v1alpha1.ReasonBudgetOpen, "",
			[]v1alpha1.RequirementState{met, met}, time.Second,
		},
		"an answer that is too old": {
			func(f *fixture) { f.answered(Answer{State: met, At: old}, Answer{State: met, At: noon}) },
			"n1 n2 n3 n4: 4", v1alpha1.ConditionReconciling, v1alpha1.ReasonRequirementUnknown,
			"requirement one cannot be checked (the manager has not checked it since 2026-11-27T11:59:15Z)",
			[]v1alpha1.RequirementState{unknown, met}, AnswersLast,
		},
		"an error": {
			func(f *fixture) {
				since := noon.Add(time.Second - StalledAfter)
				f.answered(Answer{State: not, At: noon}, Answer{State: unknown, At: noon, FailingSince: since, Message: "503"})
			},
			"n1 n2 n3 n4: 4", v1alpha1.ConditionReconciling, v1alpha1.ReasonRequirementUnknown,
			"requirement two cannot be checked (503), and 1 more requirement", []v1alpha1.RequirementState{not, unknown}, time.Second,
		},
		"errors for 5 minutes": {
			func(f *fixture) {
				f.answered(Answer{State: unknown, At: noon, FailingSince: noon, Message: "404"},
					Answer{State: unknown, At: noon, FailingSince: noon.Add(-StalledAfter), Message: "503"})
			},
			"n1 n2 n3 n4: 4", v1alpha1.ConditionStalled, v1alpha1.ReasonRequirementUnknown,
			"requirement two cannot be checked (503), and 1 more requirement", []v1alpha1.RequirementState{unknown, unknown}, StalledAfter,
		},
		"errors for 5 minutes, outside of the windows": {
			func(f *fixture) {
				f.Budgets[0].Spec.Windows = onSundays
				f.answered(Answer{State: met, At: noon},
					Answer{State: unknown, At: noon, FailingSince: noon.Add(-StalledAfter), Message: "503"})
			},
			"n1 n2 n3 n4: 4", v1alpha1.ConditionStalled, v1alpha1.ReasonRequirementUnknown,
			"requirement two cannot be checked (503)", []v1alpha1.RequirementState{met, unknown}, AnswersLast,
		},
		"one that cannot be used": {
			func(f *fixture) {
				f.answered(Answer{State: met, At: noon},
					Answer{State: unknown, At: noon, FailingSince: noon, Message: "object.expression: syntax error", Invalid: true})
			},
			"n1 n2 n3 n4: 4", v1alpha1.ConditionStalled, v1alpha1.ReasonInvalidSpec,
			"cannot be used, so it allows nothing: requirement two: object.expression: syntax error",
			[]v1alpha1.RequirementState{met, unknown}, AnswersLast,
		},
		"met, and outside of the windows": {
			func(f *fixture) {
				f.Budgets[0].Spec.Windows = onSundays
				f.answered(Answer{State: met, At: noon}, Answer{State: met, At: noon})
			},
			"n1 n2 n3 n4: 4", v1alpha1.ConditionReady, v1alpha1.ReasonWindowClosed, "next window",
			[]v1alpha1.RequirementState{met, met}, AnswersLast,
		},
		"expired": {
			func(f *fixture) {
				f.Budgets[0].Spec.ExpiresAt = new(metav1.NewTime(noon))
				f.answered(Answer{State: not, At: noon}, Answer{State: not, At: noon})
			},
			"", v1alpha1.ConditionReady, v1alpha1.ReasonExpired, "no effect", nil, 0,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := settled(t, 4, with(requiring("one", "two"), func(s *spec) { s.Description = "because" }))
			tt.change(f)
			f.settle(t)
			if got := strings.Join(f.floors(), ", "); got != tt.floor {
				t.Errorf("the floors are %q, want %q", got, tt.floor)
			}
			p := Next(&f.Input)
			st := &p.Statuses[0]
			for _, kind := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled} {
				c := meta.FindStatusCondition(st.Conditions, kind)
				if (c.Status == metav1.ConditionTrue) != (kind == tt.kind) || c.Reason != tt.reason ||
					!strings.Contains(c.Message, tt.message) {
					t.Errorf("%s is %+v, want the reason %s and %q", kind, c, tt.reason, tt.message)
				}
			}
			var states []v1alpha1.RequirementState
			for _, r := range st.Requirements {
				states = append(states, r.State)
			}
			if !slices.Equal(states, tt.states) {
				t.Errorf("the states are %v, want %v", states, tt.states)
			}
			woken := time.Duration(0)
			if at := p.WakeAt; !at.IsZero() && len(f.Budgets[0].Spec.Windows) == 0 {
				woken = at.Sub(noon)
			} else if !at.IsZero() {
				woken = tt.wake // the window wakes, too
			}
			if woken != tt.wake {
				t.Errorf("the next pass is in %v, want %v", woken, tt.wake)
			}
		})
	}
}

// TestRequirementsKeepTheirSince : the status says since when a requirement has its state.
func TestRequirementsKeepTheirSince(t *testing.T) {
	f := settled(t, 1, requiring("one", "two"))
	earlier := metav1.NewTime(noon.Add(-time.Hour))
	f.Budgets[0].Status.Requirements = []v1alpha1.BudgetRequirementStatus{
		{Name: "one", State: v1alpha1.RequirementNotMet, Since: earlier, Message: "before"},
		{Name: "two", State: v1alpha1.RequirementNotMet, Since: earlier, Message: "before"},
	}
	f.answered(Answer{State: v1alpha1.RequirementNotMet, At: noon, Message: "now"}, Answer{State: v1alpha1.RequirementMet, At: noon})
	want := []v1alpha1.BudgetRequirementStatus{
		{Name: "one", State: v1alpha1.RequirementNotMet, Since: earlier, Message: "now"},
		{Name: "two", State: v1alpha1.RequirementMet, Since: metav1.NewTime(noon)},
	}
	if diff := cmp.Diff(want, Next(&f.Input).Statuses[0].Requirements); diff != "" {
		t.Errorf("requirements (-want +got):\n%s", diff)
	}
}

// TestRequirementsCloseForNodeJobs : NodeJobs, and the command line, which reads statuses, obey requirements.
func TestRequirementsCloseForNodeJobs(t *testing.T) {
	f := settled(t, 1, requiring("one"))
	closes := func(answers map[string]Answers, now time.Time) string {
		t.Helper()
		if c := EffectsOf(f.Budgets, answers, 0, now).On(f.node("n1"), false).Closed; c != nil {
			return c.Message
		}
		return ""
	}
	if got := closes(nil, noon); !strings.Contains(got, "not been checked") {
		t.Errorf("without an answer: %q", got)
	}
	f.answered(Answer{State: v1alpha1.RequirementMet, At: noon})
	if got := closes(f.Answers, noon); got != "" {
		t.Errorf("met: %q", got)
	}
	if at := EffectsOf(f.Budgets, f.Answers, 0, noon).ChangesAt(); !at.Equal(noon.Add(AnswersLast)) {
		t.Errorf("the effects change at %v, want when the answer is too old", at)
	}
	if got := closes(f.Answers, noon.Add(AnswersLast)); !strings.Contains(got, "has not checked it since") {
		t.Errorf("too old: %q", got)
	}

	f.Budgets[0].Status = Next(&f.Input).Statuses[0]
	if got := closes(ToldAnswers(f.Budgets, noon), noon); got != "" {
		t.Errorf("the status says that it is met: %q", got)
	}
	f.answered(Answer{State: v1alpha1.RequirementNotMet, At: noon, Message: "a fire"})
	f.Budgets[0].Status = Next(&f.Input).Statuses[0]
	if got := closes(ToldAnswers(f.Budgets, noon), noon); !strings.Contains(got, "is not met (a fire)") {
		t.Errorf("the status says that it is not met: %q", got)
	}
	f.Budgets[0].Generation++
	if got := closes(ToldAnswers(f.Budgets, noon), noon); !strings.Contains(got, "cannot be checked") {
		t.Errorf("the status is that of an earlier spec: %q", got)
	}
}

func TestAnswersThatSayTheSame(t *testing.T) {
	before := Answers{UID: "u", Generation: 1, Of: []Answer{{State: v1alpha1.RequirementMet, At: noon}}}
	tests := map[string]struct {
		change func(*Answers)
		want   bool
	}{
		"later":                            {func(a *Answers) { a.Of[0].At = noon.Add(AnswersLast - 1) }, true},
		"when the earlier one was too old": {func(a *Answers) { a.Of[0].At = noon.Add(AnswersLast) }, false},
		"another state":                    {func(a *Answers) { a.Of[0].State = v1alpha1.RequirementNotMet }, false},
		"another message":                  {func(a *Answers) { a.Of[0].Message = "x" }, false},
		"of another generation":            {func(a *Answers) { a.Generation++ }, false},
		"of another budget":                {func(a *Answers) { a.UID = "v" }, false},
		"more":                             {func(a *Answers) { a.Of = append(a.Of, Answer{}) }, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			after := before
			after.Of = slices.Clone(before.Of)
			tt.change(&after)
			if got := after.SaysAsMuchAs(before); got != tt.want {
				t.Errorf("it says as much: %v, want %v", got, tt.want)
			}
		})
	}
}
