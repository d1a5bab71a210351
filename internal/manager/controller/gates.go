// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"slices"
	"sync"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The MutatingAdmissionPolicies of config/gate: one taints nodes, the other lets the manager tolerate the taints.
// Without the second, a manager that loses its node could find all other nodes gated.
const (
	gatePolicy    = "everynode-gate"
	managerPolicy = "everynode-manager"
)

// gates stores whether the API server adds the gates' taints to nodes, according to the last poll.
type gates struct {
	mu sync.Mutex
	// known is true after the first poll.
	known bool
	// missing is why the API server enforces no gate at all; "" if there is a policy.
	missing string
	// bound are the policies with the namespaces of the NodeJobs that they cover: "POLICY/NAMESPACE".
	bound []string
}

// gap says why a node is not tainted in the request that creates it, and what to do; "" if it is.
func (g *gates) gap(namespace string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case !g.known:
		return "it is not known yet whether the API server taints nodes when they are created"
	case g.missing != "":
		return g.missing + ". The manager taints a node a moment after its creation, and a pod may be scheduled in between. Have the kubelet register with the taint: docs/gate.md"
	case slices.Contains(g.bound, gatePolicy+"/"+namespace) && !slices.Contains(g.bound, managerPolicy+"/"+namespace):
		return fmt.Sprintf("nodes are tainted when they are created, but no MutatingAdmissionPolicyBinding of policy %s selects the NodeJobs of namespace %s, so a manager that loses its node may find all others closed. Create a binding: docs/gate.md",
			managerPolicy, namespace)
	case !slices.Contains(g.bound, gatePolicy+"/"+namespace):
		return fmt.Sprintf("no MutatingAdmissionPolicyBinding of policy %s selects the NodeJobs of namespace %s. The manager taints a node a moment after its creation, and a pod may be scheduled in between. Create a binding: docs/gate.md",
			gatePolicy, namespace)
	}
	return ""
}

// set stores the result of a poll, and reports whether it differs from the previous one.
func (g *gates) set(missing string, bound []string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	slices.Sort(bound)
	same := g.known && g.missing == missing && slices.Equal(g.bound, bound)
	g.known, g.missing, g.bound = true, missing, bound
	return !same
}

// lookAtGates asks the API server which admission policies taint nodes.
func (r watcher) lookAtGates(ctx context.Context) (missing string, bound []string, err error) {
	err = r.Reader.Get(ctx, client.ObjectKey{Name: gatePolicy}, &admissionv1.MutatingAdmissionPolicy{})
	switch {
	case meta.IsNoMatchError(err):
		return "this API server knows no MutatingAdmissionPolicy (Kubernetes 1.36 does)", nil, nil
	case apierrors.IsNotFound(err):
		return "there is no MutatingAdmissionPolicy " + gatePolicy + ": apply config/gate", nil, nil
	case apierrors.IsForbidden(err):
		return "the manager may not see whether there is a MutatingAdmissionPolicy " + gatePolicy, nil, nil
	case err != nil:
		return "", nil, fmt.Errorf("getting the MutatingAdmissionPolicy: %w", err)
	}
	var bindings admissionv1.MutatingAdmissionPolicyBindingList
	err = r.Reader.List(ctx, &bindings)
	switch {
	case apierrors.IsForbidden(err):
		return "the manager may not see the MutatingAdmissionPolicyBindings of policy " + gatePolicy, nil, nil
	case err != nil:
		return "", nil, fmt.Errorf("listing MutatingAdmissionPolicyBindings: %w", err)
	}
	for i := range bindings.Items {
		spec := &bindings.Items[i].Spec
		if spec.ParamRef != nil && (spec.PolicyName == gatePolicy || spec.PolicyName == managerPolicy) {
			bound = append(bound, spec.PolicyName+"/"+spec.ParamRef.Namespace)
		}
	}
	return "", bound, nil
}
