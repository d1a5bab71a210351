// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package claims_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/manager/claims"
	"github.com/everynode/everynode/internal/nodebudget/budget"
	"github.com/everynode/everynode/internal/nodecondition"
)

func TestANodeIsClaimedByOneNodeJob(t *testing.T) {
	r := claims.New()
	for range 2 {
		if !r.Claim("a", "n") {
			t.Error("a NodeJob cannot claim a free node, or its own")
		}
	}
	if r.Claim("b", "n") {
		t.Error("two NodeJobs have claimed a node")
	}
	if err := r.Return("n", func() error { return errors.New("the seat was created") }); err != nil {
		t.Error(err)
	}
	held := map[types.UID]bool{"n": true}
	r.Report("a", claims.Report{Name: "NodeJob x/a", Holds: held, Claims: held})
	if diff := cmp.Diff(map[types.UID]string{"n": "NodeJob x/a"}, r.Holds()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if !r.Claimed("a")["n"] {
		t.Error("a claim that is needed has ended")
	}
	r.Report("a", claims.Report{Name: "NodeJob x/a", Holds: held})
	if len(r.Claimed("a")) > 0 || len(r.Holds()) != 1 {
		t.Error("a claim of a node that is only held has not ended, or the node is not held")
	}
	r.Report("a", claims.Report{Name: "NodeJob x/a"})
	if len(r.Claimed("a"))+len(r.Holds()) > 0 {
		t.Error("a claim outlives the report that does not need it")
	}
	if !r.Claim("b", "n") {
		t.Error("a node that was given back cannot be claimed")
	}
}

func TestNoNodeIsClaimedWhileItsSeatIsCreated(t *testing.T) {
	r := claims.New()
	err := r.Return("n", func() error {
		if r.Claim("a", "n") {
			t.Error("a node was claimed while its seat was created")
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if !r.Claim("a", "n") {
		t.Error("the node cannot be claimed afterwards")
	}
}

// TestANodeGetsItsSeatBeforeAnotherNodeJobTakesIt : until the budgets are planned again, they allow it because it was unavailable.
func TestANodeGetsItsSeatBeforeAnotherNodeJobTakesIt(t *testing.T) {
	r := claims.New()
	r.Report("a", claims.Report{Name: "NodeJob x/a", Holds: map[types.UID]bool{"n": true, "m": true}})
	old := map[types.UID]hold.Stance{"n": {Allowed: true}, "m": {Allowed: true}}
	r.SetStances(old)
	r.Report("a", claims.Report{Name: "NodeJob x/a", Holds: map[types.UID]bool{"m": true}})
	now, _ := r.Stances()
	if now["n"].Allowed || now["n"].Message == "" || !now["m"].Allowed {
		t.Errorf("the stances are %+v", now)
	}
	if !old["n"].Allowed {
		t.Error("a map that others read was changed")
	}
}

func TestTheOldestWaitCounts(t *testing.T) {
	r, noon := claims.New(), time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	r.Report("a", claims.Report{Name: "NodeJob x/a", Waits: map[types.UID]time.Time{"n": noon}})
	r.Report("b", claims.Report{Name: "NodeJob x/b", Waits: map[types.UID]time.Time{"n": noon.Add(-time.Minute)}})
	want := map[types.UID]budget.Wait{"n": {By: "NodeJob x/b", Since: noon.Add(-time.Minute)}}
	if diff := cmp.Diff(want, r.Waits()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	r.Forget("b")
	if got := r.Waits()["n"].By; got != "NodeJob x/a" {
		t.Errorf("%q waits", got)
	}
}

// TestWhoWaitsForAClosedBudget : reports of the same nodes are merged, and listeners are told of changes only.
func TestWhoWaitsForAClosedBudget(t *testing.T) {
	r, told := claims.New(), 0
	r.OnReport(func() { told++ })
	closed := func(nodes ...types.UID) map[types.UID]bool {
		all := map[types.UID]bool{}
		for _, n := range nodes {
			all[n] = true
		}
		return all
	}
	r.Report("b", claims.Report{Name: "NodeJob x/b", Closed: closed("n", "m"), Disrupts: true})
	r.Report("a", claims.Report{Name: "NodeJob x/a", Closed: closed("n")})
	r.Report("a", claims.Report{Name: "NodeJob x/a", Closed: closed("n")})
	a, b := budget.ClosedWait{By: "NodeJob x/a"}, budget.ClosedWait{By: "NodeJob x/b", Disrupts: true}
	if diff := cmp.Diff(map[types.UID][]budget.ClosedWait{"n": {a, b}, "m": {b}}, r.Closed()); diff != "" || told != 2 {
		t.Errorf("listeners were told %d times; -want +got:\n%s", told, diff)
	}
	r.Report("b", claims.Report{Name: "NodeJob x/b", Closed: closed("m"), Disrupts: true})
	r.Forget("a")
	if diff := cmp.Diff(map[types.UID][]budget.ClosedWait{"m": {b}}, r.Closed()); diff != "" || told != 4 {
		t.Errorf("listeners were told %d times; -want +got:\n%s", told, diff)
	}
}

// TestPublished tests which conditions nodes get, and when listeners are told.
func TestPublished(t *testing.T) {
	r, told := claims.New(), 0
	r.OnDisruptions(func() { told++ })
	kernel := func(job string, status corev1.ConditionStatus) nodecondition.Published {
		return nodecondition.Published{Type: "example.com/Kernel", Status: status, NodeJob: job}
	}
	report := func(job string, status corev1.ConditionStatus) {
		r.Report(types.UID(job), claims.Report{
			Name: "NodeJob " + job, Published: map[types.UID][]nodecondition.Published{"n": {kernel(job, status)}},
		})
	}
	for i, step := range []struct {
		do   func()
		told int
		want []nodecondition.Published
	}{
		{func() { report("x/b", "Unknown") }, 1, []nodecondition.Published{kernel("x/b", "Unknown")}},
		{func() { report("x/b", "Unknown") }, 1, []nodecondition.Published{kernel("x/b", "Unknown")}},
		{func() { report("x/b", "True") }, 2, []nodecondition.Published{kernel("x/b", "True")}},
		{func() { report("x/a", "False") }, 3, []nodecondition.Published{kernel("x/a", "False"), kernel("x/b", "True")}},
		{func() { r.Forget("x/b") }, 4, []nodecondition.Published{kernel("x/a", "False")}},
		{func() { r.Report("x/a", claims.Report{Name: "NodeJob x/a"}) }, 5, nil},
	} {
		step.do()
		if diff := cmp.Diff(step.want, r.Published()["n"]); diff != "" || told != step.told {
			t.Errorf("step %d: told %d times, want %d; -want +got:\n%s", i, told, step.told, diff)
		}
	}
}

// TestDisruptions tests what is said about nodes, and when listeners are told.
func TestDisruptions(t *testing.T) {
	r, told := claims.New(), 0
	r.OnDisruptions(func() { told++ })
	report := func(job string, stage nodecondition.Stage) claims.Report {
		return claims.Report{
			Name: "NodeJob " + job, Holds: map[types.UID]bool{"n": true},
			Disruptions: map[types.UID]nodecondition.Disruption{"n": {NodeJob: job, Stage: stage}},
		}
	}
	draining, working := nodecondition.Stage{Draining: true}, nodecondition.Stage{InProgress: true}
	for i, step := range []struct {
		do   func()
		told int
		want []nodecondition.Disruption
	}{
		{func() { r.Report("b", report("x/b", draining)) }, 1, []nodecondition.Disruption{{NodeJob: "x/b", Stage: draining}}},
		{func() { r.Report("b", report("x/b", draining)) }, 1, []nodecondition.Disruption{{NodeJob: "x/b", Stage: draining}}},
		{func() { r.Report("a", report("x/a", working)) }, 2, []nodecondition.Disruption{{NodeJob: "x/a", Stage: working}, {NodeJob: "x/b", Stage: draining}}},
		{func() { r.Report("b", report("x/b", working)) }, 3, []nodecondition.Disruption{{NodeJob: "x/a", Stage: working}, {NodeJob: "x/b", Stage: working}}},
		{func() { r.Report("b", claims.Report{Name: "NodeJob x/b"}) }, 4, []nodecondition.Disruption{{NodeJob: "x/a", Stage: working}}},
		{func() { r.Forget("a") }, 5, nil},
		{func() { r.Forget("a") }, 5, nil},
		{func() { r.Report("idle", claims.Report{Name: "NodeJob x/idle"}) }, 6, nil},
	} {
		step.do()
		if diff := cmp.Diff(step.want, r.Disruptions()["n"]); diff != "" || told != step.told {
			t.Errorf("step %d: told %d times, want %d; -want +got:\n%s", i, told, step.told, diff)
		}
	}
}

// TestListenersAreSetWhileOthersReport is for the race detector: controllers start at the same time, in any order.
func TestListenersAreSetWhileOthersReport(t *testing.T) {
	r, told := claims.New(), make(chan struct{}, 100)
	tell := func() {
		r.Holds() // a listener may read the registry
		told <- struct{}{}
	}
	var starts sync.WaitGroup
	for _, start := range []func(){
		func() { r.OnReport(tell) },
		func() { r.OnStances(tell) },
		func() { r.OnDisruptions(tell) },
		func() { r.Report("a", claims.Report{Name: "NodeJob x/a"}) },
		func() { r.Forget("b") },
		func() { r.SetStances(map[types.UID]hold.Stance{}) },
		func() { r.SetAnswers("b", budget.Answers{}) },
	} {
		starts.Go(start)
	}
	starts.Wait()
	for len(told) > 0 {
		<-told
	}
	r.Report("c", claims.Report{Name: "NodeJob x/c"})
	r.SetStances(map[types.UID]hold.Stance{"n": {}})
	if len(told) != 3 {
		t.Errorf("%d listeners were told, want all 3", len(told))
	}
}

// TestWaitsOfSeveral : windows are ignored on a node if any NodeJob that waits for it ignores them.
func TestWaitsOfSeveral(t *testing.T) {
	r := claims.New()
	at := time.Unix(100, 0)
	r.Report(
		"a",
		claims.Report{
			Name:           "NodeJob x/a",
			Waits:          map[types.UID]time.Time{"n": at, "m": at},
			IgnoresWindows: map[types.UID]bool{"n": true, "o": true},
		},
	)
	r.Report("b", claims.Report{Name: "NodeJob x/b", Waits: map[types.UID]time.Time{"n": at.Add(-time.Second)}})
	want := map[types.UID]budget.Wait{
		"n": {By: "NodeJob x/b", Since: at.Add(-time.Second), IgnoresWindows: true},
		"m": {By: "NodeJob x/a", Since: at},
	}
	if diff := cmp.Diff(want, r.Waits()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
