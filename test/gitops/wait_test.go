// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package gitops_test

import (
	"fmt"
	"testing"
	"time"
)

// A NodeJob that runs until a file is on its node, and others that fail, or await their promotion.
const (
	waitingSpec  = `rollout: {steps: [{name: all}]}, retry: {limit: 0}, task: {script: "while ! [ -e /var/tmp/go ]; do sleep 0.2; done"}`
	failingSpec  = `rollout: {steps: [{name: all}]}, retry: {limit: 0}, task: {script: "exit 3"}`
	correctSpec  = `rollout: {steps: [{name: all}]}, retry: {limit: 0}, task: {script: "true"}`
	promotedSpec = `rollout: {promoteTo: canary, steps: [{name: canary, nodes: 1}, {name: all}]}, task: {script: "echo next"}`
)

func (u *user) commitNodeJob(namespace, spec string) {
	u.t.Helper()
	u.commit(namespace, "node-setup", map[string]string{"nodejob.yaml": nodeJob("task", spec)})
}

// reason waits until the NodeJob has this reason for the condition Complete.
func (u *user) reason(want string) {
	u.t.Helper()
	u.eventually("the reason of the NodeJob is "+want, func() error {
		if got := u.get("-n node-setup get nodejob task", `.status.conditions[?(@.type=="Complete")].reason`); got != want {
			return fmt.Errorf("it is %q", got)
		}
		return nil
	})
}

func TestAKustomizationWaitsForANodeJob(t *testing.T) {
	u := newUser(t)
	u.install(site.old)
	u.namespace()
	next := func(spec string) {
		u.commitNodeJob(fluxNamespace, spec)
		u.applied(fluxNamespace, "node-setup")
	}
	u.commitNodeJob(fluxNamespace, waitingSpec)
	u.apply(kustomization(fluxNamespace, "node-setup", ""))
	u.eventually("a script runs", func() error {
		if running := u.get("-n node-setup get nodejob task", ".status.nodes.running"); running == "" || running == "0" {
			return fmt.Errorf("the NodeJob runs on %q nodes", running)
		}
		return nil
	})
	u.shows(fluxNamespace, "node-setup", "Unknown;Progressing")
	for _, node := range []string{"node-1", "node-2"} {
		u.sh(node, "touch /var/tmp/go")
	}
	u.ready("node-setup")
	u.reason("AllNodesDone")

	began := time.Now()
	next(failingSpec)
	u.shows(fluxNamespace, "node-setup", "False;HealthCheckFailed", "NodeJob/node-setup/task status: 'Failed'")
	t.Logf("%s after the commit: %s", time.Since(began).Round(time.Second), u.condition(fluxNamespace, "node-setup"))
	next(correctSpec)
	u.ready("node-setup")
	u.reason("AllNodesDone")

	next(promotedSpec)
	u.ready("node-setup")
	u.reason("AwaitingPromotion")
	before := u.get("-n node-setup get nodejob task", ".metadata.generation")
	u.reconcile("node-setup")
	u.ready("node-setup")
	if after := u.get("-n node-setup get nodejob task", ".metadata.generation"); after != before {
		t.Errorf("Flux has changed the NodeJob without a commit: the generation was %s, and is %s", before, after)
	}

	u.kubectl("-n flux-system delete kustomization node-setup --timeout=60s")
	u.eventually("the NodeJob is deleted", func() error {
		if left := u.kubectl("-n node-setup get nodejobs -o name"); left != "" {
			return fmt.Errorf("left is %s", left)
		}
		return nil
	})
}

// TestAServiceAccountOfFluxNeedsTheRights : docs/install.md names the binding.
func TestAServiceAccountOfFluxNeedsTheRights(t *testing.T) {
	u := newUser(t)
	u.install(site.old)
	u.namespace()
	const account = "system:serviceaccount:node-setup:deployer"
	u.kubectl("-n node-setup create serviceaccount deployer")
	u.kubectl("-n node-setup create rolebinding deployer --clusterrole=everynode-nodejob-editor --serviceaccount=node-setup:deployer")
	u.commitNodeJob("node-setup", correctSpec)
	u.apply(kustomization("node-setup", "node-setup", "  serviceAccountName: deployer\n"))
	u.shows("node-setup", "node-setup", "False;ReconciliationFailed", account, "lacks the right")
	t.Log(u.condition("node-setup", "node-setup"))
	defer u.kubectl("delete clusterrolebinding flux-everynode")
	u.kubectl("create clusterrolebinding flux-everynode --clusterrole=everynode-all-effects --serviceaccount=node-setup:deployer")
	u.shows("node-setup", "node-setup", "True;")
	u.reason("AllNodesDone")
	if by := u.get("-n node-setup get nodejob task", `.metadata.annotations.everynode\.dev/changed-by`); by != account {
		t.Errorf("the NodeJob was changed by %q", by)
	}
}
