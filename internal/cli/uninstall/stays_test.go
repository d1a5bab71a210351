// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/text"
	"github.com/everynode/everynode/internal/ui/cmdutil"
)

func rollingBack(name string, change func(*v1alpha1.NodeJobSpec)) *v1alpha1.NodeJob {
	job := &v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	job.Spec.Rollback = &v1alpha1.RollbackSpec{}
	change(&job.Spec)
	return job
}

func TestWhatStays(t *testing.T) {
	everynode := []rbacv1.PolicyRule{
		{APIGroups: []string{v1alpha1.Group}, Resources: []string{"nodejobs/nodes"}, Verbs: []string{"run-as-root"}},
	}
	other := []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}}
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
	within := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "team-a", Name: name} }
	to := func(kind, name string) rbacv1.RoleRef { return rbacv1.RoleRef{Kind: kind, Name: name} }
	node := &corev1.Node{ObjectMeta: meta("node-1")}
	node.Annotations = map[string]string{}
	for _, name := range []string{"firewall", "deny", "undone"} {
		node.Annotations[v1alpha1.RecordKey("ns", name)] = "{}"
	}
	objects := []client.Object{
		rollingBack("firewall", func(*v1alpha1.NodeJobSpec) {}),
		rollingBack("deny", func(s *v1alpha1.NodeJobSpec) { s.Expires = &v1alpha1.ExpiresSpec{} }),
		rollingBack("undone", func(s *v1alpha1.NodeJobSpec) { s.DeletionPolicy = v1alpha1.DeletionRollback }),
		rollingBack("has-not-run", func(*v1alpha1.NodeJobSpec) {}),
		node,
		&rbacv1.ClusterRole{ObjectMeta: meta("run-as-root-in-team-a"), Rules: everynode},
		&rbacv1.ClusterRole{ObjectMeta: meta("everynode-nodejob-editor"), Rules: everynode},
		&rbacv1.ClusterRole{ObjectMeta: meta("edit"), Rules: everynode, AggregationRule: &rbacv1.AggregationRule{}},
		&rbacv1.ClusterRole{ObjectMeta: meta("cluster-admin"), Rules: other},
		&rbacv1.Role{ObjectMeta: within("runs"), Rules: everynode},
		&rbacv1.ClusterRoleBinding{ObjectMeta: meta("alice-root"), RoleRef: to("ClusterRole", "run-as-root-in-team-a")},
		&rbacv1.ClusterRoleBinding{ObjectMeta: meta("everynode-manager"), RoleRef: to("ClusterRole", "everynode-manager")},
		&rbacv1.ClusterRoleBinding{ObjectMeta: meta("admins"), RoleRef: to("ClusterRole", "cluster-admin")},
		&rbacv1.RoleBinding{ObjectMeta: within("alice-edits"), RoleRef: to("ClusterRole", "everynode-nodejob-editor")},
		&rbacv1.RoleBinding{ObjectMeta: within("alice-runs"), RoleRef: to("Role", "runs")},
	}
	const grants = `Roles and bindings that stay, and count again after another installation. To remove them:
  kubectl delete clusterrole run-as-root-in-team-a
  kubectl delete role runs -n team-a
  kubectl delete clusterrolebinding alice-root
  kubectl delete rolebinding alice-edits -n team-a
  kubectl delete rolebinding alice-runs -n team-a
`
	for name, tt := range map[string]struct {
		skipRollback bool
		want         string
	}{
		"rollbacks of expiry and of failures do not run": {false, "Rollbacks that never run: ns/deny (expires), ns/firewall. "},
		"--skip-rollback": {true, "Rollbacks that never run: ns/deny (expires), ns/firewall, ns/undone. "},
	} {
		t.Run(name, func(t *testing.T) {
			c := fake.NewClientBuilder().WithScheme(cmdutil.Scheme).WithObjects(objects...).Build()
			u := &uninstalling{client: c, skipRollback: tt.skipRollback}
			found := &installation{}
			for _, read := range []func() error{
				func() error { return u.findJobsAndGuards(t.Context(), found) },
				func() error { return u.findNodes(t.Context(), found) },
				func() error { return u.findGrants(t.Context(), found) },
			} {
				if err := read(); err != nil {
					t.Fatal(err)
				}
			}
			said := strings.Join(text.Render(found.stays(), text.Options{}), "\n") + "\n"
			const undo = "What these tasks changed stays on the nodes. To undo it when Everynode is removed, set deletionPolicy: Rollback in the NodeJobs first.\n"
			if diff := cmp.Diff(tt.want+undo+grants, said); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
