// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	authentication "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/manager/claims"
	"github.com/everynode/everynode/internal/manager/requirements"
	"github.com/everynode/everynode/internal/uninstall"
)

// deputy is an author of NodeDisruptionBudgets who lets the manager read objects.
type deputy struct {
	*budgeted
	asks func(v1alpha1.RequiredObject) string
}

func newDeputy(t *testing.T) *deputy {
	t.Helper()
	d := &deputy{budgeted: &budgeted{removable: newRemovable(t)}}
	d.installed()
	one, registry := &v1alpha1.NodeDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "b", UID: "u"}}, claims.New()
	checker, err := requirements.New(oneBudget{NodeDisruptionBudget: one}, d.asManager(), nil, requirements.Addresses{}, registry, time.Now)
	must(t, err)
	d.asks = func(o v1alpha1.RequiredObject) string {
		t.Helper()
		one.Spec.Requirements = []v1alpha1.BudgetRequirement{{Name: "a", Object: &o}}
		_, err := checker.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(one)})
		must(t, err)
		a := registry.AnswersOf("b").Of[0]
		return strings.TrimSuffix(fmt.Sprintf("%s: %s", a.State, a.Message), ": ")
	}
	return d
}

// readable are the resources that the manager may read by itself.
func (d *deputy) readable() (all []schema.GroupResource) {
	d.T.Helper()
	var rules []rbacv1.PolicyRule
	var clusterRole rbacv1.ClusterRole
	must(d.T, d.admin.Get(d.Ctx, client.ObjectKey{Name: uninstall.Manager}, &clusterRole))
	rules = append(rules, clusterRole.Rules...)
	var roles rbacv1.RoleList
	must(d.T, d.admin.List(d.Ctx, &roles, client.InNamespace(uninstall.Namespace)))
	for i := range roles.Items {
		rules = append(rules, roles.Items[i].Rules...)
	}
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				if slices.Contains(rule.Verbs, "get") || slices.Contains(rule.Verbs, "list") {
					all = append(all, schema.GroupResource{Group: group, Resource: resource})
				}
			}
		}
	}
	return all
}

// TestRequirementsReadNothingThatIsNotGranted : every kind that the manager may read, in every version and spelling. The author learns that
// the account of requirements may not read it, or that there is no such kind, and nothing else.
func TestRequirementsReadNothingThatIsNotGranted(t *testing.T) {
	d := newDeputy(t)
	_, lists, err := discovery.NewDiscoveryClientForConfigOrDie(d.config).ServerGroupsAndResources()
	must(t, err)
	readable, asked := d.readable(), map[schema.GroupResource]bool{}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		must(t, err)
		for _, r := range list.APIResources {
			resource := schema.GroupResource{Group: gv.Group, Resource: r.Name}
			if !slices.Contains(readable, resource) || strings.Contains(r.Name, "/") {
				continue
			}
			asked[resource] = true
			namespace := map[bool]string{true: uninstall.Namespace, false: ""}[r.Namespaced]
			for _, kind := range []string{
				r.Kind, strings.ToLower(r.Kind), strings.ToUpper(r.Kind), r.Kind + "List", strings.ToLower(r.Kind) + "list", r.Name, r.SingularName,
				strings.ToUpper(r.Kind[:1]) + strings.ToLower(r.Kind[1:]) + "s", r.Kind + " ", r.Name + "." + gv.Group, r.Kind + "/status",
			} {
				for _, name := range []string{"everynode-seal", uninstall.Manager, "x"} {
					got := d.asks(v1alpha1.RequiredObject{
						APIVersion: list.GroupVersion,
						Kind:       kind,
						Namespace:  namespace,
						Name:       name,
						Expression: "{'a': true}[object.metadata.name]",
					})
					want := "Unknown: the API server does not know " + strings.TrimSpace(kind) + " "
					switch {
					case kind == r.Kind && resource == schema.GroupResource{Resource: "secrets"}:
						want = "Unknown: object.kind: a Secret cannot be read"
					case kind == r.Kind:
						want = "Unknown: the ServiceAccount everynode-requirements in everynode-system may not get " + resource.String() + " "
					}
					if !strings.HasPrefix(got, want) {
						t.Errorf("%s %q %s: %q, want %q", list.GroupVersion, kind, name, got, want)
					}
				}
			}
		}
	}
	for _, resource := range readable {
		served := policiesServed || !strings.HasPrefix(resource.Resource, "mutating")
		if !asked[resource] && !strings.Contains(resource.Resource, "/") && served {
			t.Errorf("the manager may read %s, and the API server does not list it", resource)
		}
	}
}

// TestRequirementsReadWhatIsGranted : one object by its name. A Secret is not read even if it is granted.
func TestRequirementsReadWhatIsGranted(t *testing.T) {
	d := newDeputy(t)
	for _, name := range []string{"one", "two"} {
		d.create(&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string]string{"go": "yes"},
		})
	}
	d.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "hidden"}})
	d.grant("default", "configmaps", "one")
	d.grant("default", "secrets", "hidden")
	asks := func(kind, namespace, name string) string {
		return d.asks(
			v1alpha1.RequiredObject{APIVersion: "v1", Kind: kind, Namespace: namespace, Name: name, Expression: "object.data.go == 'yes'"},
		)
	}
	d.Eventually("the object that is granted is read", func() error {
		if got := asks("ConfigMap", "default", "one"); got != "Met" {
			return fmt.Errorf("the answer is %q", got)
		}
		return nil
	})
	const mayNot = "Unknown: the ServiceAccount everynode-requirements in everynode-system may not get "
	for _, tt := range []struct{ kind, namespace, name, want string }{
		{"ConfigMap", "default", "two", mayNot + "configmaps default/two"},
		{"ConfigMap", "kube-system", "one", mayNot + "configmaps kube-system/one"},
		{"ConfigMapList", "default", "one", "Unknown: the API server does not know ConfigMapList"},
		{"Secret", "default", "hidden", "Unknown: object.kind: a Secret cannot be read"},
		{"secret", "default", "hidden", "Unknown: the API server does not know secret"},
	} {
		if got := asks(tt.kind, tt.namespace, tt.name); !strings.HasPrefix(got, tt.want) {
			t.Errorf("%+v: %q", tt, got)
		}
	}

	// The account has the groups of its own, and the manager may act as no other user.
	review := func(as rest.ImpersonationConfig) ([]string, error) {
		config := d.asManager()
		config.Impersonate = as
		got, err := authentication.NewForConfigOrDie(config).SelfSubjectReviews().
			Create(d.Ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		return got.Status.UserInfo.Groups, err
	}
	account := "system:serviceaccount:" + uninstall.Namespace + ":" + uninstall.Requirements
	groups, err := review(rest.ImpersonationConfig{UserName: account})
	must(t, err)
	slices.Sort(groups)
	want := []string{"system:authenticated", "system:serviceaccounts", "system:serviceaccounts:" + uninstall.Namespace}
	if !slices.Equal(groups, want) {
		t.Errorf("the groups of the account are %v, want %v", groups, want)
	}
	for _, as := range []rest.ImpersonationConfig{
		{UserName: "system:serviceaccount:" + uninstall.Namespace + ":default"},
		{UserName: "system:serviceaccount:default:" + uninstall.Requirements},
		{UserName: "admin"},
		{UserName: account, Groups: []string{"system:masters"}},
		{UserName: account, Extra: map[string][]string{"a": {"b"}}},
	} {
		if _, err := review(as); !apierrors.IsForbidden(err) {
			t.Errorf("the manager may act as %+v: %v", as, err)
		}
	}

	must(t, d.kubectl("delete role everynode-requirements -n "+uninstall.Namespace))
	d.Eventually("the manager may not act as the account", func() error {
		got := asks("ConfigMap", "default", "one")
		const want = "Unknown: the manager may not act as the ServiceAccount everynode-requirements in everynode-system: apply config/rbac"
		if !strings.HasPrefix(got, want) {
			return fmt.Errorf("the answer is %q, want %q", got, want)
		}
		return nil
	})
}
