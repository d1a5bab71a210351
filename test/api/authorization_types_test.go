// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/internal/rights"
	"github.com/everynode/everynode/internal/uninstall"
)

// startTypeChecker starts the controller of Kubernetes that checks the types of expressions in policies.
func startTypeChecker(t *testing.T, kubeconfig string) {
	t.Helper()
	program := filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kube-controller-manager")
	if _, err := os.Stat(program); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skipf("it needs a kube-controller-manager in KUBEBUILDER_ASSETS, which `make test-api` builds: %v", err)
	}
	var out bytes.Buffer
	cmd := exec.Command(program, "--kubeconfig="+kubeconfig, "--controllers=validatingadmissionpolicy-status-controller",
		"--leader-elect=false", "--secure-port=0", "--cert-dir="+t.TempDir())
	cmd.Stdout, cmd.Stderr = &out, &out
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		killed := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait() // an interrupt is an error
		killed.Stop()
		if t.Failed() {
			t.Logf("kube-controller-manager:\n%s", &out)
		}
	})
}

// TestTheExpressionsOfThePoliciesHaveTheRightTypes : Kubernetes checks them against the schemas of the objects, and reports
// fields that do not exist.
func TestTheExpressionsOfThePoliciesHaveTheRightTypes(t *testing.T) {
	w := newWorld(t)
	startTypeChecker(t, w.kubeconfigOf())
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
		w.within(time.Minute, 100*time.Millisecond, "the types of "+name+" are checked", func() error {
			if err := admin.Get(w.ctx, client.ObjectKey{Name: name}, &policy); err != nil {
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
