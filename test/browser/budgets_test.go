// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package browser_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
)

// limited adds a NodeDisruptionBudget that node-1 uses and for which node-2 waits, with the status that the manager would write.
func limited(t *testing.T) *v1alpha1.NodeDisruptionBudget {
	t.Helper()
	b := &v1alpha1.NodeDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "production"},
		Spec: v1alpha1.NodeDisruptionBudgetSpec{
			Limits: []v1alpha1.BudgetLimit{{MaxUnavailable: percent("1")}}, JoiningNodes: v1alpha1.JoiningNodesIncluded,
			Description: "one <b>node</b> at a time",
		},
	}
	create(t, b, func() {
		since := metav1.NewTime(time.Now().Add(-25 * time.Minute))
		b.Status.ObservedGeneration, b.Status.Nodes = b.Generation, v1alpha1.BudgetCounts{
			Total:       12,
			Seats:       11,
			Unavailable: 1,
			Waiting:     1,
		}
		b.Status.Unavailable = []v1alpha1.UnavailableNode{{Node: "node-1", Since: since, By: "NodeJob node-setup/no-thp"}}
		b.Status.Waiting = []v1alpha1.WaitingNode{
			{Node: "node-2", Since: since, By: "tainted by Karpenter", Message: "1 node is not available"},
		}
		b.Status.Conditions = []metav1.Condition{{
			Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, LastTransitionTime: since,
			Reason: v1alpha1.ReasonMaxUnavailableReached, Message: "0 disruptions may begin",
		}}
	})
	return b
}

func TestThePageShowsBudgets(t *testing.T) {
	newFleet(t, 3).create()
	tab := open(t, dashboard(t, asAdmin), 1280, 800, false)
	see(t, tab, cells+".length === 3")
	see(t, tab, "!document.querySelector('#jobs a[href=\"#/budgets\"]')")
	budget := limited(t)
	see(t, tab, "document.querySelector('#jobs a[href=\"#/budgets\"]')?.innerText.includes('1 waiting')")
	do(t, tab, "document.querySelector('#jobs a[href=\"#/budgets\"]').click()")
	const waiting = "[...document.querySelectorAll('#budgets tr')].find((row) => row.innerText.startsWith('node-2'))"
	see(t, tab, waiting+"?.innerText.includes('waiting') && "+waiting+".innerText.includes('tainted by Karpenter')")
	see(t, tab, "document.querySelector('#budgets').innerText.includes('one <b>node</b> at a time')") // text, not markup
	see(t, tab, "document.querySelector('#fleet').hidden")

	do(t, tab, waiting+".querySelector('a').click()")
	see(
		t,
		tab,
		"document.querySelector('#node').innerText.includes('NodeDisruptionBudget production limits node-2: it has waited for 25m')",
	)
	see(t, tab, "document.querySelector('#budgets').hidden && !document.querySelector('#fleet').hidden")

	do(t, tab, "location.hash = '#/budgets'")
	if err := admin.Delete(t.Context(), budget); err != nil {
		t.Fatal(err)
	}
	see(t, tab, "document.querySelector('#budgets').innerText.includes('There is no NodeDisruptionBudget.')")
}
