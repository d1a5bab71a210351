// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package claims is what the controllers of NodeJobs and of NodeDisruptionBudgets tell each other within a manager. Nothing of it is
// stored: a NodeJob that continues after a restart reports its nodes again, and no node gets its seat back before all NodeJobs have
// reported.
package claims

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/nodebudget/budget"
	"github.com/everynode/everynode/internal/nodecondition"
)

// Registry is what is known of NodeJobs and budgets. The zero Registry is not usable: see New.
type Registry struct {
	mu sync.Mutex
	// reports are what each NodeJob has reported last, by its UID.
	reports map[types.UID]Report
	// claimed are the nodes that a NodeJob has claimed for runs that have not ended, by the UID of the node.
	claimed map[types.UID]types.UID
	// stances are what the budgets allow; nil before the first plan.
	stances map[types.UID]hold.Stance
	// answers are what is known of the requirements of budgets, by the name of the budget.
	answers map[string]budget.Answers
	// returning are the nodes whose seats are being created.
	returning map[types.UID]bool

	// evictions limits the seats that are evicted at the same time.
	evictions *semaphore.Weighted

	// onReport, onStances and onDisruptions are listeners. They are called without the lock, because they may read the registry.
	onReport, onStances, onDisruptions func()
}

// Report is what a NodeJob does on nodes.
type Report struct {
	// Name is the NodeJob in messages, such as "NodeJob node-setup/no-thp".
	Name string
	// Holds are the nodes that it disrupts or prepares for that, and Claims those of them whose claims it still needs. Waits are those
	// that it would disrupt if the budgets allowed it, and since when.
	Holds  map[types.UID]bool
	Claims map[types.UID]bool
	Waits  map[types.UID]time.Time
	// IgnoresWindows are the nodes on which it ignores the windows of budgets.
	IgnoresWindows map[types.UID]bool
	// Closed are the nodes on which it waits only because a budget is closed. Its task disrupts them if Disrupts is true.
	Closed   map[types.UID]bool
	Disrupts bool
	// Disruptions are how far it is on the nodes of Holds.
	Disruptions map[types.UID]nodecondition.Disruption
	// Published are the conditions that it publishes on nodes.
	Published map[types.UID][]nodecondition.Published
}

// New returns an empty Registry.
func New() *Registry {
	return &Registry{
		reports: map[types.UID]Report{}, claimed: map[types.UID]types.UID{}, answers: map[string]budget.Answers{},
		returning: map[types.UID]bool{}, evictions: semaphore.NewWeighted(maxEvictions),
	}
}

// OnReport sets what is called when what NodeJobs do has changed.
func (r *Registry) OnReport(f func()) { r.listen(&r.onReport, f) }

// OnStances sets what is called when what budgets allow has changed.
func (r *Registry) OnStances(f func()) { r.listen(&r.onStances, f) }

// OnDisruptions sets what is called when the disruptions or the published conditions of nodes have changed, or may be known now.
func (r *Registry) OnDisruptions(f func()) { r.listen(&r.onDisruptions, f) }

func (r *Registry) listen(listener *func(), f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*listener = f
}

// Report stores what a NodeJob does after a pass. It ends the claims that the NodeJob does not need any more.
func (r *Registry) Report(job types.UID, report Report) {
	if r == nil {
		return
	}
	r.mu.Lock()
	before, known := r.reports[job]
	changed := !known || !sameForBudgets(&before, &report)
	disrupts := !known || !maps.Equal(before.Disruptions, report.Disruptions) || !maps.EqualFunc(before.Published, report.Published, slices.Equal)
	onReport, onDisruptions := r.onReport, r.onDisruptions
	r.reports[job] = report
	r.mustGetSeats(before.Holds, report.Holds)
	for node, claimant := range r.claimed {
		if claimant == job && !report.Claims[node] {
			delete(r.claimed, node)
			changed = true
		}
	}
	r.mu.Unlock()
	call(changed, onReport)
	call(disrupts, onDisruptions)
}

// call calls a listener, if there is one.
func call(changed bool, listener func()) {
	if changed && listener != nil {
		listener()
	}
}

// sameForBudgets reports whether two reports of a NodeJob mean the same for budgets.
func sameForBudgets(a, b *Report) bool {
	return a.Name == b.Name && maps.Equal(a.Holds, b.Holds) && maps.EqualFunc(a.Waits, b.Waits, time.Time.Equal) &&
		maps.Equal(a.IgnoresWindows, b.IgnoresWindows) && maps.Equal(a.Closed, b.Closed) && a.Disrupts == b.Disrupts
}

// mustGetSeats has nodes that a NodeJob no longer holds get their seats before another one takes them. What the budgets said before is
// for an unavailable node. The caller has locked mu.
func (r *Registry) mustGetSeats(before, now map[types.UID]bool) {
	cloned := false
	for node := range before {
		stance, known := r.stances[node]
		if now[node] || !known || stance.Seat != "" || !stance.Allowed {
			continue
		}
		if !cloned {
			r.stances, cloned = maps.Clone(r.stances), true // others read the old one
		}
		r.stances[node] = hold.Stance{Message: "another NodeJob has just ended its work on the node, which first gets its seat back"}
	}
}

// Forget removes what a NodeJob that does not exist any more has reported.
func (r *Registry) Forget(job types.UID) {
	if r == nil {
		return
	}
	r.mu.Lock()
	_, known := r.reports[job]
	delete(r.reports, job)
	maps.DeleteFunc(r.claimed, func(_, claimant types.UID) bool { return claimant == job })
	onReport, onDisruptions := r.onReport, r.onDisruptions
	r.mu.Unlock()
	call(known, onReport)
	call(known, onDisruptions)
}

// Claim keeps the seat of a node from coming back, before a NodeJob evicts it. It returns false if the seat is just being created, or
// another NodeJob has claimed the node.
func (r *Registry) Claim(job, node types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if other, claimed := r.claimed[node]; r.returning[node] || claimed && other != job {
		return false
	}
	r.claimed[node] = job
	return true
}

// Unclaim gives a claim back whose eviction was refused.
func (r *Registry) Unclaim(job, node types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.claimed[node] == job {
		delete(r.claimed, node)
	}
}

// maxEvictions is how many seats are evicted at the same time. Their evictions conflict with each other, and with the disruption
// controller, which is why more than one is useful: while one waits to be repeated, another may succeed.
const maxEvictions = 4

// LimitEvictions calls evict, which evicts a seat, as soon as fewer than maxEvictions others are evicted. It returns the error of ctx if
// that ends first.
func (r *Registry) LimitEvictions(ctx context.Context, evict func() error) error {
	if err := r.evictions.Acquire(ctx, 1); err != nil {
		return fmt.Errorf("waiting for the evictions of other seats: %w", err)
	}
	defer r.evictions.Release(1)
	return evict()
}

// Claimed are the nodes that a NodeJob has claimed.
func (r *Registry) Claimed(job types.UID) map[types.UID]bool {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	nodes := map[types.UID]bool{}
	for node, claimant := range r.claimed {
		if claimant == job {
			nodes[node] = true
		}
	}
	return nodes
}

// Stances returns what budgets allow, and false if the manager does not know it yet.
func (r *Registry) Stances() (map[types.UID]hold.Stance, bool) {
	if r == nil {
		return nil, true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stances, r.stances != nil
}

// SetStances stores what budgets allow.
func (r *Registry) SetStances(stances map[types.UID]hold.Stance) {
	r.mu.Lock()
	changed := r.stances == nil || !maps.Equal(r.stances, stances)
	r.stances = stances
	onStances := r.onStances
	r.mu.Unlock()
	call(changed, onStances)
}

// Answers returns what is known of the requirements of budgets, by the name of the budget.
func (r *Registry) Answers() map[string]budget.Answers {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.answers)
}

// AnswersOf returns what is known of the requirements of a budget.
func (r *Registry) AnswersOf(name string) budget.Answers {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.answers[name]
}

// SetAnswers stores what is known of the requirements of a budget. Budgets and NodeJobs are planned again if it has changed, or what was
// known before was too old.
func (r *Registry) SetAnswers(name string, answers budget.Answers) {
	r.mu.Lock()
	changed := !answers.SaysAsMuchAs(r.answers[name])
	r.answers[name] = answers
	onReport, onStances := r.onReport, r.onStances
	r.mu.Unlock()
	call(changed, onReport)
	call(changed, onStances)
}

// ForgetAnswers removes what is known of the requirements of a budget that need not be met any more.
func (r *Registry) ForgetAnswers(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.answers, name)
}

// Reported reports whether a NodeJob has reported.
func (r *Registry) Reported(job types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, known := r.reports[job]
	return known
}

// Holds returns the nodes that NodeJobs disrupt or have claimed, with their names, and Waits those on which they wait.
func (r *Registry) Holds() map[types.UID]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	holds := map[types.UID]string{}
	for _, report := range r.reports {
		for node := range report.Holds {
			if name, other := holds[node]; !other || report.Name < name {
				holds[node] = report.Name
			}
		}
	}
	for node, job := range r.claimed {
		holds[node] = r.reports[job].Name
	}
	return holds
}

// Disruptions returns what NodeJobs do on nodes, sorted by NodeJob.
func (r *Registry) Disruptions() map[types.UID][]nodecondition.Disruption {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[types.UID][]nodecondition.Disruption{}
	for _, report := range r.reports {
		for node, disruption := range report.Disruptions {
			all[node] = append(all[node], disruption)
		}
	}
	for _, of := range all {
		slices.SortFunc(of, func(a, b nodecondition.Disruption) int { return strings.Compare(a.NodeJob, b.NodeJob) })
	}
	return all
}

// Published returns the conditions that NodeJobs publish on nodes, sorted by NodeJob.
func (r *Registry) Published() map[types.UID][]nodecondition.Published {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[types.UID][]nodecondition.Published{}
	for _, report := range r.reports {
		for node, published := range report.Published {
			all[node] = append(all[node], published...)
		}
	}
	for _, of := range all {
		slices.SortFunc(of, func(a, b nodecondition.Published) int { return strings.Compare(a.NodeJob, b.NodeJob) })
	}
	return all
}

// Waits returns the nodes on which NodeJobs wait for a budget.
func (r *Registry) Waits() map[types.UID]budget.Wait {
	r.mu.Lock()
	defer r.mu.Unlock()
	waits := map[types.UID]budget.Wait{}
	for _, report := range r.reports {
		for node, since := range report.Waits {
			w, other := waits[node]
			ignores := w.IgnoresWindows || report.IgnoresWindows[node]
			if !other || since.Before(w.Since) || since.Equal(w.Since) && report.Name < w.By {
				w.By, w.Since = report.Name, since
			}
			w.IgnoresWindows = ignores
			waits[node] = w
		}
	}
	return waits
}

// Closed returns the NodeJobs that wait on nodes only because a budget is closed, sorted by name.
func (r *Registry) Closed() map[types.UID][]budget.ClosedWait {
	r.mu.Lock()
	defer r.mu.Unlock()
	jobs := map[types.UID][]budget.ClosedWait{}
	for _, report := range r.reports {
		for node := range report.Closed {
			jobs[node] = append(jobs[node], budget.ClosedWait{By: report.Name, Disrupts: report.Disrupts})
		}
	}
	for _, waits := range jobs {
		slices.SortFunc(waits, func(a, b budget.ClosedWait) int { return strings.Compare(a.By, b.By) })
	}
	return jobs
}

// Return calls create, which creates the seat of a node, unless a NodeJob holds the node. Meanwhile no NodeJob can claim it.
func (r *Registry) Return(node types.UID, create func() error) error {
	if !r.beginReturn(node) {
		return nil
	}
	defer r.endReturn(node)
	return create()
}

func (r *Registry) beginReturn(node types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, claimed := r.claimed[node]; claimed {
		return false
	}
	for _, report := range r.reports {
		if report.Holds[node] {
			return false
		}
	}
	r.returning[node] = true
	return true
}

func (r *Registry) endReturn(node types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.returning, node)
}
