// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"net/http"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/testing/clitest"
	"github.com/everynode/everynode/internal/ui/cmdutil"
)

// TestARunInANamespaceThatIsNotAllowed is refused before the question. Without a terminal, the question has its own exit code.
func TestARunInANamespaceThatIsNotAllowed(t *testing.T) {
	const message = "namespace ns is not allowed to have NodeJobs and NodeGuards"
	for name, tt := range map[string]struct {
		label   string
		manager bool
		code    int
		said    string
	}{
		"allowed":                           {label: "true", manager: true, code: cmdutil.ExitDeclined},
		"not allowed":                       {manager: true, code: cmdutil.ExitForbidden},
		"the manager's flags are not known": {code: cmdutil.ExitDeclined, said: "note: unless the manager serves all namespaces, " + message},
	} {
		t.Run(name, func(t *testing.T) {
			f, _, errs := clitest.NewFactory(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.URL.Path == clitest.NodesPath:
					list := corev1.NodeList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}}
					for _, name := range []string{"node-1", "node-2"} {
						list.Items = append(list.Items, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{
							Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
						}})
					}
					clitest.Respond(w, list)
				case r.URL.Path == "/api/v1/namespaces/ns":
					clitest.Respond(
						w,
						corev1.Namespace{
							TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
							ObjectMeta: metav1.ObjectMeta{Name: "ns", Labels: map[string]string{v1alpha1.EnabledLabel: tt.label}},
						},
					)
				case strings.HasPrefix(r.URL.Path, "/apis/apps/v1/") && tt.manager:
					clitest.Respond(w, appsv1.Deployment{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}})
				default:
					clitest.RespondError(w, http.StatusForbidden, metav1.StatusReasonForbidden, "no")
				}
			}))
			cmd := NewCommand(f)
			cmd.SetArgs([]string{"--all", "--timeout", time.Minute.String(), "--", "true"})
			cmd.SilenceErrors, cmd.SilenceUsage = true, true
			err := cmd.ExecuteContext(t.Context())
			if code := cmdutil.CodeOf(
				err,
			); code != tt.code || !strings.HasPrefix(errs.String(), tt.said) ||
				(tt.said == "") != (errs.String() == "") {
				t.Errorf("exit code %d, with %v, and it says %q", code, err, errs)
			}
			if refused := strings.Contains(err.Error(), "nothing was run: "+message); refused != (tt.code == cmdutil.ExitForbidden) {
				t.Errorf("the error is %v", err)
			}
		})
	}
}
