// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package released_test

import (
	"testing"

	"github.com/everynode/everynode/test/install"
	"github.com/everynode/everynode/test/publish"
)

// TestAReleaseIsInstalledUpgradedAndRemovedWithKubectl applies the manifests of two releases.
func TestAReleaseIsInstalledUpgradedAndRemovedWithKubectl(t *testing.T) {
	u := newUser(t)
	apply := func(r publish.Release) {
		manifest, err := r.Manifest(site.cluster.KubernetesVersion())
		u.kubectl("apply -f " + u.must(manifest, err))
		u.installed(r)
	}
	apply(site.old)
	u.begin()
	before := u.state()
	apply(site.new)
	u.wantState(before)
	apply(site.old)
	u.wantState(before)
	u.finish()
	u.uninstallWithNamespace()
}

// TestAReleaseIsInstalledUpgradedAndRemovedWithHelm takes the chart from the registry.
func TestAReleaseIsInstalledUpgradedAndRemovedWithHelm(t *testing.T) {
	u := newUser(t)
	u.helm("install everynode " + chart(site.old) + " --create-namespace --wait")
	u.kubectl("label namespace " + install.Namespace + " pod-security.kubernetes.io/enforce=restricted app.kubernetes.io/name=everynode")
	u.installed(site.old)
	u.begin()
	before := u.state()
	u.helm("upgrade everynode " + chart(site.new) + " --reset-then-reuse-values --wait")
	u.installed(site.new)
	u.wantState(before)
	u.helm("rollback everynode --wait")
	u.installed(site.old)
	u.wantState(before)
	u.finish()
	u.uninstallWithNamespace() // which has the record of the release
}

// chart are the arguments for the chart of a release.
func chart(r publish.Release) string {
	return "oci://" + site.registry.Address + "/everynode/charts/everynode --plain-http --version " + r.ChartVersion()
}
