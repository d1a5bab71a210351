// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/yaml"
)

// TestThePoliciesCostOtherWritesLittle : the API server evaluates the selectors of a policy in each write of any object, and all
// match conditions of a policy for each object of its kinds, up to Kubernetes 1.36 after it has converted the object.
func TestThePoliciesCostOtherWritesLittle(t *testing.T) {
	files, err := filepath.Glob("../../config/*/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for document := range bytes.SplitSeq(content, []byte("\n---\n")) {
			var policy admissionv1.ValidatingAdmissionPolicy
			if !bytes.Contains(document, []byte("\nkind: ValidatingAdmissionPolicy\n")) {
				continue
			}
			if err := yaml.UnmarshalStrict(document, &policy); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			found++
			t.Run(policy.Name, func(t *testing.T) {
				if m := policy.Spec.MatchConstraints; m.NamespaceSelector != nil || m.ObjectSelector != nil {
					t.Error("its selector is not in spec.matchResources of the binding")
				}
				if !strings.HasPrefix(policy.Name, "everynode-confine-") {
					return
				}
				conditions := policy.Spec.MatchConditions
				if len(conditions) != 1 ||
					!strings.HasPrefix(
						conditions[0].Expression,
						`request.userInfo.username == "system:serviceaccount:everynode-system:everynode-manager"`,
					) {
					t.Errorf("it has the match conditions %v, not one that looks at the user first", conditions)
				}
			})
		}
	}
	if found == 0 {
		t.Error("there are no policies")
	}
}
