// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package binaries

import (
	"fmt"
	"slices"
	"strings"
)

// DefaultKubernetes is the minor version of Kubernetes where none is named.
const DefaultKubernetes = "1.37"

// kubernetesVersions are the minor versions of Kubernetes, ascending. The folder kubernetes-<version> pins the release.
var kubernetesVersions = []string{"1.34", "1.35", "1.36", "1.37"}

// KubernetesVersions are the minor versions of Kubernetes that can be built, ascending.
func KubernetesVersions() []string { return slices.Clone(kubernetesVersions) }

// ResolveKubernetes returns the minor version that a user has named, or the default for "". It is an error if there
// is no such version.
func ResolveKubernetes(version string) (string, error) {
	if version == "" {
		return DefaultKubernetes, nil
	}
	if !slices.Contains(kubernetesVersions, version) {
		return "", fmt.Errorf("unknown Kubernetes version %q: known are %s", version, strings.Join(kubernetesVersions, ", "))
	}
	return version, nil
}
