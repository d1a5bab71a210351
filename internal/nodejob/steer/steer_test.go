// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package steer

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
)

func TestTheToolThatManagesANodeJob(t *testing.T) {
	for want, job := range map[string]metav1.ObjectMeta{
		"":                         {Labels: map[string]string{"app.kubernetes.io/managed-by": "other"}},
		"Argo CD":                  {Annotations: map[string]string{"argocd.argoproj.io/tracking-id": "x"}},
		"Flux (Kustomization a/b)": {Labels: map[string]string{"kustomize.toolkit.fluxcd.io/namespace": "a", "kustomize.toolkit.fluxcd.io/name": "b"}},
		"Flux (HelmRelease a/b)":   {Labels: map[string]string{"helm.toolkit.fluxcd.io/namespace": "a", "helm.toolkit.fluxcd.io/name": "b"}},
		"Helm (release r)":         {Annotations: map[string]string{"meta.helm.sh/release-name": "r"}},
	} {
		if got := ManagedBy(&v1alpha1.NodeJob{ObjectMeta: job}); got != want {
			t.Errorf("managed by %q, want %q", got, want)
		}
	}
}
