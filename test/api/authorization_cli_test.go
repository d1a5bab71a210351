// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/internal/rights"
	"github.com/everynode/everynode/internal/ui/cmdutil"
)

// allInOne needs all rights, and RBAC for each kind.
const allInOne = `
apiVersion: everynode.dev/v1alpha1
kind: NodeJob
metadata: {name: all}
spec:
  nodes: {selector: {matchExpressions: [{key: example.com/none, operator: DoesNotExist}]}}
  task: {scriptFrom: {configMapKeyRef: {name: scripts, key: sh}}}
  maintenance: {drain: {}}
  gate: {}
  publish: [{result: a, label: x.test/a}]
---
apiVersion: everynode.dev/v1alpha1
kind: NodeJob
metadata: {name: templated}
spec: {nodes: {selector: {matchExpressions: [{key: example.com/none, operator: DoesNotExist}]}}, task: {template: {spec: {containers: [{name: a, image: b}]}}}}
---
apiVersion: everynode.dev/v1alpha1
kind: NodeGuard
metadata: {name: guard}
spec: {target: {daemonSet: a}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: scripts, labels: {everynode.dev/script: "true"}}
data: {sh: "true"}
`

// TestCanIWhateverIsInstalled asks for the rights of a user, while the installation becomes complete, and the user gets the
// rights by the commands that can-i prints.
func TestCanIWhateverIsInstalled(t *testing.T) {
	f := newRemovable(t)
	w := worldIn(t.Context(), t, "default")
	file := filepath.Join(t.TempDir(), "all.yaml")
	must(t, os.WriteFile(file, []byte(allInOne), 0o600))
	config := rest.CopyConfig(f.config)
	config.Impersonate.UserName = "jane"
	jane, err := client.New(config, client.Options{Scheme: scheme})
	must(t, err)
	job := func() error {
		return jane.Create(w.Ctx, jobFromYAML(t, w.Namespace, "script", `{task: {script: "true"}}`), client.DryRunAll)
	}
	canI := func(args ...string) told {
		return w.everynode(f.kubeconfig, append([]string{"can-i", "-f", file}, args...)...)
	}
	refused := func() error {
		if err := job(); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "jane lacks the right run-as-root") {
			return fmt.Errorf("the API server says %w", errors.Join(errors.New("it is no refusal"), err))
		}
		return nil
	}
	for _, situation := range []struct {
		name string
		// bring brings it about.
		bring func()
		args  []string
		code  int
		says  []string
		// wants checks what the API server does.
		wants func() error
	}{
		{"an API server without the CRDs", func() {}, nil, cmdutil.ExitNotInstalled, []string{"this cluster does not know NodeJobs: Everynode is not installed there"}, nil},
		{"the CRDs, and no policies", func() {
			must(t, f.kubectl("apply -k ../../config/crd"))
			f.Eventually("the kinds are served", func() error { return f.kubectl("get nodejobs,nodeguards -A") })
			must(t, f.kubectl("apply -f ../../config/rbac/user_roles.yaml"))
			f.create(&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "editor"},
				RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "everynode-nodejob-editor"}, Subjects: subject("jane")})
		}, nil, 0, []string{"Not all rights are enforced: ValidatingAdmissionPolicyBinding everynode-nodejobs does not exist: apply config/authorization"}, job},
		{"policies that only warn", func() {
			must(t, f.kubectl("apply -k ../../config/authorization"))
			f.Eventually("the policies refuse", refused)
			for _, name := range rights.Bindings() {
				must(t, f.kubectl(`patch validatingadmissionpolicybinding `+name+` --type=merge -p {"spec":{"validationActions":["Warn"]}}`))
			}
		}, nil, 0, []string{"Not all rights are enforced: ValidatingAdmissionPolicyBinding everynode-nodejobs has the validationActions [Warn], without Deny"}, job},
		{"a binding that is missing", func() { must(t, f.kubectl("delete validatingadmissionpolicybinding everynode-nodejobs")) }, nil, 0,
			[]string{"ValidatingAdmissionPolicyBinding everynode-nodejobs does not exist"}, job},
		{"all policies, for a cluster administrator", func() { must(t, f.kubectl("apply -k ../../config/authorization")) }, nil, 0,
			[]string{"run-as-root", "has all rights that this file needs.\n"}, refused},
		{"all policies, for a user with the role of an editor", func() {}, []string{"--as", "jane"}, cmdutil.ExitError,
			[]string{"jane lacks 12 rights", "kubectl create clusterrole everynode-run-as-root-disrupt-gate-label-in-NAMESPACE"}, refused},
		{"all policies, for a user who has what can-i printed", func() {
			for line := range strings.Lines(canI("--as", "jane").out) {
				if command, is := strings.CutPrefix(line, "  kubectl "); is {
					must(t, f.kubectl(strings.ReplaceAll(command, "NAMESPACE", w.Namespace)))
				}
			}
			f.Eventually("the rights count", job)
		}, []string{"--as", "jane"}, 0, []string{"jane has all rights that this file needs.\n"}, func() error { return f.kubectl("apply --as=jane -n default -f " + file) }},
	} {
		t.Run(situation.name, func(t *testing.T) {
			f.T = t
			situation.bring()
			if situation.wants != nil {
				f.Eventually("the API server does what it should", situation.wants)
			}
			got := canI(situation.args...)
			if got.code != situation.code {
				t.Errorf("exit code %d, want %d: %s%s", got.code, situation.code, got.out, got.err)
			}
			wantText(t, got.out+got.err, situation.says...)
		})
	}
}

// TestAPlanShowsTheMissingRight : its dry run is refused, and the plan is made from the file alone.
func TestAPlanShowsTheMissingRight(t *testing.T) {
	w := newWorld(t)
	w.rightsAreAsked()
	config := w.viewer()
	w.bind("user-"+w.Namespace, "everynode-nodejob-editor", false)
	file := filepath.Join(t.TempDir(), "job.yaml")
	must(
		t,
		os.WriteFile(
			file,
			[]byte(
				"apiVersion: everynode.dev/v1alpha1\nkind: NodeJob\nmetadata: {name: a}\nspec: {task: {script: \"true\"}, nodes: {selector: {matchLabels: {world: none}}}}\n",
			),
			0o600,
		),
	)
	w.Eventually("the plan shows the right", func() error { // the role may not be known yet
		got := w.everynode(config, "plan", "-f", file)
		if got.code != 0 ||
			!strings.Contains(strings.Join(strings.Fields(got.out), " "), "lacks the right run-as-root for namespace NAMESPACE") {
			return fmt.Errorf("exit code %d: %s%s", got.code, got.out, got.err)
		}
		return nil
	})
}
