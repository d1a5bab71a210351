// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package requirements checks what NodeDisruptionBudgets require (spec.requirements): alerts of an Alertmanager, and expressions about
// objects. It makes no decisions: the answers go to the planner of the budgets, which decides what an error or an old answer means.
//
// Addresses, expressions and objects are chosen by users who may write NodeDisruptionBudgets, and the responses by others. So objects are
// read with a ServiceAccount of their own, addresses must be allowed, no credentials are sent to them, and all checks share limits of time
// and memory. What a check reports is a problem of this package, or the name of an alert: never an error or a value of others.
package requirements

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/manager/claims"
	"github.com/everynode/everynode/internal/manager/loop"
	"github.com/everynode/everynode/internal/nodebudget/budget"
	"github.com/everynode/everynode/internal/outcome"
)

const (
	// checkTimeout limits the time of a check.
	checkTimeout = 5 * time.Second

	// parallelBudgets is how many budgets are checked at the same time. With more, one that is slow delays the others.
	parallelBudgets = 16

	// parallelRequests is how many requests are open at the same time, and with them responses in memory.
	parallelRequests = 32

	// maxMessage limits a message, in bytes.
	maxMessage = 400
)

// Checker checks the requirements of each NodeDisruptionBudget repeatedly.
type Checker struct {
	// Budgets reads NodeDisruptionBudgets from the manager's cache.
	Budgets client.Reader
	// Answers is told the results.
	Answers *claims.Registry
	// Every replaces budget.CheckEvery if it is not zero.
	Every time.Duration
	// Now is the clock.
	Now func() time.Time

	account  account
	services func(context.Context) ([]netip.Prefix, error)
	allowed  Addresses
	// evaluations limits what is decoded and evaluated at the same time to one response.
	requests, evaluations slots
}

// New returns a Checker. cluster is the configuration of the manager, and services reads ServiceCIDRs.
func New(budgets client.Reader, cluster *rest.Config, services client.Reader, allowed Addresses, answers *claims.Registry, now func() time.Time) (*Checker, error) {
	as, err := newAccount(cluster)
	if err != nil {
		return nil, err
	}
	return &Checker{
		Budgets: budgets, Answers: answers, Now: now, account: as, allowed: allowed,
		services: func(ctx context.Context) ([]netip.Prefix, error) { return serviceRanges(ctx, services) },
		requests: make(slots, parallelRequests), evaluations: make(slots, 1),
	}, nil
}

// slots limits how many are in a section.
type slots chan struct{}

// enter waits for a slot, and returns what leaves it.
func (s slots) enter() (leave func()) {
	s <- struct{}{}
	return func() { <-s }
}

// SetupWithManager adds the Checker to a manager.
func (c *Checker) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("nodedisruptionbudget-requirements").
		WithOptions(loop.Options(parallelBudgets)).
		For(&v1alpha1.NodeDisruptionBudget{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(c)
}

// Reconcile checks the requirements of a budget. Those of a budget that is being deleted or has expired are not checked.
func (c *Checker) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var b v1alpha1.NodeDisruptionBudget
	if err := c.Budgets.Get(ctx, request.NamespacedName, &b); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("getting NodeDisruptionBudget %s: %w", request.Name, err)
	}
	expired := b.Spec.ExpiresAt != nil && !c.Now().Before(b.Spec.ExpiresAt.Time)
	if len(b.Spec.Requirements) == 0 || !b.DeletionTimestamp.IsZero() || expired {
		c.Answers.ForgetAnswers(request.Name)
		return ctrl.Result{}, nil
	}
	began := c.Now()
	c.Answers.SetAnswers(b.Name, c.check(ctx, &b))
	every := budget.CheckEvery
	if c.Every != 0 {
		every = c.Every
	}
	return ctrl.Result{RequeueAfter: max(time.Second, every-c.Now().Sub(began))}, nil
}

// check checks all requirements of a budget at the same time.
func (c *Checker) check(ctx context.Context, b *v1alpha1.NodeDisruptionBudget) budget.Answers {
	before := c.Answers.AnswersOf(b.Name)
	answers := budget.Answers{UID: b.UID, Generation: b.Generation, Of: make([]budget.Answer, len(b.Spec.Requirements))}
	var checks sync.WaitGroup
	for i := range b.Spec.Requirements {
		checks.Go(func() {
			a := budget.Answer{At: c.Now()}
			a.State, a.Message, a.Invalid = c.ask(ctx, &b.Spec.Requirements[i])
			if a.State == v1alpha1.RequirementUnknown {
				a.FailingSince = a.At
				if before.UID == b.UID && before.Generation == b.Generation && !before.Of[i].FailingSince.IsZero() {
					a.FailingSince = before.Of[i].FailingSince
				}
			}
			answers.Of[i] = a
		})
	}
	checks.Wait()
	return answers
}

// ask checks a requirement once.
func (c *Checker) ask(ctx context.Context, r *v1alpha1.BudgetRequirement) (state v1alpha1.RequirementState, message string, invalid bool) {
	defer c.requests.enter()()
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	var why string
	var err error
	switch {
	case r.Alerts != nil:
		why, err = c.askAlertmanager(ctx, r.Alerts)
	case r.Object != nil:
		why, err = c.askObject(ctx, r.Object)
	default:
		err = invalidf("it has neither alerts nor object")
	}
	switch {
	case err == nil && why == "":
		return v1alpha1.RequirementMet, "", false
	case err == nil:
		return v1alpha1.RequirementNotMet, line(why, maxMessage), false
	}
	var known problem
	switch {
	case errors.As(err, &known):
	case ctx.Err() != nil:
		known = problemf("no answer within %s", checkTimeout)
	default:
		known = problemf("the API server does not answer as expected: the log of the manager has the error, with --log-level=DEBUG")
		ctrl.LoggerFrom(ctx).V(1).Info("a requirement cannot be checked", "requirement", r.Name, "error", err.Error())
	}
	return v1alpha1.RequirementUnknown, line(known.message, maxMessage), known.invalid
}

// problem is why a requirement cannot be checked, in a sentence of this package.
type problem struct {
	message string
	// invalid means that only a change of the requirement helps.
	invalid bool
}

func (p problem) Error() string { return p.message }

func problemf(format string, args ...any) problem {
	return problem{message: fmt.Sprintf(format, args...)}
}

func invalidf(format string, args ...any) problem { return problem{fmt.Sprintf(format, args...), true} }

// line makes text of others safe to store and to print: one line of at most a number of bytes.
func line(s string, most int) string {
	const ellipsis = "…"
	cut := len(s) > most
	s = outcome.CleanLine(s[:min(len(s), most)])
	if !cut && len(s) <= most {
		return s
	}
	s = s[:min(len(s), most-len(ellipsis))]
	for len(s) > 0 && !utf8.ValidString(s) {
		s = s[:len(s)-1]
	}
	return strings.TrimRight(s, " ") + ellipsis
}
