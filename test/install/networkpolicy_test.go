// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"bytes"
	"os"
	"slices"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"
)

// TestTheEgressPolicyPatchesTheOneOfTheManager : a patch of another object would fail, and one without the type Egress would limit
// nothing.
func TestTheEgressPolicyPatchesTheOneOfTheManager(t *testing.T) {
	read := func(file string) (all []networkingv1.NetworkPolicy) {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for document := range bytes.SplitSeq(content, []byte("\n---\n")) {
			var policy networkingv1.NetworkPolicy
			if err := yaml.UnmarshalStrict(document, &policy); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			all = append(all, policy)
		}
		return all
	}
	patch := read("../../config/network-policy-egress/egress.yaml")[0]
	if !slices.ContainsFunc(read("../../config/network-policy/networkpolicy.yaml"), func(p networkingv1.NetworkPolicy) bool {
		return p.Name == patch.Name && p.Namespace == patch.Namespace &&
			p.Spec.PodSelector.MatchLabels["app.kubernetes.io/component"] == "manager"
	}) {
		t.Errorf("config/network-policy has no policy %s/%s of the manager", patch.Namespace, patch.Name)
	}
	if !slices.Equal(patch.Spec.PolicyTypes, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}) {
		t.Errorf("the types are %v", patch.Spec.PolicyTypes)
	}
	var ports []int
	for _, rule := range patch.Spec.Egress {
		if len(rule.Ports) == 0 {
			t.Error("a rule allows all ports")
		}
		for _, port := range rule.Ports {
			ports = append(ports, port.Port.IntValue())
		}
	}
	if want := []int{53, 53, 443, 6443}; !slices.Equal(ports, want) {
		t.Errorf("the ports are %v, want %v", ports, want)
	}
}
