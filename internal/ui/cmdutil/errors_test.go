// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cmdutil

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

func TestErrorsOfTheAPIServerAreExplained(t *testing.T) {
	guards := schema.GroupResource{Group: "everynode.dev", Resource: "nodeguards"}
	nodes, jobs := schema.GroupResource{Resource: "nodes"}, schema.GroupResource{Group: "everynode.dev", Resource: "nodejobs"}
	tests := map[string]struct {
		err  error
		code int
		want string
	}{
		"nodes are forbidden": {
			apierrors.NewForbidden(
				nodes,
				"",
				errors.New(`User "jane" cannot list resource "nodes" in API group "" at the cluster scope`),
			),
			ExitForbidden,
			"jane may not list nodes in the whole cluster. The ClusterRole everynode-view-nodes, bound in the whole cluster, allows it. To check: kubectl auth can-i list nodes",
		},
		"NodeJobs must not be changed": {
			apierrors.NewForbidden(
				jobs,
				"a",
				errors.New(`User "jane" cannot patch resource "nodejobs" in API group "everynode.dev" in the namespace "ns"`),
			),
			ExitForbidden,
			"jane may not patch nodejobs.everynode.dev in namespace ns. The ClusterRole everynode-nodejob-editor allows changing NodeJobs. To check: kubectl auth can-i patch nodejobs.everynode.dev -n ns",
		},
		"Deployments, which no role of Everynode allows": {
			apierrors.NewForbidden(
				jobs,
				"a",
				errors.New(`User "jane" cannot get resource "deployments" in API group "apps" in the namespace "ns"`),
			),
			ExitForbidden,
			"jane may not get deployments.apps in namespace ns. To check: kubectl auth can-i get deployments.apps -n ns",
		},
		"forbidden by something else": {
			apierrors.NewForbidden(
				jobs,
				"a",
				errors.New("a policy says no"),
			),
			ExitForbidden,
			`nodejobs.everynode.dev "a" is forbidden: a policy says no`,
		},
		"a missing object": {apierrors.NewNotFound(jobs, "a"), ExitNotFound, `nodejobs.everynode.dev "a" not found`},
		"a missing kind": {
			apierrors.NewGenericServerResponse(http.StatusNotFound, "get", jobs, "a", "404 page not found", 0, true),
			ExitNotInstalled,
			"this cluster does not know NodeJobs: Everynode is not installed there. Apply its config/default (see Install it in the README), or choose another cluster with --context",
		},
		"NodeGuards are not installed": {
			apierrors.NewGenericServerResponse(http.StatusNotFound, "list", guards, "", "404 page not found", 0, true),
			ExitNotInstalled,
			"this cluster does not have the resource nodeguards.everynode.dev: its Everynode is older than this command, or incomplete. Apply its config/default (see Install it in the README), or choose another cluster with --context",
		},
		"an answer that takes too long": {
			fmt.Errorf("asking: %w", context.DeadlineExceeded),
			ExitNoAnswer,
			"the API server does not answer: asking: context deadline exceeded",
		},
		"an error with its own exit code": {Failf(ExitTimedOut, "too late"), ExitTimedOut, "too late"},
		"anything else":                   {errors.New("odd"), ExitError, "odd"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := Explain(tt.err)
			if diff := cmp.Diff(tt.want, got.Error()); diff != "" || CodeOf(got) != tt.code {
				t.Errorf("exit code %d, want %d; -want +got\n%s", CodeOf(got), tt.code, diff)
			}
		})
	}
}

// TestTheNamedRoleHasThePermission compares the advice with the installed roles.
func TestTheNamedRoleHasThePermission(t *testing.T) {
	content, err := os.ReadFile("../../../config/rbac/user_roles.yaml")
	if err != nil {
		t.Fatal(err)
	}
	has := map[string]bool{} // role, verb and resource
	for document := range strings.SplitSeq(string(content), "\n---\n") {
		var role rbacv1.ClusterRole
		if err := yaml.Unmarshal([]byte(document), &role); err != nil {
			t.Fatal(err)
		}
		for _, rule := range role.Rules {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					has[role.Name+" "+verb+" "+resource] = true
				}
			}
		}
	}
	const cluster, namespaced = "", "ns"
	for _, needed := range [][3]string{
		{"list", "nodejobs", cluster}, {"list", "nodejobs", namespaced}, {"list", "nodeguards", cluster}, {"list", "nodeguards", namespaced},
		{"list", "nodes", cluster}, {"list", "pods", cluster}, {"list", "pods", namespaced}, {"get", "pods/log", namespaced},
		{"get", "configmaps", namespaced}, {"get", "serviceaccounts", namespaced}, {"list", "poddisruptionbudgets", cluster}, {"patch", "nodes", cluster}, {"delete", "pods", namespaced},
		{"list", "nodedisruptionbudgets", cluster}, {"create", "nodedisruptionbudgets", cluster}, {"delete", "nodedisruptionbudgets", cluster},
		{"create", "nodejobs", namespaced}, {"update", "nodejobs", namespaced}, {"patch", "nodejobs", namespaced}, {"delete", "nodejobs", namespaced},
	} {
		said := roleFor(needed[0], needed[1], needed[2])
		role, _, _ := strings.Cut(strings.TrimPrefix(said, "The ClusterRole "), " ")
		if !has[strings.TrimSuffix(role, ",")+" "+needed[0]+" "+needed[1]] {
			t.Errorf("to %s %s in namespace %q it names %q", needed[0], needed[1], needed[2], said)
		}
	}
	for _, resource := range []string{"nodejobs", "nodeguards", "pods", "configmaps"} {
		if has["everynode-view-nodes list "+resource] || has["everynode-view-nodes get "+resource] {
			t.Errorf("everynode-view-nodes, which tenants have, reads the %s of all namespaces", resource)
		}
	}
}
