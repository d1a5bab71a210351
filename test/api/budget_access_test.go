// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/ui/cmdutil"
)

// TestWhoMayLimitDisruptions has users with the roles of an installation create, change and delete budgets, and freeze and thaw nodes.
func TestWhoMayLimitDisruptions(t *testing.T) {
	f := newRemovable(t)
	f.installed()
	w := worldIn(f.Ctx, t, "default")
	for user, roles := range map[string][]string{
		"budget-editor": {"everynode-nodedisruptionbudget-editor"},
		"job-editor":    {"everynode-nodejob-editor", "everynode-nodeguard-editor", "everynode-operator-nodes", "everynode-view-nodes"},
		"tenant-admin":  {"admin", "edit"},
	} {
		for _, role := range roles {
			must(t, f.admin.Create(f.Ctx, &rbacv1.ClusterRoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: user + "-" + role},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}, Subjects: subject(user),
			}))
		}
		t.Run(user, func(t *testing.T) {
			config := rest.CopyConfig(f.config)
			config.Impersonate.UserName = user
			c, err := client.New(config, client.Options{Scheme: scheme})
			must(t, err)
			may := user == "budget-editor"
			wants := func(did string, err error) {
				t.Helper()
				if may && err != nil || !may && !apierrors.IsForbidden(err) {
					t.Errorf("%s: the API server says %v, and the user may do it: %v", did, err, may)
				}
			}
			owned := &v1alpha1.NodeDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "of-admin-" + user}}
			owned.Spec.Limits = []v1alpha1.BudgetLimit{{MaxUnavailable: number(0)}}
			must(t, f.admin.Create(f.Ctx, owned))
			created := &v1alpha1.NodeDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "of-" + user}, Spec: owned.Spec}
			wants("create", c.Create(f.Ctx, created))
			wants("patch", c.Patch(f.Ctx, owned, mergePatch(`{"spec":{"reason":"INC-42"}}`)))
			if err := c.Status().Patch(f.Ctx, owned, mergePatch(`{"status":{"disruptionsAllowed":9}}`)); !apierrors.IsForbidden(err) {
				t.Errorf("the API server says to a change of the status %v", err)
			}
			for _, args := range [][]string{{"freeze", "freeze-" + user, "--reason=INC-42", "--timeout=0"}, {"thaw", owned.Name}} {
				got := w.everynode(f.kubeconfig, append(args, "--as="+user)...)
				want := cmdutil.ExitForbidden
				if may {
					want = cmdutil.ExitOK
				}
				if got.code != want || !may && !strings.Contains(got.err, "nodedisruptionbudgets") {
					t.Error(fmt.Sprint("kubectl everynode ", args, " says ", got, ", want the exit code ", want))
				}
			}
		})
	}
}
