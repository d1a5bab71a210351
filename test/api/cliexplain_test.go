// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
)

// TestExplainNodeReadsNodeGuards as a user with the roles for reading, and without the permission to read NodeGuards.
func TestExplainNodeReadsNodeGuards(t *testing.T) {
	g := newGuarded(t, "explained-1", "explained-2")
	startManager(t, noFaults)
	startGuards(t, noFaults)
	g.guard(nil)
	g.ready(2)
	g.cordon("explained-1", true)
	g.goes("explained-1")
	g.cordon("explained-2", true)
	g.held("explained-2", v1alpha1.ReasonMaxUnavailableReached)

	config := g.viewer()
	got := g.everynode(config, "explain", "explained-2")
	if got.code != 0 || strings.Contains(got.err, "Everynode is not installed") || strings.Contains(got.err, "known") {
		t.Errorf("explain: exit code %d, stderr:\n%s", got.code, got.err)
	}
	wantText(
		t,
		got.out,
		"NodeGuard NAMESPACE/storage holds node explained-2 (cordoned): 1 node is unavailable, and at most 1 may be: explained-1 (released at ",
	)
	wantText(t, g.everynode(config, "explain", "explained-1").out, "NodeGuard NAMESPACE/storage released node explained-1 ")
}

// TestExplainNamesTheNodesThatUseTheBudget covers a cordon by a user, which blocks a rollout until it is removed.
func TestExplainNamesTheNodesThatUseTheBudget(t *testing.T) {
	w := newWorld(t)
	startManager(t, noFaults)
	w.node("budget-1")
	w.node("budget-2")
	must(
		t,
		admin.Patch(w.Ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "budget-1"}}, mergePatch(`{"spec":{"unschedulable":true}}`)),
	)
	w.job("held", func(s *v1alpha1.NodeJobSpec) {
		s.Maintenance = v1alpha1.MaintenanceSpec{Reboot: v1alpha1.RebootSpec{Policy: v1alpha1.RebootIfRequested}, MaxUnavailable: number(1)}
		s.Rollout.MaxConcurrent = percent("100%")
	})
	w.end(w.podOn("budget-1"), 0, "") // it is unavailable already, so nothing prevents its start
	w.Done("held", "budget-1")
	config := w.viewer()
	got := w.everynode(config, "explain", "held", "budget-2")
	wantTold(
		t,
		"explain",
		told{
			0,
			`NAMESPACE/held has not run on budget-2 yet: 1 node is not Ready, cordoned or at work (budget-1), and maintenance.maxUnavailable allows 1: budget-1 (it is cordoned, and not by Everynode).

State     Waiting, MaxUnavailableReached, step all
Budget    budget-1: it is cordoned, and not by Everynode
Next      it starts automatically when fewer nodes are unavailable. What may help: kubectl uncordon budget-1, when its maintenance is over; a higher spec.maintenance.maxUnavailable
`,
			"",
		},
		got,
	)
}

// TestExplainNodeSaysWhatItLeavesOut : a user may list the NodeJobs of one namespace only, and a record may be forged.
func TestExplainNodeSaysWhatItLeavesOut(t *testing.T) {
	w := newWorld(t)
	w.node("partial-1")
	config := w.kubeconfigOf(rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"list"}})
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "jobs"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{v1alpha1.Group}, Resources: []string{"nodejobs"}, Verbs: []string{"get", "list"}},
	}}
	must(t, admin.Create(w.Ctx, role))
	must(t, admin.Create(w.Ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "jobs"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "user-" + w.Namespace}},
	}))
	const mayNot, role1 = "user-NAMESPACE may not list ", " in the whole cluster. The ClusterRole everynode-view-all, bound in the whole cluster, allows it. To check: kubectl auth can-i list "
	wantTold(
		t,
		"explain",
		told{
			0,
			"",
			"only NodeJobs of namespace NAMESPACE are considered: " + mayNot + "nodejobs.everynode.dev" + role1 + "nodejobs.everynode.dev\n" +
				"there is no NodeJob in namespace NAMESPACE\n" +
				"could not check whether a NodeGuard holds the node: " + mayNot + "nodeguards.everynode.dev" + role1 + "nodeguards.everynode.dev\n",
		},
		w.everynode(config, "explain", "partial-1"),
	)
}

// TestARecordThatTheManagerHasNotWrittenIsNamed in all that is said of its node.
func TestARecordThatTheManagerHasNotWrittenIsNamed(t *testing.T) {
	w := newWorld(t)
	startManager(t, noFaults)
	w.node("forged-1")
	w.job("forged", func(s *v1alpha1.NodeJobSpec) { s.Suspend = true })
	w.Condition("forged", v1alpha1.ConditionComplete, metav1.ConditionUnknown, v1alpha1.ReasonSuspended)
	key := v1alpha1.RecordKey(w.Namespace, "forged")
	forged := record.Encode(record.Record{Revision: w.live("forged").Status.Revision, Outcome: record.Failed, Attempts: 9})
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "forged-1"}}
	must(t, admin.Patch(w.Ctx, node, mergePatch(fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, key, forged))))
	config := w.kubeconfigOf()
	wantTold(
		t,
		"explain",
		told{
			0,
			`NAMESPACE/forged has no valid record on forged-1, since the one there was changed by something other than the manager and is ignored: spec.suspend is true.

State     Waiting, Suspended, step all
Altered   the record on the node was changed by something other than the manager, and is ignored: annotation NAMESPACE.everynode.dev/forged
Next      it can run after: kubectl everynode resume forged -n NAMESPACE
`,
			"",
		},
		w.everynode(config, "explain", "forged", "forged-1"),
	)
	wantTold(
		t,
		"retry",
		told{
			0,
			"node forged-1: nothing to change: its record was changed by something other than the manager and is ignored: the task runs there automatically\n",
			"",
		},
		w.everynode(config, "retry", "forged", "forged-1"),
	)
}
