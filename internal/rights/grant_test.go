// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package rights

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestGrants(t *testing.T) {
	root, disrupt := onNodes(RunAsRoot, "a", ""), onNodes(Disrupt, "a", "")
	for name, tt := range map[string]struct {
		missing []Right
		user    string
		want    []string
	}{
		"nothing is missing": {nil, "jane", nil},
		"two rights on nodes of one namespace, one of them twice": {[]Right{root, disrupt, root}, "jane", []string{
			"kubectl create clusterrole everynode-run-as-root-disrupt-in-a --verb=run-as-root,disrupt --resource=nodejobs.everynode.dev/nodes --resource-name=a",
			"kubectl create clusterrolebinding jane-everynode-run-as-root-disrupt-in-a --clusterrole=everynode-run-as-root-disrupt-in-a --user=jane",
		}},
		"another namespace has a role of its own": {[]Right{root, onNodes(RunAsRoot, "b", "")}, "jane", []string{
			"kubectl create clusterrole everynode-run-as-root-in-a --verb=run-as-root --resource=nodejobs.everynode.dev/nodes --resource-name=a",
			"kubectl create clusterrolebinding jane-everynode-run-as-root-in-a --clusterrole=everynode-run-as-root-in-a --user=jane",
			"kubectl create clusterrole everynode-run-as-root-in-b --verb=run-as-root --resource=nodejobs.everynode.dev/nodes --resource-name=b",
			"kubectl create clusterrolebinding jane-everynode-run-as-root-in-b --clusterrole=everynode-run-as-root-in-b --user=jane",
		}},
		"an installed role": {ToApply("everynode.dev", "nodejobs", "a"), "jane", []string{
			"kubectl -n a create rolebinding jane-everynode-nodejob-editor --clusterrole=everynode-nodejob-editor --user=jane",
		}},
		"one verb of an installed role": {ToApply("everynode.dev", "nodejobs", "a")[2:], "jane", []string{
			"kubectl -n a create role patch-nodejobs --verb=patch --resource=nodejobs.everynode.dev",
			"kubectl -n a create rolebinding jane-patch-nodejobs --role=patch-nodejobs --user=jane",
		}},
		"only to read": {ToApply("everynode.dev", "nodeguards", "a")[:1], "jane", []string{
			"kubectl -n a create rolebinding jane-everynode-nodeguard-viewer --clusterrole=everynode-nodeguard-viewer --user=jane",
		}},
		"only to read NodeDisruptionBudgets, for which no role is installed": {ToApply("everynode.dev", "nodedisruptionbudgets", "")[:1], "jane", []string{
			"kubectl create clusterrole get-nodedisruptionbudgets --verb=get --resource=nodedisruptionbudgets.everynode.dev",
			"kubectl create clusterrolebinding jane-get-nodedisruptionbudgets --clusterrole=get-nodedisruptionbudgets --user=jane",
		}},
		"objects of Kubernetes": {append(ToApply("", "configmaps", "a")[1:], create("policy", "poddisruptionbudgets", "a", "")), "jane", []string{
			"kubectl -n a create role create-patch-configmaps --verb=create,patch --resource=configmaps",
			"kubectl -n a create rolebinding jane-create-patch-configmaps --role=create-patch-configmaps --user=jane",
			"kubectl -n a create role create-poddisruptionbudgets --verb=create --resource=poddisruptionbudgets.policy",
			"kubectl -n a create rolebinding jane-create-poddisruptionbudgets --role=create-poddisruptionbudgets --user=jane",
		}},
		"a ServiceAccount": {ToApply("everynode.dev", "nodeguards", "a"), "system:serviceaccount:flux:sync", []string{
			"kubectl -n a create rolebinding system:serviceaccount:flux:sync-everynode-nodeguard-editor --clusterrole=everynode-nodeguard-editor --serviceaccount=flux:sync",
		}},
		"a user name that a shell would read": {[]Right{root}, "a; reboot", []string{
			"kubectl create clusterrole everynode-run-as-root-in-a --verb=run-as-root --resource=nodejobs.everynode.dev/nodes --resource-name=a",
			"kubectl create clusterrolebinding USER-everynode-run-as-root-in-a --clusterrole=everynode-run-as-root-in-a --user=USER",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, Grants(tt.missing, tt.user)); diff != "" {
				t.Errorf("commands (-want +got):\n%s", diff)
			}
		})
	}
}
