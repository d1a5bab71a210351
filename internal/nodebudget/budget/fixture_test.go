// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/kube"
)

// noon is a Friday.
var noon = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

// fixture is an observed cluster. Its nodes are n1, n2, …; those with an even number are in zone b and pool y, the others in zone a and
// pool x.
type fixture struct {
	Input

	// seatFails is the name of a node that is not Ready whenever its seat is created; "" if none is.
	seatFails string
}

func newFixture(nodes int, budgets ...*v1alpha1.NodeDisruptionBudget) *fixture {
	f := &fixture{Input: Input{Now: noon, HoldsKnown: true, Holds: map[types.UID]string{}, Waits: map[types.UID]Wait{}, Budgets: budgets}}
	for i := range nodes {
		f.addNode(fmt.Sprint("n", i+1), noon.Add(-24*time.Hour))
	}
	return f
}

func (f *fixture) addNode(name string, created time.Time) {
	labels := map[string]string{"zone": "a", "pool": "x"}
	if (name[len(name)-1]-'0')%2 == 0 {
		labels = map[string]string{"zone": "b", "pool": "y"}
	}
	f.Nodes = append(f.Nodes, Node{
		Node: kube.Node{Name: name, UID: types.UID(name), Ready: true, Labels: labels}, Created: created, ReadyChanged: created,
	})
}

// renew makes all nodes as old as those of a cluster that was just created.
func (f *fixture) renew() {
	for i := range f.Nodes {
		f.Nodes[i].Created = noon
	}
}

// newBudget returns a budget with limits of "2", "50%", or "1/zone" for each zone.
func newBudget(name string, limits ...string) *v1alpha1.NodeDisruptionBudget {
	b := &v1alpha1.NodeDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), Generation: 3}}
	for _, text := range limits {
		number, key, _ := strings.Cut(text, "/")
		b.Spec.Limits = append(b.Spec.Limits, v1alpha1.BudgetLimit{MaxUnavailable: new(intstr.Parse(number)), TopologyKey: key})
	}
	return b
}

// with returns a budget after a change.
func with(b *v1alpha1.NodeDisruptionBudget, change func(*v1alpha1.NodeDisruptionBudgetSpec)) *v1alpha1.NodeDisruptionBudget {
	change(&b.Spec)
	return b
}

// inPool selects the nodes of a pool.
func inPool(pool string, b *v1alpha1.NodeDisruptionBudget) *v1alpha1.NodeDisruptionBudget {
	b.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"pool": pool}}
	return b
}

func (f *fixture) node(name string) *Node {
	return &f.Nodes[slices.IndexFunc(f.Nodes, func(n Node) bool { return n.Name == name })]
}

// seat is the seat of a node; nil if it has none.
func (f *fixture) seat(node string) *Seat {
	if i := slices.IndexFunc(f.Seats, func(s Seat) bool { return s.Node == types.UID(node) }); i >= 0 {
		return &f.Seats[i]
	}
	return nil
}

// cordon cordons nodes, one minute after another.
func (f *fixture) cordon(nodes ...string) {
	for i, name := range nodes {
		n := f.node(name)
		n.Unschedulable = true
		n.Taints = []corev1.Taint{
			{Key: corev1.TaintNodeUnschedulable, TimeAdded: new(metav1.NewTime(noon.Add(time.Duration(i-9) * time.Minute)))},
		}
	}
}

// evict takes nodes away.
func (f *fixture) evict(nodes ...string) {
	for _, name := range nodes {
		f.Seats = slices.DeleteFunc(f.Seats, func(s Seat) bool { return s.Node == types.UID(name) })
	}
	f.count()
}

// break makes a node not Ready for some time.
func (f *fixture) breakDown(name string, for_ time.Duration) {
	n := f.node(name)
	n.Ready, n.ReadyChanged = false, f.Now.Add(-for_)
	if s := f.seat(name); s != nil {
		s.Ready = false
	}
	f.count()
}

// lose makes a node unreachable for some time: its kubelet does not report, and no pod of it ends.
func (f *fixture) lose(name string, for_ time.Duration) {
	f.breakDown(name, for_)
	f.node(name).Taints = append(f.node(name).Taints, corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute})
}

// count is what the disruption controller does.
func (f *fixture) count() {
	for i := range f.Floors {
		healthy := 0
		for _, s := range f.Seats {
			if s.Group == f.Floors[i].Group && s.Ready && !s.Terminating {
				healthy++
			}
		}
		f.Floors[i].Processed, f.Floors[i].Allowed = true, int32(max(0, healthy-int(f.Floors[i].MinAvailable)))
	}
}

// plan applies the next plan, which must have these actions.
func (f *fixture) plan(t testing.TB, want []string) {
	t.Helper()
	p := Next(&f.Input)
	if diff := cmp.Diff(want, f.texts(p.Actions)); diff != "" {
		t.Fatalf("-want +got:\n%s", diff)
	}
	for _, a := range p.Actions {
		f.apply(a)
	}
	f.count()
}

// settle applies plans until nothing is left to do, and returns all actions. Seats become ready at once.
func (f *fixture) settle(t testing.TB) []Action {
	t.Helper()
	var all []Action
	for range 20 {
		p := Next(&f.Input)
		if len(p.Actions) == 0 {
			return all
		}
		all = append(all, p.Actions...)
		for _, a := range p.Actions {
			f.apply(a)
		}
		f.count()
	}
	t.Fatalf("the plan does not settle: %+v", all)
	return nil
}

func (f *fixture) apply(a Action) {
	switch a := a.(type) {
	case CreateFloor:
		f.Floors = append(f.Floors, Floor{
			Group: a.State.Group, Created: f.Now, MinAvailable: a.State.MinAvailable, Owners: uidsOf(a.State.Owners),
		})
	case SetFloor:
		i := slices.IndexFunc(f.Floors, func(b Floor) bool { return b.Group == a.Floor.Group })
		f.Floors[i].MinAvailable, f.Floors[i].Owners, f.Floors[i].Drifted = a.State.MinAvailable, uidsOf(a.State.Owners), false
	case DeleteFloor:
		f.Floors = slices.DeleteFunc(f.Floors, func(b Floor) bool { return b.Group == a.Floor.Group })
	case CreatePlaceholder:
		f.Placeholders = append(f.Placeholders, Placeholder{Number: a.Number, Name: fmt.Sprint("placeholder-", a.Number)})
	case DeletePlaceholder:
		f.Placeholders = slices.DeleteFunc(f.Placeholders, func(h Placeholder) bool { return h == a.Placeholder })
	case CreateSeat:
		if a.Node == f.seatFails {
			return
		}
		f.Seats = append(f.Seats, Seat{
			Name:      "seat-" + a.Node,
			UID:       types.UID("seat-" + a.Node),
			Node:      a.NodeUID,
			Group:     a.Group,
			Created:   f.Now,
			Returned:  a.Returned,
			Tolerates: a.Tolerates,
			Ready:     true,
		})
	case MoveSeat:
		f.Ungranted.Joined(types.UID(a.Node))
		f.seat(a.Node).Group = a.Group
	case TolerateTaints:
		s := f.seat(string(a.Seat.Node))
		s.Tolerates = newTaints(append(s.Tolerates.list(), a.Taints.list()...))
	case DeleteSeat:
		if f.Ungranted != nil {
			f.Ungranted.Ended(&a.Seat, true)
		}
		f.Seats = slices.DeleteFunc(f.Seats, func(s Seat) bool { return s.UID == a.Seat.UID })
	}
}

// settled returns a cluster in which all nodes have had their seats for an hour.
func settled(t *testing.T, nodes int, budgets ...*v1alpha1.NodeDisruptionBudget) *fixture {
	t.Helper()
	f := newFixture(nodes, budgets...)
	f.Now = noon.Add(-time.Hour)
	for i := range f.Budgets { // whatever closes them
		f.Budgets[i] = f.Budgets[i].DeepCopy()
	}
	f.settle(t)
	f.Now = noon
	f.settle(t)
	return f
}

// floors describes the floors, by the seats that have their label: "n1 n2: 1".
func (f *fixture) floors() []string {
	var all []string
	for _, b := range f.Floors {
		all = append(all, fmt.Sprintf("%s: %d", f.seatsOf(b.Group), b.MinAvailable))
	}
	slices.Sort(all)
	return all
}

// floor is that of the seat of a node.
func (f *fixture) floor(node string) *Floor {
	return &f.Floors[slices.IndexFunc(f.Floors, func(b Floor) bool { return b.Group == f.seat(node).Group })]
}

func (f *fixture) seatsOf(group string) string {
	var names []string
	for _, s := range f.Seats {
		if s.Group == group {
			names = append(names, string(s.Node))
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// texts describes actions, without those for placeholders.
func (f *fixture) texts(actions []Action) []string {
	var all []string
	for _, a := range actions {
		switch a := a.(type) {
		case CreateFloor:
			all = append(all, fmt.Sprintf("create floor %d", a.State.MinAvailable))
		case SetFloor:
			all = append(all, fmt.Sprintf("set floor of %s to %d", f.seatsOf(a.Floor.Group), a.State.MinAvailable))
		case DeleteFloor:
			all = append(all, "delete floor")
		case CreateSeat:
			text := "create seat of " + a.Node + map[bool]string{true: ", returned"}[a.Returned]
			if a.Tolerates != "" {
				text += ", tolerates " + string(a.Tolerates)
			}
			all = append(all, text)
		case TolerateTaints:
			all = append(all, fmt.Sprintf("seat of %s tolerates %s", a.Seat.Node, a.Taints))
		case MoveSeat:
			all = append(all, "move seat of "+a.Node)
		case DeleteSeat:
			all = append(all, "delete seat of "+string(a.Seat.Node)+map[bool]string{true: " at once"}[a.AtOnce])
		}
	}
	slices.Sort(all)
	return all
}
