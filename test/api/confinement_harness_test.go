// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// confineManager creates the policies of config/confinement, so that all tests show that they refuse nothing that a
// manager does, and waits until the API server enforces them.
func confineManager(ctx context.Context) error {
	files, err := filepath.Glob("../../config/confinement/[^k]*.yaml") // not kustomization.yaml
	if err != nil {
		return err
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for document := range strings.SplitSeq(string(content), "\n---\n") {
			o := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(document), &o.Object); err != nil {
				return fmt.Errorf("reading %s: %w", file, err)
			}
			if err := admin.Create(ctx, o); err != nil {
				return fmt.Errorf("creating the policy of %s: %w", file, err)
			}
		}
	}
	manager, err := client.New(asManager, client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		err := manager.Create(ctx, plainPod("default", "confined"), client.DryRunAll)
		if err != nil && strings.Contains(err.Error(), "everynode-confine-") {
			return nil
		}
	}
	return errors.New("the API server does not enforce the policies within 20 s")
}

// plainPod is a pod that belongs to no object.
func plainPod(namespace, name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken: new(bool),
			Containers:                   []corev1.Container{{Name: "c", Image: "registry.test/c:1"}},
		},
	}
}
