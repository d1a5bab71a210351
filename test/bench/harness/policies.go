// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/policies"
	"github.com/everynode/everynode/test/bench/report"
	"github.com/everynode/everynode/test/bench/subject"
	"github.com/everynode/everynode/test/install"
)

// policies waits until the API server evaluates the admission policies of config/default. For Unchecked, it removes the bindings of
// all or some of them, and waits until the API server does not evaluate them.
func (e *everynode) policies(ctx context.Context) error {
	enforced := e.subject != report.Unchecked
	switch {
	case !enforced && len(e.Without) > 0:
		bindings := append([]string{"delete", "validatingadmissionpolicybindings"}, e.Without...)
		if err := e.kubectl(ctx, bindings...); err != nil {
			return err
		}
		return pause(ctx, policies.Enforced)
	case !enforced:
		for _, kind := range []string{"validatingadmissionpolicybindings", "mutatingadmissionpolicybindings"} {
			if err := e.kubectl(ctx, "delete", kind, "--all"); err != nil {
				return err
			}
		}
	}
	as := rest.CopyConfig(e.config)
	as.Impersonate.UserName = "system:serviceaccount:" + install.Namespace + ":" + install.Deployment
	manager, err := kubernetes.NewForConfig(as)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	return e.eventually(ctx, fmt.Sprintf("the policies are evaluated: %t", enforced), func() error {
		if confined := isConfined(ctx, manager); confined != enforced {
			return fmt.Errorf("the manager is confined: %t", confined)
		}
		if named, err := e.names(ctx); err != nil || named != enforced {
			return errors.Join(fmt.Errorf("the author of a NodeJob is named: %t", named), err)
		}
		return nil
	})
}

// isConfined reports whether the manager must not create a pod that belongs to no NodeJob.
func isConfined(ctx context.Context, manager kubernetes.Interface) bool {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "probe"},
		Spec:       corev1.PodSpec{AutomountServiceAccountToken: new(bool), Containers: []corev1.Container{{Name: "c", Image: "registry.invalid/none:1"}}},
	}
	_, err := manager.CoreV1().Pods(subject.Namespace).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err != nil && strings.Contains(err.Error(), "everynode-confine-")
}

// names reports whether the API server names who creates a NodeJob.
func (e *everynode) names(ctx context.Context) (bool, error) {
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(nodeJob(e.subject), &o.Object); err != nil {
		return false, fmt.Errorf("reading a manifest: %w", err)
	}
	created, err := e.dynamic.Resource(nodeJobs).Namespace(subject.Namespace).Create(ctx, o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return false, fmt.Errorf("creating a NodeJob as a dry run: %w", err)
	}
	return created.GetAnnotations()[v1alpha1.ChangedByAnnotation] != "", nil
}
