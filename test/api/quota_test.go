// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/internal/uninstall"
)

// limitedClasses is how GKE and kube-up configure their API servers: pods of system priority classes need a quota that
// names the class.
const limitedClasses = `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: ResourceQuota
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: ResourceQuotaConfiguration
    limitedResources:
    - resource: pods
      matchScopes:
      - scopeName: PriorityClass
        operator: In
        values: [system-node-critical, system-cluster-critical]
`

// TestSystemPriorityClassesAreAllowedWhereTheyAreLimited shows that the quotas of config/ let the manager and the tasks
// run on an API server that limits system priority classes.
func TestSystemPriorityClassesAreAllowedWhereTheyAreLimited(t *testing.T) {
	config := filepath.Join(t.TempDir(), "admission.yaml")
	must(t, os.WriteFile(config, []byte(limitedClasses), 0o600))
	f := startFresh(t, "admission-control-config-file="+config)
	for _, name := range []string{"system-node-critical", "system-cluster-critical"} {
		f.Eventually("the priority class exists", func() error {
			return f.admin.Get(t.Context(), client.ObjectKey{Name: name}, &schedulingv1.PriorityClass{})
		})
	}
	must(t, f.kubectl("apply -f ../../config/manager/namespace.yaml"))
	must(t, f.kubectl("create namespace node-setup"))
	for _, test := range []struct{ namespace, class, quota string }{
		{uninstall.Namespace, "system-cluster-critical", "../../config/manager/quota.yaml"},
		{"node-setup", "system-node-critical", "../../config/samples/namespace.yaml"},
	} {
		create := func() error {
			return f.admin.Create(t.Context(), criticalPod(test.namespace, test.class))
		}
		if err := create(); err == nil || !strings.Contains(err.Error(), "insufficient quota to match these scopes") {
			t.Errorf("%s without a quota: %v", test.class, err)
		}
		must(t, f.kubectl("apply -f "+test.quota))
		f.playQuota(test.namespace)
		f.Eventually("a pod of the class is accepted with the quota", create)
	}
}

func criticalPod(namespace, class string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "critical"},
		Spec: corev1.PodSpec{
			PriorityClassName:            class,
			AutomountServiceAccountToken: new(bool),
			NodeName:                     "any",
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot:   new(true),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{Name: "c", Image: "i", SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: new(bool), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			}}},
		},
	}
}

// playQuota does what the quota controller does, which is not there: admission waits for the status of a quota.
func (f *freshServer) playQuota(namespace string) {
	f.T.Helper()
	quota := &corev1.ResourceQuota{}
	must(f.T, f.admin.Get(f.T.Context(), client.ObjectKey{Namespace: namespace, Name: "everynode-critical-pods"}, quota))
	quota.Status.Hard = quota.Spec.Hard
	quota.Status.Used = corev1.ResourceList{}
	for name := range quota.Spec.Hard {
		zero := quota.Spec.Hard[name].DeepCopy()
		zero.Set(0)
		quota.Status.Used[name] = zero
	}
	must(f.T, f.admin.Status().Update(f.T.Context(), quota))
}
