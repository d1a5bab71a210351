// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package gitops_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/everynode/everynode/test/install"
)

const doneSpec = `rollout: {steps: [{name: all}]}, task: {script: "echo ran >> /var/tmp/done"}`

// TestFluxInstallsAndUpgrades upgrades with a NodeJob that is done, and goes back.
func TestFluxInstallsAndUpgrades(t *testing.T) {
	u := newUser(t)
	u.install(site.old)
	u.namespace()
	u.apply(nodeJob("done", doneSpec))
	u.kubectl("-n node-setup wait --for=condition=Complete --timeout=120s nodejob/done")
	u.upgrade(site.new)
	u.upgrade(site.old)
	u.kubectl("-n node-setup wait --for=condition=Complete --timeout=60s nodejob/done")
	u.ranOnce("done")
}

// TestFluxSeesNoDriftInWhatTheManagerWrites : the manager puts finalizers on its own RBAC objects, and the API server sets
// defaults. What a user deletes or changes is repaired.
func TestFluxSeesNoDriftInWhatTheManagerWrites(t *testing.T) {
	u := newUser(t)
	u.install(site.old)
	u.eventually("the manager has changed its role", func() error {
		if finalizers := u.get(
			"get clusterrole everynode-manager",
			".metadata.finalizers",
		); !strings.Contains(
			finalizers,
			"everynode.dev/installation",
		) {
			return fmt.Errorf("its finalizers are %q", finalizers)
		}
		return nil
	})
	before := len(u.changes("everynode"))
	u.reconcile("everynode")
	u.ready("everynode")
	if drift := u.changes("everynode")[before:]; len(drift) > 0 {
		t.Errorf("Flux has changed objects that are as committed: %s", drift)
	}

	u.kubectl("delete clusterrole everynode-view")
	u.kubectl(`patch validatingadmissionpolicy everynode-nodejobs --type=merge -p {"spec":{"failurePolicy":"Ignore"}}`)
	u.reconcile("everynode")
	u.eventually("the objects are repaired", func() error {
		if role := u.get("get clusterrole everynode-view", ".metadata.name"); role == "" {
			return errors.New("the role is missing")
		}
		if policy := u.get("get validatingadmissionpolicy everynode-nodejobs", ".spec.failurePolicy"); policy != "Fail" {
			return fmt.Errorf("the failure policy is %s", policy)
		}
		return nil
	})
	if repaired := u.changes("everynode")[before:]; len(repaired) != 2 {
		t.Errorf("Flux has reported %s, want two objects", repaired)
	}
}

// TestUninstallWithASuspendedKustomization follows docs/install.md.
func TestUninstallWithASuspendedKustomization(t *testing.T) {
	u := newUser(t)
	u.install(site.old)
	u.namespace()
	u.apply(nodeJob("done", doneSpec))
	u.kubectl("-n node-setup wait --for=condition=Complete --timeout=120s nodejob/done")
	u.kubectl("-n " + fluxNamespace + ` patch kustomization everynode --type=merge -p {"spec":{"suspend":true}}`)
	t.Log(u.kubectl("everynode uninstall --yes"))
	u.nothingLeft()
	if left := u.kubectl("get namespace " + install.Namespace + " --ignore-not-found -o name"); left != "" {
		t.Errorf("left is %s", left)
	}
	u.kubectl("-n " + fluxNamespace + " delete kustomization everynode --timeout=60s")
}

// TestDeletingTheKustomization : Flux deletes the CRDs with all other objects, and the manager cleans up before it ends.
func TestDeletingTheKustomization(t *testing.T) {
	u := newUser(t)
	u.install(site.old)
	u.namespace()
	u.apply(nodeJob("closed", `gate: {nodes: All}, retry: {limit: 0}, task: {script: "echo ran >> /var/tmp/closed; exit 1"}`))
	u.kubectl("-n node-setup wait --for=condition=Stalled --timeout=120s nodejob/closed")
	if taints := u.kubectl(
		"get nodes -o jsonpath={.items[*].spec.taints[*].key}",
	); !strings.Contains(
		taints,
		"node-setup.everynode.dev/closed",
	) {
		t.Fatalf("no gate is closed: the taints are %s", taints)
	}
	u.kubectl("-n " + fluxNamespace + " delete kustomization everynode --timeout=120s")
	u.eventually("everything is removed", u.left)
	u.nothingLeft()
}
