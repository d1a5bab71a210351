// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"fmt"
	"slices"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
)

// TestOnlyTheManagersNamespaceGetsTolerationsOfGates : the labels of the manager's pod alone may be on any pod.
func TestOnlyTheManagersNamespaceGetsTolerationsOfGates(t *testing.T) {
	needsPolicies(t)
	w := newWorld(t)
	policy := shipped[admissionv1.MutatingAdmissionPolicy](t, "manager.yaml")
	policy.Name = "everynode-manager-" + w.Namespace
	w.makes(policy)
	w.makes(&admissionv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: policy.Name},
		Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{
			PolicyName: policy.Name,
			ParamRef: &admissionv1.ParamRef{
				Namespace:               w.Namespace,
				Selector:                &metav1.LabelSelector{},
				ParameterNotFoundAction: new(admissionv1.AllowAction),
			},
		},
	})
	system := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "everynode-system"}}
	if err := admin.Create(w.Ctx, system); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	key := v1alpha1.GateKey(w.gate("gated", v1alpha1.GateSpec{}, `null`))
	tolerates := func(namespace string) (bool, error) {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "manager-", Labels: map[string]string{
				"app.kubernetes.io/name": "everynode", "app.kubernetes.io/component": "manager",
			}},
			Spec: corev1.PodSpec{
				ServiceAccountName:           "none",
				AutomountServiceAccountToken: new(false),
				Containers:                   []corev1.Container{{Name: "a", Image: "b"}},
			},
		}
		err := admin.Create(w.Ctx, pod, client.DryRunAll)
		return slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool { return t.Key == key }), err
	}
	w.Eventually("a pod in everynode-system tolerates the gate", func() error {
		does, err := tolerates("everynode-system")
		if err == nil && !does {
			err = fmt.Errorf("it does not tolerate %s", key)
		}
		return err
	})
	if does, err := tolerates(w.Namespace); does || err != nil {
		t.Errorf("a pod in %s tolerates the gate: %v, %v", w.Namespace, does, err)
	}
}
