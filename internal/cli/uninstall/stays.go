// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/text"
	"github.com/everynode/everynode/internal/ui/cmdutil"
	"github.com/everynode/everynode/internal/uninstall"
)

// neverRolledBack returns the NodeJobs with a rollback that the removal does not run, by their keys on nodes.
func (u *uninstalling) neverRolledBack(jobs []v1alpha1.NodeJob) map[string]string {
	names := map[string]string{}
	for i := range jobs {
		job := &jobs[i]
		if job.Spec.Rollback == nil || !u.skipRollback && job.Spec.DeletionPolicy == v1alpha1.DeletionRollback {
			continue
		}
		name := job.Namespace + "/" + job.Name
		if job.Spec.Expires != nil {
			name += " (expires)"
		}
		names[v1alpha1.RecordKey(job.Namespace, job.Name)] = name
	}
	return names
}

// findGrants reads the roles for Everynode that users have created, and the bindings to all roles for it. They count again after another
// installation.
func (u *uninstalling) findGrants(ctx context.Context, found *installation) error {
	grants := map[string]bool{}
	for _, o := range uninstall.ClusterRBAC() {
		grants[u.describe(o)] = true
	}
	for _, kind := range []client.ObjectList{&rbacv1.ClusterRoleList{}, &rbacv1.RoleList{}, &rbacv1.ClusterRoleBindingList{}, &rbacv1.RoleBindingList{}} {
		if err := uninstall.Each(ctx, u.client, kind, func(o client.Object) error {
			if what := u.describe(o); isGrant(o, grants) && !slices.Contains(found.objects, what) && !grants[what] {
				grants[what], found.grants = true, append(found.grants, what)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// isGrant reports whether an object is a role for Everynode, or a binding to one of these roles, which are "Kind name".
func isGrant(o client.Object, roles map[string]bool) bool {
	switch o := o.(type) {
	case *rbacv1.ClusterRole:
		return o.AggregationRule == nil && isForEverynode(o.Rules) // Kubernetes computes the rules of an aggregated role
	case *rbacv1.Role:
		return isForEverynode(o.Rules)
	case *rbacv1.ClusterRoleBinding:
		return roles[o.RoleRef.Kind+" "+o.RoleRef.Name]
	case *rbacv1.RoleBinding:
		return roles[o.RoleRef.Kind+" "+o.RoleRef.Name] || roles[o.RoleRef.Kind+" "+o.Namespace+"/"+o.RoleRef.Name]
	}
	return false
}

// isForEverynode reports whether a rule names the API group. A rule for all groups is not only for Everynode.
func isForEverynode(rules []rbacv1.PolicyRule) bool {
	return slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.APIGroups, v1alpha1.Group) })
}

// stays returns sentences about what is not removed, and what a user may want to do about it.
func (i *installation) stays() []text.Line {
	var lines []text.Line
	if names := slices.Sorted(maps.Keys(i.rollbacks)); len(names) > 0 {
		lines = append(lines, text.Toned(text.Warn, fmt.Sprintf("Rollbacks that never run: %s. What these tasks changed stays on the nodes. "+
			"To undo it when Everynode is removed, set deletionPolicy: Rollback in the NodeJobs first.", cmdutil.JoinNames(names))))
	}
	if len(i.grants) > 0 {
		lines = append(lines, text.Toned(text.Warn, "Roles and bindings that stay, and count again after another installation. To remove them:"))
		for _, grant := range i.grants {
			kind, name, _ := strings.Cut(grant, " ")
			in := ""
			if namespace, short, is := strings.Cut(name, "/"); is {
				in, name = " -n "+namespace, short
			}
			lines = append(lines, text.Of("  kubectl delete "+strings.ToLower(kind)+" "+name+in))
		}
	}
	return lines
}
