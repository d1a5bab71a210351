// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
)

// server is an API server with policies.
type server struct {
	client.Reader
	policies admissionv1.ValidatingAdmissionPolicyList
	bindings admissionv1.ValidatingAdmissionPolicyBindingList
	err      error
	lists    int
}

func (s *server) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch list := list.(type) {
	case *admissionv1.ValidatingAdmissionPolicyList:
		s.lists++
		s.policies.DeepCopyInto(list)
	case *admissionv1.ValidatingAdmissionPolicyBindingList:
		s.bindings.DeepCopyInto(list)
	}
	return s.err
}

var installedAt = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// install installs what is expected, with the defaults of the API server.
func install(e *Expected) *server {
	s := &server{}
	as := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, UID: "uid", Generation: 1, CreationTimestamp: metav1.NewTime(installedAt)}
	}
	for _, p := range e.policies {
		s.policies.Items = append(
			s.policies.Items,
			admissionv1.ValidatingAdmissionPolicy{ObjectMeta: as(p.Name), Spec: *withDefaults(&p.Spec)},
		)
	}
	for _, b := range e.bindings {
		o := admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: as(b.Name), Spec: *b.Spec.DeepCopy()}
		o.Spec.MatchResources = matchDefaults(o.Spec.MatchResources)
		s.bindings.Items = append(s.bindings.Items, o)
	}
	return s
}

func (s *server) binding(name string) *admissionv1.ValidatingAdmissionPolicyBinding {
	for i := range s.bindings.Items {
		if s.bindings.Items[i].Name == name {
			return &s.bindings.Items[i]
		}
	}
	panic(name)
}

func expected(t *testing.T) *Expected {
	t.Helper()
	e, err := NewExpected(true, false)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestCheck(t *testing.T) {
	e := expected(t)
	tests := map[string]struct {
		change func(*server)
		want   string
		id     bool // whether the ID is that of the installation
	}{
		"as installed": {change: func(*server) {}, id: true},
		"with another action": {change: func(s *server) {
			s.binding("everynode-nodejobs").Spec.ValidationActions = []admissionv1.ValidationAction{admissionv1.Audit, admissionv1.Deny}
		}, id: true},
		"a policy is missing": {
			change: func(s *server) { s.policies.Items = s.policies.Items[1:] },
			want:   "is not installed. Install the policies of this version: kubectl apply -k config/default",
		},
		"a binding is missing": {change: func(s *server) { s.binding("everynode-nodejobs").Name = "other" },
			want: "ValidatingAdmissionPolicyBinding everynode-nodejobs is not installed"},
		"a binding of the confinement is missing": {change: func(s *server) { s.binding("everynode-confine-pods").Name = "other" },
			want: "ValidatingAdmissionPolicyBinding everynode-confine-pods is not installed"},
		"a binding only warns": {change: func(s *server) {
			s.binding("everynode-nodejobs").Spec.ValidationActions = []admissionv1.ValidationAction{admissionv1.Warn}
		},
			want: "spec.validationActions, which lacks Deny, of ValidatingAdmissionPolicyBinding everynode-nodejobs"},
		"a binding has a parameter": {
			change: func(s *server) { s.binding("everynode-nodejobs").Spec.ParamRef = &admissionv1.ParamRef{Name: "x"} },
			want:   "spec.paramRef of ValidatingAdmissionPolicyBinding everynode-nodejobs",
		},
		"a binding leaves namespaces out": {change: func(s *server) {
			s.binding("everynode-nodejobs").Spec.MatchResources = &admissionv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
			}
		}, want: "spec.matchResources of ValidatingAdmissionPolicyBinding everynode-nodejobs"},
		"a binding is for another policy": {
			change: func(s *server) { s.binding("everynode-nodejobs").Spec.PolicyName = "other" },
			want:   "spec.policyName",
		},
		"a policy is of another version": {
			change: func(s *server) { s.policies.Items[0].Spec.Validations[0].Expression = "true" },
			want:   "spec.validations of ValidatingAdmissionPolicy",
		},
		"with other line ends": {change: func(s *server) {
			v := &s.policies.Items[0].Spec.Validations[0]
			v.Expression = strings.ReplaceAll(v.Expression, " ", "\n  ")
		}, id: true},
		"a policy fails open": {
			change: func(s *server) { s.policies.Items[0].Spec.FailurePolicy = new(admissionv1.Ignore) },
			want:   "spec.failurePolicy of",
		},
		"a policy has parameters": {
			change: func(s *server) { s.policies.Items[0].Spec.ParamKind = &admissionv1.ParamKind{Kind: "x"} },
			want:   "spec of ValidatingAdmissionPolicy",
		},
		"created again":                 {change: func(s *server) { s.binding("everynode-nodejobs").UID = "other" }},
		"changed and changed back":      {change: func(s *server) { s.binding("everynode-nodejobs").Generation = 3 }},
		"the confinement created again": {change: func(s *server) { s.binding("everynode-confine-pods").UID = "other" }, id: true},
		"the API is not served": {
			change: func(s *server) { s.err = &meta.NoKindMatchError{} },
			want:   "serves no ValidatingAdmissionPolicy. Enable admissionregistration.k8s.io/v1, or run without policies: --require-policies=false",
		},
		"the manager may not list them": {
			change: func(s *server) { s.err = apierrors.NewForbidden(schema.GroupResource{}, "", nil) },
			want:   "the manager may not list",
		},
	}
	before, problem, err := e.Check(t.Context(), install(e))
	if problem != "" || err != nil || !before.Since.Equal(installedAt) {
		t.Fatalf("as installed: %q, %v, %v", problem, err, before)
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := install(e)
			tt.change(s)
			got, problem, err := e.Check(t.Context(), s)
			if err != nil || (problem == "") != (tt.want == "") || !strings.Contains(problem, tt.want) {
				t.Errorf("%q, %v, want %q", problem, err, tt.want)
			}
			if got.ID == before.ID != tt.id {
				t.Errorf("the ID is the same: %v, want %v", got.ID == before.ID, tt.id)
			}
			if problem != "" && !strings.Contains(problem, "--require-policies=false") {
				t.Errorf("no remedy in %q", problem)
			}
		})
	}
}

func TestAllNamespacesNeedNoConfinementToSome(t *testing.T) {
	all, err := NewExpected(false, false)
	if err != nil {
		t.Fatal(err)
	}
	if e := expected(t); len(all.policies) != len(e.policies)-1 {
		t.Errorf("%d policies without the label, %d with it", len(all.policies), len(e.policies))
	}
}

// TestAsk shows that what has changed is authorized only by a look at the policies after it was read.
func TestAsk(t *testing.T) {
	e := expected(t)
	s := install(e)
	c := &Checker{Expected: e, Reader: s, Now: func() time.Time { return installedAt.Add(time.Hour) }}
	w := Written{Generation: 1, Created: installedAt.Add(time.Minute)}
	ask := func(before *v1alpha1.Authorization, wantLists int, wantReason string) *v1alpha1.Authorization {
		t.Helper()
		s.lists = 0
		answer, err := c.Ask(t.Context(), before, w, "COMMAND")
		reason := ""
		if answer.Obstacle != nil {
			reason = answer.Obstacle.Reason
		}
		if err != nil || s.lists != wantLists || reason != wantReason {
			t.Fatalf("%v after %d lists, obstacle %q, want %d and %q", err, s.lists, reason, wantLists, wantReason)
		}
		return answer.Authorization
	}
	first := ask(nil, 1, "")
	ask(first, 0, "")
	w.Generation = 2
	second := ask(first, 1, "")

	// A binding is deleted by hand. What is authorized continues until the next poll; what has changed does not start.
	s.binding("everynode-nodejobs").Name = "deleted"
	ask(second, 0, "")
	w.Generation = 3
	if after := ask(second, 1, v1alpha1.ReasonPoliciesMissing); *after != *second {
		t.Errorf("without policies, the authorization is %+v", after)
	}
	ask(second, 0, v1alpha1.ReasonPoliciesMissing) // until the next poll

	// It is installed again.
	s.binding("deleted").UID, s.binding("deleted").Name = "other", "everynode-nodejobs"
	c.poll(t.Context())
	w.Created = installedAt.Add(-time.Hour)
	held := ask(second, 1, v1alpha1.ReasonNotAuthorized)
	ask(held, 0, v1alpha1.ReasonNotAuthorized)
	w.Retry = "r"
	confirmed := ask(held, 1, "")

	s.err = errors.New("timeout")
	w.Generation = 4
	if _, err := c.Ask(t.Context(), confirmed, w, ""); err == nil {
		t.Error("no error, and the policies were not read")
	}
	c.Leave()
	ask(confirmed, 0, v1alpha1.ReasonInstallationTerminating)
}

func TestPoliciesThatAreNotRequired(t *testing.T) {
	answer, err := (&Checker{}).Ask(t.Context(), nil, Written{Generation: 1}, "")
	if err != nil || answer.Obstacle != nil || answer.Store || answer.Authorization.State != v1alpha1.AuthorizationNotRequired {
		t.Errorf("%+v, %v", answer, err)
	}
	var none *Checker
	if answer, err = none.Ask(t.Context(), nil, Written{}, ""); err != nil || answer != (Answer{}) {
		t.Errorf("without a Checker: %+v, %v", answer, err)
	}
}

// whoAmI answers the question who the client is.
type whoAmI struct {
	client.Client
	user string
	err  error
}

func (w whoAmI) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	o.(*authenticationv1.SelfSubjectReview).Status.UserInfo.Username = w.user
	return w.err
}

func TestCheckAccount(t *testing.T) {
	if err := CheckAccount(t.Context(), whoAmI{user: Account}); err != nil {
		t.Error(err)
	}
	err := CheckAccount(t.Context(), whoAmI{user: "system:serviceaccount:other:everynode-manager"})
	if err == nil || !strings.Contains(err.Error(), `"system:serviceaccount:other:everynode-manager"`) ||
		!strings.Contains(err.Error(), "--require-policies=false") {
		t.Error(err)
	}
	if err := CheckAccount(
		t.Context(),
		whoAmI{err: errors.New("timeout")},
	); err == nil ||
		!strings.Contains(err.Error(), "who the manager is: timeout") {
		t.Error(err)
	}
}
