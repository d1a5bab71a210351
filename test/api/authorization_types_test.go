// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/internal/rights"
	"github.com/everynode/everynode/internal/uninstall"
)

// TestTheExpressionsOfThePoliciesHaveTheRightTypes : Kubernetes checks them against the schemas of the objects, and reports
// fields that do not exist.
func TestTheExpressionsOfThePoliciesHaveTheRightTypes(t *testing.T) {
	w := newWorld(t)
	startControllers(t, w.kubeconfigOf(), "validatingadmissionpolicy-status-controller")
	wrong := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "wrong-field"},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{
				ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Create},
					Rule: admissionv1.Rule{
						APIGroups:   []string{"everynode.dev"},
						APIVersions: []string{"v1alpha1"},
						Resources:   []string{"nodejobs"},
					},
				}}},
			},
			Validations: []admissionv1.Validation{{Expression: "has(object.spec.disruption)"}},
		},
	}
	w.makes(wrong)
	checked := func(name string) admissionv1.ValidatingAdmissionPolicyStatus {
		t.Helper()
		var policy admissionv1.ValidatingAdmissionPolicy
		w.Within(time.Minute, 100*time.Millisecond, "the types of "+name+" are checked", func() error {
			if err := admin.Get(w.Ctx, client.ObjectKey{Name: name}, &policy); err != nil {
				return err
			}
			if policy.Status.ObservedGeneration != policy.Generation || policy.Status.TypeChecking == nil {
				return fmt.Errorf("the status is %+v, %w", policy.Status, errors.New("of an earlier version"))
			}
			return nil
		})
		return policy.Status
	}
	for _, name := range append(rights.Policies(), uninstall.Attribution, uninstall.NamespaceWarning) {
		for _, warning := range checked(name).TypeChecking.ExpressionWarnings {
			t.Errorf("%s: %s: %s", name, warning.FieldRef, warning.Warning)
		}
	}
	if warnings := checked(wrong.Name).TypeChecking.ExpressionWarnings; len(warnings) == 0 {
		t.Error("a field that does not exist is not reported, so nothing was checked")
	}
}
