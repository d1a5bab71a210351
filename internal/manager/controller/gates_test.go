// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/everynode/everynode/api/v1alpha1"
)

func gated(j *v1alpha1.NodeJob) { j.Spec.Gate = &v1alpha1.GateSpec{} }

func policy() *admissionv1.MutatingAdmissionPolicy {
	return &admissionv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "everynode-gate"}}
}

// binding binds a policy to the NodeJobs of a namespace.
func binding(policy, namespace string) *admissionv1.MutatingAdmissionPolicyBinding {
	return &admissionv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: policy + "-" + namespace},
		Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{
			PolicyName: policy,
			ParamRef:   &admissionv1.ParamRef{Namespace: namespace},
		},
	}
}

// answered returns errors for requests of admission policies and for lists of their bindings.
func answered(get, list error) interceptor.Funcs {
	return interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if _, ok := o.(*admissionv1.MutatingAdmissionPolicy); ok && get != nil {
				return get
			}
			return c.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			if _, ok := l.(*admissionv1.MutatingAdmissionPolicyBindingList); ok && list != nil {
				return list
			}
			return c.List(ctx, l, opts...)
		},
	}
}

func TestGaps(t *testing.T) {
	policies := admissionv1.SchemeGroupVersion.WithResource("mutatingadmissionpolicies").GroupResource()
	noParams := binding("everynode-gate", "ns")
	noParams.Spec.ParamRef = nil
	tests := map[string]struct {
		objects   []client.Object
		get, list error
		// want is the start of the gap, and wantRemedy how to fix it; "" if there is no gap.
		want, wantRemedy string
	}{
		"an API server without such policies": {
			get: &meta.NoKindMatchError{
				GroupKind: schema.GroupKind{Group: "admissionregistration.k8s.io", Kind: "MutatingAdmissionPolicy"},
			},
			want:       "this API server knows no MutatingAdmissionPolicy",
			wantRemedy: "Have the kubelet register with the taint: docs/gate.md",
		},
		"no policy": {want: "there is no MutatingAdmissionPolicy everynode-gate: apply config/gate", wantRemedy: "docs/gate.md"},
		"a policy that the manager may not read": {
			get:        apierrors.NewForbidden(policies, "everynode-gate", errors.New("no")),
			want:       "the manager may not see whether there is a MutatingAdmissionPolicy everynode-gate",
			wantRemedy: "docs/gate.md",
		},
		"bindings that the manager may not list": {
			objects:    []client.Object{policy()},
			list:       apierrors.NewForbidden(policies, "", errors.New("no")),
			want:       "the manager may not see the MutatingAdmissionPolicyBindings of policy everynode-gate",
			wantRemedy: "docs/gate.md",
		},
		"no binding": {
			objects:    []client.Object{policy()},
			want:       "no MutatingAdmissionPolicyBinding of policy everynode-gate selects the NodeJobs of namespace ns",
			wantRemedy: "Create a binding: docs/gate.md",
		},
		"a binding of another namespace": {
			objects: []client.Object{policy(), binding("everynode-gate", "other")},
			want:    "no MutatingAdmissionPolicyBinding", wantRemedy: "Create a binding",
		},
		"a binding of another policy": {
			objects: []client.Object{policy(), binding("other", "ns")},
			want:    "no MutatingAdmissionPolicyBinding", wantRemedy: "Create a binding",
		},
		"a binding without parameters": {
			objects: []client.Object{policy(), noParams},
			want:    "no MutatingAdmissionPolicyBinding", wantRemedy: "Create a binding",
		},
		"a binding without a policy": {
			objects: []client.Object{binding("everynode-gate", "ns")},
			want:    "there is no MutatingAdmissionPolicy", wantRemedy: "docs/gate.md",
		},
		"a manager that does not tolerate gates": {
			objects:    []client.Object{policy(), binding("everynode-gate", "ns"), binding("everynode-manager", "other")},
			want:       "nodes are tainted when they are created, but no MutatingAdmissionPolicyBinding of policy everynode-manager",
			wantRemedy: "Create a binding",
		},
		"policy and binding exist": {
			objects: []client.Object{
				policy(),
				binding("everynode-gate", "other"),
				binding("everynode-gate", "ns"),
				binding("everynode-manager", "ns"),
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := newFaultyReconciler(t, answered(tt.get, tt.list), append(tt.objects, liveJob(gated))...)
			if gap := r.gates.gap("ns"); !strings.HasPrefix(gap, "it is not known yet") {
				t.Errorf("before the first poll: %q", gap)
			}
			r.pollOnce(t.Context())
			gap := r.gates.gap("ns")
			if !strings.HasPrefix(gap, tt.want) || !strings.Contains(gap, tt.wantRemedy) || (tt.want == "") != (gap == "") {
				t.Errorf("the gap is %q, want %q … %q", gap, tt.want, tt.wantRemedy)
			}
			if got := r.woken(); len(got) != 1 {
				t.Errorf("the first poll wakes %v", got)
			}
			r.pollOnce(t.Context())
			if got := r.woken(); len(got) > 0 {
				t.Errorf("another poll wakes %v, although nothing has changed", got)
			}
		})
	}
}

func TestAChangeOfThePolicyWakesOnlyGatedNodeJobs(t *testing.T) {
	named := func(name string) func(*v1alpha1.NodeJob) {
		return func(j *v1alpha1.NodeJob) { j.Name, j.UID = name, "" }
	}
	r := newReconciler(t, liveJob(named("open")), liveJob(named("b"), gated), liveJob(named("a"), gated))
	for _, step := range []struct {
		what string
		do   func()
		want string
	}{
		{"first", func() {}, "ns/a ns/b"},
		{"nothing", func() {}, ""},
		{"a policy is created", func() { r.create(policy()) }, "ns/a ns/b"},
		{"a binding is created", func() { r.create(binding("everynode-gate", "ns")) }, "ns/a ns/b"},
		{"a binding of another policy is created", func() { r.create(binding("other", "ns")) }, ""},
		{"the binding is deleted", func() { r.delete(binding("everynode-gate", "ns")) }, "ns/a ns/b"},
		{"the policy is deleted", func() { r.delete(policy()) }, "ns/a ns/b"},
	} {
		step.do()
		r.pollOnce(t.Context())
		if got := strings.Join(r.woken(), " "); got != step.want {
			t.Errorf("%s: it wakes %q, want %q", step.what, got, step.want)
		}
	}
}

// Without a gate, the manager does not need to know which policies taint nodes.
func TestWithoutAGateThePolicyIsReadOnce(t *testing.T) {
	gets := 0
	r := newFaultyReconciler(
		t,
		interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				gets++
				return c.Get(ctx, key, o, opts...)
			},
		},
		liveJob(),
	)
	for range 3 {
		r.pollOnce(t.Context())
	}
	if gets != 1 {
		t.Errorf("%d requests, want 1", gets)
	}
}

// Until the API server responds again, the last result is valid.
func TestAnErrorKeepsTheLastGateResult(t *testing.T) {
	var broken error
	faults := interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if broken != nil {
				return broken
			}
			return c.Get(ctx, key, o, opts...)
		},
	}
	r := newFaultyReconciler(t, faults, liveJob(gated), policy(), binding("everynode-gate", "ns"), binding("everynode-manager", "ns"))
	r.pollOnce(t.Context())
	r.woken()
	broken = errors.New("away")
	r.pollOnce(t.Context())
	if gap, woken := r.gates.gap("ns"), r.woken(); gap != "" || len(woken) > 0 {
		t.Errorf("the gap is %q, and %v wake", gap, woken)
	}
}
