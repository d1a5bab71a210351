// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// remember is what a manager does after a plan.
func (f *fixture) remember(p *Plan) { f.Paced, f.Counted, f.Common = p.Paced, p.Counted, p.Common }

// TestOneNodeDoesNotHoldOthers : what root on a node does for a day does not hold the others for longer than the rule says.
func TestOneNodeDoesNotHoldOthers(t *testing.T) {
	endSeat := func(evicted bool) func(*fixture) {
		return func(f *fixture) {
			if s := f.seat("n1"); s != nil && s.Group != PendingGroup {
				s.Evicted = evicted
				f.Ungranted.Ended(s, true)
				f.evict("n1")
			}
		}
	}
	tests := map[string]struct {
		hostile func(*fixture)
		most    time.Duration
	}{
		"it ends its seat": {endSeat(false), 0},
		"it is not Ready for two of four minutes": {func(f *fixture) {
			n := f.node("n1")
			if isReady := f.Now.Minute()%4 < 2; isReady != n.Ready {
				n.Ready, n.ReadyChanged = isReady, f.Now
			}
		}, 0},
		"it evicts its seat": {endSeat(true), 12 * time.Hour},
		"it evicts its seat, and is never Ready when the seat is created": {func(f *fixture) {
			endSeat(true)(f)
			f.seatFails = "n1"
		}, 12 * time.Hour},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := settled(t, 6, with(newBudget("b", "3"), func(s *spec) { s.PaceSeconds = new(int32(3600)) }))
			f.Ungranted = Ungranted{}
			var held time.Duration
			const step = 20 * time.Second
			for until := f.Now.Add(24 * time.Hour); f.Now.Before(until); f.Now = f.Now.Add(step) {
				tt.hostile(f)
				var p Plan
				for range 6 {
					p = Next(&f.Input)
					f.remember(&p)
					for _, a := range p.Actions {
						f.apply(a)
					}
					f.count()
				}
				if isPaceClosed(&p, "b") {
					held += step
				}
			}
			if held > tt.most+2*time.Hour && tt.most > 0 || tt.most == 0 && held > 0 || tt.most > 0 && held == 0 {
				t.Errorf("holds the others for %v, want at most %v", held, tt.most)
			}
		})
	}
}

func TestUngranted(t *testing.T) {
	const node = types.UID("n")
	joined, pending := Seat{Node: node, Group: "g"}, Seat{Node: node, Group: PendingGroup}
	evicted, evictedPending := joined, pending
	evicted.Evicted, evictedPending.Evicted = true, true
	tests := map[string]struct {
		events func(Ungranted)
		want   bool
	}{
		"nothing is known":                   {func(Ungranted) {}, false},
		"a seat that was deleted":            {func(u Ungranted) { u.Ended(&joined, true) }, true},
		"a seat that was evicted":            {func(u Ungranted) { u.Ended(&evicted, true) }, false},
		"the watch was interrupted":          {func(u Ungranted) { u.Ended(&joined, true); u.Ended(&joined, false) }, false},
		"a new seat ended before it counted": {func(u Ungranted) { u.Ended(&pending, true) }, false},
		"a new seat was evicted, after a seat was deleted": {
			func(u Ungranted) { u.Ended(&joined, true); u.Ended(&evictedPending, true) },
			true,
		},
		"a NodeJob disrupts the node": {
			func(u Ungranted) { u.Ended(&joined, true); u.Held(map[types.UID]string{node: "j"}) },
			false,
		},
		"a NodeJob disrupts another node": {
			func(u Ungranted) { u.Ended(&joined, true); u.Held(map[types.UID]string{"o": "j"}) },
			true,
		},
		"the node has returned": {func(u Ungranted) { u.Ended(&joined, true); u.Joined(node) }, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			u := Ungranted{}
			tt.events(u)
			if u[node] != tt.want {
				t.Errorf("ungranted: %v, want %v", u[node], tt.want)
			}
		})
	}
}

func TestWhichReturnsBeginAPace(t *testing.T) {
	const pace = 300 * time.Second
	key := PaceKey{"uid-b", "n1"}
	tests := map[string]struct {
		change func(*fixture)
		want   time.Time // until when the budget is closed; zero if it is open
	}{
		"a node returns": {func(f *fixture) { f.evict("n1") }, noon.Add(pace)},
		"a node returns whose absence was not granted": {
			func(f *fixture) { f.evict("n1"); f.Ungranted = Ungranted{"n1": true} },
			time.Time{},
		},
		"the same node has returned before": {func(f *fixture) {
			f.evict("n1")
			f.Paced = map[PaceKey]Paced{key: {noon.Add(1 - 2*pace), noon.Add(1 - 2*pace)}}
		}, time.Time{}},
		"the same node has returned long before": {func(f *fixture) {
			f.evict("n1")
			f.Paced = map[PaceKey]Paced{key: {noon.Add(-2 * pace), noon.Add(-2 * pace)}}
		}, noon.Add(pace)},
		"the same node has returned too soon, a while ago": {func(f *fixture) {
			f.seat("n1").Returned, f.seat("n1").Created = true, noon.Add(-time.Minute)
			f.Paced = map[PaceKey]Paced{key: {noon.Add(-2 * pace), noon.Add(-2 * pace)}}
		}, time.Time{}},
		"it still returns": {func(f *fixture) {
			f.evict("n1")
			f.Paced = map[PaceKey]Paced{key: {noon.Add(1 - time.Minute), noon.Add(-time.Second)}}
		}, noon.Add(pace)},
		"it has tried to return for a minute": {func(f *fixture) {
			f.evict("n1")
			f.Paced = map[PaceKey]Paced{key: {noon.Add(-time.Minute), noon.Add(-time.Minute)}}
		}, noon.Add(pace - time.Minute)},
		"it has returned for another budget": {func(f *fixture) {
			f.evict("n1")
			f.Paced = map[PaceKey]Paced{{"uid-other", "n1"}: {noon, noon}}
		}, noon.Add(pace)},
		"it has ended its seat after its return": {func(f *fixture) {
			f.evict("n1")
			f.Ungranted = Ungranted{"n1": true}
			f.Paced = map[PaceKey]Paced{key: {noon.Add(-time.Minute), noon.Add(-time.Minute)}}
		}, noon.Add(pace - time.Minute)},
		"a new manager finds the seat": {func(f *fixture) {
			f.seat("n1").Returned, f.seat("n1").Created = true, noon.Add(-time.Minute)
		}, noon.Add(pace - time.Minute)},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := settled(t, 4, with(newBudget("b", "2"), func(s *spec) { s.PaceSeconds = new(int32(300)) }))
			tt.change(f)
			p := Next(&f.Input)
			f.remember(&p)
			p = Next(&f.Input)
			if isPaceClosed(&p, "b") != !tt.want.IsZero() || !tt.want.IsZero() && !p.WakeAt.Equal(tt.want) {
				t.Errorf("closed: %v, until %v, want until %v", isPaceClosed(&p, "b"), p.WakeAt, tt.want)
			}
			if _, kept := p.Paced[key]; !kept && !tt.want.IsZero() {
				t.Errorf("remembers %v", p.Paced)
			}
		})
	}
}

// TestLabelsOfAbsentNodes : a node that is unavailable counts with the labels that it had before.
func TestLabelsOfAbsentNodes(t *testing.T) {
	relabel := func(f *fixture, key, value string) {
		n := f.node("n1")
		n.Labels = map[string]string{"zone": "a", "pool": "x", key: value}
	}
	tests := map[string]struct {
		change func(*fixture)
		want   int // disruptions that are allowed
	}{
		"nothing happens":                      {func(*fixture) {}, 2},
		"a node is relabeled":                  {func(f *fixture) { relabel(f, "zone", "b") }, 2},
		"a node is down":                       {func(f *fixture) { f.breakDown("n1", time.Hour) }, 1},
		"a node is down, and changes its zone": {func(f *fixture) { f.breakDown("n1", time.Hour); relabel(f, "zone", "b") }, 1},
		"a node is down, and leaves its pool":  {func(f *fixture) { f.breakDown("n1", time.Hour); relabel(f, "pool", "z") }, 1},
		"a node is down, and is another system": {
			func(f *fixture) { f.breakDown("n1", time.Hour); relabel(f, "kubernetes.io/os", "windows") },
			1,
		},
		"the seat is gone, and the zone changes": {func(f *fixture) { f.evict("n1"); relabel(f, "zone", "b") }, 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			// n1, n3 and n5 are in zone a.
			f := settled(t, 6, with(newBudget("b", "1/zone"), func(s *spec) {
				s.Selector = &metav1.LabelSelector{
					MatchExpressions: []metav1.LabelSelectorRequirement{
						{Key: "pool", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"z"}},
					},
				}
			}))
			p := Next(&f.Input)
			f.remember(&p)
			f.Now = f.Now.Add(time.Hour)
			tt.change(f)
			for range 2 {
				p = Next(&f.Input)
				f.remember(&p)
			}
			if got := int(p.Statuses[0].DisruptionsAllowed); got != tt.want {
				t.Errorf("%d disruptions are allowed, want %d", got, tt.want)
			}
		})
	}
}

// TestRelabelingIsBounded : an available node that changes its labels in a loop moves its seat at most once in a while.
func TestRelabelingIsBounded(t *testing.T) {
	f := settled(t, 4, newBudget("b", "1/zone"))
	moves := 0
	for i := range 600 {
		f.Now = f.Now.Add(time.Second)
		f.node("n1").Labels = map[string]string{"zone": fmt.Sprint(i % 2), "pool": "x"}
		p := Next(&f.Input)
		f.remember(&p)
		for _, a := range p.Actions {
			if _, moved := a.(MoveSeat); moved {
				moves++
			}
			f.apply(a)
		}
		f.count()
	}
	if moves == 0 || moves > 10 {
		t.Errorf("the seat moves %d times in 10 minutes", moves)
	}
}

func TestLabelsThatANodeMayWrite(t *testing.T) {
	for key, want := range map[string]bool{
		"pool": true, "example.com/pool": true, "topology.kubernetes.io/zone": true, "kubernetes.io/os": true,
		"kubelet.kubernetes.io/x": true, "a.node.kubernetes.io/x": true, "node-restriction.kubernetes.io/pool": false,
		"example.com.node-restriction.kubernetes.io/pool": false, "node-role.kubernetes.io/control-plane": false,
		"kubernetes.io/x": false, "k8s.io/x": false, "a.k8s.io/x": false, "notk8s.io/x": true,
	} {
		if got := isWritable(key); got != want {
			t.Errorf("isWritable(%s) = %v", key, got)
		}
	}
}
