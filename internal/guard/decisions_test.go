// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/task"
)

// These tests find mistakes that make mutants generates and that no other test finds.

// did names the actions of a plan.
func did(p Plan) []string {
	var words []string
	for _, action := range p.Actions {
		switch a := action.(type) {
		case CreateBudget:
			words = append(words, "create the budget of "+a.Node)
		case SetBudget:
			words = append(words, "change the budget of "+a.Budget.Node)
		case CreateCheck:
			words = append(words, "check "+a.Node)
		case DeletePod:
			words = append(words, "delete "+a.Pod.Name)
		case RemoveApproval:
			words = append(words, fmt.Sprintf("remove approvals from %s, except %q, break glass %t", a.Node, a.Approved, a.BreakGlass))
		}
	}
	return words
}

func live(is bool) func(*Input) { return func(in *Input) { in.Live = is } }

func TestActionsOfAPass(t *testing.T) {
	newRequest := func(in *Input) { in.Nodes[0].Unschedulable = true }
	approval := func(in *Input) {
		in.Guard.Spec.Release.When, in.Nodes[0].Approved, in.Nodes[0].BreakGlass = v1alpha1.ReleaseWhenApproval, "storage/disks", "yes"
	}
	noneElse := func(in *Input) { in.Nodes[2].Ready = false }
	terminating := func(in *Input) { in.Checks[0].Terminating = true }
	opened := func(in *Input) { in.Budgets[0].Open, in.Budgets[0].RequestedAt = true, t0.Add(-time.Hour) }
	for name, tt := range map[string]struct {
		in   Input
		want []string
	}{
		"a release that is written now needs no write of the request":        {scene(newRequest), nil},
		"a release that is not written yet needs one":                        {scene(newRequest, live(false)), []string{"change the budget of n1"}},
		"a changed budget is restored before the release":                    {scene(newRequest, func(in *Input) { in.Budgets[0].Drifted = true }), []string{"change the budget of n1"}},
		"a budget remembers the release that has ended":                      {scene(func(in *Input) { in.Budgets[1].Ended = "uid-n2/2026-03-01T11:00:00Z" }), nil},
		"a stale view does not change the budget of a released node":         {scene(going(0, false), opened, live(false)), nil},
		"a missing budget is not created in a namespace that is not allowed": {scene(func(in *Input) { in.NotAllowed, in.Budgets = task.NamespaceNotAllowed("storage"), in.Budgets[1:] }), nil},
		"a budget is changed in a namespace that was allowed":                {scene(newRequest, live(false), func(in *Input) { in.NotAllowed = task.NamespaceNotAllowed("storage") }), []string{"change the budget of n1"}},

		"the approval of a returning node is removed": {scene(approval, going(0, true), func(in *Input) { in.Companions[0].Ready = false }), []string{`remove approvals from n1, except "", break glass true`, "change the budget of n1"}},
		"an approval for the next request stays":      {scene(approval, cordoned(0), going(0, true), noneElse, func(in *Input) { in.Companions[0].Ready, in.Nodes[0].BreakGlass = false, "" }), []string{"change the budget of n1"}},

		"a check waits until its request is stored":            {scene(newRequest, checked("", 0), live(false)), []string{"change the budget of n1"}},
		"a check starts for a stored request":                  {scene(cordoned(0), checked("", 0)), []string{"check n1"}},
		"a check without a request is deleted":                 {scene(checked(corev1.PodRunning, 0)), []string{"delete check-n1"}},
		"a check without a request is not deleted twice":       {scene(checked(corev1.PodRunning, 0), terminating), nil},
		"a running check stays":                                {scene(cordoned(0), checked(corev1.PodRunning, 0)), nil},
		"a check that succeeded stays while the node waits":    {scene(cordoned(0), checked(corev1.PodSucceeded, time.Second), noneElse), nil},
		"a check that failed recently stays":                   {scene(cordoned(0), checked(corev1.PodFailed, time.Second)), nil},
		"a check that failed long ago makes room for the next": {scene(cordoned(0), checked(corev1.PodFailed, time.Minute)), []string{"delete check-n1"}},
		"a check of a released node is no longer needed":       {scene(cordoned(0), going(0, false), opened, checked(corev1.PodSucceeded, time.Second), func(in *Input) { in.Companions = in.Companions[1:] }), []string{"change the budget of n1", "delete check-n1"}},
		"pods are deleted with the NodeGuard":                  {scene(isDeleted, func(in *Input) { in.Companions = in.Companions[:1] }), []string{"delete c-n1"}},
		"terminating pods are not deleted again with it":       {scene(isDeleted, func(in *Input) { in.Companions = in.Companions[:1]; in.Companions[0].Terminating = true }), nil},
		"pods of a node without a target are deleted":          {scene(withoutTarget), []string{"delete c-n1"}},
		"terminating pods of a node without a target are left": {scene(withoutTarget, func(in *Input) { in.Companions[0].Terminating = true }), nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, did(Next(tt.in))); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
		})
	}
}

func isDeleted(in *Input) { in.Guard.DeletionTimestamp = &metav1.Time{Time: t0} }

func withoutTarget(in *Input) {
	in.Target.Pods, in.Companions[0].Node = in.Target.Pods[1:], "gone"
	in.Nodes, in.Budgets = in.Nodes[1:], in.Budgets[1:]
}

func TestWantedBudget(t *testing.T) {
	asked, before := t0.Add(-time.Minute), t0.Add(-time.Hour)
	entry := &v1alpha1.ReleasedNode{Node: "n", UID: "uid", Since: metav1.NewTime(t0)}
	budget := &Budget{BudgetState: BudgetState{RequestedAt: before, Ended: "uid/2026-02-01T00:00:00Z"}}
	for name, tt := range map[string]struct {
		node nodePlan
		want BudgetState
	}{
		"no request":                               {nodePlan{observedNode: observedNode{budget: budget}}, BudgetState{Ended: budget.Ended}},
		"a request":                                {nodePlan{observedNode: observedNode{budget: budget, requestedBy: "cordoned", requestedAt: asked}}, BudgetState{Locked: true, RequestedAt: asked, Ended: budget.Ended}},
		"a request, without a budget":              {nodePlan{observedNode: observedNode{requestedBy: "cordoned", requestedAt: asked}}, BudgetState{Locked: true, RequestedAt: asked}},
		"released":                                 {nodePlan{observedNode: observedNode{budget: budget, requestedBy: "cordoned", requestedAt: asked}, entry: entry, stage: released}, BudgetState{Open: true, RequestedAt: asked}},
		"released, and the request has ended":      {nodePlan{observedNode: observedNode{budget: budget}, entry: entry, stage: released}, BudgetState{Open: true, RequestedAt: before}},
		"returning":                                {nodePlan{observedNode: observedNode{budget: budget}, entry: entry, stage: returning}, BudgetState{Ended: "uid/2026-03-01T12:00:00Z"}},
		"returning, and released again":            {nodePlan{observedNode: observedNode{budget: budget, requestedBy: "cordoned", requestedAt: asked}, entry: entry, stage: returning, releasing: true}, BudgetState{Locked: true, RequestedAt: asked, Ended: budget.Ended}},
		"other pods have its labels":               {nodePlan{observedNode: observedNode{budget: budget, crowded: true}}, BudgetState{Locked: true, Ended: budget.Ended}},
		"released, and other pods have its labels": {nodePlan{observedNode: observedNode{budget: budget, crowded: true}, entry: entry, stage: released}, BudgetState{Open: true, RequestedAt: before}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, wantedBudget(&tt.node)); diff != "" {
				t.Errorf("budget (-want +got):\n%s", diff)
			}
		})
	}
}

// A check takes at most 60 s and ends 60 s after that at the latest; it runs again after 20 s, and its success counts for 30 s.
func TestCheckStates(t *testing.T) {
	check := func(interval int32) observed {
		in := scene(checked("", 0))
		in.Guard.Spec.Release.Check.IntervalSeconds = &interval
		return observe(&in)
	}
	o := check(20)
	latest := o.checkTimeout() + checkSlack
	running := func(age time.Duration) Pod { return Pod{Phase: corev1.PodRunning, Created: t0.Add(-age)} }
	ended := func(phase corev1.PodPhase, age time.Duration) Pod {
		return Pod{Phase: phase, Created: t0.Add(-age - time.Second), Ended: t0.Add(-age)}
	}
	for name, tt := range map[string]struct {
		o    observed
		pod  Pod
		want checkState
	}{
		"before its end":                     {o, running(latest - 1), checkRunning},
		"at its end":                         {o, running(latest), checkOverdue},
		"an interval after its end":          {o, running(latest + 20*time.Second), checkExpired},
		"it has just failed":                 {o, ended(corev1.PodFailed, 20*time.Second-1), checkFailed},
		"it failed an interval ago":          {o, ended(corev1.PodFailed, 20*time.Second), checkExpired},
		"it has just succeeded":              {o, ended(corev1.PodSucceeded, 30*time.Second-1), checkSucceeded},
		"it succeeded 30 s ago":              {o, ended(corev1.PodSucceeded, 30*time.Second), checkSucceededEarlier},
		"a longer interval":                  {check(40), ended(corev1.PodSucceeded, 40*time.Second-1), checkSucceeded},
		"it succeeded a longer interval ago": {check(40), ended(corev1.PodSucceeded, 40*time.Second), checkSucceededEarlier},
		"it terminates":                      {o, Pod{Terminating: true}, checkTerminating},
		"it belongs to an earlier request":   {o, Pod{Phase: corev1.PodSucceeded, RequestedAt: "earlier"}, checkOutdated},
	} {
		if got := tt.o.checkState(&nodePlan{observedNode: observedNode{check: &tt.pod}}); got != tt.want {
			t.Errorf("%s: %d, want %d", name, got, tt.want)
		}
	}
	if got := o.checkState(&nodePlan{}); got != checkMissing {
		t.Errorf("without a pod: %d, want %d", got, checkMissing)
	}
}

func TestEarliestOfTwoTimes(t *testing.T) {
	never, soon, late := time.Time{}, t0, t0.Add(1)
	for _, tt := range []struct{ a, b, want time.Time }{
		{never, never, never}, {never, late, late}, {late, never, late}, {soon, late, soon}, {late, soon, soon}, {soon, soon, soon},
	} {
		if got := earliest(tt.a, tt.b); !got.Equal(tt.want) {
			t.Errorf("of %v and %v: %v", tt.a, tt.b, got)
		}
	}
}

func TestACheckThatDoesNotStartSaysWhy(t *testing.T) {
	for waiting, want := range map[string]string{"": "release.check runs on it", "ImagePullBackOff": "release.check does not start: ImagePullBackOff"} {
		p := Next(scene(cordoned(0), checked(corev1.PodPending, 0), func(in *Input) { in.Checks[0].Waiting = waiting }))
		if held := p.Status.Held; len(held) != 1 || !strings.HasPrefix(held[0].Message, want) {
			t.Errorf("%+v, want %s", held, want)
		}
	}
}

func TestDeadlines(t *testing.T) {
	late := func(action v1alpha1.DeadlineAction, seconds int32) func(*Input) {
		return func(in *Input) {
			in.Guard.Spec.Release.DeadlineSeconds, in.Guard.Spec.Release.OnDeadline = &seconds, action
		}
	}
	waits := func(in *Input) { in.Guard.Spec.Release.When = v1alpha1.ReleaseWhenApproval }
	for name, tt := range map[string]struct {
		in    Input
		state string
		says  string
	}{
		"just before":           {scene(cordoned(0), waits, late(v1alpha1.OnDeadlineRelease, 3601)), "Held AwaitingApproval", ""},
		"at the deadline":       {scene(cordoned(0), waits, late(v1alpha1.OnDeadlineRelease, 3600)), "Released DeadlineReached", ""},
		"it holds":              {scene(cordoned(0), waits, late(v1alpha1.OnDeadlineHold, 3600)), "Held AwaitingApproval", deadlinePassed + ", and release.onDeadline is Hold"},
		"it holds by default":   {scene(cordoned(0), waits, late("", 3600)), "Held AwaitingApproval", deadlinePassed + ", and release.onDeadline is Hold"},
		"a check fails by then": {scene(cordoned(0), checked(corev1.PodFailed, time.Second), late(v1alpha1.OnDeadlineRelease, 3600)), "Released DeadlineReached", ""},
		"a check fails before":  {scene(cordoned(0), checked(corev1.PodFailed, time.Second), late(v1alpha1.OnDeadlineRelease, 3601)), "Held CheckFailed", ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := Next(tt.in)
			if got := states(p)["n1"]; got != tt.state {
				t.Errorf("%s, want %s", got, tt.state)
			}
			if !slices.ContainsFunc(p.Nodes, func(n NodeState) bool { return n.Name == "n1" && strings.Contains(n.Message, tt.says) }) {
				t.Errorf("%+v, want a message with %q", p.Nodes, tt.says)
			}
		})
	}
}

// A break-glass annotation stays until all NodeGuards that have released the node have recorded the end of its release.
func TestBreakGlassIsRetained(t *testing.T) {
	peer := func(change func(*v1alpha1.ReleasedNode)) []Peer {
		r := v1alpha1.ReleasedNode{Node: "n1", UID: "uid-n1"}
		change(&r)
		return []Peer{{Name: "ns/a", Released: []v1alpha1.ReleasedNode{r}}}
	}
	for name, tt := range map[string]struct {
		peers []Peer
		node  nodePlan
		want  bool
	}{
		"released by another":   {peer(func(*v1alpha1.ReleasedNode) {}), nodePlan{stage: returning}, true},
		"returning there":       {peer(func(r *v1alpha1.ReleasedNode) { r.Returning = true }), nodePlan{stage: returning}, false},
		"another node":          {peer(func(r *v1alpha1.ReleasedNode) { r.Node = "n2" }), nodePlan{stage: returning}, false},
		"an earlier node":       {peer(func(r *v1alpha1.ReleasedNode) { r.UID = "uid-0" }), nodePlan{stage: returning}, false},
		"released by no other":  {nil, nodePlan{stage: returning}, false},
		"it is still released":  {peer(func(*v1alpha1.ReleasedNode) {}), nodePlan{stage: released}, false},
		"it requests a release": {peer(func(*v1alpha1.ReleasedNode) {}), nodePlan{stage: returning, observedNode: observedNode{requestedBy: "cordoned"}}, false},
	} {
		tt.node.Node = &Node{Name: "n1", UID: "uid-n1", BreakGlass: "yes"}
		if got := observe(&Input{Peers: tt.peers}).retainsBreakGlass(&tt.node); got != tt.want {
			t.Errorf("%s: %t, want %t", name, got, tt.want)
		}
	}
}
