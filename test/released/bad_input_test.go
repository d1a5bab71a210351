// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package released_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/everynode/everynode/test/install"
)

// TestAnInstallationThatCannotWorkSaysWhatToDo installs the chart in ways in which no manager can run. The command that
// install.md names as a check says what to do.
func TestAnInstallationThatCannotWorkSaysWhatToDo(t *testing.T) {
	tests := map[string]struct {
		values, namespace, want string
	}{
		"the registry does not have the image": {
			values: "--set images.manager.digest=sha256:" + strings.Repeat("0", 64),
			want:   "cannot get its image. Check the registry, the tag and digest, and the pull secrets of the manager",
		},
		"the registry does not answer": {
			values: "--set images.registry=127.0.0.1:1/everynode",
			want:   "cannot get its image. Check the registry, the tag and digest, and the pull secrets of the manager",
		},
		"a quota of the namespace": {
			namespace: `
apiVersion: v1
kind: ResourceQuota
metadata: {name: none, namespace: everynode-system}
spec: {hard: {pods: 0}}`,
			want: "new pods are rejected. Change what rejects them in namespace everynode-system",
		},
		"no node for the manager": {
			values: "--set manager.nodeSelector.pool=none",
			want:   "Change the nodes, or the placement of the manager",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			u := newUser(t)
			u.kubectl("create namespace " + install.Namespace)
			if tt.namespace != "" {
				u.apply(tt.namespace)
			}
			u.helm("install everynode " + chart(site.old) + " " + tt.values)
			u.warns("warning: no manager is available", tt.want)
			u.uninstall()
		})
	}
}

// TestOlderCRDsAreReported upgrades the chart without its CRDs.
func TestOlderCRDsAreReported(t *testing.T) {
	u := newUser(t)
	u.kubectl("create namespace " + install.Namespace)
	u.helm("install everynode " + chart(site.old) + " --wait")
	u.helm("upgrade everynode " + chart(site.new) + " --set crds.enabled=false --wait")
	u.warns("everynode.dev is v0.1.0, and the manager is v0.2.0: ", "Apply the CustomResourceDefinitions of v0.2.0")
	u.uninstall()
}

// warns waits until the command that checks an installation prints these texts.
func (u *user) warns(texts ...string) {
	u.t.Helper()
	u.eventually("version names the problem", func() error {
		out := u.kubectl("everynode version")
		for _, text := range texts {
			if !strings.Contains(out, text) {
				return fmt.Errorf("it prints\n%s", out)
			}
		}
		return nil
	})
}

// TestTheChartNamesAWrongValue installs nothing.
func TestTheChartNamesAWrongValue(t *testing.T) {
	u := newUser(t)
	for value, want := range map[string]string{
		"manager.replicas=two": "at '/manager/replicas': got string, want integer",
		"manager.replica=2":    "at '/manager': additional properties 'replica' not allowed",
	} {
		_, err := u.command(
			"",
			*helm,
			append(
				[]string{"--namespace", install.Namespace, "install", "everynode", "--set", value},
				strings.Fields(chart(site.old))...)...)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("with %s: %v, want %q", value, err, want)
		}
	}
}
