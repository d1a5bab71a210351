// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"errors"
	"strings"
	"testing"
)

func TestPoliciesAreServedSince136(t *testing.T) {
	for kubernetes, want := range map[string]bool{"1.34": false, "v1.35.4": false, "1.36": true, "v1.36.3": true, "v1.37.2-eks-1": true} {
		if got, err := ServesPolicies(kubernetes); err != nil || got != want {
			t.Errorf("%s: %v, %v", kubernetes, got, err)
		}
	}
	if _, err := ServesPolicies("newest"); err == nil {
		t.Error("a version that is none is accepted")
	}
}

func TestOnlyThePoliciesMayBeRefused(t *testing.T) {
	var lines []string
	for _, object := range []string{
		`everynode-gate-node-setup" namespace: "" from "config/local": no matches for kind "MutatingAdmissionPolicyBinding"`,
		`everynode-manager-node-setup" namespace: "" from "config/local": no matches for kind "MutatingAdmissionPolicyBinding"`,
		`everynode-attribution" namespace: "" from "config/local": no matches for kind "MutatingAdmissionPolicyBinding"`,
		`everynode-attribution" namespace: "" from "config/local": no matches for kind "MutatingAdmissionPolicy"`,
		`everynode-gate" namespace: "" from "config/local": no matches for kind "MutatingAdmissionPolicy"`,
		`everynode-manager" namespace: "" from "config/local": no matches for kind "MutatingAdmissionPolicy"`,
	} {
		lines = append(
			lines,
			`resource mapping not found for name: "`+object+` in version "admissionregistration.k8s.io/v1"`,
			"ensure CRDs are installed first",
		)
	}
	six := strings.Join(lines, "\n")
	tests := map[string]struct {
		said     string
		accepted bool
	}{
		"the six objects": {six, true},
		"after what was applied": {
			"running kubectl [apply]: exit status 1\nnamespace/everynode-system created\nWarning: slow\n" + six,
			true,
		},
		"on one line with the command": {"kubectl apply -k config/default: exit status 1: " + six, true},
		"one is missing":               {strings.Join(lines[2:], "\n"), false},
		"another kind is not known": {
			six + "\n" + strings.ReplaceAll(lines[0], "MutatingAdmissionPolicyBinding", "NodeJob"),
			false,
		},
		"another object is refused": {
			six + "\n" + `The Deployment "everynode-manager" is invalid: spec.selector: Required value`,
			false,
		},
		"the policies in a version that was": {strings.ReplaceAll(six, "k8s.io/v1\"", "k8s.io/v1beta1\""), false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if err := PoliciesRefused(errors.New(test.said)); (err == nil) != test.accepted {
				t.Errorf("the answer is %v", err)
			}
		})
	}
	if err := PoliciesRefused(nil); err == nil {
		t.Error("no error is accepted")
	}
}
