// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"fmt"
	"testing"

	"github.com/everynode/everynode/api/v1alpha1"
)

// BenchmarkNext is one plan for all budgets and all nodes of a cluster.
//
//	percent    one budget of 10%, and nothing happens
//	waiting    the same, and a tenth of the nodes is unavailable and another tenth waits
//	zones      three budgets: 10%, one node of each of two zones, and a window for one pool
//	begin      one budget of 10%, and no node has a seat yet: the plan with the most actions
func BenchmarkNext(b *testing.B) {
	tenPercent := func() *v1alpha1.NodeDisruptionBudget { return newBudget("a", "10%") }
	for _, state := range []string{"percent", "waiting", "zones", "begin"} {
		for _, size := range []int{100, 1000, 5000, 15000} {
			b.Run(fmt.Sprintf("%s/%d", state, size), func(b *testing.B) {
				budgets := []*v1alpha1.NodeDisruptionBudget{tenPercent()}
				if state == "zones" {
					budgets = append(
						budgets,
						newBudget("b", "1/zone"),
						inPool("x", with(newBudget("c", "2"), func(s *spec) { s.Windows = atNoon })),
					)
				}
				f := newFixture(size, budgets...)
				if state == "begin" {
					f.apply(Next(&f.Input).Actions[0]) // seats are created when the floor is observed
				} else {
					f.settle(b)
				}
				if state == "waiting" {
					for i := range size / 10 {
						f.Nodes[i].Unschedulable, f.Nodes[size/2+i].Unschedulable = true, true
					}
					f.Seats = f.Seats[size/10:]
					f.count()
				}
				for b.Loop() {
					Next(&f.Input)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(size), "ns/node")
			})
		}
	}
}
